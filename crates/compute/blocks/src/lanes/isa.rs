//! The instructions of x86-64 that vectors of blocks are made of, in three widths.
#![allow(unsafe_code)]
#![allow(clippy::wildcard_imports)] // Some sixty intrinsics.

use std::arch::x86_64::*;

use super::MAX_WIDTH;
use crate::block::Block;

/// The instructions for vectors of one width.
///
/// A value exists only where the processor has the instructions: [`crate::aes::Kernel::run`] makes
/// it. Each method is one or two instructions in each 128-bit lane.
pub(crate) trait Isa: Copy {
    type Vector: Copy;
    const WIDTH: usize;

    fn splat(self, block: Block) -> Self::Vector;
    fn gather(self, blocks: &[Block], places: [usize; MAX_WIDTH]) -> Self::Vector;
    fn gather_pairs(self, pairs: &[[Block; 2]], places: [usize; MAX_WIDTH]) -> [Self::Vector; 2];
    fn blocks(self, vector: Self::Vector) -> [Block; MAX_WIDTH];
    fn load(self, bytes: &[u8]) -> Self::Vector;
    fn store(self, vector: Self::Vector, bytes: &mut [u8]);
    fn load_halves(self, bytes: &[u8]) -> Self::Vector;
    fn store_low_halves(self, vector: Self::Vector, bytes: &mut [u8]);
    fn interleave(self, a: Self::Vector, b: Self::Vector) -> [Self::Vector; 2];
    fn deinterleave(self, vectors: [Self::Vector; 2]) -> [Self::Vector; 2];

    fn xor(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn and(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn add64(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn sub64(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn shl64(self, a: Self::Vector, bits: u32) -> Self::Vector;
    fn shr64(self, a: Self::Vector, bits: u32) -> Self::Vector;
    /// Each low half shifted by that of `bits`.
    fn shr_each64(self, a: Self::Vector, bits: Self::Vector) -> Self::Vector;
    /// The top bit of each 64-bit half, as an integer.
    fn top_bit64(self, a: Self::Vector) -> Self::Vector;
    /// The least significant bit of each 32-bit word in every bit of it.
    fn broadcast_lsb32(self, a: Self::Vector) -> Self::Vector;
    /// Word 0 in every word.
    fn broadcast_word0(self, a: Self::Vector) -> Self::Vector;
    fn swap64(self, a: Self::Vector) -> Self::Vector;
    fn shuffle8(self, a: Self::Vector, by: Self::Vector) -> Self::Vector;
    fn unpack_low8(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn unpack_high8(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn low32(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn high32(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn low64(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn high64(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    fn aesenc(self, a: Self::Vector, key: Self::Vector) -> Self::Vector;
    fn aesenclast(self, a: Self::Vector, key: Self::Vector) -> Self::Vector;
}

/// Defines a type of instructions: for each method its expression.
macro_rules! isa {
    (
        $(#[$doc:meta])* $name:ident, $vector:ty, $width:literal;
        splat($block:ident) $splat:expr;
        gather($($got:ident = $lane:literal),*) $gather:expr;
        gather_pairs($($pair:ident = $pair_lane:literal),*) $gather_pairs:expr;
        blocks($from:ident) $blocks:expr;
        load($source:ident) $load:expr;
        store($value:ident, $to:ident) $store:expr;
        load_halves($half_source:ident) $load_halves:expr;
        store_low_halves($low:ident, $half_to:ident) $store_low_halves:expr;
        interleave($ia:ident, $ib:ident) $interleave:expr;
        deinterleave($da:ident, $db:ident) $deinterleave:expr;
        $($method:ident($first:ident $(, $second:ident: $type:ty)?) $operation:expr;)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name(());

        impl $name {
            /// # Safety
            /// The processor has the instructions.
            pub(crate) const unsafe fn new() -> Self {
                Self(())
            }
        }

        #[allow(unused_unsafe)] // One expression of the narrowest needs none.
        impl Isa for $name {
            type Vector = $vector;
            const WIDTH: usize = $width;

            #[inline(always)]
            fn splat(self, $block: Block) -> $vector {
                let $block = $block.to_bytes();
                // SAFETY: the processor has the instructions because `self` exists, here and
                // below; 16 bytes are read from an array of 16.
                unsafe { $splat }
            }

            #[inline(always)]
            fn gather(self, blocks: &[Block], places: [usize; MAX_WIDTH]) -> $vector {
                $(let $got = std::ptr::from_ref(&blocks[places[$lane]]).cast::<__m128i>();)*
                // SAFETY: as above; the pointers are those of references to 16 aligned bytes.
                unsafe {
                    $(let $got = _mm_load_si128($got);)*
                    $gather
                }
            }

            #[inline(always)]
            fn gather_pairs(
                self,
                pairs: &[[Block; 2]],
                places: [usize; MAX_WIDTH],
            ) -> [$vector; 2] {
                $(let $pair = std::ptr::from_ref(&pairs[places[$pair_lane]]);)*
                // SAFETY: as above; the pointers are those of references to 32 bytes.
                unsafe { $gather_pairs }
            }

            #[inline(always)]
            fn blocks(self, $from: $vector) -> [Block; MAX_WIDTH] {
                // SAFETY: as above; four blocks are 64 bytes, any of which are valid.
                unsafe { std::mem::transmute::<[__m128i; MAX_WIDTH], [Block; MAX_WIDTH]>($blocks) }
            }

            #[inline(always)]
            fn load(self, bytes: &[u8]) -> $vector {
                let $source = bytes[..16 * $width].as_ptr();
                // SAFETY: as above; the slice has as many bytes as the vector.
                unsafe { $load }
            }

            #[inline(always)]
            fn store(self, $value: $vector, bytes: &mut [u8]) {
                let $to = bytes[..16 * $width].as_mut_ptr();
                // SAFETY: as above; the slice has as many bytes as the vector.
                unsafe { $store }
            }

            #[inline(always)]
            fn load_halves(self, bytes: &[u8]) -> $vector {
                let $half_source = bytes[..8 * $width].as_ptr();
                // SAFETY: as above; the slice has half as many bytes as the vector.
                unsafe { $load_halves }
            }

            #[inline(always)]
            fn store_low_halves(self, $low: $vector, bytes: &mut [u8]) {
                let $half_to = bytes[..8 * $width].as_mut_ptr();
                // SAFETY: as above; the slice has half as many bytes as the vector.
                unsafe { $store_low_halves }
            }

            #[inline(always)]
            fn interleave(self, $ia: $vector, $ib: $vector) -> [$vector; 2] {
                // SAFETY: as above.
                unsafe { $interleave }
            }

            #[inline(always)]
            fn deinterleave(self, [$da, $db]: [$vector; 2]) -> [$vector; 2] {
                // SAFETY: as above.
                unsafe { $deinterleave }
            }

            $(
                #[inline(always)]
                fn $method(self, $first: $vector $(, $second: $type)?) -> $vector {
                    // SAFETY: as above.
                    unsafe { $operation }
                }
            )*
        }
    };
}

isa! {
    /// AES-NI with AVX: one block.
    Aesni, __m128i, 1;
    splat(block) _mm_loadu_si128(block.as_ptr().cast());
    gather(a = 0) a;
    gather_pairs(a = 0) {
        let a = a.cast::<__m128i>();
        [_mm_load_si128(a), _mm_load_si128(a.add(1))]
    };
    blocks(vector) [vector; MAX_WIDTH];
    load(from) _mm_loadu_si128(from.cast());
    store(value, to) _mm_storeu_si128(to.cast(), value);
    load_halves(from) {
        let halves = _mm_loadl_epi64(from.cast());
        _mm_unpacklo_epi64(halves, halves)
    };
    store_low_halves(value, to) _mm_storel_epi64(to.cast(), value);
    interleave(a, b) [a, b];
    deinterleave(a, b) [a, b];
    xor(a, b: __m128i) _mm_xor_si128(a, b);
    and(a, b: __m128i) _mm_and_si128(a, b);
    add64(a, b: __m128i) _mm_add_epi64(a, b);
    sub64(a, b: __m128i) _mm_sub_epi64(a, b);
    shl64(a, bits: u32) _mm_sll_epi64(a, _mm_cvtsi32_si128(bits.cast_signed()));
    shr64(a, bits: u32) _mm_srl_epi64(a, _mm_cvtsi32_si128(bits.cast_signed()));
    shr_each64(a, bits: __m128i) _mm_srl_epi64(a, bits);
    top_bit64(a) _mm_srli_epi64::<63>(a);
    broadcast_lsb32(a) _mm_srai_epi32::<31>(_mm_slli_epi32::<31>(a));
    broadcast_word0(a) _mm_shuffle_epi32::<0>(a);
    swap64(a) _mm_shuffle_epi32::<0x4E>(a);
    shuffle8(a, by: __m128i) _mm_shuffle_epi8(a, by);
    unpack_low8(a, b: __m128i) _mm_unpacklo_epi8(a, b);
    unpack_high8(a, b: __m128i) _mm_unpackhi_epi8(a, b);
    low32(a, b: __m128i) _mm_unpacklo_epi32(a, b);
    high32(a, b: __m128i) _mm_unpackhi_epi32(a, b);
    low64(a, b: __m128i) _mm_unpacklo_epi64(a, b);
    high64(a, b: __m128i) _mm_unpackhi_epi64(a, b);
    aesenc(a, key: __m128i) _mm_aesenc_si128(a, key);
    aesenclast(a, key: __m128i) _mm_aesenclast_si128(a, key);
}

isa! {
    /// VAES with AVX2: two blocks.
    Vaes256, __m256i, 2;
    splat(block) _mm256_broadcastsi128_si256(_mm_loadu_si128(block.as_ptr().cast()));
    gather(a = 0, b = 1) _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(a), b);
    gather_pairs(a = 0, b = 1) {
        let (a, b) = (_mm256_loadu_si256(a.cast()), _mm256_loadu_si256(b.cast()));
        [_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b)]
    };
    blocks(vector) {
        let (a, b) = (_mm256_castsi256_si128(vector), _mm256_extracti128_si256::<1>(vector));
        [a, b, a, b]
    };
    load(from) _mm256_loadu_si256(from.cast());
    store(value, to) _mm256_storeu_si256(to.cast(), value);
    load_halves(from) {
        let halves = _mm256_castsi128_si256(_mm_loadu_si128(from.cast()));
        _mm256_permute4x64_epi64::<0b01_01_00_00>(halves)
    };
    store_low_halves(value, to) {
        let halves = _mm256_permute4x64_epi64::<0b10_00_10_00>(value);
        _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(halves));
    };
    interleave(a, b) [
        _mm256_permute2x128_si256::<0x20>(a, b),
        _mm256_permute2x128_si256::<0x31>(a, b),
    ];
    deinterleave(a, b) [
        _mm256_permute2x128_si256::<0x20>(a, b),
        _mm256_permute2x128_si256::<0x31>(a, b),
    ];
    xor(a, b: __m256i) _mm256_xor_si256(a, b);
    and(a, b: __m256i) _mm256_and_si256(a, b);
    add64(a, b: __m256i) _mm256_add_epi64(a, b);
    sub64(a, b: __m256i) _mm256_sub_epi64(a, b);
    shl64(a, bits: u32) _mm256_sll_epi64(a, _mm_cvtsi32_si128(bits.cast_signed()));
    shr64(a, bits: u32) _mm256_srl_epi64(a, _mm_cvtsi32_si128(bits.cast_signed()));
    shr_each64(a, bits: __m256i) _mm256_srlv_epi64(a, bits);
    top_bit64(a) _mm256_srli_epi64::<63>(a);
    broadcast_lsb32(a) _mm256_srai_epi32::<31>(_mm256_slli_epi32::<31>(a));
    broadcast_word0(a) _mm256_shuffle_epi32::<0>(a);
    swap64(a) _mm256_shuffle_epi32::<0x4E>(a);
    shuffle8(a, by: __m256i) _mm256_shuffle_epi8(a, by);
    unpack_low8(a, b: __m256i) _mm256_unpacklo_epi8(a, b);
    unpack_high8(a, b: __m256i) _mm256_unpackhi_epi8(a, b);
    low32(a, b: __m256i) _mm256_unpacklo_epi32(a, b);
    high32(a, b: __m256i) _mm256_unpackhi_epi32(a, b);
    low64(a, b: __m256i) _mm256_unpacklo_epi64(a, b);
    high64(a, b: __m256i) _mm256_unpackhi_epi64(a, b);
    aesenc(a, key: __m256i) _mm256_aesenc_epi128(a, key);
    aesenclast(a, key: __m256i) _mm256_aesenclast_epi128(a, key);
}

isa! {
    /// VAES with AVX-512: four blocks.
    Vaes512, __m512i, 4;
    splat(block) _mm512_broadcast_i32x4(_mm_loadu_si128(block.as_ptr().cast()));
    gather(a = 0, b = 1, c = 2, d = 3) {
        let vector = _mm512_mask_broadcast_i32x4(_mm512_castsi128_si512(a), 0x00F0, b);
        let vector = _mm512_mask_broadcast_i32x4(vector, 0x0F00, c);
        _mm512_mask_broadcast_i32x4(vector, 0xF000, d)
    };
    gather_pairs(a = 0, b = 1, c = 2, d = 3) {
        let (a, b) = (_mm256_loadu_si256(a.cast()), _mm256_loadu_si256(b.cast()));
        let (c, d) = (_mm256_loadu_si256(c.cast()), _mm256_loadu_si256(d.cast()));
        let low = _mm512_mask_broadcast_i64x4(_mm512_castsi256_si512(a), 0xF0, b);
        let high = _mm512_mask_broadcast_i64x4(_mm512_castsi256_si512(c), 0xF0, d);
        let zeros = _mm512_setr_epi64(0, 1, 4, 5, 8, 9, 12, 13);
        let ones = _mm512_setr_epi64(2, 3, 6, 7, 10, 11, 14, 15);
        [_mm512_permutex2var_epi64(low, zeros, high), _mm512_permutex2var_epi64(low, ones, high)]
    };
    blocks(vector) [
        _mm512_castsi512_si128(vector),
        _mm512_extracti32x4_epi32::<1>(vector),
        _mm512_extracti32x4_epi32::<2>(vector),
        _mm512_extracti32x4_epi32::<3>(vector),
    ];
    load(from) _mm512_loadu_si512(from.cast());
    store(value, to) _mm512_storeu_si512(to.cast(), value);
    load_halves(from) {
        let halves = _mm512_castsi256_si512(_mm256_loadu_si256(from.cast()));
        _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 0, 1, 1, 2, 2, 3, 3), halves)
    };
    store_low_halves(value, to) {
        let order = _mm512_setr_epi64(0, 2, 4, 6, 0, 2, 4, 6);
        let halves = _mm512_permutexvar_epi64(order, value);
        _mm256_storeu_si256(to.cast(), _mm512_castsi512_si256(halves));
    };
    interleave(a, b) [
        _mm512_permutex2var_epi64(a, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), b),
        _mm512_permutex2var_epi64(a, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), b),
    ];
    deinterleave(a, b) [
        _mm512_permutex2var_epi64(a, _mm512_setr_epi64(0, 1, 4, 5, 8, 9, 12, 13), b),
        _mm512_permutex2var_epi64(a, _mm512_setr_epi64(2, 3, 6, 7, 10, 11, 14, 15), b),
    ];
    xor(a, b: __m512i) _mm512_xor_si512(a, b);
    and(a, b: __m512i) _mm512_and_si512(a, b);
    add64(a, b: __m512i) _mm512_add_epi64(a, b);
    sub64(a, b: __m512i) _mm512_sub_epi64(a, b);
    shl64(a, bits: u32) _mm512_sll_epi64(a, _mm_cvtsi32_si128(bits.cast_signed()));
    shr64(a, bits: u32) _mm512_srl_epi64(a, _mm_cvtsi32_si128(bits.cast_signed()));
    shr_each64(a, bits: __m512i) _mm512_srlv_epi64(a, bits);
    top_bit64(a) _mm512_srli_epi64::<63>(a);
    broadcast_lsb32(a) _mm512_srai_epi32::<31>(_mm512_slli_epi32::<31>(a));
    broadcast_word0(a) _mm512_shuffle_epi32::<0>(a);
    swap64(a) _mm512_shuffle_epi32::<0x4E>(a);
    shuffle8(a, by: __m512i) _mm512_shuffle_epi8(a, by);
    unpack_low8(a, b: __m512i) _mm512_unpacklo_epi8(a, b);
    unpack_high8(a, b: __m512i) _mm512_unpackhi_epi8(a, b);
    low32(a, b: __m512i) _mm512_unpacklo_epi32(a, b);
    high32(a, b: __m512i) _mm512_unpackhi_epi32(a, b);
    low64(a, b: __m512i) _mm512_unpacklo_epi64(a, b);
    high64(a, b: __m512i) _mm512_unpackhi_epi64(a, b);
    aesenc(a, key: __m512i) _mm512_aesenc_epi128(a, key);
    aesenclast(a, key: __m512i) _mm512_aesenclast_epi128(a, key);
}
