//! Labels in memory: those of a circuit, which threads share, and those of a part.

use std::sync::atomic::{AtomicU64, Ordering};

use blocks::Block;
use circuit::CircuitPart;
use zeroize::Zeroize;

/// The labels of the inputs, the outputs, and of values that parts pass on, by place. Wiped on
/// drop.
///
/// Threads read and write them at the same time, but never one place: a part that reads a place
/// begins when the part that writes it is complete, and the other way round. So no access needs an
/// order of its own.
pub(crate) struct LabelArena {
    labels: Vec<[AtomicU64; 2]>,
    /// The labels of a value.
    labels_per_place: usize,
}

impl LabelArena {
    /// Labels of zero: `each` for each of a number of places.
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

/// What a thread needs to garble or evaluate one part after another: their labels. Wiped on drop.
#[derive(Default)]
pub struct PartLabelBuffer {
    pub(crate) labels: Vec<Block>,
    /// The random bits of a part.
    pub(crate) coins: Vec<Block>,
}

impl PartLabelBuffer {
    /// Makes room for so many labels.
    pub(crate) fn reserve(&mut self, labels: usize) {
        if self.labels.len() != labels {
            self.labels.zeroize();
            self.labels.resize(labels, Block::ZERO);
        }
    }

    /// Makes room for so many blocks of random bits.
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
