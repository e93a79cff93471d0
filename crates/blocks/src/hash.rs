//! Correlation robust hashes of blocks, from AES as an ideal cipher (Guo, Katz, Wang, Weng, Yu:
//! "Better concrete security for half-gates garbling (in the multi-instance setting)", CRYPTO 2020,
//! and "Efficient and secure multiparty computation from fixed-key block ciphers", S&P 2020).
//!
//! Both hashes here are tweakable and circular correlation robust: outputs look random even for
//! inputs `x ^ d` with one secret `d`, and even if `d` is added to outputs. Neither hides its key,
//! which is public.

use crate::aes::{Kernel, gather, places, scatter};
use crate::block::Block;
use crate::lanes::{Job, KEYS, Lanes, MAX_WIDTH};

/// The hash by one fixed key, `p(p(x) ^ i) ^ p(x)`, where `p` is AES under the key and `i` the
/// tweak (S&P 2020, section 7.4). Its concrete security falls with the number of blocks hashed by
/// all who use the key: [`MiTccr`] has none of that loss.
#[derive(Clone, Copy)]
pub struct Tccr {
    key: Block,
    kernel: Kernel,
}

impl Tccr {
    /// Takes the key, which is public.
    pub fn new(key: Block) -> Self {
        Self::with_kernel(key, Kernel::best())
    }

    /// Takes the key, for one kernel.
    pub fn with_kernel(key: Block, kernel: Kernel) -> Self {
        Self { key, kernel }
    }

    /// Replaces each block with its hash; the tweak of `blocks[j]` is `first + j`, which wraps
    /// around.
    pub fn hash(&self, first: u64, blocks: &mut [Block]) {
        self.kernel.run(FixedKey { key: self.key, first, blocks });
    }
}

struct FixedKey<'a> {
    key: Block,
    first: u64,
    blocks: &'a mut [Block],
}

impl Job for FixedKey<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let group = KEYS * L::WIDTH;
        let key = lanes.schedule(self.key);
        let mut first = self.first;
        for blocks in self.blocks.chunks_mut(group) {
            let places = places::<L>(blocks.len());
            let mut once = [lanes.splat(Block::ZERO); KEYS];
            for (vector, places) in once.iter_mut().zip(places) {
                *vector = lanes.gather(blocks, places);
            }
            once = lanes.encrypt(&key, once);
            let mut twice = once;
            for (k, vector) in twice.iter_mut().enumerate() {
                *vector = lanes.xor(*vector, lanes.counters(first, offsets::<L>(k)));
            }
            twice = lanes.encrypt(&key, twice);
            let mut hashes = [[lanes.splat(Block::ZERO)]; KEYS];
            for k in 0..KEYS {
                hashes[k] = [lanes.xor(once[k], twice[k])];
            }
            scatter(lanes, hashes, blocks.as_chunks_mut::<1>().0);
            first = first.wrapping_add(group as u64);
        }
    }
}

/// The places of the lanes of vector `k` in a group.
#[inline(always)]
fn offsets<L: Lanes>(k: usize) -> [u64; MAX_WIDTH] {
    let mut offsets = [0; MAX_WIDTH];
    for (l, offset) in offsets.iter_mut().enumerate() {
        *offset = (k * L::WIDTH + l) as u64;
    }
    offsets
}

/// The hash that is keyed again for each tweak, `E(k, s(x)) ^ s(x)` with `k = start ^ i`, where `i`
/// is the tweak and `s` a linear orthomorphism (CRYPTO 2020, section 4). With a random `start` for
/// each instance its security does not fall with the number of instances or blocks.
#[derive(Clone, Copy)]
pub struct MiTccr {
    start: Block,
    kernel: Kernel,
}

impl MiTccr {
    /// Takes the start point of an instance, which is public, random, and chosen before the inputs.
    pub fn new(start: Block) -> Self {
        Self::with_kernel(start, Kernel::best())
    }

    /// Takes the start point, for one kernel.
    pub fn with_kernel(start: Block, kernel: Kernel) -> Self {
        Self { start, kernel }
    }

    /// Replaces each block with its hash; the tweak of all blocks of `groups[j]` is `first + j`,
    /// which wraps around.
    pub fn hash<const N: usize>(&self, first: u64, groups: &mut [[Block; N]]) {
        self.kernel.run(Rekeyed { start: self.start, first, groups });
    }
}

struct Rekeyed<'a, const N: usize> {
    start: Block,
    first: u64,
    groups: &'a mut [[Block; N]],
}

impl<const N: usize> Job for Rekeyed<'_, N> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, lanes: L) {
        let group = KEYS * L::WIDTH;
        let start = lanes.splat(self.start);
        for groups in self.groups.chunks_mut(group) {
            let places = places::<L>(groups.len());
            let mut keys = [start; KEYS];
            let mut inputs = [[start; N]; KEYS];
            for k in 0..KEYS {
                keys[k] = lanes.xor(start, lanes.counters(self.first, offsets::<L>(k)));
                inputs[k] = gather(lanes, groups, places[k]);
                for input in &mut inputs[k] {
                    *input = lanes.sigma(*input);
                }
            }
            let mut hashes = lanes.encrypt_keyed(keys, inputs);
            for (hashes, inputs) in hashes.iter_mut().zip(inputs) {
                for (hash, input) in hashes.iter_mut().zip(inputs) {
                    *hash = lanes.xor(*hash, input);
                }
            }
            scatter(lanes, hashes, groups);
            self.first = self.first.wrapping_add(group as u64);
        }
    }
}
