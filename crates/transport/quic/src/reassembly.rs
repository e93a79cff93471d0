//! The reorder buffer of a stream.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Buf, Bytes};

/// Parts of a stream that have arrived in any order, stored without overlaps.
#[derive(Debug, Default)]
pub(crate) struct QuicReorderBuffer {
    /// In order, not read yet.
    ready: VecDeque<Bytes>,
    ready_len: usize,
    /// Parts that wait for bytes before them, by the position of their first byte.
    waiting: BTreeMap<u64, Bytes>,
    waiting_len: usize,
    /// The position of the next byte in order.
    next: u64,
}

impl QuicReorderBuffer {
    /// Inserts a part.
    pub(crate) fn insert(&mut self, position: u64, bytes: Bytes) {
        if position != self.next {
            self.waiting_len += bytes.len();
            self.waiting.insert(position, bytes);
            return;
        }
        self.append(bytes);
        while let Some(entry) = self.waiting.first_entry()
            && *entry.key() == self.next
        {
            let bytes = entry.remove();
            self.waiting_len -= bytes.len();
            self.append(bytes);
        }
    }

    fn append(&mut self, bytes: Bytes) {
        self.next += bytes.len() as u64;
        self.ready_len += bytes.len();
        self.ready.push_back(bytes);
    }

    /// The number of bytes in the buffer.
    pub(crate) fn len(&self) -> usize {
        self.ready_len + self.waiting_len
    }

    /// How many bytes can be read.
    pub(crate) fn ready_len(&self) -> usize {
        self.ready_len
    }

    /// Copies bytes to the reader and removes them. Returns how many.
    pub(crate) fn read(&mut self, mut to: &mut [u8]) -> usize {
        let mut moved = 0;
        while let Some(first) = self.ready.front_mut()
            && !to.is_empty()
        {
            let len = first.len().min(to.len());
            let (part, rest) = to.split_at_mut(len);
            first.copy_to_slice(part);
            if first.is_empty() {
                self.ready.pop_front();
            }
            moved += len;
            to = rest;
        }
        self.ready_len -= moved;
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_in_any_order_are_a_stream() {
        let mut parts = QuicReorderBuffer::default();
        for (position, bytes) in [(3, "de"), (8, "ij"), (5, "fgh"), (0, "abc"), (10, "k")] {
            parts.insert(position, Bytes::from(bytes));
        }
        assert_eq!((parts.len(), parts.ready_len()), (11, 11));
        let mut read = [0; 4];
        assert_eq!(parts.read(&mut read), 4);
        assert_eq!(&read, b"abcd");
        let mut rest = [0; 20];
        assert_eq!(parts.read(&mut rest), 7);
        assert_eq!(&rest[..7], b"efghijk");
        assert_eq!(parts.len(), 0);
    }
}
