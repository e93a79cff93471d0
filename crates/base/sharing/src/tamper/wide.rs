//! POLYVAL with AVX-512: four blocks for each instruction, and [`STEP`] instructions between
//! reductions.
//!
//! The four lanes of a vector are four polynomials in `x^4`: lane `i` sums the blocks `i`, `i + 4`,
//! `i + 8` .. by Horner's rule, [`STEP`] of them at a time. The lanes of the last vector are
//! multiplied by `x^4, x^3, x^2, x` instead, and then added. The time does not depend on the
//! content of the blocks.
#![allow(unsafe_code)]

use std::arch::is_x86_feature_detected as has;
use std::arch::x86_64::{
    __m128i, __m512i, _mm_loadu_si128, _mm_setzero_si128, _mm_storeu_si128, _mm_xor_si128,
    _mm512_broadcast_i32x4, _mm512_bslli_epi128, _mm512_bsrli_epi128, _mm512_castsi512_si128,
    _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32, _mm512_inserti32x4, _mm512_loadu_si512,
    _mm512_set1_epi64, _mm512_shuffle_epi32, _mm512_xor_si512, _mm512_zextsi128_si512,
};

use super::hash::{BLOCK, BlockHash};

/// The number of vectors that are multiplied before the sum of the products is reduced. The
/// reduction of each step depends on the step before; with this number, the multiplications take
/// longer than that.
const STEP: usize = 8;

/// A hash in progress. Wiped on drop.
pub(super) struct WideBlockHash {
    sum: __m128i,
    powers: PointPowers,
}

/// Powers of the point: `x^4, x^8 ..`, each in all four lanes, and then `x^4, x^3, x^2, x`.
type PointPowers = [__m512i; STEP + 1];

impl WideBlockHash {
    /// `None` if the processor does not support the instructions.
    pub(super) fn new(point: &[u8; BLOCK]) -> Option<Self> {
        let available = has!("vpclmulqdq") && has!("avx512f") && has!("avx512bw");
        // SAFETY: just checked.
        available.then(|| unsafe { start(point) })
    }
}

impl BlockHash for WideBlockHash {
    fn update(&mut self, blocks: &[[u8; BLOCK]]) {
        // SAFETY: a value of this type exists only if the processor supports the instructions.
        self.sum = unsafe { update(self.sum, &self.powers, blocks) };
    }

    fn finish(self) -> [u8; BLOCK] {
        let mut value = [0; BLOCK];
        // SAFETY: 16 bytes are written to an array of 16.
        unsafe { _mm_storeu_si128(value.as_mut_ptr().cast(), self.sum) };
        value
    }
}

impl Drop for WideBlockHash {
    fn drop(&mut self) {
        // Like `zeroize`, but with whole vectors: `zeroize` would write byte by byte, which takes
        // longer than hashing a packet. SAFETY: the writes are to fields of this value, where all
        // bits zero are valid.
        unsafe {
            std::ptr::from_mut(&mut self.powers).write_volatile(std::mem::zeroed());
            std::ptr::from_mut(&mut self.sum).write_volatile(std::mem::zeroed());
        }
        std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    }
}

#[target_feature(enable = "vpclmulqdq,avx512f,avx512bw")]
fn start(point: &[u8; BLOCK]) -> WideBlockHash {
    let x = _mm512_zextsi128_si512(load_block(point));
    let x2 = multiply(x, x);
    let x3 = multiply(x2, x);
    let x4 = multiply(x2, x2);
    let lanes = _mm512_inserti32x4::<1>(x4, _mm512_castsi512_si128(x3));
    let lanes = _mm512_inserti32x4::<2>(lanes, _mm512_castsi512_si128(x2));
    let lanes = _mm512_inserti32x4::<3>(lanes, _mm512_castsi512_si128(x));

    let mut powers = [_mm512_broadcast_i32x4(_mm512_castsi512_si128(x4)); STEP + 1];
    for i in 1..STEP {
        // One of the two factors is as early as possible, so that few products wait for others.
        let half = i.div_ceil(2);
        powers[i] = multiply(powers[i - half], powers[half - 1]);
    }
    powers[STEP] = lanes;
    WideBlockHash { sum: _mm_setzero_si128(), powers }
}

#[target_feature(enable = "vpclmulqdq,avx512f,avx512bw")]
fn update(mut sum: __m128i, powers: &PointPowers, blocks: &[[u8; BLOCK]]) -> __m128i {
    let lanes = powers[STEP];
    let (vectors, rest) = blocks.as_chunks::<4>();
    if let Some((last, before)) = vectors.split_last() {
        // The sum so far is added to the first block, in the lowest lane.
        let mut sums = _mm512_zextsi128_si512(sum);
        let (steps, short) = before.as_chunks::<STEP>();
        for vectors in steps {
            sums = step(sums, vectors, powers);
        }
        if !short.is_empty() {
            sums = step(sums, short, powers);
        }
        sum = fold(multiply(_mm512_xor_si512(sums, load_four(last)), lanes));
    }
    let point = _mm512_zextsi128_si512(_mm512_extracti32x4_epi32::<3>(lanes));
    for block in rest {
        let next = _mm512_zextsi128_si512(_mm_xor_si128(sum, load_block(block)));
        sum = _mm512_castsi512_si128(multiply(next, point));
    }
    sum
}

/// Adds up to [`STEP`] vectors, at least one, to the sums of the lanes.
#[inline]
#[target_feature(enable = "vpclmulqdq,avx512f,avx512bw")]
fn step(sums: __m512i, vectors: &[[[u8; BLOCK]; 4]], powers: &PointPowers) -> __m512i {
    let (first, others) = vectors.split_first().expect("not none");
    let powers = &powers[..vectors.len()];
    let mut product =
        WideProduct::of(_mm512_xor_si512(sums, load_four(first)), powers[others.len()]);
    for (vector, &power) in others.iter().zip(powers[..others.len()].iter().rev()) {
        product = product.plus(WideProduct::of(load_four(vector), power));
    }
    product.reduce()
}

/// Four products of 256 bits, not reduced: `low + 2^64 middle + 2^128 high`, 128 bits each.
#[derive(Clone, Copy)]
struct WideProduct {
    low: __m512i,
    middle: __m512i,
    high: __m512i,
}

impl WideProduct {
    #[inline]
    #[target_feature(enable = "vpclmulqdq,avx512f")]
    fn of(a: __m512i, b: __m512i) -> Self {
        let middle = _mm512_xor_si512(
            _mm512_clmulepi64_epi128::<0x01>(a, b),
            _mm512_clmulepi64_epi128::<0x10>(a, b),
        );
        let low = _mm512_clmulepi64_epi128::<0x00>(a, b);
        let high = _mm512_clmulepi64_epi128::<0x11>(a, b);
        Self { low, middle, high }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn plus(self, other: Self) -> Self {
        Self {
            low: _mm512_xor_si512(self.low, other.low),
            middle: _mm512_xor_si512(self.middle, other.middle),
            high: _mm512_xor_si512(self.high, other.high),
        }
    }

    /// Divides by `x^128` modulo `x^128 + x^127 + x^126 + x^121 + 1`, like Montgomery's method for
    /// integers: twice, a multiple is added that clears the lowest 64 bits, which are then dropped.
    #[inline]
    #[target_feature(enable = "vpclmulqdq,avx512f,avx512bw")]
    fn reduce(self) -> __m512i {
        let modulus = _mm512_set1_epi64(0xC200_0000_0000_0000_u64.cast_signed());
        let low = _mm512_xor_si512(self.low, _mm512_bslli_epi128::<8>(self.middle));
        let high = _mm512_xor_si512(self.high, _mm512_bsrli_epi128::<8>(self.middle));
        let first = _mm512_clmulepi64_epi128::<0x00>(low, modulus);
        let once = _mm512_xor_si512(_mm512_shuffle_epi32::<0b01_00_11_10>(first), low);
        let second = _mm512_clmulepi64_epi128::<0x11>(once, modulus);
        _mm512_xor_si512(_mm512_xor_si512(high, once), second)
    }
}

/// POLYVAL's product in each of the four lanes.
#[inline]
#[target_feature(enable = "vpclmulqdq,avx512f,avx512bw")]
fn multiply(a: __m512i, b: __m512i) -> __m512i {
    WideProduct::of(a, b).reduce()
}

/// The sum of the four lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn fold(lanes: __m512i) -> __m128i {
    let low = _mm_xor_si128(_mm512_castsi512_si128(lanes), _mm512_extracti32x4_epi32::<1>(lanes));
    let high =
        _mm_xor_si128(_mm512_extracti32x4_epi32::<2>(lanes), _mm512_extracti32x4_epi32::<3>(lanes));
    _mm_xor_si128(low, high)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_four(blocks: &[[u8; BLOCK]; 4]) -> __m512i {
    // SAFETY: 64 bytes are read from an array of 64.
    unsafe { _mm512_loadu_si512(blocks.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "sse2")]
fn load_block(block: &[u8; BLOCK]) -> __m128i {
    // SAFETY: 16 bytes are read from an array of 16.
    unsafe { _mm_loadu_si128(block.as_ptr().cast()) }
}
