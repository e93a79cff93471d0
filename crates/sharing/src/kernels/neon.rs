//! NEON: 16 products by two table look-ups inside registers, one a nibble, so the data decide no
//! address.

use std::arch::aarch64::{
    uint8x16_t, vandq_u8, vdupq_n_u8, veorq_u8, vld1q_u8, vqtbl1q_u8, vshrq_n_u8, vst1q_u8,
};

use super::Weight;
use super::vector::{self, Vector};

impl Vector for uint8x16_t {
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: `pass` enables the instructions, here and below.
        unsafe { vdupq_n_u8(0) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's pointer is valid for 16 bytes.
        unsafe { vld1q_u8(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's pointer is valid for 16 bytes.
        unsafe { vst1q_u8(to, self) }
    }

    #[inline(always)]
    unsafe fn add_product(self, vector: Self, weight: &Weight) -> Self {
        // SAFETY: arithmetic, and two reads of 16 bytes from arrays of 16 bytes.
        unsafe {
            if weight.value == 1 {
                return veorq_u8(self, vector);
            }
            let low = vqtbl1q_u8(vld1q_u8(weight.low.as_ptr()), vandq_u8(vector, vdupq_n_u8(0x0F)));
            let high = vqtbl1q_u8(vld1q_u8(weight.high.as_ptr()), vshrq_n_u8::<4>(vector));
            veorq_u8(self, veorq_u8(low, high))
        }
    }

    #[target_feature(enable = "neon")]
    unsafe fn pass<const R: usize>(
        weights: &[Weight],
        inputs: &[*const u8],
        outputs: &[*mut u8],
        start: usize,
        end: usize,
    ) {
        // SAFETY: the caller's contract, and the instructions are enabled.
        unsafe { vector::pass::<Self, R, 2>(weights, inputs, outputs, start, end) }
    }
}
