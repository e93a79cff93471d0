//! A block of 128 bits.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::{BitAnd, BitXor, BitXorAssign};

use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use zeroize::DefaultIsZeroes;

/// A block of 128 bits: a label, a key, a row of a bit matrix. As an integer it is little-endian.
///
/// Most blocks are secret, so the type implements neither `Display` nor `==`. Tests compare
/// [`Block::to_bytes`], and other code uses [`ConstantTimeEq`].
#[derive(Clone, Copy, Default)]
#[repr(C, align(16))]
pub struct Block([u8; 16]);

impl Block {
    /// The block of zeros.
    pub const ZERO: Self = Self([0; 16]);
    /// The block of ones.
    pub const ONES: Self = Self([0xFF; 16]);

    /// Returns the block of 16 bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the block.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// Returns the least significant bit, which is that of the first byte.
    pub const fn lsb(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// Returns the block with another least significant bit.
    #[must_use]
    pub const fn with_lsb(self, bit: bool) -> Self {
        let mut bytes = self.0;
        bytes[0] = (bytes[0] & 0xFE) | bit as u8;
        Self(bytes)
    }

    /// Returns all ones where `bit` is set and zeros otherwise, without a branch.
    pub const fn mask(bit: bool) -> Self {
        Self([(bit as u8).wrapping_neg(); 16])
    }

    /// Returns bit `i` of the block, below 128.
    ///
    /// # Panics
    /// When `i` is 128 or more.
    pub const fn bit(self, i: usize) -> bool {
        self.0[i / 8] >> (i % 8) & 1 == 1
    }

    /// Hints to the processor to load the block at `place` into its cache. Does not read it, so any
    /// `place` is allowed.
    #[inline(always)]
    pub fn prefetch(blocks: &[Self], place: usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch does not fault, whatever the address, and every x86-64 processor has
        // the instruction.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(blocks.as_ptr().wrapping_add(place).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (blocks, place);
    }

    /// Returns the bytes of blocks, in order.
    pub fn bytes_of(blocks: &[Self]) -> &[u8] {
        // SAFETY: a block is 16 bytes without padding, and bytes have no alignment.
        unsafe { std::slice::from_raw_parts(blocks.as_ptr().cast(), size_of_val(blocks)) }
    }

    /// Returns the bytes of blocks, in order, to be overwritten.
    pub fn bytes_of_mut(blocks: &mut [Self]) -> &mut [u8] {
        // SAFETY: as in `bytes_of`, and any bytes are a block.
        unsafe { std::slice::from_raw_parts_mut(blocks.as_mut_ptr().cast(), size_of_val(blocks)) }
    }
}

impl From<u128> for Block {
    fn from(value: u128) -> Self {
        Self(value.to_le_bytes())
    }
}

impl From<Block> for u128 {
    fn from(block: Block) -> Self {
        Self::from_le_bytes(block.0)
    }
}

impl BitXor for Block {
    type Output = Self;

    #[inline(always)]
    fn bitxor(self, other: Self) -> Self {
        Self((u128::from_ne_bytes(self.0) ^ u128::from_ne_bytes(other.0)).to_ne_bytes())
    }
}

impl BitXorAssign for Block {
    #[inline(always)]
    fn bitxor_assign(&mut self, other: Self) {
        *self = *self ^ other;
    }
}

impl BitAnd for Block {
    type Output = Self;

    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        Self((u128::from_ne_bytes(self.0) & u128::from_ne_bytes(other.0)).to_ne_bytes())
    }
}

impl ConstantTimeEq for Block {
    fn ct_eq(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

impl ConditionallySelectable for Block {
    fn conditional_select(a: &Self, b: &Self, choice: Choice) -> Self {
        *a ^ ((*a ^ *b) & Self::mask(choice.into()))
    }
}

impl DefaultIsZeroes for Block {}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Block(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_bytes_and_integers_agree() {
        let block = Block::from(0x80_u128 << 120 | 0x0201);
        assert_eq!(block.to_bytes()[..2], [1, 2]);
        assert!(block.lsb() && block.bit(0) && block.bit(9) && block.bit(127) && !block.bit(1));
        assert!(!block.with_lsb(false).lsb());
        assert_eq!(u128::from(block ^ block.with_lsb(false)), 1);
        assert_eq!(u128::from(block & Block::mask(true)), u128::from(block));
        assert_eq!(u128::from(block & Block::mask(false)), 0);
        assert_eq!(Block::bytes_of(&[Block::ZERO, block])[16..18], [1, 2]);
        let chosen = Block::conditional_select(&Block::ZERO, &block, Choice::from(1));
        assert!(bool::from(chosen.ct_eq(&block)));
        assert_eq!(format!("{block:?}"), "Block(..)");
    }
}
