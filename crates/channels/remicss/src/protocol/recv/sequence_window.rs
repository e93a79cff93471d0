//! A sliding window of numbers: which of the latest are in the set.

/// The number of bits of a word.
const BITS: u64 = u64::BITS as u64;

/// A set of numbers that remembers the latest ones. All older numbers count as being in it.
pub(crate) struct SequenceWindow {
    /// A ring, by number, of a power of two. Words ahead of the highest number's are stale.
    words: Box<[u64]>,
    highest: u64,
}

impl SequenceWindow {
    /// An empty set that remembers the last `span` numbers, or up to 63 fewer. `span` is rounded up
    /// to a power of two.
    pub(crate) fn new(span: usize) -> Self {
        Self { words: vec![0; span.div_ceil(64).max(2).next_power_of_two()].into(), highest: 0 }
    }

    /// The highest number in the set; 0 if it is empty.
    pub(crate) fn highest(&self) -> u64 {
        self.highest
    }

    /// The lowest number that is remembered.
    pub(crate) fn oldest(&self) -> u64 {
        (self.highest / BITS + 1).saturating_sub(self.words.len() as u64) * BITS
    }

    /// Whether a number is in the set, or older than the window.
    pub(crate) fn contains(&self, number: u64) -> bool {
        number < self.oldest()
            || number <= self.highest && self.words[self.word(number)] >> (number % BITS) & 1 == 1
    }

    /// Adds a number to the set.
    pub(crate) fn insert(&mut self, number: u64) {
        if number < self.oldest() {
            return;
        }
        let (from, to) = (self.highest / BITS, number / BITS);
        if to.saturating_sub(from) >= self.words.len() as u64 {
            self.words.fill(0);
        } else {
            for word in from + 1..=to {
                let i = self.word(word * BITS);
                self.words[i] = 0;
            }
        }
        let i = self.word(number);
        self.words[i] |= 1 << (number % BITS);
        self.highest = self.highest.max(number);
    }

    fn word(&self, number: u64) -> usize {
        (number / BITS) as usize & (self.words.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_behind_the_window_count_as_in_the_set() {
        let mut numbers = SequenceWindow::new(128);
        assert!(!numbers.contains(0));
        numbers.insert(0);
        numbers.insert(1000);
        assert_eq!(numbers.oldest(), 896);
        assert!(numbers.contains(895) && !numbers.contains(896) && numbers.contains(1000));
        // It is too late to add it, and no other number takes its bit.
        numbers.insert(895);
        assert!(!numbers.contains(895 + 128));
        numbers.insert(u64::MAX);
        assert!(numbers.contains(u64::MAX) && !numbers.contains(u64::MAX - 1));
    }

    proptest! {
        #[test]
        fn the_window_equals_a_reference_set(steps in prop::collection::vec(-300_i64..400, 1..300)) {
            let mut numbers = SequenceWindow::new(256);
            let mut reference = BTreeSet::new();
            let mut at = 0_u64;
            for step in steps {
                at = at.saturating_add_signed(step);
                numbers.insert(at);
                reference.insert(at);
                let highest = *reference.last().unwrap();
                prop_assert_eq!(numbers.highest(), highest);
                // An old number that arrived late is not remembered, but counts as being in the
                // set.
                for number in numbers.oldest()..highest + 300 {
                    if number + 192 > highest {
                        prop_assert_eq!(numbers.contains(number), reference.contains(&number));
                    }
                }
            }
        }
    }
}
