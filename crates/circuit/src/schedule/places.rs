//! What parts pass on to each other, in the circuit's arena.

use std::collections::VecDeque;

use super::part::Scheduled;
use crate::batch::{FIRST_INPUT, MAX_UNDER_WAY, Transfer, Wire};
use crate::circuit::Circuit;

/// No part: the place is not to be used again.
const NEVER: u32 = u32::MAX;

/// The part that reads each wire last; [`NEVER`] if it keeps its place in the circuit's arena.
pub(super) struct LastParts(Vec<u32>);

impl LastParts {
    /// `ends` are those of the parts.
    pub(super) fn new(circuit: &Circuit, keep_inputs: bool, ends: &[usize]) -> Self {
        let mut last = vec![0; circuit.wires() as usize];
        let (a, b) = circuit.inputs_of_gates();
        let mut start = 0;
        for (part, &end) in (0..).zip(ends) {
            for (&a, &b) in a[start..end].iter().zip(&b[start..end]) {
                (last[a as usize], last[b as usize]) = (part, part);
            }
            start = end;
        }
        let kept = if keep_inputs { circuit.first_gate() } else { FIRST_INPUT };
        last[..kept as usize].fill(NEVER);
        for &wire in circuit.outputs() {
            last[wire as usize] = NEVER;
        }
        Self(last)
    }

    /// The part that reads a wire last.
    pub(super) fn of(&self, wire: Wire) -> u32 {
        self.0[wire as usize]
    }
}

/// Gives what parts pass on places in the circuit's arena, one part after another.
pub(super) struct Places<'a> {
    last_parts: &'a LastParts,
    /// The ends of the parts.
    ends: &'a [usize],
    /// The wire that the first gate defines.
    first: Wire,
    place: Vec<Wire>,
    count: u32,
    free: Vec<Wire>,
    /// Places that are free for parts that begin when the one in which they were read is complete.
    freed: VecDeque<(u32, Wire)>,
}

impl<'a> Places<'a> {
    pub(super) fn new(circuit: &Circuit, last_parts: &'a LastParts, ends: &'a [usize]) -> Self {
        let first = circuit.first_gate();
        let mut place = vec![0; circuit.wires() as usize];
        for (place, wire) in place.iter_mut().zip(0..first) {
            *place = wire;
        }
        let (free, freed) = (Vec::new(), VecDeque::new());
        Self { last_parts, ends, first, place, count: first, free, freed }
    }

    /// Frees what the next part can use again.
    pub(super) fn begin(&mut self, part: u32) {
        while let Some(&(last, place)) = self.freed.front()
            && last as usize + MAX_UNDER_WAY <= part as usize
        {
            self.free.push(place);
            self.freed.pop_front();
        }
    }

    /// The imports of the next part, and the parts that it waits for.
    pub(super) fn imports(&mut self, part: u32, scheduled: &Scheduled) -> (Vec<Transfer>, u32) {
        let mut waits = 0;
        let import = |(to, &wire): (u32, &Wire)| {
            let from = self.place[wire as usize];
            if self.last_parts.of(wire) == part {
                self.freed.push_back((part, from));
            }
            if let Some(gate) = wire.checked_sub(self.first) {
                let maker = self.ends.partition_point(|end| *end <= gate as usize);
                let distance = part as usize - maker;
                waits |= if distance <= MAX_UNDER_WAY { 1 << (distance - 1) } else { 0 };
            }
            Transfer { from, to }
        };
        let imports = (FIRST_INPUT..).zip(&scheduled.imports).map(import).collect();
        (imports, waits)
    }

    /// The exports of the next part.
    pub(super) fn exports(&mut self, scheduled: &Scheduled) -> Vec<Transfer> {
        let export = |&(wire, from): &(Wire, Wire)| {
            let to = self.free.pop().unwrap_or_else(|| {
                self.count += 1;
                self.count - 1
            });
            self.place[wire as usize] = to;
            Transfer { from, to }
        };
        scheduled.exports.iter().map(export).collect()
    }

    /// The places of wires after the last part.
    pub(super) fn of(&self, wires: &[Wire]) -> Vec<Wire> {
        wires.iter().map(|&wire| self.place[wire as usize]).collect()
    }

    /// The number of places.
    pub(super) fn count(&self) -> u32 {
        self.count
    }
}
