//! The receive buffer of a connection: bytes in order for the reader, reordered packets, and the
//! numbers of missing packets.

use std::collections::VecDeque;
use std::ops::Range;

use super::ranges::SabulNumberRanges;

/// The window that a full receiver announces, in packets. With a window of 0, the peer would never
/// learn of free space if the next acknowledgement were lost.
const MIN_WINDOW: u64 = 2;

/// The receive buffer of a connection.
#[derive(Debug)]
pub(crate) struct SabulReceiveBuffer {
    /// Bytes in order that were not read yet.
    readable: VecDeque<u8>,
    /// The next packet in order.
    next: u64,
    /// Packets from `next` on; the first is missing. Empty if there is no reordered packet.
    waiting: VecDeque<Option<Box<[u8]>>>,
    /// The numbers that are missing before the last of `waiting`.
    missing: SabulNumberRanges,
    /// Its capacity, in packets with the longest payload.
    capacity: u64,
    max_payload: usize,
}

/// The outcome of inserting a packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SabulPacketArrival {
    /// It was inserted. The numbers before it that are now known to be missing.
    New(Range<u64>),
    /// It is a duplicate.
    Repeated,
    /// There is no free space for it at present.
    NoRoom,
    /// It is longer than agreed, or its number is far from what the peer may send.
    Refused,
}

impl SabulReceiveBuffer {
    /// Creates a buffer for `capacity` packets of `max_payload` bytes, the first with the number
    /// `first`.
    pub(crate) fn new(first: u64, max_payload: u16, capacity: u64) -> Self {
        Self {
            readable: VecDeque::new(),
            next: first,
            waiting: VecDeque::new(),
            missing: SabulNumberRanges::default(),
            capacity,
            max_payload: usize::from(max_payload),
        }
    }

    /// The next packet in order: all before it have arrived.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// The numbers that are missing before the last packet that has arrived.
    pub(crate) fn missing(&self) -> &SabulNumberRanges {
        &self.missing
    }

    /// How many packets from [`next`](Self::next) on there is space for.
    pub(crate) fn window(&self) -> u64 {
        self.room().max(MIN_WINDOW)
    }

    /// The number of bytes that can be read.
    pub(crate) fn readable(&self) -> usize {
        self.readable.len()
    }

    /// Inserts a packet.
    pub(crate) fn insert(&mut self, number: u64, payload: &[u8]) -> SabulPacketArrival {
        if payload.len() > self.max_payload {
            return SabulPacketArrival::Refused;
        }
        let Some(distance) = number.checked_sub(self.next) else {
            return SabulPacketArrival::Repeated;
        };
        if distance >= self.room() {
            let is_near = distance < self.capacity.max(MIN_WINDOW);
            return if is_near { SabulPacketArrival::NoRoom } else { SabulPacketArrival::Refused };
        }
        if distance == 0 && self.waiting.is_empty() {
            self.readable.extend(payload);
            self.next += 1;
            return SabulPacketArrival::New(number..number);
        }
        let Ok(position) = usize::try_from(distance) else { return SabulPacketArrival::Refused };
        let end = self.next + self.waiting.len() as u64;
        let mut gap = number..number;
        if position >= self.waiting.len() {
            gap = end..number;
            self.waiting.resize_with(position + 1, || None);
            self.missing.insert(gap.clone());
        } else if self.waiting[position].is_some() {
            return SabulPacketArrival::Repeated;
        } else {
            self.missing.remove(number..number + 1);
        }
        self.waiting[position] = Some(payload.into());
        while let Some(Some(_)) = self.waiting.front() {
            if let Some(Some(payload)) = self.waiting.pop_front() {
                self.readable.extend(&payload[..]);
                self.next += 1;
            }
        }
        SabulPacketArrival::New(gap)
    }

    /// Copies bytes to the reader and removes them. Returns how many.
    pub(crate) fn read(&mut self, to: &mut [u8]) -> usize {
        let len = to.len().min(self.readable.len());
        let (front, back) = self.readable.as_slices();
        let in_front = len.min(front.len());
        to[..in_front].copy_from_slice(&front[..in_front]);
        to[in_front..len].copy_from_slice(&back[..len - in_front]);
        self.readable.drain(..len);
        len
    }

    /// How many packets from `next` on fit beside the unread bytes.
    fn room(&self) -> u64 {
        self.capacity.saturating_sub(self.readable.len().div_ceil(self.max_payload) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_in_any_order_are_a_stream() {
        let mut buffer = SabulReceiveBuffer::new(100, 4, 10);
        assert_eq!(buffer.insert(100, b"abcd"), SabulPacketArrival::New(100..100));
        assert_eq!(buffer.insert(104, b"q"), SabulPacketArrival::New(101..104));
        assert_eq!(buffer.insert(102, b"ij"), SabulPacketArrival::New(102..102));
        assert_eq!(buffer.insert(102, b"ij"), SabulPacketArrival::Repeated);
        assert_eq!(buffer.insert(99, b"x"), SabulPacketArrival::Repeated);
        assert_eq!(buffer.missing().iter().collect::<Vec<_>>(), [101..102, 103..104]);
        assert_eq!((buffer.next(), buffer.readable()), (101, 4));
        assert_eq!(buffer.insert(101, b"efgh"), SabulPacketArrival::New(101..101));
        assert_eq!(buffer.insert(103, b"klmn"), SabulPacketArrival::New(103..103));
        assert_eq!(buffer.next(), 105);
        let mut read = [0; 20];
        assert_eq!(buffer.read(&mut read), 15);
        assert_eq!(&read[..15], b"abcdefghijklmnq");
        assert!(buffer.missing().is_empty());
    }

    #[test]
    fn it_is_bounded() {
        let mut buffer = SabulReceiveBuffer::new(0, 4, 3);
        assert_eq!(buffer.insert(3, b"abcd"), SabulPacketArrival::Refused);
        assert_eq!(buffer.insert(0, b"abcde"), SabulPacketArrival::Refused);
        for number in 0..3 {
            assert_eq!(buffer.insert(number, b"abcd"), SabulPacketArrival::New(number..number));
        }
        assert_eq!(
            (buffer.insert(3, b"abcd"), buffer.window()),
            (SabulPacketArrival::NoRoom, MIN_WINDOW)
        );
        assert_eq!(buffer.read(&mut [0; 4]), 4);
        assert_eq!(buffer.insert(3, b"abcd"), SabulPacketArrival::New(3..3));
    }
}
