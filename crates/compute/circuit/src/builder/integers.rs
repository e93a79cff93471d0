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
        let mut shifted = a.to_vec();
        for (i, &bit) in by.iter().enumerate() {
            let distance = shift_distance(i, a.len());
            let mut moved = vec![ZERO; distance];
            moved.extend_from_slice(&shifted[..a.len() - distance]);
            shifted = self.select(bit, &moved, &shifted);
        }
        shifted
    }

    /// `a >> by`, for a number of bits that is a value itself.
    pub fn shift_right(&mut self, a: &[Wire], by: &[Wire]) -> Vec<Wire> {
        let mut shifted = a.to_vec();
        for (i, &bit) in by.iter().enumerate() {
            let distance = shift_distance(i, a.len());
            let mut moved = shifted[distance..].to_vec();
            moved.resize(a.len(), ZERO);
            shifted = self.select(bit, &moved, &shifted);
        }
        shifted
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

/// By how much bit `i` of a number of bits shifts a value of a width.
fn shift_distance(i: usize, width: usize) -> usize {
    u32::try_from(i).ok().and_then(|i| 1_usize.checked_shl(i)).map_or(width, |by| by.min(width))
}

fn pairs(a: &[Wire], b: &[Wire]) -> impl Iterator<Item = (Wire, Wire)> {
    assert_eq!(a.len(), b.len(), "the widths differ");
    a.iter().copied().zip(b.iter().copied())
}
