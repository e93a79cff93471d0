//! A set of packet numbers as disjoint ranges, such as the lost packets of a direction.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint, non-adjacent ranges of packet numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SabulNumberRanges {
    /// The end of each range, exclusive, by its start.
    ends: BTreeMap<u64, u64>,
    len: u64,
}

impl SabulNumberRanges {
    /// How many numbers the set contains.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The ranges in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.ends.iter().map(|(&start, &end)| start..end)
    }

    /// The parts of the ranges that are within `bounds`, in ascending order.
    pub(crate) fn within(&self, bounds: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let Range { start, end } = *bounds;
        let before = self.ends.range(..start).next_back().filter(|(_, other)| **other > start);
        let inside = self.ends.range(start..end.max(start));
        before.into_iter().chain(inside).map(move |(&from, &to)| from.max(start)..to.min(end))
    }

    /// Adds numbers. Returns how many of them are new.
    pub(crate) fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let Range { mut start, mut end } = range;
        let before = self.len;
        // Merges ranges that overlap or are adjacent, last one first.
        while let Some((&other, &other_end)) = self.ends.range(..=end).next_back()
            && other_end >= start
        {
            self.ends.remove(&other);
            self.len -= other_end - other;
            start = start.min(other);
            end = end.max(other_end);
        }
        self.ends.insert(start, end);
        self.len += end - start;
        self.len - before
    }

    /// Removes numbers. Returns how many of them the set contained.
    pub(crate) fn remove(&mut self, range: Range<u64>) -> u64 {
        let before = self.len;
        if range.is_empty() {
            return 0;
        }
        while let Some((&start, &end)) = self.ends.range(..range.end).next_back()
            && end > range.start
        {
            self.ends.remove(&start);
            self.len -= end - start;
            for rest in [start..range.start.min(end), range.end.max(start)..end] {
                if !rest.is_empty() {
                    self.ends.insert(rest.start, rest.end);
                    self.len += rest.end - rest.start;
                }
            }
            if start <= range.start {
                break;
            }
        }
        before - self.len
    }

    /// Removes and returns the lowest number.
    pub(crate) fn pop_first(&mut self) -> Option<u64> {
        let mut entry = self.ends.first_entry()?;
        let (start, end) = (*entry.key(), *entry.get_mut());
        entry.remove();
        if start + 1 < end {
            self.ends.insert(start + 1, end);
        }
        self.len -= 1;
        Some(start)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(changes in prop::collection::vec((any::<bool>(), 0_u64..60, 0_u64..12), 0..60)) {
            let (mut ranges, mut set) = (SabulNumberRanges::default(), BTreeSet::new());
            for (is_new, start, len) in changes {
                let range = start..start + len;
                if is_new {
                    let new = range.clone().filter(|&number| set.insert(number)).count();
                    prop_assert_eq!(ranges.insert(range), new as u64);
                } else {
                    let gone = range.clone().filter(|number| set.remove(number)).count();
                    prop_assert_eq!(ranges.remove(range), gone as u64);
                }
                prop_assert!(ranges.iter().flatten().eq(set.iter().copied()));
                prop_assert_eq!(ranges.len(), set.len() as u64);
                let starts: Vec<_> = ranges.iter().collect();
                prop_assert!(starts.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
            for (start, end) in [(0, 20), (13, 14), (30, 30), (25, 80)] {
                let within: Vec<u64> = ranges.within(&(start..end)).flatten().collect();
                let expected = set.iter().copied().filter(|number| (start..end).contains(number));
                prop_assert!(expected.eq(within));
            }
            prop_assert_eq!(ranges.pop_first(), set.pop_first());
        }
    }
}
