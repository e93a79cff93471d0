//! Numbers with twice the precision of `f64`, about 32 decimal digits: the unevaluated sum of two
//! `f64` (double-double arithmetic; Dekker 1971, Knuth 4.2.2).

use std::ops::{Add, Div, Mul, Neg, Sub};

/// The sum of two parts. The second is at most half a unit in the last place of the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub(crate) struct DoubleDouble(f64, f64);

impl DoubleDouble {
    pub(crate) const ZERO: Self = Self(0.0, 0.0);
    pub(crate) const ONE: Self = Self(1.0, 0.0);

    /// The nearest `f64`.
    pub(crate) fn to_f64(self) -> f64 {
        self.0
    }

    pub(crate) fn min(self, other: Self) -> Self {
        if other < self { other } else { self }
    }

    pub(crate) fn abs(self) -> Self {
        if self.0 < 0.0 { -self } else { self }
    }
}

impl From<f64> for DoubleDouble {
    fn from(value: f64) -> Self {
        Self(value, 0.0)
    }
}

impl Add for DoubleDouble {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let (high, error) = two_sum(self.0, other.0);
        let (low, lost) = two_sum(self.1, other.1);
        let (high, error) = quick_two_sum(high, error + low);
        let (high, low) = quick_two_sum(high, error + lost);
        Self(high, low)
    }
}

impl Neg for DoubleDouble {
    type Output = Self;

    fn neg(self) -> Self {
        Self(-self.0, -self.1)
    }
}

impl Sub for DoubleDouble {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl Mul for DoubleDouble {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        let (high, error) = two_product(self.0, other.0);
        let (high, low) = quick_two_sum(high, error + (self.0 * other.1 + self.1 * other.0));
        Self(high, low)
    }
}

impl Div for DoubleDouble {
    type Output = Self;

    fn div(self, by: Self) -> Self {
        let first = self.0 / by.0;
        let rest = self - by * Self::from(first);
        let second = rest.0 / by.0;
        let rest = rest - by * Self::from(second);
        let (high, low) = quick_two_sum(first, second);
        Self(high, low) + Self::from(rest.0 / by.0)
    }
}

/// The rounded sum, and its rounding error.
fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let of_b = sum - a;
    (sum, (a - (sum - of_b)) + (b - of_b))
}

/// The same if `a` is not smaller in magnitude than `b`.
fn quick_two_sum(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    (sum, b - (sum - a))
}

/// The rounded product, and its rounding error. It avoids a fused multiply-add, which is slow on
/// targets that do not guarantee the instruction.
fn two_product(a: f64, b: f64) -> (f64, f64) {
    let product = a * b;
    let ((a, a_low), (b, b_low)) = (halves(a), halves(b));
    (product, ((a * b - product) + a * b_low + a_low * b) + a_low * b_low)
}

/// Two numbers of at most 26 bits that sum to this one.
fn halves(value: f64) -> (f64, f64) {
    let shifted = 134_217_729.0 * value;
    let high = shifted - (shifted - value);
    (high, value - high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn double_double_keeps_what_f64_rounds_away() {
        let (one, tiny) = (DoubleDouble::ONE, DoubleDouble::from(1e-25));
        assert_eq!((one + tiny) - one, tiny);
        let third = one / DoubleDouble::from(3.0);
        assert!((third * DoubleDouble::from(3.0) - one).abs().to_f64() < 1e-31);
        // (1 + e)^2 = 1 + 2 e + e^2; `f64` loses the last term.
        let near = one + DoubleDouble::from(f64::EPSILON);
        let square = DoubleDouble::from(f64::EPSILON * f64::EPSILON);
        assert_eq!(near * near - one - DoubleDouble::from(2.0 * f64::EPSILON), square);
    }
}
