//! Fields of several messages.

use encoding::{FieldError, FieldReader};
use keys::IdentityPublicKey;

use super::MixWireError;

impl From<FieldError> for MixWireError {
    fn from(_: FieldError) -> Self {
        Self::Length
    }
}

/// Reads fields of several messages.
pub(crate) trait MixFields {
    fn key(&mut self) -> Result<IdentityPublicKey, MixWireError>;

    /// All bytes that are left: at most `max`.
    fn body(&mut self, max: usize) -> Result<Vec<u8>, MixWireError>;
}

impl MixFields for FieldReader<'_> {
    fn key(&mut self) -> Result<IdentityPublicKey, MixWireError> {
        IdentityPublicKey::from_bytes(&self.take()?)
            .map_err(|_| MixWireError::Invalid("a public key"))
    }

    fn body(&mut self, max: usize) -> Result<Vec<u8>, MixWireError> {
        Ok(self.rest_up_to(max)?.to_vec())
    }
}
