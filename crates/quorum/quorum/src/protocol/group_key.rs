//! The kinds of keys that a group may have, and what a server knows of its group's key.

use keys::{AnyPublicKey, Ed25519PublicKey, RsaPublicKey};

use super::wire::Sha256Digest;

/// The kind of a group's key, and how its servers share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupKeyKind {
    /// RSA: a ceremony deals one additive share for each subset of f servers.
    Rsa,
    /// RSA: a ceremony deals a polynomial of integers. Experimental.
    RsaPolynomial,
    /// Ed25519: the servers of the first group generate the key.
    Ed25519,
}

impl GroupKeyKind {
    /// Its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rsa => "rsa",
            Self::RsaPolynomial => "rsa-polynomial",
            Self::Ed25519 => "ed25519",
        }
    }
}

/// What a server knows of its group's key before it follows the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupKeyAnchor {
    /// The RSA key.
    Rsa(RsaPublicKey),
    /// The Ed25519 key.
    Ed25519(Ed25519PublicKey),
    /// The digest of the founding header, whose servers generate an Ed25519 key.
    Founding(Sha256Digest),
}

impl GroupKeyAnchor {
    /// A known public key.
    pub fn of(key: AnyPublicKey) -> Self {
        match key {
            AnyPublicKey::Rsa(key) => Self::Rsa(key),
            AnyPublicKey::Ed25519(key) => Self::Ed25519(key),
        }
    }

    /// The kind of the key. [`GroupKeyKind::Rsa`] stands for any RSA key: how its servers share it
    /// is in the headers.
    pub fn kind(&self) -> GroupKeyKind {
        match self {
            Self::Rsa(_) => GroupKeyKind::Rsa,
            Self::Ed25519(_) | Self::Founding(_) => GroupKeyKind::Ed25519,
        }
    }

    /// Whether headers of a group with this key may have this kind.
    pub fn admits(&self, kind: GroupKeyKind) -> bool {
        match kind {
            GroupKeyKind::Rsa | GroupKeyKind::RsaPolynomial => matches!(self, Self::Rsa(_)),
            GroupKeyKind::Ed25519 => matches!(self, Self::Ed25519(_) | Self::Founding(_)),
        }
    }

    /// The public key, if it is known.
    pub fn public(&self) -> Option<AnyPublicKey> {
        match self {
            Self::Rsa(key) => Some(key.clone().into()),
            Self::Ed25519(key) => Some((*key).into()),
            Self::Founding(_) => None,
        }
    }

    /// The SHA-256 that operators compare: of the public key, or of the founding header.
    pub fn digest(&self) -> Sha256Digest {
        match self {
            Self::Founding(digest) => *digest,
            Self::Rsa(key) => Sha256Digest(key.digest()),
            Self::Ed25519(key) => Sha256Digest(AnyPublicKey::from(*key).digest()),
        }
    }

    /// Whether `signature` is the group's signature of the message. False while the key is not
    /// known.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Rsa(key) => key.verify(message, signature),
            Self::Ed25519(key) => key.verify(message, signature),
            Self::Founding(_) => false,
        }
    }
}

impl From<RsaPublicKey> for GroupKeyAnchor {
    fn from(key: RsaPublicKey) -> Self {
        Self::Rsa(key)
    }
}
