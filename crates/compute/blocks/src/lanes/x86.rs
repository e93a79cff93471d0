//! AES and the hashes' permutations over vectors of any width.
//!
//! Four vectors of keys are scheduled together, transposed: vector `w` holds word `w` of the key of
//! each lane and vector. Then the words of a round key are exclusive ors of whole vectors, and one
//! instruction substitutes the bytes of all keys.

use super::isa::Isa;
use super::{KEY_VECTORS, Lanes, MAX_WIDTH};
use crate::block::Block;

/// Vectors by the instructions `I`.
#[derive(Clone, Copy)]
pub(crate) struct X86Lanes<I>(pub(crate) I);

/// The round constants (FIPS 197, section 5.2) in the first byte of each word.
const ROUND_CONSTANTS: [Block; 10] = {
    let bytes = [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x1B, 0x36];
    let mut all = [Block::ZERO; 10];
    let mut i = 0;
    while i < 10 {
        let c = bytes[i];
        all[i] = Block::from_bytes([c, 0, 0, 0, c, 0, 0, 0, c, 0, 0, 0, c, 0, 0, 0]);
        i += 1;
    }
    all
};

/// A byte shuffle before `aesenclast`, which shifts rows and substitutes bytes: undoes the shift,
/// and rotates each word by one byte (`RotWord`).
const ROTATE: Block = Block::from_bytes({
    let mut from = [0; 16];
    let mut at = 0;
    while at < 16 {
        let (column, row) = (at / 4, at % 4);
        from[at as usize] = 4 * ((column + 4 - row) % 4) + (row + 1) % 4;
        at += 1;
    }
    from
});

/// A byte shuffle: the last word of a key, rotated by one byte, in every word.
const ROTATE_LAST: Block =
    Block::from_bytes([13, 14, 15, 12, 13, 14, 15, 12, 13, 14, 15, 12, 13, 14, 15, 12]);

/// A byte shuffle: moves the words of a block up by one.
const SHIFT_ONE: Block =
    Block::from_bytes([128, 128, 128, 128, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);

/// The high half.
const HIGH_HALF: Block =
    Block::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);

/// What a carry into each half is worth: the polynomial in the low one, 1 in the high one.
const CARRIES: Block = Block::from_bytes([0x87, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);

/// What a carry out of a half is worth in it.
const HALF_CARRY: Block = Block::from_bytes([0x1B, 0, 0, 0, 0, 0, 0, 0, 0x1B, 0, 0, 0, 0, 0, 0, 0]);

impl<I: Isa> X86Lanes<I> {
    /// Transposes the 4 x 4 words in each lane of four vectors; its own inverse.
    #[inline(always)]
    fn transpose(self, [a, b, c, d]: [I::Vector; KEY_VECTORS]) -> [I::Vector; KEY_VECTORS] {
        let isa = self.0;
        let (ab_low, ab_high) = (isa.low32(a, b), isa.high32(a, b));
        let (cd_low, cd_high) = (isa.low32(c, d), isa.high32(c, d));
        [
            isa.low64(ab_low, cd_low),
            isa.high64(ab_low, cd_low),
            isa.low64(ab_high, cd_high),
            isa.high64(ab_high, cd_high),
        ]
    }

    /// Interleaves the bytes of vectors `i` and `8 + i`, to vectors `2 * i` and `2 * i + 1`. There
    /// is no loop, because compilers keep what a long one works on in memory.
    #[inline(always)]
    fn interleave_bytes(self, v: [I::Vector; 16]) -> [I::Vector; 16] {
        let isa = self.0;
        let [a, b] = [isa.unpack_low8(v[0], v[8]), isa.unpack_high8(v[0], v[8])];
        let [c, d] = [isa.unpack_low8(v[1], v[9]), isa.unpack_high8(v[1], v[9])];
        let [e, f] = [isa.unpack_low8(v[2], v[10]), isa.unpack_high8(v[2], v[10])];
        let [g, h] = [isa.unpack_low8(v[3], v[11]), isa.unpack_high8(v[3], v[11])];
        let [i, j] = [isa.unpack_low8(v[4], v[12]), isa.unpack_high8(v[4], v[12])];
        let [k, l] = [isa.unpack_low8(v[5], v[13]), isa.unpack_high8(v[5], v[13])];
        let [m, n] = [isa.unpack_low8(v[6], v[14]), isa.unpack_high8(v[6], v[14])];
        let [o, p] = [isa.unpack_low8(v[7], v[15]), isa.unpack_high8(v[7], v[15])];
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
    }

    /// Returns what the schedule adds to the first word: the last one's bytes, rotated and
    /// substituted, and the round's constant. With the shuffle for the keys' arrangement.
    #[inline(always)]
    fn substitute(self, last: I::Vector, shuffle: Block, round: usize) -> I::Vector {
        let isa = self.0;
        let rotated = isa.shuffle8(last, isa.splat(shuffle));
        isa.aesenclast(rotated, isa.splat(ROUND_CONSTANTS[round - 1]))
    }
}

impl<I: Isa> Lanes for X86Lanes<I> {
    type Vector = I::Vector;
    type Schedule = [I::Vector; 11];
    const WIDTH: usize = I::WIDTH;

    #[inline(always)]
    fn splat(self, block: Block) -> I::Vector {
        self.0.splat(block)
    }

    #[inline(always)]
    fn gather(self, blocks: &[Block], places: [usize; MAX_WIDTH]) -> I::Vector {
        self.0.gather(blocks, places)
    }

    #[inline(always)]
    fn gather_pairs(self, pairs: &[[Block; 2]], places: [usize; MAX_WIDTH]) -> [I::Vector; 2] {
        self.0.gather_pairs(pairs, places)
    }

    #[inline(always)]
    fn blocks(self, vector: I::Vector) -> [Block; MAX_WIDTH] {
        self.0.blocks(vector)
    }

    #[inline(always)]
    fn load(self, bytes: &[u8]) -> I::Vector {
        self.0.load(bytes)
    }

    #[inline(always)]
    fn store(self, vector: I::Vector, bytes: &mut [u8]) {
        self.0.store(vector, bytes);
    }

    #[inline(always)]
    fn xor(self, a: I::Vector, b: I::Vector) -> I::Vector {
        self.0.xor(a, b)
    }

    #[inline(always)]
    fn and(self, a: I::Vector, b: I::Vector) -> I::Vector {
        self.0.and(a, b)
    }

    #[inline(always)]
    fn sigma(self, vector: I::Vector) -> I::Vector {
        let isa = self.0;
        isa.xor(isa.swap64(vector), isa.and(vector, isa.splat(HIGH_HALF)))
    }

    #[inline(always)]
    fn double(self, vector: I::Vector) -> I::Vector {
        let isa = self.0;
        let carried = isa.top_bit64(isa.swap64(vector));
        let carried = isa.sub64(isa.splat(Block::ZERO), carried);
        isa.xor(isa.add64(vector, vector), isa.and(carried, isa.splat(CARRIES)))
    }

    #[inline(always)]
    fn double_halves(self, vector: I::Vector) -> I::Vector {
        let isa = self.0;
        let carried = isa.sub64(isa.splat(Block::ZERO), isa.top_bit64(vector));
        isa.xor(isa.add64(vector, vector), isa.and(carried, isa.splat(HALF_CARRY)))
    }

    #[inline(always)]
    fn shl(self, vector: I::Vector, bits: u32) -> I::Vector {
        self.0.shl64(vector, bits)
    }

    #[inline(always)]
    fn shr(self, vector: I::Vector, bits: u32) -> I::Vector {
        self.0.shr64(vector, bits)
    }

    #[inline(always)]
    fn shifted(self, word: u64, bits: [u64; MAX_WIDTH]) -> I::Vector {
        let word = self.0.splat(Block::from(u128::from(word)));
        self.0.shr_each64(word, self.counters(0, bits))
    }

    #[inline(always)]
    fn high_halves(self, a: I::Vector, b: I::Vector) -> I::Vector {
        self.0.high64(a, b)
    }

    #[inline(always)]
    fn load_halves(self, bytes: &[u8]) -> I::Vector {
        self.0.load_halves(bytes)
    }

    #[inline(always)]
    fn store_low_halves(self, vector: I::Vector, bytes: &mut [u8]) {
        self.0.store_low_halves(vector, bytes);
    }

    #[inline(always)]
    fn lsb_mask(self, vector: I::Vector) -> I::Vector {
        self.0.broadcast_lsb32(self.0.broadcast_word0(vector))
    }

    #[inline(always)]
    fn interleave(self, a: I::Vector, b: I::Vector) -> [I::Vector; 2] {
        self.0.interleave(a, b)
    }

    #[inline(always)]
    fn deinterleave(self, vectors: [I::Vector; 2]) -> [I::Vector; 2] {
        self.0.deinterleave(vectors)
    }

    #[inline(always)]
    fn transpose_bytes(self, vectors: [I::Vector; 16]) -> [I::Vector; 16] {
        // A byte's number, the vector's and then that within it, has eight bits. Each step rotates
        // them by one, so that four exchange the halves.
        let vectors = self.interleave_bytes(vectors);
        let vectors = self.interleave_bytes(vectors);
        let vectors = self.interleave_bytes(vectors);
        self.interleave_bytes(vectors)
    }

    #[inline(always)]
    fn counters(self, first: u64, offsets: [u64; MAX_WIDTH]) -> I::Vector {
        let mut blocks = [Block::ZERO; MAX_WIDTH];
        for l in 0..I::WIDTH {
            blocks[l] = Block::from(u128::from(offsets[l]));
        }
        let first = self.0.splat(Block::from(u128::from(first)));
        self.0.add64(first, self.0.load(Block::bytes_of(&blocks)))
    }

    #[inline(always)]
    fn schedule(self, key: Block) -> [I::Vector; 11] {
        let isa = self.0;
        let (zero, shift) = (isa.splat(Block::ZERO), isa.splat(SHIFT_ONE));
        let mut key = isa.splat(key);
        let mut keys = [key; 11];
        for (round, round_key) in keys.iter_mut().enumerate().skip(1) {
            let substituted = self.substitute(key, ROTATE_LAST, round);
            // Each word becomes the sum of those up to it: add the words one place below, then
            // those two places below.
            let pairs = isa.xor(key, isa.shuffle8(key, shift));
            key = isa.xor(isa.xor(pairs, isa.low64(zero, pairs)), substituted);
            *round_key = key;
        }
        keys
    }

    #[inline(always)]
    fn encrypt<const N: usize>(
        self,
        keys: &[I::Vector; 11],
        mut blocks: [I::Vector; N],
    ) -> [I::Vector; N] {
        let isa = self.0;
        for block in &mut blocks {
            *block = isa.xor(*block, keys[0]);
        }
        for &key in &keys[1..10] {
            for block in &mut blocks {
                *block = isa.aesenc(*block, key);
            }
        }
        for block in &mut blocks {
            *block = isa.aesenclast(*block, keys[10]);
        }
        blocks
    }

    #[inline(always)]
    fn encrypt_groups<const N: usize, const G: usize>(
        self,
        keys: [[I::Vector; KEY_VECTORS]; G],
        mut blocks: [[[I::Vector; N]; KEY_VECTORS]; G],
    ) -> [[[I::Vector; N]; KEY_VECTORS]; G] {
        let isa = self.0;
        let mut words = keys;
        for g in 0..G {
            words[g] = self.transpose(keys[g]);
            for k in 0..KEY_VECTORS {
                for block in &mut blocks[g][k] {
                    *block = isa.xor(*block, keys[g][k]);
                }
            }
        }
        for round in 1..=10 {
            let mut round_keys = words;
            for g in 0..G {
                let [w0, w1, w2, w3] = words[g];
                // The next round waits for the last word only, so that comes first, not after the
                // other three.
                let added = self.substitute(w3, ROTATE, round);
                let sum = isa.xor(isa.xor(w0, w1), w2);
                let w3 = isa.xor(isa.xor(w3, sum), added);
                let w0 = isa.xor(w0, added);
                let w1 = isa.xor(w1, w0);
                let w2 = isa.xor(w2, w1);
                words[g] = [w0, w1, w2, w3];
                round_keys[g] = self.transpose(words[g]);
            }
            if round == 10 {
                for g in 0..G {
                    for k in 0..KEY_VECTORS {
                        for block in &mut blocks[g][k] {
                            *block = isa.aesenclast(*block, round_keys[g][k]);
                        }
                    }
                }
                break;
            }
            for g in 0..G {
                for k in 0..KEY_VECTORS {
                    for block in &mut blocks[g][k] {
                        *block = isa.aesenc(*block, round_keys[g][k]);
                    }
                }
            }
        }
        blocks
    }
}
