//! The label hashes of the variants of half gates.

use blocks::Block;
use blocks::lanes::{KEY_VECTORS, Lanes, MAX_WIDTH};

/// A tweakable hash of labels, for a group of gates: four vectors, two with the first inputs of
/// gates, two with the second ones.
pub(crate) trait LabelHash: Copy {
    /// Values that are computed once for a batch.
    type Prepared<L: Lanes>;

    fn prepare<L: Lanes>(self, lanes: L) -> Self::Prepared<L>;

    /// Hashes `labels[k] ^ offsets[n]` for each `k` and `n`. The group's first gate has the number
    /// `number`.
    fn hash<L: Lanes, const N: usize>(
        lanes: L,
        prepared: &Self::Prepared<L>,
        number: u64,
        labels: [L::Vector; KEY_VECTORS],
        offsets: [L::Vector; N],
    ) -> [[L::Vector; N]; KEY_VECTORS];
}

/// The tweaks of the lanes of vector `k`: gate `g` has the tweak `2 g` for its first input and
/// `2 g + 1` for its second.
#[inline(always)]
fn tweaks<L: Lanes>(lanes: L, number: u64, k: usize) -> L::Vector {
    let mut offsets = [0; MAX_WIDTH];
    for (l, offset) in offsets.iter_mut().enumerate() {
        *offset = (2 * ((k % 2) * L::WIDTH + l) + k / 2) as u64;
    }
    lanes.counters(number.wrapping_mul(2), offsets)
}

/// `E(start ^ tweak, s(x)) ^ s(x)`: `MiTCCRH`.
#[derive(Clone, Copy)]
pub(crate) struct RekeyedLabelHash {
    pub(crate) start: Block,
}

impl LabelHash for RekeyedLabelHash {
    type Prepared<L: Lanes> = L::Vector;

    #[inline(always)]
    fn prepare<L: Lanes>(self, lanes: L) -> L::Vector {
        lanes.splat(self.start)
    }

    #[inline(always)]
    fn hash<L: Lanes, const N: usize>(
        lanes: L,
        &start: &L::Vector,
        number: u64,
        labels: [L::Vector; KEY_VECTORS],
        offsets: [L::Vector; N],
    ) -> [[L::Vector; N]; KEY_VECTORS] {
        let mut keys = labels;
        let mut inputs = [offsets; KEY_VECTORS];
        for k in 0..KEY_VECTORS {
            keys[k] = lanes.xor(start, tweaks(lanes, number, k));
            let label = lanes.sigma(labels[k]);
            for input in &mut inputs[k] {
                *input = lanes.xor(lanes.sigma(*input), label);
            }
        }
        add(lanes, lanes.encrypt_keyed(keys, inputs), inputs)
    }
}

/// `E(x, tweak)`: the label is the key.
#[derive(Clone, Copy)]
pub(crate) struct LabelKeyedHash;

impl LabelHash for LabelKeyedHash {
    type Prepared<L: Lanes> = ();

    #[inline(always)]
    fn prepare<L: Lanes>(self, _: L) {}

    #[inline(always)]
    fn hash<L: Lanes, const N: usize>(
        lanes: L,
        (): &(),
        number: u64,
        labels: [L::Vector; KEY_VECTORS],
        offsets: [L::Vector; N],
    ) -> [[L::Vector; N]; KEY_VECTORS] {
        let mut inputs = [[labels[0]]; KEY_VECTORS];
        for (k, input) in inputs.iter_mut().enumerate() {
            *input = [tweaks(lanes, number, k)];
        }
        let mut hashes = [offsets; KEY_VECTORS];
        for n in 0..N {
            let mut keys = labels;
            for key in &mut keys {
                *key = lanes.xor(*key, offsets[n]);
            }
            for (hashes, [hash]) in hashes.iter_mut().zip(lanes.encrypt_keyed(keys, inputs)) {
                hashes[n] = hash;
            }
        }
        hashes
    }
}

/// `p(y) ^ y` with `y = 2 x ^ tweak`, where `p` is AES under one key.
#[derive(Clone, Copy)]
pub(crate) struct FixedKeyLabelHash {
    pub(crate) key: Block,
}

impl LabelHash for FixedKeyLabelHash {
    type Prepared<L: Lanes> = L::Schedule;

    #[inline(always)]
    fn prepare<L: Lanes>(self, lanes: L) -> L::Schedule {
        lanes.schedule(self.key)
    }

    #[inline(always)]
    fn hash<L: Lanes, const N: usize>(
        lanes: L,
        key: &L::Schedule,
        number: u64,
        labels: [L::Vector; KEY_VECTORS],
        offsets: [L::Vector; N],
    ) -> [[L::Vector; N]; KEY_VECTORS] {
        let mut inputs = [offsets; KEY_VECTORS];
        let mut outputs = inputs;
        for n in 0..N {
            let offset = lanes.double(offsets[n]);
            let mut vectors = labels;
            for (k, vector) in vectors.iter_mut().enumerate() {
                let label = lanes.xor(lanes.double(*vector), tweaks(lanes, number, k));
                *vector = lanes.xor(label, offset);
                inputs[k][n] = *vector;
            }
            for (output, vector) in outputs.iter_mut().zip(lanes.encrypt(key, vectors)) {
                output[n] = vector;
            }
        }
        add(lanes, outputs, inputs)
    }
}

/// The exclusive or of each vector of `a` and `b`.
#[inline(always)]
fn add<L: Lanes, const N: usize>(
    lanes: L,
    mut a: [[L::Vector; N]; KEY_VECTORS],
    b: [[L::Vector; N]; KEY_VECTORS],
) -> [[L::Vector; N]; KEY_VECTORS] {
    for (a, b) in a.iter_mut().zip(b) {
        for (a, b) in a.iter_mut().zip(b) {
            *a = lanes.xor(*a, b);
        }
    }
    a
}
