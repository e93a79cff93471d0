//! Reads both formats.

use thiserror::Error;

use super::BristolFormat;
use super::lines::{BristolLines, number, words};
use crate::batch::{FIRST_INPUT, ONE, Wire, ZERO};
use crate::circuit::Circuit;

/// The greatest number of input bits of a file.
pub const MAX_INPUTS: u32 = 1 << 24;

/// The fewest bytes of a gate with its line end.
const MIN_GATE_LEN: u64 = 10;

/// Why a text is not a circuit, and in which line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {reason}")]
pub struct BristolReadError {
    /// The number of the line, from 1. If something is missing at the end, it is the last one.
    pub line: usize,
    /// What is wrong.
    pub reason: BristolReadReason,
}

/// What is wrong in a line of a circuit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BristolReadReason {
    /// The first line is not two numbers.
    #[error("the numbers of gates and of wires are missing; is this a circuit in Bristol format?")]
    NoCounts,
    /// The lines with the lengths of inputs and outputs are in neither format.
    #[error("the numbers of input and output bits are missing or do not fit each other")]
    NoLengths,
    /// More inputs than [`MAX_INPUTS`].
    #[error("there are more than {MAX_INPUTS} input bits")]
    TooManyInputs,
    /// More inputs or outputs than wires.
    #[error("there are {wires} wires, but {bits} input or output bits")]
    TooFewWires {
        /// The stated number of wires.
        wires: u32,
        /// The stated number of bits.
        bits: u64,
    },
    /// The file is too short for the counts of its first line.
    #[error("there are {gates} gates and {wires} wires, which need more text than the file has")]
    TooShort {
        /// The stated number of gates.
        gates: u32,
        /// The stated number of wires.
        wires: u32,
    },
    /// The last word is not the name of a gate of the format.
    #[error("{0:?} is not a gate of this format")]
    UnknownGate(String),
    /// A gate has the wrong number of inputs or outputs, or of words.
    #[error("a gate {name} needs {needed}")]
    Arity {
        /// The gate.
        name: String,
        /// What it needs.
        needed: &'static str,
    },
    /// A number is missing, is not decimal, or is 2^32 or more.
    #[error("{0:?} is not a number of a wire")]
    NoNumber(String),
    /// A wire that the first line does not count.
    #[error("there is no wire {wire}: the first line states {wires} wires")]
    NoWire {
        /// The wire.
        wire: u32,
        /// The stated number of wires.
        wires: u32,
    },
    /// A gate reads a wire that no earlier gate defines.
    #[error("wire {0} is read before a gate defines it")]
    NotDefined(u32),
    /// A gate defines an input, or a wire that another one defines.
    #[error("wire {0} is defined already")]
    DefinedTwice(u32),
    /// No gate defines a wire.
    #[error("no gate defines wire {0}")]
    NeverDefined(u32),
    /// The number of gates is not that of the first line.
    #[error("there are {found} gates, but the first line states {stated}")]
    WrongCount {
        /// The number of gates.
        found: u32,
        /// The stated number.
        stated: u32,
    },
}

/// Reads a circuit in either format.
///
/// Copies and constants of the file (EQW, EQ) take no gates. Memory is bounded by a multiple of the
/// text's length, and [`MAX_INPUTS`].
///
/// # Errors
/// If the text is not a circuit.
pub fn read(text: &[u8]) -> Result<Circuit, BristolReadError> {
    let mut lines = BristolLines::new(text);
    let circuit = BristolHeader::read(&mut lines).and_then(|header| gates(&mut lines, &header));
    circuit.map_err(|reason| BristolReadError { line: lines.number().max(1), reason })
}

struct BristolHeader {
    format: BristolFormat,
    gates: u32,
    wires: u32,
    inputs: Vec<u32>,
    outputs: Vec<u32>,
}

impl BristolHeader {
    fn read(lines: &mut BristolLines) -> Result<Self, BristolReadReason> {
        let counts = lines.next_text().and_then(numbers).ok_or(BristolReadReason::NoCounts)?;
        let [gates, wires] = counts[..] else { return Err(BristolReadReason::NoCounts) };
        let second = lines.next_text().and_then(numbers).ok_or(BristolReadReason::NoLengths)?;
        // A third line of numbers is of Bristol Fashion: in the old format, a gate follows.
        let mut ahead = *lines;
        let third = ahead.next_text().and_then(numbers);
        let (format, inputs, outputs) = if let Some(third) = third {
            *lines = ahead;
            (BristolFormat::Fashion, values(&second)?, values(&third)?)
        } else {
            let [garbler, evaluator, outputs] = second[..] else {
                return Err(BristolReadReason::NoLengths);
            };
            (BristolFormat::Old, vec![garbler, evaluator], vec![outputs])
        };
        let header = Self { format, gates, wires, inputs, outputs };
        header.check(lines.rest())?;
        Ok(header)
    }

    /// Checks the counts against each other, and against the length of the text that follows.
    fn check(&self, rest: usize) -> Result<(), BristolReadReason> {
        let &Self { gates, wires, .. } = self;
        let sum = |values: &[u32]| values.iter().map(|&bits| u64::from(bits)).sum::<u64>();
        let inputs = sum(&self.inputs);
        if inputs > MAX_INPUTS.into() {
            return Err(BristolReadReason::TooManyInputs);
        }
        let bits = inputs.max(sum(&self.outputs));
        if bits > wires.into() {
            return Err(BristolReadReason::TooFewWires { wires, bits });
        }
        // A wire that is not an input is written somewhere, in two bytes at least.
        let rest = rest as u64 + 1;
        let needed = (u64::from(gates) * MIN_GATE_LEN).max(2 * (u64::from(wires) - inputs));
        if needed > rest {
            return Err(BristolReadReason::TooShort { gates, wires });
        }
        Ok(())
    }

    fn input_bits(&self) -> u32 {
        self.inputs.iter().sum()
    }
}

/// The numbers of a line; `None` if a word is not a number.
fn numbers(line: &[u8]) -> Option<Vec<u32>> {
    words(line).map(number).collect()
}

/// The lengths of values, after their number.
fn values(numbers: &[u32]) -> Result<Vec<u32>, BristolReadReason> {
    match numbers.split_first() {
        Some((&count, lengths)) if count as usize == lengths.len() => Ok(lengths.to_vec()),
        _ => Err(BristolReadReason::NoLengths),
    }
}

/// The wires of the circuit by those of the file.
struct BristolWireMap {
    inputs: u32,
    stated: u32,
    /// For each wire that is not an input; [`NONE`] if it is not defined yet.
    defined: Vec<Wire>,
}

const NONE: Wire = Wire::MAX;

impl BristolWireMap {
    fn read(&self, wire: u32) -> Result<Wire, BristolReadReason> {
        match wire.checked_sub(self.inputs) {
            None => Ok(FIRST_INPUT + wire),
            Some(i) => match self.defined.get(i as usize) {
                None => Err(BristolReadReason::NoWire { wire, wires: self.stated }),
                Some(&NONE) => Err(BristolReadReason::NotDefined(wire)),
                Some(&it) => Ok(it),
            },
        }
    }

    fn define(&mut self, wire: u32, it: Wire) -> Result<(), BristolReadReason> {
        let i = wire.checked_sub(self.inputs).ok_or(BristolReadReason::DefinedTwice(wire))?;
        let defined = self.defined.get_mut(i as usize);
        let defined = defined.ok_or(BristolReadReason::NoWire { wire, wires: self.stated })?;
        if *defined != NONE {
            return Err(BristolReadReason::DefinedTwice(wire));
        }
        *defined = it;
        Ok(())
    }
}

fn gates(lines: &mut BristolLines, header: &BristolHeader) -> Result<Circuit, BristolReadReason> {
    let inputs = header.input_bits();
    let defined = vec![NONE; (header.wires - inputs) as usize];
    let mut wires = BristolWireMap { inputs, stated: header.wires, defined };
    let mut circuit = Circuit::new(&header.inputs);
    let mut found = 0_u32;
    let mut all = Vec::new();
    while let Some(line) = lines.next_text() {
        found += 1;
        if found > header.gates {
            return Err(BristolReadReason::WrongCount { found, stated: header.gates });
        }
        all.clear();
        let name = split(line, &mut all)?;
        gate(&mut circuit, &mut wires, header.format, name, &all)?;
    }
    if found != header.gates {
        return Err(BristolReadReason::WrongCount { found, stated: header.gates });
    }
    if let Some(i) = (0..).zip(&wires.defined).find_map(|(i, &it)| (it == NONE).then_some(i)) {
        let missing: u32 = i;
        return Err(BristolReadReason::NeverDefined(inputs + missing));
    }
    let mut wire = header.wires - header.outputs.iter().sum::<u32>();
    for &bits in &header.outputs {
        let value = (wire..wire + bits).map(|wire| wires.read(wire));
        circuit.output(&value.collect::<Result<Vec<Wire>, BristolReadReason>>()?);
        wire += bits;
    }
    Ok(circuit)
}

/// The name of a gate, and its numbers.
fn split<'a>(line: &'a [u8], all: &mut Vec<u32>) -> Result<&'a [u8], BristolReadReason> {
    let start = line.iter().rposition(u8::is_ascii_whitespace).map_or(0, |at| at + 1);
    let (numbers, name) = line.split_at(start);
    for word in words(numbers) {
        all.push(number(word).ok_or_else(|| BristolReadReason::NoNumber(shorten_word(word)))?);
    }
    Ok(name)
}

/// Adds one gate, of which `all` has the numbers.
fn gate(
    circuit: &mut Circuit,
    wires: &mut BristolWireMap,
    format: BristolFormat,
    name: &[u8],
    all: &[u32],
) -> Result<(), BristolReadReason> {
    let arity = |needed| BristolReadReason::Arity { name: shorten_word(name), needed };
    let is_fashion = format == BristolFormat::Fashion;
    match (name, all) {
        (b"XOR" | b"XNOR" | b"AND" | b"NAND" | b"OR" | b"NOR", &[2, 1, a, b, out]) => {
            let [a, b] = [wires.read(a)?, wires.read(b)?];
            wires.define(out, binary(circuit, name, a, b))
        }
        (b"INV" | b"NOT", &[1, 1, a, out]) => {
            let a = wires.read(a)?;
            wires.define(out, circuit.not(a))
        }
        (b"EQW", &[1, 1, a, out]) if is_fashion => {
            let a = wires.read(a)?;
            wires.define(out, a)
        }
        (b"EQ", &[1, 1, value @ (0 | 1), out]) if is_fashion => {
            wires.define(out, if value == 1 { ONE } else { ZERO })
        }
        (b"MAND", &[inputs, outputs, ref all @ ..])
            if outputs > 0
                && u64::from(inputs) == 2 * u64::from(outputs)
                && all.len() as u64 == 3 * u64::from(outputs) =>
        {
            let outputs = outputs as usize;
            let read = all[..2 * outputs].iter().map(|&wire| wires.read(wire));
            let read = read.collect::<Result<Vec<Wire>, BristolReadReason>>()?;
            let (a, b) = read.split_at(outputs);
            for (i, &out) in all[2 * outputs..].iter().enumerate() {
                wires.define(out, circuit.and(a[i], b[i]))?;
            }
            Ok(())
        }
        (b"XOR" | b"XNOR" | b"AND" | b"NAND" | b"OR" | b"NOR", _) => {
            Err(arity("`2 1`, two inputs and one output"))
        }
        (b"INV" | b"NOT", _) => Err(arity("`1 1`, one input and one output")),
        (b"EQW", _) if is_fashion => Err(arity("`1 1`, one input and one output")),
        (b"EQ", _) if is_fashion => Err(arity("`1 1`, 0 or 1, and one output")),
        (b"MAND", _) => Err(arity("`2n n`, 2n inputs and n outputs")),
        _ => Err(BristolReadReason::UnknownGate(shorten_word(name))),
    }
}

/// Adds a gate of two inputs, as XORs and at most one AND.
fn binary(circuit: &mut Circuit, name: &[u8], a: Wire, b: Wire) -> Wire {
    let out = match name {
        b"AND" | b"NAND" => circuit.and(a, b),
        b"XOR" | b"XNOR" => circuit.xor(a, b),
        _ => {
            let (differ, both) = (circuit.xor(a, b), circuit.and(a, b));
            circuit.xor(differ, both)
        }
    };
    if name.starts_with(b"N") || name == b"XNOR" { circuit.not(out) } else { out }
}

/// A word for an error.
fn shorten_word(word: &[u8]) -> String {
    let most = &word[..word.len().min(20)];
    String::from_utf8_lossy(most).into_owned()
}
