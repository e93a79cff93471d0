//! Signatures of votes and proposals, and verification of certificates.

// Malachite's own error type, which its effects require.
#![allow(clippy::result_large_err)]

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_malachitebft_core_consensus::ConsensusMsg;
use arc_malachitebft_core_types::{
    CertificateError, CommitCertificate, CommitSignature, NilOrVal, PolkaCertificate,
    RoundCertificate, RoundCertificateType, SignedMessage, SignedProposal, SignedVote,
    ThresholdParam, ThresholdParams, VoteType,
};
use encoding::FieldWrite as _;
use keys::IdentityPublicKey;

use super::codec::PutConsensusFields as _;
use super::context::servers::ConsensusValidatorSet;
use super::context::{ConsensusContext, Ed25519Signature, Proposal, ValidatorAddress, Vote};
use crate::protocol::voting::VotingSecret;
use crate::protocol::wire::Sha256Digest;

/// A server that signs with its voting key in one log.
pub(crate) struct VoteSigner {
    address: ValidatorAddress,
    key: Option<Arc<VotingSecret>>,
    verifier: VoteVerifier,
}

impl VoteSigner {
    /// The server with this identity key, in the log with this name. It has no voting key at first.
    pub(crate) fn new(identity: &IdentityPublicKey, log: Sha256Digest) -> Self {
        Self { address: ValidatorAddress::of(identity), key: None, verifier: VoteVerifier { log } }
    }

    /// Signs with this key from now on, instead of the previous one.
    pub(crate) fn set_key(&mut self, key: Option<Arc<VotingSecret>>) {
        self.key = key;
    }

    /// Whether its key is this server's registered key in the set.
    pub(crate) fn is_voter(&self, servers: &ConsensusValidatorSet) -> bool {
        let own = self.key.as_ref().map(|key| key.public());
        own.is_some_and(|own| servers.key(&self.address) == Some(&own))
    }

    /// The server's address.
    pub(crate) fn address(&self) -> ValidatorAddress {
        self.address
    }

    /// Signs a message. Only servers with a key vote. Without one, the signature is invalid.
    fn sign(&self, message: &[u8]) -> Ed25519Signature {
        Ed25519Signature(self.key.as_ref().map_or([0; 64], |key| key.sign(message)))
    }

    /// A verifier for signatures in the same log.
    pub(crate) fn verifier(&self) -> VoteVerifier {
        self.verifier
    }

    /// Signs a vote.
    pub(crate) fn sign_vote(&self, vote: Vote) -> SignedVote<ConsensusContext> {
        let signature = self.sign(&self.verifier.vote_bytes(&vote));
        SignedMessage::new(vote, signature)
    }

    /// Signs a proposal.
    pub(crate) fn sign_proposal(&self, proposal: Proposal) -> SignedProposal<ConsensusContext> {
        let signature = self.sign(&self.verifier.proposal_bytes(&proposal));
        SignedMessage::new(proposal, signature)
    }
}

/// Verifies signatures and certificates of one log. The same keys may serve several logs, because
/// signed messages contain the log's name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VoteVerifier {
    log: Sha256Digest,
}

/// Why a certificate is rejected.
pub(super) type CertificateRefusal = CertificateError<ConsensusContext>;

impl VoteVerifier {
    /// The bytes that a voter signs.
    fn vote_bytes(&self, vote: &Vote) -> Vec<u8> {
        let mut bytes = b"sunder-quorum log vote v1\0".to_vec();
        bytes.extend(self.log.0);
        bytes.put_vote(vote);
        bytes
    }

    /// The bytes that a proposer signs: of the value only the hash.
    fn proposal_bytes(&self, proposal: &Proposal) -> Vec<u8> {
        let mut bytes = b"sunder-quorum log proposal v1\0".to_vec();
        bytes.extend(self.log.0);
        bytes.put_u64(proposal.height.0);
        bytes.put_round(proposal.round);
        bytes.put_round(proposal.pol_round);
        bytes.extend(proposal.value.id().0.0);
        bytes.extend(proposal.proposer.0);
        bytes
    }

    /// Checks the signature of a vote or a proposal.
    pub(super) fn message(
        &self,
        message: &SignedMessage<ConsensusContext, ConsensusMsg<ConsensusContext>>,
        key: Option<&IdentityPublicKey>,
    ) -> bool {
        let bytes = match &message.message {
            ConsensusMsg::Vote(vote) => self.vote_bytes(vote),
            ConsensusMsg::Proposal(proposal) => self.proposal_bytes(proposal),
        };
        key.is_some_and(|key| key.verify(&bytes, &message.signature.0))
    }

    /// Checks that 2f+1 servers of the height's set have committed to a value. The caller compares
    /// the value and height of the certificate with the expected ones.
    ///
    /// # Errors
    /// If a signer is unknown, signs twice or has an invalid signature, or there are too few
    /// signers.
    pub(crate) fn commit(
        &self,
        certificate: &CommitCertificate<ConsensusContext>,
        servers: &ConsensusValidatorSet,
    ) -> Result<(), CertificateRefusal> {
        let vote = |voter| Vote {
            kind: VoteType::Precommit,
            height: certificate.height,
            round: certificate.round,
            value: NilOrVal::Val(certificate.value_id),
            voter,
        };
        let mut tally = CertificateTally::new(self, servers);
        for CommitSignature { address, signature } in &certificate.commit_signatures {
            tally.add(&vote(*address), signature)?;
        }
        tally.reached(ThresholdParams::default().quorum)
    }

    /// Checks a certificate of 2f+1 prevotes for a value.
    pub(super) fn polka(
        &self,
        certificate: &PolkaCertificate<ConsensusContext>,
        servers: &ConsensusValidatorSet,
    ) -> Result<(), CertificateRefusal> {
        let mut tally = CertificateTally::new(self, servers);
        for vote in certificate.votes(&ConsensusContext) {
            tally.add(&vote.message, &vote.signature)?;
        }
        tally.reached(ThresholdParams::default().quorum)
    }

    /// Checks a certificate that justifies a round: 2f+1 precommits of the round before, or f+1
    /// votes of the round itself.
    pub(super) fn round(
        &self,
        certificate: &RoundCertificate<ConsensusContext>,
        servers: &ConsensusValidatorSet,
    ) -> Result<(), CertificateRefusal> {
        let precommits = certificate.cert_type == RoundCertificateType::Precommit;
        let mut tally = CertificateTally::new(self, servers);
        for vote in certificate.votes(&ConsensusContext) {
            if precommits && vote.message.kind == VoteType::Prevote {
                return Err(CertificateError::InvalidVoteType(vote.message.voter));
            }
            tally.add(&vote.message, &vote.signature)?;
        }
        let thresholds = ThresholdParams::default();
        tally.reached(if precommits { thresholds.quorum } else { thresholds.honest })
    }
}

/// Counts the voters of a certificate.
struct CertificateTally<'a> {
    verifier: &'a VoteVerifier,
    servers: &'a ConsensusValidatorSet,
    seen: BTreeSet<ValidatorAddress>,
}

impl<'a> CertificateTally<'a> {
    fn new(verifier: &'a VoteVerifier, servers: &'a ConsensusValidatorSet) -> Self {
        Self { verifier, servers, seen: BTreeSet::new() }
    }

    /// Counts a vote whose signature is valid. Otherwise rejects the certificate.
    fn add(&mut self, vote: &Vote, signature: &Ed25519Signature) -> Result<(), CertificateRefusal> {
        if !self.seen.insert(vote.voter) {
            return Err(CertificateError::DuplicateVote(vote.voter));
        }
        let key = self.servers.key(&vote.voter);
        let key = key.ok_or(CertificateError::UnknownValidator(vote.voter))?;
        if key.verify(&self.verifier.vote_bytes(vote), &signature.0) {
            Ok(())
        } else {
            let wrong = CommitSignature::new(vote.voter, *signature);
            Err(CertificateError::InvalidCommitSignature(wrong))
        }
    }

    /// Whether the votes suffice.
    fn reached(&self, threshold: ThresholdParam) -> Result<(), CertificateRefusal> {
        let signed = self.seen.len() as u64;
        let total = self.servers.len() as u64;
        if threshold.is_met(signed, total) {
            Ok(())
        } else {
            let expected = threshold.min_expected(total);
            Err(CertificateError::NotEnoughVotingPower { signed, total, expected })
        }
    }
}
