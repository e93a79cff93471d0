//! Each scheme against a plain evaluation, on random inputs: every generator, and circuits that
//! others published. What the plain evaluation itself gives is tested in the crate `circuit`.
//!
//! Circuits get 300 inputs here, those of more than 10,000 ANDs 30, `MinCut` 4; `cargo test
//! --release --package sunder-garble --lib -- --ignored` gives each 1,000.

use std::path::PathBuf;
use std::thread;

use blocks::Block;
use blocks::prg::Prg;
use circuit::{Circuit, CircuitSchedule, bits, bristol, generate};

use super::best;
use crate::GarblingScheme;

const INPUTS: u64 = 300;
const INPUTS_OF_LARGE: u64 = 30;
const INPUTS_OF_MIN_CUT: u64 = 4;
const INPUTS_OF_SOAK: u64 = 1_000;

/// Garbles and evaluates a circuit on a number of random inputs in every scheme, on all cores.
fn check(name: &str, circuit: &Circuit, inputs: u64) {
    let schedule = &CircuitSchedule::new(circuit);
    let threads = thread::available_parallelism().map_or(1, |count| count.get() as u64);
    thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for number in (0..inputs).filter(|number| number % threads == thread) {
                    check_input(name, circuit, schedule, number);
                }
            });
        }
    });
}

fn check_input(name: &str, circuit: &Circuit, schedule: &CircuitSchedule, number: u64) {
    let count = (circuit.garbler_inputs() + circuit.evaluator_inputs()) as usize;
    let mut bytes = vec![0; count.div_ceil(8)];
    Prg::new(Block::from(u128::from(number))).fill_bytes(&mut bytes);
    let input = &bits::of_bytes(&bytes)[..count];
    let expected = circuit.evaluate(input);
    for scheme in GarblingScheme::ALL {
        let run = best(scheme, schedule, input, u128::from(number) + 1);
        assert!(run.outputs == expected, "{name}, {scheme}, random input {number}");
    }
}

/// Checks a circuit that others published. They are not part of this repository:
/// `SUNDER_CIRCUITS` names their folder, or it is `../shared/circuits`.
fn check_published(name: &str, inputs: u64) {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/circuits");
    let folder = std::env::var_os("SUNDER_CIRCUITS").map_or_else(beside, PathBuf::from);
    let path = folder.join(name);
    match std::fs::read(&path) {
        Ok(text) => check(name, &bristol::read(&text).unwrap(), inputs),
        Err(error) => eprintln!("skipped: {}: {error}", path.display()),
    }
}

#[test]
fn aes() {
    check("aes128", &generate::aes128(), INPUTS);
}

#[test]
fn sha256() {
    check("sha256", &generate::sha256(32), INPUTS_OF_LARGE);
}

#[test]
fn sha256_of_a_message_of_two_blocks() {
    check("sha256_message", &generate::sha256_message(30, 41), INPUTS_OF_LARGE);
}

#[test]
fn minimum() {
    check("minimum", &generate::minimum(40, 60, 20), INPUTS);
}

#[test]
fn millionaires() {
    check("millionaires", &generate::millionaires(40), INPUTS);
}

#[test]
fn edit_distance() {
    check("edit_distance", &generate::edit_distance(17, 20, 3), INPUTS);
}

#[test]
fn intersection() {
    check("intersection", &generate::intersection(13, 24), INPUTS);
}

#[test]
fn min_cut() {
    check("min_cut", &generate::min_cut(), INPUTS_OF_MIN_CUT);
}

#[test]
fn published_adder() {
    check_published("adder_32bit.txt", INPUTS);
}

#[test]
fn published_multiplier() {
    check_published("mult_32x32.txt", INPUTS);
}

#[test]
fn published_aes() {
    check_published("AES-non-expanded.txt", INPUTS);
}

#[test]
fn published_aes_in_bristol_fashion() {
    check_published("bristol-fashion-aes_128.txt", INPUTS);
}

#[test]
fn published_sha256() {
    check_published("sha-256.txt", INPUTS_OF_LARGE);
}

#[test]
fn published_sha256_in_bristol_fashion() {
    check_published("bristol-fashion-sha256.txt", INPUTS_OF_LARGE);
}

#[test]
#[ignore = "it takes minutes"]
fn large_circuits_on_1000_inputs() {
    check("sha256", &generate::sha256(32), INPUTS_OF_SOAK);
    check("sha256_message", &generate::sha256_message(30, 41), INPUTS_OF_SOAK);
    check_published("sha-256.txt", INPUTS_OF_SOAK);
    check_published("bristol-fashion-sha256.txt", INPUTS_OF_SOAK);
    check("min_cut", &generate::min_cut(), INPUTS_OF_SOAK);
}

#[test]
#[ignore = "make soak"]
fn other_circuits_on_1000_inputs() {
    check("aes128", &generate::aes128(), INPUTS_OF_SOAK);
    check("minimum", &generate::minimum(40, 60, 20), INPUTS_OF_SOAK);
    check("millionaires", &generate::millionaires(40), INPUTS_OF_SOAK);
    check("edit_distance", &generate::edit_distance(17, 20, 3), INPUTS_OF_SOAK);
    check("intersection", &generate::intersection(13, 24), INPUTS_OF_SOAK);
    for name in
        ["adder_32bit.txt", "mult_32x32.txt", "AES-non-expanded.txt", "bristol-fashion-aes_128.txt"]
    {
        check_published(name, INPUTS_OF_SOAK);
    }
}
