//! AVX2: 32 products by two shuffles, one a nibble. The shuffle's table and its index are in
//! registers, so the data decide no address.

use std::arch::x86_64::{
    __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_loadu_si256,
    _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi16,
    _mm256_storeu_si256, _mm256_xor_si256,
};

use super::Weight;
use super::vector::{self, Vector};

impl Vector for __m256i {
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: `pass` enables the instructions, here and below.
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's pointer is valid for 32 bytes.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's pointer is valid for 32 bytes.
        unsafe { _mm256_storeu_si256(to.cast(), self) }
    }

    #[inline(always)]
    unsafe fn add_product(self, vector: Self, weight: &Weight) -> Self {
        // SAFETY: arithmetic, and two reads of 16 bytes from arrays of 16 bytes.
        unsafe {
            if weight.value == 1 {
                return _mm256_xor_si256(self, vector);
            }
            let nibble = _mm256_set1_epi8(0x0F);
            let low = _mm256_broadcastsi128_si256(_mm_loadu_si128(weight.low.as_ptr().cast()));
            let high = _mm256_broadcastsi128_si256(_mm_loadu_si128(weight.high.as_ptr().cast()));
            let low = _mm256_shuffle_epi8(low, _mm256_and_si256(vector, nibble));
            let shifted = _mm256_srli_epi16::<4>(vector);
            let high = _mm256_shuffle_epi8(high, _mm256_and_si256(shifted, nibble));
            _mm256_xor_si256(self, _mm256_xor_si256(low, high))
        }
    }

    #[target_feature(enable = "avx2")]
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
