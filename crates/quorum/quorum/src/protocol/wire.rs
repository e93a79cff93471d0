//! Encodings. Integers are big-endian, and a length precedes what it counts. Every parser accepts
//! any bytes, and returns an error unless they are the canonical encoding of a value.

use std::fmt;

use base16ct::HexDisplay;
use sha2::{Digest as _, Sha256};

use super::combination::{Label, ServerIndex};

/// Bytes are not the encoding of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed: {0}")]
pub struct MalformedEncoding(pub &'static str);

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256Digest(pub [u8; 32]);

impl Sha256Digest {
    /// The digest of the concatenation of `parts`.
    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part);
        }
        Self(hash.finalize().into())
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:x}", HexDisplay(&self.0))
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, out)
    }
}

/// Reads fields from the front of a byte slice.
pub(crate) struct QuorumWireReader<'a> {
    rest: &'a [u8],
}

impl<'a> QuorumWireReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], MalformedEncoding> {
        let (bytes, rest) =
            self.rest.split_at_checked(len).ok_or(MalformedEncoding("too short"))?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], MalformedEncoding> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(MalformedEncoding("too short"))?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, MalformedEncoding> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, MalformedEncoding> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, MalformedEncoding> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, MalformedEncoding> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(crate) fn digest(&mut self) -> Result<Sha256Digest, MalformedEncoding> {
        Ok(Sha256Digest(self.array()?))
    }

    /// A server's index. The caller checks that the group has such a server.
    pub(crate) fn server(&mut self) -> Result<ServerIndex, MalformedEncoding> {
        Ok(ServerIndex(self.u8()?))
    }

    /// A label. The caller checks that the group has such a label.
    pub(crate) fn label(&mut self) -> Result<Label, MalformedEncoding> {
        Ok(Label(self.u16()?))
    }

    /// Bytes with a 32-bit length prefix.
    pub(crate) fn counted(&mut self) -> Result<&'a [u8], MalformedEncoding> {
        let len = self.u32()?;
        self.bytes(usize::try_from(len).map_err(|_| MalformedEncoding("too short"))?)
    }

    /// Whether all bytes have been read.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// All remaining bytes.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Fails unless all bytes have been read.
    pub(crate) fn finish(self) -> Result<(), MalformedEncoding> {
        if self.rest.is_empty() { Ok(()) } else { Err(MalformedEncoding("too long")) }
    }
}

/// Appends fields to a buffer.
pub(crate) trait QuorumWireWrite {
    fn put_u16(&mut self, value: u16);
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
    /// Bytes with a 32-bit length prefix.
    fn put_counted(&mut self, bytes: &[u8]);
}

impl QuorumWireWrite for Vec<u8> {
    fn put_u16(&mut self, value: u16) {
        self.extend(value.to_be_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.extend(value.to_be_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend(value.to_be_bytes());
    }

    fn put_counted(&mut self, bytes: &[u8]) {
        self.put_u32(count(bytes.len()));
        self.extend(bytes);
    }
}

/// A length as it is encoded. No value here reaches 2^32.
pub(crate) fn count(len: usize) -> u32 {
    u32::try_from(len).expect("messages are bounded")
}
