//! The bit matrix of a piece of transfers: 128 rows, one for each bit of the offset, and a column
//! for each transfer.

use blocks::Block;
use blocks::aes::AesKernel;
use blocks::lanes::{KernelJob, Lanes, MAX_WIDTH};
use blocks::transpose::transpose;
use zeroize::Zeroize as _;

use crate::extension::{BASE_TRANSFERS, OtExtensionKind};

/// A buffer that is reused for each piece. Wiped on drop.
#[derive(Default)]
pub(super) struct OtBitMatrix {
    /// The length of a row in blocks, rounded up to whole vectors.
    stride: usize,
    /// The counters of the blocks of the leaves' streams that make a row.
    counters: Vec<Block>,
    /// The expanded leaves of one tree. After folding, the first is their sum.
    leaves: Vec<Block>,
    /// The receiver's message for one tree.
    sent: Vec<Block>,
    rows: Vec<Block>,
    columns: Vec<Block>,
}

impl OtBitMatrix {
    /// Sets the width of the rows in blocks, and the first block of the streams to use.
    pub(super) fn begin(&mut self, kind: OtExtensionKind, width: usize, first: u64) {
        self.stride = width.next_multiple_of(MAX_WIDTH);
        let counters = first..first.wrapping_add(self.stride as u64);
        self.counters.clear();
        self.counters.extend(counters.map(|counter| Block::from(u128::from(counter))));
        resize(&mut self.leaves, kind.leaves() * self.stride);
        resize(&mut self.rows, BASE_TRANSFERS * self.stride);
        resize(&mut self.columns, BASE_TRANSFERS * self.stride);
    }

    /// Expands all leaves of a tree by AES-128 in counter mode. Row b of the tree becomes the sum
    /// of the leaves whose number has bit b set. Returns the sum of all leaves.
    pub(super) fn fold_all(
        &mut self,
        kind: OtExtensionKind,
        tree: usize,
        seeds: &[Block],
    ) -> &[Block] {
        self.fold(kind, tree, seeds, None);
        &self.leaves[..self.stride]
    }

    /// Like [`Self::fold_all`] without the first leaf. Adds the receiver's message to the rows
    /// whose bit of the offset is 1.
    pub(super) fn fold_known(
        &mut self,
        kind: OtExtensionKind,
        tree: usize,
        seeds: &[Block],
        (sent, offset): (&[u8], Block),
    ) {
        self.sent.clear();
        self.sent.resize(self.stride, Block::ZERO);
        Block::bytes_of_mut(&mut self.sent)[..sent.len()].copy_from_slice(sent);
        self.fold(kind, tree, seeds, Some(offset));
    }

    fn fold(&mut self, kind: OtExtensionKind, tree: usize, seeds: &[Block], offset: Option<Block>) {
        let len = kind.bits() * self.stride;
        AesKernel::best().run(OtTreeFoldJob {
            counters: &self.counters,
            seeds,
            leaves: &mut self.leaves,
            rows: &mut self.rows[tree * len..(tree + 1) * len],
            sent: offset.map(|offset| (&self.sent[..], offset, tree * kind.bits())),
        });
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = &[Block]> {
        self.rows.chunks_exact(self.stride)
    }

    /// The columns: column j has bit j of each row.
    pub(super) fn columns(&mut self) -> &[Block] {
        transpose(&self.rows, &mut self.columns);
        &self.columns
    }

    /// Writes as many columns as `out` has room for.
    pub(super) fn copy_columns(&mut self, out: &mut [Block]) {
        if out.len() == self.columns.len() {
            transpose(&self.rows, out);
        } else {
            out.copy_from_slice(&self.columns()[..out.len()]);
        }
    }
}

/// Changes the length of a vector of secret blocks whose content is not needed any more. Wipes it
/// before a reallocation.
fn resize(blocks: &mut Vec<Block>, len: usize) {
    if len > blocks.capacity() {
        blocks.zeroize();
    }
    blocks.resize(len, Block::ZERO);
}

impl Drop for OtBitMatrix {
    fn drop(&mut self) {
        self.leaves.zeroize();
        self.rows.zeroize();
        self.columns.zeroize();
    }
}

struct OtTreeFoldJob<'a> {
    counters: &'a [Block],
    seeds: &'a [Block],
    leaves: &'a mut [Block],
    rows: &'a mut [Block],
    /// If the first leaf is not known: the receiver's message, the offset, and the bit of the
    /// offset that belongs to the first row.
    sent: Option<(&'a [Block], Block, usize)>,
}

impl KernelJob for OtTreeFoldJob<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let counters = Block::bytes_of(self.counters);
        let stride = counters.len();
        let (mut leaves, rows) = (Block::bytes_of_mut(self.leaves), Block::bytes_of_mut(self.rows));
        let unknown = usize::from(self.sent.is_some());
        let (first, known) = leaves.split_at_mut(unknown * stride);
        first.fill(0);
        match &self.seeds[unknown..] {
            [first, second] => expand_seeds(lanes, &[*first, *second], counters, known),
            seeds => {
                for (seed, leaf) in seeds.iter().zip(known.chunks_exact_mut(stride)) {
                    expand_seeds(lanes, &[*seed], counters, leaf);
                }
            }
        }
        match self.sent {
            None => rows.fill(0),
            Some((sent, offset, bit)) => {
                for (i, row) in rows.chunks_exact_mut(stride).enumerate() {
                    let mask = lanes.splat(Block::mask(offset.bit(bit + i)));
                    let sent = Block::bytes_of(sent).chunks_exact(16 * L::WIDTH);
                    for (row, sent) in row.chunks_exact_mut(16 * L::WIDTH).zip(sent) {
                        lanes.store(lanes.and(lanes.load(sent), mask), row);
                    }
                }
            }
        }
        for row in rows.chunks_exact_mut(stride).rev() {
            // The leaves whose number has the bit set are the upper half.
            let (lower, upper) = leaves.split_at_mut(leaves.len() / 2);
            for (lower, upper) in lower.chunks_exact_mut(stride).zip(upper.chunks_exact(stride)) {
                let vectors = row.chunks_exact_mut(16 * L::WIDTH);
                let vectors = vectors.zip(lower.chunks_exact_mut(16 * L::WIDTH));
                for ((row, lower), upper) in vectors.zip(upper.chunks_exact(16 * L::WIDTH)) {
                    let added = lanes.load(upper);
                    lanes.store(lanes.xor(lanes.load(row), added), row);
                    lanes.store(lanes.xor(lanes.load(lower), added), lower);
                }
            }
            leaves = lower;
        }
    }
}

/// Encrypts the counters under each seed. Each step of a key schedule depends on the previous one,
/// so two schedules take hardly longer than one.
#[inline(always)]
fn expand_seeds<L: Lanes, const N: usize>(
    lanes: L,
    seeds: &[Block; N],
    counters: &[u8],
    leaves: &mut [u8],
) {
    const UNROLLED: usize = 8;
    let mut keys = [lanes.schedule(seeds[0]); N];
    for (key, seed) in keys.iter_mut().zip(seeds).skip(1) {
        *key = lanes.schedule(*seed);
    }
    for (key, leaf) in keys.iter().zip(leaves.chunks_exact_mut(counters.len())) {
        let mut read = counters.chunks_exact(16 * L::WIDTH * UNROLLED);
        let mut written = leaf.chunks_exact_mut(16 * L::WIDTH * UNROLLED);
        for (counters, leaf) in (&mut read).zip(&mut written) {
            let mut blocks = [lanes.splat(Block::ZERO); UNROLLED];
            for (block, counters) in blocks.iter_mut().zip(counters.chunks_exact(16 * L::WIDTH)) {
                *block = lanes.load(counters);
            }
            let blocks = lanes.encrypt::<UNROLLED>(key, blocks);
            for (block, leaf) in blocks.into_iter().zip(leaf.chunks_exact_mut(16 * L::WIDTH)) {
                lanes.store(block, leaf);
            }
        }
        let rest = read.remainder().chunks_exact(16 * L::WIDTH);
        let rest = rest.zip(written.into_remainder().chunks_exact_mut(16 * L::WIDTH));
        for (counters, leaf) in rest {
            let [block] = lanes.encrypt::<1>(key, [lanes.load(counters)]);
            lanes.store(block, leaf);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_wiped_before_reallocation() {
        let mut blocks = vec![Block::ONES; 4];
        blocks.shrink_to_fit();
        resize(&mut blocks, 1_000);
        assert!(Block::bytes_of(&blocks).iter().all(|byte| *byte == 0));
    }
}
