//! Secrets of invitations and sessions.

use std::fmt::{Debug, Formatter};

use random::{RandomError, RandomGenerator};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// 256 random bits as hexadecimal digits. Who has them may accept an invitation, or is signed in.
#[derive(Clone)]
pub struct AccountSecret(Zeroizing<String>);

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
        let secret: Zeroizing<[u8; SECRET_LEN]> =
            Zeroizing::new(RandomGenerator::system().array()?);
        Ok(Self(Zeroizing::new(base16ct::lower::encode_string(&*secret))))
    }

    /// A text that a browser presents as its secret.
    pub fn presented(text: &str) -> Self {
        Self(Zeroizing::new(text.to_owned()))
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
