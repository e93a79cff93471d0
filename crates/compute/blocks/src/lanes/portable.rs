//! Vectors of one block, for every processor: AES by the `aes` crate, which uses `ARMv8`'s
//! instructions where there are some, and otherwise a bit-sliced form in constant time.

use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};

use super::{KEY_VECTORS, Lanes, MAX_WIDTH};
use crate::block::Block;

/// One block.
#[derive(Clone, Copy)]
pub(crate) struct PortableLanes;

/// The key itself: round keys are expanded again for each call, which encrypts many blocks.
#[derive(Clone, Copy)]
pub(crate) struct PortableAesKey(Block);

#[inline(always)]
fn encrypt(key: Block, blocks: &mut [Block]) {
    let cipher = Aes128::new(&key.to_bytes().into());
    let (blocks, _) = Block::bytes_of_mut(blocks).as_chunks_mut::<16>();
    cipher.encrypt_blocks(aes::Block::cast_slice_from_core_mut(blocks));
}

#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // The low half is meant.
fn halves(block: Block) -> [u64; 2] {
    let value = u128::from(block);
    [value as u64, (value >> 64) as u64]
}

#[inline(always)]
fn join([low, high]: [u64; 2]) -> Block {
    Block::from((u128::from(high) << 64) | u128::from(low))
}

impl Lanes for PortableLanes {
    type Vector = Block;
    type Schedule = PortableAesKey;
    const WIDTH: usize = 1;

    #[inline(always)]
    fn splat(self, block: Block) -> Block {
        block
    }

    #[inline(always)]
    fn gather(self, blocks: &[Block], places: [usize; MAX_WIDTH]) -> Block {
        blocks[places[0]]
    }

    #[inline(always)]
    fn gather_pairs(self, pairs: &[[Block; 2]], places: [usize; MAX_WIDTH]) -> [Block; 2] {
        pairs[places[0]]
    }

    #[inline(always)]
    fn blocks(self, vector: Block) -> [Block; MAX_WIDTH] {
        [vector; MAX_WIDTH]
    }

    #[inline(always)]
    fn load(self, bytes: &[u8]) -> Block {
        Block::from_bytes(*bytes.first_chunk().expect("a block"))
    }

    #[inline(always)]
    fn store(self, vector: Block, bytes: &mut [u8]) {
        bytes[..16].copy_from_slice(&vector.to_bytes());
    }

    #[inline(always)]
    fn xor(self, a: Block, b: Block) -> Block {
        a ^ b
    }

    #[inline(always)]
    fn and(self, a: Block, b: Block) -> Block {
        a & b
    }

    #[inline(always)]
    fn sigma(self, vector: Block) -> Block {
        let value = u128::from(vector);
        let high = value >> 64;
        Block::from((value << 64) ^ (high << 64) ^ high)
    }

    #[inline(always)]
    fn double(self, vector: Block) -> Block {
        let value = u128::from(vector);
        Block::from((value << 1) ^ ((value >> 127).wrapping_neg() & 0x87))
    }

    #[inline(always)]
    fn double_halves(self, vector: Block) -> Block {
        join(halves(vector).map(|half| (half << 1) ^ ((half >> 63).wrapping_neg() & 0x1B)))
    }

    #[inline(always)]
    fn shl(self, vector: Block, bits: u32) -> Block {
        join(halves(vector).map(|half| half << bits))
    }

    #[inline(always)]
    fn shr(self, vector: Block, bits: u32) -> Block {
        join(halves(vector).map(|half| half >> bits))
    }

    #[inline(always)]
    fn shifted(self, word: u64, bits: [u64; MAX_WIDTH]) -> Block {
        join([word >> bits[0]; 2])
    }

    #[inline(always)]
    fn high_halves(self, a: Block, b: Block) -> Block {
        join([halves(a)[1], halves(b)[1]])
    }

    #[inline(always)]
    fn load_halves(self, bytes: &[u8]) -> Block {
        join([u64::from_le_bytes(*bytes.first_chunk().expect("half a block")); 2])
    }

    #[inline(always)]
    fn store_low_halves(self, vector: Block, bytes: &mut [u8]) {
        bytes[..8].copy_from_slice(&vector.to_bytes()[..8]);
    }

    #[inline(always)]
    fn lsb_mask(self, vector: Block) -> Block {
        Block::from((u128::from(vector) & 1).wrapping_neg())
    }

    #[inline(always)]
    fn interleave(self, a: Block, b: Block) -> [Block; 2] {
        [a, b]
    }

    #[inline(always)]
    fn deinterleave(self, vectors: [Block; 2]) -> [Block; 2] {
        vectors
    }

    #[inline(always)]
    fn transpose_bytes(self, vectors: [Block; 16]) -> [Block; 16] {
        // Exchanges the upper right and the lower left quarter, then of each quarter, and so on.
        let mut words = vectors.map(halves);
        for i in 0..8 {
            (words[i][1], words[i + 8][0]) = (words[i + 8][0], words[i][1]);
        }
        for (distance, low) in
            [(4, 0x0000_0000_FFFF_FFFF), (2, 0x0000_FFFF_0000_FFFF), (1, 0x00FF_00FF_00FF_00FF)]
        {
            let bits = 8 * distance;
            for i in (0..16).filter(|i| i & distance == 0) {
                let (above, below) = words.split_at_mut(i + distance);
                for (upper, lower) in above[i].iter_mut().zip(&mut below[0]) {
                    let different = (*upper >> bits ^ *lower) & low;
                    *upper ^= different << bits;
                    *lower ^= different;
                }
            }
        }
        words.map(join)
    }

    #[inline(always)]
    fn counters(self, first: u64, offsets: [u64; MAX_WIDTH]) -> Block {
        Block::from(u128::from(first.wrapping_add(offsets[0])))
    }

    #[inline(always)]
    fn schedule(self, key: Block) -> PortableAesKey {
        PortableAesKey(key)
    }

    #[inline(always)]
    fn encrypt<const N: usize>(self, key: &PortableAesKey, mut blocks: [Block; N]) -> [Block; N] {
        encrypt(key.0, &mut blocks);
        blocks
    }

    #[inline(always)]
    fn encrypt_groups<const N: usize, const G: usize>(
        self,
        keys: [[Block; KEY_VECTORS]; G],
        mut blocks: [[[Block; N]; KEY_VECTORS]; G],
    ) -> [[[Block; N]; KEY_VECTORS]; G] {
        let keys = keys.as_flattened();
        for (key, blocks) in keys.iter().zip(blocks.as_flattened_mut()) {
            encrypt(*key, blocks);
        }
        blocks
    }
}
