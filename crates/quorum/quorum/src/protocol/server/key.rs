//! The key of an epoch at a server: what is public, and its shares, of the kind that the key has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use schnorr::{FrostSigner, NonceCommitments, SharingCommitment};

use super::start::VerifiedStart;
use crate::protocol::combination::ServerIndex;
use crate::protocol::group::GroupHeader;
use crate::protocol::refresh::{
    self, RefreshDelays, RefreshParameters, RefreshedKey, RowRecovery, ShareRecovery,
    ShareWitnesses,
};
use crate::protocol::rsa::key::GroupPublicKey;
use crate::protocol::share::ShareRange;
use crate::protocol::signing::{self, SigningGroup};

/// How many unused commitments of one server are kept: as many as requests run at a time.
const MAX_UNUSED: usize = 32;

/// The key of an epoch.
pub(super) enum EpochKey {
    Rsa(RsaEpochKey),
    Ed25519(Ed25519EpochKey),
}

/// An RSA key.
pub(super) struct RsaEpochKey {
    pub(super) group: Arc<SigningGroup>,
    pub(super) parameters: Arc<RefreshParameters>,
    pub(super) witnesses: Arc<ShareWitnesses>,
    pub(super) shares: Option<HeldShares>,
    /// The recovery of a member that lacks its shares.
    pub(super) recovery: Option<ShareRecovery>,
}

/// An Ed25519 key.
pub(super) struct Ed25519EpochKey {
    /// `None` while the group generates the key.
    pub(super) sharing: Option<Arc<SharingCommitment>>,
    /// A member with its share.
    pub(super) signer: Option<FrostSigner>,
    /// Commitments that servers have given to this one, and that it has not used.
    pub(super) unused: UnusedCommitments,
    /// The recovery of a member that lacks its share.
    pub(super) recovery: Option<RowRecovery>,
}

/// The shares of an RSA key that a member has.
pub(super) struct HeldShares {
    pub(super) raw: Arc<refresh::LabeledShares>,
    pub(super) signing: Arc<signing::SigningShares>,
}

impl HeldShares {
    pub(super) fn new(
        group: &Arc<SigningGroup>,
        index: ServerIndex,
        raw: Arc<refresh::LabeledShares>,
    ) -> Option<Self> {
        let range = ShareRange::new(group.key.modulus().bits());
        let shares = raw.iter().map(|(label, share)| (*label, share.clone())).collect();
        let signing = signing::SigningShares::new(group.clone(), index, range, shares)?;
        Some(Self { raw, signing: Arc::new(signing) })
    }
}

impl EpochKey {
    /// The key of a verified start, without shares.
    pub(super) fn new(verified: VerifiedStart, header: &GroupHeader) -> Self {
        match verified {
            VerifiedStart::Rsa { key, witnesses } => {
                let range = ShareRange::new(key.modulus().bits());
                let parameters = Arc::new(RefreshParameters::new(&key, range));
                Self::rsa(header, key, parameters, Arc::new(witnesses))
            }
            VerifiedStart::Ed25519(sharing) => Self::ed25519(sharing),
        }
    }

    /// An RSA key, without shares.
    pub(super) fn rsa(
        header: &GroupHeader,
        key: GroupPublicKey,
        parameters: Arc<RefreshParameters>,
        witnesses: Arc<ShareWitnesses>,
    ) -> Self {
        let identities = header.group.members().iter().map(|member| member.identity).collect();
        let combination = header.group.combination().clone();
        let group = Arc::new(SigningGroup { epoch: header.epoch, key, combination, identities });
        Self::Rsa(RsaEpochKey { group, parameters, witnesses, shares: None, recovery: None })
    }

    /// An Ed25519 key, without a share.
    pub(super) fn ed25519(sharing: Option<SharingCommitment>) -> Self {
        Self::Ed25519(Ed25519EpochKey {
            sharing: sharing.map(Arc::new),
            signer: None,
            unused: UnusedCommitments::default(),
            recovery: None,
        })
    }

    /// What a refresh moves.
    pub(super) fn refreshed(&self) -> RefreshedKey {
        match self {
            Self::Rsa(key) => RefreshedKey::Rsa(key.parameters.clone()),
            Self::Ed25519(key) => RefreshedKey::Ed25519(key.sharing.clone()),
        }
    }

    pub(super) fn has_shares(&self) -> bool {
        match self {
            Self::Rsa(key) => key.shares.is_some(),
            Self::Ed25519(key) => key.signer.is_some(),
        }
    }

    /// Wipes the shares, and the nonces. Returns whether there were any.
    pub(super) fn wipe(&mut self) -> bool {
        self.end_recovery();
        match self {
            Self::Rsa(key) => key.shares.take().is_some(),
            Self::Ed25519(key) => key.signer.take().is_some(),
        }
    }

    /// A member begins to ask others for the shares that it lacks.
    pub(super) fn begin_recovery(
        &mut self,
        index: ServerIndex,
        header: &GroupHeader,
        delays: &RefreshDelays,
    ) {
        match self {
            Self::Rsa(key) => {
                let (epoch, group) = (header.epoch, header.group.combination().clone());
                let (parameters, expected) = (key.parameters.clone(), Some(header.witnesses));
                let recovery =
                    ShareRecovery::new(index, epoch, group, parameters, expected, delays);
                key.recovery = Some(recovery.with_witnesses(key.witnesses.clone()));
            }
            Self::Ed25519(key) => {
                key.recovery = key.sharing.as_ref().and_then(|sharing| {
                    RowRecovery::new(index, header.epoch, sharing.clone(), delays.resend)
                });
            }
        }
    }

    pub(super) fn end_recovery(&mut self) {
        match self {
            Self::Rsa(key) => key.recovery = None,
            Self::Ed25519(key) => key.recovery = None,
        }
    }

    /// When a recovery asks again.
    pub(super) fn deadline(&self) -> Option<Duration> {
        match self {
            Self::Rsa(key) => key.recovery.as_ref()?.deadline(),
            Self::Ed25519(key) => key.recovery.as_ref()?.deadline(),
        }
    }

    /// The RSA key, if it is one.
    pub(super) fn as_rsa(&self) -> Option<&RsaEpochKey> {
        if let Self::Rsa(key) = self { Some(key) } else { None }
    }
}

/// Unused commitments of servers to this one.
#[derive(Default)]
pub(super) struct UnusedCommitments(BTreeMap<ServerIndex, Vec<NonceCommitments>>);

impl UnusedCommitments {
    /// Takes the newest one of each server, because servers drop the oldest first.
    pub(super) fn take(&mut self) -> BTreeMap<ServerIndex, NonceCommitments> {
        let newest = self.0.iter_mut().filter_map(|(&server, all)| Some((server, all.pop()?)));
        newest.collect()
    }

    /// Keeps what a request has not used.
    pub(super) fn put(&mut self, unused: BTreeMap<ServerIndex, NonceCommitments>) {
        for (server, commitments) in unused {
            let all = self.0.entry(server).or_default();
            if all.len() < MAX_UNUSED {
                all.push(commitments);
            }
        }
    }
}
