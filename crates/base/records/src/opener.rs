//! Decrypts records.

use std::ops::Range;

use zeroize::Zeroizing;

use crate::cipher::{RecordCipher, RecordKeys, TAG_LEN};
use crate::{HEADER_LEN, MAX_RECORD_LEN};

/// The size of the receive buffer.
const BUFFER_LEN: usize = 4 * MAX_RECORD_LEN;

/// A record that the peer did not send next: it was changed or repeated, or records are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidRecordError;

/// The kind of the next record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenedRecord {
    /// It has not arrived completely.
    Incomplete,
    /// Data, which [`RecordOpener::read`] returns.
    Data,
    /// The end of the stream. Later bytes are ignored.
    End,
}

/// Decrypts the records of one direction. Its memory is wiped when it is dropped.
pub struct RecordOpener {
    keys: RecordKeys,
    bytes: Zeroizing<Vec<u8>>,
    /// The unread part of the current chunk.
    chunk: Range<usize>,
    /// What has arrived and is not decrypted yet, after the chunk.
    arrived: Range<usize>,
    has_ended: bool,
}

impl RecordOpener {
    /// Creates an opener with the secret of the direction, which only this opener and the peer's
    /// sealer may use.
    pub fn new(cipher: RecordCipher, secret: &[u8; 32]) -> Self {
        Self {
            keys: RecordKeys::new(cipher, secret),
            bytes: Zeroizing::new(vec![0; BUFFER_LEN]),
            chunk: 0..0,
            arrived: 0..0,
            has_ended: false,
        }
    }

    /// Free space for received bytes. It is empty only while there is data to read.
    pub fn receive_space(&mut self) -> &mut [u8] {
        let Range { start, end } = self.arrived;
        let is_tight = start > 0 && BUFFER_LEN - end < MAX_RECORD_LEN;
        if self.chunk.is_empty() && is_tight {
            self.bytes.copy_within(start..end, 0);
            self.arrived = 0..end - start;
        }
        &mut self.bytes[self.arrived.end..]
    }

    /// Records that `count` bytes were received into that space.
    ///
    /// # Panics
    /// If that is more than the space.
    pub fn commit_received(&mut self, count: usize) {
        self.arrived.end += count;
        assert!(self.arrived.end <= BUFFER_LEN, "no more bytes than there is room for");
    }

    /// Decrypts the next record, unless data of the last one is still unread.
    ///
    /// # Errors
    /// If the record is not the one that the peer sent next. The connection must be closed.
    pub fn poll(&mut self) -> Result<OpenedRecord, InvalidRecordError> {
        if !self.chunk.is_empty() {
            return Ok(OpenedRecord::Data);
        }
        if self.has_ended {
            return Ok(OpenedRecord::End);
        }
        let start = self.arrived.start;
        let arrived = &mut self.bytes[self.arrived.clone()];
        let Some((header, rest)) = arrived.split_first_chunk_mut::<HEADER_LEN>() else {
            return Ok(OpenedRecord::Incomplete);
        };
        let len = usize::from(u16::from_be_bytes(*header));
        if len < TAG_LEN {
            return Err(InvalidRecordError);
        }
        let Some(record) = rest.get_mut(..len) else { return Ok(OpenedRecord::Incomplete) };
        let opened = self.keys.open(record).ok_or(InvalidRecordError)?;
        self.chunk = start + HEADER_LEN..start + HEADER_LEN + opened;
        self.arrived.start = start + HEADER_LEN + len;
        self.has_ended = opened == 0;
        Ok(if self.has_ended { OpenedRecord::End } else { OpenedRecord::Data })
    }

    /// Reads data of the record. Returns its length, which is 0 only if there is no data, or `to`
    /// is empty.
    pub fn read(&mut self, to: &mut [u8]) -> usize {
        let count = to.len().min(self.chunk.len());
        to[..count].copy_from_slice(&self.bytes[self.chunk.start..][..count]);
        self.chunk.start += count;
        if self.chunk.is_empty() && self.arrived.is_empty() {
            self.arrived = 0..0;
        }
        count
    }

    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, number: u64) {
        self.keys.skip_to(number);
    }
}

impl std::fmt::Debug for RecordOpener {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("RecordOpener(..)")
    }
}
