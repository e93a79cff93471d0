//! Circuits that others published, against plain Rust on 1,000 random inputs. They are not part of
//! this repository: `SUNDER_CIRCUITS` names their folder, or it is `../shared/circuits`.

use std::path::PathBuf;

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use sha2::block_api::compress256;
use sunder_circuit::bristol::{BristolFormat, read, write};
use sunder_circuit::{Circuit, CircuitSchedule};

use crate::common::{check_batches, evaluate, hex, number, value};

/// A published circuit; `None`, with a message, if its file is not there.
fn published(name: &str) -> Option<Circuit> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/circuits");
    let folder = std::env::var_os("SUNDER_CIRCUITS").map_or_else(beside, PathBuf::from);
    let path = folder.join(name);
    match std::fs::read(&path) {
        Ok(text) => Some(read(&text).unwrap_or_else(|error| panic!("{name}: {error}"))),
        Err(error) => {
            eprintln!("skipped: {}: {error}", path.display());
            None
        }
    }
}

/// Checks a circuit on 1,000 random inputs.
fn check(name: &str, ands: u64, function: impl Fn(&[bool]) -> Vec<bool>) {
    let Some(circuit) = published(name) else { return };
    assert_eq!(circuit.counts().ands, ands);
    check_batches(&CircuitSchedule::new(&circuit));
    let mut rng = fastrand::Rng::with_seed(ands);
    let length = circuit.garbler_inputs() + circuit.evaluator_inputs();
    let inputs: Vec<Vec<bool>> =
        (0..1_000).map(|_| (0..length).map(|_| rng.bool()).collect()).collect();
    for (input, output) in inputs.iter().zip(evaluate(&circuit, &inputs)) {
        assert!(output == function(input), "{name}: {input:?}");
    }
}

fn numbers(input: &[bool]) -> (u64, u64) {
    let (x, y) = input.split_at(32);
    (value(x), value(y))
}

#[test]
fn the_adder_adds() {
    check("adder_32bit.txt", 127, |input| {
        let (x, y) = numbers(input);
        number(x + y, 33)
    });
}

#[test]
fn the_multiplier_multiplies() {
    check("mult_32x32.txt", 5_926, |input| {
        let (x, y) = numbers(input);
        number(x * y, 64)
    });
}

/// The bytes of bits, the highest bit of the first byte first.
fn to_big_endian(bits: &[bool]) -> Vec<u8> {
    let byte = |bits: &[bool]| bits.iter().fold(0, |byte, &bit| byte << 1 | u8::from(bit));
    bits.chunks(8).map(byte).collect()
}

/// The bits of bytes, the highest bit of the first byte first.
fn of_big_endian(bytes: &[u8]) -> Vec<bool> {
    bytes.iter().flat_map(|byte| (0..8).rev().map(move |i| byte >> i & 1 == 1)).collect()
}

fn reversed(bits: &[bool]) -> Vec<bool> {
    bits.iter().rev().copied().collect()
}

fn encrypt(key: &[bool], block: &[bool]) -> Vec<bool> {
    let mut block = <[u8; 16]>::try_from(to_big_endian(block)).unwrap().into();
    Aes128::new_from_slice(&to_big_endian(key)).unwrap().encrypt_block(&mut block);
    of_big_endian(&block)
}

#[test]
fn aes_encrypts() {
    // The block comes first.
    check("AES-non-expanded.txt", 6_800, |input| encrypt(&input[128..], &input[..128]));
}

#[test]
fn aes_of_bristol_fashion_encrypts() {
    // Each value is written from its last bit to its first.
    check("bristol-fashion-aes_128.txt", 6_400, |input| {
        reversed(&encrypt(&reversed(&input[..128]), &reversed(&input[128..])))
    });
}

/// The compression function of SHA-256.
fn compress(block: &[bool], state: &[bool]) -> Vec<bool> {
    let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    let words: Vec<u32> = to_big_endian(state).chunks(4).map(word).collect();
    let mut state = <[u32; 8]>::try_from(words).unwrap();
    compress256(&mut state, &[to_big_endian(block).try_into().unwrap()]);
    of_big_endian(&state.map(u32::to_be_bytes).concat())
}

/// The initial state of SHA-256.
fn initial() -> Vec<bool> {
    let state = "6a09e667bb67ae853c6ef372a54ff53a510e527f9b05688c1f83d9ab5be0cd19";
    of_big_endian(&hex(state))
}

#[test]
fn sha256_digests_a_block() {
    check("sha-256.txt", 90_825, |block| compress(block, &initial()));
}

#[test]
fn sha256_of_bristol_fashion_digests_a_block_from_any_state() {
    check("bristol-fashion-sha256.txt", 22_573, |input| {
        reversed(&compress(&reversed(&input[..512]), &reversed(&input[512..])))
    });
}

#[test]
fn published_circuits_are_written_and_read_again() {
    for name in ["AES-non-expanded.txt", "bristol-fashion-sha256.txt", "mult_32x32.txt"] {
        let Some(circuit) = published(name) else { continue };
        for format in [BristolFormat::Old, BristolFormat::Fashion] {
            let mut text = Vec::new();
            write(&circuit, format, &mut text).unwrap();
            assert_eq!(read(&text).unwrap().digest(), circuit.digest(), "{name}");
        }
    }
}
