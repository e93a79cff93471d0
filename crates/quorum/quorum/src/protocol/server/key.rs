//! The key of an epoch at a server: what is public, and its shares, of the kind that the key has.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rsa_arithmetic::key::GroupPublicKey;
use schnorr::NonceCommitments;
use threshold_rsa::ThresholdRsaShare;

use super::start::VerifiedStart;
use crate::protocol::combination::ServerIndex;
use crate::protocol::group::GroupHeader;
use crate::protocol::key_sharing::{KeySharing, KeySigner};
use crate::protocol::refresh::{
    self, RefreshDelays, RefreshParameters, RefreshedKey, RowRecovery, ShareRecovery,
    ShareWitnesses,
};
use crate::protocol::share::ShareRange;
use crate::protocol::signing::{self, SigningGroup};

/// How many unused commitments of one server are kept: as many as requests run at a time.
const MAX_UNUSED: usize = 32;

/// The key of an epoch.
pub(super) enum EpochKey {
    Combinatorial(CombinatorialEpochKey),
    Polynomial(PolynomialEpochKey),
}

/// An RSA key of which each subset of servers has a share.
pub(super) struct CombinatorialEpochKey {
    pub(super) group: Arc<SigningGroup>,
    pub(super) parameters: Arc<RefreshParameters>,
    pub(super) witnesses: Arc<ShareWitnesses>,
    pub(super) shares: Option<HeldShares>,
    /// The recovery of a member that lacks its shares.
    pub(super) recovery: Option<ShareRecovery>,
}

/// A key that is shared by a polynomial: Ed25519, or RSA.
pub(super) struct PolynomialEpochKey {
    /// `None` while the group generates an Ed25519 key.
    pub(super) sharing: Option<KeySharing>,
    /// A member with its share.
    pub(super) signer: Option<KeySigner>,
    /// With an Ed25519 key, commitments that servers have given to this one, and that it has not
    /// used.
    pub(super) unused: UnusedCommitments,
    /// The recovery of a member that lacks its share.
    pub(super) recovery: Option<RowRecovery>,
}

/// The combinatorial shares that a member has.
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
            VerifiedStart::Combinatorial { key, witnesses } => {
                let range = ShareRange::new(key.modulus().bits());
                let parameters = Arc::new(RefreshParameters::new(&key, range));
                Self::combinatorial(header, key, parameters, Arc::new(witnesses))
            }
            VerifiedStart::Polynomial(sharing) => Self::polynomial(sharing),
        }
    }

    /// A key with combinatorial shares, which are not there yet.
    pub(super) fn combinatorial(
        header: &GroupHeader,
        key: GroupPublicKey,
        parameters: Arc<RefreshParameters>,
        witnesses: Arc<ShareWitnesses>,
    ) -> Self {
        let identities = header.group.members().iter().map(|member| member.identity).collect();
        let combination = header.group.combination().clone();
        let group = Arc::new(SigningGroup { epoch: header.epoch, key, combination, identities });
        Self::Combinatorial(CombinatorialEpochKey {
            group,
            parameters,
            witnesses,
            shares: None,
            recovery: None,
        })
    }

    /// A key that is shared by a polynomial, without a share.
    pub(super) fn polynomial(sharing: Option<KeySharing>) -> Self {
        Self::Polynomial(PolynomialEpochKey {
            sharing,
            signer: None,
            unused: UnusedCommitments::default(),
            recovery: None,
        })
    }

    /// What a refresh moves.
    pub(super) fn refreshed(&self) -> RefreshedKey {
        match self {
            Self::Combinatorial(key) => RefreshedKey::Combinatorial(key.parameters.clone()),
            Self::Polynomial(key) => RefreshedKey::Polynomial(key.sharing.clone()),
        }
    }

    pub(super) fn has_shares(&self) -> bool {
        match self {
            Self::Combinatorial(key) => key.shares.is_some(),
            Self::Polynomial(key) => key.signer.is_some(),
        }
    }

    /// Wipes the shares, and the nonces. Returns the shares, if there were any, as far as jobs on
    /// other threads still use them.
    pub(super) fn wipe(&mut self) -> Option<SharesInUse> {
        self.end_recovery();
        match self {
            Self::Combinatorial(key) => {
                let HeldShares { raw, signing } = key.shares.take()?;
                Some(SharesInUse(vec![weak(&raw), weak(&signing)]))
            }
            Self::Polynomial(key) => match key.signer.take()? {
                KeySigner::Ed25519(_) => Some(SharesInUse(Vec::new())),
                KeySigner::Rsa(share) => Some(SharesInUse(vec![weak(&share)])),
            },
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
            Self::Combinatorial(key) => {
                let (epoch, group) = (header.epoch, header.group.combination().clone());
                let (parameters, expected) = (key.parameters.clone(), Some(header.witnesses));
                let recovery =
                    ShareRecovery::new(index, epoch, group, parameters, expected, delays);
                key.recovery = Some(recovery.with_witnesses(key.witnesses.clone()));
            }
            Self::Polynomial(key) => {
                key.recovery = key.sharing.as_ref().and_then(|sharing| {
                    RowRecovery::new(index, header.epoch, sharing.clone(), delays.resend)
                });
            }
        }
    }

    pub(super) fn end_recovery(&mut self) {
        match self {
            Self::Combinatorial(key) => key.recovery = None,
            Self::Polynomial(key) => key.recovery = None,
        }
    }

    /// When a recovery asks again.
    pub(super) fn deadline(&self) -> Option<Duration> {
        match self {
            Self::Combinatorial(key) => key.recovery.as_ref()?.deadline(),
            Self::Polynomial(key) => key.recovery.as_ref()?.deadline(),
        }
    }

    /// The key with combinatorial shares, if it has such.
    pub(super) fn as_combinatorial(&self) -> Option<&CombinatorialEpochKey> {
        if let Self::Combinatorial(key) = self { Some(key) } else { None }
    }

    /// This server's share of an RSA key by a polynomial.
    pub(super) fn rsa_share(&self) -> Option<&Arc<ThresholdRsaShare>> {
        match self {
            Self::Polynomial(PolynomialEpochKey {
                signer: Some(KeySigner::Rsa(share)), ..
            }) => Some(share),
            _ => None,
        }
    }
}

/// The shares of an epoch that has ended, and the secrets of its handover, as far as jobs on other
/// threads still use them. They are wiped when the last of these jobs has ended.
pub(super) struct SharesInUse(Vec<Weak<dyn Any + Send + Sync>>);

impl SharesInUse {
    /// Besides, other secrets of the epoch that jobs may use.
    pub(super) fn with(
        mut self,
        others: impl IntoIterator<Item = Weak<dyn Any + Send + Sync>>,
    ) -> Self {
        self.0.extend(others);
        self
    }

    /// Whether all are wiped.
    pub(super) fn are_wiped(&self) -> bool {
        self.0.iter().all(|shares| shares.strong_count() == 0)
    }
}

fn weak<T: Any + Send + Sync>(shares: &Arc<T>) -> Weak<dyn Any + Send + Sync> {
    let shares: Weak<T> = Arc::downgrade(shares);
    shares
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
