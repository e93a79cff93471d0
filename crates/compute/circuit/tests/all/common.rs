//! Functions that the tests share.

use std::collections::HashSet;

use sunder_circuit::{
    AndGate, ArenaCopy, Circuit, CircuitSchedule, CircuitSource, FIRST_INPUT, LinearGate, MAX_ANDS,
    MAX_LINEAR, ONE, ZERO, bits, evaluate_64,
};

/// A random circuit of both parties' inputs.
pub(crate) fn random_circuit(rng: &mut fastrand::Rng, gates: usize) -> Circuit {
    let mut circuit = Circuit::new(&[rng.u32(0..20), rng.u32(1..20)]);
    // Some circuits are deep, some are wide.
    let back = *rng.choice([2, 10, u32::MAX].iter()).unwrap();
    for _ in 0..gates {
        let wires = circuit.wires();
        let any = |rng: &mut fastrand::Rng| rng.u32(wires.saturating_sub(back)..wires);
        let (a, b) = (any(rng), if rng.u8(..8) == 0 { rng.u32(..wires) } else { any(rng) });
        if rng.bool() {
            circuit.and(a, b)
        } else {
            circuit.xor(a, b)
        };
    }
    let wires = circuit.wires();
    let outputs: Vec<u32> = (0..rng.usize(1..20)).map(|_| rng.u32(..wires)).collect();
    circuit.output(&outputs);
    circuit
}

/// Random inputs of 64 instances.
pub(crate) fn random_inputs(rng: &mut fastrand::Rng, inputs: u32) -> Vec<u64> {
    (0..inputs).map(|_| rng.u64(..)).collect()
}

/// Checks the guarantees of [`sunder_circuit::GateBatch`] for a source's batches, and its counts.
pub(crate) fn check_batches(source: &dyn CircuitSource) {
    let shape = source.shape().clone();
    let (mut ands, mut xors, mut nots) = (0, 0, 0);
    let first = FIRST_INPUT + shape.inputs();
    let mut exported: HashSet<u32> = (0..first).collect();
    let check = |defined: &mut HashSet<u32>, gates: &[(u32, u32, u32)]| {
        let mut written = HashSet::new();
        for &(a, b, out) in gates {
            assert!(defined.contains(&a) && defined.contains(&b), "read before it is written");
            assert!(out > ONE && out < shape.part_places && written.insert(out), "written twice");
        }
        for (a, b, _) in gates {
            assert!(!written.contains(a) && !written.contains(b), "read and written in one run");
        }
        defined.extend(written);
    };
    for index in 0..source.parts() {
        let part = source.part(index);
        assert_eq!((part.before.ands, part.before.xors), (ands, xors));
        let mut defined: HashSet<u32> = HashSet::from([ZERO, ONE]);
        for ArenaCopy { from, to } in part.imports {
            assert!(exported.contains(from) && *to < shape.part_places && defined.insert(*to));
        }
        for batch in part.batches() {
            assert!(batch.linear.len() <= MAX_LINEAR && batch.ands.len() <= MAX_ANDS);
            assert!(batch.linear.len() + batch.ands.len() > 0);
            let mut start = 0;
            for &end in batch.runs {
                assert!(end as usize > start);
                let run = &batch.linear[start..end as usize];
                let gates: Vec<_> =
                    run.iter().map(|&LinearGate { a, b, out }| (a, b, out)).collect();
                check(&mut defined, &gates);
                start = end as usize;
            }
            assert_eq!(start, batch.linear.len());
            let gates: Vec<_> =
                batch.ands.iter().map(|&AndGate { a, b, out }| (a, b, out)).collect();
            check(&mut defined, &gates);
            ands += batch.ands.len() as u64;
            xors += batch.linear.iter().filter(|gate| gate.is_xor()).count() as u64;
            nots += batch.linear.iter().filter(|gate| gate.is_not()).count() as u64;
        }
        for ArenaCopy { from, to } in part.exports {
            assert!(defined.contains(from) && *to > ONE && *to < shape.places);
            exported.insert(*to);
        }
    }
    assert!(shape.outputs.iter().all(|place| exported.contains(place)));
    assert_eq!((ands, xors, nots), (shape.ands, shape.xors, shape.nots));
}

/// Checks that a circuit's schedule computes what the circuit computes, on 64 random inputs.
pub(crate) fn check_schedule(circuit: &Circuit, rng: &mut fastrand::Rng) {
    let schedule = CircuitSchedule::new(circuit);
    check_batches(&schedule);
    let inputs = random_inputs(rng, schedule.shape().inputs());
    assert_eq!(evaluate_64(&schedule, &inputs), circuit.evaluate_64(&inputs));
}

/// The outputs of a circuit for each of many inputs: of the circuit itself and in batches.
pub(crate) fn evaluate(circuit: &Circuit, inputs: &[Vec<bool>]) -> Vec<Vec<bool>> {
    let schedule = CircuitSchedule::new(circuit);
    let mut outputs = Vec::new();
    for inputs in inputs.chunks(64) {
        let words: Vec<u64> = (0..schedule.shape().inputs() as usize)
            .map(|bit| (0..).zip(inputs).map(|(i, input)| u64::from(input[bit]) << i).sum())
            .collect();
        let results = circuit.evaluate_64(&words);
        assert_eq!(evaluate_64(&schedule, &words), results);
        let of = |i: usize| results.iter().map(|word| word >> i & 1 == 1).collect();
        outputs.extend((0..inputs.len()).map(of));
    }
    outputs
}

/// Checks that a circuit computes a function of bytes, on 1,000 random inputs.
pub(crate) fn check_bytes(circuit: &Circuit, seed: u64, function: impl Fn(&[u8]) -> Vec<u8>) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let length = (circuit.garbler_inputs() + circuit.evaluator_inputs()) as usize / 8;
    let messages: Vec<Vec<u8>> =
        (0..1_000).map(|_| (0..length).map(|_| rng.u8(..)).collect()).collect();
    let inputs: Vec<Vec<bool>> = messages.iter().map(|bytes| bits::of_bytes(bytes)).collect();
    for (message, output) in messages.iter().zip(evaluate(circuit, &inputs)) {
        assert_eq!(bits::to_bytes(&output), function(message));
    }
}

/// The bits of a number.
pub(crate) fn number(value: u64, bits: u32) -> Vec<bool> {
    (0..bits).map(|i| value >> i & 1 == 1).collect()
}

/// The number that bits are.
pub(crate) fn value(bits: &[bool]) -> u64 {
    (0..).zip(bits).map(|(i, &bit)| u64::from(bit) << i).sum()
}

/// The bytes of a hexadecimal number.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let text: String = text.split_whitespace().collect();
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}
