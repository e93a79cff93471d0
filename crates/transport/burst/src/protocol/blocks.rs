//! A part of a stream, stored in blocks by stream offset. Only blocks that were written use memory.

use std::collections::VecDeque;

pub(in crate::protocol) const BLOCK_LEN: usize = 64 << 10;

/// The number of free blocks that are kept for reuse.
const MAX_SPARE: usize = 16;

#[derive(Default)]
pub(in crate::protocol) struct BurstStreamBlocks {
    /// The number of the first block, in blocks from the start of the stream.
    first: u64,
    held: VecDeque<Option<Box<[u8]>>>,
    spare: Vec<Box<[u8]>>,
}

impl BurstStreamBlocks {
    /// Writes bytes. Bytes before the released offset are ignored.
    pub(in crate::protocol) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let start = (self.first * BLOCK_LEN as u64).saturating_sub(offset);
        let Some(mut rest) = usize::try_from(start).ok().and_then(|start| bytes.get(start..))
        else {
            return;
        };
        let mut offset = offset + start;
        while !rest.is_empty() {
            let (index, within) = self.position(offset);
            if self.held.len() <= index {
                self.held.resize_with(index + 1, || None);
            }
            let block = self.held[index].get_or_insert_with(|| {
                self.spare.pop().unwrap_or_else(|| vec![0; BLOCK_LEN].into_boxed_slice())
            });
            let len = rest.len().min(BLOCK_LEN - within);
            block[within..within + len].copy_from_slice(&rest[..len]);
            offset += len as u64;
            rest = &rest[len..];
        }
    }

    /// Reads bytes. Bytes that were never written, or were released, are read as zeros.
    pub(in crate::protocol) fn read(&self, offset: u64, mut to: &mut [u8]) {
        let mut offset = offset;
        while !to.is_empty() {
            let (index, within) = self.position(offset);
            let len = to.len().min(BLOCK_LEN - within);
            let (now, rest) = std::mem::take(&mut to).split_at_mut(len);
            match self.held.get(index) {
                Some(Some(block)) => now.copy_from_slice(&block[within..within + len]),
                _ => now.fill(0),
            }
            to = rest;
            offset += len as u64;
        }
    }

    /// The number of blocks.
    #[cfg(any(fuzzing, test))]
    pub(in crate::protocol) fn count(&self) -> usize {
        self.held.iter().flatten().count()
    }

    /// Releases the bytes before an offset.
    pub(in crate::protocol) fn release(&mut self, before: u64) {
        let first = before / BLOCK_LEN as u64;
        while self.first < first {
            if let Some(Some(block)) = self.held.pop_front()
                && self.spare.len() < MAX_SPARE
            {
                self.spare.push(block);
            }
            self.first += 1;
            if self.held.is_empty() {
                self.first = first;
            }
        }
    }

    /// The index of the block of an offset, and the position in that block.
    fn position(&self, offset: u64) -> (usize, usize) {
        let block = (offset / BLOCK_LEN as u64).saturating_sub(self.first);
        let within = offset % BLOCK_LEN as u64;
        // Offsets are within a buffer's capacity, which is a `usize`.
        (usize::try_from(block).unwrap_or(usize::MAX - 1), usize::try_from(within).unwrap_or(0))
    }
}

/// Without the bytes of the stream.
impl std::fmt::Debug for BurstStreamBlocks {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("BurstStreamBlocks").field("first", &self.first).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_until_it_is_released() {
        let mut blocks = BurstStreamBlocks::default();
        let bytes: Vec<u8> = (0..200_000_u32).map(|index| index.to_le_bytes()[0]).collect();
        blocks.write(100, &bytes[..100_000]);
        blocks.write(100_100, &bytes[100_000..]);
        let mut read = vec![0; 200_000];
        blocks.read(100, &mut read);
        assert!(read == bytes);
        blocks.release(150_000);
        let mut tail = vec![0; 50_000];
        blocks.read(150_000, &mut tail);
        assert_eq!(tail, bytes[149_900..199_900]);
        // Bytes that were released are not written again.
        blocks.write(131_000, &[255; 100]);
        let mut read = [0; 28];
        blocks.read(131_072, &mut read);
        assert_eq!(read, [255; 28]);
        blocks.release(1 << 40);
        blocks.write(1 << 40, b"far");
        let mut read = [0; 3];
        blocks.read(1 << 40, &mut read);
        assert_eq!(&read, b"far");
    }
}
