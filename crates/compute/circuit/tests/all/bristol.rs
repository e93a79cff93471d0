//! Both text formats: round trips and rejected files.

use sunder_circuit::bristol::{
    BristolFormat, BristolReadError, BristolReadReason, MAX_INPUTS, read, write,
};
use sunder_circuit::generate::aes128;
use sunder_circuit::{Circuit, FIRST_INPUT, GateKind, ONE, ZERO};

use crate::common::{random_circuit, random_inputs};

fn written(circuit: &Circuit, format: BristolFormat) -> Vec<u8> {
    let mut text = Vec::new();
    write(circuit, format, &mut text).unwrap();
    text
}

#[test]
fn what_is_written_is_read_again() {
    for seed in 0..2_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let gates = rng.usize(..60);
        let circuit = random_circuit(&mut rng, gates);
        let inputs = random_inputs(&mut rng, circuit.first_gate() - FIRST_INPUT);
        for format in [BristolFormat::Old, BristolFormat::Fashion] {
            let again = read(&written(&circuit, format)).unwrap();
            assert_eq!(again.evaluate_64(&inputs), circuit.evaluate_64(&inputs), "{seed}");
            assert_eq!(again.input_values(), circuit.input_values());
            assert_eq!(again.output_values(), circuit.output_values());
        }
    }
}

#[test]
fn the_digest_stays_where_nothing_has_to_be_added() {
    let circuit = aes128();
    for format in [BristolFormat::Old, BristolFormat::Fashion] {
        let text = written(&circuit, format);
        let again = read(&text).unwrap();
        assert_eq!(again, circuit);
        assert_eq!(again.digest(), circuit.digest());
        assert_eq!(written(&again, format), text);
    }
    // Constants, inputs and one wire twice as outputs take EQ and EQW, which are no gates.
    let mut circuit = Circuit::new(&[1, 2, 3]);
    let x = circuit.and(FIRST_INPUT, FIRST_INPUT + 5);
    circuit.output(&[x, ZERO, x]);
    circuit.output(&[ONE, FIRST_INPUT]);
    assert_eq!(read(&written(&circuit, BristolFormat::Fashion)).unwrap(), circuit);
}

#[test]
fn constants_without_inputs_have_no_old_format() {
    let mut circuit = Circuit::new(&[]);
    circuit.output(&[ONE]);
    assert!(write(&circuit, BristolFormat::Old, &mut Vec::new()).is_err());
    assert_eq!(read(&written(&circuit, BristolFormat::Fashion)).unwrap(), circuit);
}

#[test]
fn all_gates_of_bristol_fashion_are_read() {
    let text = "5 12\r\n2 2 3\r\n1 4\r\n\r\n1 1 1 5 EQ\r\n1 1 0 6 EQW\r\n\
                4 2 6 1 2 3 7 8 MAND\r\n\n 2 1 7 8 9 XOR \n\t2 1 5 4 10 XOR\n";
    // The counts fit after a gate for the last wire.
    let text = text.replace("5 12", "6 12") + "1 1 10 11 INV";
    let circuit = read(text.as_bytes()).unwrap();
    assert_eq!((circuit.garbler_inputs(), circuit.evaluator_inputs()), (2, 3));
    for inputs in 0..32_u8 {
        let x: Vec<bool> = (0..5).map(|i| inputs >> i & 1 == 1).collect();
        let (first, second) = (x[0] & x[2], x[1] & x[3]);
        assert_eq!(circuit.evaluate(&x), [second, first ^ second, !x[4], x[4]], "{inputs}");
    }
    assert_eq!(circuit.gates().filter(|gate| gate.kind == GateKind::And).count(), 2);
}

#[test]
fn other_names_of_gates_are_lowered_to_and_and_xor() {
    type Gate = fn(bool, bool) -> bool;
    let gates: [(&str, Gate); 7] = [
        ("AND", |x, y| x & y),
        ("NAND", |x, y| !(x & y)),
        ("OR", |x, y| x | y),
        ("NOR", |x, y| !(x | y)),
        ("XOR", |x, y| x ^ y),
        ("XNOR", |x, y| x == y),
        ("NOT", |x, _| !x),
    ];
    for (name, function) in gates {
        let line = if name == "NOT" { "1 1 0 2 NOT" } else { &format!("2 1 0 1 2 {name}") };
        for header in ["1 1 1", "2 1 1\n1 1"] {
            let circuit = read(format!("1 3\n{header}\n\n{line}\n").as_bytes()).unwrap();
            assert!(circuit.counts().ands <= 1);
            for (x, y) in [(false, false), (false, true), (true, false), (true, true)] {
                assert_eq!(circuit.evaluate(&[x, y]), [function(x, y)], "{name} {x} {y}");
            }
        }
    }
}

#[test]
fn comments_and_a_byte_order_mark_are_left_out() {
    let plain = "2 5\n2 1 2\n1 1\n\n2 1 0 1 3 AND\n2 1 3 2 4 XOR\n";
    let circuit = read(plain.as_bytes()).unwrap();
    for text in [
        format!("\u{feff}{plain}"),
        format!("// source: a page\n// edit: none\n\n{plain}"),
        format!("\u{feff}# made by a tool\n{plain}# the end"),
        plain.replace("2 1 2\n", "2 1 2 # inputs\n# outputs:\n\n").replace("AND", "AND//both"),
    ] {
        assert_eq!(read(text.as_bytes()).unwrap(), circuit, "{text:?}");
    }
    // Some files in the old format have gates of several ANDs.
    let several = read(b"1 6\n2 2 2\n\n4 2 0 1 2 3 4 5 MAND\n").unwrap();
    assert_eq!((several.counts().ands, several.outputs().len()), (2, 2));
    let old = "2 5\n// lengths\n1 2 1\n2 1 0 1 3 AND\n\n2 1 3 2 4 XOR\n";
    assert_eq!(read(old.as_bytes()).unwrap().digest(), circuit.digest());
}

#[test]
fn input_values_are_assigned_to_the_parties() {
    let mut rng = fastrand::Rng::with_seed(5);
    for _ in 0..200 {
        let lengths: Vec<u32> = (0..rng.usize(1..6)).map(|_| rng.u32(0..9)).collect();
        let mut circuit = Circuit::new(&lengths);
        for _ in 0..50 {
            let (a, b) = (rng.u32(..circuit.wires()), rng.u32(..circuit.wires()));
            if rng.bool() {
                circuit.and(a, b)
            } else {
                circuit.xor(a, b)
            };
        }
        let outputs: Vec<u32> = (0..20).map(|_| rng.u32(..circuit.wires())).collect();
        circuit.output(&outputs);
        let garblers: Vec<usize> = (0..lengths.len()).filter(|_| rng.bool()).collect();
        let assigned = circuit.clone().with_garbler_values(&garblers);
        let inputs: Vec<Vec<u64>> =
            lengths.iter().map(|&bits| random_inputs(&mut rng, bits)).collect();
        let (of_garbler, of_evaluator): (Vec<usize>, Vec<usize>) =
            (0..lengths.len()).partition(|index| garblers.contains(index));
        let of = |indices: &[usize]| -> Vec<u64> {
            indices.iter().flat_map(|&index| inputs[index].clone()).collect()
        };
        let order = [of(&of_garbler), of(&of_evaluator)];
        assert_eq!(assigned.garbler_inputs() as usize, order[0].len());
        assert_eq!(assigned.evaluator_inputs() as usize, order[1].len());
        assert_eq!(assigned.garbler_values().len(), garblers.len());
        assert_eq!(assigned.evaluate_64(&order.concat()), circuit.evaluate_64(&inputs.concat()));
    }
    // As a circuit is without it, the garbler gives the first value.
    let circuit = aes128();
    assert_eq!(circuit.clone().with_garbler_values(&[0]), circuit);
    assert_ne!(circuit.clone().with_garbler_values(&[1]).digest(), circuit.digest());
}

#[test]
fn a_wrong_text_is_refused_with_its_line() {
    let old = |gates: &str| format!("2 4\n1 1 1\n\n{gates}");
    let name = |name: &str| BristolReadReason::UnknownGate(name.into());
    let arity = |name: &str, needed| BristolReadReason::Arity { name: name.into(), needed };
    let two = "`2 1`, two inputs and one output";
    let cases = [
        (String::new(), 1, BristolReadReason::NoCounts),
        ("\n\n".into(), 2, BristolReadReason::NoCounts),
        ("1 2 3\n".into(), 1, BristolReadReason::NoCounts),
        ("-1 2\n".into(), 1, BristolReadReason::NoCounts),
        ("4294967296 2\n".into(), 1, BristolReadReason::NoCounts),
        ("\u{7f}ELF".into(), 1, BristolReadReason::NoCounts),
        ("1 2\n".into(), 1, BristolReadReason::NoLengths),
        ("1 2\n1 1\n".into(), 2, BristolReadReason::NoLengths),
        ("1 2\n2 1\n1 1\n".into(), 3, BristolReadReason::NoLengths),
        ("1 2\n1 1\n2 1\n".into(), 3, BristolReadReason::NoLengths),
        (format!("0 {0}\n{0} 0 0\n", MAX_INPUTS + 1), 2, BristolReadReason::TooManyInputs),
        ("0 4294967295\n4294967295 4294967295 0\n".into(), 2, BristolReadReason::TooManyInputs),
        ("1 3\n2 2 1\n".into(), 2, BristolReadReason::TooFewWires { wires: 3, bits: 4 }),
        ("1 3\n1 1 4\n".into(), 2, BristolReadReason::TooFewWires { wires: 3, bits: 4 }),
        (
            "4000000000 4000000002\n1 1 1\n2 1 0 1 2 AND\n".into(),
            2,
            BristolReadReason::TooShort { gates: 4_000_000_000, wires: 4_000_000_002 },
        ),
        (
            "1 4000000002\n1 1 4000000000\n2 1 0 1 2 AND\n".into(),
            2,
            BristolReadReason::TooShort { gates: 1, wires: 4_000_000_002 },
        ),
        (old("2 1 0 1 2 AND\n2 1 0 1 3 MUX\n"), 5, name("MUX")),
        (old("# a\n2 1 0 1 2 AND // b\n2 1 0 1 3 MUX # c\n"), 6, name("MUX")),
        (old("2 1 0 1 2 AND\n2 1 0 1 3 //AND\n"), 5, name("3")),
        (old("2 1 0 1 2 AND\n1 1 0 1 3 NOR\n"), 5, arity("NOR", two)),
        (old("2 1 0 1 2 AND\n2 1 0 1 3 NOT\n"), 5, arity("NOT", "`1 1`, one input and one output")),
        (old("2 1 0 1 2 AND\n1 1 0 3 EQW\n"), 5, name("EQW")),
        (old("2 1 0 1 2 and\n2 1 0 1 3 AND\n"), 4, name("and")),
        (old("2 1 0 1 2 AND\n2 1 0 3 AND\n"), 5, arity("AND", two)),
        (old("2 1 0 1 2 AND\n1 1 0 1 3 XOR\n"), 5, arity("XOR", two)),
        (old("2 1 0 1 2 AND\n2 1 0 1 3 4 AND\n"), 5, arity("AND", two)),
        (old("2 1 0 1 2 AND\n2 1 0 1 3 INV\n"), 5, arity("INV", "`1 1`, one input and one output")),
        (old("2 1 0 1 2 AND\n2 1 0 x 3 AND\n"), 5, BristolReadReason::NoNumber("x".into())),
        (old("2 1 0 1 2 AND\n2 1 0 -1 3 AND\n"), 5, BristolReadReason::NoNumber("-1".into())),
        (old("2 1 0 1 2 AND\n2 1 0 4 3 AND\n"), 5, BristolReadReason::NoWire { wire: 4, wires: 4 }),
        (old("2 1 0 1 2 AND\n2 1 0 1 4 AND\n"), 5, BristolReadReason::NoWire { wire: 4, wires: 4 }),
        (old("2 1 0 3 2 AND\n2 1 0 1 3 AND\n"), 4, BristolReadReason::NotDefined(3)),
        (old("2 1 0 2 2 AND\n2 1 0 1 3 AND\n"), 4, BristolReadReason::NotDefined(2)),
        (old("2 1 0 1 2 AND\n2 1 0 1 2 AND\n"), 5, BristolReadReason::DefinedTwice(2)),
        (old("2 1 0 1 2 AND\n2 1 0 1 0 AND\n"), 5, BristolReadReason::DefinedTwice(0)),
        (
            old("2 1 0 1 2 AND\n2 1 0 1 3 AND\n\n2 1 0 1 3 AND\n"),
            7,
            BristolReadReason::WrongCount { found: 3, stated: 2 },
        ),
        (
            format!("{}{}", old("2 1 0 1 2 AND"), "\n".repeat(7)),
            10,
            BristolReadReason::WrongCount { found: 1, stated: 2 },
        ),
        ("1 4\n1 1 1\n\n2 1 0 1 3 AND\n".into(), 4, BristolReadReason::NeverDefined(2)),
        ("1 3\n1 2\n1 1\n\n1 1 2 2 EQ\n".into(), 5, arity("EQ", "`1 1`, 0 or 1, and one output")),
        (
            "1 4\n1 2\n1 1\n\n3 2 0 1 0 1 2 3 MAND\n".into(),
            5,
            arity("MAND", "`2n n`, 2n inputs and n outputs"),
        ),
        (
            "1 3\n1 2\n1 1\n\n0 0 2 MAND\n".into(),
            5,
            arity("MAND", "`2n n`, 2n inputs and n outputs"),
        ),
    ];
    for (text, line, reason) in cases {
        assert_eq!(read(text.as_bytes()), Err(BristolReadError { line, reason }), "{text:?}");
    }
}

#[test]
fn changed_texts_are_refused_or_are_valid() {
    let mut circuit = Circuit::new(&[3, 3]);
    let mut last = FIRST_INPUT;
    for wire in FIRST_INPUT + 1..FIRST_INPUT + 6 {
        let x = circuit.xor(last, wire);
        last = circuit.and(x, wire);
    }
    circuit.output(&[last]);
    let mut rng = fastrand::Rng::with_seed(1);
    for format in [BristolFormat::Old, BristolFormat::Fashion] {
        let text = written(&circuit, format);
        for _ in 0..20_000 {
            let mut changed = text.clone();
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(..changed.len());
                match rng.u8(..3) {
                    0 => changed[at] = *rng.choice(b"0123456789 \nXORANDINV").unwrap(),
                    1 => drop(changed.remove(at)),
                    _ => changed.insert(at, *rng.choice(b"0129 \n").unwrap()),
                }
            }
            if let Ok(circuit) = read(&changed) {
                let inputs = random_inputs(&mut rng, circuit.first_gate() - FIRST_INPUT);
                circuit.evaluate_64(&inputs);
            }
        }
    }
}
