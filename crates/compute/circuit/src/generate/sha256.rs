//! SHA-256 (FIPS 180-4). Words are 32 wires, the least significant bit first; bytes are in the
//! standard's order.

use crate::batch::Wire;
use crate::builder::{CircuitBuilder, constant};
use crate::circuit::Circuit;

/// The bytes of a block.
const BLOCK_LEN: usize = 64;

/// The digest of one block with the standard's initial value: SHA-256 of a message of at most 55
/// bytes that the caller has padded. The first `garbler_bytes` bytes of the block are the
/// garbler's, the others the evaluator's.
///
/// # Panics
/// If `garbler_bytes` is over 64.
pub fn sha256(garbler_bytes: u32) -> Circuit {
    let evaluator_bytes = 64_u32.checked_sub(garbler_bytes).expect("64 bytes at most");
    let mut builder = CircuitBuilder::new(&[8 * garbler_bytes, 8 * evaluator_bytes]);
    let block = [builder.input(0), builder.input(1)].concat();
    let digest = sha256_block(&mut builder, &initial(), &block);
    builder.finish(&[&digest])
}

/// The digest of a message of any length, with its padding: the first `garbler_bytes` bytes are the
/// garbler's, the others the evaluator's.
///
/// # Panics
/// If the message has 2^28 bytes or more.
pub fn sha256_message(garbler_bytes: u32, evaluator_bytes: u32) -> Circuit {
    assert!(u64::from(garbler_bytes) + u64::from(evaluator_bytes) < 1 << 28, "too long a message");
    let mut builder = CircuitBuilder::new(&[8 * garbler_bytes, 8 * evaluator_bytes]);
    let mut message = [builder.input(0), builder.input(1)].concat();
    let bits = message.len() as u64;
    message.extend(constant(0x80, 8));
    while message.len() / 8 % BLOCK_LEN != BLOCK_LEN - 8 {
        message.extend(constant(0, 8));
    }
    message.extend(constant(bits.swap_bytes(), 64));
    let digest = message
        .chunks(8 * BLOCK_LEN)
        .fold(initial(), |state, block| sha256_block(&mut builder, &state, block));
    builder.finish(&[&digest])
}

/// The compression function: the next state, of a state of 256 bits and a block of 512 bits, all in
/// the standard's order of bytes.
///
/// # Panics
/// If the number of bits is wrong.
pub fn sha256_block(builder: &mut CircuitBuilder, state: &[Wire], block: &[Wire]) -> Vec<Wire> {
    assert_eq!((state.len(), block.len()), (256, 8 * BLOCK_LEN), "bits");
    let start: Vec<Sha256Word> = state.chunks(32).map(word).collect();
    let mut schedule: Vec<Sha256Word> = block.chunks(32).map(word).collect();
    for i in 16..64 {
        let low = sigma(builder, &schedule[i - 15], [7, 18], Sha256SigmaTerm::Shift(3));
        let high = sigma(builder, &schedule[i - 2], [17, 19], Sha256SigmaTerm::Shift(10));
        let sum = sum(builder, &[&schedule[i - 16], &low, &schedule[i - 7], &high]);
        schedule.push(sum);
    }
    let mut state = start.clone();
    for (words, constant_word) in schedule.iter().zip(round_constants()) {
        state = round(builder, &state, words, &constant(constant_word.into(), 32));
    }
    let words = start.iter().zip(&state).map(|(before, after)| builder.add(before, after));
    words.flat_map(|sum| word(&sum)).collect()
}

type Sha256Word = Vec<Wire>;

fn round(
    builder: &mut CircuitBuilder,
    state: &[Sha256Word],
    words: &Sha256Word,
    constant: &Sha256Word,
) -> Vec<Sha256Word> {
    let [a, b, c, d, e, f, g, h] = state else { unreachable!("a state has eight words") };
    let high = sigma(builder, e, [6, 11], Sha256SigmaTerm::Rotate(25));
    // Bit by bit f if e, else g.
    let choice: Sha256Word =
        (0..32).map(|i| builder.select(e[i], &f[i..=i], &g[i..=i])[0]).collect();
    let first = sum(builder, &[h, constant, words, &choice, &high]);
    let low = sigma(builder, a, [2, 13], Sha256SigmaTerm::Rotate(22));
    // Bit by bit the majority of a, b and c.
    let majority: Sha256Word = (0..32)
        .map(|i| {
            let a_b = builder.xor(a[i], b[i]);
            let a_c = builder.xor(a[i], c[i]);
            let both = builder.and(a_b, a_c);
            builder.xor(a[i], both)
        })
        .collect();
    let next_a = sum(builder, &[&low, &majority, &first]);
    let next_e = builder.add(d, &first);
    [&next_a, a, b, c, &next_e, e, f, g].map(Clone::clone).to_vec()
}

#[derive(Clone, Copy)]
enum Sha256SigmaTerm {
    Rotate(usize),
    Shift(usize),
}

/// The XOR of three rotations to the right, or of two and a shift.
fn sigma(
    builder: &mut CircuitBuilder,
    word: &Sha256Word,
    rotations: [usize; 2],
    last: Sha256SigmaTerm,
) -> Sha256Word {
    let rotated = |by: usize| -> Sha256Word { (0..32).map(|i| word[(i + by) % 32]).collect() };
    let last = match last {
        Sha256SigmaTerm::Rotate(by) => rotated(by),
        Sha256SigmaTerm::Shift(by) => word[by..].iter().copied().chain(constant(0, by)).collect(),
    };
    let both = builder.xor_bits(&rotated(rotations[0]), &rotated(rotations[1]));
    builder.xor_bits(&both, &last)
}

fn sum(builder: &mut CircuitBuilder, words: &[&Sha256Word]) -> Sha256Word {
    let (first, others) = words.split_first().expect("words to add");
    others.iter().fold((*first).clone(), |sum, word| builder.add(&sum, word))
}

/// Converts between a word's bits and its bytes in the standard's order, in both directions.
fn word(bits: &[Wire]) -> Sha256Word {
    bits.rchunks(8).flatten().copied().collect()
}

fn initial() -> Vec<Wire> {
    let words = primes().take(8).map(|prime| root_fraction(prime, 2));
    words.flat_map(|value| word(&constant(value.into(), 32))).collect()
}

fn round_constants() -> impl Iterator<Item = u32> {
    primes().take(64).map(|prime| root_fraction(prime, 3))
}

fn primes() -> impl Iterator<Item = u128> {
    (2..).filter(|n| (2..*n).all(|divisor| n % divisor != 0))
}

/// The first 32 bits of the fraction of a number's square or cube root (sections 4.2.2 and 5.3.3).
fn root_fraction(number: u128, degree: u32) -> u32 {
    // The root of number * 2^(32 * degree), by bisection.
    let scaled = number << (32 * degree);
    let (mut low, mut high) = (0_u128, 1 << 40);
    while high - low > 1 {
        let middle = u128::midpoint(low, high);
        if middle.pow(degree) <= scaled { low = middle } else { high = middle }
    }
    (low & 0xffff_ffff) as u32
}
