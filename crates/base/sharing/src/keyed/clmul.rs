//! PCLMULQDQ: one product for each instruction.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m128i, _mm_clmulepi64_si128, _mm_cvtsi64_si128, _mm_setzero_si128, _mm_xor_si128,
};

use super::portable::{BLOCK, short_block};

/// Returns the sum of the products of blocks and powers, not reduced.
#[target_feature(enable = "pclmulqdq")]
pub(super) fn sum(message: &[u8], powers: &[u64]) -> u128 {
    let (blocks, rest) = message.as_chunks::<BLOCK>();
    let (powers, last) = powers.split_at(blocks.len());
    let mut sum = _mm_setzero_si128();
    for (block, &power) in blocks.iter().zip(powers) {
        sum = _mm_xor_si128(sum, product(u64::from_le_bytes(*block), power));
    }
    if let Some(&power) = last.first() {
        sum = _mm_xor_si128(sum, product(short_block(rest), power));
    }
    to_u128(sum)
}

/// Returns the carry-less product.
#[target_feature(enable = "pclmulqdq")]
pub(super) fn multiply(a: u64, b: u64) -> u128 {
    to_u128(product(a, b))
}

#[inline]
#[target_feature(enable = "pclmulqdq")]
fn product(a: u64, b: u64) -> __m128i {
    let vector = |number: u64| _mm_cvtsi64_si128(number.cast_signed());
    _mm_clmulepi64_si128::<0x00>(vector(a), vector(b))
}

/// The vector as an integer.
#[inline]
#[target_feature(enable = "sse2")]
pub(super) fn to_u128(vector: __m128i) -> u128 {
    // SAFETY: both are 16 bytes of which any are valid, the lowest first.
    unsafe { std::mem::transmute(vector) }
}
