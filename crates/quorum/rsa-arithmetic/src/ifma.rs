//! Powers modulo N on x86-64 processors with AVX-512 IFMA, which multiply eight 52-bit numbers at a
//! time. This takes a third of the time of ordinary multiplication.
//!
//! A number has D digits of 52 bits, lowest first, in vectors of eight. The product of a and b is a
//! b / R modulo N, with R = 2^(52 D) > 4 N (P. L. Montgomery, Modular multiplication without trial
//! division, 1985). Factors and products are less than 2 N. This holds because the product is the
//! sum of a b < 4 N^2 and a multiple of N less than R N, divided by R.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m512i, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm512_add_epi64, _mm512_alignr_epi64,
    _mm512_castsi512_si128, _mm512_cmpeq_epi64_mask, _mm512_load_epi64, _mm512_madd52hi_epu64,
    _mm512_madd52lo_epu64, _mm512_mask_blend_epi64, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_store_epi64, _mm512_zextsi128_si512,
};
use std::array::from_fn;

use crypto_bigint::BoxedUint;
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use subtle::{Choice, ConditionallySelectable as _};
use zeroize::{Zeroize, Zeroizing};

use crate::integer::{split, window_of};

/// The bits of a digit.
const DIGIT: u32 = 52;

const MASK: u64 = (1 << DIGIT) - 1;

/// The number of exponent bits that select one power of the table.
const WINDOW: u32 = 5;

/// `base` to the power of `exponent`, whose bits from `bits` on are 0. The time depends only on the
/// modulus and `bits`. `None` if the processor or the length of the modulus is not supported.
pub(crate) fn pow(
    modulus: &BoxedMontyParams,
    base: &BoxedMontyForm,
    exponent: &BoxedUint,
    bits: u32,
) -> Option<BoxedMontyForm> {
    if !is_available() {
        return None;
    }
    let power = match modulus.bits_precision() {
        ..=414 => power::<1>,
        415..=830 => power::<2>,
        831..=1246 => power::<3>,
        1247..=2078 => power::<5>,
        2079..=3326 => power::<8>,
        3327..=4158 => power::<10>,
        _ => return None,
    };
    // SAFETY: the processor has both features.
    Some(unsafe { power(modulus, base, exponent.as_words(), bits) })
}

/// Whether the processor has the required features.
pub(crate) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512ifma")
}

/// A number of 8 Z digits. Numbers that depend on an exponent and outlive a product are wiped.
/// Copies that the compiler makes on the stack are not.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct IfmaNumber<const Z: usize>([[u64; 8]; Z]);

impl<const Z: usize> Zeroize for IfmaNumber<Z> {
    fn zeroize(&mut self) {
        self.0.as_flattened_mut().zeroize();
    }
}

impl<const Z: usize> IfmaNumber<Z> {
    const ZERO: Self = Self([[0; 8]; Z]);

    /// The number with these 64-bit words.
    fn of(words: &[u64]) -> Self {
        let mut number = Self::ZERO;
        for (at, digit) in (0..).step_by(DIGIT as usize).zip(number.0.as_flattened_mut()) {
            *digit = window_of(words, at, DIGIT);
        }
        number
    }

    /// The number in `len` 64-bit words.
    fn to_words(self, len: usize) -> Zeroizing<Vec<u64>> {
        let mut words = Zeroizing::new(vec![0; len]);
        for (digit, at) in self.0.as_flattened().iter().zip((0..).step_by(DIGIT as usize)) {
            let (low, high) = split(u128::from(*digit) << (at % 64));
            for (word, part) in words.iter_mut().skip(at / 64).zip([low, split(high).0]) {
                *word |= part;
            }
        }
        words
    }
}

/// Precomputed constants of a modulus.
struct IfmaModulus<const Z: usize> {
    modulus: IfmaNumber<Z>,
    /// -1/N modulo 2^52.
    factor: u64,
}

#[target_feature(enable = "avx512f,avx512ifma")]
fn power<const Z: usize>(
    params: &BoxedMontyParams,
    base: &BoxedMontyForm,
    exponent: &[u64],
    bits: u32,
) -> BoxedMontyForm {
    let words = params.modulus().as_ref().as_words();
    let context =
        IfmaModulus { modulus: IfmaNumber::<Z>::of(words), factor: minus_inverse(words[0]) & MASK };
    // R^2, by which a product brings a number into the form of Montgomery.
    let mut square = BoxedMontyForm::one(params).double();
    let two = square.clone();
    let exponent_of_2 = 2 * DIGIT as usize * 8 * Z;
    for at in (0..exponent_of_2.ilog2()).rev() {
        square = square.square();
        if exponent_of_2 >> at & 1 == 1 {
            square = square.mul(&two);
        }
    }
    let square = IfmaNumber::of(square.retrieve().as_words());
    let mut one = IfmaNumber::<Z>::ZERO;
    one.0[0][0] = 1;
    let plain = IfmaNumber::of(base.retrieve().as_words());

    let mut table = Zeroizing::new([IfmaNumber::<Z>::ZERO; 1 << WINDOW]);
    table[0] = context.product(&square, &one);
    table[1] = context.product(&square, &plain);
    for at in 2..table.len() {
        table[at] = context.product(&table[at - 1], &table[1]);
    }
    let mut power = Zeroizing::new(table[0]);
    for window in (0..bits.div_ceil(WINDOW)).rev() {
        for _ in 0..WINDOW {
            *power = context.product(&power, &power);
        }
        let factor = select(&*table, window_of(exponent, window * WINDOW, WINDOW));
        *power = context.product(&power, &factor);
    }
    // At most N.
    let power = context.product(&power, &one).to_words(words.len());
    let reduced = BoxedUint::from_words(subtract_once(&power, words).iter().copied());
    BoxedMontyForm::new(reduced, params)
}

impl<const Z: usize> IfmaModulus<Z> {
    /// a b / R.
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn product(&self, a: &IfmaNumber<Z>, b: &IfmaNumber<Z>) -> IfmaNumber<Z> {
        let (lowest_a, lowest_n) = (a.0[0][0], self.modulus.0[0][0]);
        let (a, n) = (load(a), load(&self.modulus));
        let mut sum = [_mm512_setzero_si512(); Z];
        // In each turn, a digit of the sum gains four products of less than 2^52. There are 8 Z
        // turns.
        for &digit in b.0.as_flattened() {
            // The multiple of N that makes the lowest digit of the sum 0. That digit is computed
            // separately, because the rest depends on it.
            let lowest = low(sum[0]).wrapping_add(lowest_a.wrapping_mul(digit) & MASK);
            let multiple = lowest.wrapping_mul(self.factor) & MASK;
            let carry = lowest.wrapping_add(lowest_n.wrapping_mul(multiple) & MASK) >> DIGIT;
            let (digit, multiple) = (all(digit), all(multiple));
            let low_parts = |sum, a, n| {
                _mm512_madd52lo_epu64(_mm512_madd52lo_epu64(sum, a, digit), n, multiple)
            };
            let high_parts = |sum, a, n| {
                _mm512_madd52hi_epu64(_mm512_madd52hi_epu64(sum, a, digit), n, multiple)
            };
            for z in 0..Z {
                sum[z] = low_parts(sum[z], a[z], n[z]);
            }
            for z in 0..Z {
                let next = if z + 1 < Z { sum[z + 1] } else { _mm512_setzero_si512() };
                sum[z] = _mm512_alignr_epi64::<1>(next, sum[z]);
            }
            sum[0] = _mm512_add_epi64(sum[0], lowest_of(carry));
            for z in 0..Z {
                sum[z] = high_parts(sum[z], a[z], n[z]);
            }
        }
        let mut product = IfmaNumber::ZERO;
        for (digits, sum) in product.0.iter_mut().zip(sum) {
            // SAFETY: the digits are 64 bytes, and aligned because the whole number is.
            unsafe { _mm512_store_epi64(digits.as_mut_ptr().cast(), sum) };
        }
        let mut carry = 0;
        for digit in product.0.as_flattened_mut() {
            let sum = *digit + carry;
            (*digit, carry) = (sum & MASK, sum >> DIGIT);
        }
        product
    }
}

#[target_feature(enable = "avx512f")]
fn load<const Z: usize>(number: &IfmaNumber<Z>) -> [__m512i; Z] {
    // SAFETY: the digits are 64 bytes, and aligned because the whole number is.
    from_fn(|z| unsafe { _mm512_load_epi64(number.0[z].as_ptr().cast()) })
}

#[target_feature(enable = "avx512f")]
fn all(digit: u64) -> __m512i {
    _mm512_set1_epi64(digit.cast_signed())
}

/// The lowest of eight digits.
#[target_feature(enable = "avx512f")]
fn low(digits: __m512i) -> u64 {
    _mm_cvtsi128_si64(_mm512_castsi512_si128(digits)).cast_unsigned()
}

/// This digit, and seven zeros.
#[target_feature(enable = "avx512f")]
fn lowest_of(digit: u64) -> __m512i {
    _mm512_zextsi128_si512(_mm_cvtsi64_si128(digit.cast_signed()))
}

/// An entry of the table. All entries are read, so that the access pattern is constant.
#[target_feature(enable = "avx512f")]
fn select<const Z: usize>(table: &[IfmaNumber<Z>], place: u64) -> Zeroizing<IfmaNumber<Z>> {
    let mut chosen = [_mm512_setzero_si512(); Z];
    for (at, entry) in (0..).zip(table) {
        let is_it = _mm512_cmpeq_epi64_mask(all(at), all(place));
        for (chosen, digits) in chosen.iter_mut().zip(load(entry)) {
            *chosen = _mm512_mask_blend_epi64(is_it, *chosen, digits);
        }
    }
    let mut number = Zeroizing::new(IfmaNumber::ZERO);
    for (digits, chosen) in number.0.iter_mut().zip(chosen) {
        // SAFETY: the digits are 64 bytes, and aligned because the whole number is.
        unsafe { _mm512_store_epi64(digits.as_mut_ptr().cast(), chosen) };
    }
    number
}

/// -1/x modulo 2^64, for an odd x. Each turn doubles the number of right bits.
fn minus_inverse(x: u64) -> u64 {
    let inverse =
        (0..6).fold(1_u64, |it, _| it.wrapping_mul(2_u64.wrapping_sub(x.wrapping_mul(it))));
    inverse.wrapping_neg()
}

/// Reduces a number less than 2 N modulo N.
fn subtract_once(number: &[u64], modulus: &[u64]) -> Zeroizing<Vec<u64>> {
    let mut reduced = Zeroizing::new(Vec::with_capacity(number.len()));
    let mut borrow = false;
    for (digit, modulus) in number.iter().zip(modulus) {
        let (less, under) = digit.overflowing_sub(*modulus);
        let (less, under_again) = less.overflowing_sub(u64::from(borrow));
        reduced.push(less);
        borrow = under | under_again;
    }
    let is_less = Choice::from(u8::from(borrow));
    for (reduced, digit) in reduced.iter_mut().zip(number) {
        reduced.conditional_assign(digit, is_less);
    }
    reduced
}
