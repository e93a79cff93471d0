//! Writes both formats.

use std::io::{self, Write};

use thiserror::Error;

use super::BristolFormat;
use crate::batch::{FIRST_INPUT, ONE, Wire, ZERO};
use crate::circuit::{Circuit, Gate, GateKind};

/// Why a circuit was not written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BristolWriteError {
    /// The old format derives constants from an input, and there is none.
    #[error("a circuit with constants and without inputs cannot be written in the old format")]
    NoInputs,
    /// The writer failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Writes a circuit.
///
/// A circuit that is read back computes the same function. It has the same digest, except in two
/// cases: the circuit has copies; or the format is the old one, and an output is a constant, an
/// input or a repeated wire, or an AND has a constant input.
///
/// # Errors
/// If the writer fails, or the circuit has constants and no inputs and the format is the old one.
pub fn write(
    circuit: &Circuit,
    format: BristolFormat,
    to: &mut impl Write,
) -> Result<(), BristolWriteError> {
    let numbering = BristolWireNumbering::new(circuit, format);
    if format == BristolFormat::Old && numbering.zero && circuit.first_gate() == FIRST_INPUT {
        return Err(BristolWriteError::NoInputs);
    }
    numbering.header(circuit, format, to)?;
    numbering.constants(format, to)?;
    let name = |wire: Wire| numbering.numbers[wire as usize];
    for (out, Gate { kind, a, b }) in (circuit.first_gate()..).zip(circuit.gates()) {
        let (first, out) = (name(a), name(out));
        match (kind, b) {
            (GateKind::Xor, ONE) => writeln!(to, "1 1 {first} {out} INV")?,
            (GateKind::Xor, ZERO) => numbering.copy(format, first, out, to)?,
            (GateKind::Xor, _) => writeln!(to, "2 1 {first} {} {out} XOR", name(b))?,
            (GateKind::And, _) => writeln!(to, "2 1 {first} {} {out} AND", name(b))?,
        }
    }
    for &(wire, out) in &numbering.copies {
        if format == BristolFormat::Fashion && wire <= ONE {
            writeln!(to, "1 1 {wire} {out} EQ")?;
        } else {
            numbering.copy(format, name(wire), out, to)?;
        }
    }
    Ok(())
}

/// The wires of the file by those of the circuit: the outputs are the last ones.
struct BristolWireNumbering {
    numbers: Vec<u32>,
    /// Whether the file has wires of the constants.
    zero: bool,
    one: bool,
    /// Outputs that are copies: of which wire of the circuit, and the wire of the file.
    copies: Vec<(Wire, u32)>,
    gates: usize,
    wires: u32,
}

impl BristolWireNumbering {
    fn new(circuit: &Circuit, format: BristolFormat) -> Self {
        let is_old = format == BristolFormat::Old;
        let (first, outputs) = (circuit.first_gate(), circuit.outputs());
        let mut is_last = vec![false; circuit.wires() as usize];
        // Outputs that are not the only output of a gate of their own.
        let mut is_copied = Vec::with_capacity(outputs.len());
        for &wire in outputs {
            is_copied.push(wire < first || is_last[wire as usize]);
            is_last[wire as usize] = true;
        }
        let has_copies = is_copied.contains(&true)
            || circuit.gates().any(|gate| gate.kind == GateKind::Xor && gate.b == ZERO);
        let uses = |constant: Wire| {
            let is_input = |gate: Gate| {
                gate.a == constant || (gate.kind == GateKind::And && gate.b == constant)
            };
            circuit.gates().any(is_input) || (is_old && outputs.contains(&constant))
        };
        let one = uses(ONE);
        let zero = uses(ZERO) || (is_old && (one || has_copies));
        let copies = is_copied.iter().filter(|&&copied| copied).count();
        let gates = circuit.len() + copies + usize::from(zero) + usize::from(one);
        let inputs = first - FIRST_INPUT;
        // Fewer than 2^32: each has more text than a wire has bytes.
        let wires = inputs + u32::try_from(gates).unwrap_or(u32::MAX - inputs);
        let mut it = Self { numbers: Vec::new(), zero, one, copies: Vec::new(), gates, wires };
        it.number(circuit, &is_copied);
        it
    }

    fn number(&mut self, circuit: &Circuit, is_copied: &[bool]) {
        let (first, outputs) = (circuit.first_gate(), circuit.outputs());
        let mut numbers = vec![u32::MAX; circuit.wires() as usize];
        for (wire, number) in (FIRST_INPUT..first).zip(0..) {
            numbers[wire as usize] = number;
        }
        let mut next = first - FIRST_INPUT;
        for (constant, is_used) in [(ZERO, self.zero), (ONE, self.one)] {
            if is_used {
                numbers[constant as usize] = next;
                next += 1;
            }
        }
        let last = (0..self.wires).rev().take(outputs.len());
        for ((&wire, &is_copied), number) in outputs.iter().zip(is_copied).rev().zip(last) {
            if is_copied {
                self.copies.push((wire, number));
            } else {
                numbers[wire as usize] = number;
            }
        }
        for number in numbers.iter_mut().skip(first as usize) {
            if *number == u32::MAX {
                *number = next;
                next += 1;
            }
        }
        self.numbers = numbers;
    }

    fn header(
        &self,
        circuit: &Circuit,
        format: BristolFormat,
        to: &mut impl Write,
    ) -> io::Result<()> {
        let (inputs, outputs) = (circuit.input_values(), circuit.output_values());
        writeln!(to, "{} {}", self.gates, self.wires)?;
        if format == BristolFormat::Old {
            let bits = circuit.outputs().len();
            return writeln!(
                to,
                "{} {} {bits}\n",
                circuit.garbler_inputs(),
                circuit.evaluator_inputs()
            );
        }
        for values in [inputs, outputs] {
            write!(to, "{}", values.len())?;
            for bits in values {
                write!(to, " {bits}")?;
            }
            writeln!(to)?;
        }
        writeln!(to)
    }

    fn constants(&self, format: BristolFormat, to: &mut impl Write) -> io::Result<()> {
        let [zero, one] = [self.numbers[ZERO as usize], self.numbers[ONE as usize]];
        if self.zero {
            match format {
                BristolFormat::Old => writeln!(to, "2 1 0 0 {zero} XOR")?,
                BristolFormat::Fashion => writeln!(to, "1 1 0 {zero} EQ")?,
            }
        }
        if self.one {
            match format {
                BristolFormat::Old => writeln!(to, "1 1 {zero} {one} INV")?,
                BristolFormat::Fashion => writeln!(to, "1 1 1 {one} EQ")?,
            }
        }
        Ok(())
    }

    fn copy(
        &self,
        format: BristolFormat,
        from: u32,
        out: u32,
        to: &mut impl Write,
    ) -> io::Result<()> {
        match format {
            BristolFormat::Old => {
                writeln!(to, "2 1 {from} {} {out} XOR", self.numbers[ZERO as usize])
            }
            BristolFormat::Fashion => writeln!(to, "1 1 {from} {out} EQW"),
        }
    }
}
