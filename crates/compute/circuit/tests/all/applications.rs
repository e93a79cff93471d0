//! Millionaires, edit distance, set intersection and repeated circuits against plain Rust.

use std::collections::BTreeSet;

use sunder_circuit::generate::{
    aes128, edit_distance, intersection, millionaires, min_cut, sha256, shuffle, shuffle_bits,
};
use sunder_circuit::{Circuit, CircuitSchedule, CircuitShape, FIRST_INPUT, ONE, ZERO, evaluate_64};

use crate::common::{check_batches, evaluate, number, random_inputs, value};

#[test]
fn the_greater_number_wins() {
    let mut rng = fastrand::Rng::with_seed(1);
    for bits in [1, 8, 32, 63] {
        let circuit = millionaires(bits);
        assert_eq!(circuit.counts().ands, u64::from(bits));
        let pairs: Vec<[u64; 2]> = (0..1_000)
            .map(|i| {
                let x = rng.u64(..1 << bits);
                // Equal and neighbouring numbers too.
                [x, if i % 4 == 0 { x ^ u64::from(i % 8 == 0) } else { rng.u64(..1 << bits) }]
            })
            .collect();
        let inputs: Vec<Vec<bool>> =
            pairs.iter().map(|pair| pair.map(|x| number(x, bits)).concat()).collect();
        for ([x, y], output) in pairs.into_iter().zip(evaluate(&circuit, &inputs)) {
            assert_eq!(output, [x > y], "{x} and {y}");
        }
    }
}

/// The edit distance by its definition.
fn distance(x: &[u64], y: &[u64]) -> u64 {
    let mut row: Vec<u64> = (0..=y.len() as u64).collect();
    for (i, a) in (1..).zip(x) {
        let mut diagonal = row[0];
        row[0] = i;
        for (j, b) in y.iter().enumerate() {
            let next = (diagonal + u64::from(a != b)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = row[j + 1];
            row[j + 1] = next;
        }
    }
    row[y.len()]
}

#[test]
fn edit_distances_are_right() {
    let mut rng = fastrand::Rng::with_seed(2);
    for (garbler, evaluator, bits) in [(0, 0, 3), (1, 1, 1), (0, 5, 2), (6, 3, 2), (12, 16, 2)] {
        let circuit = edit_distance(garbler, evaluator, bits);
        let strings: Vec<[Vec<u64>; 2]> = (0..1_000)
            .map(|_| {
                let x: Vec<u64> = (0..garbler).map(|_| rng.u64(..1 << bits)).collect();
                // Half of the strings are similar.
                let mut y = x.clone();
                y.resize_with(evaluator as usize, || rng.u64(..1 << bits));
                if rng.bool() {
                    y.fill_with(|| rng.u64(..1 << bits));
                } else if !y.is_empty() {
                    let by = rng.usize(..y.len().min(3));
                    y.rotate_left(by);
                }
                [x, y]
            })
            .collect();
        let bits_of = |string: &[u64]| -> Vec<bool> {
            string.iter().flat_map(|&x| number(x, bits)).collect()
        };
        let inputs: Vec<Vec<bool>> = strings
            .iter()
            .map(|strings| strings.each_ref().map(|it| bits_of(it)).concat())
            .collect();
        for ([x, y], output) in strings.iter().zip(evaluate(&circuit, &inputs)) {
            assert_eq!(value(&output), distance(x, y), "{x:?} and {y:?}");
        }
    }
    // Four ANDs for each pair of symbols, one for their comparison, and the sum.
    let ands = edit_distance(100, 100, 2).counts().ands;
    assert!(ands < 5 * 100 * 100 + 300, "{ands}");
}

#[test]
fn a_shuffle_gives_every_order() {
    let mut rng = fastrand::Rng::with_seed(3);
    for n in 0..40 {
        for _ in 0..50 {
            let mut order: Vec<usize> = (0..n).collect();
            rng.shuffle(&mut order);
            let controls = shuffle(&order);
            assert_eq!(controls.len(), shuffle_bits(n));
        }
    }
    // A network for n = 2^k has n log n - n + 1 switches.
    assert_eq!(shuffle_bits(1024), 10 * 1024 - 1024 + 1);
}

#[test]
fn sets_are_intersected_in_the_order_of_the_shuffle() {
    let mut rng = fastrand::Rng::with_seed(4);
    for (size, bits) in [(0, 4), (1, 3), (2, 3), (3, 4), (7, 5), (16, 6), (31, 7)] {
        let circuit = intersection(size, bits);
        let mut cases = Vec::new();
        let mut inputs = Vec::new();
        for _ in 0..1_000 {
            let mut set = || {
                let mut set = BTreeSet::new();
                while set.len() < size as usize {
                    set.insert(rng.u64(1..1 << bits));
                }
                set
            };
            let [x, y] = [set(), set()];
            let mut order: Vec<usize> = (0..size as usize).collect();
            rng.shuffle(&mut order);
            let bits_of = |set: &BTreeSet<u64>| -> Vec<bool> {
                set.iter().flat_map(|&x| number(x, bits)).collect()
            };
            inputs.push([bits_of(&x), shuffle(&order), bits_of(&y)].concat());
            cases.push((x, y, order));
        }
        for ((x, y, order), output) in cases.into_iter().zip(evaluate(&circuit, &inputs)) {
            let output: Vec<u64> = output.chunks(bits as usize).map(value).collect();
            // What the comparison gives, before the shuffle.
            let mut merged: Vec<u64> = x.iter().chain(&y).copied().collect();
            merged.sort_unstable();
            let common = |i: usize| match merged[2 * i..merged.len().min(2 * i + 3)] {
                [a, b, ref rest @ ..] if a == b || rest == [b] => b,
                _ => 0,
            };
            let expected: Vec<u64> = order.into_iter().map(common).collect();
            assert_eq!(output, expected);
            let found: BTreeSet<u64> = output.into_iter().filter(|&it| it != 0).collect();
            assert_eq!(found, x.intersection(&y).copied().collect());
        }
    }
}

#[test]
fn a_circuit_is_repeated_on_its_outputs() {
    let mut rng = fastrand::Rng::with_seed(5);
    // One whose outputs are gates, and one whose outputs are also inputs and constants.
    let mut crossed = Circuit::new(&[1, 4]);
    let [g, a, b] = [FIRST_INPUT, FIRST_INPUT + 1, FIRST_INPUT + 2];
    let both = crossed.and(g, a);
    crossed.output(&[b, a, both, ONE]);
    for circuit in [aes128(), sha256(32), crossed] {
        for times in [1, 2, 5] {
            let chain = CircuitSchedule::repeated(&circuit, times).unwrap();
            check_batches(&chain);
            let inputs = random_inputs(&mut rng, chain.shape().inputs());
            let (garbler, evaluator) = inputs.split_at(circuit.garbler_inputs() as usize);
            let mut last = evaluator.to_vec();
            for _ in 0..times {
                last = circuit.evaluate_64(&[garbler, &last].concat());
            }
            assert_eq!(evaluate_64(&chain, &inputs), last, "{times}");
            assert_eq!(evaluate_64(&chain, &inputs), last, "{times} again");
            assert_eq!(chain.shape().ands, times * circuit.counts().ands);
        }
    }
    let digests =
        [1, 2].map(|times| CircuitSchedule::repeated(&aes128(), times).unwrap().shape().digest);
    assert_ne!(digests[0], digests[1]);
    assert!(CircuitSchedule::repeated(&min_cut(), 2).is_none(), "20 bits from 250,000");
}

#[test]
fn a_thousand_million_gates_take_the_memory_of_one_circuit() {
    let circuit = aes128();
    let times = 1_000_000_000 / circuit.len() as u64 + 1;
    let chain = CircuitSchedule::repeated(&circuit, times).unwrap();
    let CircuitShape { places, ands, xors, nots, .. } = *chain.shape();
    assert!(ands + xors + nots >= 1_000_000_000);
    assert!(places < 4_096, "{places}");
    assert!(!chain.shape().outputs.contains(&ZERO));
}
