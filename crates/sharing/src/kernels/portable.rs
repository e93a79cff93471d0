//! Ordinary integers, for processors without a vector kernel: eight products at a time by
//! doubling. Branches are on the public weights only.

use super::Weight;
use super::vector::{self, Vector};

/// The lowest bit of each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// Doubles each byte in GF(2^8).
#[inline(always)]
fn double(bytes: u64) -> u64 {
    let carries = (bytes >> 7) & ONES;
    ((bytes & !(0x80 * ONES)) << 1) ^ (carries * 0x1B)
}

impl Vector for u64 {
    const BYTES: usize = 8;

    #[inline(always)]
    unsafe fn zero() -> Self {
        0
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's pointer is valid for 8 bytes.
        unsafe { from.cast::<Self>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's pointer is valid for 8 bytes.
        unsafe { to.cast::<Self>().write_unaligned(self) }
    }

    #[inline(always)]
    unsafe fn add_product(self, vector: Self, weight: &Weight) -> Self {
        if weight.value == 1 {
            return self ^ vector;
        }
        let (mut sum, mut power) = (self, vector);
        for bit in 0..8 {
            sum ^= power & 0u64.wrapping_sub(Self::from(weight.value >> bit & 1));
            power = double(power);
        }
        sum
    }

    unsafe fn pass<const R: usize>(
        weights: &[Weight],
        inputs: &[*const u8],
        outputs: &[*mut u8],
        start: usize,
        end: usize,
    ) {
        // SAFETY: the caller's contract.
        unsafe { vector::pass::<Self, R, 4>(weights, inputs, outputs, start, end) }
    }
}
