//! Carry-less products from ordinary multiplications; in constant time if those are.

/// The length of a block, in bytes.
pub(super) const BLOCK: usize = 8;

/// Every fourth bit.
const HOLES: u128 = 0x1111_1111_1111_1111_1111_1111_1111_1111;

/// This number of bits of a factor can be multiplied at once: every fourth of them, that is, 15.
const SAFE: u32 = 60;

/// Returns the sum of the products of blocks and powers, not reduced.
pub(super) fn sum(message: &[u8], powers: &[u64]) -> u128 {
    let (blocks, rest) = message.as_chunks::<BLOCK>();
    let (powers, last) = powers.split_at(blocks.len());
    let products =
        blocks.iter().zip(powers).map(|(b, &power)| multiply(u64::from_le_bytes(*b), power));
    let sum = products.fold(0, |sum, product| sum ^ product);
    last.iter().fold(sum, |sum, &power| sum ^ multiply(short_block(rest), power))
}

/// Returns a block from fewer than eight bytes.
#[inline]
pub(super) fn short_block(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |block, &byte| block << 8 | u64::from(byte))
}

/// Returns the carry-less product.
///
/// Each step takes every fourth bit of either factor. The integer product of such numbers has a
/// count at every fourth place, of which the lowest bit is the result. A count up to 15 fits into
/// the four bits; 16 would not, so the highest four bits of one factor are multiplied separately.
pub(super) fn multiply(a: u64, b: u64) -> u128 {
    let (a, b) = (u128::from(a), u128::from(b));
    let below = b & ((1 << SAFE) - 1);
    let every_fourth = |number: u128| [0, 1, 2, 3].map(|first| number & HOLES << first);
    let (left, right) = (every_fourth(a), every_fourth(below));
    let mut product = 0;
    for i in 0..4 {
        let sum = (0..4).fold(0, |sum, j| sum ^ (left[j] * right[(4 + i - j) % 4]));
        product |= sum & HOLES << i;
    }
    for bit in SAFE..64 {
        product ^= (a << bit) & 0u128.wrapping_sub(b >> bit & 1);
    }
    product
}
