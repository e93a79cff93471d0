//! Proposals of large values that name the entries by their digests. Each server has most entries
//! already, because their authors send them to all. A proposal with 1.4 MB of entries, which the
//! proposer of 31 servers sends 30 times, has 1 kB then.

use std::collections::BTreeMap;
use std::time::Duration;

use arc_malachitebft_core_consensus::SignedConsensusMsg;
use arc_malachitebft_core_types::{Round, SignedMessage, SignedProposal};
use bytes::Bytes;

use super::codec::ConsensusMessage;
use super::context::{
    ConsensusContext, Ed25519Signature, LogValue, MAX_VALUE_LEN, Proposal, ValidatorAddress,
    ValueId,
};
use crate::protocol::log_types::Height;
use crate::protocol::wire::Sha256Digest;

/// The shortest value that is proposed by digests, and the fewest servers to which it is: smaller
/// groups gain little, and may have servers of an older version, which knows whole proposals only.
const MIN_LEN: usize = 64 << 10;
const MIN_SERVERS: usize = 14;

/// A proposal without the entries of its value. Its signature cannot be checked without them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CompactProposal {
    pub(crate) height: Height,
    pub(crate) round: Round,
    pub(crate) pol_round: Round,
    pub(crate) proposer: ValidatorAddress,
    pub(crate) signature: Ed25519Signature,
    /// The value that these entries result in.
    pub(crate) value: ValueId,
    /// The author of the value.
    pub(crate) leader: ValidatorAddress,
    /// The digests of its entries, in their order: 1 to 256.
    pub(crate) entries: Vec<Sha256Digest>,
}

impl CompactProposal {
    fn of(proposal: &SignedProposal<ConsensusContext>) -> Self {
        let Proposal { height, round, value, pol_round, proposer } = &proposal.message;
        Self {
            height: *height,
            round: *round,
            pol_round: *pol_round,
            proposer: *proposer,
            signature: proposal.signature,
            value: value.id(),
            leader: value.leader(),
            entries: value.entries().iter().map(|entry| Sha256Digest::of(&[entry])).collect(),
        }
    }

    /// The proposal with these entries. `None` if the value is another one than it says.
    pub(super) fn with_entries(
        &self,
        entries: &[Bytes],
    ) -> Option<SignedConsensusMsg<ConsensusContext>> {
        let value = LogValue::new(self.leader, entries).filter(|it| it.id() == self.value)?;
        let Self { height, round, pol_round, proposer, signature, .. } = *self;
        let proposal = Proposal { height, round, value, pol_round, proposer };
        Some(SignedConsensusMsg::Proposal(SignedMessage::new(proposal, signature)))
    }
}

/// The message to a group of this many servers: a proposal of a large value is sent by digests.
pub(super) fn shortened(message: ConsensusMessage, servers: usize) -> ConsensusMessage {
    match &message {
        ConsensusMessage::Consensus(SignedConsensusMsg::Proposal(proposal))
            if servers >= MIN_SERVERS && proposal.message.value.encoded().len() >= MIN_LEN =>
        {
            ConsensusMessage::Compact(CompactProposal::of(proposal))
        }
        _ => message,
    }
}

/// Compact proposals with entries that this server lacks, at most one of each server.
#[derive(Debug, Default)]
pub(super) struct UnresolvedProposals {
    proposals: BTreeMap<ValidatorAddress, UnresolvedProposal>,
}

#[derive(Debug)]
struct UnresolvedProposal {
    proposal: CompactProposal,
    /// When to ask its proposer for the entries. `None` if it was asked.
    asks_at: Option<Duration>,
    /// The entries that its proposer has sent since, of at most the length of a value.
    answers: BTreeMap<Sha256Digest, Bytes>,
}

impl UnresolvedProposals {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.proposals.is_empty()
    }

    /// A height begins: proposals of earlier ones are dropped.
    pub(super) fn begin(&mut self, height: Height) {
        self.proposals.retain(|_, it| it.proposal.height >= height);
    }

    /// Adds the newest proposal of a server. Its missing entries are asked for at this time, unless
    /// their authors send them before.
    pub(super) fn add(&mut self, proposal: CompactProposal, asks_at: Duration) {
        let place = |it: &CompactProposal| (it.height, it.round.as_i64());
        let known = self.proposals.get(&proposal.proposer);
        if known.is_none_or(|known| place(&known.proposal) < place(&proposal)) {
            let (server, asks_at, answers) = (proposal.proposer, Some(asks_at), BTreeMap::new());
            self.proposals.insert(server, UnresolvedProposal { proposal, asks_at, answers });
        }
    }

    /// A server has sent an entry. It is kept if the server was asked for it.
    pub(super) fn handle_entry(&mut self, from: ValidatorAddress, entry: &Bytes) {
        let asked = self.proposals.get_mut(&from).filter(|it| it.asks_at.is_none());
        let Some(UnresolvedProposal { proposal, answers, .. }) = asked else { return };
        let digest = Sha256Digest::of(&[entry]);
        let len: usize = answers.values().map(Bytes::len).sum();
        if proposal.entries.contains(&digest) && len + entry.len() <= MAX_VALUE_LEN {
            answers.insert(digest, entry.clone());
        }
    }

    /// Removes the proposals of this height all of whose entries are there, and returns each with
    /// them. `find` finds the entries that wait.
    pub(super) fn take_resolved(
        &mut self,
        height: Height,
        find: impl Fn(&Sha256Digest) -> Option<Bytes>,
    ) -> Vec<(CompactProposal, Vec<Bytes>)> {
        let mut resolved = Vec::new();
        self.proposals.retain(|_, it| {
            let UnresolvedProposal { proposal, answers, .. } = it;
            let find = |digest| answers.get(digest).cloned().or_else(|| find(digest));
            let is_current = proposal.height == height;
            let found = is_current.then(|| proposal.entries.iter().map(find).collect());
            let Some(entries) = found.flatten() else { return true };
            resolved.push((proposal.clone(), entries));
            false
        });
        resolved
    }

    /// The proposals of this height whose missing entries are to be asked for now.
    pub(super) fn take_due(&mut self, height: Height, now: Duration) -> Vec<CompactProposal> {
        let waiting = self.proposals.values_mut().filter(|it| it.proposal.height == height);
        let due = waiting
            .filter_map(|it| it.asks_at.take_if(|at| *at <= now).map(|_| it.proposal.clone()));
        due.collect()
    }

    /// When to ask for entries of a proposal of this height.
    pub(super) fn deadline(&self, height: Height) -> Option<Duration> {
        let waiting = self.proposals.values().filter(|it| it.proposal.height == height);
        waiting.filter_map(|it| it.asks_at).min()
    }
}
