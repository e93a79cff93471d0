//! Encoding of the fields of messages. Integers are big-endian.

use keys::IdentityPublicKey;

use super::MixWireError;

/// Reads fields from the front of bytes.
pub(crate) struct MixWireReader<'a> {
    rest: &'a [u8],
}

impl<'a> MixWireReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], MixWireError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(MixWireError::Length)?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, MixWireError> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, MixWireError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, MixWireError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, MixWireError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(crate) fn key(&mut self) -> Result<IdentityPublicKey, MixWireError> {
        IdentityPublicKey::from_bytes(&self.array()?)
            .map_err(|_| MixWireError::Invalid("a public key"))
    }

    /// Bytes preceded by their number, of 32 bits: at most `max`.
    pub(crate) fn counted(&mut self, max: usize) -> Result<Vec<u8>, MixWireError> {
        let len = usize::try_from(self.u32()?).map_err(|_| MixWireError::Length)?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(MixWireError::Length)?;
        self.rest = rest;
        if len > max { Err(MixWireError::Length) } else { Ok(bytes.to_vec()) }
    }

    /// All bytes that are left: at most `max`.
    pub(crate) fn rest(&mut self, max: usize) -> Result<Vec<u8>, MixWireError> {
        let rest = std::mem::take(&mut self.rest);
        if rest.len() > max { Err(MixWireError::Length) } else { Ok(rest.to_vec()) }
    }

    /// Whether all bytes have been read.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Fails unless all bytes have been read.
    pub(crate) fn finish(self) -> Result<(), MixWireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(MixWireError::Length) }
    }
}

/// Appends bytes preceded by their number, of 32 bits.
pub(crate) fn put_counted(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(u32::try_from(bytes.len()).expect("messages are bounded").to_be_bytes());
    out.extend(bytes);
}
