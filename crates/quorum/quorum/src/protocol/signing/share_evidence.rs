//! A server's answer to a session of FROST, signed with its identity key, and the evidence that it
//! is wrong.

use bytes::Bytes;
use encoding::{FieldReader, FieldWrite as _};
use keys::{IdentityPublicKey, IdentitySecretKey};
use schnorr::{SharingCommitment, SignatureAnswer, SigningSession};

use super::answer::MAX_MESSAGE_LEN;
use crate::protocol::combination::ServerIndex;
use crate::protocol::group::GroupHeader;
use crate::protocol::key_sharing::KeySharing;

/// The prefix of the bytes that the signature of an answer covers.
const DOMAIN: &[u8] = b"sunder-quorum answer to a session v1\0";

/// The length in bytes of a signature of an identity key.
const SIGNATURE_LEN: usize = 64;

/// A server's answer to a session: [`SignatureAnswer`], and the signature of the server, which
/// makes a wrong answer evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SignedShare {
    answer: Vec<u8>,
    signature: [u8; SIGNATURE_LEN],
}

impl SignedShare {
    /// Signs an answer. The answer names the session and the group's sharing.
    pub(crate) fn new(answer: &SignatureAnswer, identity: &IdentitySecretKey) -> Self {
        let answer = answer.to_bytes();
        let signature = identity.sign(&[DOMAIN, &answer].concat());
        Self { answer, signature }
    }

    /// Decodes the output of [`Self::to_bytes`], if the server has signed it.
    pub(crate) fn parse(bytes: &[u8], server: &IdentityPublicKey) -> Option<Self> {
        let (answer, signature) = bytes.split_last_chunk()?;
        let is_signed = server.verify(&[DOMAIN, answer].concat(), signature);
        is_signed.then(|| Self { answer: answer.to_vec(), signature: *signature })
    }

    /// The encoded [`SignatureAnswer`].
    pub(crate) fn answer(&self) -> &[u8] {
        &self.answer
    }

    /// The answer as bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        [&self.answer[..], &self.signature].concat()
    }
}

/// A server's wrong answer to a session, the session, and the sharing of its epoch. It is a proof
/// for anyone who has the epoch's header: a correct server answers only to sessions with
/// commitments that it has made, and then rightly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongShareEvidence {
    /// Encoded. Servers forget it when the epoch ends.
    sharing: Vec<u8>,
    session: Bytes,
    share: Vec<u8>,
}

impl WrongShareEvidence {
    pub(super) fn new(sharing: &SharingCommitment, session: Bytes, share: &SignedShare) -> Self {
        Self { sharing: sharing.to_bytes(), session, share: share.to_bytes() }
    }

    /// Whether it proves that this server of an epoch is faulty. The caller has verified that the
    /// group has signed the epoch's header.
    pub fn verify(&self, epoch: &GroupHeader, server: ServerIndex) -> bool {
        // Before anything that is costly.
        let is_of_epoch = KeySharing::digest_of(&self.sharing) == epoch.witnesses;
        let sharing =
            is_of_epoch.then(|| SharingCommitment::from_bytes(&self.sharing).ok()).flatten();
        let (Some(sharing), Some(member)) = (&sharing, epoch.group.member(server)) else {
            return false;
        };
        let session = SigningSession::from_bytes(&self.session).ok();
        let share = SignedShare::parse(&self.share, &member.identity);
        let answer = share.and_then(|share| SignatureAnswer::from_bytes(share.answer()).ok());
        let parts = session.zip(answer).zip(server.participant());
        parts.is_some_and(|((session, answer), signer)| {
            session.fits(sharing.size()) && answer.is_evidence(sharing, &session, signer)
        })
    }

    /// The evidence as bytes: the sharing, the session and the answer, each with its length.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.put_counted(&self.sharing);
        bytes.put_counted(&self.session);
        bytes.put_counted(&self.share);
        bytes
    }

    /// Decodes the output of [`Self::to_bytes`]. The evidence is not verified.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = FieldReader::new(bytes);
        let sharing = reader.counted().ok()?.to_vec();
        let session = reader.counted_up_to(2 * MAX_MESSAGE_LEN).ok()?;
        let session = Bytes::copy_from_slice(session);
        let share = reader.counted().ok()?.to_vec();
        reader.finish().ok()?;
        Some(Self { sharing, session, share })
    }
}
