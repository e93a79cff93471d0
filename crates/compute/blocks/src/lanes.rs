//! Vectors of blocks, by the instructions of each processor.
//!
//! Code that is generic over [`Lanes`] is compiled once for each kernel, with the instructions of
//! that kernel: it implements [`KernelJob`], and [`crate::aes::AesKernel::run`] runs it. All its
//! functions must be `#[inline(always)]`, and it must not use closures, which cannot be marked:
//! code that is not inlined is compiled without the kernel's instructions, and slow. A value of a
//! [`Lanes`] type proves that the processor has the instructions, so that its methods are safe.

#[cfg(target_arch = "x86_64")]
mod isa;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "x86_64")]
pub(crate) use isa::{Aesni, Vaes256, Vaes512};
pub(crate) use portable::PortableLanes;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86::X86Lanes;

use crate::block::Block;

/// How many vectors of keys are scheduled together.
pub const KEY_VECTORS: usize = 4;

/// The largest [`Lanes::WIDTH`].
pub const MAX_WIDTH: usize = 4;

/// A job that runs with the vectors of a kernel.
pub trait KernelJob {
    /// What the job returns.
    type Output;

    /// Runs the job. Implementations must be `#[inline(always)]`: otherwise they are compiled
    /// without the kernel's instructions, and slow.
    fn run<L: Lanes>(self, lanes: L) -> Self::Output;
}

/// Operations on vectors of `WIDTH` blocks (lanes). All take constant time.
pub trait Lanes: Copy {
    /// A vector of blocks.
    type Vector: Copy;
    /// The round keys of one key, for all lanes.
    type Schedule: Copy;
    /// How many blocks a vector holds: 1, 2 or 4.
    const WIDTH: usize;

    /// Returns a vector with the block in every lane.
    fn splat(self, block: Block) -> Self::Vector;

    /// Returns the vector whose lane `l` is `blocks[places[l]]`.
    ///
    /// # Panics
    /// When there is no such block.
    fn gather(self, blocks: &[Block], places: [usize; MAX_WIDTH]) -> Self::Vector;

    /// Returns two vectors: lane `l` has the first and the second block of `pairs[places[l]]`.
    ///
    /// # Panics
    /// When there is no such pair.
    fn gather_pairs(self, pairs: &[[Block; 2]], places: [usize; MAX_WIDTH]) -> [Self::Vector; 2];

    /// Returns the lanes, the first `WIDTH` blocks; the others are any.
    fn blocks(self, vector: Self::Vector) -> [Block; MAX_WIDTH];

    /// Reads the first `16 * WIDTH` bytes.
    ///
    /// # Panics
    /// When there are fewer.
    fn load(self, bytes: &[u8]) -> Self::Vector;

    /// Writes the first `16 * WIDTH` bytes.
    ///
    /// # Panics
    /// When there are fewer.
    fn store(self, vector: Self::Vector, bytes: &mut [u8]);

    /// Returns the exclusive or.
    fn xor(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Returns the bits set in both.
    fn and(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Returns the linear orthomorphism of each block: with the halves (high, low) it is
    /// (high ^ low, high) (Guo, Katz, Wang, Weng, Yu 2020, section 7.1).
    fn sigma(self, vector: Self::Vector) -> Self::Vector;

    /// Returns the product of each block and x, modulo x^128 + x^7 + x^2 + x + 1.
    fn double(self, vector: Self::Vector) -> Self::Vector;

    /// Returns the product of each half (64 bits) and x, modulo x^64 + x^4 + x^3 + x + 1.
    fn double_halves(self, vector: Self::Vector) -> Self::Vector;

    /// Returns each half shifted up by `bits`, below 64.
    fn shl(self, vector: Self::Vector, bits: u32) -> Self::Vector;

    /// Returns each half shifted down by `bits`, below 64.
    fn shr(self, vector: Self::Vector, bits: u32) -> Self::Vector;

    /// Returns blocks whose low half, in lane `l`, is `word` shifted down by `bits[l]`. The high
    /// half is any.
    fn shifted(self, word: u64, bits: [u64; MAX_WIDTH]) -> Self::Vector;

    /// Returns the high halves of `a` as low halves and those of `b` as high halves.
    fn high_halves(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Reads `8 * WIDTH` bytes, each 8 to both halves of a lane.
    ///
    /// # Panics
    /// When there are fewer.
    fn load_halves(self, bytes: &[u8]) -> Self::Vector;

    /// Writes the low halves of the lanes to the first `8 * WIDTH` bytes.
    ///
    /// # Panics
    /// When there are fewer.
    fn store_low_halves(self, vector: Self::Vector, bytes: &mut [u8]);

    /// Returns all ones in the lanes whose least significant bit is set, and zeros in the others.
    fn lsb_mask(self, vector: Self::Vector) -> Self::Vector;

    /// Returns the blocks of `a` and `b` alternately: `a0, b0, a1, b1, ..`, as two vectors.
    fn interleave(self, a: Self::Vector, b: Self::Vector) -> [Self::Vector; 2];

    /// The inverse of [`Self::interleave`].
    fn deinterleave(self, vectors: [Self::Vector; 2]) -> [Self::Vector; 2];

    /// Transposes 16 x 16 bytes in each lane: byte `j` of vector `k` becomes byte `k` of
    /// vector `j`.
    fn transpose_bytes(self, vectors: [Self::Vector; 16]) -> [Self::Vector; 16];

    /// Returns the integers `first + offsets[l]` of each lane `l`, as blocks. They wrap around.
    fn counters(self, first: u64, offsets: [u64; MAX_WIDTH]) -> Self::Vector;

    /// Returns the round keys of a key.
    fn schedule(self, key: Block) -> Self::Schedule;

    /// Encrypts every block under one key.
    fn encrypt<const N: usize>(
        self,
        key: &Self::Schedule,
        blocks: [Self::Vector; N],
    ) -> [Self::Vector; N];

    /// Encrypts the lanes of `blocks[g][k]` under the keys in the lanes of `keys[g][k]`. Each step
    /// of a key schedule depends on the previous one. With few blocks per key, two groups therefore
    /// take less than twice as long as one, if there are enough registers (`WIDTH` of 4).
    fn encrypt_groups<const N: usize, const G: usize>(
        self,
        keys: [[Self::Vector; KEY_VECTORS]; G],
        blocks: [[[Self::Vector; N]; KEY_VECTORS]; G],
    ) -> [[[Self::Vector; N]; KEY_VECTORS]; G];

    /// Encrypts the lanes of `blocks[k]` under the keys in the lanes of `keys[k]`.
    #[inline(always)]
    fn encrypt_keyed<const N: usize>(
        self,
        keys: [Self::Vector; KEY_VECTORS],
        blocks: [[Self::Vector; N]; KEY_VECTORS],
    ) -> [[Self::Vector; N]; KEY_VECTORS] {
        let [encrypted] = self.encrypt_groups([keys], [blocks]);
        encrypted
    }
}
