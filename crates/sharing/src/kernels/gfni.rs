//! GFNI with AVX2: 32 products an instruction.

use std::arch::x86_64::{
    __m256i, _mm256_gf2p8mul_epi8, _mm256_loadu_si256, _mm256_set1_epi64x, _mm256_setzero_si256,
    _mm256_storeu_si256, _mm256_xor_si256,
};

use super::Weight;
use super::vector::{self, Vector};

/// A register of 32 bytes; a type of its own, because AVX2 multiplies in another way.
#[derive(Clone, Copy)]
pub(super) struct Gfni(__m256i);

impl Vector for Gfni {
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: `pass` enables the instructions, here and below.
        unsafe { Self(_mm256_setzero_si256()) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's pointer is valid for 32 bytes.
        unsafe { Self(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's pointer is valid for 32 bytes.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn add_product(self, vector: Self, weight: &Weight) -> Self {
        // SAFETY: arithmetic only.
        unsafe {
            let weight = _mm256_set1_epi64x(weight.splat.cast_signed());
            Self(_mm256_xor_si256(self.0, _mm256_gf2p8mul_epi8(vector.0, weight)))
        }
    }

    #[target_feature(enable = "gfni,avx2")]
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
