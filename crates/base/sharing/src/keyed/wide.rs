//! VPCLMULQDQ with AVX-512: four products for each instruction, of the even blocks or of the odd
//! ones.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m512i, _mm_xor_si128, _mm512_castsi512_si128, _mm512_clmulepi64_epi128,
    _mm512_extracti32x4_epi32, _mm512_loadu_si512, _mm512_maskz_loadu_epi8,
    _mm512_maskz_loadu_epi64, _mm512_xor_si512,
};

use super::clmul::to_u128;
use super::portable::BLOCK;

/// The number of blocks in a vector.
const LANES: usize = 8;

/// Returns the sum of the products of blocks and powers, not reduced.
#[target_feature(enable = "vpclmulqdq,avx512f,avx512bw")]
pub(super) fn sum(message: &[u8], powers: &[u64]) -> u128 {
    let (vectors, rest) = message.as_chunks::<{ LANES * BLOCK }>();
    let (whole, rest_powers) = powers.split_at(vectors.len() * LANES);
    let (powers, _) = whole.as_chunks::<LANES>();
    let mut sums = LaneSums::of(load_short(rest), load_few(rest_powers));
    for (vector, powers) in vectors.iter().zip(powers) {
        sums = sums.plus(LaneSums::of(load(vector), load_eight(powers)));
    }
    sums.total()
}

/// Sums of products, not reduced, in four lanes.
#[derive(Clone, Copy)]
struct LaneSums {
    even: __m512i,
    odd: __m512i,
}

impl LaneSums {
    /// The products of eight blocks and powers.
    #[inline]
    #[target_feature(enable = "vpclmulqdq,avx512f")]
    fn of(blocks: __m512i, powers: __m512i) -> Self {
        Self {
            even: _mm512_clmulepi64_epi128::<0x00>(blocks, powers),
            odd: _mm512_clmulepi64_epi128::<0x11>(blocks, powers),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn plus(self, other: Self) -> Self {
        Self {
            even: _mm512_xor_si512(self.even, other.even),
            odd: _mm512_xor_si512(self.odd, other.odd),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn total(self) -> u128 {
        let lanes = _mm512_xor_si512(self.even, self.odd);
        let low =
            _mm_xor_si128(_mm512_castsi512_si128(lanes), _mm512_extracti32x4_epi32::<1>(lanes));
        let high = _mm_xor_si128(
            _mm512_extracti32x4_epi32::<2>(lanes),
            _mm512_extracti32x4_epi32::<3>(lanes),
        );
        to_u128(_mm_xor_si128(low, high))
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(bytes: &[u8; LANES * BLOCK]) -> __m512i {
    // SAFETY: 64 bytes are read from an array of 64.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_eight(powers: &[u64; LANES]) -> __m512i {
    // SAFETY: eight numbers are read from an array of eight.
    unsafe { _mm512_loadu_si512(powers.as_ptr().cast()) }
}

/// Loads fewer than 64 bytes, followed by zeros.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load_short(bytes: &[u8]) -> __m512i {
    let mask = (1 << bytes.len()) - 1;
    // SAFETY: the mask has a bit for each byte of the slice, and other bytes are not read.
    unsafe { _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().cast()) }
}

/// Loads at most eight powers, followed by zeros.
#[inline]
#[target_feature(enable = "avx512f")]
fn load_few(powers: &[u64]) -> __m512i {
    let [mask, _] = ((1u16 << powers.len()) - 1).to_le_bytes();
    // SAFETY: the mask has a bit for each number of the slice, and others are not read.
    unsafe { _mm512_maskz_loadu_epi64(mask, powers.as_ptr().cast()) }
}
