//! PMULL: one product for each instruction.

use std::arch::aarch64::{
    uint64x2_t, vdupq_n_u64, veorq_u64, vgetq_lane_u64, vmull_p64, vreinterpretq_u64_p128,
};

use super::portable::{BLOCK, short_block};

/// Returns the sum of the products of blocks and powers, not reduced.
#[target_feature(enable = "neon,aes")]
pub(super) fn sum(message: &[u8], powers: &[u64]) -> u128 {
    let (blocks, rest) = message.as_chunks::<BLOCK>();
    let (powers, last) = powers.split_at(blocks.len());
    let mut sum = vdupq_n_u64(0);
    for (block, &power) in blocks.iter().zip(powers) {
        sum = veorq_u64(sum, product(u64::from_le_bytes(*block), power));
    }
    if let Some(&power) = last.first() {
        sum = veorq_u64(sum, product(short_block(rest), power));
    }
    number(sum)
}

/// Returns the carry-less product.
#[target_feature(enable = "neon,aes")]
pub(super) fn multiply(a: u64, b: u64) -> u128 {
    vmull_p64(a, b)
}

#[inline]
#[target_feature(enable = "neon,aes")]
fn product(a: u64, b: u64) -> uint64x2_t {
    vreinterpretq_u64_p128(vmull_p64(a, b))
}

/// The vector as an integer.
#[inline]
#[target_feature(enable = "neon")]
fn number(vector: uint64x2_t) -> u128 {
    u128::from(vgetq_lane_u64::<1>(vector)) << 64 | u128::from(vgetq_lane_u64::<0>(vector))
}
