//! Encodings of messages between servers, and of records in the write-ahead log.

use std::collections::BTreeSet;

use arc_malachitebft_core_consensus::{
    Input, LivenessMsg, LocallyProposedValue, ProposedValue, SignedConsensusMsg,
};
use arc_malachitebft_core_types::{
    CommitCertificate, CommitSignature, NilOrVal, PolkaCertificate, PolkaSignature, Round,
    RoundCertificate, RoundCertificateType, RoundSignature, SignedMessage, SignedProposal,
    SignedVote, Timeout, TimeoutKind, Validity, ValueOrigin, VoteType,
};
use bytes::Bytes;
use encoding::{FieldReader, FieldWrite};

use super::compact::CompactProposal;
use super::context::servers::MAX_SERVERS;
use super::context::{
    ConsensusContext, Ed25519Signature, LogValue, MAX_ENTRIES, Proposal, ValidatorAddress, ValueId,
    Vote,
};
use crate::protocol::log_types::{Height, MAX_ENTRY_LEN};
use crate::protocol::wire::{MalformedEncoding, QuorumFields as _, Sha256Digest};

/// A committed value, with the signatures of 2f+1 servers that have committed to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DecidedValue {
    pub(crate) value: LogValue,
    pub(crate) certificate: CommitCertificate<ConsensusContext>,
}

impl DecidedValue {
    /// The height of the value.
    pub(crate) fn height(&self) -> Height {
        self.certificate.height
    }

    /// The encoding.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.value.encoded().len() + 100 * (MAX_SERVERS + 1));
        bytes.put_u64(self.certificate.height.0);
        bytes.put_round(self.certificate.round);
        bytes.put_list(&self.certificate.commit_signatures, |bytes, signature| {
            bytes.extend(signature.address.0);
            bytes.extend(signature.signature.0);
        });
        bytes.extend(self.value.encoded());
        bytes
    }

    /// Parses a committed value and its certificate. Does not verify signatures.
    ///
    /// # Errors
    /// If the bytes are not such an encoding.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, MalformedEncoding> {
        let mut reader = FieldReader::new(bytes);
        let height = Height(reader.u64()?);
        let round = reader.round()?;
        let commit_signatures = reader
            .list(|reader| Ok(CommitSignature::new(reader.address()?, reader.signature()?)))?;
        let value = LogValue::parse(Bytes::copy_from_slice(reader.rest()))?;
        let value_id = value.id();
        let certificate = CommitCertificate { height, round, value_id, commit_signatures };
        Ok(Self { value, certificate })
    }
}

/// A message between servers. The link identifies the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConsensusMessage {
    /// An entry that should be committed.
    Entry(Bytes),
    /// A vote or a proposal.
    Consensus(SignedConsensusMsg<ConsensusContext>),
    /// A vote that is sent again, or a certificate for a server that is behind.
    Liveness(LivenessMsg<ConsensusContext>),
    /// A request for the committed value of this height.
    Want(Height),
    /// A committed value.
    Decided(DecidedValue),
    /// A proposal that names its entries by their digests.
    Compact(CompactProposal),
    /// A question for entries of the receiver's proposal in this round: their digests.
    AskEntries(Height, Round, Vec<Sha256Digest>),
}

impl ConsensusMessage {
    /// The encoding.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Entry(entry) => {
                bytes.push(1);
                bytes.extend(entry);
            }
            Self::Consensus(SignedConsensusMsg::Vote(vote)) => {
                bytes.push(2);
                bytes.put_signed_vote(vote);
            }
            Self::Consensus(SignedConsensusMsg::Proposal(proposal)) => {
                bytes.push(3);
                bytes.put_signed_proposal(proposal);
            }
            Self::Liveness(LivenessMsg::Vote(vote)) => {
                bytes.push(4);
                bytes.put_signed_vote(vote);
            }
            Self::Liveness(LivenessMsg::PolkaCertificate(certificate)) => {
                bytes.push(5);
                bytes.put_polka(certificate);
            }
            Self::Liveness(LivenessMsg::SkipRoundCertificate(certificate)) => {
                bytes.push(6);
                bytes.put_round_certificate(certificate);
            }
            Self::Want(height) => {
                bytes.push(7);
                bytes.put_u64(height.0);
            }
            Self::Decided(decided) => {
                bytes.push(8);
                bytes.extend(decided.to_bytes());
            }
            Self::Compact(proposal) => {
                bytes.push(9);
                bytes.put_u64(proposal.height.0);
                bytes.put_round(proposal.round);
                bytes.put_round(proposal.pol_round);
                bytes.extend(proposal.proposer.0);
                bytes.extend(proposal.signature.0);
                bytes.extend(proposal.value.0.0);
                bytes.extend(proposal.leader.0);
                bytes.put_list(&proposal.entries, |bytes, digest| bytes.extend(digest.0));
            }
            Self::AskEntries(height, round, entries) => {
                bytes.push(10);
                bytes.put_u64(height.0);
                bytes.put_round(*round);
                bytes.put_list(entries, |bytes, digest| bytes.extend(digest.0));
            }
        }
        bytes
    }

    /// The encoding of [`Self::Decided`], from the bytes of a [`DecidedValue`].
    pub(crate) fn committed(decided: &[u8]) -> Vec<u8> {
        [&[8], decided].concat()
    }

    /// Whether it contains signatures of this server, or follows from what this server has signed.
    pub(crate) fn is_signed(&self) -> bool {
        matches!(self, Self::Consensus(_) | Self::Liveness(_) | Self::Compact(_))
    }

    /// Parses a message.
    ///
    /// # Errors
    /// If the bytes are not a message.
    pub(crate) fn parse(bytes: &Bytes) -> Result<Self, MalformedEncoding> {
        let (kind, body) = bytes.split_first().ok_or(MalformedEncoding("too short"))?;
        let mut reader = FieldReader::new(body);
        let message = match kind {
            1 if (1..=MAX_ENTRY_LEN).contains(&body.len()) => {
                return Ok(Self::Entry(bytes.slice(1..)));
            }
            2 => Self::Consensus(SignedConsensusMsg::Vote(reader.signed_vote()?)),
            3 => Self::Consensus(SignedConsensusMsg::Proposal(reader.signed_proposal()?)),
            4 => Self::Liveness(LivenessMsg::Vote(reader.signed_vote()?)),
            5 => Self::Liveness(LivenessMsg::PolkaCertificate(reader.polka()?)),
            6 => Self::Liveness(LivenessMsg::SkipRoundCertificate(reader.round_certificate()?)),
            7 => Self::Want(Height(reader.u64()?)),
            8 => return DecidedValue::parse(body).map(Self::Decided),
            9 => Self::Compact(CompactProposal {
                height: Height(reader.u64()?),
                round: reader.round()?,
                pol_round: reader.round()?,
                proposer: reader.address()?,
                signature: reader.signature()?,
                value: ValueId(reader.digest()?),
                leader: reader.address()?,
                entries: reader.entry_digests()?,
            }),
            10 => Self::AskEntries(Height(reader.u64()?), reader.round()?, reader.entry_digests()?),
            _ => return Err(MalformedEncoding("unknown message")),
        };
        reader.finish()?;
        Ok(message)
    }
}

/// The encoding of a record of the write-ahead log. `None` for an input that is not recorded:
/// Malachite records these five kinds only.
pub(super) fn encode_record(input: &Input<ConsensusContext>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    match input {
        Input::Vote(vote) => {
            bytes.push(1);
            bytes.put_signed_vote(vote);
        }
        Input::Proposal(proposal) => {
            bytes.push(2);
            bytes.put_signed_proposal(proposal);
        }
        Input::TimeoutElapsed(timeout) => {
            bytes.push(3);
            bytes.push(match timeout.kind {
                TimeoutKind::Propose => 1,
                TimeoutKind::Prevote => 2,
                TimeoutKind::Precommit => 3,
                TimeoutKind::Rebroadcast | TimeoutKind::FinalizeHeight(_) => return None,
            });
            bytes.put_round(timeout.round);
        }
        // Its origin is not recorded, because a replayed value was accepted before.
        Input::ProposedValue(proposed, _) => {
            bytes.push(4);
            bytes.put_u64(proposed.height.0);
            bytes.put_round(proposed.round);
            bytes.put_round(proposed.valid_round);
            bytes.extend(proposed.proposer.0);
            bytes.push(proposed.validity.is_valid().into());
            bytes.extend(proposed.value.encoded());
        }
        Input::PolkaCertificate(certificate) => {
            bytes.push(5);
            bytes.put_polka(certificate);
        }
        Input::StartHeight(..)
        | Input::RoundCertificate(_)
        | Input::Propose(LocallyProposedValue { .. })
        | Input::SyncValueResponse(_) => return None,
    }
    Some(bytes)
}

/// Parses a record of the write-ahead log.
pub(super) fn parse_record(bytes: &[u8]) -> Result<Input<ConsensusContext>, MalformedEncoding> {
    let mut reader = FieldReader::new(bytes);
    let input = match reader.u8()? {
        1 => Input::Vote(reader.signed_vote()?),
        2 => Input::Proposal(reader.signed_proposal()?),
        3 => {
            let kind = match reader.u8()? {
                1 => TimeoutKind::Propose,
                2 => TimeoutKind::Prevote,
                3 => TimeoutKind::Precommit,
                _ => return Err(MalformedEncoding("unknown timeout")),
            };
            Input::TimeoutElapsed(Timeout::new(reader.round()?, kind))
        }
        4 => {
            let proposed = ProposedValue {
                height: Height(reader.u64()?),
                round: reader.round()?,
                valid_round: reader.round()?,
                proposer: reader.address()?,
                validity: match reader.u8()? {
                    0 => Validity::Invalid,
                    1 => Validity::Valid,
                    _ => return Err(MalformedEncoding("neither valid nor invalid")),
                },
                value: LogValue::parse(Bytes::copy_from_slice(reader.rest()))?,
            };
            Input::ProposedValue(proposed, ValueOrigin::Consensus)
        }
        5 => Input::PolkaCertificate(reader.polka()?),
        _ => return Err(MalformedEncoding("unknown record")),
    };
    reader.finish()?;
    Ok(input)
}

/// The encoding of the round before the first. No round reaches this number.
const NO_ROUND: u32 = u32::MAX;

/// Appends fields of consensus messages to a buffer.
pub(super) trait PutConsensusFields: FieldWrite {
    fn put_round(&mut self, round: Round);
    fn put_vote(&mut self, vote: &Vote);
}

impl PutConsensusFields for Vec<u8> {
    fn put_round(&mut self, round: Round) {
        self.put_u32(round.as_u32().unwrap_or(NO_ROUND));
    }

    fn put_vote(&mut self, vote: &Vote) {
        self.put_vote_type(vote.kind);
        self.put_u64(vote.height.0);
        self.put_round(vote.round);
        self.put_value_id(&vote.value);
        self.extend(vote.voter.0);
    }
}

trait PutSignedMessages: PutConsensusFields + Sized {
    fn put_list<T>(&mut self, items: &[T], put: impl Fn(&mut Self, &T));
    fn put_vote_type(&mut self, kind: VoteType);
    fn put_value_id(&mut self, value: &NilOrVal<ValueId>);
    fn put_signed_vote(&mut self, vote: &SignedVote<ConsensusContext>);
    fn put_signed_proposal(&mut self, proposal: &SignedProposal<ConsensusContext>);
    fn put_polka(&mut self, certificate: &PolkaCertificate<ConsensusContext>);
    fn put_round_certificate(&mut self, certificate: &RoundCertificate<ConsensusContext>);
}

impl PutSignedMessages for Vec<u8> {
    fn put_list<T>(&mut self, items: &[T], put: impl Fn(&mut Self, &T)) {
        self.put_count(items.len());
        for item in items {
            put(self, item);
        }
    }

    fn put_vote_type(&mut self, kind: VoteType) {
        self.push(match kind {
            VoteType::Prevote => 1,
            VoteType::Precommit => 2,
        });
    }

    fn put_value_id(&mut self, value: &NilOrVal<ValueId>) {
        match value {
            NilOrVal::Nil => self.push(0),
            NilOrVal::Val(id) => {
                self.push(1);
                self.extend(id.0.0);
            }
        }
    }

    fn put_signed_vote(&mut self, vote: &SignedVote<ConsensusContext>) {
        self.put_vote(&vote.message);
        self.extend(vote.signature.0);
    }

    fn put_signed_proposal(&mut self, proposal: &SignedProposal<ConsensusContext>) {
        self.put_u64(proposal.message.height.0);
        self.put_round(proposal.message.round);
        self.put_round(proposal.message.pol_round);
        self.extend(proposal.message.proposer.0);
        self.extend(proposal.signature.0);
        self.extend(proposal.message.value.encoded());
    }

    fn put_polka(&mut self, certificate: &PolkaCertificate<ConsensusContext>) {
        self.put_u64(certificate.height.0);
        self.put_round(certificate.round);
        self.extend(certificate.value_id.0.0);
        self.put_list(&certificate.polka_signatures, |bytes, signature| {
            bytes.extend(signature.address.0);
            bytes.extend(signature.signature.0);
        });
    }

    fn put_round_certificate(&mut self, certificate: &RoundCertificate<ConsensusContext>) {
        self.put_u64(certificate.height.0);
        self.put_round(certificate.round);
        self.push(match certificate.cert_type {
            RoundCertificateType::Skip => 1,
            RoundCertificateType::Precommit => 2,
        });
        self.put_list(&certificate.round_signatures, |bytes, signature| {
            bytes.put_vote_type(signature.vote_type);
            bytes.put_value_id(&signature.value_id);
            bytes.extend(signature.address.0);
            bytes.extend(signature.signature.0);
        });
    }
}

/// Reads fields of consensus messages.
trait ReadConsensusFields {
    fn round(&mut self) -> Result<Round, MalformedEncoding>;
    /// A list with at most one item for each server.
    fn list<T>(
        &mut self,
        read: impl Fn(&mut Self) -> Result<T, MalformedEncoding>,
    ) -> Result<Vec<T>, MalformedEncoding>;
    /// The digests of 1 to 256 different entries.
    fn entry_digests(&mut self) -> Result<Vec<Sha256Digest>, MalformedEncoding>;
    fn address(&mut self) -> Result<ValidatorAddress, MalformedEncoding>;
    fn signature(&mut self) -> Result<Ed25519Signature, MalformedEncoding>;
    fn value_id(&mut self) -> Result<NilOrVal<ValueId>, MalformedEncoding>;
    fn vote_type(&mut self) -> Result<VoteType, MalformedEncoding>;
    fn signed_vote(&mut self) -> Result<SignedVote<ConsensusContext>, MalformedEncoding>;
    fn signed_proposal(&mut self) -> Result<SignedProposal<ConsensusContext>, MalformedEncoding>;
    fn polka(&mut self) -> Result<PolkaCertificate<ConsensusContext>, MalformedEncoding>;
    fn round_certificate(
        &mut self,
    ) -> Result<RoundCertificate<ConsensusContext>, MalformedEncoding>;
}

impl ReadConsensusFields for FieldReader<'_> {
    fn round(&mut self) -> Result<Round, MalformedEncoding> {
        let round = self.u32()?;
        Ok(if round == NO_ROUND { Round::Nil } else { Round::new(round) })
    }

    fn list<T>(
        &mut self,
        read: impl Fn(&mut Self) -> Result<T, MalformedEncoding>,
    ) -> Result<Vec<T>, MalformedEncoding> {
        let len = self.u32()?;
        if len as usize > MAX_SERVERS {
            return Err(MalformedEncoding("more signatures than servers"));
        }
        (0..len).map(|_| read(self)).collect()
    }

    fn entry_digests(&mut self) -> Result<Vec<Sha256Digest>, MalformedEncoding> {
        let len = self.u32()? as usize;
        if !(1..=MAX_ENTRIES).contains(&len) {
            return Err(MalformedEncoding("entries of a value are out of bounds"));
        }
        let digests = (0..len).map(|_| self.digest()).collect::<Result<Vec<_>, _>>()?;
        // A server admits no value with an entry twice.
        let distinct: BTreeSet<_> = digests.iter().collect();
        if distinct.len() < digests.len() {
            return Err(MalformedEncoding("an entry is named twice"));
        }
        Ok(digests)
    }

    fn address(&mut self) -> Result<ValidatorAddress, MalformedEncoding> {
        Ok(ValidatorAddress(self.take()?))
    }

    fn signature(&mut self) -> Result<Ed25519Signature, MalformedEncoding> {
        Ok(Ed25519Signature(self.take()?))
    }

    fn value_id(&mut self) -> Result<NilOrVal<ValueId>, MalformedEncoding> {
        match self.u8()? {
            0 => Ok(NilOrVal::Nil),
            1 => Ok(NilOrVal::Val(ValueId(self.digest()?))),
            _ => Err(MalformedEncoding("neither a value nor none")),
        }
    }

    fn vote_type(&mut self) -> Result<VoteType, MalformedEncoding> {
        match self.u8()? {
            1 => Ok(VoteType::Prevote),
            2 => Ok(VoteType::Precommit),
            _ => Err(MalformedEncoding("unknown vote")),
        }
    }

    fn signed_vote(&mut self) -> Result<SignedVote<ConsensusContext>, MalformedEncoding> {
        let vote = Vote {
            kind: self.vote_type()?,
            height: Height(self.u64()?),
            round: self.round()?,
            value: self.value_id()?,
            voter: self.address()?,
        };
        Ok(SignedMessage::new(vote, self.signature()?))
    }

    fn signed_proposal(&mut self) -> Result<SignedProposal<ConsensusContext>, MalformedEncoding> {
        let height = Height(self.u64()?);
        let round = self.round()?;
        let pol_round = self.round()?;
        let proposer = self.address()?;
        let signature = self.signature()?;
        let value = LogValue::parse(Bytes::copy_from_slice(self.rest()))?;
        let proposal = Proposal { height, round, value, pol_round, proposer };
        Ok(SignedMessage::new(proposal, signature))
    }

    fn polka(&mut self) -> Result<PolkaCertificate<ConsensusContext>, MalformedEncoding> {
        let height = Height(self.u64()?);
        let round = self.round()?;
        let value_id = ValueId(self.digest()?);
        let polka_signatures =
            self.list(|reader| Ok(PolkaSignature::new(reader.address()?, reader.signature()?)))?;
        Ok(PolkaCertificate { height, round, value_id, polka_signatures })
    }

    fn round_certificate(
        &mut self,
    ) -> Result<RoundCertificate<ConsensusContext>, MalformedEncoding> {
        let height = Height(self.u64()?);
        let round = self.round()?;
        let cert_type = match self.u8()? {
            1 => RoundCertificateType::Skip,
            2 => RoundCertificateType::Precommit,
            _ => return Err(MalformedEncoding("unknown certificate")),
        };
        let round_signatures = self.list(|reader| {
            let kind = reader.vote_type()?;
            let value = reader.value_id()?;
            let address = reader.address()?;
            Ok(RoundSignature::new(kind, value, address, reader.signature()?))
        })?;
        Ok(RoundCertificate { height, round, cert_type, round_signatures })
    }
}
