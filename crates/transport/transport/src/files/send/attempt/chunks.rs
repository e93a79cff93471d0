//! Sends the chunks of a file that the receiver's older version does not have.

use std::io::Write;
use std::time::Instant;

use sha2::{Digest, Sha256};

use super::{FileDataWriter, FileSendError};
use crate::files::REPORT_INTERVAL;
use crate::protocol::file::{
    FileChunkList, FileChunkRun, FileSenderMessage, MAX_CHUNKS_IN_MESSAGE, MAX_DATA_LEN, invalid,
};

/// How far after the receiver's position data is sent. While the receiver copies a long part of its
/// older version, it reads nothing, and a write that waits for too long would fail.
const MAX_AHEAD: u64 = 256 << 20;

impl FileDataWriter<'_> {
    /// Sends the list of all chunks. Afterwards, the state of the digest is that of the whole file.
    pub(super) fn send_list(&mut self) -> Result<FileChunkList, FileSendError> {
        // Reading the file takes time.
        let is_second = std::mem::replace(&mut self.has_listed, true);
        let list = FileChunkList::new(self.file.length).filter(|_| !is_second);
        let unasked = || {
            FileSendError::Broken(invalid("the receiver asks for chunks twice, or of a short file"))
        };
        let mut list = list.ok_or_else(unasked)?;
        self.progress.update(|state| state.is_comparing = true);
        self.state = Sha256::new();
        let (mut unsent, mut sent_at) = (Vec::new(), Instant::now());
        for chunk in self.file.chunks(list.lengths())? {
            let (chunk, data) = chunk.map_err(|error| self.file.failed(error))?;
            list.add(chunk).map_err(|_| self.file.changed())?;
            self.state.update(&data);
            unsent.push(chunk);
            if unsent.len() == MAX_CHUNKS_IN_MESSAGE || sent_at.elapsed() >= REPORT_INTERVAL {
                self.put(&FileSenderMessage::Chunks(std::mem::take(&mut unsent)))?;
                self.flush()?;
                sent_at = Instant::now();
            }
        }
        if !list.is_complete() {
            return Err(self.file.changed());
        }
        if !unsent.is_empty() {
            self.put(&FileSenderMessage::Chunks(unsent))?;
        }
        self.flush()?;
        self.progress.update(|state| state.is_comparing = false);
        Ok(list)
    }

    /// Sends the data of these chunks. Afterwards, the offset is at the end of the file.
    pub(super) fn send_chunks(&mut self, runs: &[FileChunkRun]) -> Result<(), FileSendError> {
        let list = self.list.take();
        let list = list.ok_or_else(|| invalid("the receiver wants chunks that it does not know"));
        let ranges = list.and_then(|list| list.ranges(runs)).map_err(FileSendError::Broken)?;
        let wanted: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let had = self.file.length - wanted;
        self.progress.update(|state| state.initial_position = Some(had));
        for range in ranges {
            if !self.wait_until_near(range.start)? {
                return Ok(());
            }
            self.file.seek(range.start)?;
            let mut left = range.end - range.start;
            while left > 0 {
                let count = usize::try_from(left).unwrap_or(MAX_DATA_LEN).min(MAX_DATA_LEN);
                self.file.read(&mut self.buffer[..count])?;
                self.put(&FileSenderMessage::Data(count))?;
                self.writer.write_all(&self.buffer[..count]).map_err(FileSendError::Broken)?;
                left -= count as u64;
            }
        }
        self.offset = self.file.length;
        Ok(())
    }

    /// Waits until the receiver is near this offset. Returns false if it has asked for something
    /// else, or the transfer has ended.
    fn wait_until_near(&mut self, offset: u64) -> Result<bool, FileSendError> {
        let is_far = |position: u64| offset.saturating_sub(position) > MAX_AHEAD;
        if is_far(self.progress.lock().position) {
            self.flush()?;
        }
        loop {
            let state = self.progress.lock();
            if state.has_news() {
                return Ok(false);
            }
            if !is_far(state.position) {
                return Ok(true);
            }
            drop(state);
            self.progress
                .wait_while(REPORT_INTERVAL, |state| is_far(state.position) && !state.has_news());
        }
    }
}
