//! Half gates (Zahur, Rosulek, Evans: "Two halves make a whole", EUROCRYPT 2015, figure 2), with
//! free XOR: the labels of each wire differ by one offset, whose least significant bit is 1. The
//! least significant bit of a label selects the rows that it decrypts (point and permute).
//!
//! An AND's table is two blocks. Its number `g` gives the tweaks `2 g` and `2 g + 1` of its two
//! halves. Gates are processed in groups of two vectors for each input.

mod hash;

use blocks::Block;
use blocks::lanes::{KEY_VECTORS, KernelJob, Lanes, MAX_WIDTH};
use circuit::{AndGate, GateBatch};

pub(crate) use hash::{FixedKeyLabelHash, LabelHash, LabelKeyedHash, RekeyedLabelHash};

/// The length of an AND's table.
const AND_TABLE_LEN: usize = 32;

/// The largest group.
const MAX_GROUP: usize = 2 * MAX_WIDTH;

/// Garbles a batch.
pub(crate) struct HalfGatesGarbleJob<'a, H> {
    pub(crate) hash: H,
    /// The number of the batch's first AND.
    pub(crate) first: u64,
    pub(crate) offset: Block,
    pub(crate) batch: GateBatch<'a>,
    /// The labels of 0, by place.
    pub(crate) labels: &'a mut [Block],
    /// As long as the batch's tables.
    pub(crate) tables: &'a mut [u8],
}

impl<H: LabelHash> KernelJob for HalfGatesGarbleJob<'_, H> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let HalfGatesGarbleJob { hash, first, offset, batch, labels, tables } = self;
        linear(batch, labels);
        let hash = hash.prepare(lanes);
        let offset = lanes.splat(offset);
        let group = 2 * L::WIDTH;
        let mut groups = batch.ands.chunks_exact(group);
        let mut groups_tables = tables.chunks_exact_mut(AND_TABLE_LEN * group);
        let mut number = first;
        let (far, mut at) = (exceeds_cache(labels), 0);
        for (gates, tables) in (&mut groups).zip(&mut groups_tables) {
            at += group;
            if far {
                prefetch(batch.ands, at + group, group, labels);
            }
            garble_group::<L, H>(lanes, &hash, offset, number, gates, group, labels, tables);
            number = number.wrapping_add(group as u64);
        }
        let (rest, tables) = (groups.remainder(), groups_tables.into_remainder());
        if !rest.is_empty() {
            let mut stored = [0; AND_TABLE_LEN * MAX_GROUP];
            let (gates, count) = (padded(rest), rest.len());
            garble_group::<L, H>(lanes, &hash, offset, number, &gates, count, labels, &mut stored);
            tables.copy_from_slice(&stored[..tables.len()]);
        }
    }
}

/// Garbles two vectors of gates, and writes the labels of the first `count`.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn garble_group<L: Lanes, H: LabelHash>(
    lanes: L,
    hash: &H::Prepared<L>,
    offset: L::Vector,
    number: u64,
    gates: &[AndGate],
    count: usize,
    labels: &mut [Block],
    tables: &mut [u8],
) {
    let inputs = gather(lanes, gates, labels);
    let offsets = [lanes.splat(Block::ZERO), offset];
    let hashes = H::hash::<L, 2>(lanes, hash, number, inputs, offsets);
    for half in 0..2 {
        let (a, b) = (inputs[half], inputs[2 + half]);
        let ([a0, a1], [b0, b1]) = (hashes[half], hashes[2 + half]);
        let (a_mask, b_mask) = (lanes.lsb_mask(a), lanes.lsb_mask(b));
        let b_hashes = lanes.xor(b0, b1);
        let garbler_half = lanes.xor(lanes.xor(a0, a1), lanes.and(b_mask, offset));
        let evaluator_half = lanes.xor(b_hashes, a);
        let output = lanes.xor(
            lanes.xor(a0, lanes.and(a_mask, garbler_half)),
            lanes.xor(b0, lanes.and(b_mask, b_hashes)),
        );
        let at = AND_TABLE_LEN * L::WIDTH * half;
        let [low, high] = lanes.interleave(garbler_half, evaluator_half);
        lanes.store(low, &mut tables[at..]);
        lanes.store(high, &mut tables[at + 16 * L::WIDTH..]);
        store_outputs(lanes, output, gates, half, count, labels);
    }
}

/// Evaluates a batch.
pub(crate) struct HalfGatesEvaluateJob<'a, H> {
    pub(crate) hash: H,
    /// The number of the batch's first AND.
    pub(crate) first: u64,
    pub(crate) batch: GateBatch<'a>,
    /// The labels that the evaluator has, by place.
    pub(crate) labels: &'a mut [Block],
    /// As long as the batch's tables.
    pub(crate) tables: &'a [u8],
}

impl<H: LabelHash> KernelJob for HalfGatesEvaluateJob<'_, H> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let HalfGatesEvaluateJob { hash, first, batch, labels, tables } = self;
        linear(batch, labels);
        let hash = hash.prepare(lanes);
        let group = 2 * L::WIDTH;
        let mut groups = batch.ands.chunks_exact(group);
        let mut groups_tables = tables.chunks_exact(AND_TABLE_LEN * group);
        let mut number = first;
        let (far, mut at) = (exceeds_cache(labels), 0);
        for (gates, tables) in (&mut groups).zip(&mut groups_tables) {
            at += group;
            if far {
                prefetch(batch.ands, at + group, group, labels);
            }
            evaluate_group::<L, H>(lanes, &hash, number, gates, group, labels, tables);
            number = number.wrapping_add(group as u64);
        }
        let (rest, tables) = (groups.remainder(), groups_tables.remainder());
        if !rest.is_empty() {
            let mut read = [0; AND_TABLE_LEN * MAX_GROUP];
            read[..tables.len()].copy_from_slice(tables);
            let (gates, count) = (padded(rest), rest.len());
            evaluate_group::<L, H>(lanes, &hash, number, &gates, count, labels, &read);
        }
    }
}

/// Evaluates two vectors of gates, and writes the labels of the first `count`.
#[inline(always)]
fn evaluate_group<L: Lanes, H: LabelHash>(
    lanes: L,
    hash: &H::Prepared<L>,
    number: u64,
    gates: &[AndGate],
    count: usize,
    labels: &mut [Block],
    tables: &[u8],
) {
    let inputs = gather(lanes, gates, labels);
    let hashes = H::hash::<L, 1>(lanes, hash, number, inputs, [lanes.splat(Block::ZERO)]);
    for half in 0..2 {
        let (a, b) = (inputs[half], inputs[2 + half]);
        let ([a_hash], [b_hash]) = (hashes[half], hashes[2 + half]);
        let at = AND_TABLE_LEN * L::WIDTH * half;
        let read = [lanes.load(&tables[at..]), lanes.load(&tables[at + 16 * L::WIDTH..])];
        let [garbler_half, evaluator_half] = lanes.deinterleave(read);
        let output = lanes.xor(
            lanes.xor(a_hash, lanes.and(lanes.lsb_mask(a), garbler_half)),
            lanes.xor(b_hash, lanes.and(lanes.lsb_mask(b), lanes.xor(evaluator_half, a))),
        );
        store_outputs(lanes, output, gates, half, count, labels);
    }
}

/// Fills up a group with its last gate, whose other results are to be dropped.
#[inline(always)]
fn padded(gates: &[AndGate]) -> [AndGate; MAX_GROUP] {
    let mut padded = [gates[gates.len() - 1]; MAX_GROUP];
    padded[..gates.len()].copy_from_slice(gates);
    padded
}

/// The labels of the inputs: two vectors of `a`, then two of `b`.
#[inline(always)]
fn gather<L: Lanes>(lanes: L, gates: &[AndGate], labels: &[Block]) -> [L::Vector; KEY_VECTORS] {
    let mut inputs = [lanes.splat(Block::ZERO); KEY_VECTORS];
    for half in 0..2 {
        let (mut a, mut b) = ([0; MAX_WIDTH], [0; MAX_WIDTH]);
        for l in 0..L::WIDTH {
            let gate = gates[half * L::WIDTH + l];
            (a[l], b[l]) = (gate.a as usize, gate.b as usize);
        }
        inputs[half] = lanes.gather(labels, a);
        inputs[2 + half] = lanes.gather(labels, b);
    }
    inputs
}

/// Writes the outputs of the half `half` of a group of which the first `count` gates are meant.
#[inline(always)]
fn store_outputs<L: Lanes>(
    lanes: L,
    outputs: L::Vector,
    gates: &[AndGate],
    half: usize,
    count: usize,
    labels: &mut [Block],
) {
    let gates = &gates[(half * L::WIDTH).min(count)..count.min((half + 1) * L::WIDTH)];
    for (gate, label) in gates.iter().zip(lanes.blocks(outputs)) {
        labels[gate.out as usize] = label;
    }
}

/// The linear gates: one exclusive or each.
#[inline(always)]
pub(crate) fn linear(batch: GateBatch<'_>, labels: &mut [Block]) {
    const AHEAD: usize = 24;
    let far = exceeds_cache(labels);
    for (i, gate) in batch.linear.iter().enumerate() {
        if far && let Some(later) = batch.linear.get(i + AHEAD) {
            Block::prefetch(labels, later.a as usize);
            Block::prefetch(labels, later.b as usize);
        }
        labels[gate.out as usize] = labels[gate.a as usize] ^ labels[gate.b as usize];
    }
}

/// Whether an arena is larger than the caches near a core, so that its blocks have to be asked for
/// ahead of time: a group of gates has more instructions than a processor looks ahead.
#[inline(always)]
pub(crate) fn exceeds_cache(labels: &[Block]) -> bool {
    size_of_val(labels) > 512 << 10
}

/// Asks for the labels of ANDs to come.
#[inline(always)]
pub(crate) fn prefetch(ands: &[AndGate], from: usize, count: usize, labels: &[Block]) {
    for gate in &ands[from.min(ands.len())..(from + count).min(ands.len())] {
        Block::prefetch(labels, gate.a as usize);
        Block::prefetch(labels, gate.b as usize);
        Block::prefetch(labels, gate.out as usize);
    }
}
