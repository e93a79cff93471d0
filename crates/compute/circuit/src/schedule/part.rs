//! The batches of a part, and the places of its values in its arena.

use std::ops::Range;

use super::order::{GateSorter, number};
use crate::batch::{
    AndGate, FIRST_INPUT, GarblingGateCounts, GateBatchEnds, LinearGate, MAX_ANDS, MAX_LINEAR, Wire,
};
use crate::circuit::Circuit;

/// An independently scheduled part. Its imports are at the places from [`FIRST_INPUT`] on.
#[derive(Debug, Default)]
pub(super) struct ScheduledPart {
    pub(super) linear: Vec<LinearGate>,
    pub(super) runs: Vec<u32>,
    pub(super) ands: Vec<AndGate>,
    /// The ends of each batch in the three.
    pub(super) batches: Vec<GateBatchEnds>,
    /// The wires that it imports.
    pub(super) imports: Vec<Wire>,
    /// The wires that it exports, and their places.
    pub(super) exports: Vec<(Wire, Wire)>,
    /// The places of its arena.
    pub(super) places: u32,
    pub(super) gates: GarblingGateCounts,
}

/// Schedules parts, reusing its memory for one part after another.
pub(super) struct PartScheduler<'a> {
    circuit: &'a Circuit,
    order: GateSorter<'a>,
    arena: PartPlaceAllocator,
}

/// The arena of a part.
#[derive(Default)]
struct PartPlaceAllocator {
    /// For each value the number of remaining reads; [`KEPT`] if its place must not be reused.
    remaining_reads: Vec<u32>,
    /// For each value its place, if it has one yet.
    place: Vec<Wire>,
    places: u32,
    free: Vec<Wire>,
    /// Places that are free after the current run.
    freed_after_run: Vec<Wire>,
}

const KEPT: u32 = u32::MAX;

impl<'a> PartScheduler<'a> {
    pub(super) fn new(circuit: &'a Circuit) -> Self {
        Self { circuit, order: GateSorter::new(circuit), arena: PartPlaceAllocator::default() }
    }

    /// Schedules a part. `is_needed_later` says which wires are outputs, or are read after it.
    pub(super) fn part(
        &mut self,
        gates: Range<usize>,
        is_needed_later: impl Fn(Wire) -> bool,
    ) -> ScheduledPart {
        let Self { circuit, order, arena } = self;
        order.sort(gates.clone());
        arena.begin(order);
        let first = circuit.first_gate() + number(gates.start);
        let kept: Vec<u32> =
            (0..number(gates.len())).filter(|i| is_needed_later(first + i)).collect();
        for &value in &kept {
            arena.remaining_reads[value as usize] = KEPT;
        }
        let ands = gates.clone().filter(|&gate| circuit.is_and(gate)).count();
        let mut scheduled = ScheduledPart {
            linear: Vec::with_capacity(gates.len() - ands),
            ands: Vec::with_capacity(ands),
            imports: order.imports().to_vec(),
            ..ScheduledPart::default()
        };
        for run in order.runs() {
            if circuit.is_and(gates.start + run[0] as usize) {
                for run in run.chunks(MAX_ANDS) {
                    scheduled.add_ands(run, order, arena);
                }
            } else {
                for run in run.chunks(MAX_LINEAR) {
                    scheduled.add_linear(run, order, arena);
                }
            }
        }
        scheduled.end_batch();
        let export = |&value: &u32| (first + value, arena.place[value as usize]);
        scheduled.exports = kept.iter().map(export).collect();
        scheduled.places = arena.places;
        let xors = scheduled.linear.iter().filter(|gate| gate.is_xor()).count();
        let (ands, xors, batches) = (ands as u64, xors as u64, scheduled.batches.len() as u64);
        scheduled.gates = GarblingGateCounts { ands, xors, batches };
        scheduled
    }
}

impl ScheduledPart {
    /// Adds a run of ANDs, with which a batch ends.
    fn add_ands(&mut self, run: &[u32], order: &GateSorter, arena: &mut PartPlaceAllocator) {
        self.ands.extend(run.iter().map(|&gate| {
            let [a, b, out] = arena.compute(gate, order);
            AndGate { a, b, out }
        }));
        arena.end_run();
        self.end_batch();
    }

    /// Adds a run of linear gates.
    fn add_linear(&mut self, run: &[u32], order: &GateSorter, arena: &mut PartPlaceAllocator) {
        if self.pending() + run.len() > MAX_LINEAR {
            self.end_batch();
        }
        self.linear.extend(run.iter().map(|&gate| {
            let [a, b, out] = arena.compute(gate, order);
            LinearGate { a, b, out }
        }));
        arena.end_run();
        self.runs.push(number(self.pending()));
    }

    /// The linear gates that are in no batch yet.
    fn pending(&self) -> usize {
        self.linear.len() - self.batches.last().map_or(0, |batch| batch.linear as usize)
    }

    fn end_batch(&mut self) {
        let ends = GateBatchEnds {
            linear: number(self.linear.len()),
            runs: number(self.runs.len()),
            ands: number(self.ands.len()),
        };
        let before = self.batches.last().copied().unwrap_or_default();
        if (before.linear, before.ands) != (ends.linear, ends.ands) {
            self.batches.push(ends);
        }
    }
}

impl PartPlaceAllocator {
    /// Begins a part: only the constants, which are kept, and the imports have places.
    fn begin(&mut self, order: &GateSorter) {
        let Self { remaining_reads: uses, place, .. } = self;
        let (gates, values) = (order.inputs().len(), order.values());
        uses.clear();
        uses.resize(values, 0);
        uses[gates..gates + FIRST_INPUT as usize].fill(KEPT);
        for &value in order.inputs().as_flattened() {
            let uses = &mut uses[value as usize];
            *uses = uses.saturating_add(1);
        }
        place.resize(values, 0);
        for (place, first) in place[gates..values].iter_mut().zip(0..) {
            *place = first;
        }
        self.places = number(values - gates);
        self.free.clear();
        self.freed_after_run.clear();
    }

    /// The places of a gate's inputs, and a place for its output.
    fn compute(&mut self, gate: u32, order: &GateSorter) -> [Wire; 3] {
        let out = self.free.pop().unwrap_or_else(|| {
            self.places += 1;
            self.places - 1
        });
        self.place[gate as usize] = out;
        if self.remaining_reads[gate as usize] == 0 {
            self.freed_after_run.push(out);
        }
        let [a, b] = order.inputs()[gate as usize].map(|value| self.read(value as usize));
        [a, b, out]
    }

    fn read(&mut self, value: usize) -> Wire {
        let (place, uses) = (self.place[value], &mut self.remaining_reads[value]);
        if *uses != KEPT {
            *uses -= 1;
            if *uses == 0 {
                self.freed_after_run.push(place);
            }
        }
        place
    }

    fn end_run(&mut self) {
        self.free.append(&mut self.freed_after_run);
    }
}
