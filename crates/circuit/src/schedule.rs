//! The order of a circuit's gates in batches, and the places of its wires.

use std::ops::Range;
use std::sync::Arc;

use crate::batch::{And, Batch, FIRST_INPUT, Linear, MAX_ANDS, MAX_LINEAR, Shape, Source, Wire};
use crate::circuit::{Circuit, Gate, Kind};

/// The gates of a circuit in batches: the ANDs by their depth (how many ANDs are on the longest
/// path from the inputs), the linear gates just before the ANDs that need them.
///
/// A large circuit is divided into windows of 131,072 gates in their order, each of which is
/// scheduled on its own: the labels of a window fit into a processor's cache.
///
/// It has about 12 bytes a gate. Clones share them.
#[derive(Clone, Debug)]
pub struct Schedule(Arc<Contents>);

#[derive(Debug)]
struct Contents {
    shape: Shape,
    depth: u32,
    linear: Vec<Linear>,
    runs: Vec<u32>,
    ands: Vec<And>,
    /// The ends of each batch in the three.
    batches: Vec<Ends>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    linear: u32,
    runs: u32,
    ands: u32,
}

/// The gates of a window.
const WINDOW: usize = 1 << 17;

/// A [`Schedule`] as a source of batches.
#[derive(Clone, Debug)]
pub struct Scheduled {
    schedule: Schedule,
    next: usize,
}

impl Schedule {
    /// Schedules a circuit.
    pub fn new(circuit: &Circuit) -> Self {
        Self::with(circuit, false, WINDOW)
    }

    /// Schedules a circuit whose inputs keep their places.
    pub(crate) fn keeping_inputs(circuit: &Circuit) -> Self {
        Self::with(circuit, true, WINDOW)
    }

    fn with(circuit: &Circuit, keep_inputs: bool, window: usize) -> Self {
        let order = Order::new(circuit, window);
        let mut emission = Emission::new(circuit, &order, keep_inputs);
        for step in 0..order.linear_ends.len() {
            emission.step(circuit, &order, step);
        }
        let counts = circuit.counts();
        let shape = Shape {
            garbler_inputs: circuit.garbler_inputs(),
            evaluator_inputs: circuit.evaluator_inputs(),
            outputs: circuit.outputs().iter().map(|&wire| emission.place[wire as usize]).collect(),
            places: emission.places,
            ands: counts.ands,
            xors: counts.xors,
            nots: counts.nots,
            digest: circuit.digest(),
        };
        let Emission { linear, runs, ands, batches, .. } = emission;
        Self(Arc::new(Contents { shape, depth: depth(circuit), linear, runs, ands, batches }))
    }

    /// What is known of the circuit.
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }

    /// The AND-depth: the number of ANDs on the longest path.
    pub fn depth(&self) -> u32 {
        self.0.depth
    }

    /// The number of batches.
    pub fn batches(&self) -> usize {
        self.0.batches.len()
    }

    /// Batch `index`, if there is one.
    pub fn batch(&self, index: usize) -> Option<Batch<'_>> {
        let it = &*self.0;
        let end = it.batches.get(index)?;
        let start = index.checked_sub(1).map_or(Ends::default(), |before| it.batches[before]);
        let range = |start: u32, end: u32| start as usize..end as usize;
        Some(Batch {
            linear: &it.linear[range(start.linear, end.linear)],
            runs: &it.runs[range(start.runs, end.runs)],
            ands: &it.ands[range(start.ands, end.ands)],
        })
    }

    /// A source of its batches.
    pub fn source(&self) -> Scheduled {
        Scheduled { schedule: self.clone(), next: 0 }
    }
}

impl Source for Scheduled {
    fn shape(&self) -> &Shape {
        self.schedule.shape()
    }

    fn next_batch(&mut self) -> Option<Batch<'_>> {
        let index = self.next;
        self.next += usize::from(index < self.schedule.batches());
        self.schedule.batch(index)
    }

    fn rewind(&mut self) {
        self.next = 0;
    }
}

/// The gates, sorted by their steps. A step is a depth in a window: its linear gates, then its
/// ANDs.
struct Order {
    /// The linear gates by step, and in a step by their depth among its linear gates.
    linear: Vec<u32>,
    /// The ends of the steps in `linear`.
    linear_ends: Vec<u32>,
    /// That depth, for each gate.
    sub_depth: Vec<u32>,
    ands: Vec<u32>,
    /// The ends of the steps in `ands`.
    and_ends: Vec<u32>,
}

impl Order {
    fn new(circuit: &Circuit, window: usize) -> Self {
        let (mut step, last) = earliest_steps(circuit, window);
        delay_linear(circuit, &mut step, last);
        let first = circuit.first_gate();
        let mut sub_depth = vec![0_u32; circuit.len()];
        let (mut deepest, mut ands) = (0, 0);
        for (i, Gate { kind, a, b }) in circuit.gates().enumerate() {
            if kind == Kind::And {
                ands += 1;
                continue;
            }
            let of = |wire: Wire| match wire.checked_sub(first) {
                Some(from) if step[from as usize] == step[i] => sub_depth[from as usize],
                _ => 0,
            };
            // An AND of the same step comes after all its linear gates, so it is not read here.
            sub_depth[i] = 1 + of(a).max(of(b));
            deepest = deepest.max(sub_depth[i]);
        }
        let mut is_and = Vec::with_capacity(ands);
        let mut linear = Vec::with_capacity(circuit.len() - ands);
        for (i, gate) in (0..).zip(circuit.gates()) {
            if gate.kind == Kind::And { is_and.push(i) } else { linear.push(i) }
        }
        let (linear, _) = sort(&linear, deepest, |i| sub_depth[i]);
        let (linear, linear_ends) = sort(&linear, last, |i| step[i]);
        let (ands, and_ends) = sort(&is_and, last, |i| step[i]);
        Self { linear, linear_ends, sub_depth, ands, and_ends }
    }
}

/// The first step in which each gate can be, and the last step of all.
fn earliest_steps(circuit: &Circuit, window: usize) -> (Vec<u32>, u32) {
    let first = circuit.first_gate();
    // Of the value that a gate defines: that of an AND is ready in the next step.
    let mut ready = Vec::with_capacity(circuit.len());
    // The first step of the window, and the last one so far.
    let (mut start, mut last) = (0, 0);
    for (i, Gate { kind, a, b }) in circuit.gates().enumerate() {
        if i > 0 && i % window == 0 {
            start = last;
        }
        let of = |wire: Wire| wire.checked_sub(first).map_or(0, |from| ready[from as usize]);
        let at = of(a).max(of(b)).max(start) + u32::from(kind == Kind::And);
        last = last.max(at);
        ready.push(at);
    }
    for (ready, gate) in ready.iter_mut().zip(circuit.gates()) {
        *ready -= u32::from(gate.kind == Kind::And);
    }
    (ready, last)
}

/// The number of ANDs on the longest path.
fn depth(circuit: &Circuit) -> u32 {
    let (_, last) = earliest_steps(circuit, usize::MAX);
    last
}

/// Moves each linear gate to the last step in which it can be, so that its output takes a place as
/// briefly as possible.
fn delay_linear(circuit: &Circuit, step: &mut [u32], last: u32) {
    let first = circuit.first_gate();
    let mut needed = vec![u32::MAX; circuit.len()];
    for &wire in circuit.outputs() {
        if let Some(from) = wire.checked_sub(first) {
            needed[from as usize] = last;
        }
    }
    for (i, Gate { kind, a, b }) in circuit.gates().enumerate().rev() {
        if kind == Kind::Xor && needed[i] != u32::MAX {
            step[i] = needed[i];
        }
        for wire in [a, b] {
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

/// No run.
const NEVER: u32 = u32::MAX;

/// Puts gates into batches, and wires into places.
struct Emission {
    /// The run that reads a wire last; [`NEVER`] if its place is not to be used again.
    last_run: Vec<u32>,
    place: Vec<Wire>,
    places: u32,
    free: Vec<Wire>,
    /// Places that are free after the current run.
    freed: Vec<Wire>,
    run: u32,
    linear: Vec<Linear>,
    runs: Vec<u32>,
    ands: Vec<And>,
    batches: Vec<Ends>,
}

impl Emission {
    fn new(circuit: &Circuit, order: &Order, keep_inputs: bool) -> Self {
        let first = circuit.first_gate();
        let mut last_run = vec![0; circuit.wires() as usize];
        let (a, b) = circuit.inputs_of_gates();
        let mut run = 0;
        for step in 0..order.linear_ends.len() {
            for gates in order.runs(step) {
                for &gate in gates {
                    last_run[a[gate as usize] as usize] = run;
                    last_run[b[gate as usize] as usize] = run;
                }
                run += 1;
            }
        }
        let kept = if keep_inputs { first } else { FIRST_INPUT };
        last_run[..kept as usize].fill(NEVER);
        for &wire in circuit.outputs() {
            last_run[wire as usize] = NEVER;
        }
        let mut place = vec![0; circuit.wires() as usize];
        for (place, wire) in place.iter_mut().zip(0..first) {
            *place = wire;
        }
        let ands = order.ands.len();
        Self {
            last_run,
            place,
            places: first,
            free: Vec::new(),
            freed: Vec::new(),
            run: 0,
            linear: Vec::with_capacity(circuit.len() - ands),
            runs: Vec::new(),
            ands: Vec::with_capacity(ands),
            batches: Vec::new(),
        }
    }

    /// Emits the gates of a step.
    fn step(&mut self, circuit: &Circuit, order: &Order, step: usize) {
        let first = circuit.first_gate();
        let (a, b) = circuit.inputs_of_gates();
        for gates in order.runs(step) {
            let is_and = circuit.is_and(gates[0] as usize);
            let start = self.batches.last().map_or(0, |batch| batch.linear);
            if !is_and && self.linear.len() - start as usize + gates.len() > MAX_LINEAR {
                self.end_batch();
            }
            for &gate in gates {
                let (a, b) = (a[gate as usize], b[gate as usize]);
                let out = self.define(first + gate);
                let [a, b] = [a, b].map(|wire| self.read(wire));
                if is_and {
                    self.ands.push(And { a, b, out });
                } else {
                    self.linear.push(Linear { a, b, out });
                }
            }
            self.free.append(&mut self.freed);
            self.run += 1;
            if is_and {
                self.end_batch();
            } else {
                let start = self.batches.last().map_or(0, |batch| batch.linear);
                self.runs.push(length(self.linear.len()) - start);
            }
        }
        if step + 1 == order.linear_ends.len() {
            self.end_batch();
        }
    }

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

    fn end_batch(&mut self) {
        let ends = Ends {
            linear: length(self.linear.len()),
            runs: length(self.runs.len()),
            ands: length(self.ands.len()),
        };
        let before = self.batches.last().copied().unwrap_or_default();
        if (before.linear, before.ands) != (ends.linear, ends.ands) {
            self.batches.push(ends);
        }
    }
}

impl Order {
    /// The runs of a step.
    fn runs(&self, step: usize) -> impl Iterator<Item = &[u32]> {
        let of = |ends: &[u32]| -> Range<usize> {
            step.checked_sub(1).map_or(0, |before| ends[before] as usize)..ends[step] as usize
        };
        let linear = &self.linear[of(&self.linear_ends)];
        let same = |&x: &u32, &y: &u32| self.sub_depth[x as usize] == self.sub_depth[y as usize];
        let linear = linear.chunk_by(same).flat_map(|gates| gates.chunks(MAX_LINEAR));
        linear.chain(self.ands[of(&self.and_ends)].chunks(MAX_ANDS))
    }
}

/// A number of gates, of which a circuit has fewer than 2^32.
fn length(gates: usize) -> u32 {
    u32::try_from(gates).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate_64;

    #[test]
    fn windows_of_any_size_change_no_result() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..300 {
            let mut circuit = Circuit::new(&[5, 5]);
            for _ in 0..200 {
                let wires = circuit.wires();
                let (a, b) = (rng.u32(..wires), rng.u32(wires - wires.min(12)..wires));
                let kind = if rng.bool() { Kind::And } else { Kind::Xor };
                circuit.push(kind, a, b);
            }
            let outputs: Vec<Wire> = (0..20).map(|_| rng.u32(..circuit.wires())).collect();
            circuit.output(&outputs);
            let inputs: Vec<u64> = (0..10).map(|_| rng.u64(..)).collect();
            let expected = circuit.evaluate_64(&inputs);
            for window in [1, 2, 7, 50, 199, 200] {
                let schedule = Schedule::with(&circuit, rng.bool(), window);
                assert_eq!(evaluate_64(&mut schedule.source(), &inputs), expected, "{window}");
                assert_eq!(schedule.depth(), Schedule::new(&circuit).depth());
            }
        }
    }
}
