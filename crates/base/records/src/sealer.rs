//! Encrypts records.

use zeroize::Zeroizing;

use crate::cipher::{RecordCipher, RecordKeys, TAG_LEN};
use crate::{HEADER_LEN, MAX_CHUNK_LEN, MAX_RECORD_LEN};

/// A record whose chunk is being collected. Wiped when dropped; after sealing it is encrypted.
pub struct RecordBuffer {
    /// Space for the header, and the chunk.
    bytes: Zeroizing<Vec<u8>>,
    is_sealed: bool,
}

impl RecordBuffer {
    /// Creates an empty buffer.
    pub fn new() -> Self {
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_RECORD_LEN));
        bytes.resize(HEADER_LEN, 0);
        Self { bytes, is_sealed: false }
    }

    /// Appends as many bytes to the chunk as there is room for. Returns how many. After sealing, a
    /// new chunk begins.
    pub fn extend(&mut self, bytes: &[u8]) -> usize {
        if self.is_sealed {
            self.bytes.truncate(HEADER_LEN);
            self.is_sealed = false;
        }
        let count = bytes.len().min(MAX_CHUNK_LEN - self.len());
        self.bytes.extend_from_slice(&bytes[..count]);
        count
    }

    /// The length of the chunk that is being collected.
    pub fn len(&self) -> usize {
        if self.is_sealed { 0 } else { self.bytes.len() - HEADER_LEN }
    }

    /// Whether the chunk is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the chunk is full.
    pub fn is_full(&self) -> bool {
        self.len() == MAX_CHUNK_LEN
    }

    /// The chunk without encryption, for a connection that has none. Afterwards a new chunk begins.
    pub fn take_plaintext(&mut self) -> &[u8] {
        self.extend(&[]);
        self.is_sealed = true;
        &self.bytes[HEADER_LEN..]
    }
}

impl Default for RecordBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for RecordBuffer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("RecordBuffer").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Encrypts the records of one direction.
pub struct RecordSealer(RecordKeys);

impl RecordSealer {
    /// Creates a sealer with the secret of the direction, which only this sealer and the peer's
    /// opener may use.
    pub fn new(cipher: RecordCipher, secret: &[u8; 32]) -> Self {
        Self(RecordKeys::new(cipher, secret))
    }

    /// Encrypts the chunk as the next record. Returns the bytes of the record. An empty chunk is
    /// the end of the stream.
    ///
    /// # Panics
    /// After 2^64 records.
    pub fn seal<'a>(&mut self, record: &'a mut RecordBuffer) -> &'a [u8] {
        record.extend(&[]);
        record.is_sealed = true;
        let bytes = &mut record.bytes;
        let len = u16::try_from(bytes.len() - HEADER_LEN + TAG_LEN).expect("a chunk fits a record");
        bytes[..HEADER_LEN].copy_from_slice(&len.to_be_bytes());
        let tag = self.0.seal(&mut bytes[HEADER_LEN..]);
        bytes.extend_from_slice(tag.as_ref());
        bytes
    }

    #[cfg(test)]
    pub(crate) fn skip_to(&mut self, number: u64) {
        self.0.skip_to(number);
    }
}

impl std::fmt::Debug for RecordSealer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("RecordSealer(..)")
    }
}
