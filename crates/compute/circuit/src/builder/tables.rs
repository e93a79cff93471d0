//! Look-up in tables.

use super::CircuitBuilder;
use crate::batch::{ONE, Wire, ZERO};

impl CircuitBuilder {
    /// Value `index` of a list, counted from 0. It is 0 if there are fewer values.
    ///
    /// One AND less than there are values for each bit of a value, if there are 2^n values for an
    /// index of n bits.
    ///
    /// # Panics
    /// If there is no value, or the widths of the values differ.
    pub fn choose(&mut self, values: &[Vec<Wire>], index: &[Wire]) -> Vec<Wire> {
        let zero = vec![ZERO; values[0].len()];
        let mut values = values.to_vec();
        for &bit in index {
            let pairs = values.chunks(2);
            let chosen = pairs.map(|pair| self.select(bit, pair.get(1).unwrap_or(&zero), &pair[0]));
            values = chosen.collect();
        }
        values.swap_remove(0)
    }

    /// The low `bits` bits of entry `index` of a table of constants.
    ///
    /// Each bit of an entry is a sum of products of bits of the index (its algebraic normal form).
    /// Products of the index's low part are shared, and each is multiplied with a sum of products
    /// of its high part; the index is divided where this takes the fewest ANDs.
    ///
    /// # Panics
    /// If there are not 2^n entries for an index of n bits, or `bits` is over 64.
    pub fn look_up(&mut self, table: &[u64], bits: usize, index: &[Wire]) -> Vec<Wire> {
        assert_eq!(table.len(), 1 << index.len(), "the number of entries");
        assert!(bits <= 64, "the width of an entry");
        let products = |of: usize| (1_usize << of) - of - 1;
        let cost = |low: &usize| {
            let high = index.len() - low;
            let multiplied = if high == 0 { 0 } else { bits * ((1 << low) - 1) };
            products(*low) + products(high) + multiplied
        };
        let low_bits = (0..=index.len()).min_by_key(cost).unwrap_or(0);
        let low = self.products(&index[..low_bits]);
        let high = self.products(&index[low_bits..]);
        let mut form = table.to_vec();
        // The Möbius transform: entry i becomes the coefficients of the product of the bits in i.
        for bit in 0..index.len() {
            for i in 0..form.len() {
                if i >> bit & 1 == 1 {
                    form[i] ^= form[i ^ 1 << bit];
                }
            }
        }
        let outputs = (0..bits).map(|bit| {
            let mut sum = ZERO;
            for (i, &product) in low.iter().enumerate() {
                let mut factor = ZERO;
                for (j, &other) in high.iter().enumerate() {
                    if form[j << low_bits | i] >> bit & 1 == 1 {
                        factor = self.xor(factor, other);
                    }
                }
                let term = self.and(product, factor);
                sum = self.xor(sum, term);
            }
            sum
        });
        outputs.collect()
    }

    /// The product of each set of bits: entry i is that of the bits that are set in i.
    fn products(&mut self, bits: &[Wire]) -> Vec<Wire> {
        let mut products = vec![ONE];
        for &bit in bits {
            let with = self.and_bit(bit, &products);
            products.extend(with);
        }
        products
    }
}
