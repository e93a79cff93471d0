//! Packed bits: bit i is bit i mod 8 of byte i / 8, the lowest first.

use subtle::Choice;

/// Bit i.
pub(crate) fn bit(bits: &[u8], i: usize) -> Choice {
    Choice::from(bits[i / 8] >> (i % 8) & 1)
}

/// The number of bytes that hold `count` bits.
pub(crate) fn bytes_of(count: usize) -> usize {
    count.div_ceil(8)
}
