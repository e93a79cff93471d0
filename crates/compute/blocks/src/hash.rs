//! A correlation robust hash of blocks, from AES as an ideal cipher (Guo, Katz, Wang, Weng, Yu:
//! "Better concrete security for half-gates garbling (in the multi-instance setting)", CRYPTO
//! 2020).
//!
//! It is tweakable and circular correlation robust: outputs look random even for inputs `x ^ d`
//! with one secret `d`, and even if `d` is added to outputs. Its key is public.

use crate::aes::{AesKernel, gather, places, scatter};
use crate::block::Block;
use crate::lanes::{KEY_VECTORS, KernelJob, Lanes, MAX_WIDTH};

/// The places of the lanes of vector `k` in a group.
#[inline(always)]
fn offsets<L: Lanes>(k: usize) -> [u64; MAX_WIDTH] {
    let mut offsets = [0; MAX_WIDTH];
    for (l, offset) in offsets.iter_mut().enumerate() {
        *offset = (k * L::WIDTH + l) as u64;
    }
    offsets
}

/// The hash with a new AES key for each tweak, `E(k, s(x)) ^ s(x)` with `k = start ^ i`, where `i`
/// is the tweak and `s` a linear orthomorphism (CRYPTO 2020, section 4). With a random `start` for
/// each instance, its security does not degrade with the number of instances or blocks.
#[derive(Clone, Copy)]
pub struct MiTccr {
    start: Block,
    kernel: AesKernel,
}

impl MiTccr {
    /// The hash of an instance with this start point, which must be public, random, and chosen
    /// before the inputs.
    pub fn new(start: Block) -> Self {
        Self::with_kernel(start, AesKernel::best())
    }

    /// Like [`Self::new`], with the given kernel.
    pub fn with_kernel(start: Block, kernel: AesKernel) -> Self {
        Self { start, kernel }
    }

    /// Replaces each block with its hash; the tweak of all blocks of `groups[j]` is `first + j`,
    /// which wraps around.
    pub fn hash<const N: usize>(&self, first: u64, groups: &mut [[Block; N]]) {
        self.kernel.run(MiTccrJob { start: self.start, first, groups });
    }
}

struct MiTccrJob<'a, const N: usize> {
    start: Block,
    first: u64,
    groups: &'a mut [[Block; N]],
}

impl<const N: usize> KernelJob for MiTccrJob<'_, N> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(mut self, lanes: L) {
        let group = KEY_VECTORS * L::WIDTH;
        let start = lanes.splat(self.start);
        for groups in self.groups.chunks_mut(group) {
            let places = places::<L>(groups.len());
            let mut keys = [start; KEY_VECTORS];
            let mut inputs = [[start; N]; KEY_VECTORS];
            for k in 0..KEY_VECTORS {
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
