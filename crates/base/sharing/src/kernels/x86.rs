//! The vectors of x86-64. With AVX2 and SSSE3, which have no instruction for products, a product is
//! two shuffles, one for each nibble. Tables and indices of shuffles are in registers, so no
//! address depends on the data.

use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_and_si128, _mm_loadu_si128, _mm_set1_epi8, _mm_setzero_si128,
    _mm_shuffle_epi8, _mm_srli_epi16, _mm_storeu_si128, _mm_xor_si128, _mm256_and_si256,
    _mm256_broadcastsi128_si256, _mm256_gf2p8mul_epi8, _mm256_loadu_si256, _mm256_set1_epi8,
    _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi16,
    _mm256_storeu_si256, _mm256_xor_si256, _mm512_gf2p8mul_epi8, _mm512_loadu_si512,
    _mm512_set1_epi64, _mm512_setzero_si512, _mm512_storeu_si512, _mm512_xor_si512,
};

use super::vector::impl_vector;
use super::weight::KernelWeight;

// GFNI with AVX-512: 64 products for each instruction.
impl_vector! {
    __m512i, features: "gfni,avx512f", unroll: 4,
    zero: _mm512_setzero_si512(),
    load(from): _mm512_loadu_si512(from.cast()),
    store(value, to): _mm512_storeu_si512(to.cast(), value),
    add_product(sum, vector, weight): {
        let weight = _mm512_set1_epi64(weight.splat.cast_signed());
        _mm512_xor_si512(sum, _mm512_gf2p8mul_epi8(vector, weight))
    },
}

/// A register of 32 bytes. It is a separate type, because AVX2 multiplies in another way.
#[derive(Clone, Copy)]
pub(super) struct GfniVector(__m256i);

// GFNI with AVX2: 32 products for each instruction.
impl_vector! {
    GfniVector, features: "gfni,avx2", unroll: 2,
    zero: Self(_mm256_setzero_si256()),
    load(from): Self(_mm256_loadu_si256(from.cast())),
    store(value, to): _mm256_storeu_si256(to.cast(), value.0),
    add_product(sum, vector, weight): {
        let weight = _mm256_set1_epi64x(weight.splat.cast_signed());
        Self(_mm256_xor_si256(sum.0, _mm256_gf2p8mul_epi8(vector.0, weight)))
    },
}

// AVX2: 32 products by two shuffles.
impl_vector! {
    __m256i, features: "avx2", unroll: 2,
    zero: _mm256_setzero_si256(),
    load(from): _mm256_loadu_si256(from.cast()),
    store(value, to): _mm256_storeu_si256(to.cast(), value),
    add_product(sum, vector, weight): {
        if weight.value == 1 {
            return _mm256_xor_si256(sum, vector);
        }
        let nibble = _mm256_set1_epi8(0x0F);
        let low = _mm256_broadcastsi128_si256(_mm_loadu_si128(weight.low.as_ptr().cast()));
        let high = _mm256_broadcastsi128_si256(_mm_loadu_si128(weight.high.as_ptr().cast()));
        let low = _mm256_shuffle_epi8(low, _mm256_and_si256(vector, nibble));
        let shifted = _mm256_srli_epi16::<4>(vector);
        let high = _mm256_shuffle_epi8(high, _mm256_and_si256(shifted, nibble));
        _mm256_xor_si256(sum, _mm256_xor_si256(low, high))
    },
}

// SSSE3: 16 products by two shuffles.
impl_vector! {
    __m128i, features: "ssse3", unroll: 2,
    zero: _mm_setzero_si128(),
    load(from): _mm_loadu_si128(from.cast()),
    store(value, to): _mm_storeu_si128(to.cast(), value),
    add_product(sum, vector, weight): {
        if weight.value == 1 {
            return _mm_xor_si128(sum, vector);
        }
        let nibble = _mm_set1_epi8(0x0F);
        let low = _mm_loadu_si128(weight.low.as_ptr().cast());
        let high = _mm_loadu_si128(weight.high.as_ptr().cast());
        let low = _mm_shuffle_epi8(low, _mm_and_si128(vector, nibble));
        let high = _mm_shuffle_epi8(high, _mm_and_si128(_mm_srli_epi16::<4>(vector), nibble));
        _mm_xor_si128(sum, _mm_xor_si128(low, high))
    },
}
