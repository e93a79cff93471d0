//! The minimum of many numbers.

use std::time::Instant;

use sunder_circuit::generate::{min_cut, minimum};
use sunder_circuit::{CircuitCounts, CircuitSchedule, CircuitSource as _, evaluate_64};

use crate::common::{check_batches, evaluate, number, value};

#[test]
fn min_cut_has_the_gates_of_the_paper() {
    let circuit = min_cut();
    let counts = CircuitCounts { ands: 999_960, xors: 2_524_920, nots: 499_980, copies: 0 };
    assert_eq!(circuit.counts(), counts);
    assert_eq!((circuit.garbler_inputs(), circuit.evaluator_inputs()), (250_000, 250_000));
    let start = Instant::now();
    let schedule = CircuitSchedule::new(&circuit);
    println!("scheduled in {:?}: {} places", start.elapsed(), schedule.shape().places);
    check_batches(&schedule);
    let mut rng = fastrand::Rng::with_seed(1);
    let inputs: Vec<u64> = (0..500_000).map(|_| rng.u64(..)).collect();
    let results = evaluate_64(&schedule, &inputs);
    for i in 0..64 {
        let bits = |words: &[u64]| -> u64 {
            (0..).zip(words).map(|(bit, word)| (word >> i & 1) << bit).sum()
        };
        let least = inputs.chunks(20).map(bits).min().unwrap();
        assert_eq!(bits(&results), least);
    }
}

#[test]
fn minima_of_any_number_of_numbers_are_right() {
    let mut rng = fastrand::Rng::with_seed(2);
    for (garbler, evaluator, bits) in [(1, 0, 5), (1, 1, 1), (3, 2, 8), (20, 17, 20), (0, 9, 3)] {
        let circuit = minimum(garbler, evaluator, bits);
        let lists: Vec<Vec<u64>> = (0..1_000)
            .map(|_| (0..garbler + evaluator).map(|_| rng.u64(..1 << bits)).collect())
            .collect();
        let inputs: Vec<Vec<bool>> =
            lists.iter().map(|list| list.iter().flat_map(|&n| number(n, bits)).collect()).collect();
        for (list, output) in lists.iter().zip(evaluate(&circuit, &inputs)) {
            assert_eq!(value(&output), *list.iter().min().unwrap());
        }
    }
}

#[test]
fn most_parts_of_min_cut_wait_for_few_others() {
    let schedule = CircuitSchedule::new(&min_cut());
    let waits: Vec<u32> = (0..schedule.parts()).map(|at| schedule.part(at).dependencies).collect();
    // The first part defines the constant that all others read.
    let others = |(at, waits): (usize, &u32)| match at {
        1..=32 => waits & !(1 << (at - 1)),
        _ => *waits,
    };
    let free = waits.iter().enumerate().map(others).filter(|waits| *waits == 0).count();
    assert!(free > waits.len() / 2, "{free} of {}", waits.len());
}
