//! Signed integers of any width in two's complement, the least significant bit first.

use super::CircuitBuilder;
use crate::batch::{Wire, ZERO};

impl CircuitBuilder {
    /// `-a` modulo 2^width. One AND a bit.
    pub fn negate(&mut self, a: &[Wire]) -> Vec<Wire> {
        self.subtract(&vec![ZERO; a.len()], a)
    }

    /// `-a` modulo 2^width if `condition`, else `a`. One AND a bit.
    pub fn negate_if(&mut self, condition: Wire, a: &[Wire]) -> Vec<Wire> {
        let flipped: Vec<Wire> = a.iter().map(|&bit| self.xor(bit, condition)).collect();
        self.add_carry(&flipped, &vec![ZERO; a.len()], condition).0
    }

    /// The absolute value of `a`, as an unsigned number of the same width. One AND a bit.
    pub fn absolute(&mut self, a: &[Wire]) -> Vec<Wire> {
        self.negate_if(sign(a), a)
    }

    /// Whether `a < b` as signed numbers. One AND a bit.
    ///
    /// # Panics
    /// If the widths differ.
    pub fn less_signed(&mut self, a: &[Wire], b: &[Wire]) -> Wire {
        // The order is that of unsigned numbers if both signs are flipped.
        let mut flip = |value: &[Wire]| {
            let mut flipped = value.to_vec();
            if let Some(sign) = flipped.last_mut() {
                *sign = self.not(*sign);
            }
            flipped
        };
        let [a, b] = [flip(a), flip(b)];
        self.less(&a, &b)
    }

    /// `a * b` as signed numbers, with as many bits as both have together.
    pub fn multiply_signed(&mut self, a: &[Wire], b: &[Wire]) -> Vec<Wire> {
        // As unsigned numbers, a negative a counts 2^n too much, and so does a negative b.
        let mut product = self.multiply(a, b);
        for (signed, other) in [(a, b), (b, a)] {
            let excess = self.and_bit(sign(signed), other);
            let high = self.subtract(&product[signed.len()..], &excess);
            product[signed.len()..].copy_from_slice(&high);
        }
        product
    }

    /// `a / b`, with as many bits as `a`, and `a % b`, with as many bits as `b`, as signed numbers
    /// in the way of Rust's `wrapping_div` and `wrapping_rem`: the quotient is rounded towards 0,
    /// and the remainder has the sign of `a`. If `b` is 0, the quotient is 1 for a negative `a`,
    /// else -1, and the remainder has the low bits of `a`.
    pub fn divide_signed(&mut self, a: &[Wire], b: &[Wire]) -> (Vec<Wire>, Vec<Wire>) {
        let [positive_a, positive_b] = [self.absolute(a), self.absolute(b)];
        let (quotient, remainder) = self.divide(&positive_a, &positive_b);
        let signs_differ = self.xor(sign(a), sign(b));
        (self.negate_if(signs_differ, &quotient), self.negate_if(sign(a), &remainder))
    }

    /// `a >> by` for a signed `a`: the sign fills the high bits.
    pub fn shift_right_signed(&mut self, a: &[Wire], by: &[Wire]) -> Vec<Wire> {
        // The bits that differ from the sign are shifted.
        let differing: Vec<Wire> = a.iter().map(|&bit| self.xor(bit, sign(a))).collect();
        let shifted = self.shift_right(&differing, by);
        shifted.iter().map(|&bit| self.xor(bit, sign(a))).collect()
    }
}

/// A signed number with `bits` bits: its sign fills the high bits, or its high bits are dropped.
pub fn sign_extended(value: &[Wire], bits: usize) -> Vec<Wire> {
    let mut extended = value.to_vec();
    extended.resize(bits, sign(value));
    extended
}

/// 1 if the number is negative.
fn sign(value: &[Wire]) -> Wire {
    value.last().copied().unwrap_or(ZERO)
}
