//! Powers of one base by a comb (Lim and Lee, More flexible exponentiation with precomputation,
//! 1994). An exponent has [`TEETH`] times [`BLOCKS`] parts of `spacing` bits. One step takes a bit
//! of each part, and needs one square and [`BLOCKS`] products.

use std::arch::x86_64::{
    _mm512_cmpeq_epi64_mask, _mm512_loadu_epi64, _mm512_mask_blend_epi64, _mm512_setzero_si512,
    _mm512_store_epi64,
};

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use zeroize::Zeroizing;

use super::{IfmaModulus, IfmaNumber, all, function_of_size, is_available};
use crate::integer::window_of;

/// The bits that select one power of a block's table.
const TEETH: u32 = 6;

/// The number of tables.
const BLOCKS: u32 = 4;

/// The number of bits of the exponents for which a spacing is enough.
pub(crate) fn spacing(bits: u32) -> u32 {
    bits.div_ceil(TEETH * BLOCKS)
}

/// The tables of a base: for each block s and each set of teeth, the product of
/// base^(2^(`spacing` (`BLOCKS` t + s))) over its teeth t. `None` if the processor or the length of
/// the modulus is not supported.
pub(crate) fn tables(
    modulus: &BoxedMontyParams,
    base: &BoxedMontyForm,
    spacing: u32,
) -> Option<Vec<u64>> {
    if !is_available() {
        return None;
    }
    let tables = function_of_size!(tables_of, modulus);
    // SAFETY: the processor has both features.
    Some(unsafe { tables(modulus, base, spacing) })
}

/// The base to the power of an exponent, in constant time, with the output of [`tables`]. `None` as
/// there.
pub(crate) fn pow(
    modulus: &BoxedMontyParams,
    tables: &[u64],
    spacing: u32,
    exponent: &[u64],
) -> Option<BoxedMontyForm> {
    if !is_available() {
        return None;
    }
    let power = function_of_size!(power_of, modulus);
    // SAFETY: the processor has both features.
    Some(unsafe { power(modulus, tables, spacing, exponent) })
}

#[target_feature(enable = "avx512f,avx512ifma")]
fn tables_of<const Z: usize>(
    params: &BoxedMontyParams,
    base: &BoxedMontyForm,
    spacing: u32,
) -> Vec<u64> {
    let context = IfmaModulus::<Z>::new(params);
    let r_squared = IfmaModulus::<Z>::r_squared(params);
    let mut powers = vec![context.enter(&r_squared, base)];
    for at in 1..TEETH * BLOCKS {
        let mut power = powers[at as usize - 1];
        for _ in 0..spacing {
            power = context.product(&power, &power);
        }
        powers.push(power);
    }
    let mut tables = Vec::with_capacity((BLOCKS as usize * 8 * Z) << TEETH);
    for block in 0..BLOCKS as usize {
        let mut table = vec![context.one(&r_squared)];
        for teeth in 1_usize..1 << TEETH {
            let rest = table[teeth & (teeth - 1)];
            let lowest = teeth.trailing_zeros() as usize;
            table.push(context.product(&rest, &powers[lowest * BLOCKS as usize + block]));
        }
        tables.extend(table.iter().flat_map(|number| number.0.as_flattened()));
    }
    tables
}

#[target_feature(enable = "avx512f,avx512ifma")]
fn power_of<const Z: usize>(
    params: &BoxedMontyParams,
    tables: &[u64],
    spacing: u32,
    exponent: &[u64],
) -> BoxedMontyForm {
    let context = IfmaModulus::<Z>::new(params);
    let table_len = (8 * Z) << TEETH;
    let mut power = Zeroizing::new(IfmaNumber::<Z>::ZERO);
    // Its first entry is 1.
    power.0.as_flattened_mut().copy_from_slice(&tables[..8 * Z]);
    for step in (0..spacing).rev() {
        *power = context.product(&power, &power);
        for (block, table) in (0..BLOCKS).zip(tables.chunks_exact(table_len)) {
            let bit =
                |tooth| window_of(exponent, (tooth * BLOCKS + block) * spacing + step, 1) << tooth;
            let teeth = (0..TEETH).map(bit).fold(0, |teeth, bit| teeth | bit);
            let factor = select_words::<Z>(table, teeth);
            *power = context.product(&power, &factor);
        }
    }
    context.leave(params, &power)
}

/// An entry of a table. All entries are read, so that the access pattern is constant.
#[target_feature(enable = "avx512f")]
fn select_words<const Z: usize>(table: &[u64], place: u64) -> Zeroizing<IfmaNumber<Z>> {
    let mut chosen = [_mm512_setzero_si512(); Z];
    for (at, entry) in (0..).zip(table.chunks_exact(8 * Z)) {
        let is_it = _mm512_cmpeq_epi64_mask(all(at), all(place));
        for (chosen, digits) in chosen.iter_mut().zip(entry.chunks_exact(8)) {
            // SAFETY: the digits are 64 bytes.
            let digits = unsafe { _mm512_loadu_epi64(digits.as_ptr().cast()) };
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
