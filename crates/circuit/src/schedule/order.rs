//! The order of the gates of a part.

use std::ops::Range;

use crate::batch::{MAX_ANDS, MAX_LINEAR, Wire};
use crate::circuit::Circuit;

/// The gates of a part, sorted by their steps. A step is a depth: its linear gates, then its ANDs.
/// Gates are numbered as in the circuit.
pub(super) struct Order {
    /// The part's first gate.
    start: usize,
    /// The linear gates by step, and in a step by their depth among its linear gates.
    linear: Vec<u32>,
    /// The ends of the steps in `linear`.
    linear_ends: Vec<u32>,
    /// That depth, for each gate of the part.
    sub_depth: Vec<u32>,
    ands: Vec<u32>,
    /// The ends of the steps in `ands`.
    and_ends: Vec<u32>,
}

impl Order {
    /// Orders the gates of a part. `is_needed_later` says which are outputs, or are read after it.
    pub(super) fn new(
        circuit: &Circuit,
        gates: Range<usize>,
        is_needed_later: impl Fn(usize) -> bool,
    ) -> Self {
        let (mut step, last) = earliest_steps(circuit, gates.clone());
        delay_linear(circuit, gates.clone(), &mut step, last, is_needed_later);
        let start = gates.start;
        let first = first_output(circuit, start);
        let (a, b) = circuit.inputs_of_gates();
        let mut sub_depth = vec![0_u32; gates.len()];
        let mut deepest = 0;
        let (mut ands, mut linear) = (Vec::new(), Vec::new());
        for (i, gate) in gates.enumerate() {
            if circuit.is_and(gate) {
                ands.push(number(gate));
                continue;
            }
            linear.push(number(gate));
            let of = |wire: Wire| match wire.checked_sub(first) {
                Some(from) if step[from as usize] == step[i] => sub_depth[from as usize],
                _ => 0,
            };
            // An AND of the same step comes after all its linear gates, so it is not read here.
            sub_depth[i] = 1 + of(a[gate]).max(of(b[gate]));
            deepest = deepest.max(sub_depth[i]);
        }
        let (linear, _) = sort(&linear, deepest, |gate| sub_depth[gate - start]);
        let (linear, linear_ends) = sort(&linear, last, |gate| step[gate - start]);
        let (ands, and_ends) = sort(&ands, last, |gate| step[gate - start]);
        Self { start, linear, linear_ends, sub_depth, ands, and_ends }
    }

    /// The number of steps.
    pub(super) fn steps(&self) -> usize {
        self.linear_ends.len()
    }

    /// The runs of a step: gates that do not depend on each other, and are all linear or all ANDs.
    pub(super) fn runs(&self, step: usize) -> impl Iterator<Item = &[u32]> {
        let of = |ends: &[u32]| -> Range<usize> {
            step.checked_sub(1).map_or(0, |before| ends[before] as usize)..ends[step] as usize
        };
        let linear = &self.linear[of(&self.linear_ends)];
        let sub_depth = |gate: u32| self.sub_depth[gate as usize - self.start];
        let linear = linear.chunk_by(move |&x, &y| sub_depth(x) == sub_depth(y));
        let linear = linear.flat_map(|gates| gates.chunks(MAX_LINEAR));
        linear.chain(self.ands[of(&self.and_ends)].chunks(MAX_ANDS))
    }
}

/// The wire that a gate defines.
fn first_output(circuit: &Circuit, gate: usize) -> Wire {
    circuit.first_gate() + number(gate)
}

/// The first step in which each gate can be, and the last step of all.
fn earliest_steps(circuit: &Circuit, gates: Range<usize>) -> (Vec<u32>, u32) {
    let first = first_output(circuit, gates.start);
    let (a, b) = circuit.inputs_of_gates();
    // Of the value that a gate defines: that of an AND is ready in the next step.
    let mut ready: Vec<u32> = Vec::with_capacity(gates.len());
    let mut last = 0;
    for gate in gates.clone() {
        let of = |wire: Wire| wire.checked_sub(first).map_or(0, |from| ready[from as usize]);
        let at = of(a[gate]).max(of(b[gate])) + u32::from(circuit.is_and(gate));
        last = last.max(at);
        ready.push(at);
    }
    for (ready, gate) in ready.iter_mut().zip(gates) {
        *ready -= u32::from(circuit.is_and(gate));
    }
    (ready, last)
}

/// The number of ANDs on the longest path.
pub(super) fn depth(circuit: &Circuit) -> u32 {
    let (_, last) = earliest_steps(circuit, 0..circuit.len());
    last
}

/// Moves each linear gate to the last step in which it can be, so that its output takes a place as
/// briefly as possible.
fn delay_linear(
    circuit: &Circuit,
    gates: Range<usize>,
    step: &mut [u32],
    last: u32,
    is_needed_later: impl Fn(usize) -> bool,
) {
    let first = first_output(circuit, gates.start);
    let (a, b) = circuit.inputs_of_gates();
    let needed = |gate| if is_needed_later(gate) { last } else { u32::MAX };
    let mut needed: Vec<u32> = gates.clone().map(needed).collect();
    for (i, gate) in gates.enumerate().rev() {
        if !circuit.is_and(gate) && needed[i] != u32::MAX {
            step[i] = needed[i];
        }
        for wire in [a[gate], b[gate]] {
            if let Some(from) = wire.checked_sub(first) {
                needed[from as usize] = needed[from as usize].min(step[i]);
            }
        }
    }
}

/// Sorts gates by a key of at most `greatest`; gates with one key keep their order. Also returns
/// the end of each key.
fn sort(gates: &[u32], greatest: u32, key: impl Fn(usize) -> u32) -> (Vec<u32>, Vec<u32>) {
    let mut places = vec![0_u32; greatest as usize + 1];
    for &gate in gates {
        places[key(gate as usize) as usize] += 1;
    }
    let mut start = 0;
    for place in &mut places {
        (*place, start) = (start, start + *place);
    }
    let mut sorted = vec![0; gates.len()];
    for &gate in gates {
        let place = &mut places[key(gate as usize) as usize];
        sorted[*place as usize] = gate;
        *place += 1;
    }
    (sorted, places)
}

/// The number of a gate, of which a circuit has fewer than 2^32.
fn number(gate: usize) -> u32 {
    u32::try_from(gate).unwrap_or(u32::MAX)
}
