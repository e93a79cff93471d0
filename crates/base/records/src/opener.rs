//! Taking records.

use std::ops::Range;

use zeroize::Zeroizing;

use crate::cipher::{RecordCipher, RecordKeys, TAG_LEN};
use crate::{HEADER_LEN, MAX_RECORD_LEN};

/// How much is read at a time.
const BUFFER_LEN: usize = 4 * MAX_RECORD_LEN;

/// A record that the peer has not sent: it was changed, repeated, or is not the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidRecordError;

/// What the next record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenedRecord {
    /// It is not complete: more bytes have to come.
    Incomplete,
    /// Data, to be taken by [`RecordOpener::read`].
    Data,
    /// The end of the stream. What comes after it is ignored.
    End,
}

/// Takes the records of one direction. What it holds is wiped when it is dropped.
pub struct RecordOpener {
    keys: RecordKeys,
    bytes: Zeroizing<Vec<u8>>,
    /// The part of the chunk that is not read.
    chunk: Range<usize>,
    /// What has arrived and is not decrypted, behind the chunk.
    arrived: Range<usize>,
    has_ended: bool,
}

impl RecordOpener {
    /// With the secret of the direction, which only this opener and the peer's sealer use.
    pub fn new(cipher: RecordCipher, secret: &[u8; 32]) -> Self {
        Self {
            keys: RecordKeys::new(cipher, secret),
            bytes: Zeroizing::new(vec![0; BUFFER_LEN]),
            chunk: 0..0,
            arrived: 0..0,
            has_ended: false,
        }
    }

    /// Room for bytes that arrive: empty only while there is data to read.
    pub fn receive_space(&mut self) -> &mut [u8] {
        let Range { start, end } = self.arrived;
        let is_tight = start > 0 && BUFFER_LEN - end < MAX_RECORD_LEN;
        if self.chunk.is_empty() && is_tight {
            self.bytes.copy_within(start..end, 0);
            self.arrived = 0..end - start;
        }
        &mut self.bytes[self.arrived.end..]
    }

    /// So many bytes are in the room now.
    ///
    /// # Panics
    /// If there are more than the room has.
    pub fn commit_received(&mut self, count: usize) {
        self.arrived.end += count;
        assert!(self.arrived.end <= BUFFER_LEN, "no more bytes than there is room for");
    }

    /// Decrypts the next record, unless data of the last one is to be read.
    ///
    /// # Errors
    /// When the record is not what the peer has sent next. The connection must be closed.
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

    /// Takes data of the record. Returns its length: 0 only if there is none, or no room.
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
