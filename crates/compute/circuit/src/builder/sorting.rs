//! Batcher's odd-even merge sort (1968), whose comparisons do not depend on the values.

use super::CircuitBuilder;
use crate::batch::Wire;

impl CircuitBuilder {
    /// The values in ascending order.
    ///
    /// # Panics
    /// If the widths differ.
    pub fn sort(&mut self, values: &[Vec<Wire>]) -> Vec<Vec<Wire>> {
        if values.len() <= 1 {
            return values.to_vec();
        }
        let (low, high) = values.split_at(values.len() / 2);
        let [low, high] = [self.sort(low), self.sort(high)];
        self.merge(&low, &high)
    }

    /// The values of two lists, each in ascending order, as one list in ascending order.
    ///
    /// # Panics
    /// If the widths differ.
    pub fn merge(&mut self, a: &[Vec<Wire>], b: &[Vec<Wire>]) -> Vec<Vec<Wire>> {
        if a.is_empty() || b.is_empty() {
            return [a, b].concat();
        }
        if let ([a], [b]) = (a, b) {
            let (least, greatest) = self.order(a, b);
            return vec![least, greatest];
        }
        let every_second = |list: &[Vec<Wire>], from| -> Vec<Vec<Wire>> {
            list.iter().skip(from).step_by(2).cloned().collect()
        };
        let first = self.merge(&every_second(a, 0), &every_second(b, 0));
        let second = self.merge(&every_second(a, 1), &every_second(b, 1));
        // The least value is the first of `first`; then pairs of `second` and `first` are ordered.
        let mut first = first.into_iter();
        let mut second = second.into_iter();
        let mut merged: Vec<Vec<Wire>> = first.next().into_iter().collect();
        loop {
            match (second.next(), first.next()) {
                (Some(a), Some(b)) => {
                    let (least, greatest) = self.order(&a, &b);
                    merged.extend([least, greatest]);
                }
                (Some(last), None) | (None, Some(last)) => merged.push(last),
                (None, None) => return merged,
            }
        }
    }

    /// The lesser and the greater of two values. Two ANDs a bit.
    fn order(&mut self, a: &[Wire], b: &[Wire]) -> (Vec<Wire>, Vec<Wire>) {
        let is_swapped = self.less(b, a);
        self.swap(is_swapped, a, b)
    }
}
