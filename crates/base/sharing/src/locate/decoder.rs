//! The decoder for the shares of one byte, a generalised Reed-Solomon code over GF(2^8).
//!
//! A word of the code is the values of a polynomial of degree below `k` at `s` coordinates. With
//! the multipliers `v_i = 1 / prod (x_i - x_l)` over `l != i`, every word `c` satisfies
//! `sum v_i c_i x_i^j = 0` for `j < s - k`. So the *syndromes* `S_j = sum v_i y_i x_i^j` of any `y`
//! depend on its errors only. They are a linear recurring sequence: if share `l` has the error
//! `e_l`, then `S_j = sum v_l e_l x_l^j`, and Berlekamp and Massey's algorithm gives the polynomial
//! `prod (1 - x_l z)` over the wrong shares, the locator.
//!
//! Polynomials are arrays of coefficients, the lowest first. Products are looked up in a table,
//! whose addresses depend on the errors, never on a secret.

use std::sync::LazyLock;

use crate::field::{invert, multiply};

/// All products of two elements.
static PRODUCTS: LazyLock<Box<[[u8; 256]]>> =
    LazyLock::new(|| (0..=255).map(|a| row(|b| multiply(a, b))).collect());

/// The inverses of all elements, and zero for zero.
static INVERSES: LazyLock<[u8; 256]> = LazyLock::new(|| row(invert));

fn row(value: impl Fn(u8) -> u8) -> [u8; 256] {
    let mut row = [0; 256];
    row.iter_mut().zip(0..=255).for_each(|(entry, b)| *entry = value(b));
    row
}

/// The code of the shares at some coordinates. Errors are given as indices in their list.
pub(super) struct ReedSolomonCode {
    coordinates: Vec<u8>,
    multipliers: Vec<u8>,
    redundancy: usize,
    /// `x_i^-j` for every share `i`, one row for each `j` up to the largest number of errors.
    inverse_powers: Vec<Vec<u8>>,
}

impl ReedSolomonCode {
    /// The code of shares at distinct nonzero coordinates, any `k` of which are enough.
    pub(super) fn new(coordinates: &[u8], k: usize) -> Self {
        let redundancy = coordinates.len() - k;
        let multiplier = |&x: &u8| {
            let others = coordinates.iter().filter(|&&other| other != x);
            invert(others.fold(1, |product, &other| multiply(product, x ^ other)))
        };
        let multipliers = coordinates.iter().map(multiplier).collect();
        let inverses: Vec<u8> = coordinates.iter().map(|&x| invert(x)).collect();
        let first = vec![1; coordinates.len()];
        let next = |last: &Vec<u8>| Some(products(last, &inverses));
        let inverse_powers =
            std::iter::successors(Some(first), next).take(redundancy / 2 + 1).collect();
        Self { coordinates: coordinates.to_vec(), multipliers, redundancy, inverse_powers }
    }

    /// The weights with which the values of the shares at `places` add up to the syndromes, if all
    /// other shares' values are zero: one row for each syndrome.
    pub(super) fn syndrome_rows(&self, places: &[usize]) -> impl Iterator<Item = Vec<u8>> {
        let first: Vec<u8> = places.iter().map(|&i| self.multipliers[i]).collect();
        let coordinates: Vec<u8> = places.iter().map(|&i| self.coordinates[i]).collect();
        let next = move |last: &Vec<u8>| Some(products(last, &coordinates));
        std::iter::successors(Some(first), next).take(self.redundancy)
    }

    /// Returns the indices and values of the errors relative to the nearest word with these
    /// syndromes. `None` if more than `floor((s - k) / 2)` are wrong.
    pub(super) fn decode(&self, syndromes: &[u8]) -> Option<Vec<(usize, u8)>> {
        let (locator, count) = locator(syndromes)?;
        let all: Vec<usize> = (0..self.coordinates.len()).collect();
        let values = self.evaluate(&locator[..=count], &all);
        let wrong: Vec<usize> = (0..values.len()).filter(|&i| values[i] == 0).collect();
        if wrong.len() != count {
            return None;
        }
        // The recurrence holds for all syndromes, and the powers of `count` distinct coordinates
        // span its solutions. So the errors found here have these very syndromes.
        let evaluator = evaluator(syndromes, &locator, count);
        let numerators = self.evaluate(&evaluator[..count], &wrong);
        // The derivative is the sum over all l of x_l prod (1 - x_i z) over i != l. Its even terms
        // are those that do not vanish in characteristic 2.
        let derivative: Vec<u8> =
            (0..count).map(|j| if j % 2 == 0 { locator[j + 1] } else { 0 }).collect();
        let denominators = self.evaluate(&derivative, &wrong);
        let error = |((&i, numerator), denominator): ((&usize, u8), u8)| {
            let scale = product(self.multipliers[i], denominator);
            let magnitude = product(numerator, self.coordinates[i]);
            (i, product(magnitude, INVERSES[usize::from(scale)]))
        };
        Some(wrong.iter().zip(numerators).zip(denominators).map(error).collect())
    }

    /// The values of a polynomial at `1 / x_i`, for every share `i` in `places`.
    fn evaluate(&self, polynomial: &[u8], places: &[usize]) -> Vec<u8> {
        let mut values = vec![0; places.len()];
        for (&coefficient, powers) in polynomial.iter().zip(&self.inverse_powers) {
            let products = &PRODUCTS[usize::from(coefficient)];
            for (value, &i) in values.iter_mut().zip(places) {
                *value ^= products[usize::from(powers[i])];
            }
        }
        values
    }
}

fn product(a: u8, b: u8) -> u8 {
    PRODUCTS[usize::from(a)][usize::from(b)]
}

/// The element-wise products.
fn products(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(&a, &b)| multiply(a, b)).collect()
}

/// Berlekamp and Massey's algorithm: the shortest recurrence of the sequence, as a polynomial
/// `1 + c_1 z + c_2 z^2 ..` with `sum c_i S_(n-i) = 0`, and its length. `None` if that exceeds half
/// the number of syndromes.
fn locator(syndromes: &[u8]) -> Option<([u8; 256], usize)> {
    let (mut current, mut length) = ([0; 256], 0);
    current[0] = 1;
    // The polynomial before the length last grew, its length, the number of steps since then, and
    // its discrepancy.
    let (mut previous, mut previous_length, mut age, mut previous_miss) = (current, 0, 0, 1);
    for n in 0..syndromes.len() {
        age += 1;
        let miss = convolution(&current[..=length], &syndromes[..=n]);
        if miss == 0 {
            continue;
        }
        let factor = product(miss, INVERSES[usize::from(previous_miss)]);
        let multiples = &PRODUCTS[usize::from(factor)];
        let before = current;
        for (coefficient, &other) in current[age..].iter_mut().zip(&previous[..=previous_length]) {
            *coefficient ^= multiples[usize::from(other)];
        }
        if 2 * length <= n {
            (previous, previous_length, age, previous_miss) = (before, length, 0, miss);
            length = n + 1 - length;
        }
        if 2 * length > syndromes.len() {
            return None;
        }
    }
    Some((current, length))
}

/// The product of syndromes and locator: `sum v_l e_l prod (1 - x_i z)` over `i != l`.
fn evaluator(syndromes: &[u8], locator: &[u8; 256], count: usize) -> [u8; 256] {
    let mut evaluator = [0; 256];
    for (n, coefficient) in evaluator[..count].iter_mut().enumerate() {
        *coefficient = convolution(&locator[..=n], &syndromes[..=n]);
    }
    evaluator
}

/// The sum of `a_i b_(n-i)`, where `b_n` is the last element. `a` must not be longer than `b`.
fn convolution(a: &[u8], b: &[u8]) -> u8 {
    a.iter().zip(b.iter().rev()).fold(0, |sum, (&a, &b)| sum ^ product(a, b))
}
