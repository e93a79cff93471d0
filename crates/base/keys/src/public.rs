//! Public keys that verify signatures of groups of servers: Ed25519 (RFC 8032) or RSA.

use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::file::{KEY_LEN, KeyFileError, read_into};
use crate::identity::IdentityPublicKey;
use crate::rsa::pem;
use crate::rsa::{MAX_FILE, RsaKeyError, RsaPublicKey};

/// The `SubjectPublicKeyInfo` of an Ed25519 key before the key (RFC 8410, 4).
const ED25519_PREFIX: [u8; 12] = [0x30, 42, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 33, 0];

/// An Ed25519 public key. Signatures are verified strictly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ed25519PublicKey(IdentityPublicKey);

/// A public key of either kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnyPublicKey {
    /// An RSA key.
    Rsa(RsaPublicKey),
    /// An Ed25519 key.
    Ed25519(Ed25519PublicKey),
}

/// Why a text or bytes are not a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublicKeyError {
    /// It is not a PEM text of a public key in canonical form.
    #[error("this is not a public key in PEM form (\"BEGIN PUBLIC KEY\")")]
    Form,
    /// It is not a valid RSA key.
    #[error(transparent)]
    Rsa(#[from] RsaKeyError),
    /// It is not a valid Ed25519 key.
    #[error("the point is not that of an Ed25519 key")]
    Ed25519,
}

impl Ed25519PublicKey {
    /// Decodes a key (RFC 8032, 5.1.5).
    ///
    /// # Errors
    /// If the bytes are not a public key, or are a weak one.
    pub fn from_bytes(bytes: &[u8; KEY_LEN]) -> Result<Self, PublicKeyError> {
        IdentityPublicKey::from_bytes(bytes).map(Self).map_err(|_| PublicKeyError::Ed25519)
    }

    /// The key's encoding (RFC 8032, 5.1.2).
    pub fn to_bytes(&self) -> [u8; KEY_LEN] {
        self.0.to_bytes()
    }

    /// The key as a `SubjectPublicKeyInfo` in DER.
    pub fn to_der(&self) -> Vec<u8> {
        [&ED25519_PREFIX[..], &self.to_bytes()].concat()
    }

    /// Whether `signature` is this key's signature of the message, of 64 bytes.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        signature.try_into().is_ok_and(|signature| self.0.verify(message, signature))
    }
}

impl AnyPublicKey {
    /// The key in a `SubjectPublicKeyInfo` in PEM form, as written by [`Self::to_pem`] or `openssl
    /// pkey -pubout`.
    ///
    /// # Errors
    /// If the text is anything else, or a key that is not valid.
    pub fn from_pem(text: &str) -> Result<Self, PublicKeyError> {
        let der = pem::decode(text).ok_or(PublicKeyError::Form)?;
        match der.strip_prefix(&ED25519_PREFIX) {
            Some(key) => {
                let key = key.try_into().map_err(|_| PublicKeyError::Form)?;
                Ed25519PublicKey::from_bytes(key).map(Self::Ed25519)
            }
            None => match RsaPublicKey::from_pem(text) {
                Err(RsaKeyError::Form) => Err(PublicKeyError::Form),
                key => Ok(Self::Rsa(key?)),
            },
        }
    }

    /// Reads a key from its file, which is in PEM form.
    ///
    /// # Errors
    /// When the file cannot be read or contains no such key.
    pub fn read(path: &Path) -> Result<Self, KeyFileError> {
        // Bounded: the path may be a disk by mistake.
        let mut text = [0; MAX_FILE];
        let len = read_into(path, &mut text, || "copy it from where it is".into())?;
        let text = str::from_utf8(&text[..len]).map_err(|_| PublicKeyError::Form);
        text.and_then(Self::from_pem)
            .map_err(|why| KeyFileError::Public { path: path.to_owned(), why: why.to_string() })
    }

    /// The key as a `SubjectPublicKeyInfo` in PEM form, which `openssl` reads.
    pub fn to_pem(&self) -> String {
        pem::encode(&self.to_der())
    }

    /// The key as a `SubjectPublicKeyInfo` in DER.
    pub fn to_der(&self) -> Vec<u8> {
        match self {
            Self::Rsa(key) => key.to_der(),
            Self::Ed25519(key) => key.to_der(),
        }
    }

    /// The SHA-256 of [`Self::to_der`].
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.to_der()).into()
    }

    /// Whether `signature` is this key's signature of the message: of RSA in one of the encodings
    /// of [`RsaPublicKey::verify`].
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Rsa(key) => key.verify(message, signature),
            Self::Ed25519(key) => key.verify(message, signature),
        }
    }

    /// The RSA key, if it is one.
    pub fn rsa(&self) -> Option<&RsaPublicKey> {
        if let Self::Rsa(key) = self { Some(key) } else { None }
    }
}

impl From<RsaPublicKey> for AnyPublicKey {
    fn from(key: RsaPublicKey) -> Self {
        Self::Rsa(key)
    }
}

impl From<Ed25519PublicKey> for AnyPublicKey {
    fn from(key: Ed25519PublicKey) -> Self {
        Self::Ed25519(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::IdentitySecretKey;

    /// RFC 8410, 10.1.
    const PEM: &str = "-----BEGIN PUBLIC KEY-----\n\
                       MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n\
                       -----END PUBLIC KEY-----\n";

    #[test]
    fn an_ed25519_key_is_read_as_written_and_verifies() {
        let key = AnyPublicKey::from_pem(PEM).unwrap();
        assert!(matches!(key, AnyPublicKey::Ed25519(_)) && key.rsa().is_none());
        assert_eq!(key.to_pem(), PEM);
        let cut = PEM.replace("ZuE=", "Zg==");
        assert_eq!(AnyPublicKey::from_pem(&cut), Err(PublicKeyError::Form));
        assert_eq!(AnyPublicKey::from_pem("a key"), Err(PublicKeyError::Form));
        let secret = IdentitySecretKey::new(&[7; 32]);
        let key = Ed25519PublicKey::from_bytes(&secret.public().to_bytes()).unwrap();
        let signature = secret.sign(b"message");
        assert!(key.verify(b"message", &signature) && !key.verify(b"massage", &signature));
        assert!(!key.verify(b"message", &signature[1..]));
        assert_eq!(Ed25519PublicKey::from_bytes(&[0; 32]), Err(PublicKeyError::Ed25519));
    }
}
