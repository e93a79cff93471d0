//! Encoding of a member's stored state.

use zeroize::Zeroizing;

/// The bytes are not a stored state of conversations of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the state of conversations of this version")]
pub struct ConversationStateError;

/// Appends bytes, preceded by their length.
pub(crate) fn put_bytes(out: &mut Zeroizing<Vec<u8>>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("what is stored is short");
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(bytes);
}

/// The unread rest of a stored state.
pub(crate) struct ConversationStateReader<'a>(pub(crate) &'a [u8]);

impl<'a> ConversationStateReader<'a> {
    pub(crate) fn byte(&mut self) -> Result<u8, ConversationStateError> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, ConversationStateError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, ConversationStateError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], ConversationStateError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(ConversationStateError)?;
        self.0 = rest;
        Ok(*array)
    }

    /// Reads a length, of at most `max`, and that number of bytes.
    pub(crate) fn bytes(&mut self, max: usize) -> Result<&'a [u8], ConversationStateError> {
        let len = self.u32()? as usize;
        if len > max {
            return Err(ConversationStateError);
        }
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(ConversationStateError)?;
        self.0 = rest;
        Ok(bytes)
    }
}
