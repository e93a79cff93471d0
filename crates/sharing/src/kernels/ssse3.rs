//! SSSE3: 16 products by two shuffles, one a nibble. The shuffle's table and its index are in
//! registers, so the data decide no address.

use std::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_loadu_si128, _mm_set1_epi8, _mm_setzero_si128, _mm_shuffle_epi8,
    _mm_srli_epi16, _mm_storeu_si128, _mm_xor_si128,
};

use super::Weight;
use super::vector::{self, Vector};

impl Vector for __m128i {
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: `pass` enables the instructions, here and below.
        unsafe { _mm_setzero_si128() }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's pointer is valid for 16 bytes.
        unsafe { _mm_loadu_si128(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's pointer is valid for 16 bytes.
        unsafe { _mm_storeu_si128(to.cast(), self) }
    }

    #[inline(always)]
    unsafe fn add_product(self, vector: Self, weight: &Weight) -> Self {
        // SAFETY: arithmetic, and two reads of 16 bytes from arrays of 16 bytes.
        unsafe {
            if weight.value == 1 {
                return _mm_xor_si128(self, vector);
            }
            let nibble = _mm_set1_epi8(0x0F);
            let low = _mm_loadu_si128(weight.low.as_ptr().cast());
            let high = _mm_loadu_si128(weight.high.as_ptr().cast());
            let low = _mm_shuffle_epi8(low, _mm_and_si128(vector, nibble));
            let high = _mm_shuffle_epi8(high, _mm_and_si128(_mm_srli_epi16::<4>(vector), nibble));
            _mm_xor_si128(self, _mm_xor_si128(low, high))
        }
    }

    #[target_feature(enable = "ssse3")]
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
