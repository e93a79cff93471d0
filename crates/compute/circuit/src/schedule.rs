//! A circuit's gates in parts and batches.

mod order;
mod part;
mod part_boundaries;
mod places;
mod rounds;

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use crate::batch::{
    ArenaCopy, CircuitPart, CircuitShape, CircuitSource, FIRST_INPUT, GarblingGateCounts,
    GateBatchEnds, PartBatches,
};
use crate::circuit::Circuit;
use part::{PartScheduler, ScheduledPart};
use part_boundaries::cuts;
use places::{CircuitPlaceAllocator, WireLastReaders};
use rounds::RepeatedCircuitRounds;

/// The gates of a circuit in parts and batches. The ANDs of a part are ordered by their depth (the
/// number of ANDs on the longest path from the part's imports), and linear gates come just before
/// the ANDs that need them.
///
/// A part has up to 49,152 consecutive gates of the circuit. Its labels fit into the cache of a
/// core, the tables of its ANDs fit into a frame, and several cores can share a larger circuit.
///
/// A schedule takes about 12 bytes per gate, which clones share.
#[derive(Clone, Debug)]
pub struct CircuitSchedule(Arc<CircuitScheduleParts>);

#[derive(Debug)]
struct CircuitScheduleParts {
    shape: CircuitShape,
    parts: Vec<ConnectedPart>,
    /// The rounds, if the circuit is repeated.
    rounds: Option<RepeatedCircuitRounds>,
}

/// A part, and its connections to others.
#[derive(Debug)]
struct ConnectedPart {
    scheduled: ScheduledPart,
    imports: Vec<ArenaCopy>,
    exports: Vec<ArenaCopy>,
    dependencies: u32,
    before: GarblingGateCounts,
}

/// The maximum number of gates of a part.
const PART_GATES: usize = 48 << 10;

/// The maximum number of gates of a part.
const MAX_PART: usize = 1 << 30;

impl CircuitSchedule {
    /// Schedules a circuit.
    pub fn new(circuit: &Circuit) -> Self {
        Self::with(circuit, false, PART_GATES)
    }

    /// Schedules a circuit as one part, with as few batches as its depth allows: for a protocol in
    /// which each batch takes a round trip.
    pub fn in_one_part(circuit: &Circuit) -> Self {
        Self::with(circuit, false, circuit.len().clamp(1, MAX_PART))
    }

    /// Schedules a circuit that is repeated `times` times. The outputs of a round are the
    /// evaluator's inputs of the next round, and the garbler's inputs stay the same. With
    /// [`generate::aes128`](crate::generate::aes128), for example, a block is encrypted repeatedly.
    /// The schedule takes the memory of one round for any number of rounds.
    ///
    /// `None` if `times` is 0, there are no outputs, or their number is not that of the evaluator's
    /// inputs.
    pub fn repeated(circuit: &Circuit, times: u64) -> Option<Self> {
        Self::repeated_with(circuit, times, PART_GATES)
    }

    fn repeated_with(circuit: &Circuit, times: u64, part: usize) -> Option<Self> {
        let outputs = circuit.outputs().len() as u64;
        if times == 0 || outputs == 0 || outputs != u64::from(circuit.evaluator_inputs()) {
            return None;
        }
        let (mut shape, parts) = scheduled(&rounds::with_copied_outputs(circuit), true, part);
        let rounds = Some(RepeatedCircuitRounds::new(&mut shape, &parts, times));
        shape.output_values = circuit.output_values().to_vec();
        shape.digest = rounds::digest(circuit, times);
        Some(Self(Arc::new(CircuitScheduleParts { shape, parts, rounds })))
    }

    fn with(circuit: &Circuit, keep_inputs: bool, part: usize) -> Self {
        let (shape, parts) = scheduled(circuit, keep_inputs, part);
        Self(Arc::new(CircuitScheduleParts { shape, parts, rounds: None }))
    }

    /// The shape of the circuit.
    pub fn shape(&self) -> &CircuitShape {
        &self.0.shape
    }

    /// The number of repetitions of the circuit; 1 if it is not repeated.
    pub fn rounds(&self) -> u64 {
        self.0.rounds.as_ref().map_or(1, |rounds| rounds.times)
    }

    /// The number of batches of one round.
    pub fn batches(&self) -> usize {
        self.0.parts.iter().map(|part| part.scheduled.batches.len()).sum()
    }
}

/// The parts of a circuit in one round.
fn scheduled(
    circuit: &Circuit,
    keep_inputs: bool,
    part_len: usize,
) -> (CircuitShape, Vec<ConnectedPart>) {
    thread::scope(|scope| {
        let digest = thread::Builder::new().spawn_scoped(scope, || circuit.digest());
        let ends = cuts(circuit, part_len);
        let last_parts = WireLastReaders::new(circuit, keep_inputs, &ends);
        let scheduled = schedule_each(circuit, &last_parts, &ends);
        let part_places = scheduled.iter().map(|it| it.places).max();
        let mut places = CircuitPlaceAllocator::new(circuit, &last_parts, &ends);
        let parts = connect(scheduled, &mut places);
        let counts = circuit.counts();
        let digest = digest.ok().and_then(|thread| thread.join().ok());
        let shape = CircuitShape {
            garbler_inputs: circuit.garbler_inputs(),
            evaluator_inputs: circuit.evaluator_inputs(),
            garbler_values: circuit.garbler_values().to_vec(),
            evaluator_values: circuit.evaluator_values().to_vec(),
            output_values: circuit.output_values().to_vec(),
            outputs: places.of(circuit.outputs()),
            places: places.count(),
            part_places: part_places.unwrap_or(FIRST_INPUT),
            ands: counts.ands,
            xors: counts.xors,
            nots: counts.nots,
            digest: digest.unwrap_or_else(|| circuit.digest()),
        };
        (shape, parts)
    })
}

/// Schedules all parts independently, with one thread for each core.
fn schedule_each(
    circuit: &Circuit,
    last_parts: &WireLastReaders,
    ends: &[usize],
) -> Vec<ScheduledPart> {
    let count = ends.len();
    let done: Vec<OnceLock<ScheduledPart>> = (0..count).map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut scheduler = PartScheduler::new(circuit);
        loop {
            let part = next.fetch_add(1, Ordering::Relaxed);
            let Some(done) = done.get(part) else { break };
            let gates = part.checked_sub(1).map_or(0, |before| ends[before])..ends[part];
            let is_needed_later = |wire| last_parts.of(wire) as usize > part;
            done.get_or_init(|| scheduler.part(gates, is_needed_later));
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(count);
    thread::scope(|scope| {
        for _ in 1..threads {
            // If a thread cannot be created, scheduling takes longer.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    done.into_iter().map(|done| done.into_inner().unwrap_or_default()).collect()
}

/// Connects the parts by the circuit's arena.
fn connect(
    scheduled: Vec<ScheduledPart>,
    places: &mut CircuitPlaceAllocator,
) -> Vec<ConnectedPart> {
    let mut before = GarblingGateCounts::default();
    let parts = (0..).zip(scheduled).map(|(part, scheduled)| {
        places.begin(part);
        let (imports, waits) = places.imports(part, &scheduled);
        let exports = places.exports(&scheduled);
        let connected = ConnectedPart { scheduled, imports, exports, dependencies: waits, before };
        before = before.plus(connected.scheduled.gates);
        connected
    });
    parts.collect()
}

impl CircuitSource for CircuitSchedule {
    fn shape(&self) -> &CircuitShape {
        &self.0.shape
    }

    fn parts(&self) -> u64 {
        (self.0.parts.len() as u64).saturating_mul(self.rounds())
    }

    fn part(&self, index: u64) -> CircuitPart<'_> {
        let CircuitScheduleParts { parts, rounds, .. } = &*self.0;
        let count = parts.len() as u64;
        let (round, at) = (index / count, usize::try_from(index % count).unwrap_or(usize::MAX));
        match rounds {
            Some(rounds) if round < rounds.times => {
                let part = parts[at].part();
                let before = part.before.plus(all(parts).times(round));
                let part = CircuitPart { before, ..part };
                rounds.part(part, round, at)
            }
            None if round == 0 => parts[at].part(),
            _ => panic!("part {index} of {}", self.parts()),
        }
    }
}

impl ConnectedPart {
    fn part(&self) -> CircuitPart<'_> {
        let ScheduledPart { linear, runs, ands, batches, gates, .. } = &self.scheduled;
        CircuitPart {
            imports: &self.imports,
            exports: &self.exports,
            dependencies: self.dependencies,
            gates: *gates,
            before: self.before,
            batches: PartBatches {
                linear,
                runs,
                ands,
                start: GateBatchEnds::default(),
                ends: batches,
            },
        }
    }
}

/// The numbers of gates of all parts.
fn all(parts: &[ConnectedPart]) -> GarblingGateCounts {
    parts
        .last()
        .map_or(GarblingGateCounts::default(), |last| last.before.plus(last.scheduled.gates))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{FIRST_INPUT, MAX_UNDER_WAY, ONE};
    use crate::circuit::GateKind;
    use crate::{Wire, evaluate_64};

    fn random_circuit(rng: &mut fastrand::Rng, gates: u32) -> Circuit {
        let mut circuit = Circuit::new(&[5, 5]);
        for _ in 0..gates {
            let wires = circuit.wires();
            let (a, b) = (rng.u32(..wires), rng.u32(wires - wires.min(12)..wires));
            let kind = if rng.bool() { GateKind::And } else { GateKind::Xor };
            circuit.push(kind, a, b);
        }
        let outputs: Vec<Wire> = (0..20).map(|_| rng.u32(..circuit.wires())).collect();
        circuit.output(&outputs);
        circuit
    }

    #[test]
    fn parts_of_any_size_change_no_result() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..300 {
            let circuit = random_circuit(&mut rng, 200);
            let inputs: Vec<u64> = (0..10).map(|_| rng.u64(..)).collect();
            let expected = circuit.evaluate_64(&inputs);
            for part in [1, 2, 7, 50, 199, 200] {
                let schedule = CircuitSchedule::with(&circuit, rng.bool(), part);
                assert_eq!(evaluate_64(&schedule, &inputs), expected, "{part}");
                assert_eq!(evaluate_in_any_order(&schedule, &inputs, &mut rng), expected, "{part}");
                assert!(schedule.parts() >= 200_u64.div_ceil(part as u64));
                let ands: u64 = (0..schedule.parts()).map(|at| schedule.part(at).gates.ands).sum();
                assert_eq!(ands, schedule.shape().ands);
                assert_eq!(all(&schedule.0.parts).xors, schedule.shape().xors);
            }
        }
    }

    #[test]
    fn rounds_can_be_under_way_as_their_parts_say() {
        let mut rng = fastrand::Rng::with_seed(2);
        for _ in 0..100 {
            let gates = rng.u32(1..100);
            let circuit = random_circuit(&mut rng, gates);
            // As many outputs as the evaluator has inputs.
            let outputs: Vec<Wire> = circuit.outputs()[..5].to_vec();
            let circuit = circuit.with_outputs(&[&outputs]);
            let inputs: Vec<u64> = (0..10).map(|_| rng.u64(..)).collect();
            let mut last = inputs[5..].to_vec();
            for times in 1..6 {
                last = circuit.evaluate_64(&[&inputs[..5], &last].concat());
                for part in [1, 3, 40] {
                    let schedule = CircuitSchedule::repeated_with(&circuit, times, part).unwrap();
                    assert_eq!(evaluate_64(&schedule, &inputs), last, "{times}, {part}");
                    let found = evaluate_in_any_order(&schedule, &inputs, &mut rng);
                    assert_eq!(found, last, "{times}, {part}");
                }
            }
            assert!(CircuitSchedule::repeated(&circuit, 0).is_none());
        }
    }

    /// Evaluates the maximum number of parts concurrently, in random order. Imports are read when a
    /// part begins, and exports are written when it ends.
    fn evaluate_in_any_order(
        schedule: &CircuitSchedule,
        inputs: &[u64],
        rng: &mut fastrand::Rng,
    ) -> Vec<u64> {
        let shape = schedule.shape();
        let mut all = vec![0; shape.places as usize];
        all[ONE as usize] = u64::MAX;
        all[FIRST_INPUT as usize..][..inputs.len()].copy_from_slice(inputs);
        let count = usize::try_from(schedule.parts()).unwrap();
        let mut complete = vec![false; count];
        let mut under_way: Vec<(usize, Vec<u64>)> = Vec::new();
        while complete.contains(&false) {
            let first = complete.iter().position(|is| !is).unwrap();
            let may_begin = |at: &usize| {
                let waits = schedule.part(*at as u64).dependencies;
                let is_done = |k: usize| waits >> k & 1 == 0 || k >= *at || complete[at - 1 - k];
                !complete[*at]
                    && under_way.iter().all(|(other, _)| other != at)
                    && (0..32).all(is_done)
            };
            let ready: Vec<usize> =
                (first..count.min(first + MAX_UNDER_WAY)).filter(may_begin).collect();
            if let Some(at) = rng.choice(&ready)
                && rng.u8(..3) > 0
            {
                let mut values = vec![0x5555_5555; shape.part_places as usize];
                (values[0], values[1]) = (0, u64::MAX);
                for import in schedule.part(*at as u64).imports {
                    values[import.to as usize] = all[import.from as usize];
                }
                under_way.push((*at, values));
            } else if !under_way.is_empty() {
                let (at, mut values) = under_way.swap_remove(rng.usize(..under_way.len()));
                let part = schedule.part(at as u64);
                for batch in part.batches() {
                    for gate in batch.linear {
                        values[gate.out as usize] =
                            values[gate.a as usize] ^ values[gate.b as usize];
                    }
                    for gate in batch.ands {
                        values[gate.out as usize] =
                            values[gate.a as usize] & values[gate.b as usize];
                    }
                }
                for export in part.exports {
                    all[export.to as usize] = values[export.from as usize];
                }
                complete[at] = true;
            }
        }
        shape.outputs.iter().map(|&place| all[place as usize]).collect()
    }
}
