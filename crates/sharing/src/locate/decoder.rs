//! The decoder of one byte's shares, a generalised Reed-Solomon code over GF(2^8).
//!
//! A word of the code is the values of a polynomial of degree below `k` at `s` coordinates. With
//! the multipliers `v_i = 1 / prod (x_i - x_l)` over `l != i`, every word `c` satisfies
//! `sum v_i c_i x_i^j = 0` for `j < s - k`. So the *syndromes* `S_j = sum v_i y_i x_i^j` of any `y`
//! depend on its errors only. They are a linear recurring sequence: if share `l` has the error
//! `e_l`, then `S_j = sum v_l e_l x_l^j`, and Berlekamp and Massey's algorithm gives the polynomial
//! `prod (1 - x_l z)` over the wrong shares, the locator.

use crate::field::{invert, multiply};

/// Returns the errors of shares at the given coordinates: those nearest to `word`, which is what was
/// received or differs from it by a word of the code. `None` if more than `floor((s - k) / 2)`
/// are wrong. The coordinates are distinct and not zero.
pub(super) fn decode(coordinates: &[u8], word: &[u8], k: usize) -> Option<Vec<u8>> {
    let redundancy = coordinates.len() - k;
    let multipliers = multipliers(coordinates);
    let syndromes = syndromes(coordinates, &multipliers, word, redundancy);
    let (locator, count) = locator(&syndromes);
    if count > redundancy / 2 {
        return None;
    }
    let is_wrong = |&x: &u8| evaluate(&locator, invert(x)) == 0;
    let wrong: Vec<u8> = coordinates.iter().copied().filter(is_wrong).collect();
    if wrong.len() != count {
        return None;
    }
    let evaluator = evaluator(&syndromes, &locator, count);
    let error = |(&x, &v): (&u8, &u8)| {
        if wrong.contains(&x) { multiply(magnitude(&evaluator, &wrong, x), invert(v)) } else { 0 }
    };
    let errors: Vec<u8> = coordinates.iter().zip(&multipliers).map(error).collect();
    (self::syndromes(coordinates, &multipliers, &errors, redundancy) == syndromes).then_some(errors)
}

/// The multipliers `v_i`.
fn multipliers(coordinates: &[u8]) -> Vec<u8> {
    let difference = |x: u8| move |&&other: &&u8| other != x;
    let multiplier = |&x: &u8| {
        let others = coordinates.iter().filter(difference(x));
        invert(others.fold(1, |product, &other| multiply(product, x ^ other)))
    };
    coordinates.iter().map(multiplier).collect()
}

/// The syndromes `S_0, S_1 ..`, as many as `count`.
fn syndromes(coordinates: &[u8], multipliers: &[u8], word: &[u8], count: usize) -> Vec<u8> {
    let mut syndromes = vec![0; count];
    for ((&x, &v), &y) in coordinates.iter().zip(multipliers).zip(word) {
        let mut term = multiply(v, y);
        for syndrome in &mut syndromes {
            *syndrome ^= term;
            term = multiply(term, x);
        }
    }
    syndromes
}

/// Berlekamp and Massey's algorithm: the shortest recurrence of the sequence, as the polynomial
/// `1 + c_1 z + c_2 z^2 ..` with `sum c_i S_(n-i) = 0`, and its length.
fn locator(syndromes: &[u8]) -> (Vec<u8>, usize) {
    let mut current = vec![0; syndromes.len() + 1];
    current[0] = 1;
    // The polynomial before the length last grew, times z for every step since, and what it
    // missed by.
    let mut previous = current.clone();
    let mut previous_miss = 1;
    let mut length = 0;
    for n in 0..syndromes.len() {
        previous.rotate_right(1);
        let miss = (0..=length).fold(0, |sum, i| sum ^ multiply(current[i], syndromes[n - i]));
        if miss == 0 {
            continue;
        }
        let factor = multiply(miss, invert(previous_miss));
        let before = current.clone();
        for (coefficient, &other) in current.iter_mut().zip(&previous) {
            *coefficient ^= multiply(factor, other);
        }
        if 2 * length <= n {
            length = n + 1 - length;
            previous = before;
            previous_miss = miss;
        }
    }
    (current, length)
}

/// The value of a polynomial, its lowest coefficient first, at `z`.
fn evaluate(polynomial: &[u8], z: u8) -> u8 {
    polynomial.iter().rev().fold(0, |sum, &coefficient| multiply(sum, z) ^ coefficient)
}

/// The product of syndromes and locator: `sum v_l e_l prod (1 - x_i z)` over `i != l`.
fn evaluator(syndromes: &[u8], locator: &[u8], count: usize) -> Vec<u8> {
    let coefficient =
        |n: usize| (0..=n).fold(0, |sum, i| sum ^ multiply(locator[i], syndromes[n - i]));
    (0..count).map(coefficient).collect()
}

/// `v_l e_l` of the wrong share at `x`: at `z = 1 / x` all other terms of the evaluator vanish.
fn magnitude(evaluator: &[u8], wrong: &[u8], x: u8) -> u8 {
    let z = invert(x);
    let others = wrong.iter().filter(|&&other| other != x);
    let product = others.fold(1, |product, &other| multiply(product, 1 ^ multiply(other, z)));
    multiply(evaluate(evaluator, z), invert(product))
}
