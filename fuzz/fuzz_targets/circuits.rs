//! Nearly right circuits as text, and what must hold of them.

use arbitrary::Arbitrary;
use circuit::bristol::{BristolFormat, read, write};
use circuit::{CircuitSchedule, FIRST_INPUT, evaluate_64};

#[derive(Arbitrary, Debug)]
pub struct Input {
    /// The bits of the garbler's input, of the evaluator's and of the output.
    pub lengths: [u8; 3],
    gates: Vec<Gate>,
    /// Bytes that replace bytes of the text.
    changes: Vec<(u16, u8)>,
    /// A text instead of all this.
    text: Option<Vec<u8>>,
}

#[derive(Arbitrary, Debug)]
enum Gate {
    Xor(u16, u16),
    And(u16, u16),
    Inv(u16),
    Eq(bool),
    Eqw(u16),
    Mand(u16, u16, u16, u16),
    /// Two inputs, and one of [`NAMES`].
    Named(u16, u16, u8),
    Line(Vec<u32>, String),
}

/// Other names of gates of two inputs.
const NAMES: [&str; 4] = ["OR", "NOR", "NAND", "XNOR"];

/// Reads a text with these lengths of inputs and outputs, and checks what is read.
pub fn check(input: &Input, lengths: &str) {
    let text = input.text.clone().unwrap_or_else(|| text(input, lengths));
    let Ok(circuit) = read(&text).map_err(|error| assert!(!error.to_string().contains('\n')))
    else {
        return;
    };
    let bits = circuit.first_gate() - FIRST_INPUT;
    if bits > 1 << 12 {
        return;
    }
    let words: Vec<u64> =
        (1..=u64::from(bits)).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    let outputs = circuit.evaluate_64(&words);
    assert_eq!(evaluate_64(&CircuitSchedule::new(&circuit), &words), outputs);
    for format in [BristolFormat::Old, BristolFormat::Fashion] {
        let mut text = Vec::new();
        if write(&circuit, format, &mut text).is_ok() {
            assert_eq!(read(&text).unwrap().evaluate_64(&words), outputs);
        }
    }
}

fn text(input: &Input, lengths: &str) -> Vec<u8> {
    let inputs = u32::from(input.lengths[0]) + u32::from(input.lengths[1]);
    let mut wires = inputs;
    let mut lines = String::new();
    for gate in &input.gates {
        let out = wires;
        let of = |wire: u16| u32::from(wire) % out.max(1);
        let line = match gate {
            Gate::Xor(a, b) => format!("2 1 {} {} {out} XOR", of(*a), of(*b)),
            Gate::And(a, b) => format!("2 1 {} {} {out} AND", of(*a), of(*b)),
            Gate::Inv(a) => format!("1 1 {} {out} INV", of(*a)),
            Gate::Eq(value) => format!("1 1 {} {out} EQ", u8::from(*value)),
            Gate::Eqw(a) => format!("1 1 {} {out} EQW", of(*a)),
            Gate::Mand(a, b, c, d) => {
                wires += 1;
                let [a, b, c, d] = [a, b, c, d].map(|wire| of(*wire));
                format!("4 2 {a} {b} {c} {d} {out} {} MAND", out + 1)
            }
            Gate::Named(a, b, name) => {
                let name = NAMES[usize::from(*name) % NAMES.len()];
                format!("2 1 {} {} {out} {name} # {name}", of(*a), of(*b))
            }
            Gate::Line(numbers, name) => {
                let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
                format!("{} {name}", numbers.join(" "))
            }
        };
        wires += 1;
        lines.push_str(&line);
        lines.push('\n');
    }
    let mut text = format!("{} {wires}\n{lengths}\n{lines}", input.gates.len()).into_bytes();
    for &(at, byte) in &input.changes {
        let at = usize::from(at) % text.len();
        text[at] = byte;
    }
    text
}
