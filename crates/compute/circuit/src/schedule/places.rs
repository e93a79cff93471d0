//! Allocates places in the circuit's arena for values that parts exchange.

use std::collections::VecDeque;

use super::part::ScheduledPart;
use crate::batch::{ArenaCopy, FIRST_INPUT, MAX_UNDER_WAY, Wire};
use crate::circuit::Circuit;

/// No part: the place must not be reused.
const NO_LAST_READER: u32 = u32::MAX;

/// The part that reads each wire last; [`NO_LAST_READER`] if it keeps its place in the circuit's
/// arena.
pub(super) struct WireLastReaders(Vec<u32>);

impl WireLastReaders {
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
        last[..kept as usize].fill(NO_LAST_READER);
        for &wire in circuit.outputs() {
            last[wire as usize] = NO_LAST_READER;
        }
        Self(last)
    }

    /// The part that reads a wire last.
    pub(super) fn of(&self, wire: Wire) -> u32 {
        self.0[wire as usize]
    }
}

/// Allocates places in the circuit's arena for values that parts exchange, one part after another.
pub(super) struct CircuitPlaceAllocator<'a> {
    last_parts: &'a WireLastReaders,
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

impl<'a> CircuitPlaceAllocator<'a> {
    pub(super) fn new(
        circuit: &Circuit,
        last_parts: &'a WireLastReaders,
        ends: &'a [usize],
    ) -> Self {
        let first = circuit.first_gate();
        let mut place = vec![0; circuit.wires() as usize];
        for (place, wire) in place.iter_mut().zip(0..first) {
            *place = wire;
        }
        let (free, freed) = (Vec::new(), VecDeque::new());
        Self { last_parts, ends, first, place, count: first, free, freed }
    }

    /// Frees the places that the next part can reuse.
    pub(super) fn begin(&mut self, part: u32) {
        while let Some(&(last, place)) = self.freed.front()
            && last as usize + MAX_UNDER_WAY <= part as usize
        {
            self.free.push(place);
            self.freed.pop_front();
        }
    }

    /// The imports of the next part, and the parts on which it depends.
    pub(super) fn imports(
        &mut self,
        part: u32,
        scheduled: &ScheduledPart,
    ) -> (Vec<ArenaCopy>, u32) {
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
            ArenaCopy { from, to }
        };
        let imports = (FIRST_INPUT..).zip(&scheduled.imports).map(import).collect();
        (imports, waits)
    }

    /// The exports of the next part.
    pub(super) fn exports(&mut self, scheduled: &ScheduledPart) -> Vec<ArenaCopy> {
        let export = |&(wire, from): &(Wire, Wire)| {
            let to = self.free.pop().unwrap_or_else(|| {
                self.count += 1;
                self.count - 1
            });
            self.place[wire as usize] = to;
            ArenaCopy { from, to }
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
