//! The packet numbers that have arrived: to drop duplicates, and to acknowledge packets.

use std::collections::VecDeque;

/// The largest number of ranges. Numbers before them count as arrived.
const MAX_RANGES: usize = 8192;

/// The number of acknowledgements that report a range.
const ACK_REPETITIONS: u8 = 4;

/// A range of consecutive numbers.
#[derive(Clone, Copy, Debug)]
struct PacketNumberRange {
    first: u64,
    last: u64,
    /// The number of acknowledgements that have reported it since it last changed.
    reports: u8,
}

#[derive(Debug, Default)]
pub(in crate::protocol) struct ReceivedPacketNumbers {
    /// In ascending order, never adjacent.
    ranges: VecDeque<PacketNumberRange>,
    /// All numbers before this one count as arrived.
    known_below: u64,
}

impl ReceivedPacketNumbers {
    /// Whether a packet has arrived.
    pub(in crate::protocol) fn has(&self, number: u64) -> bool {
        if number < self.known_below {
            return true;
        }
        let at = self.ranges.partition_point(|range| range.last < number);
        self.ranges.get(at).is_some_and(|range| range.first <= number)
    }

    /// Whether memory is within its bounds.
    #[cfg(any(fuzzing, test))]
    pub(in crate::protocol) fn is_bounded(&self) -> bool {
        self.ranges.len() <= MAX_RANGES
    }

    /// The highest number.
    pub(in crate::protocol) fn largest(&self) -> Option<u64> {
        self.ranges.back().map(|range| range.last)
    }

    /// Records a packet that has not arrived before.
    pub(in crate::protocol) fn insert(&mut self, number: u64) {
        let at = match self.ranges.back_mut() {
            // Most packets come in order.
            Some(range) if range.last + 1 == number => {
                range.last = number;
                range.reports = 0;
                return;
            }
            Some(range) if range.last < number => self.ranges.len(),
            _ => self.ranges.partition_point(|range| range.last < number),
        };
        let joins_next = self.ranges.get(at).is_some_and(|range| range.first == number + 1);
        let previous = at.checked_sub(1).filter(|&index| self.ranges[index].last + 1 == number);
        match (previous, joins_next) {
            (Some(index), true) => {
                self.ranges[index].last = self.ranges[at].last;
                self.ranges[index].reports = 0;
                self.ranges.remove(at);
            }
            (Some(index), false) => {
                self.ranges[index].last = number;
                self.ranges[index].reports = 0;
            }
            (None, true) => {
                self.ranges[at].first = number;
                self.ranges[at].reports = 0;
            }
            (None, false) => {
                self.ranges
                    .insert(at, PacketNumberRange { first: number, last: number, reports: 0 });
            }
        }
        if self.ranges.len() > MAX_RANGES
            && let Some(range) = self.ranges.pop_front()
        {
            self.known_below = range.last + 1;
        }
    }

    /// The first and the last number of each range that is still to be reported, newest first.
    /// Ranges taken from the iterator count as reported.
    pub(in crate::protocol) fn next_ack_ranges(&mut self) -> impl Iterator<Item = (u64, u64)> {
        self.ranges.iter_mut().rev().filter(|range| range.reports < ACK_REPETITIONS).map(|range| {
            range.reports += 1;
            (range.first, range.last)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_range_is_reported_four_times_and_again_when_it_changes() {
        let mut received = ReceivedPacketNumbers::default();
        for number in [1, 2, 3, 7, 9] {
            received.insert(number);
        }
        for _ in 0..ACK_REPETITIONS {
            assert!(received.next_ack_ranges().eq([(9, 9), (7, 7), (1, 3)]));
        }
        assert_eq!(received.next_ack_ranges().next(), None);
        received.insert(8);
        received.insert(0);
        assert!(received.next_ack_ranges().eq([(7, 9), (0, 3)]));
        // What does not fit is in the next.
        assert_eq!(received.next_ack_ranges().next(), Some((7, 9)));
        for _ in 0..2 {
            assert!(received.next_ack_ranges().take(1).eq([(7, 9)]));
        }
        assert!(received.next_ack_ranges().eq([(0, 3)]));
    }

    #[test]
    fn it_is_bounded() {
        let mut received = ReceivedPacketNumbers::default();
        for number in 0..2 * MAX_RANGES as u64 {
            received.insert(2 * number + 1);
        }
        assert_eq!(received.ranges.len(), MAX_RANGES);
        assert!(received.has(0) && received.has(2 * MAX_RANGES as u64 - 2));
        assert!(!received.has(2 * MAX_RANGES as u64 + 2));
    }

    proptest! {
        #[test]
        fn it_is_a_set(numbers in prop::collection::vec(0_u64..100, 0..100)) {
            let (mut received, mut set) = (ReceivedPacketNumbers::default(), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(received.has(number), !set.insert(number));
                if !received.has(number) {
                    received.insert(number);
                }
                prop_assert_eq!(received.largest(), set.last().copied());
                let ranges: Vec<_> = received.ranges.iter().copied().collect();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].last + 1 < pair[1].first));
                let all = ranges.iter().flat_map(|range| range.first..=range.last);
                prop_assert!(all.eq(set.iter().copied()));
            }
        }
    }
}
