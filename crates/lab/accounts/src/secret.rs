//! Secrets of invitations and sessions.

use std::fmt::{Debug, Formatter};

use random::{RandomError, RandomGenerator};
use sha2::{Digest as _, Sha256};

/// 256 random bits as hexadecimal digits. Who has them may accept an invitation, or is signed in.
#[derive(Clone)]
pub struct AccountSecret(String);

/// The length of a secret in bytes.
const SECRET_LEN: usize = 32;

/// The digest of a secret, by which the database recognises it.
pub(crate) type SecretDigest = [u8; 32];

impl AccountSecret {
    /// A random secret.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub(crate) fn new() -> Result<Self, RandomError> {
        let secret: [u8; SECRET_LEN] = RandomGenerator::system().array()?;
        Ok(Self(base16ct::lower::encode_string(&secret)))
    }

    /// The secret, for an address or a cookie.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Debug for AccountSecret {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("AccountSecret")
    }
}

/// The digest of a text that may be a secret. To look a digest up tells nothing of a secret that is
/// close to the text, so the time of the look-up does not either.
pub(crate) fn digest(text: &str) -> SecretDigest {
    Sha256::digest(text).into()
}
