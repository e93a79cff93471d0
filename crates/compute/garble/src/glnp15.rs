//! The scheme of Gueron, Lindell, Nof and Pinkas ("Fast garbling of circuits under standard
//! assumptions", CCS 2015), whose only assumption is that AES is a pseudorandom function F.
//!
//! Each wire has two labels of its own. The least significant bit of a label is its signal bit, the
//! other 127 are random.
//!
//! - XOR (XOR-1): the labels of input `i` are translated to `F(label)`, whose difference becomes
//!   that of input `j` and of the output. The label of `j` with signal bit 0 is translated in the
//!   same way, the other one by a table of one block. The output's signal bit is the exclusive or
//!   of the inputs'.
//! - AND (4-2 row reduction): row `r = 2 a + b` of signal bits has the pad `K_r = F(label of i) ^
//!   F(label of j)`. Two blocks `T1`, `T2` make `K_r ^ b T1 ^ a T2` one of the two output labels,
//!   `K_0` and `K_1 ^ K_2 ^ K_3`, in each row. The signal bit of row 0 is that of `K_0`; the other
//!   rows' are encrypted by those of their pads, in the least significant bits of `T1` and `T2` and
//!   one more bit.
//! - NOT exchanges the labels.
//!
//! A batch's tables are the blocks of its XORs, then two blocks of each AND, then a bit of each AND
//! in as many bytes as are needed, from the least significant.

use blocks::Block;
use blocks::lanes::{KEY_VECTORS, KernelJob, Lanes, MAX_WIDTH};
use circuit::{AndGate, GateBatch, LinearGate};

use crate::half_gates::{exceeds_cache, prefetch};

/// The input of F has a gate's number in its low half, and in its high half: which input the key is
/// the label of,
const SECOND_INPUT: Block = Block::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
/// the signal bit of the first input,
const FIRST_SIGNAL: Block = Block::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
/// and that of the second one.
const SECOND_SIGNAL: Block = Block::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);

/// The least significant bit.
const LSB: Block = Block::from_bytes([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);

/// The numbers of the gates of a vector, less that of the first.
const LANE_OFFSETS: [u64; MAX_WIDTH] = [0, 1, 2, 3];

/// The largest group.
const MAX_GROUP: usize = 2 * MAX_WIDTH;

/// Garbles a batch. Returns the number of the next gate.
pub(crate) struct Glnp15GarbleJob<'a> {
    /// The number of the batch's first gate. XORs and ANDs are counted.
    pub(crate) first: u64,
    pub(crate) batch: GateBatch<'a>,
    /// The labels of 0 and 1, by place.
    pub(crate) pairs: &'a mut [[Block; 2]],
    /// As long as the batch's tables, and zero.
    pub(crate) tables: &'a mut [u8],
}

impl KernelJob for Glnp15GarbleJob<'_> {
    type Output = u64;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> u64 {
        let Glnp15GarbleJob { first, batch, pairs, tables } = self;
        let far = exceeds_cache(pairs.as_flattened());
        let (mut number, mut at, mut start) = (first, 0, 0);
        for &end in batch.runs {
            let run = &batch.linear[start..end as usize];
            start = end as usize;
            for gates in run.chunk_by(are_alike) {
                if !gates[0].is_xor() {
                    for gate in gates {
                        let [zero, one] = pairs[gate.a as usize];
                        let not = gate.is_not();
                        pairs[gate.out as usize] = if not { [one, zero] } else { [zero, one] };
                    }
                    continue;
                }
                let group = if L::WIDTH == MAX_WIDTH { 2 * L::WIDTH } else { L::WIDTH };
                for (i, gates_of_group) in gates.chunks(group).enumerate() {
                    if far {
                        prefetch_pairs(gates, (i + 2) * group, group, pairs);
                    }
                    let len = 16 * gates_of_group.len();
                    let tables = &mut tables[at..at + len];
                    if gates_of_group.len() > L::WIDTH {
                        garble_xors::<L, 2>(lanes, number, gates_of_group, pairs, tables);
                    } else {
                        garble_xors::<L, 1>(lanes, number, gates_of_group, pairs, tables);
                    }
                    number = number.wrapping_add(gates_of_group.len() as u64);
                    at += len;
                }
            }
        }

        let (tables, bits) = tables[at..].split_at_mut(32 * batch.ands.len());
        let groups = batch.ands.chunks(L::WIDTH).zip(tables.chunks_mut(32 * L::WIDTH));
        for (group, (gates, tables)) in groups.enumerate() {
            if far {
                for gate in batch.ands.iter().skip((group + 2) * L::WIDTH).take(L::WIDTH) {
                    for place in [gate.a, gate.b, gate.out] {
                        Block::prefetch(pairs.as_flattened(), 2 * place as usize);
                    }
                }
            }
            let extra = garble_ands(lanes, number, gates, pairs, tables);
            for (i, bit) in extra.into_iter().take(gates.len()).enumerate() {
                let at = group * L::WIDTH + i;
                bits[at / 8] |= u8::from(bit) << (at % 8);
            }
            number = number.wrapping_add(gates.len() as u64);
        }
        number
    }
}

/// Whether two linear gates are both XORs, or both not.
#[inline(always)]
fn are_alike(a: &LinearGate, b: &LinearGate) -> bool {
    a.is_xor() == b.is_xor()
}

/// Prefetches the pairs of the next linear gates.
#[inline(always)]
fn prefetch_pairs(gates: &[LinearGate], from: usize, count: usize, pairs: &[[Block; 2]]) {
    for gate in gates.iter().skip(from).take(count) {
        for place in [gate.a, gate.b, gate.out] {
            Block::prefetch(pairs.as_flattened(), 2 * place as usize);
        }
    }
}

/// Prefetches the labels of the next linear gates.
#[inline(always)]
fn prefetch_labels(gates: &[LinearGate], from: usize, count: usize, labels: &[Block]) {
    for gate in gates.iter().skip(from).take(count) {
        for place in [gate.a, gate.b, gate.out] {
            Block::prefetch(labels, place as usize);
        }
    }
}

/// Garbles at most `G` vectors of XORs (figure 2 of the paper).
#[inline(always)]
fn garble_xors<L: Lanes, const G: usize>(
    lanes: L,
    number: u64,
    gates: &[LinearGate],
    pairs: &mut [[Block; 2]],
    tables: &mut [u8],
) {
    let none = lanes.splat(Block::ZERO);
    let (mut keys, mut inputs) = ([[none; KEY_VECTORS]; G], [[[none]; KEY_VECTORS]; G]);
    for g in 0..G {
        let (mut a, mut b) = ([0; MAX_WIDTH], [0; MAX_WIDTH]);
        for l in 0..L::WIDTH {
            let gate = gates[(g * L::WIDTH + l).min(gates.len() - 1)];
            (a[l], b[l]) = (gate.a as usize, gate.b as usize);
        }
        let [a_zero, a_one] = lanes.gather_pairs(pairs, a);
        let [b_zero, b_one] = lanes.gather_pairs(pairs, b);
        keys[g] = [a_zero, a_one, b_zero, b_one];
        let first = lanes.counters(number.wrapping_add((g * L::WIDTH) as u64), LANE_OFFSETS);
        let second = lanes.xor(first, lanes.splat(SECOND_INPUT));
        inputs[g] = [[first], [first], [second], [second]];
    }
    let translated = lanes.encrypt_groups(keys, inputs);
    for g in 0..G {
        let [[a0], [a1], [b0], [b1]] = translated[g];
        let difference = lanes.xor(a0, a1);
        let b_difference = lanes.xor(b0, b1);
        let table = lanes.xor(difference, b_difference);
        // The label of 0 of the second input is translated by F, or by F and the table.
        let exchanged = lanes.lsb_mask(keys[g][2]);
        let b0 = lanes.xor(b0, lanes.and(exchanged, table));
        let zero = lanes.xor(a0, b0);
        let signal = lanes.xor(keys[g][0], keys[g][2]);
        let zero = with_lsb(lanes, zero, signal);
        let one = lanes.xor(zero, difference);
        let one = with_lsb(lanes, one, lanes.xor(signal, lanes.splat(LSB)));
        let tables = &mut tables[16 * L::WIDTH * g..];
        if tables.len() >= 16 * L::WIDTH {
            lanes.store(table, tables);
        } else {
            let mut stored = [0; 16 * MAX_WIDTH];
            lanes.store(table, &mut stored);
            tables.copy_from_slice(&stored[..tables.len()]);
        }
        let (zero, one) = (lanes.blocks(zero), lanes.blocks(one));
        let outputs = zero.into_iter().zip(one).take(L::WIDTH);
        for (gate, (zero, one)) in gates[g * L::WIDTH..].iter().zip(outputs) {
            pairs[gate.out as usize] = [zero, one];
        }
    }
}

/// Garbles at most one vector of ANDs. Returns the extra bits.
#[inline(always)]
fn garble_ands<L: Lanes>(
    lanes: L,
    number: u64,
    gates: &[AndGate],
    pairs: &mut [[Block; 2]],
    tables: &mut [u8],
) -> [bool; MAX_WIDTH] {
    let (mut a, mut b) = ([0; MAX_WIDTH], [0; MAX_WIDTH]);
    for l in 0..L::WIDTH {
        let gate = gates[l.min(gates.len() - 1)];
        (a[l], b[l]) = (gate.a as usize, gate.b as usize);
    }
    let [a, a_one] = lanes.gather_pairs(pairs, a);
    let [b, b_one] = lanes.gather_pairs(pairs, b);
    // Orders the labels by signal bits instead of values.
    let (a_mask, b_mask) = (lanes.lsb_mask(a), lanes.lsb_mask(b));
    let a_both = lanes.xor(a, a_one);
    let b_both = lanes.xor(b, b_one);
    let a_first = lanes.xor(a, lanes.and(a_mask, a_both));
    let b_first = lanes.xor(b, lanes.and(b_mask, b_both));
    let keys = [a_first, lanes.xor(a_first, a_both), b_first, lanes.xor(b_first, b_both)];
    let [r0, r1, r2, r3] = rows(lanes, lanes.counters(number, LANE_OFFSETS));
    let second = lanes.splat(SECOND_INPUT);
    let (s0, s1) = (lanes.xor(r0, second), lanes.xor(r1, second));
    let (s2, s3) = (lanes.xor(r2, second), lanes.xor(r3, second));
    let [[a00, a01], [a10, a11], [b00, b10], [b01, b11]] =
        lanes.encrypt_keyed(keys, [[r0, r1], [r2, r3], [s0, s2], [s1, s3]]);
    let k = [lanes.xor(a00, b00), lanes.xor(a01, b01), lanes.xor(a10, b10), lanes.xor(a11, b11)];

    // The row whose output is 1 is the one with the signal bits of the labels of 1: in the upper
    // half if `a_mask` is zero, at odd places if `b_mask` is.
    let both = lanes.xor(lanes.xor(k[0], k[1]), lanes.xor(k[2], k[3]));
    let first = lanes.xor(lanes.xor(k[0], k[1]), lanes.and(a_mask, both));
    let second = lanes.xor(lanes.xor(k[0], k[2]), lanes.and(b_mask, both));
    let row_0 = lanes.and(a_mask, b_mask);
    let zero = lanes.xor(k[0], lanes.and(row_0, both));
    let one = lanes.xor(zero, both);
    let signal = lanes.xor(k[0], row_0);
    let zero = with_lsb(lanes, zero, signal);
    let one = with_lsb(lanes, one, lanes.xor(signal, lanes.splat(LSB)));
    let first = with_lsb(lanes, first, lanes.xor(lanes.xor(k[0], k[1]), a_mask));
    let second = with_lsb(lanes, second, lanes.xor(lanes.xor(k[0], k[2]), b_mask));

    let [low, high] = lanes.interleave(first, second);
    if tables.len() == 32 * L::WIDTH {
        lanes.store(low, tables);
        lanes.store(high, &mut tables[16 * L::WIDTH..]);
    } else {
        let mut stored = [0; 32 * MAX_WIDTH];
        lanes.store(low, &mut stored);
        lanes.store(high, &mut stored[16 * L::WIDTH..]);
        tables.copy_from_slice(&stored[..tables.len()]);
    }
    let (zero, one) = (lanes.blocks(zero), lanes.blocks(one));
    for (l, gate) in gates.iter().enumerate() {
        pairs[gate.out as usize] = [zero[l], one[l]];
    }
    let mut extra = [false; MAX_WIDTH];
    for (extra, block) in extra.iter_mut().zip(lanes.blocks(both)) {
        *extra = !block.lsb();
    }
    extra
}

/// The inputs of F for the four rows of gates, for the first input.
#[inline(always)]
fn rows<L: Lanes>(lanes: L, base: L::Vector) -> [L::Vector; 4] {
    let (a, b) = (lanes.splat(FIRST_SIGNAL), lanes.splat(SECOND_SIGNAL));
    [base, lanes.xor(base, b), lanes.xor(base, a), lanes.xor(base, lanes.xor(a, b))]
}

/// Returns `blocks` with the least significant bits of `bits`.
#[inline(always)]
fn with_lsb<L: Lanes>(lanes: L, blocks: L::Vector, bits: L::Vector) -> L::Vector {
    lanes.xor(blocks, lanes.and(lanes.xor(blocks, bits), lanes.splat(LSB)))
}

/// Evaluates a batch. Returns the number of the next gate.
pub(crate) struct Glnp15EvaluateJob<'a> {
    /// As in [`Glnp15GarbleJob`].
    pub(crate) first: u64,
    pub(crate) batch: GateBatch<'a>,
    /// The labels that the evaluator has, by place.
    pub(crate) labels: &'a mut [Block],
    /// As long as the batch's tables.
    pub(crate) tables: &'a [u8],
}

impl KernelJob for Glnp15EvaluateJob<'_> {
    type Output = u64;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> u64 {
        let Glnp15EvaluateJob { first, batch, labels, tables } = self;
        let far = exceeds_cache(labels);
        let (mut number, mut at, mut start) = (first, 0, 0);
        for &end in batch.runs {
            let run = &batch.linear[start..end as usize];
            start = end as usize;
            for gates in run.chunk_by(are_alike) {
                if !gates[0].is_xor() {
                    for gate in gates {
                        labels[gate.out as usize] = labels[gate.a as usize];
                    }
                    continue;
                }
                let group = 2 * L::WIDTH;
                for (i, gates_of_group) in gates.chunks(group).enumerate() {
                    if far {
                        prefetch_labels(gates, (i + 2) * group, group, labels);
                    }
                    let len = 16 * gates_of_group.len();
                    evaluate_xors(lanes, number, gates_of_group, labels, &tables[at..at + len]);
                    number = number.wrapping_add(gates_of_group.len() as u64);
                    at += len;
                }
            }
        }

        let (tables, bits) = tables[at..].split_at(32 * batch.ands.len());
        let group = 2 * L::WIDTH;
        let groups = batch.ands.chunks(group).zip(tables.chunks(32 * group));
        for (i, (gates, tables)) in groups.enumerate() {
            if far {
                prefetch(batch.ands, (i + 1) * group, group, labels);
            }
            let mut extra = [Block::ZERO; MAX_GROUP];
            for (l, extra) in extra.iter_mut().take(gates.len()).enumerate() {
                let at = i * group + l;
                *extra = Block::ZERO.with_lsb(bits[at / 8] >> (at % 8) & 1 == 1);
            }
            evaluate_ands(lanes, number, gates, labels, tables, &extra);
            number = number.wrapping_add(gates.len() as u64);
        }
        number
    }
}

/// Evaluates at most two vectors of XORs.
#[inline(always)]
fn evaluate_xors<L: Lanes>(
    lanes: L,
    number: u64,
    gates: &[LinearGate],
    labels: &mut [Block],
    tables: &[u8],
) {
    let mut places = [[0; MAX_GROUP]; 2];
    for l in 0..2 * L::WIDTH {
        let gate = gates[l.min(gates.len() - 1)];
        (places[0][l], places[1][l]) = (gate.a as usize, gate.b as usize);
    }
    let keys = gather_group(lanes, labels, places);
    let mut inputs = [[keys[0]]; KEY_VECTORS];
    for (k, input) in inputs.iter_mut().enumerate() {
        *input = [f_input(lanes, number, k)];
    }
    let translated = lanes.encrypt_keyed(keys, inputs);
    let mut padded = [0; 16 * MAX_GROUP];
    let tables = if tables.len() == 32 * L::WIDTH {
        tables
    } else {
        padded[..tables.len()].copy_from_slice(tables);
        &padded
    };
    for half in 0..2 {
        let ([a], [b]) = (translated[half], translated[2 + half]);
        let (a_label, b_label) = (keys[half], keys[2 + half]);
        let table = lanes.load(&tables[16 * L::WIDTH * half..]);
        let b = lanes.xor(b, lanes.and(lanes.lsb_mask(b_label), table));
        let output = with_lsb(lanes, lanes.xor(a, b), lanes.xor(a_label, b_label));
        let outputs = lanes.blocks(output).into_iter().take(L::WIDTH);
        for (gate, label) in gates.iter().skip(half * L::WIDTH).zip(outputs) {
            labels[gate.out as usize] = label;
        }
    }
}

/// The labels at the places of a group: two vectors of first inputs, then two of second ones.
#[inline(always)]
fn gather_group<L: Lanes>(
    lanes: L,
    labels: &[Block],
    places: [[usize; MAX_GROUP]; 2],
) -> [L::Vector; KEY_VECTORS] {
    let mut keys = [lanes.splat(Block::ZERO); KEY_VECTORS];
    for (k, key) in keys.iter_mut().enumerate() {
        let mut at = [0; MAX_WIDTH];
        at[..L::WIDTH].copy_from_slice(&places[k / 2][(k % 2) * L::WIDTH..][..L::WIDTH]);
        *key = lanes.gather(labels, at);
    }
    keys
}

/// The input of F for vector `k` of a group, without signal bits.
#[inline(always)]
fn f_input<L: Lanes>(lanes: L, number: u64, k: usize) -> L::Vector {
    let mut offsets = LANE_OFFSETS;
    for offset in &mut offsets {
        *offset += ((k % 2) * L::WIDTH) as u64;
    }
    let base = lanes.counters(number, offsets);
    if k < 2 { base } else { lanes.xor(base, lanes.splat(SECOND_INPUT)) }
}

/// Evaluates at most two vectors of ANDs.
#[inline(always)]
fn evaluate_ands<L: Lanes>(
    lanes: L,
    number: u64,
    gates: &[AndGate],
    labels: &mut [Block],
    tables: &[u8],
    extra: &[Block; MAX_GROUP],
) {
    let mut places = [[0; MAX_GROUP]; 2];
    for l in 0..2 * L::WIDTH {
        let gate = gates[l.min(gates.len() - 1)];
        (places[0][l], places[1][l]) = (gate.a as usize, gate.b as usize);
    }
    let keys = gather_group(lanes, labels, places);
    let mut masks = keys;
    for mask in &mut masks {
        *mask = lanes.lsb_mask(*mask);
    }
    let mut inputs = [[keys[0]]; KEY_VECTORS];
    for (k, input) in inputs.iter_mut().enumerate() {
        let first = lanes.and(masks[k % 2], lanes.splat(FIRST_SIGNAL));
        let second = lanes.and(masks[2 + k % 2], lanes.splat(SECOND_SIGNAL));
        *input = [lanes.xor(f_input(lanes, number, k), lanes.xor(first, second))];
    }
    let pads = lanes.encrypt_keyed(keys, inputs);
    let mut padded = [0; 32 * MAX_GROUP];
    let tables = if tables.len() == 64 * L::WIDTH {
        tables
    } else {
        padded[..tables.len()].copy_from_slice(tables);
        &padded
    };
    for half in 0..2 {
        let ([a], [b]) = (pads[half], pads[2 + half]);
        let (a_mask, b_mask) = (masks[half], masks[2 + half]);
        let at = 32 * L::WIDTH * half;
        let [first, second] = lanes
            .deinterleave([lanes.load(&tables[at..]), lanes.load(&tables[at + 16 * L::WIDTH..])]);
        let bits = lanes.load(Block::bytes_of(&extra[half * L::WIDTH..]));
        let row = lanes.xor(lanes.and(b_mask, first), lanes.and(a_mask, second));
        let row = lanes.xor(row, lanes.and(bits, lanes.and(a_mask, b_mask)));
        let output = lanes.xor(lanes.xor(a, b), row);
        let outputs = lanes.blocks(output).into_iter().take(L::WIDTH);
        for (gate, label) in gates.iter().skip(half * L::WIDTH).zip(outputs) {
            labels[gate.out as usize] = label;
        }
    }
}
