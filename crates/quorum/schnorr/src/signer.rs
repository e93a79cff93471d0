//! A signer: its unused nonces, and its answers to coordinators.

use std::collections::{BTreeMap, VecDeque};

use encoding::FieldReader;

use crate::frost::{
    EncodedSession, NonceCommitments, SignatureShare, SigningNonces, SigningSession,
};
use crate::sharing::{KeyShare, SharingCommitment};
use ::handover::element::MalformedHandoverMessage;
use ::handover::participant::ParticipantId;

/// How many unused nonces a signer keeps for each coordinator. The oldest are dropped first.
pub const MAX_UNUSED_NONCES: usize = 64;

/// A signer in one epoch.
///
/// Its nonces are only in its memory: they have no encoding, and are gone when the process ends. A
/// backup therefore has no nonce, and nothing needs to be on disk before a commitment is sent. A
/// virtual machine must not be resumed twice from one copy of its memory.
pub struct FrostSigner {
    share: KeyShare,
    unused: BTreeMap<ParticipantId, VecDeque<([u8; 64], SigningNonces)>>,
}

/// Why a signer does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionRefusal {
    /// The session does not have f+1 signers of this group, or not this one.
    #[error("the session does not have f+1 servers of this group, with this one among them")]
    Signers,
    /// The signer has no such unused nonces for this coordinator: they were used, they were
    /// dropped, or the signer has been restarted.
    #[error("the nonces of these commitments are not known any more")]
    Nonces,
    /// The commitments of another signer are not points. A correct coordinator has checked them.
    #[error("the commitments of a signer are malformed")]
    Commitments,
}

/// A signer's answer: the session, its share of the signature, and commitments to its next nonces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignatureAnswer {
    /// [`SigningSession::digest`].
    pub(crate) session: [u8; 32],
    pub(crate) share: SignatureShare,
    pub(crate) next: NonceCommitments,
}

impl SignatureAnswer {
    /// The encoding. Sign it with the server's identity key, so that a wrong share is evidence.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.session[..], &self.share.to_bytes(), &self.next.to_bytes()].concat()
    }

    /// Decodes an answer.
    ///
    /// # Errors
    /// If the bytes are not exactly an answer.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MalformedHandoverMessage> {
        let mut reader = FieldReader::new(bytes);
        let session = reader.take()?;
        let share = SignatureShare::read(&mut reader)?;
        let next = NonceCommitments::read(&mut reader)?;
        reader.finish()?;
        Ok(Self { session, share, next })
    }

    /// Whether the answer proves its signer faulty: it is about this session of this group, and its
    /// share is wrong. A correct signer answers only to sessions with its own commitments, so no
    /// coordinator can produce such a session for it.
    pub fn is_evidence(
        &self,
        sharing: &SharingCommitment,
        session: &SigningSession,
        signer: ParticipantId,
    ) -> bool {
        let values = session.values(sharing.public_key());
        session.signers().contains_key(&signer)
            && self.session == session.digest(sharing)
            && !session.verify_share(&values, sharing, signer, self.share)
    }
}

impl FrostSigner {
    /// A signer with its share of the epoch.
    pub fn new(share: KeyShare) -> Self {
        Self { share, unused: BTreeMap::new() }
    }

    /// The share.
    pub fn share(&self) -> &KeyShare {
        &self.share
    }

    /// Commits to new nonces for sessions of a coordinator. `randomness` must be fresh, from
    /// [`random::RandomGenerator`], and be wiped.
    pub fn commit(
        &mut self,
        coordinator: ParticipantId,
        randomness: &[u8; 64],
    ) -> NonceCommitments {
        let nonces = SigningNonces::new(self.share.secret(), randomness);
        let commitments = nonces.commitments();
        let unused = self.unused.entry(coordinator).or_default();
        if unused.len() == MAX_UNUSED_NONCES {
            unused.pop_front();
        }
        unused.push_back((commitments.to_bytes(), nonces));
        commitments
    }

    /// The answer to a session of a coordinator. The caller has checked that the message may be
    /// signed. The nonces of this signer's commitments are removed before they are used, and before
    /// the commitments of others are decoded: a coordinator that sends malformed ones has to ask
    /// for other nonces before this signer decodes anything again.
    ///
    /// # Errors
    /// If the session is not one of f+1 servers with this one among them, or this server has not
    /// given these commitments to this coordinator, or has used them, or the commitments of another
    /// server are malformed.
    pub fn sign(
        &mut self,
        coordinator: ParticipantId,
        session: &EncodedSession,
        randomness: &[u8; 64],
    ) -> Result<SignatureAnswer, SessionRefusal> {
        let sharing = self.share.sharing();
        let own = session.commitments(self.share.server()).ok_or(SessionRefusal::Signers)?;
        if !session.fits(sharing.size()) {
            return Err(SessionRefusal::Signers);
        }
        let unused = self.unused.entry(coordinator).or_default();
        let place = unused.iter().position(|(commitments, _)| commitments == own);
        let taken = place.and_then(|place| unused.remove(place));
        let (_, nonces) = taken.ok_or(SessionRefusal::Nonces)?;
        let session = session.decode().map_err(|_| SessionRefusal::Commitments)?;
        let values = session.values(sharing.public_key());
        let share = session.sign(&values, self.share.server(), self.share.secret(), nonces);
        let digest = session.digest(sharing);
        let next = self.commit(coordinator, randomness);
        Ok(SignatureAnswer { session: digest, share, next })
    }
}
