//! Schedules of random, wide and deep circuits.

use sunder_circuit::{
    Circuit, CircuitSchedule, CircuitSource as _, FIRST_INPUT, MAX_ANDS, MAX_LINEAR,
};

use crate::common::{check_schedule, random_circuit};

#[test]
fn random_circuits_compute_the_same_in_batches() {
    for seed in 0..2_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let gates = rng.usize(0..300);
        let circuit = random_circuit(&mut rng, gates);
        check_schedule(&circuit, &mut rng);
    }
}

#[test]
fn a_wide_circuit_is_cut_into_batches_of_bounded_size() {
    let mut circuit = Circuit::new(&[300, 300]);
    let mut outputs = Vec::new();
    for a in FIRST_INPUT..FIRST_INPUT + 300 {
        for b in FIRST_INPUT + 300..FIRST_INPUT + 600 {
            let x = circuit.xor(a, b);
            outputs.push(circuit.and(x, a));
        }
    }
    circuit.output(&outputs);
    check_schedule(&circuit, &mut fastrand::Rng::with_seed(1));
    let schedule = CircuitSchedule::new(&circuit);
    assert_eq!(circuit.depth(), 1);
    let wide = outputs.len();
    let parts = usize::try_from(schedule.parts()).unwrap();
    assert!(parts > 1);
    assert!(schedule.batches() <= parts + wide.div_ceil(MAX_ANDS) + wide.div_ceil(MAX_LINEAR));
}

#[test]
fn a_long_chain_takes_few_places() {
    let mut circuit = Circuit::new(&[2, 2]);
    let mut last = FIRST_INPUT;
    for _ in 0..10_000 {
        let x = circuit.xor(last, FIRST_INPUT + 1);
        last = circuit.and(x, FIRST_INPUT + 2);
    }
    circuit.output(&[last]);
    check_schedule(&circuit, &mut fastrand::Rng::with_seed(2));
    let schedule = CircuitSchedule::new(&circuit);
    assert_eq!(circuit.depth(), 10_000);
    assert!(schedule.shape().part_places <= 10, "{}", schedule.shape().part_places);
}

#[test]
fn different_circuits_have_different_digests() {
    let mut rng = fastrand::Rng::with_seed(3);
    let one = random_circuit(&mut rng, 50);
    let mut other = one.clone();
    assert_eq!(CircuitSchedule::new(&one).shape().digest, other.digest());
    other.output(&[FIRST_INPUT]);
    assert_ne!(one.digest(), other.digest());
}
