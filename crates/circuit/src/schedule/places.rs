//! The places of wires in the arenas.

use std::collections::VecDeque;
use std::ops::Range;

use super::order::Order;
use super::{Lists, PartEnds};
use crate::batch::{
    And, Ends, FIRST_INPUT, Gates, Linear, MAX_LINEAR, MAX_UNDER_WAY, ONE, Transfer, Wire,
};
use crate::circuit::Circuit;

/// No run, or no part: its place is not to be used again.
const NEVER: u32 = u32::MAX;

/// Gives each wire a place in the arena of the part that defines it, and one in the circuit's if
/// other parts read it.
pub(super) struct Places {
    /// The gates of a part.
    part_len: usize,
    /// The wire that the first gate defines.
    first: Wire,
    /// The part that reads a wire last; [`NEVER`] if it keeps its place in the circuit's arena.
    last_part: Vec<u32>,
    /// In the circuit's arena.
    place: Vec<Wire>,
    count: u32,
    free: Vec<Wire>,
    /// Places that are free for parts that begin when the one in which they were read is complete.
    freed: VecDeque<(u32, Wire)>,
    /// The part that has imported a wire last.
    imported: Vec<u32>,
    arena: PartArena,
    /// The places of the largest part.
    part_count: u32,
    lists: Lists,
}

/// The arena of the current part.
struct PartArena {
    /// The run that reads a wire last; [`NEVER`] if its place is not to be used again.
    last_run: Vec<u32>,
    place: Vec<Wire>,
    places: u32,
    free: Vec<Wire>,
    /// Places that are free after the current run.
    freed: Vec<Wire>,
    run: u32,
}

impl Places {
    pub(super) fn new(circuit: &Circuit, keep_inputs: bool, part_len: usize) -> Self {
        let (wires, first) = (circuit.wires() as usize, circuit.first_gate());
        let (a, b) = circuit.inputs_of_gates();
        let mut last_part = vec![0; wires];
        for (gate, (&a, &b)) in a.iter().zip(b).enumerate() {
            let part = length(gate / part_len);
            (last_part[a as usize], last_part[b as usize]) = (part, part);
        }
        let kept = if keep_inputs { first } else { FIRST_INPUT };
        last_part[..kept as usize].fill(NEVER);
        for &wire in circuit.outputs() {
            last_part[wire as usize] = NEVER;
        }
        let mut place = vec![0; wires];
        for (place, wire) in place.iter_mut().zip(0..first) {
            *place = wire;
        }
        let mut arena = PartArena {
            last_run: vec![0; wires],
            place: vec![0; wires],
            places: FIRST_INPUT,
            free: Vec::new(),
            freed: Vec::new(),
            run: 0,
        };
        arena.place[ONE as usize] = ONE;
        Self {
            part_len,
            first,
            last_part,
            place,
            count: first,
            free: Vec::new(),
            freed: VecDeque::new(),
            imported: vec![NEVER; wires],
            arena,
            part_count: FIRST_INPUT,
            lists: Lists::default(),
        }
    }

    /// Whether the output of a gate of the next part is an output, or read after it.
    pub(super) fn is_needed_later(&self, gate: usize) -> bool {
        self.last_part[self.first as usize + gate] > self.next_part()
    }

    /// The places of wires in the circuit's arena, after the last part.
    pub(super) fn of(&self, wires: &[Wire]) -> Vec<Wire> {
        wires.iter().map(|&wire| self.place[wire as usize]).collect()
    }

    /// The places of the circuit's arena.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The places of a part's arena, at most.
    pub(super) fn part_count(&self) -> u32 {
        self.part_count
    }

    pub(super) fn into_lists(self) -> Lists {
        self.lists
    }

    /// Adds the next part.
    pub(super) fn part(&mut self, circuit: &Circuit, gates: Range<usize>, order: &Order) {
        let part = self.next_part();
        let before =
            self.lists.parts.last().map_or(Gates::default(), |it| it.before.plus(it.gates));
        let (linear, ands) = (self.lists.linear.len(), self.lists.ands.len());
        while let Some(&(last, place)) = self.freed.front()
            && last as usize + MAX_UNDER_WAY <= part as usize
        {
            self.free.push(place);
            self.freed.pop_front();
        }
        let waits = self.import(circuit, gates.clone(), part);
        self.note_last_runs(circuit, gates.clone(), order);
        for step in 0..order.steps() {
            self.step(circuit, order, step);
        }
        self.end_batch();
        self.export(gates, part);
        self.part_count = self.part_count.max(self.arena.places);
        let lists = &mut self.lists;
        let xors = lists.linear[linear..].iter().filter(|gate| gate.is_xor()).count();
        let batches = lists.batches.len();
        let gates = Gates {
            ands: (lists.ands.len() - ands) as u64,
            xors: xors as u64,
            batches: batches as u64 - before.batches,
        };
        let (imports, exports) = (lists.imports.len(), lists.exports.len());
        lists.parts.push(PartEnds { batches, imports, exports, waits, before, gates });
    }

    /// The number of the next part.
    fn next_part(&self) -> u32 {
        length(self.lists.parts.len())
    }

    /// Imports what the part reads. Returns the parts that it waits for.
    fn import(&mut self, circuit: &Circuit, gates: Range<usize>, part: u32) -> u32 {
        let first = circuit.first_gate();
        let own = first + length(gates.start);
        let (a, b) = circuit.inputs_of_gates();
        let arena = &mut self.arena;
        (arena.places, arena.run) = (FIRST_INPUT, 0);
        arena.free.clear();
        arena.freed.clear();
        let mut waits = 0;
        for wire in gates.flat_map(|gate| [a[gate], b[gate]]) {
            let at = wire as usize;
            if wire <= ONE || wire >= own || self.imported[at] == part {
                continue;
            }
            self.imported[at] = part;
            let transfer = Transfer { from: self.place[at], to: arena.places };
            arena.place[at] = transfer.to;
            arena.places += 1;
            self.lists.imports.push(transfer);
            if self.last_part[at] == part {
                self.freed.push_back((part, transfer.from));
            }
            if let Some(gate) = wire.checked_sub(first) {
                let distance = part as usize - gate as usize / self.part_len;
                waits |= if distance <= MAX_UNDER_WAY { 1 << (distance - 1) } else { 0 };
            }
        }
        waits
    }

    fn note_last_runs(&mut self, circuit: &Circuit, gates: Range<usize>, order: &Order) {
        let (a, b) = circuit.inputs_of_gates();
        let last_run = &mut self.arena.last_run;
        let runs = (0..order.steps()).flat_map(|step| order.runs(step));
        for (run, gates) in (0..).zip(runs) {
            for &gate in gates {
                last_run[a[gate as usize] as usize] = run;
                last_run[b[gate as usize] as usize] = run;
            }
        }
        last_run[..FIRST_INPUT as usize].fill(NEVER);
        for gate in gates {
            if self.is_needed_later(gate) {
                self.arena.last_run[self.first as usize + gate] = NEVER;
            }
        }
    }

    /// Adds the gates of a step.
    fn step(&mut self, circuit: &Circuit, order: &Order, step: usize) {
        let first = circuit.first_gate();
        let (a, b) = circuit.inputs_of_gates();
        for gates in order.runs(step) {
            let is_and = circuit.is_and(gates[0] as usize);
            if !is_and && self.pending() + gates.len() > MAX_LINEAR {
                self.end_batch();
            }
            for &gate in gates {
                let (a, b) = (a[gate as usize], b[gate as usize]);
                let out = self.arena.define(first + gate);
                let [a, b] = [a, b].map(|wire| self.arena.read(wire));
                if is_and {
                    self.lists.ands.push(And { a, b, out });
                } else {
                    self.lists.linear.push(Linear { a, b, out });
                }
            }
            self.arena.end_run();
            if is_and {
                self.end_batch();
            } else {
                let run = length(self.pending());
                self.lists.runs.push(run);
            }
        }
    }

    /// The linear gates that are in no batch yet.
    fn pending(&self) -> usize {
        let lists = &self.lists;
        lists.linear.len() - lists.batches.last().map_or(0, |batch| batch.linear as usize)
    }

    fn end_batch(&mut self) {
        let lists = &mut self.lists;
        let ends = Ends {
            linear: length(lists.linear.len()),
            runs: length(lists.runs.len()),
            ands: length(lists.ands.len()),
        };
        let before = lists.batches.last().copied().unwrap_or_default();
        if (before.linear, before.ands) != (ends.linear, ends.ands) {
            lists.batches.push(ends);
        }
    }

    /// Exports what is an output, or read after the part.
    fn export(&mut self, gates: Range<usize>, part: u32) {
        let first = self.first as usize;
        for wire in gates.map(|gate| first + gate) {
            if self.last_part[wire] <= part {
                continue;
            }
            let to = self.free.pop().unwrap_or_else(|| {
                self.count += 1;
                self.count - 1
            });
            self.place[wire] = to;
            self.lists.exports.push(Transfer { from: self.arena.place[wire], to });
        }
    }
}

impl PartArena {
    /// The place of a wire that the current run reads.
    fn read(&mut self, wire: Wire) -> Wire {
        let place = self.place[wire as usize];
        let last = &mut self.last_run[wire as usize];
        if *last == self.run {
            *last = NEVER;
            self.freed.push(place);
        }
        place
    }

    /// A place for a wire that the current run defines.
    fn define(&mut self, wire: Wire) -> Wire {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places += 1;
            self.places - 1
        });
        self.place[wire as usize] = place;
        // Nothing reads it: a gate is read after its run, which is not the first one.
        if self.last_run[wire as usize] == 0 {
            self.freed.push(place);
        }
        place
    }

    fn end_run(&mut self) {
        self.free.append(&mut self.freed);
        self.run += 1;
    }
}

/// A number of gates, of which a circuit has fewer than 2^32.
fn length(gates: usize) -> u32 {
    u32::try_from(gates).unwrap_or(u32::MAX)
}
