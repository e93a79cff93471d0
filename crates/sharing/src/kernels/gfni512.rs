//! GFNI with AVX-512: 64 products an instruction.

use std::arch::x86_64::{
    __m512i, _mm512_gf2p8mul_epi8, _mm512_loadu_si512, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_storeu_si512, _mm512_xor_si512,
};

use super::Weight;
use super::vector::{self, Vector};

impl Vector for __m512i {
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: `pass` enables the instructions, here and below.
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller's pointer is valid for 64 bytes.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller's pointer is valid for 64 bytes.
        unsafe { _mm512_storeu_si512(to.cast(), self) }
    }

    #[inline(always)]
    unsafe fn add_product(self, vector: Self, weight: &Weight) -> Self {
        // SAFETY: arithmetic only.
        unsafe {
            let weight = _mm512_set1_epi64(weight.splat.cast_signed());
            _mm512_xor_si512(self, _mm512_gf2p8mul_epi8(vector, weight))
        }
    }

    #[target_feature(enable = "gfni,avx512f")]
    unsafe fn pass<const R: usize>(
        weights: &[Weight],
        inputs: &[*const u8],
        outputs: &[*mut u8],
        start: usize,
        end: usize,
    ) {
        // SAFETY: the caller's contract, and the instructions are enabled.
        unsafe { vector::pass::<Self, R, 4>(weights, inputs, outputs, start, end) }
    }
}
