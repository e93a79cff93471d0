//! Labels in memory: the shared labels of a circuit, and a thread's labels of a part.

use std::sync::atomic::{AtomicU64, Ordering};

use blocks::Block;
use circuit::CircuitPart;
use zeroize::Zeroize;

/// The labels of the inputs, of the outputs and of values that parts exchange, by place. Wiped on
/// drop.
///
/// Threads access them concurrently, but never the same place: a part that reads a place begins
/// only after the part that writes it is complete, and vice versa. So relaxed atomic accesses
/// suffice.
pub(crate) struct LabelArena {
    labels: Vec<[AtomicU64; 2]>,
    /// The number of labels of a value.
    labels_per_place: usize,
}

impl LabelArena {
    /// Zero labels, `labels_per_place` for each of a number of places.
    pub(crate) fn new(places: u32, labels_per_place: usize) -> Self {
        let mut labels = Vec::new();
        labels.resize_with(places as usize * labels_per_place, Default::default);
        Self { labels, labels_per_place }
    }

    pub(crate) fn get(&self, at: usize) -> Block {
        let [low, high] = &self.labels[at];
        let (low, high) = (low.load(Ordering::Relaxed), high.load(Ordering::Relaxed));
        Block::from(u128::from(high) << 64 | u128::from(low))
    }

    pub(crate) fn set(&self, at: usize, label: Block) {
        #[allow(clippy::cast_possible_truncation)] // Its halves.
        let halves = [u128::from(label) as u64, (u128::from(label) >> 64) as u64];
        for (place, half) in self.labels[at].iter().zip(halves) {
            place.store(half, Ordering::Relaxed);
        }
    }

    /// Copies what a part imports. Returns the arena of the part, with any labels of the constants.
    pub(crate) fn import<'a>(
        &self,
        part: &CircuitPart<'_>,
        memory: &'a mut PartLabelBuffer,
    ) -> &'a mut [Block] {
        for transfer in part.imports {
            for label in 0..self.labels_per_place {
                memory.labels[transfer.to as usize * self.labels_per_place + label] =
                    self.get(transfer.from as usize * self.labels_per_place + label);
            }
        }
        &mut memory.labels
    }

    /// Copies what a part exports.
    pub(crate) fn export(&self, part: &CircuitPart<'_>, memory: &PartLabelBuffer) {
        for transfer in part.exports {
            for label in 0..self.labels_per_place {
                let from = transfer.from as usize * self.labels_per_place + label;
                self.set(transfer.to as usize * self.labels_per_place + label, memory.labels[from]);
            }
        }
    }
}

impl Drop for LabelArena {
    fn drop(&mut self) {
        for half in self.labels.as_flattened_mut() {
            half.get_mut().zeroize();
        }
    }
}

/// A thread's buffer for garbling or evaluating parts one after another. Wiped on drop.
#[derive(Default)]
pub struct PartLabelBuffer {
    pub(crate) labels: Vec<Block>,
    /// The random bits of a part.
    pub(crate) coins: Vec<Block>,
}

impl PartLabelBuffer {
    /// Sets the number of labels. If it changes, the old labels are wiped.
    pub(crate) fn reserve(&mut self, labels: usize) {
        if self.labels.len() != labels {
            self.labels.zeroize();
            self.labels.resize(labels, Block::ZERO);
        }
    }

    /// Reserves memory for `blocks` blocks of random bits.
    pub(crate) fn reserve_coins(&mut self, blocks: usize) {
        if self.coins.capacity() < blocks {
            self.coins.zeroize();
        }
        self.coins.resize(blocks, Block::ZERO);
    }
}

impl Drop for PartLabelBuffer {
    fn drop(&mut self) {
        self.labels.zeroize();
        self.coins.zeroize();
    }
}
