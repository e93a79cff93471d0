//! The receive buffer: what has arrived and is not read, and some of what was read, which repair
//! symbols need.

use std::collections::BTreeMap;

use crate::protocol::blocks::BurstStreamBlocks;

/// The largest number of gaps. Data that would add another is dropped.
const MAX_GAPS: usize = 8192;

/// How many bytes that were read are kept, for repair: one generation.
const KEPT_FOR_REPAIR: u64 = 256 << 10;

#[derive(Debug)]
pub(in crate::protocol) struct BurstReceiveBuffer {
    blocks: BurstStreamBlocks,
    capacity: u64,
    read_to: u64,
    /// Everything before this offset has arrived.
    arrived_to: u64,
    /// The ends of the ranges that have arrived beyond the first gap, by their starts.
    out_of_order: BTreeMap<u64, u64>,
    /// Where the stream ends, once that is known.
    end: Option<u64>,
    /// The highest window that was advertised.
    announced: u64,
}

/// The outcome of inserting data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::protocol) enum BurstDataArrival {
    /// Some of it is new.
    New,
    /// It is dropped, as there is no room for another gap.
    Known,
    /// It violates the protocol: it is beyond the window or the end of the stream, or the end
    /// differs from an earlier one.
    Refused,
    /// It is beyond the window or the stream's end, or the end is another one than before.
    Violation,
}

impl BurstReceiveBuffer {
    pub(in crate::protocol) fn new(capacity: usize) -> Self {
        let capacity = capacity as u64;
        Self {
            blocks: BurstStreamBlocks::default(),
            capacity,
            read_to: 0,
            arrived_to: 0,
            out_of_order: BTreeMap::new(),
            end: None,
            announced: capacity,
        }
    }

    /// Whether memory is within its bounds.
    #[cfg(any(fuzzing, test))]
    pub(in crate::protocol) fn is_bounded(&self) -> bool {
        let most = (self.capacity + KEPT_FOR_REPAIR)
            .div_ceil(crate::protocol::blocks::BLOCK_LEN as u64)
            + 2;
        self.blocks.count() as u64 <= most && self.out_of_order.len() <= MAX_GAPS + 1
    }

    /// The number of bytes that can be read.
    pub(in crate::protocol) fn readable(&self) -> u64 {
        self.arrived_to - self.read_to
    }

    /// Whether everything was read up to the stream's end.
    pub(in crate::protocol) fn is_at_end(&self) -> bool {
        self.end == Some(self.read_to)
    }

    /// Whether everything has arrived up to the stream's end.
    pub(in crate::protocol) fn is_complete(&self) -> bool {
        self.end == Some(self.arrived_to)
    }

    /// Everything before this offset has arrived; the end of the stream counts as one byte.
    pub(in crate::protocol) fn stream_end(&self) -> u64 {
        self.arrived_to + u64::from(self.is_complete())
    }

    /// The advertised window.
    pub(in crate::protocol) fn announced(&self) -> u64 {
        self.announced
    }

    /// Advances the advertised window, and returns it.
    pub(in crate::protocol) fn announce(&mut self) -> u64 {
        self.announced = self.window();
        self.announced
    }

    /// Whether so much was read since the last advertisement that the window should be advertised
    /// again.
    pub(in crate::protocol) fn wants_announcement(&self) -> bool {
        self.end.is_none() && self.window() - self.announced >= self.capacity / 4
    }

    fn window(&self) -> u64 {
        self.read_to + self.capacity
    }

    /// Inserts data.
    pub(in crate::protocol) fn insert(
        &mut self,
        offset: u64,
        data: &[u8],
        is_end: bool,
    ) -> BurstDataArrival {
        let end = offset + data.len() as u64;
        let beyond = self.out_of_order.last_key_value().map_or(self.arrived_to, |(_, &end)| end);
        let is_contradiction = match self.end {
            Some(known) => end > known || is_end && end != known,
            None => is_end && end < beyond,
        };
        if end > self.announced || is_contradiction {
            return BurstDataArrival::Violation;
        }
        let is_known = data.is_empty()
            || end <= self.arrived_to
            || self
                .out_of_order
                .range(..=offset)
                .next_back()
                .is_some_and(|(_, &known)| known >= end);
        if is_known && (!is_end || self.end.is_some()) {
            return BurstDataArrival::Known;
        }
        if offset > self.arrived_to && self.out_of_order.len() >= MAX_GAPS {
            return BurstDataArrival::Refused;
        }
        if is_end {
            self.end = Some(end);
        }
        let kept = self.read_to.saturating_sub(KEPT_FOR_REPAIR);
        if end > kept && !data.is_empty() {
            self.blocks.write(offset, data);
            self.record_range(offset, end);
        }
        BurstDataArrival::New
    }

    /// Records that a range has arrived.
    fn record_range(&mut self, offset: u64, end: u64) {
        let (mut start, mut end) = (offset, end);
        while let Some((&other, &other_end)) = self.out_of_order.range(..=end).next_back()
            && other_end >= start
        {
            self.out_of_order.remove(&other);
            start = start.min(other);
            end = end.max(other_end);
        }
        if start <= self.arrived_to {
            self.arrived_to = self.arrived_to.max(end);
        } else {
            self.out_of_order.insert(start, end);
        }
    }

    /// Whether all of a range has arrived.
    pub(in crate::protocol) fn has(&self, start: u64, end: u64) -> bool {
        end <= self.arrived_to
            || self.out_of_order.range(..=start).next_back().is_some_and(|(_, &known)| known >= end)
    }

    /// Whether the bytes from `start` on that have arrived are still stored.
    pub(in crate::protocol) fn is_kept(&self, start: u64) -> bool {
        start >= self.read_to.saturating_sub(KEPT_FOR_REPAIR)
    }

    /// Copies a range that [has arrived](Self::has) and [is kept](Self::is_kept).
    pub(in crate::protocol) fn copy(&self, start: u64, to: &mut [u8]) {
        self.blocks.read(start, to);
    }

    /// Copies bytes to the reader and removes them. Returns how many.
    pub(in crate::protocol) fn read(&mut self, to: &mut [u8]) -> usize {
        let len = usize::try_from(self.readable()).unwrap_or(usize::MAX).min(to.len());
        self.blocks.read(self.read_to, &mut to[..len]);
        self.read_to += len as u64;
        self.blocks.release(self.read_to.saturating_sub(KEPT_FOR_REPAIR));
        len
    }

    /// Reads and discards what has arrived.
    pub(in crate::protocol) fn discard(&mut self) {
        self.read_to = self.arrived_to;
        self.blocks.release(self.read_to.saturating_sub(KEPT_FOR_REPAIR));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_is_bounded_and_ends_once() {
        let mut buffer = BurstReceiveBuffer::new(10);
        assert_eq!(buffer.insert(8, b"ijk", false), BurstDataArrival::Violation);
        assert_eq!(buffer.insert(4, b"efgh", false), BurstDataArrival::New);
        assert_eq!(buffer.insert(5, b"fg", false), BurstDataArrival::Known);
        assert_eq!(buffer.insert(0, b"abc", true), BurstDataArrival::Violation);
        assert_eq!(buffer.insert(8, b"", true), BurstDataArrival::New);
        assert_eq!(buffer.insert(7, b"", true), BurstDataArrival::Violation);
        assert_eq!(buffer.insert(8, b"i", false), BurstDataArrival::Violation);
        assert_eq!((buffer.stream_end(), buffer.readable()), (0, 0));
        assert_eq!(buffer.insert(0, b"abcd", false), BurstDataArrival::New);
        assert_eq!((buffer.stream_end(), buffer.readable()), (9, 8));
        let mut read = [0; 10];
        assert_eq!((buffer.read(&mut read), &read[..8]), (8, &b"abcdefgh"[..]));
        assert!(buffer.is_at_end());
    }

    #[test]
    fn its_gaps_are_bounded() {
        let mut buffer = BurstReceiveBuffer::new(1 << 20);
        for gap in 0..MAX_GAPS as u64 {
            assert_eq!(buffer.insert(2 * gap + 1, b"x", false), BurstDataArrival::New);
        }
        assert_eq!(buffer.insert(1 << 19, b"x", false), BurstDataArrival::Refused);
        assert_eq!(buffer.insert(0, b"x", false), BurstDataArrival::New);
        assert_eq!(buffer.insert(1 << 19, b"x", false), BurstDataArrival::New);
    }

    #[test]
    fn the_window_moves_with_the_reader() {
        let mut buffer = BurstReceiveBuffer::new(8);
        assert_eq!(buffer.insert(0, b"abcdefgh", false), BurstDataArrival::New);
        assert_eq!((buffer.announce(), buffer.wants_announcement()), (8, false));
        buffer.read(&mut [0; 2]);
        assert!(buffer.wants_announcement());
        assert_eq!(
            buffer.insert(8, b"i", false),
            BurstDataArrival::Violation,
            "it is not announced yet"
        );
        assert_eq!((buffer.announce(), buffer.wants_announcement()), (10, false));
        assert_eq!(buffer.insert(8, b"i", false), BurstDataArrival::New);
    }

    proptest! {
        #[test]
        fn pieces_in_any_order_are_the_stream(
            pieces in prop::collection::vec((0_usize..300, 0_usize..60), 0..80),
            reads in prop::collection::vec(0_usize..40, 80),
        ) {
            let stream: Vec<u8> = (0..=255).chain(0..=103).collect();
            let mut buffer = BurstReceiveBuffer::new(1000);
            let (mut arrived, mut read) = (vec![false; 360], Vec::<u8>::new());
            for ((start, len), count) in pieces.into_iter().zip(reads) {
                let is_new = arrived[start..start + len].iter().any(|arrived| !arrived);
                let arrival = buffer.insert(start as u64, &stream[start..start + len], false);
                prop_assert_eq!(arrival == BurstDataArrival::New, is_new);
                arrived[start..start + len].fill(true);
                let mut to = vec![0; count];
                let len = buffer.read(&mut to);
                read.extend(&to[..len]);
                let end = arrived.iter().take_while(|arrived| **arrived).count();
                prop_assert_eq!(read.len(), end.min(read.len() - len + count));
                prop_assert_eq!(buffer.stream_end(), end as u64);
            }
            prop_assert_eq!(&read, &stream[..read.len()]);
        }
    }
}
