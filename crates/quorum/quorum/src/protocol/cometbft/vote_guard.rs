//! Signatures of votes and proposals for CometBFT, at most one of each step of the agreement.

use encoding::{FieldReader, FieldWrite as _};
use prost::Message as _;

use super::messages::{
    BlockId, EngineProposal, EngineVote, SignedProposalForm, SignedVoteForm, Timestamp,
};
use crate::protocol::voting::VotingSecret;
use crate::protocol::wire::MalformedEncoding;

/// The types of signed messages.
const PREVOTE: i32 = 1;
const PRECOMMIT: i32 = 2;
const PROPOSAL: i32 = 32;

/// A step of the agreement: height, round, and the order of what is signed in the round.
type Step = (i64, i32, u8);

/// Why something is not signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum VoteRefusal {
    /// It is neither a vote nor a proposal.
    #[error("neither a prevote, a precommit nor a proposal")]
    Kind,
    /// It is for another chain.
    #[error("for another chain")]
    Chain,
    /// A later step was signed.
    #[error("a later step was signed before")]
    Late,
    /// Something else was signed at this step.
    #[error("something else was signed at this step: this server would vote twice")]
    Twice,
}

/// The last signed message. It must be durable before its signature leaves the process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LastSigned {
    step: Step,
    /// The signed message, with a time of zero.
    content: Vec<u8>,
    timestamp: Timestamp,
    signature: [u8; 64],
}

/// A signature, and the time that it covers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GuardedSignature {
    pub(crate) timestamp: Timestamp,
    pub(crate) signature: [u8; 64],
}

/// Signs in one chain. It refuses whatever could be a second vote.
#[derive(Debug)]
pub(crate) struct VoteGuard {
    chain_id: String,
    last: Option<LastSigned>,
}

impl VoteGuard {
    /// A guard for a chain, which continues after what was signed last.
    pub(crate) fn new(chain_id: String, last: Option<LastSigned>) -> Self {
        Self { chain_id, last }
    }

    /// The last signed message.
    pub(crate) fn last(&self) -> Option<&LastSigned> {
        self.last.as_ref()
    }

    /// Signs a vote. The same vote with another time gets the time and the signature of before:
    /// after a crash, CometBFT asks again.
    ///
    /// # Errors
    /// If this server may not sign it.
    pub(crate) fn sign_vote(
        &mut self,
        vote: &EngineVote,
        chain_id: &str,
        key: &VotingSecret,
    ) -> Result<GuardedSignature, VoteRefusal> {
        let order = match vote.kind {
            PREVOTE => 1,
            PRECOMMIT => 2,
            _ => return Err(VoteRefusal::Kind),
        };
        let form = |timestamp| {
            let form = SignedVoteForm {
                kind: vote.kind,
                height: vote.height,
                round: vote.round.into(),
                block_id: signed_block(&vote.block_id),
                timestamp,
                chain_id: chain_id.to_owned(),
            };
            form.encode_length_delimited_to_vec()
        };
        self.sign((vote.height, vote.round, order), chain_id, vote.timestamp, form, key)
    }

    /// Signs a proposal, as [`Self::sign_vote`].
    ///
    /// # Errors
    /// If this server may not sign it.
    pub(crate) fn sign_proposal(
        &mut self,
        proposal: &EngineProposal,
        chain_id: &str,
        key: &VotingSecret,
    ) -> Result<GuardedSignature, VoteRefusal> {
        if proposal.kind != PROPOSAL {
            return Err(VoteRefusal::Kind);
        }
        let form = |timestamp| {
            let form = SignedProposalForm {
                kind: proposal.kind,
                height: proposal.height,
                round: proposal.round.into(),
                pol_round: proposal.pol_round.into(),
                block_id: signed_block(&proposal.block_id),
                timestamp,
                chain_id: chain_id.to_owned(),
            };
            form.encode_length_delimited_to_vec()
        };
        let step = (proposal.height, proposal.round, 0);
        self.sign(step, chain_id, proposal.timestamp, form, key)
    }

    fn sign(
        &mut self,
        step: Step,
        chain_id: &str,
        timestamp: Timestamp,
        form: impl Fn(Timestamp) -> Vec<u8>,
        key: &VotingSecret,
    ) -> Result<GuardedSignature, VoteRefusal> {
        if chain_id != self.chain_id {
            return Err(VoteRefusal::Chain);
        }
        let content = form(Timestamp::default());
        match &self.last {
            Some(last) if step < last.step => return Err(VoteRefusal::Late),
            Some(last) if step == last.step => {
                if content != last.content {
                    return Err(VoteRefusal::Twice);
                }
                let LastSigned { timestamp, signature, .. } = *last;
                return Ok(GuardedSignature { timestamp, signature });
            }
            _ => {}
        }
        let signature = key.sign(&form(timestamp));
        self.last = Some(LastSigned { step, content, timestamp, signature });
        Ok(GuardedSignature { timestamp, signature })
    }
}

/// A vote for no block is signed without a block.
fn signed_block(block: &BlockId) -> Option<BlockId> {
    (*block != BlockId::default()).then(|| block.clone())
}

impl LastSigned {
    /// The encoding.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u64(self.step.0.cast_unsigned());
        out.put_u32(self.step.1.cast_unsigned());
        out.push(self.step.2);
        out.put_u64(self.timestamp.seconds.cast_unsigned());
        out.put_u32(self.timestamp.nanos.cast_unsigned());
        out.extend(self.signature);
        out.put_counted(&self.content);
        out
    }

    /// Parses what was saved.
    ///
    /// # Errors
    /// If the bytes are not exactly such an encoding.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, MalformedEncoding> {
        let mut reader = FieldReader::new(bytes);
        let step = (reader.u64()?.cast_signed(), reader.u32()?.cast_signed(), reader.u8()?);
        let timestamp =
            Timestamp { seconds: reader.u64()?.cast_signed(), nanos: reader.u32()?.cast_signed() };
        let signature = reader.take()?;
        let content = reader.counted()?.to_vec();
        reader.finish()?;
        Ok(Self { step, content, timestamp, signature })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tests::voting;
    use crate::protocol::cometbft::messages::PartSetHeader;

    const CHAIN: &str = "test_chain_id";

    fn vote(kind: i32, height: i64, round: i32, block: u8, seconds: i64) -> EngineVote {
        let parts = PartSetHeader { total: 1, hash: vec![block; 32] };
        let block_id = match block {
            0 => BlockId::default(),
            _ => BlockId { hash: vec![block; 32], parts },
        };
        let timestamp = Timestamp { seconds, nanos: 5 };
        EngineVote { kind, height, round, block_id, timestamp, ..EngineVote::default() }
    }

    fn guard() -> VoteGuard {
        VoteGuard::new(CHAIN.into(), None)
    }

    /// The bytes that CometBFT 0.38 verifies: the cases 1 and 4 of its test vectors of votes.
    #[test]
    fn signed_votes_are_those_of_cometbft() {
        let timestamp = Timestamp { seconds: -62_135_596_800, nanos: 0 };
        let form = |kind, chain_id: &str| {
            let form = SignedVoteForm {
                kind,
                height: 1,
                round: 1,
                block_id: None,
                timestamp,
                chain_id: chain_id.into(),
            };
            base16ct::lower::encode_string(&form.encode_length_delimited_to_vec())
        };
        let numbers = "110100000000000000190100000000000000";
        let time = "2a0b088092b8c398feffffff01";
        assert_eq!(form(PRECOMMIT, ""), format!("210802{numbers}{time}"));
        let chain = "320d746573745f636861696e5f6964";
        assert_eq!(form(0, CHAIN), format!("2e{numbers}{time}{chain}"));
    }

    #[test]
    fn no_step_is_signed_twice() {
        let (mut guard, key) = (guard(), voting(1));
        let first = guard.sign_vote(&vote(PREVOTE, 5, 0, 1, 10), CHAIN, &key).unwrap();
        // The same with another time: the first signature, with its time.
        assert_eq!(guard.sign_vote(&vote(PREVOTE, 5, 0, 1, 11), CHAIN, &key), Ok(first));
        assert_eq!(first.timestamp.seconds, 10);
        // Another key, as after a change of the epoch, changes nothing.
        let other = guard.sign_vote(&vote(PREVOTE, 5, 0, 1, 11), CHAIN, &voting(2));
        assert_eq!(other, Ok(first));
        for block in [0, 2] {
            let again = guard.sign_vote(&vote(PREVOTE, 5, 0, block, 10), CHAIN, &key);
            assert_eq!(again, Err(VoteRefusal::Twice));
        }
        guard.sign_vote(&vote(PRECOMMIT, 5, 0, 0, 12), CHAIN, &key).unwrap();
        let proposal = |height, round| EngineProposal {
            kind: PROPOSAL,
            height,
            round,
            pol_round: -1,
            ..EngineProposal::default()
        };
        let late = |guard: &mut VoteGuard, height, round| {
            let vote = guard.sign_vote(&vote(PREVOTE, height, round, 1, 1), CHAIN, &key);
            (vote, guard.sign_proposal(&proposal(height, round), CHAIN, &key))
        };
        let refused = Err(VoteRefusal::Late);
        assert_eq!(late(&mut guard, 5, 0), (refused, refused));
        assert_eq!(late(&mut guard, 4, 9), (refused, refused));
        guard.sign_proposal(&proposal(5, 1), CHAIN, &key).unwrap();
        assert!(guard.sign_vote(&vote(PREVOTE, 5, 1, 1, 1), CHAIN, &key).is_ok());
        let elsewhere = guard.sign_vote(&vote(PREVOTE, 6, 0, 1, 1), "other", &key);
        assert_eq!(elsewhere, Err(VoteRefusal::Chain));
        let unknown = guard.sign_vote(&vote(PROPOSAL, 6, 0, 1, 1), CHAIN, &key);
        assert_eq!(unknown, Err(VoteRefusal::Kind));
    }

    #[test]
    fn a_guard_that_was_saved_continues() {
        let (mut guard, key) = (guard(), voting(1));
        let signed = guard.sign_vote(&vote(PRECOMMIT, 5, 3, 1, 10), CHAIN, &key).unwrap();
        let saved = guard.last().unwrap().to_bytes();
        let last = LastSigned::parse(&saved).unwrap();
        let mut restored = VoteGuard::new(CHAIN.into(), Some(last));
        let again = restored.sign_vote(&vote(PRECOMMIT, 5, 3, 1, 99), CHAIN, &key);
        assert_eq!(again, Ok(signed));
        let other = restored.sign_vote(&vote(PRECOMMIT, 5, 3, 2, 99), CHAIN, &key);
        assert_eq!(other, Err(VoteRefusal::Twice));
        assert!(LastSigned::parse(&saved[1..]).is_err());
    }
}
