//! Ordinary integers, for processors without a vector kernel: eight products at a time by doubling.
//! Branches depend on the public weights only.

use super::vector::impl_vector;
use super::weight::KernelWeight;

/// The lowest bit of each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Doubles each byte in GF(2^8).
#[inline(always)]
fn double(bytes: u64) -> u64 {
    let carries = (bytes >> 7) & ONES;
    ((bytes & !(0x80 * ONES)) << 1) ^ (carries * 0x1B)
}

impl_vector! {
    u64, unroll: 4,
    zero: 0,
    load(from): from.cast::<Self>().read_unaligned(),
    store(value, to): to.cast::<Self>().write_unaligned(value),
    add_product(sum, vector, weight): {
        if weight.value == 1 {
            return sum ^ vector;
        }
        let (mut sum, mut power) = (sum, vector);
        for bit in 0..8 {
            sum ^= power & 0u64.wrapping_sub(Self::from(weight.value >> bit & 1));
            power = double(power);
        }
        sum
    },
}
