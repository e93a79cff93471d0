//! `sunder circuit`.

use std::fs;
use std::path::Path;
use std::process::Output;

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
    let cases: [(&[&str], &str); 9] = [
        (&["info", "none"], "none is neither a file nor one of aes128, sha256, mincut"),
        (&["info", "wrong.txt"], "wrong.txt: line 5: there is no wire 9"),
        (&["convert", "wrong.txt"], "wrong.txt: line 5: there is no wire 9"),
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
