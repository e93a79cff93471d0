//! Powers modulo N on x86-64 processors with AVX-512 IFMA, which multiply eight 52-bit numbers at a
//! time. This takes a third of the time of ordinary multiplication.
//!
//! A number has D digits of 52 bits, lowest first, in vectors of eight. The product of a and b is a
//! b / R modulo N, with R = 2^(52 D) > 4 N (P. L. Montgomery, Modular multiplication without trial
//! division, 1985). Factors and products are less than 2 N. This holds because the product is the
//! sum of a b < 4 N^2 and a multiple of N less than R N, divided by R.
#![allow(unsafe_code)]

pub(crate) mod comb;

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

/// The function for the number of vectors of this modulus. Returns `None` if there is none.
macro_rules! function_of_size {
    ($function:ident, $modulus:expr) => {
        match $modulus.bits_precision() {
            ..=414 => $function::<1>,
            415..=830 => $function::<2>,
            831..=1246 => $function::<3>,
            1247..=2078 => $function::<5>,
            2079..=3326 => $function::<8>,
            3327..=4158 => $function::<10>,
            _ => return None,
        }
    };
}

use function_of_size;

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
    let power = function_of_size!(power, modulus);
    // SAFETY: the processor has both features.
    Some(unsafe { power(modulus, base, exponent.as_words(), bits) })
}

/// The product of numbers, each raised to a public exponent, which has these words, the least
/// significant first. The time depends on the exponents. `None` if the processor or the length of
/// the modulus is not supported.
pub(crate) fn product_of_powers(
    modulus: &BoxedMontyParams,
    terms: &[(&BoxedMontyForm, &[u64])],
) -> Option<BoxedMontyForm> {
    if !is_available() {
        return None;
    }
    let product = function_of_size!(product_of, modulus);
    // SAFETY: the processor has both features.
    Some(unsafe { product(modulus, terms) })
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

    const ONE: Self = {
        let mut one = Self::ZERO;
        one.0[0][0] = 1;
        one
    };

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
    let context = IfmaModulus::<Z>::new(params);
    let r_squared = IfmaModulus::<Z>::r_squared(params);
    let mut table = Zeroizing::new([IfmaNumber::<Z>::ZERO; 1 << WINDOW]);
    table[0] = context.one(&r_squared);
    table[1] = context.enter(&r_squared, base);
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
    context.leave(params, &power)
}

/// Straus's algorithm: all exponents have their squares in common.
#[target_feature(enable = "avx512f,avx512ifma")]
fn product_of<const Z: usize>(
    params: &BoxedMontyParams,
    terms: &[(&BoxedMontyForm, &[u64])],
) -> BoxedMontyForm {
    let bit_len = |words: &[u64]| {
        let highest = words.iter().rposition(|word| *word != 0)?;
        Some(64 * u32::try_from(highest).ok()? + 64 - words[highest].leading_zeros())
    };
    let bits = terms.iter().filter_map(|(_, words)| bit_len(words)).max().unwrap_or(0);
    // A term has a product for each power of its table, and one for each window.
    let cost = |window: &u32| (1_u32 << window) + bits.div_ceil(*window);
    let window = (1..=6).min_by_key(cost).expect("there are windows");
    let table_len = (1_usize << window) - 1;

    let context = IfmaModulus::<Z>::new(params);
    let r_squared = IfmaModulus::<Z>::r_squared(params);
    let mut tables = Vec::with_capacity(terms.len() * table_len);
    for (base, _) in terms {
        let base = context.enter(&r_squared, base);
        let mut power = base;
        for _ in 0..table_len {
            tables.push(power);
            power = context.product(&power, &base);
        }
    }
    let mut product = context.one(&r_squared);
    for at in (0..bits.div_ceil(window)).rev() {
        for _ in 0..window {
            product = context.product(&product, &product);
        }
        for (table, (_, words)) in tables.chunks_exact(table_len).zip(terms) {
            let digit = usize::try_from(window_of(words, at * window, window));
            if let Some(place) = digit.expect("it is small").checked_sub(1) {
                product = context.product(&product, &table[place]);
            }
        }
    }
    context.leave(params, &product)
}

impl<const Z: usize> IfmaModulus<Z> {
    fn new(params: &BoxedMontyParams) -> Self {
        let words = params.modulus().as_ref().as_words();
        Self { modulus: IfmaNumber::of(words), factor: minus_inverse(words[0]) & MASK }
    }

    /// R^2, by which a product brings a number into the form of Montgomery.
    fn r_squared(params: &BoxedMontyParams) -> IfmaNumber<Z> {
        let mut square = BoxedMontyForm::one(params).double();
        let two = square.clone();
        let exponent_of_2 = 2 * DIGIT as usize * 8 * Z;
        for at in (0..exponent_of_2.ilog2()).rev() {
            square = square.square();
            if exponent_of_2 >> at & 1 == 1 {
                square = square.mul(&two);
            }
        }
        IfmaNumber::of(square.retrieve().as_words())
    }

    /// 1 in the form of Montgomery.
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn one(&self, r_squared: &IfmaNumber<Z>) -> IfmaNumber<Z> {
        self.product(r_squared, &IfmaNumber::ONE)
    }

    /// A number in the form of Montgomery.
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn enter(&self, r_squared: &IfmaNumber<Z>, number: &BoxedMontyForm) -> IfmaNumber<Z> {
        self.product(r_squared, &IfmaNumber::of(number.retrieve().as_words()))
    }

    /// The number that is in the form of Montgomery.
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn leave(&self, params: &BoxedMontyParams, number: &IfmaNumber<Z>) -> BoxedMontyForm {
        let words = params.modulus().as_ref().as_words();
        // At most N.
        let number = self.product(number, &IfmaNumber::ONE).to_words(words.len());
        let reduced = BoxedUint::from_words(subtract_once(&number, words).iter().copied());
        BoxedMontyForm::new(reduced, params)
    }

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
