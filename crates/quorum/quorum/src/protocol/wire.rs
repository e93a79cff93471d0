//! Encodings. Integers are big-endian, and a length precedes what it counts. Every parser accepts
//! any bytes, and returns an error unless they are the canonical encoding of a value.

use std::fmt;

use base16ct::HexDisplay;
use encoding::{FieldError, FieldReader};
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

impl From<FieldError> for MalformedEncoding {
    fn from(error: FieldError) -> Self {
        Self(match error {
            FieldError::Short => "too short",
            FieldError::Long => "too long",
            FieldError::NotText => "not text",
        })
    }
}

/// Reads fields of several messages.
pub(crate) trait QuorumFields {
    fn digest(&mut self) -> Result<Sha256Digest, MalformedEncoding>;
    /// A server's index. The caller checks that the group has such a server.
    fn server(&mut self) -> Result<ServerIndex, MalformedEncoding>;
    /// A label. The caller checks that the group has such a label.
    fn label(&mut self) -> Result<Label, MalformedEncoding>;
}

impl QuorumFields for FieldReader<'_> {
    fn digest(&mut self) -> Result<Sha256Digest, MalformedEncoding> {
        Ok(Sha256Digest(self.take()?))
    }

    fn server(&mut self) -> Result<ServerIndex, MalformedEncoding> {
        Ok(ServerIndex(self.u8()?))
    }

    fn label(&mut self) -> Result<Label, MalformedEncoding> {
        Ok(Label(self.u16()?))
    }
}
