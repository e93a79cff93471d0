//! Unsigned integers of any width, the least significant bit first.

use super::CircuitBuilder;
use crate::batch::{ONE, Wire, ZERO};

impl CircuitBuilder {
    /// The XOR of each pair of bits.
    ///
    /// # Panics
    /// Operations on two values panic if their widths differ.
    pub fn xor_bits(&mut self, a: &[Wire], b: &[Wire]) -> Vec<Wire> {
        pairs(a, b).map(|(a, b)| self.xor(a, b)).collect()
    }

    /// `condition AND a`, for each bit of `a`.
    pub fn and_bit(&mut self, condition: Wire, a: &[Wire]) -> Vec<Wire> {
        a.iter().map(|&a| self.and(condition, a)).collect()
    }

    /// `a + b + carry`, and the carry out. One AND a bit.
    pub fn add_carry(&mut self, a: &[Wire], b: &[Wire], carry: Wire) -> (Vec<Wire>, Wire) {
        let mut carry = carry;
        let bits = pairs(a, b).map(|(a, b)| {
            let a_carry = self.xor(a, carry);
            let b_carry = self.xor(b, carry);
            let sum = self.xor(a_carry, b);
            let both = self.and(a_carry, b_carry);
            carry = self.xor(carry, both);
            sum
        });
        (bits.collect(), carry)
    }

    /// `a + b` modulo 2^width.
    pub fn add(&mut self, a: &[Wire], b: &[Wire]) -> Vec<Wire> {
        self.add_carry(a, b, ZERO).0
    }

    /// `a - b` modulo 2^width.
    pub fn subtract(&mut self, a: &[Wire], b: &[Wire]) -> Vec<Wire> {
        let b: Vec<Wire> = b.iter().map(|&b| self.not(b)).collect();
        self.add_carry(a, &b, ONE).0
    }

    /// `a * b`, with as many bits as both have together.
    pub fn multiply(&mut self, a: &[Wire], b: &[Wire]) -> Vec<Wire> {
        let mut product = vec![ZERO; a.len() + b.len()];
        for (i, &bit) in b.iter().enumerate() {
            let row = self.and_bit(bit, a);
            let (sum, carry) = self.add_carry(&product[i..i + a.len()], &row, ZERO);
            product[i..i + a.len()].copy_from_slice(&sum);
            product[i + a.len()] = carry;
        }
        product
    }

    /// `a / b`, with as many bits as `a`, and `a % b`, with as many bits as `b`. If `b` is 0, all
    /// bits of the quotient are 1, and the remainder has the low bits of `a`.
    ///
    /// About one AND for each pair of bits of `a` and `b`.
    pub fn divide(&mut self, a: &[Wire], b: &[Wire]) -> (Vec<Wire>, Vec<Wire>) {
        // Whether the bits of b from i on are 0.
        let mut is_zero_from = vec![ONE; b.len() + 1];
        for (i, &bit) in b.iter().enumerate().rev() {
            let not_bit = self.not(bit);
            is_zero_from[i] = self.and(is_zero_from[i + 1], not_bit);
        }
        // Long division: the remainder grows bit by bit, up to one bit more than b has.
        let mut remainder = Vec::with_capacity(b.len() + 1);
        let mut quotient = Vec::with_capacity(a.len());
        for &bit in a.iter().rev() {
            remainder.insert(0, bit);
            let compared = remainder.len().min(b.len());
            let mut not_b: Vec<Wire> = b[..compared].iter().map(|&bit| self.not(bit)).collect();
            not_b.resize(remainder.len(), ONE);
            let (difference, is_not_less) = self.add_carry(&remainder, &not_b, ONE);
            let fits = self.and(is_not_less, is_zero_from[compared]);
            remainder = self.select(fits, &difference, &remainder);
            remainder.truncate(b.len());
            quotient.push(fits);
        }
        quotient.reverse();
        remainder.resize(b.len(), ZERO);
        (quotient, remainder)
    }

    /// Whether `a < b`. One AND a bit.
    pub fn less(&mut self, a: &[Wire], b: &[Wire]) -> Wire {
        // The borrow of a - b: b's bit where the bits differ, else the borrow so far.
        pairs(a, b).fold(ZERO, |borrow, (a, b)| {
            let a_borrow = self.xor(a, borrow);
            let b_borrow = self.xor(b, borrow);
            let a_same = self.not(a_borrow);
            let both = self.and(a_same, b_borrow);
            self.xor(borrow, both)
        })
    }

    /// Whether `a = b`. One AND a bit, but for the last.
    pub fn equal(&mut self, a: &[Wire], b: &[Wire]) -> Wire {
        let same: Vec<Wire> = pairs(a, b)
            .map(|(a, b)| {
                let differ = self.xor(a, b);
                self.not(differ)
            })
            .collect();
        self.all(&same)
    }

    /// The AND of all bits, in logarithmic depth.
    pub fn all(&mut self, bits: &[Wire]) -> Wire {
        match bits {
            [] => ONE,
            &[bit] => bit,
            _ => {
                let (low, high) = bits.split_at(bits.len() / 2);
                let [low, high] = [self.all(low), self.all(high)];
                self.and(low, high)
            }
        }
    }

    /// The OR of all bits, in logarithmic depth.
    pub fn any(&mut self, bits: &[Wire]) -> Wire {
        let not_bits: Vec<Wire> = bits.iter().map(|&bit| self.not(bit)).collect();
        let none = self.all(&not_bits);
        self.not(none)
    }

    /// `a` if `condition`, else `b`. One AND a bit.
    pub fn select(&mut self, condition: Wire, a: &[Wire], b: &[Wire]) -> Vec<Wire> {
        pairs(a, b)
            .map(|(a, b)| {
                let differ = self.xor(a, b);
                let taken = self.and(condition, differ);
                self.xor(taken, b)
            })
            .collect()
    }

    /// `(a, b)`, or `(b, a)` if `condition`. One AND a bit.
    pub fn swap(&mut self, condition: Wire, a: &[Wire], b: &[Wire]) -> (Vec<Wire>, Vec<Wire>) {
        pairs(a, b)
            .map(|(a, b)| {
                let differ = self.xor(a, b);
                let change = self.and(condition, differ);
                (self.xor(a, change), self.xor(b, change))
            })
            .unzip()
    }

    /// `a << by` modulo 2^width, for a number of bits that is a value itself.
    pub fn shift_left(&mut self, a: &[Wire], by: &[Wire]) -> Vec<Wire> {
        let (within, beyond) = by.split_at(distance_bits(a.len()).min(by.len()));
        let mut shifted = a.to_vec();
        for (i, &bit) in within.iter().enumerate() {
            let mut moved = vec![ZERO; 1 << i];
            moved.extend_from_slice(&shifted[..a.len() - (1 << i)]);
            shifted = self.select(bit, &moved, &shifted);
        }
        self.unless_any(beyond, &shifted)
    }

    /// `a >> by`, for a number of bits that is a value itself.
    pub fn shift_right(&mut self, a: &[Wire], by: &[Wire]) -> Vec<Wire> {
        let (within, beyond) = by.split_at(distance_bits(a.len()).min(by.len()));
        let mut shifted = a.to_vec();
        for (i, &bit) in within.iter().enumerate() {
            let mut moved = shifted[1 << i..].to_vec();
            moved.resize(a.len(), ZERO);
            shifted = self.select(bit, &moved, &shifted);
        }
        self.unless_any(beyond, &shifted)
    }

    /// `a` if none of the bits is 1, else 0.
    fn unless_any(&mut self, bits: &[Wire], a: &[Wire]) -> Vec<Wire> {
        let any = self.any(bits);
        let none = self.not(any);
        self.and_bit(none, a)
    }

    /// The number of ones, with just as many bits as it needs.
    pub fn count_ones(&mut self, bits: &[Wire]) -> Vec<Wire> {
        if bits.len() <= 1 {
            return bits.to_vec();
        }
        // Two counts of halves and one more bit as the carry in: a full adder for three bits.
        let (&carry, rest) = bits.split_first().unwrap_or((&ZERO, &[]));
        let (low, high) = rest.split_at(rest.len() / 2);
        let [mut low, mut high] = [self.count_ones(low), self.count_ones(high)];
        let width = low.len().max(high.len());
        low.resize(width, ZERO);
        high.resize(width, ZERO);
        let (mut sum, carry) = self.add_carry(&low, &high, carry);
        sum.push(carry);
        sum.truncate(bits.len().ilog2() as usize + 1);
        sum
    }
}

/// How many bits of a distance are for distances within a value of `width` bits.
fn distance_bits(width: usize) -> usize {
    (usize::BITS - width.saturating_sub(1).leading_zeros()) as usize
}

fn pairs(a: &[Wire], b: &[Wire]) -> impl Iterator<Item = (Wire, Wire)> {
    assert_eq!(a.len(), b.len(), "the widths differ");
    a.iter().copied().zip(b.iter().copied())
}
