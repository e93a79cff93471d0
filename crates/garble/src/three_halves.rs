//! Three halves (Rosulek, Roy: "Three halves make a whole? Beating the half-gates lower bound for
//! garbled circuits", CRYPTO 2021), with free XOR as in half gates.
//!
//! Labels are sliced: a block is a left (low) and a right (high) half of 64 bits. With `i`, `j` the
//! colours (least significant bits) of the labels `A`, `B` of an AND, the evaluator computes
//!
//!   left  = h(A) ^ h(A ^ B) ^ i G0 ^ (i ^ j) G2 ^ (control bits) (halves of A and B)
//!   right = h(B) ^ h(A ^ B) ^ j G1 ^ (i ^ j) G2 ^ (control bits) (halves of A and B)
//!
//! where `G0`, `G1`, `G2` are halves, the table. The control bits of each row (section 5) are
//! `r1 S1 ^ r2 S2 ^ Rp`. With the orthomorphism `s`, (left, right) -> (right, left ^ right), which
//! is a multiplication in GF(4), `S1 (A, B) = A ^ B ^ s(A)` and `S2 (A, B) = A ^ s(B)`; `Rp` adds
//! the left half of `B` if `i = 0`, and the right half of `A` if `j = 0`. The two bits `r1`, `r2`
//! of a row are random ("dicing"), so that they say nothing of the row; five bits of the table,
//! encrypted by one bit of each hash, give those of each row.
//!
//! The hash of a label `Z` is keyed again for each AND: `Y = E(start ^ number, Z ^ c)` with a
//! constant `c` for each of `A`, `B` and `A ^ B`; the half `h(Z)` is the high half of `Y` and the
//! high half of `Z` times x in GF(2^64), the bit is the least significant of `Y`. The halves of the
//! offset `d` enter a table by `h(Z ^ d)` and as any sum of themselves: what is left of the product
//! in such a sum keeps 64 bits of entropy, so half of `Y` is never known.
//!
//! A batch's tables are the pairs `G0`, `G1` of its ANDs, then their `G2`, then for each eight ANDs
//! five bytes with five bits each, from the least significant.

use blocks::Block;
use blocks::lanes::{Job, KEYS, Lanes, MAX_WIDTH};
use circuit::{And, Batch};

use crate::half_gates::{is_far, linear, prefetch};

/// The largest group.
const MAX_GROUP: usize = KEYS * MAX_WIDTH;

/// What is added to the hash's input for the second label, and for the sum of both.
const SECOND: Block = Block::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
const SUM: Block = Block::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);

/// The left half.
const LEFT: Block =
    Block::from_bytes([255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0]);

/// The bits of an AND that encrypt the control bits, and how many ANDs have whole bytes of them.
const BITS: usize = 5;
const PACKED: usize = 8;

/// The garbler's random bits of an AND.
const COINS: usize = 2;

/// The length of the tables of a number of ANDs, in bytes.
pub(crate) const fn table_len(ands: usize) -> usize {
    24 * ands + BITS * ands.div_ceil(PACKED)
}

/// The number of random bytes for the ANDs of a batch.
pub(crate) const fn coins_len(ands: usize) -> usize {
    COINS * ands.div_ceil(PACKED)
}

/// Garbles a batch.
pub(crate) struct Garble<'a> {
    pub(crate) start: Block,
    /// The number of the batch's first AND.
    pub(crate) first: u64,
    pub(crate) offset: Block,
    pub(crate) batch: Batch<'a>,
    /// The labels of 0, by place.
    pub(crate) labels: &'a mut [Block],
    /// Random bytes, [`coins_len`].
    pub(crate) coins: &'a [u8],
    /// As long as the batch's tables, and zero.
    pub(crate) tables: &'a mut [u8],
}

impl Job for Garble<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let Garble { start, first, offset, batch, labels, coins, tables } = self;
        linear(batch, labels);
        let start = lanes.splat(start);
        let offset = Offset::new(lanes, lanes.splat(offset));
        let group = KEYS * L::WIDTH;
        let (pairs, rest) = tables.split_at_mut(16 * batch.ands.len());
        let (halves, bits) = rest.split_at_mut(8 * batch.ands.len());
        let mut made = Made::new();
        let far = is_far(labels);
        for (i, gates) in batch.ands.chunks(group).enumerate() {
            let at = i * group;
            if far {
                prefetch(batch.ands, at + group, group, labels);
            }
            let (a, b) = gather(lanes, gates, labels);
            let number = first.wrapping_add(at as u64);
            garble_group(lanes, start, &offset, number, (a, b), (coins, at), &mut made);
            let count = gates.len();
            for (gate, label) in gates.iter().zip(&made.outputs) {
                labels[gate.out as usize] = *label;
            }
            // A length that is known when this is compiled spares calls.
            if count == group {
                copy(&mut pairs[16 * at..], &made.pairs, 16 * group);
                copy(&mut halves[8 * at..], &made.halves, 8 * group);
            } else {
                copy(&mut pairs[16 * at..], &made.pairs, 16 * count);
                copy(&mut halves[8 * at..], &made.halves, 8 * count);
            }
            for (l, control) in made.control.iter().take(count).enumerate() {
                put_bits(bits, at + l, control.to_bytes()[0]);
            }
        }
    }
}

/// Copies the first bytes.
#[inline(always)]
fn copy(to: &mut [u8], from: &[u8], count: usize) {
    to[..count].copy_from_slice(&from[..count]);
}

/// The offset, and what is made of it.
struct Offset<V> {
    itself: V,
    /// Under the orthomorphism once, and twice.
    once: V,
    twice: V,
    /// The halves times x.
    product: V,
}

impl<V: Copy> Offset<V> {
    #[inline(always)]
    fn new<L: Lanes<Vector = V>>(lanes: L, itself: V) -> Self {
        let once = lanes.sigma(itself);
        let twice = lanes.xor(itself, once);
        Self { itself, once, twice, product: lanes.double_halves(itself) }
    }
}

/// What is made of a group of ANDs.
struct Made {
    outputs: [Block; MAX_GROUP],
    pairs: [u8; 16 * MAX_GROUP],
    halves: [u8; 8 * MAX_GROUP],
    /// The encrypted bits of each, the lowest of the block.
    control: [Block; MAX_GROUP],
}

impl Made {
    #[inline(always)]
    fn new() -> Self {
        Self {
            outputs: [Block::ZERO; MAX_GROUP],
            pairs: [0; 16 * MAX_GROUP],
            halves: [0; 8 * MAX_GROUP],
            control: [Block::ZERO; MAX_GROUP],
        }
    }
}

/// The labels of the inputs of a group, which is filled up with its last gate.
#[inline(always)]
fn gather<L: Lanes>(
    lanes: L,
    gates: &[And],
    labels: &[Block],
) -> ([L::Vector; KEYS], [L::Vector; KEYS]) {
    let mut a_labels = [lanes.splat(Block::ZERO); KEYS];
    let mut b_labels = a_labels;
    for k in 0..KEYS {
        let (mut a, mut b) = ([0; MAX_WIDTH], [0; MAX_WIDTH]);
        for l in 0..L::WIDTH {
            let gate = gates[(k * L::WIDTH + l).min(gates.len() - 1)];
            (a[l], b[l]) = (gate.a as usize, gate.b as usize);
        }
        a_labels[k] = lanes.gather(labels, a);
        b_labels[k] = lanes.gather(labels, b);
    }
    (a_labels, b_labels)
}

/// The keys of the hashes of a group.
#[inline(always)]
fn keys<L: Lanes>(lanes: L, start: L::Vector, number: u64) -> [L::Vector; KEYS] {
    let mut keys = [start; KEYS];
    for (k, key) in keys.iter_mut().enumerate() {
        let mut offsets = [0; MAX_WIDTH];
        for (l, offset) in offsets.iter_mut().enumerate() {
            *offset = (k * L::WIDTH + l) as u64;
        }
        *key = lanes.xor(*key, lanes.counters(number, offsets));
    }
    keys
}

/// Garbles a group, whose first gate takes its random bits at the place `coins.1`.
#[inline(always)]
fn garble_group<L: Lanes>(
    lanes: L,
    start: L::Vector,
    offset: &Offset<L::Vector>,
    number: u64,
    (a, b): ([L::Vector; KEYS], [L::Vector; KEYS]),
    coins: (&[u8], usize),
    made: &mut Made,
) {
    let (second, sum) = (lanes.splat(SECOND), lanes.splat(SUM));
    // The labels of colour 0.
    let (mut x, mut u) = (a, b);
    let mut inputs = [[start; 6]; KEYS];
    for k in 0..KEYS {
        x[k] = lanes.xor(a[k], lanes.and(lanes.lsb_mask(a[k]), offset.itself));
        u[k] = lanes.xor(b[k], lanes.and(lanes.lsb_mask(b[k]), offset.itself));
        let u_input = lanes.xor(u[k], second);
        let m_input = lanes.xor(lanes.xor(x[k], u[k]), sum);
        inputs[k] = [
            x[k],
            lanes.xor(x[k], offset.itself),
            u_input,
            lanes.xor(u_input, offset.itself),
            m_input,
            lanes.xor(m_input, offset.itself),
        ];
    }
    let encrypted = lanes.encrypt_keyed(keys(lanes, start, number), inputs);

    let one = lanes.splat(Block::ZERO.with_lsb(true));
    let ones = lanes.splat(Block::ONES);
    let left = lanes.splat(LEFT);
    for k in 0..KEYS {
        let (x, u) = (x[k], u[k]);
        let [a0, a1, b0, b1, m0, m1] = encrypted[k];
        // Whether the labels of 1 have colour 0, and 1.
        let (a_mask, b_mask) = (lanes.lsb_mask(a[k]), lanes.lsb_mask(b[k]));
        let (a_one, b_one) = (lanes.xor(a_mask, ones), lanes.xor(b_mask, ones));
        let differ = lanes.xor(a_mask, b_mask);
        let at = coins.1 + k * L::WIDTH;
        let random = packed(lanes, coins.0, at, COINS);
        let random_1 = lanes.lsb_mask(random);
        let random_2 = lanes.lsb_mask(lanes.shr(random, 1));

        let first = lanes.xor(lanes.xor(x, u), lanes.sigma(x));
        let second = lanes.xor(x, lanes.sigma(u));
        // The left half of `u`, the right half of `x`.
        let fixed = lanes.xor(x, lanes.and(left, lanes.xor(x, u)));
        let (x_product, u_product) = (lanes.double_halves(x), lanes.double_halves(u));
        let m_hash = lanes.xor(m0, lanes.xor(x_product, u_product));

        let mut output = lanes.high_halves(lanes.xor(a0, x_product), lanes.xor(b0, u_product));
        output = lanes.xor(output, lanes.high_halves(m_hash, m_hash));
        output = lanes.xor(output, lanes.and(random_1, first));
        output = lanes.xor(output, lanes.and(random_2, second));
        output = lanes.xor(output, fixed);
        output = lanes.xor(output, lanes.and(lanes.and(a_mask, b_mask), offset.itself));

        let (a_both, b_both, m_both) = (lanes.xor(a0, a1), lanes.xor(b0, b1), lanes.xor(m0, m1));
        let mut pair =
            lanes.high_halves(lanes.xor(a_both, offset.product), lanes.xor(b_both, offset.product));
        pair = lanes.xor(pair, lanes.and(a_one, first));
        pair = lanes.xor(pair, lanes.and(b_one, second));
        pair = lanes.xor(pair, fixed);
        pair = lanes.xor(pair, lanes.and(lanes.xor(random_1, a_one), offset.once));
        pair = lanes.xor(pair, lanes.and(lanes.xor(random_2, b_one), offset.twice));
        pair = lanes.xor(pair, lanes.and(lanes.xor(differ, ones), offset.itself));

        let m_hashes = lanes.xor(m_both, offset.product);
        let mut half = lanes.high_halves(m_hashes, m_hashes);
        half = lanes.xor(half, lanes.and(differ, first));
        half = lanes.xor(half, lanes.and(a_one, second));
        half = lanes.xor(half, lanes.and(lanes.xor(random_1, b_one), offset.itself));
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

        let from = k * L::WIDTH;
        lanes.store(pair, &mut made.pairs[16 * from..]);
        lanes.store_low_halves(half, &mut made.halves[8 * from..]);
        let (output, control) = (lanes.blocks(output), lanes.blocks(control));
        made.outputs[from..from + L::WIDTH].copy_from_slice(&output[..L::WIDTH]);
        made.control[from..from + L::WIDTH].copy_from_slice(&control[..L::WIDTH]);
    }
}

/// Evaluates a batch.
pub(crate) struct Evaluate<'a> {
    pub(crate) start: Block,
    /// The number of the batch's first AND.
    pub(crate) first: u64,
    pub(crate) batch: Batch<'a>,
    /// The labels that the evaluator has, by place.
    pub(crate) labels: &'a mut [Block],
    /// As long as the batch's tables.
    pub(crate) tables: &'a [u8],
}

impl Job for Evaluate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let Evaluate { start, first, batch, labels, tables } = self;
        linear(batch, labels);
        let start = lanes.splat(start);
        let group = KEYS * L::WIDTH;
        let (pairs, rest) = tables.split_at(16 * batch.ands.len());
        let (halves, bits) = rest.split_at(8 * batch.ands.len());
        let mut read_pairs = [0; 16 * MAX_GROUP];
        let mut read_halves = [0; 8 * MAX_GROUP];
        let far = is_far(labels);
        for (i, gates) in batch.ands.chunks(group).enumerate() {
            let (at, count) = (i * group, gates.len());
            if far {
                prefetch(batch.ands, at + group, group, labels);
            }
            if count == group {
                copy(&mut read_pairs, &pairs[16 * at..], 16 * group);
                copy(&mut read_halves, &halves[8 * at..], 8 * group);
            } else {
                copy(&mut read_pairs, &pairs[16 * at..], 16 * count);
                copy(&mut read_halves, &halves[8 * at..], 8 * count);
            }
            let (a, b) = gather(lanes, gates, labels);
            let number = first.wrapping_add(at as u64);
            let outputs = evaluate_group(
                lanes,
                start,
                number,
                (a, b),
                (&read_pairs, &read_halves),
                (bits, at),
            );
            for (gate, label) in gates.iter().zip(&outputs) {
                labels[gate.out as usize] = *label;
            }
        }
    }
}

/// Evaluates a group, whose first gate has its bits at the place `bits.1`.
#[inline(always)]
fn evaluate_group<L: Lanes>(
    lanes: L,
    start: L::Vector,
    number: u64,
    (a, b): ([L::Vector; KEYS], [L::Vector; KEYS]),
    (pairs, halves): (&[u8], &[u8]),
    bits: (&[u8], usize),
) -> [Block; MAX_GROUP] {
    let (second, sum) = (lanes.splat(SECOND), lanes.splat(SUM));
    let mut inputs = [[start; 3]; KEYS];
    for k in 0..KEYS {
        let m = lanes.xor(lanes.xor(a[k], b[k]), sum);
        inputs[k] = [a[k], lanes.xor(b[k], second), m];
    }
    let encrypted = lanes.encrypt_keyed(keys(lanes, start, number), inputs);

    let left = lanes.splat(LEFT);
    let mut outputs = [Block::ZERO; MAX_GROUP];
    for k in 0..KEYS {
        let (a, b) = (a[k], b[k]);
        let [a_encrypted, b_encrypted, m_encrypted] = encrypted[k];
        let (a_mask, b_mask) = (lanes.lsb_mask(a), lanes.lsb_mask(b));
        let differ = lanes.xor(a_mask, b_mask);
        let from = k * L::WIDTH;
        let control = packed(lanes, bits.0, bits.1 + from, BITS);
        let both = lanes.and(differ, lanes.shr(control, 4));
        let mut bit_1 = lanes.xor(control, lanes.and(a_mask, lanes.shr(control, 2)));
        bit_1 = lanes.xor(lanes.xor(bit_1, both), lanes.xor(a_encrypted, m_encrypted));
        let control_1 = lanes.shr(control, 1);
        let mut bit_2 = lanes.xor(control_1, lanes.and(b_mask, lanes.shr(control, 3)));
        bit_2 = lanes.xor(lanes.xor(bit_2, both), lanes.xor(b_encrypted, m_encrypted));

        let first = lanes.xor(lanes.xor(a, b), lanes.sigma(a));
        let second = lanes.xor(a, lanes.sigma(b));
        let fixed = lanes.xor(a, lanes.and(left, lanes.xor(a, b)));
        let (a_product, b_product) = (lanes.double_halves(a), lanes.double_halves(b));
        let m_hash = lanes.xor(m_encrypted, lanes.xor(a_product, b_product));
        // The mask of `a` in the left half, that of `b` in the right one.
        let masks = lanes.xor(b_mask, lanes.and(left, differ));
        let pair = lanes.load(&pairs[16 * from..]);
        let half = lanes.load_halves(&halves[8 * from..]);

        let mut output =
            lanes.high_halves(lanes.xor(a_encrypted, a_product), lanes.xor(b_encrypted, b_product));
        output = lanes.xor(output, lanes.high_halves(m_hash, m_hash));
        output = lanes.xor(output, lanes.and(lanes.lsb_mask(bit_1), first));
        output = lanes.xor(output, lanes.and(lanes.lsb_mask(bit_2), second));
        // The table's halves where the mask is set, the fixed ones where it is not.
        output = lanes.xor(output, lanes.xor(fixed, lanes.and(masks, lanes.xor(fixed, pair))));
        output = lanes.xor(output, lanes.and(differ, half));
        outputs[from..from + L::WIDTH].copy_from_slice(&lanes.blocks(output)[..L::WIDTH]);
    }
    outputs
}

/// The bits of the gates from the place `at` on, `len` bits each in turn, as the lowest bits of the
/// lanes; above them there are others. Zeros where there are no more.
#[inline(always)]
fn packed<L: Lanes>(lanes: L, bytes: &[u8], at: usize, len: usize) -> L::Vector {
    // Eight gates have whole bytes, and a vector is of one such eight.
    let mut word = [0; 8];
    let eight = at / PACKED * len;
    if let Some(bytes) = bytes.get(eight..eight + len) {
        word[..len].copy_from_slice(bytes);
    }
    let mut shifts = [0; MAX_WIDTH];
    for (l, shift) in shifts.iter_mut().enumerate() {
        *shift = (len * (at % PACKED + l)) as u64;
    }
    lanes.shifted(u64::from_le_bytes(word), shifts)
}

/// Adds the control bits of a gate to the bytes, which are zero there.
#[inline(always)]
fn put_bits(bytes: &mut [u8], gate: usize, bits: u8) {
    let (at, shift) = (BITS * gate / 8, BITS * gate % 8);
    let [low, high] = (u16::from(bits) << shift).to_le_bytes();
    bytes[at] |= low;
    if shift + BITS > 8 {
        bytes[at + 1] |= high;
    }
}
