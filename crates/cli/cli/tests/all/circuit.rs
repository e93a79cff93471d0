//! `sunder circuit`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use circuit::bristol::{self, BristolFormat};
use circuit::{Circuit, CircuitBuilder, bits, generate, netlist};

use crate::common::sunder;

const KEY: &str = "000102030405060708090a0b0c0d0e0f";
const BLOCK: &str = "00112233445566778899aabbccddeeff";
/// FIPS 197, appendix C.1.
const ENCRYPTED: &str = "69c4e0d86a7b0430d8cdb78070b4c55a";

/// `(x AND y0) XOR y1`, for a bit of the garbler and two of the evaluator.
const SMALL: &str = "2 5\n1 2 1\n\n2 1 0 1 3 AND\n2 1 3 2 4 XOR\n";

fn circuit(place: &Path, arguments: &[&str]) -> Output {
    sunder(place, &[&["circuit"], arguments].concat())
}

/// The output of a command that succeeds.
fn printed(place: &Path, arguments: &[&str]) -> String {
    let output = circuit(place, arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(place: &Path, arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&printed(place, &[arguments, &["--json"]].concat())).unwrap()
}

#[test]
fn info_counts_the_gates() {
    let place = tempfile::tempdir().unwrap();
    let info = json(place.path(), &["info", "mincut"]);
    assert_eq!(info["and"], 999_960);
    assert_eq!(info["xor"], 2_524_920);
    assert_eq!(info["garbler_inputs"], 250_000);
    assert_eq!(info["evaluator_inputs"], 250_000);
    let info = json(place.path(), &["info", "aes128"]);
    assert_eq!((&info["and"], &info["outputs"]), (&6_400.into(), &128.into()));
    assert!(printed(place.path(), &["info", "sha256"]).contains("256 bits"));
}

#[test]
fn generated_circuits_give_the_standards_values() {
    let place = tempfile::tempdir().unwrap();
    let aes = ["eval", "aes128", "--garbler", KEY, "--evaluator", BLOCK];
    assert_eq!(printed(place.path(), &aes), format!("{ENCRYPTED}\n"));
    assert_eq!(json(place.path(), &aes)["output"], ENCRYPTED);
    // "abc", padded to a block.
    let first = format!("61626380{}", "00".repeat(28));
    let second = format!("{}18", "00".repeat(31));
    let sha = ["eval", "sha256", "--garbler", &first, "--evaluator", &second];
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(printed(place.path(), &sha), format!("{digest}\n"));
}

#[test]
fn converted_circuits_are_the_same() {
    let place = tempfile::tempdir().unwrap();
    for format in ["old", "fashion"] {
        let file = format!("{format}.txt");
        let convert = ["convert", "aes128", "--to", format, "--out", &file];
        assert_eq!(printed(place.path(), &convert), "");
        let eval = ["eval", &file, "--garbler", KEY, "--evaluator", BLOCK];
        assert_eq!(printed(place.path(), &eval), format!("{ENCRYPTED}\n"));
        let [file, name] = [&file, "aes128"].map(|name| json(place.path(), &["info", name]));
        assert_eq!(file, name);
        // A file that exists is kept.
        assert_eq!(circuit(place.path(), &convert).status.code(), Some(2));
    }
    fs::write(place.path().join("small.txt"), SMALL).unwrap();
    assert_eq!(printed(place.path(), &["convert", "small.txt", "--to", "old"]), SMALL);
    let fashion = "2 5\n2 1 2\n1 1\n\n2 1 0 1 3 AND\n2 1 3 2 4 XOR\n";
    assert_eq!(printed(place.path(), &["convert", "small.txt"]), fashion);
}

#[test]
fn circuits_are_drawn_in_full_or_by_depth() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("small.txt"), SMALL).unwrap();
    let drawn = |name, out| {
        printed(place.path(), &["draw", name, "--out", out]);
        fs::read_to_string(place.path().join(out)).unwrap()
    };
    let small = drawn("small.txt", "small.svg");
    for label in ["g0", "e0", "e1", "AND", "XOR", "o0"] {
        assert_eq!(small.matches(&format!(">{label}<")).count(), 1, "{label}: {small}");
    }
    assert_eq!(small.matches("<path").count(), 5);
    assert!(small.ends_with("</svg>\n"));
    let large = drawn("aes128", "aes128.svg");
    assert!(large.contains("6400 AND") && large.contains("</svg>"), "{large}");
}

#[test]
fn errors_are_printed_in_one_line() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("small.txt"), SMALL).unwrap();
    fs::write(place.path().join("wrong.txt"), SMALL.replace("3 2 4 XOR", "3 2 9 XOR")).unwrap();
    fs::write(place.path().join("average.v"), "module average(input a);").unwrap();
    fs::write(place.path().join("list.json"), "\n{\"a\": [1]}").unwrap();
    let cases: [(&[&str], &str); 14] = [
        (&["info", "none"], "none is neither a file nor one of aes128, sha256, mincut"),
        (&["info", "wrong.txt"], "wrong.txt: line 5: there is no wire 9"),
        (&["convert", "wrong.txt"], "wrong.txt: line 5: there is no wire 9"),
        (&["info", "average.v"], "converted with yosys first, see `sunder circuit convert --help`"),
        (&["info", "list.json"], "not a netlist that yosys has written: missing field `modules`"),
        (&["info", "small.txt", "--garbler-inputs", "3"], "no input 3: the circuit has 2 input"),
        (
            &["info", "small.txt", "--garbler-inputs", "0"],
            "give numbers from 1, as in 1,3, or none",
        ),
        (
            &["eval", "small.txt", "--garbler", "01", "--evaluator", "0303"],
            "needs 2 bits (1 bytes)",
        ),
        (&["draw", "small.txt", "--out", "none/a.svg"], "cannot write none/a.svg"),
        (&["eval", "aes128", "--garbler", KEY], "the evaluator's input has 0 bytes, but the"),
        (&["eval", "small.txt", "--garbler", "1", "--evaluator", "03"], "not hexadecimal"),
        (&["eval", "small.txt", "--garbler", "+1", "--evaluator", "03"], "not hexadecimal"),
        (&["eval", "small.txt", "--garbler", "02", "--evaluator", "03"], "a higher bit"),
        (&["eval", "small.txt", "--garbler", "01", "--evaluator", "0303"], "has 2 bytes, but the"),
    ];
    for (arguments, expected) in cases {
        let output = circuit(place.path(), arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(
            stderr.contains(expected) && stderr.lines().count() == 1,
            "{arguments:?}: {stderr}"
        );
        let code = if expected.starts_with("cannot") { 1 } else { 2 };
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn bits_are_numbered_from_the_lowest() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("small.txt"), SMALL).unwrap();
    for (x, y, output) in [("01", "01", "01"), ("01", "03", "00"), ("00", "02", "01")] {
        let eval = ["eval", "small.txt", "--garbler", x, "--evaluator", y];
        assert_eq!(printed(place.path(), &eval), format!("{output}\n"));
    }
}

/// A circuit whose values have the bits of another one's in another order: bit i of a value is that
/// bit of the other circuit's value of this length.
fn reordered(circuit: &Circuit, of: fn(usize, usize) -> usize) -> Circuit {
    let mut builder = CircuitBuilder::new(circuit.input_values());
    let reorder = |value: &[u32]| -> Vec<u32> {
        let mut reordered = vec![0; value.len()];
        for (i, &wire) in value.iter().enumerate() {
            reordered[of(i, value.len())] = wire;
        }
        reordered
    };
    let inputs: Vec<Vec<u32>> =
        (0..circuit.input_values().len()).map(|index| reorder(&builder.input(index))).collect();
    let inputs: Vec<&[u32]> = inputs.iter().map(Vec::as_slice).collect();
    let outputs = builder.embed(circuit, &inputs);
    // Both orders are their own inverse.
    let outputs: Vec<Vec<u32>> = outputs.iter().map(|value| reorder(value)).collect();
    let outputs: Vec<&[u32]> = outputs.iter().map(Vec::as_slice).collect();
    builder.finish(&outputs)
}

#[test]
fn orders_of_bits_and_bytes_give_the_standards_values() {
    type Order = fn(usize, usize) -> usize;
    let place = tempfile::tempdir().unwrap();
    let block = format!("61626380{}18", "00".repeat(59));
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    // As in Bristol's older AES and SHA circuits, and as in Bristol Fashion.
    let orders: [(&str, &str, Order); 2] = [
        ("--bit-order", "msb", |i, _| i ^ 7),
        ("--byte-order", "big", |i, bits| bits - 8 - i / 8 * 8 + i % 8),
    ];
    for (option, order, of) in orders {
        for (name, circuit) in [("aes", generate::aes128()), ("sha", generate::sha256(64))] {
            let mut text = Vec::new();
            bristol::write(&reordered(&circuit, of), BristolFormat::Fashion, &mut text).unwrap();
            fs::write(place.path().join(name), text).unwrap();
        }
        let aes = ["eval", "aes", "--garbler", KEY, "--evaluator", BLOCK];
        assert_ne!(printed(place.path(), &aes).trim_end(), ENCRYPTED);
        let aes = printed(place.path(), &[&aes[..], &[option, order]].concat());
        assert_eq!(aes.trim_end(), ENCRYPTED);
        let sha = ["eval", "sha", "--garbler", &block, option, order];
        assert_eq!(printed(place.path(), &sha).trim_end(), digest);
    }
}

/// Circuits that others published, whose folder need not be there.
#[test]
fn published_circuits_give_the_standards_values_in_their_order() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/circuits");
    let folder = std::env::var_os("SUNDER_CIRCUITS").map_or(beside, Into::into);
    let block = format!("61626380{}18", "00".repeat(59));
    let state = "6a09e667bb67ae853c6ef372a54ff53a510e527f9b05688c1f83d9ab5be0cd19";
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let cases = [
        ("AES-non-expanded.txt", "--bit-order", "msb", BLOCK, KEY, ENCRYPTED),
        ("bristol-fashion-aes_128.txt", "--byte-order", "big", KEY, BLOCK, ENCRYPTED),
        ("sha-256.txt", "--bit-order", "msb", &block, "", digest),
        ("bristol-fashion-sha256.txt", "--byte-order", "big", &block, state, digest),
    ];
    for (name, option, order, garbler, evaluator, expected) in cases {
        let file = folder.join(name);
        if !file.exists() {
            eprintln!("skipped: {} is missing", file.display());
            continue;
        }
        let (file, place) = (file.to_str().unwrap(), Path::new("."));
        let eval = ["eval", file, "--garbler", garbler, "--evaluator", evaluator, option, order];
        assert_eq!(printed(place, &eval).trim_end(), expected, "{name}");
    }
}

#[test]
fn files_of_other_tools_are_read() {
    let place = tempfile::tempdir().unwrap();
    // (x OR y0) XOR y1.
    let or = "2 5\n2 1 2\n1 1\n\n2 1 0 1 3 OR\n2 1 3 2 4 XOR\n";
    let files = [
        or.to_owned(),
        format!("\u{feff}{or}"),
        format!("// source: own\n// edit: none\n\n{or}"),
        or.replace("OR\n", "OR # one of both\n"),
        or.replace("2 5", "3 6")
            .replace("3 OR", "3 NOR")
            .replace("4 XOR\n", "4 XOR\n1 1 4 5 NOT\n"),
    ];
    for file in files {
        fs::write(place.path().join("or.txt"), &file).unwrap();
        for (x, y, output) in [("00", "00", "00"), ("01", "00", "01"), ("01", "02", "00")] {
            let eval = ["eval", "or.txt", "--garbler", x, "--evaluator", y];
            assert_eq!(printed(place.path(), &eval).trim_end(), output, "{file}");
        }
        // In what is written, there are the gates of the format alone.
        let written = printed(place.path(), &["convert", "or.txt"]);
        let names = |line: &str| line.rsplit(' ').next().map(str::to_owned);
        let is_standard = |name: String| ["AND", "XOR", "INV"].contains(&&name[..]);
        assert!(written.lines().skip(4).filter_map(names).all(is_standard), "{written}");
    }
}

#[test]
fn info_shows_which_party_gives_which_value() {
    let place = tempfile::tempdir().unwrap();
    let text = "1 8\n3 3 1 3\n2 1 0\n2 1 0 3 7 AND\n";
    fs::write(place.path().join("three.txt"), text).unwrap();
    let info = printed(place.path(), &["info", "three.txt"]);
    for line in [
        "garbler's input    3 bits (input 1)",
        "evaluator's input  4 bits (input 2: 1, input 3: 3)",
        "output             1 bits (output 1: 1, output 2: 0)",
    ] {
        assert!(info.lines().any(|it| it.trim_start() == line), "{line}: {info}");
    }
    let assigned = ["info", "three.txt", "--garbler-inputs", "3,1"];
    let info = printed(place.path(), &assigned);
    assert!(info.contains("garbler's input    6 bits (input 1: 3, input 3: 3)"), "{info}");
    let info = json(place.path(), &assigned);
    let parties: Vec<&str> = info["input_values"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["party"].as_str().unwrap())
        .collect();
    assert_eq!(parties, ["garbler", "evaluator", "garbler"]);
    assert_eq!((&info["garbler_inputs"], &info["evaluator_inputs"]), (&6.into(), &1.into()));
    assert_ne!(info["sha256"], json(place.path(), &["info", "three.txt"])["sha256"]);
    // The values of a party are in the order of the file, each from a byte on.
    let eval = |of_garbler: &str, garbler: &str, evaluator: &str| {
        let parties = ["--garbler", garbler, "--evaluator", evaluator];
        let eval = ["eval", "three.txt", "--garbler-inputs", of_garbler];
        printed(place.path(), &[&eval[..], &parties].concat()).trim_end().to_owned()
    };
    assert_eq!(eval("3,1", "0107", "01"), "01");
    assert_eq!(eval("3,1", "0607", "01"), "00");
    assert_eq!(eval("none", "", "010107"), "01");
}

/// Runs yosys on a Verilog file, which it writes to `place`. The netlist is `FILE.json`.
fn synthesize(place: &Path, file: &str, verilog: &str) {
    fs::write(place.join(file), verilog).unwrap();
    let script = format!("prep -flatten -auto-top; write_json {file}.json");
    let mut yosys = Command::new("yosys");
    let output = yosys.args(["-q", "-p", &script, file]).current_dir(place).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

const OPERATORS: &str = "
module operators(input [15:0] a, b, input signed [15:0] c, d, input [3:0] s, output [63:0] sum,
    difference, product, quotient, remainder, signed_product, signed_quotient, signed_remainder,
    order, left, right, arithmetic, bits, chosen, table_entry, negated);
  assign sum = a + b, difference = a - b, product = a * b, quotient = a / b, remainder = a % b;
  assign signed_product = c * d, signed_quotient = c / d, signed_remainder = c % d;
  assign order = {a < b, a <= b, c < d, c >= d, a == b, a != b};
  assign left = a << s, right = a >> s, arithmetic = c >>> s;
  assign bits = {a[s], b[s +: 4], ^a, &a, |a, !a, a && b};
  assign chosen = s[0] ? a : ~b, negated = -c;
  reg [7:0] entry;
  always @* case (s)
    0: entry = 99; 1: entry = 124; 2: entry = 119; 3: entry = 123; 4: entry = 242; 5: entry = 107;
    6: entry = 111; 7: entry = 197; 8: entry = 48; 9: entry = 1; 10: entry = 103; 11: entry = 43;
    12: entry = 254; 13: entry = 215; 14: entry = 171; 15: entry = 118;
  endcase
  assign table_entry = entry;
endmodule
";

#[test]
fn verilog_computes_what_rust_computes() {
    let place = tempfile::tempdir().unwrap();
    synthesize(place.path(), "operators.v", OPERATORS);
    let circuit = netlist::read(&fs::read(place.path().join("operators.v.json")).unwrap()).unwrap();
    assert_eq!(circuit.input_values(), [16, 16, 16, 16, 4]);
    let table = [99, 124, 119, 123, 242, 107, 111, 197, 48, 1, 103, 43, 254, 215, 171, 118];
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..300 {
        let [a, b, c, d] = [(); 4].map(|()| rng.u16(..) >> rng.u32(..16));
        let (b, d, s) = (b.max(1), d.max(1), rng.u16(..16));
        let [signed_c, signed_d] = [c, d].map(u16::cast_signed).map(i64::from);
        let [x, y] = [a, b].map(u64::from);
        let bit = |value: bool| u64::from(value);
        let concatenated =
            |bits: &[bool]| bits.iter().fold(0, |value, &bit| value << 1 | u64::from(bit));
        let expected = [
            x + y,
            x.wrapping_sub(y),
            x * y,
            x / y,
            x % y,
            (signed_c * signed_d).cast_unsigned(),
            (signed_c / signed_d).cast_unsigned(),
            (signed_c % signed_d).cast_unsigned(),
            concatenated(&[
                a < b,
                a <= b,
                signed_c < signed_d,
                signed_c >= signed_d,
                a == b,
                a != b,
            ]),
            x << s,
            x >> s,
            (signed_c >> s).cast_unsigned(),
            (x >> s & 1) << 9
                | (y >> s & 15) << 5
                | bit(a.count_ones() % 2 == 1) << 4
                | bit(a == u16::MAX) << 3
                | bit(a != 0) << 2
                | bit(a == 0) << 1
                | bit(a != 0 && b != 0),
            if s & 1 == 1 { x } else { !y },
            table[usize::from(s)],
            (-signed_c).cast_unsigned(),
        ];
        let mut inputs = bits::of_bytes(&[a, b, c, d, s].map(u16::to_le_bytes).concat());
        inputs.truncate(68);
        let output = bits::to_bytes(&circuit.evaluate(&inputs));
        let output: Vec<u64> =
            output.chunks(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap())).collect();
        assert_eq!(output, expected, "{a} {b} {c} {d} {s}");
    }
}

#[test]
fn blif_of_verilog_computes_what_its_json_does() {
    let place = tempfile::tempdir().unwrap();
    let verilog = "module m(input [4:0] a, input [0:4] b, input c, output [5:0] sum, output less,\n  \
                   output [0:4] chosen, output [1:0] constant);\n  assign sum = a + b, less = a < b;\n  \
                   assign chosen = c ? a : b, constant = 2;\nendmodule\n";
    synthesize(place.path(), "m.v", verilog);
    let script = "synth -flatten -auto-top; write_blif m.blif; abc -lut 6; write_blif lut.blif";
    let mut yosys = Command::new("yosys");
    let output = yosys.args(["-q", "-p", script, "m.v"]).current_dir(place.path()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let shape = |file: &str| {
        let info = json(place.path(), &["info", file]);
        assert!(info["input_values"].is_array() && info["output_values"].is_array(), "{info}");
        [info["input_values"].clone(), info["output_values"].clone()]
    };
    for file in ["m.blif", "lut.blif"] {
        assert_eq!(shape(file), shape("m.v.json"));
        for (a, b, c) in [("1f", "1f", "01"), ("05", "0b", "00"), ("13", "02", "01")] {
            let evaluator = format!("{b}{c}");
            let eval = |file: &str| {
                let eval = ["eval", file, "--garbler", a, "--evaluator", &evaluator];
                printed(place.path(), &eval)
            };
            assert_eq!(eval(file), eval("m.v.json"), "{file} {a} {b} {c}");
        }
    }
    printed(place.path(), &["convert", "m.blif", "--out", "m.txt"]);
    assert_eq!(shape("m.txt"), shape("m.v.json"));
    // Without `synth`, cells would lose what BLIF does not say of them.
    let script = "prep -flatten -auto-top; write_blif cells.blif";
    let mut yosys = Command::new("yosys");
    yosys.args(["-q", "-p", script, "m.v"]).current_dir(place.path()).output().unwrap();
    let output = circuit(place.path(), &["info", "cells.blif"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("an instance of $") && stderr.contains("synth -flatten"), "{stderr}");
}

#[test]
fn verilog_with_a_clock_is_refused_with_its_place() {
    let place = tempfile::tempdir().unwrap();
    let counter = "module counter(input clock, input [3:0] a, output reg [3:0] sum);\n  \
                   always @(posedge clock) sum <= sum + a;\nendmodule\n";
    synthesize(place.path(), "counter.v", counter);
    let output = circuit(place.path(), &["info", "counter.v.json"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.starts_with("error: counter.v.json: counter.v:2."), "{stderr}");
    assert!(stderr.contains("($dff) keeps a state from one clock cycle to the next"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}
