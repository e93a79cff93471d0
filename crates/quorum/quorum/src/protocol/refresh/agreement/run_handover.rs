//! The handover of a key that is shared by a polynomial, as the run of a refresh has it.

use std::sync::Arc;

use handover::{
    GroupSize, HandoverAgreement, HandoverEffect, HandoverEntryHeader, HandoverEntryKind,
    HandoverRefusal, HandoverScheme, HandoverTerms, ParticipantId, ParticipantSet,
};
use schnorr::{FrostSigner, KeyShare, SchnorrScheme};
use threshold_rsa::{ThresholdRsaScheme, ThresholdRsaShare};
use zeroize::Zeroizing;

use super::super::handover_step::EncodedHandoverStep;
use super::effect::LogEntryRefusal;
use crate::protocol::key_sharing::{KeySharing, KeySigner};
use crate::protocol::wire::{MalformedEncoding, Sha256Digest};

/// The largest Deal of an Ed25519 key in bytes, and the largest step of another kind of any key. A
/// Deal among 31 servers has 13,730.
const MAX_POINTS_LEN: usize = 16 << 10;

/// The agreed state of a handover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RunHandover {
    Ed25519(Arc<HandoverAgreement<SchnorrScheme>>),
    Rsa(Arc<HandoverAgreement<ThresholdRsaScheme>>),
}

/// How far the dealings of a handover are.
pub(crate) struct HandoverProgress {
    pub(crate) dealers: GroupSize,
    pub(crate) dealt: ParticipantSet,
    pub(crate) chosen: ParticipantSet,
}

impl RunHandover {
    /// The handover of a key with this sharing. Without one it generates an Ed25519 key.
    pub(super) fn new(run: Sha256Digest, old: Option<&KeySharing>, new: GroupSize) -> Self {
        let run = run.0;
        match old {
            Some(KeySharing::Rsa(old)) => {
                let terms = HandoverTerms { run, old: Some((**old).clone()), new };
                Self::Rsa(Arc::new(HandoverAgreement::new(terms)))
            }
            Some(KeySharing::Ed25519(old)) => {
                let terms = HandoverTerms { run, old: Some((**old).clone()), new };
                Self::Ed25519(Arc::new(HandoverAgreement::new(terms)))
            }
            None => {
                let terms = HandoverTerms { run, old: None, new };
                Self::Ed25519(Arc::new(HandoverAgreement::new(terms)))
            }
        }
    }

    pub(super) fn check_header(
        &self,
        author: ParticipantId,
        header: &HandoverEntryHeader,
    ) -> Result<(), HandoverRefusal> {
        match self {
            Self::Ed25519(handover) => handover.check_header(author, header),
            Self::Rsa(handover) => handover.check_header(author, header),
        }
    }

    /// Checks the rest of a step, which its author has signed.
    ///
    /// A Deal has many numbers, which are costly to decode, and entries are checked often. So it is
    /// decoded only when it is applied, once for each dealer. If it cannot be, or names a receiver
    /// that is not registered, its author is faulty: a correct dealer has seen in the log that the
    /// receivers are registered, and its Deal comes after that.
    pub(super) fn check(
        &self,
        author: ParticipantId,
        step: &EncodedHandoverStep,
    ) -> Result<(), LogEntryRefusal> {
        let is_deal = step.header().kind == HandoverEntryKind::Deal;
        let may_be_long = is_deal && matches!(self, Self::Rsa(_));
        if !may_be_long && step.as_bytes().len() > MAX_POINTS_LEN {
            return Err(MalformedEncoding("larger than a step of a handover may be").into());
        }
        if is_deal {
            return Ok(());
        }
        match self {
            Self::Ed25519(handover) => handover.check(author, &step.decode()?)?,
            Self::Rsa(handover) => handover.check(author, &step.decode()?)?,
        }
        Ok(())
    }

    pub(super) fn apply(
        &mut self,
        author: ParticipantId,
        step: &EncodedHandoverStep,
    ) -> Result<HandoverEffect, LogEntryRefusal> {
        fn apply<S: RunScheme>(
            handover: &mut Arc<HandoverAgreement<S>>,
            author: ParticipantId,
            step: &EncodedHandoverStep,
        ) -> Result<HandoverEffect, LogEntryRefusal> {
            let handover = Arc::make_mut(handover);
            let decoded = step.decode().map_err(LogEntryRefusal::from);
            let applied = decoded.and_then(|step| Ok(handover.apply(author, &step)?));
            if applied.is_err() && step.header().kind == HandoverEntryKind::Deal {
                handover.exclude_dealer(author);
            }
            applied
        }
        match self {
            Self::Ed25519(handover) => apply(handover, author, step),
            Self::Rsa(handover) => apply(handover, author, step),
        }
    }

    /// The new group's sharing, when the dealers are chosen.
    pub(crate) fn sharing(&self) -> Option<KeySharing> {
        Some(match self {
            Self::Ed25519(handover) => KeySharing::Ed25519(Arc::new(handover.sharing()?.clone())),
            Self::Rsa(handover) => KeySharing::Rsa(Arc::new(handover.sharing()?.clone())),
        })
    }

    pub(crate) fn progress(&self) -> HandoverProgress {
        fn of<S: RunScheme>(handover: &HandoverAgreement<S>) -> HandoverProgress {
            let (dealers, dealt) = (handover.terms().dealers(), handover.dealt());
            HandoverProgress { dealers, dealt, chosen: handover.chosen() }
        }
        match self {
            Self::Ed25519(handover) => of(handover),
            Self::Rsa(handover) => of(handover),
        }
    }
}

/// A way to share a key in the handover of a run. Other threads compute with its values.
pub(crate) trait RunScheme:
    HandoverScheme<
        Sharing: Send + Sync,
        Commitment: Send + Sync,
        ConstantProof: Send + Sync,
        Polynomial: Send + Sync,
        Row: Send,
        Value: Send,
        Repair: Send,
        Share: Send,
        Possession: Send,
    > + 'static
{
    /// The agreed state, if the key is shared in this way.
    fn handover(run: &RunHandover) -> Option<&Arc<HandoverAgreement<Self>>>;

    /// The share of a signer, if the key is shared in this way.
    fn share(signer: &KeySigner) -> Option<&Self::Share>;

    /// The signer with a share.
    fn signer(share: Self::Share) -> KeySigner;

    /// The encoding of a common value. Secret.
    fn encode_value(value: &Self::Value) -> Zeroizing<Vec<u8>>;

    /// Decodes a common value. `None` if it has another length.
    fn decode_value(bytes: &[u8]) -> Option<Zeroizing<Self::Value>>;
}

impl RunScheme for SchnorrScheme {
    fn handover(run: &RunHandover) -> Option<&Arc<HandoverAgreement<Self>>> {
        if let RunHandover::Ed25519(handover) = run { Some(handover) } else { None }
    }

    fn share(signer: &KeySigner) -> Option<&KeyShare> {
        if let KeySigner::Ed25519(signer) = signer { Some(signer.share()) } else { None }
    }

    fn signer(share: KeyShare) -> KeySigner {
        KeySigner::Ed25519(FrostSigner::new(share))
    }

    fn encode_value(value: &[u8; 32]) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(value.to_vec())
    }

    fn decode_value(bytes: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
        Some(Zeroizing::new(bytes.try_into().ok()?))
    }
}

impl RunScheme for ThresholdRsaScheme {
    fn handover(run: &RunHandover) -> Option<&Arc<HandoverAgreement<Self>>> {
        if let RunHandover::Rsa(handover) = run { Some(handover) } else { None }
    }

    fn share(signer: &KeySigner) -> Option<&ThresholdRsaShare> {
        if let KeySigner::Rsa(share) = signer { Some(share) } else { None }
    }

    fn signer(share: ThresholdRsaShare) -> KeySigner {
        KeySigner::Rsa(Arc::new(share))
    }

    fn encode_value(value: &Vec<u8>) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(value.clone())
    }

    fn decode_value(bytes: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        Some(Zeroizing::new(bytes.to_vec()))
    }
}
