//! The algorithms of signatures in X.509 and CMS.

use keys::AnyPublicKey;

use crate::der::{NULL, OID, SEQUENCE};

/// The algorithm of a signature in X.509 and CMS: the one of each kind of key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureAlgorithm {
    /// PKCS #1 v1.5 with SHA-256 (RFC 4055, 5).
    RsaSha256,
    /// Ed25519 of the whole message (RFC 8410).
    Ed25519,
}

/// `sha256WithRSAEncryption`, whose parameters are NULL.
const SHA256_WITH_RSA: [u8; 15] =
    [SEQUENCE, 13, OID, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11, NULL, 0];

/// `id-Ed25519`, which has no parameters.
const ED25519: [u8; 7] = [SEQUENCE, 5, OID, 3, 0x2b, 0x65, 0x70];

impl SignatureAlgorithm {
    /// The algorithm of a key.
    pub fn of(key: &AnyPublicKey) -> Self {
        match key {
            AnyPublicKey::Rsa(_) => Self::RsaSha256,
            AnyPublicKey::Ed25519(_) => Self::Ed25519,
        }
    }

    /// The `AlgorithmIdentifier`, in DER.
    pub(crate) fn to_der(self) -> &'static [u8] {
        match self {
            Self::RsaSha256 => &SHA256_WITH_RSA,
            Self::Ed25519 => &ED25519,
        }
    }

    /// The algorithm whose `AlgorithmIdentifier` comes first, and the bytes after it.
    pub(crate) fn strip(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let mut known = [Self::RsaSha256, Self::Ed25519].into_iter();
        known.find_map(|it| Some((it, bytes.strip_prefix(it.to_der())?)))
    }
}
