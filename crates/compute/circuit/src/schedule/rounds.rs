//! The rounds of a circuit that is repeated on its previous outputs.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use super::ConnectedPart;
use crate::batch::{ArenaCopy, CircuitPart, CircuitShape, FIRST_INPUT, MAX_UNDER_WAY, Wire, ZERO};
use crate::circuit::{Circuit, GateKind};

/// The differences between rounds: the places of the outputs, which are the evaluator's inputs of
/// the next round.
#[derive(Debug)]
pub(super) struct RepeatedCircuitRounds {
    pub(super) times: u64,
    /// For each part, in the first round, in those with an odd number, and in the others, which
    /// write outputs to the places that the odd ones read, and the other way round.
    transfers: [Vec<RoundArenaCopies>; 3],
}

#[derive(Debug)]
struct RoundArenaCopies {
    imports: Vec<ArenaCopy>,
    exports: Vec<ArenaCopy>,
}

/// An equivalent circuit in which no output is an input or a constant, so that each round writes
/// all of them.
pub(super) fn with_copied_outputs(circuit: &Circuit) -> Circuit {
    let mut copied = circuit.clone();
    let copy = |&wire: &Wire| {
        let is_gate = wire >= circuit.first_gate();
        if is_gate { wire } else { copied.push(GateKind::Xor, wire, ZERO) }
    };
    let outputs: Vec<Wire> = circuit.outputs().iter().map(copy).collect();
    copied.with_outputs(&[&outputs])
}

impl RepeatedCircuitRounds {
    /// The rounds of a circuit whose schedule keeps the places of inputs. Changes its shape to that
    /// of all rounds.
    pub(super) fn new(shape: &mut CircuitShape, parts: &[ConnectedPart], times: u64) -> Self {
        let mut odd = HashMap::new();
        for &place in &shape.outputs {
            odd.entry(place).or_insert_with(|| {
                shape.places += 1;
                shape.places - 1
            });
        }
        let transfers = [0, 1, 2].map(|round| transfers(shape, parts, &odd, round));
        if times.is_multiple_of(2) {
            shape.outputs.iter_mut().for_each(|place| *place = odd[place]);
        }
        shape.ands = shape.ands.saturating_mul(times);
        shape.xors = shape.xors.saturating_mul(times);
        shape.nots = shape.nots.saturating_mul(times);
        Self { times, transfers }
    }

    /// A part of the schedule in a round.
    pub(super) fn part<'a>(
        &'a self,
        part: CircuitPart<'a>,
        round: u64,
        index: usize,
    ) -> CircuitPart<'a> {
        let variant = if round == 0 { 0 } else { 2 - usize::from(!round.is_multiple_of(2)) };
        let RoundArenaCopies { imports, exports } = &self.transfers[variant][index];
        // A round's first part depends on the previous round, and the others depend on the first
        // part.
        let waits = match index {
            0 => u32::MAX,
            1..=MAX_UNDER_WAY => 1 << (index - 1),
            _ => 0,
        };
        CircuitPart { imports, exports, dependencies: part.dependencies | waits, ..part }
    }
}

/// The transfers of all parts in a round; the rounds from 1 on alternate between those of 1 and 2.
fn transfers(
    shape: &CircuitShape,
    parts: &[ConnectedPart],
    odd: &HashMap<Wire, Wire>,
    round: usize,
) -> Vec<RoundArenaCopies> {
    let first = FIRST_INPUT + shape.garbler_inputs;
    let output = |place: Wire, is_odd: bool| match odd.get(&place) {
        Some(&other) if is_odd => other,
        _ => place,
    };
    let is_odd = round == 1;
    let input = |place: Wire| {
        let at = place.checked_sub(first).filter(|at| *at < shape.evaluator_inputs);
        match at {
            Some(at) if round > 0 => output(shape.outputs[at as usize], !is_odd),
            Some(_) => place,
            None => output(place, is_odd),
        }
    };
    let parts = parts.iter().map(|part| {
        let import = |it: &ArenaCopy| ArenaCopy { from: input(it.from), ..*it };
        let export = |it: &ArenaCopy| ArenaCopy { to: output(it.to, is_odd), ..*it };
        RoundArenaCopies {
            imports: part.imports.iter().map(import).collect(),
            exports: part.exports.iter().map(export).collect(),
        }
    });
    parts.collect()
}

/// The digest of a circuit that is repeated.
pub(super) fn digest(circuit: &Circuit, times: u64) -> [u8; 32] {
    let mut digest = Sha256::new_with_prefix(b"sunder chain 1");
    digest.update(times.to_le_bytes());
    digest.update(circuit.digest());
    digest.finalize().into()
}
