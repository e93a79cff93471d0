//! How servers share a key by a polynomial, of which each has a row: Ed25519, or RSA. One place
//! knows both, so that handovers, recovery and the store need not.

use std::sync::Arc;

use handover::{GroupSize, ParticipantId};
use keys::RsaPublicKey;
use rsa_arithmetic::key::GroupPublicKey;
use rsa_arithmetic::modulus::RsaModulus;
use schnorr::{FrostSigner, KeyShare, RowRepair, SharingCommitment};
use threshold_rsa::{IntegerRowRepair, ThresholdRsaKey, ThresholdRsaShare, ThresholdRsaSharing};
use zeroize::Zeroizing;

use super::log_types::MAX_FAULTY;
use super::wire::Sha256Digest;

/// The public sharing of a group's key in one epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySharing {
    /// Of an Ed25519 key.
    Ed25519(Arc<SharingCommitment>),
    /// Of an RSA key.
    Rsa(Arc<ThresholdRsaSharing>),
}

/// The largest group that may have an RSA key, which the dealer fixes: the largest possible one.
pub(crate) fn largest_group() -> GroupSize {
    GroupSize::of_faulty(MAX_FAULTY).expect("groups have this size")
}

impl KeySharing {
    /// Decodes the sharing of an RSA key: `g_0`, of the length of N, and the sharing. `None` if it
    /// is none of this key.
    pub(crate) fn parse_rsa(public: &RsaPublicKey, bytes: &[u8]) -> Option<Self> {
        let modulus = RsaModulus::of(public).ok()?;
        let (g_0, sharing) = bytes.split_at_checked(modulus.byte_len())?;
        let g_0 = modulus.element(g_0)?;
        let key = ThresholdRsaKey::new(GroupPublicKey::new(modulus, g_0).ok()?, largest_group())?;
        let sharing = ThresholdRsaSharing::from_bytes(&key, sharing).ok()?;
        Some(Self::Rsa(Arc::new(sharing)))
    }

    /// The encoding.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Ed25519(sharing) => sharing.to_bytes(),
            Self::Rsa(sharing) => {
                let g_0 = sharing.key().group().g_0().to_be_bytes();
                [g_0, sharing.to_bytes()].concat()
            }
        }
    }

    /// The digest, which the header of the epoch has.
    pub(crate) fn digest(&self) -> Sha256Digest {
        Self::digest_of(&self.to_bytes())
    }

    /// The digest of an encoded sharing.
    pub(crate) fn digest_of(bytes: &[u8]) -> Sha256Digest {
        Sha256Digest::of(&[b"SNDR-QUORUM-SHARING\0", bytes])
    }

    /// The size of the group.
    pub(crate) fn size(&self) -> GroupSize {
        match self {
            Self::Ed25519(sharing) => sharing.size(),
            Self::Rsa(sharing) => sharing.size(),
        }
    }

    /// The repair of a server's row.
    pub(crate) fn new_repair(&self, server: ParticipantId) -> KeyRowRepair {
        match self {
            Self::Ed25519(_) => KeyRowRepair::Ed25519(RowRepair::new(server)),
            Self::Rsa(_) => KeyRowRepair::Rsa(IntegerRowRepair::new(server)),
        }
    }
}

/// A server with its share of a key. Secret, and wiped when it is dropped.
pub(crate) enum KeySigner {
    Ed25519(FrostSigner),
    /// Answers are computed on other threads.
    Rsa(Arc<ThresholdRsaShare>),
}

impl KeySigner {
    /// Decodes the output of [`Self::to_bytes`]. `None` if it is not the row of the server.
    pub(crate) fn from_bytes(
        sharing: &KeySharing,
        server: ParticipantId,
        bytes: &[u8],
    ) -> Option<Self> {
        Some(match sharing {
            KeySharing::Ed25519(sharing) => {
                let share = KeyShare::from_bytes(server, bytes, (**sharing).clone()).ok()?;
                Self::Ed25519(FrostSigner::new(share))
            }
            KeySharing::Rsa(sharing) => {
                let share = ThresholdRsaShare::from_bytes(server, bytes, (**sharing).clone());
                Self::Rsa(Arc::new(share.ok()?))
            }
        })
    }

    /// The row, for the store. Secret.
    pub(crate) fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        match self {
            Self::Ed25519(signer) => signer.share().to_bytes(),
            Self::Rsa(share) => share.to_bytes(),
        }
    }

    /// The server.
    pub(crate) fn server(&self) -> ParticipantId {
        match self {
            Self::Ed25519(signer) => signer.share().server(),
            Self::Rsa(share) => share.server(),
        }
    }

    /// Whether it has a row of this sharing.
    pub(crate) fn is_of(&self, sharing: &KeySharing) -> bool {
        match (self, sharing) {
            (Self::Ed25519(signer), KeySharing::Ed25519(sharing)) => {
                signer.share().sharing() == &**sharing
            }
            (Self::Rsa(share), KeySharing::Rsa(sharing)) => share.sharing() == &**sharing,
            _ => false,
        }
    }

    /// The value that its row has in common with that of another server. Secret.
    pub(crate) fn common_value(&self, other: ParticipantId) -> Zeroizing<Vec<u8>> {
        match self {
            Self::Ed25519(signer) => {
                Zeroizing::new(signer.share().common_value(other).as_slice().to_vec())
            }
            Self::Rsa(share) => share.common_value(other),
        }
    }
}

/// The common values of a server's row, until they determine it.
pub(crate) enum KeyRowRepair {
    Ed25519(RowRepair),
    Rsa(IntegerRowRepair),
}

impl KeyRowRepair {
    /// Takes a common value of the sharing from another server. Returns the share of the `own`
    /// server when there are enough. Wrong values change nothing.
    pub(crate) fn handle_value(
        &mut self,
        sharing: &KeySharing,
        own: ParticipantId,
        from: ParticipantId,
        value: &[u8],
    ) -> Option<KeySigner> {
        match (self, sharing) {
            (Self::Ed25519(repair), KeySharing::Ed25519(sharing)) => {
                let row = repair.handle_value(sharing, from, value.try_into().ok()?)?;
                let share = KeyShare::new(own, row, (**sharing).clone())?;
                Some(KeySigner::Ed25519(FrostSigner::new(share)))
            }
            (Self::Rsa(repair), KeySharing::Rsa(sharing)) => {
                let share = repair.handle_value(sharing, from, value)?;
                Some(KeySigner::Rsa(Arc::new(share)))
            }
            _ => None,
        }
    }
}
