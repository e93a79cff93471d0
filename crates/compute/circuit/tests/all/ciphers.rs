//! The generated circuits of AES-128 and SHA-256 against the standards' vectors and other
//! implementations.

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use sha2::{Digest, Sha256};
use sunder_circuit::generate::{aes128, sha256, sha256_message};
use sunder_circuit::{Circuit, CircuitBuilder, CircuitSchedule, bits};

use crate::common::{check_batches, check_bytes, hex};

#[test]
fn aes_gives_the_vectors_of_the_standard() {
    let circuit = aes128();
    // FIPS 197, appendix B and C.1.
    let vectors = [
        (
            "2b7e151628aed2a6abf7158809cf4f3c",
            "3243f6a8885a308d313198a2e0370734",
            "3925841d02dc09fbdc118597196a0b32",
        ),
        (
            "000102030405060708090a0b0c0d0e0f",
            "00112233445566778899aabbccddeeff",
            "69c4e0d86a7b0430d8cdb78070b4c55a",
        ),
    ];
    for (key, block, encrypted) in vectors {
        assert_eq!(run(&circuit, &[hex(key), hex(block)].concat()), hex(encrypted));
    }
}

#[test]
fn aes_encrypts_as_another_implementation() {
    let circuit = aes128();
    assert_eq!(circuit.counts().ands, 6_400);
    check_batches(&CircuitSchedule::new(&circuit));
    check_bytes(&circuit, 1, |bytes| {
        let (key, block) = bytes.split_at(16);
        let mut block = <[u8; 16]>::try_from(block).unwrap().into();
        Aes128::new_from_slice(key).unwrap().encrypt_block(&mut block);
        block.to_vec()
    });
}

#[test]
fn sha256_gives_the_vectors_of_the_standard() {
    // FIPS 180-2, appendix B.1 and B.2.
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let long = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    let long_digest = "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1";
    for garbler in 0..=3 {
        assert_eq!(run(&sha256_message(garbler, 3 - garbler), b"abc"), hex(abc));
    }
    assert_eq!(run(&sha256_message(56, 0), long), hex(long_digest));
    for garbler in [0, 1, 32, 64] {
        assert_eq!(run(&sha256(garbler), &padded(b"abc")), hex(abc));
    }
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(run(&sha256_message(0, 0), b""), hex(empty));
}

#[test]
fn embedded_ciphers_give_the_vectors_of_the_standards() {
    // FIPS 197, C.1, with the key as the XOR of two; FIPS 180-4 of what AES gives.
    let mut builder = CircuitBuilder::new(&[128, 256]);
    let (share, other) = (builder.input(0), builder.input(1));
    let (other_share, block) = other.split_at(128);
    let key = builder.xor_bits(&share, other_share);
    let encrypted = builder.embed(&aes128(), &[&key, block]).concat();
    let digest = builder.embed(&sha256_message(16, 0), &[&encrypted, &[]]).concat();
    let circuit = builder.finish(&[&encrypted, &digest]);
    let key = hex("000102030405060708090a0b0c0d0e0f");
    let block = hex("00112233445566778899aabbccddeeff");
    let share = [0x5a; 16];
    let other: Vec<u8> = key.iter().map(|byte| byte ^ 0x5a).collect();
    let output = run(&circuit, &[&share[..], &other, &block].concat());
    let encrypted = hex("69c4e0d86a7b0430d8cdb78070b4c55a");
    assert_eq!(output, [&encrypted[..], &Sha256::digest(&encrypted)].concat());
}

#[test]
fn sha256_digests_as_another_implementation() {
    let circuit = sha256_message(20, 35);
    check_batches(&CircuitSchedule::new(&circuit));
    check_bytes(&circuit, 2, |bytes| Sha256::digest(bytes).to_vec());
    check_bytes(&sha256_message(60, 61), 3, |bytes| Sha256::digest(bytes).to_vec());
}

#[test]
fn one_block_of_sha256_has_fewer_ands_than_the_published_circuit() {
    assert!(sha256(32).counts().ands < 22_573, "{:?}", sha256(32).counts());
}

fn run(circuit: &Circuit, inputs: &[u8]) -> Vec<u8> {
    bits::to_bytes(&circuit.evaluate(&bits::of_bytes(inputs)))
}

/// A message of up to 55 bytes with its padding.
fn padded(message: &[u8]) -> Vec<u8> {
    let mut block = [message, &[0x80]].concat();
    block.resize(56, 0);
    block.extend((8 * message.len() as u64).to_be_bytes());
    block
}
