//! Three halves (Rosulek, Roy: "Three halves make a whole? Beating the half-gates lower bound for
//! garbled circuits", CRYPTO 2021), with free XOR as in half gates.
//!
//! Labels are sliced: a block is a left (low) and a right (high) half of 64 bits. With `i`, `j` the
//! colours (least significant bits) of the labels `A`, `B` of an AND, the evaluator computes
//!
//!   left  = h(A) ^ h(A ^ B) ^ i G0 ^ (i ^ j) G2 ^ (control bits) (halves of A and B)
//!   right = h(B) ^ h(A ^ B) ^ j G1 ^ (i ^ j) G2 ^ (control bits) (halves of A and B)
//!
//! where `G0`, `G1`, `G2` are halves, the table. The control bits of each row (section 5) are `r1
//! S1 ^ r2 S2 ^ Rp`. With the orthomorphism `s`, (left, right) -> (right, left ^ right), which is a
//! multiplication in GF(4), `S1 (A, B) = A ^ B ^ s(A)` and `S2 (A, B) = A ^ s(B)`; `Rp` adds the
//! left half of `B` if `i = 0`, and the right half of `A` if `j = 0`. The two bits `r1`, `r2` of a
//! row are random ("dicing"), so they do not reveal the row. Five bits of the table, encrypted with
//! one bit of each hash, contain those of each row.
//!
//! The hash is the paper's, `H(Z, t) = E(k, Z ^ U(t)) ^ a(Z ^ U(t))`: `a` multiplies both halves by
//! x in GF(2^64), and the universal hash `U` is a table of random blocks. The half `h(Z)` is the
//! high half of `H`, and the bit is the least significant of the low half. `a(U(t))` is public and
//! the same for both labels, and is left out. The key is changed after each [`ANDS_PER_KEY`] ANDs
//! and at the start of each batch: `k = start ^ n` with `n` from 1; `U` is made with `n = 0`.
//! `docs/protocols/garbling.md` states the proven security bound.
//!
//! A batch's tables are the pairs `G0`, `G1` of its ANDs, then their `G2`, then for each eight ANDs
//! five bytes with five bits each, from the least significant.

use blocks::Block;
use blocks::aes::AesKernel;
use blocks::lanes::{KernelJob, Lanes, MAX_WIDTH};
use blocks::prg::Prg;
use circuit::{AndGate, GarblingGateCounts, GateBatch};

use crate::half_gates::{exceeds_cache, linear, prefetch};

/// The number of ANDs per key: a multiple of the ANDs of a vector, and of [`ANDS_PER_PACK`].
pub(crate) const ANDS_PER_KEY: usize = 128;

/// The hashes of an AND: of each label, and of their sum.
const HASHES: usize = 3;

/// The number of ANDs ahead for which labels are prefetched.
const PREFETCH_DISTANCE: usize = 16;

/// The left half.
const LEFT: Block =
    Block::from_bytes([255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0]);

/// The number of encrypted control bits of an AND, and of ANDs whose control bits fill whole bytes.
const CONTROL_BITS_PER_AND: usize = 5;
const ANDS_PER_PACK: usize = 8;

/// The number of the garbler's random bits per AND.
const COINS_PER_AND: usize = 2;

/// The length of the tables of a number of ANDs, in bytes.
pub(crate) const fn table_len(ands: usize) -> usize {
    24 * ands + CONTROL_BITS_PER_AND * ands.div_ceil(ANDS_PER_PACK)
}

/// The number of random blocks for the ANDs of a batch.
pub(crate) const fn coins(ands: usize) -> usize {
    (COINS_PER_AND * ands.div_ceil(ANDS_PER_PACK)).div_ceil(16)
}

/// The number of keys for the ANDs of a batch.
pub(crate) const fn keys(ands: usize) -> u64 {
    ands.div_ceil(ANDS_PER_KEY) as u64
}

/// The universal hash: random blocks for the first hash of each AND of a key, then for the second
/// and for the third. They are pseudorandom with the public value as seed.
pub(crate) fn universal(start: Block, kernel: AesKernel) -> Vec<Block> {
    let mut blocks = vec![Block::ZERO; HASHES * ANDS_PER_KEY];
    Prg::with_kernel(start, kernel).fill(&mut blocks);
    blocks
}

/// The hash's public values.
#[derive(Clone, Copy)]
pub(crate) struct ThreeHalvesHash<'a> {
    pub(crate) start: Block,
    /// The number of keys before the batch.
    pub(crate) keys_before: u64,
    /// [`universal`].
    pub(crate) universal: &'a [Block],
}

impl ThreeHalvesHash<'_> {
    /// The key number `n` of the batch, from 0.
    #[inline(always)]
    fn key<L: Lanes>(self, lanes: L, n: usize) -> L::Schedule {
        let number = self.keys_before.wrapping_add(n as u64).wrapping_add(1);
        lanes.schedule(self.start ^ Block::from(u128::from(number)))
    }

    /// The universal hash of the ANDs from the place `at` of their key on.
    #[inline(always)]
    fn universal<L: Lanes>(self, lanes: L, at: usize) -> [L::Vector; HASHES] {
        let mut vectors = [lanes.splat(Block::ZERO); HASHES];
        for (i, vector) in vectors.iter_mut().enumerate() {
            *vector = lanes.load(Block::bytes_of(&self.universal[i * ANDS_PER_KEY + at..]));
        }
        vectors
    }
}

/// An upper bound of the random blocks of all batches: a batch with n ANDs has n / 64, rounded up.
pub(crate) const fn all_coins(gates: GarblingGateCounts) -> u64 {
    gates.ands / 64 + gates.batches
}

/// An upper bound of the keys of all batches.
pub(crate) const fn all_keys(gates: GarblingGateCounts) -> u64 {
    gates.ands / ANDS_PER_KEY as u64 + gates.batches
}

/// Garbles a batch.
pub(crate) struct ThreeHalvesGarbleJob<'a> {
    pub(crate) hash: ThreeHalvesHash<'a>,
    pub(crate) offset: Block,
    pub(crate) batch: GateBatch<'a>,
    /// The labels of 0, by place.
    pub(crate) labels: &'a mut [Block],
    /// Random blocks, [`coins`].
    pub(crate) coins: &'a [Block],
    /// As long as the batch's tables.
    pub(crate) tables: &'a mut [u8],
}

impl KernelJob for ThreeHalvesGarbleJob<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let ThreeHalvesGarbleJob { hash, offset, batch, labels, coins, tables } = self;
        linear(batch, labels);
        let coins = Block::bytes_of(coins);
        let offset = ThreeHalvesOffset::new(lanes, lanes.splat(offset));
        let (pairs, rest) = tables.split_at_mut(16 * batch.ands.len());
        let (halves, bits) = rest.split_at_mut(8 * batch.ands.len());
        let far = exceeds_cache(labels);
        // The control bits of eight ANDs.
        let mut word = 0;
        for (n, ands) in batch.ands.chunks(ANDS_PER_KEY).enumerate() {
            let key = hash.key(lanes, n);
            for (i, gates) in ands.chunks(L::WIDTH).enumerate() {
                let at_key = i * L::WIDTH;
                let at = n * ANDS_PER_KEY + at_key;
                if far {
                    prefetch(batch.ands, at + PREFETCH_DISTANCE, L::WIDTH, labels);
                }
                let inputs = gather(lanes, gates, labels);
                let universal = hash.universal(lanes, at_key);
                let made = garble_vector(lanes, &key, universal, &offset, inputs, (coins, at));
                store_outputs(lanes, made.output, gates, labels);
                // A length that is known at compile time avoids calls.
                if gates.len() == L::WIDTH {
                    lanes.store(made.pair, &mut pairs[16 * at..]);
                    lanes.store_low_halves(made.half, &mut halves[8 * at..]);
                } else {
                    let mut last = [0; 16 * MAX_WIDTH];
                    lanes.store(made.pair, &mut last);
                    copy(&mut pairs[16 * at..], &last, 16 * gates.len());
                    lanes.store_low_halves(made.half, &mut last);
                    copy(&mut halves[8 * at..], &last, 8 * gates.len());
                }
                let control = lanes.blocks(made.control);
                for (l, control) in control.iter().take(gates.len()).enumerate() {
                    word |= u64::from(control.to_bytes()[0])
                        << (CONTROL_BITS_PER_AND * ((at + l) % ANDS_PER_PACK));
                }
                let end = at + gates.len();
                if end.is_multiple_of(ANDS_PER_PACK) || end == batch.ands.len() {
                    let eight = (end - 1) / ANDS_PER_PACK * CONTROL_BITS_PER_AND;
                    copy(&mut bits[eight..], &word.to_le_bytes(), CONTROL_BITS_PER_AND);
                    word = 0;
                }
            }
        }
    }
}

/// Copies the first bytes.
#[inline(always)]
fn copy(to: &mut [u8], from: &[u8], count: usize) {
    to[..count].copy_from_slice(&from[..count]);
}

/// The offset, and values derived from it.
struct ThreeHalvesOffset<V> {
    value: V,
    /// Under the orthomorphism once, and twice.
    once: V,
    twice: V,
    /// The halves times x.
    product: V,
}

impl<V: Copy> ThreeHalvesOffset<V> {
    #[inline(always)]
    fn new<L: Lanes<Vector = V>>(lanes: L, value: V) -> Self {
        let once = lanes.sigma(value);
        let twice = lanes.xor(value, once);
        Self { value, once, twice, product: lanes.double_halves(value) }
    }
}

/// The garbled ANDs of a vector.
struct GarbledAndVector<V> {
    output: V,
    /// `G0` and `G1`.
    pair: V,
    /// `G2`, in both halves.
    half: V,
    /// The encrypted bits, the lowest of each lane.
    control: V,
}

/// The labels of the inputs of a vector of ANDs, which is filled up with its last.
#[inline(always)]
fn gather<L: Lanes>(lanes: L, gates: &[AndGate], labels: &[Block]) -> (L::Vector, L::Vector) {
    let (mut a, mut b) = ([0; MAX_WIDTH], [0; MAX_WIDTH]);
    for l in 0..L::WIDTH {
        let gate = gates[l.min(gates.len() - 1)];
        (a[l], b[l]) = (gate.a as usize, gate.b as usize);
    }
    (lanes.gather(labels, a), lanes.gather(labels, b))
}

/// Writes the labels of the outputs.
#[inline(always)]
fn store_outputs<L: Lanes>(lanes: L, outputs: L::Vector, gates: &[AndGate], labels: &mut [Block]) {
    for (gate, label) in gates.iter().zip(lanes.blocks(outputs)) {
        labels[gate.out as usize] = label;
    }
}

/// Garbles a vector of ANDs. The random bits of the first one are at `coins.1`.
#[inline(always)]
fn garble_vector<L: Lanes>(
    lanes: L,
    key: &L::Schedule,
    universal: [L::Vector; HASHES],
    offset: &ThreeHalvesOffset<L::Vector>,
    (a, b): (L::Vector, L::Vector),
    coins: (&[u8], usize),
) -> GarbledAndVector<L::Vector> {
    let one = lanes.splat(Block::ZERO.with_lsb(true));
    let ones = lanes.splat(Block::ONES);
    let left = lanes.splat(LEFT);
    // Whether the labels of 1 have colour 0, and 1.
    let (a_mask, b_mask) = (lanes.lsb_mask(a), lanes.lsb_mask(b));
    let (a_one, b_one) = (lanes.xor(a_mask, ones), lanes.xor(b_mask, ones));
    let differ = lanes.xor(a_mask, b_mask);
    // The labels of colour 0, and their hashes and those of colour 1.
    let x = lanes.xor(a, lanes.and(a_mask, offset.value));
    let u = lanes.xor(b, lanes.and(b_mask, offset.value));
    let x_input = lanes.xor(x, universal[0]);
    let u_input = lanes.xor(u, universal[1]);
    let m_input = lanes.xor(lanes.xor(x, u), universal[2]);
    let inputs = [
        x_input,
        lanes.xor(x_input, offset.value),
        u_input,
        lanes.xor(u_input, offset.value),
        m_input,
        lanes.xor(m_input, offset.value),
    ];
    let [a0, a1, b0, b1, m0, m1] = lanes.encrypt(key, inputs);
    let a_both = lanes.xor(lanes.xor(a0, a1), offset.product);
    let b_both = lanes.xor(lanes.xor(b0, b1), offset.product);
    let m_both = lanes.xor(lanes.xor(m0, m1), offset.product);
    let (x_product, u_product) = (lanes.double_halves(x), lanes.double_halves(u));
    let (a0, b0) = (lanes.xor(a0, x_product), lanes.xor(b0, u_product));
    let m0 = lanes.xor(m0, lanes.xor(x_product, u_product));

    let random = packed(lanes, coins.0, coins.1, COINS_PER_AND);
    let random_1 = lanes.lsb_mask(random);
    let random_2 = lanes.lsb_mask(lanes.shr(random, 1));
    let first = lanes.xor(lanes.xor(x, u), lanes.sigma(x));
    let second = lanes.xor(x, lanes.sigma(u));
    // The left half of `u`, the right half of `x`.
    let fixed = lanes.xor(x, lanes.and(left, lanes.xor(x, u)));

    let mut output = lanes.xor(lanes.high_halves(a0, b0), lanes.high_halves(m0, m0));
    output = lanes.xor(output, lanes.and(random_1, first));
    output = lanes.xor(output, lanes.and(random_2, second));
    output = lanes.xor(output, fixed);
    output = lanes.xor(output, lanes.and(lanes.and(a_mask, b_mask), offset.value));

    let mut pair = lanes.high_halves(a_both, b_both);
    pair = lanes.xor(pair, lanes.and(a_one, first));
    pair = lanes.xor(pair, lanes.and(b_one, second));
    pair = lanes.xor(pair, fixed);
    pair = lanes.xor(pair, lanes.and(lanes.xor(random_1, a_one), offset.once));
    pair = lanes.xor(pair, lanes.and(lanes.xor(random_2, b_one), offset.twice));
    pair = lanes.xor(pair, lanes.and(lanes.xor(differ, ones), offset.value));

    let mut half = lanes.high_halves(m_both, m_both);
    half = lanes.xor(half, lanes.and(differ, first));
    half = lanes.xor(half, lanes.and(a_one, second));
    half = lanes.xor(half, lanes.and(lanes.xor(random_1, b_one), offset.value));
    half = lanes.xor(half, lanes.and(lanes.xor(random_2, a_one), offset.once));

    let bits = [
        lanes.xor(lanes.xor(a0, m0), random_1),
        lanes.xor(lanes.xor(b0, m0), random_2),
        lanes.xor(a_both, a_one),
        lanes.xor(b_both, b_one),
        lanes.xor(m_both, differ),
    ];
    let mut control = lanes.splat(Block::ZERO);
    for (n, bit) in (0..).zip(bits) {
        control = lanes.xor(control, lanes.shl(lanes.and(bit, one), n));
    }
    GarbledAndVector { output, pair, half, control }
}

/// Evaluates a batch.
pub(crate) struct ThreeHalvesEvaluateJob<'a> {
    pub(crate) hash: ThreeHalvesHash<'a>,
    pub(crate) batch: GateBatch<'a>,
    /// The labels that the evaluator has, by place.
    pub(crate) labels: &'a mut [Block],
    /// As long as the batch's tables.
    pub(crate) tables: &'a [u8],
}

impl KernelJob for ThreeHalvesEvaluateJob<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let ThreeHalvesEvaluateJob { hash, batch, labels, tables } = self;
        linear(batch, labels);
        let (pairs, rest) = tables.split_at(16 * batch.ands.len());
        let (halves, bits) = rest.split_at(8 * batch.ands.len());
        let far = exceeds_cache(labels);
        for (n, ands) in batch.ands.chunks(ANDS_PER_KEY).enumerate() {
            let key = hash.key(lanes, n);
            for (i, gates) in ands.chunks(L::WIDTH).enumerate() {
                let at_key = i * L::WIDTH;
                let at = n * ANDS_PER_KEY + at_key;
                if far {
                    prefetch(batch.ands, at + PREFETCH_DISTANCE, L::WIDTH, labels);
                }
                let (pair, half) = if gates.len() == L::WIDTH {
                    (lanes.load(&pairs[16 * at..]), lanes.load_halves(&halves[8 * at..]))
                } else {
                    let mut last = [0; 16 * MAX_WIDTH];
                    copy(&mut last, &pairs[16 * at..], 16 * gates.len());
                    let pair = lanes.load(&last);
                    copy(&mut last, &halves[8 * at..], 8 * gates.len());
                    (pair, lanes.load_halves(&last))
                };
                let inputs = gather(lanes, gates, labels);
                let universal = hash.universal(lanes, at_key);
                let control = packed(lanes, bits, at, CONTROL_BITS_PER_AND);
                let table = (pair, half, control);
                let output = evaluate_vector(lanes, &key, universal, inputs, table);
                store_outputs(lanes, output, gates, labels);
            }
        }
    }
}

/// Evaluates a vector of ANDs, with the table `G0` and `G1`, `G2` in both halves, and the control
/// bits.
#[inline(always)]
fn evaluate_vector<L: Lanes>(
    lanes: L,
    key: &L::Schedule,
    universal: [L::Vector; HASHES],
    (a, b): (L::Vector, L::Vector),
    (pair, half, control): (L::Vector, L::Vector, L::Vector),
) -> L::Vector {
    let inputs = [
        lanes.xor(a, universal[0]),
        lanes.xor(b, universal[1]),
        lanes.xor(lanes.xor(a, b), universal[2]),
    ];
    let [a_hash, b_hash, m_hash] = lanes.encrypt(key, inputs);
    let (a_product, b_product) = (lanes.double_halves(a), lanes.double_halves(b));
    let (a_hash, b_hash) = (lanes.xor(a_hash, a_product), lanes.xor(b_hash, b_product));
    let m_hash = lanes.xor(m_hash, lanes.xor(a_product, b_product));

    let (a_mask, b_mask) = (lanes.lsb_mask(a), lanes.lsb_mask(b));
    let differ = lanes.xor(a_mask, b_mask);
    let both = lanes.and(differ, lanes.shr(control, 4));
    let mut bit_1 = lanes.xor(control, lanes.and(a_mask, lanes.shr(control, 2)));
    bit_1 = lanes.xor(lanes.xor(bit_1, both), lanes.xor(a_hash, m_hash));
    let mut bit_2 = lanes.xor(lanes.shr(control, 1), lanes.and(b_mask, lanes.shr(control, 3)));
    bit_2 = lanes.xor(lanes.xor(bit_2, both), lanes.xor(b_hash, m_hash));

    let left = lanes.splat(LEFT);
    let first = lanes.xor(lanes.xor(a, b), lanes.sigma(a));
    let second = lanes.xor(a, lanes.sigma(b));
    let fixed = lanes.xor(a, lanes.and(left, lanes.xor(a, b)));
    // The mask of `a` in the left half, that of `b` in the right one.
    let masks = lanes.xor(b_mask, lanes.and(left, differ));

    let mut output =
        lanes.xor(lanes.high_halves(a_hash, b_hash), lanes.high_halves(m_hash, m_hash));
    output = lanes.xor(output, lanes.and(lanes.lsb_mask(bit_1), first));
    output = lanes.xor(output, lanes.and(lanes.lsb_mask(bit_2), second));
    // The table's halves where the mask is set, the fixed ones where it is not.
    output = lanes.xor(output, lanes.xor(fixed, lanes.and(masks, lanes.xor(fixed, pair))));
    lanes.xor(output, lanes.and(differ, half))
}

/// The bits of the gates from the place `at` on, `len` bits each in turn, as the lowest bits of the
/// lanes; above them there are others. Zeros where there are no more.
#[inline(always)]
fn packed<L: Lanes>(lanes: L, bytes: &[u8], at: usize, len: usize) -> L::Vector {
    // Eight gates have whole bytes, and a vector is of one such eight.
    let mut word = [0; 8];
    let eight = at / ANDS_PER_PACK * len;
    if let Some(bytes) = bytes.get(eight..eight + len) {
        word[..len].copy_from_slice(bytes);
    }
    let mut shifts = [0; MAX_WIDTH];
    for (l, shift) in shifts.iter_mut().enumerate() {
        *shift = (len * l) as u64;
    }
    lanes.shifted(u64::from_le_bytes(word) >> (len * (at % ANDS_PER_PACK)), shifts)
}

#[cfg(test)]
mod tests;
