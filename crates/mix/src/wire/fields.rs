//! Fields of messages: integers are big-endian.

use keys::PublicKey;

use super::WireError;

/// Reads fields from the front of bytes.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(WireError::Length)?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, WireError> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(crate) fn key(&mut self) -> Result<PublicKey, WireError> {
        PublicKey::from_bytes(&self.array()?).map_err(|_| WireError::Invalid("a public key"))
    }

    /// Bytes preceded by their number, of 32 bits: at most `max`.
    pub(crate) fn counted(&mut self, max: usize) -> Result<Vec<u8>, WireError> {
        let len = usize::try_from(self.u32()?).map_err(|_| WireError::Length)?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(WireError::Length)?;
        self.rest = rest;
        if len > max { Err(WireError::Length) } else { Ok(bytes.to_vec()) }
    }

    /// All bytes that are left: at most `max`.
    pub(crate) fn rest(&mut self, max: usize) -> Result<Vec<u8>, WireError> {
        let rest = std::mem::take(&mut self.rest);
        if rest.len() > max { Err(WireError::Length) } else { Ok(rest.to_vec()) }
    }

    /// Whether all bytes have been read.
    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Fails unless all bytes have been read.
    pub(crate) fn finish(self) -> Result<(), WireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(WireError::Length) }
    }
}

/// Appends bytes preceded by their number, of 32 bits.
pub(crate) fn put_counted(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(u32::try_from(bytes.len()).expect("messages are bounded").to_be_bytes());
    out.extend(bytes);
}
