//! The send buffer: bytes that were written and are not acknowledged.

use crate::protocol::blocks::BurstStreamBlocks;

#[derive(Debug)]
pub(super) struct BurstSendBuffer {
    blocks: BurstStreamBlocks,
    capacity: u64,
    /// Everything before this offset has arrived at the peer.
    acked_to: u64,
    written_to: u64,
}

impl BurstSendBuffer {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            blocks: BurstStreamBlocks::default(),
            capacity: capacity as u64,
            acked_to: 0,
            written_to: 0,
        }
    }

    /// Everything before this offset has arrived.
    pub(super) fn acked_to(&self) -> u64 {
        self.acked_to
    }

    /// The end of what was written.
    pub(super) fn written_to(&self) -> u64 {
        self.written_to
    }

    /// Whether there is enough free space to wake a waiting writer.
    pub(super) fn has_room(&self) -> bool {
        self.room() * 8 >= self.capacity
    }

    fn room(&self) -> u64 {
        self.capacity - (self.written_to - self.acked_to)
    }

    /// Copies as many bytes as there is room for. Returns their number.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        let len = usize::try_from(self.room()).unwrap_or(usize::MAX).min(bytes.len());
        self.blocks.write(self.written_to, &bytes[..len]);
        self.written_to += len as u64;
        len
    }

    /// Copies bytes that were written and are not acknowledged.
    pub(super) fn copy(&self, offset: u64, to: &mut [u8]) {
        self.blocks.read(offset, to);
    }

    /// Releases everything before an offset, which has arrived.
    pub(super) fn acknowledge(&mut self, to: u64) {
        self.acked_to = self.acked_to.max(to.min(self.written_to));
        self.blocks.release(self.acked_to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_bounded_by_what_is_not_acknowledged() {
        let mut buffer = BurstSendBuffer::new(8);
        assert_eq!((buffer.write(b"abcdef"), buffer.write(b"ghij")), (6, 2));
        assert_eq!((buffer.write(b"x"), buffer.has_room()), (0, false));
        buffer.acknowledge(3);
        assert_eq!((buffer.has_room(), buffer.write(b"ijklm")), (true, 3));
        let mut bytes = [0; 8];
        buffer.copy(3, &mut bytes);
        assert_eq!(&bytes, b"defghijk");
        buffer.acknowledge(100);
        assert_eq!((buffer.acked_to(), buffer.written_to()), (11, 11));
    }
}
