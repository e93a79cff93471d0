//! Proposals of large values that name the entries by their digests. Each server has most entries
//! already, because their authors send them to all. A proposal with 1.4 MB of entries, which the
//! proposer of 31 servers sends 30 times, has 1 kB then.

use std::collections::BTreeMap;
use std::time::Duration;

use arc_malachitebft_core_consensus::SignedConsensusMsg;
use arc_malachitebft_core_types::{Round, SignedMessage, SignedProposal};
use bytes::Bytes;

use super::context::{
    ConsensusContext, Ed25519Signature, LogValue, MAX_VALUE_LEN, Proposal, ValidatorAddress,
    ValueId,
};
use crate::protocol::log_types::Height;
use crate::protocol::wire::Sha256Digest;

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
    /// The same proposal without the entries.
    pub(super) fn of(proposal: &SignedProposal<ConsensusContext>) -> Self {
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

    /// The whole proposal, with its value.
    pub(super) fn with_value(&self, value: LogValue) -> SignedConsensusMsg<ConsensusContext> {
        let Self { height, round, pol_round, proposer, signature, .. } = *self;
        let proposal = Proposal { height, round, value, pol_round, proposer };
        SignedConsensusMsg::Proposal(SignedMessage::new(proposal, signature))
    }
}

/// A proposal whose value is known, or all of whose entries are there.
#[derive(Debug)]
pub(super) struct ResolvedProposal {
    pub(super) proposal: CompactProposal,
    /// The length of its value.
    pub(super) len: usize,
    /// The value. `None` if the entries result in another one than the proposal says.
    pub(super) value: Option<LogValue>,
}

/// Compact proposals with entries that this server lacks: of each server at most one for this
/// height and one for the next.
#[derive(Debug, Default)]
pub(super) struct UnresolvedProposals {
    proposals: BTreeMap<(Height, ValidatorAddress), UnresolvedProposal>,
}

#[derive(Debug)]
struct UnresolvedProposal {
    proposal: CompactProposal,
    /// When to ask its proposer for the entries. `None` if it was asked.
    asks_at: Option<Duration>,
    /// The entries that this server had when it asked, and those that the proposer has sent since:
    /// at most the length of a value.
    kept: BTreeMap<Sha256Digest, Bytes>,
}

impl UnresolvedProposals {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.proposals.is_empty()
    }

    /// The height and the proposer of each proposal, the number of its digests, and the length of
    /// the entries that are kept for it.
    #[cfg(test)]
    pub(super) fn held(&self) -> impl Iterator<Item = (Height, ValidatorAddress, usize, usize)> {
        self.proposals.iter().map(|((height, proposer), it)| {
            let kept: usize = it.kept.values().map(Bytes::len).sum();
            (*height, *proposer, it.proposal.entries.len(), kept)
        })
    }

    /// A height begins: proposals of earlier ones are dropped, and those of servers that do not
    /// propose in their rounds.
    pub(super) fn begin(&mut self, height: Height, proposes: impl Fn(&CompactProposal) -> bool) {
        self.proposals
            .retain(|(of, _), it| *of > height || *of == height && proposes(&it.proposal));
    }

    /// Adds the newest proposal of a server. Its missing entries are asked for at this time, unless
    /// their authors send them before.
    pub(super) fn add(&mut self, proposal: CompactProposal, asks_at: Duration) {
        let place = (proposal.height, proposal.proposer);
        let known = self.proposals.get(&place).map(|known| known.proposal.round.as_i64());
        if known.is_none_or(|round| round < proposal.round.as_i64()) {
            let (asks_at, kept) = (Some(asks_at), BTreeMap::new());
            self.proposals.insert(place, UnresolvedProposal { proposal, asks_at, kept });
        }
    }

    /// A server has sent an entry. It is kept if the server was asked for it. Returns whether a
    /// proposal names it.
    pub(super) fn handle_entry(&mut self, from: ValidatorAddress, entry: &Bytes) -> bool {
        if self.proposals.is_empty() {
            return false;
        }
        let digest = Sha256Digest::of(&[entry]);
        let mut is_named = false;
        for ((_, proposer), it) in &mut self.proposals {
            if it.proposal.entries.contains(&digest) {
                is_named = true;
                if *proposer == from && it.asks_at.is_none() {
                    it.keep(digest, entry.clone());
                }
            }
        }
        is_named
    }

    /// Removes and returns a proposal of this height whose value is known, or all of whose entries
    /// are there. `known` finds the values that were proposed before, and `find` the entries that
    /// wait.
    pub(super) fn take_resolved(
        &mut self,
        height: Height,
        known: impl Fn(&ValueId) -> Option<LogValue>,
        find: impl Fn(&Sha256Digest) -> Option<Bytes>,
    ) -> Option<ResolvedProposal> {
        let mut of_height = self.proposals.iter().filter(|((of, _), _)| *of == height);
        let (place, resolved) = of_height.find_map(|(place, it)| {
            let known = known(&it.proposal.value).map(|value| it.with_known(value));
            Some((*place, known.or_else(|| it.with_entries(&find))?))
        })?;
        self.proposals.remove(&place);
        Some(resolved)
    }

    /// The proposals of this height whose proposers are to be asked now, each with the digests of
    /// the missing entries. Those that are there are kept.
    pub(super) fn take_due(
        &mut self,
        height: Height,
        now: Duration,
        find: impl Fn(&Sha256Digest) -> Option<Bytes>,
    ) -> Vec<(CompactProposal, Vec<Sha256Digest>)> {
        let mut due = Vec::new();
        for ((of, _), it) in &mut self.proposals {
            if *of != height || it.asks_at.take_if(|at| *at <= now).is_none() {
                continue;
            }
            let (mut missing, proposal) = (Vec::new(), it.proposal.clone());
            for digest in &proposal.entries {
                match find(digest) {
                    Some(entry) => it.keep(*digest, entry),
                    None => missing.push(*digest),
                }
            }
            due.push((proposal, missing));
        }
        due
    }

    /// When to ask for entries of a proposal of this height.
    pub(super) fn deadline(&self, height: Height) -> Option<Duration> {
        let waiting = self.proposals.iter().filter(|((of, _), _)| *of == height);
        waiting.filter_map(|(_, it)| it.asks_at).min()
    }
}

impl UnresolvedProposal {
    /// The proposal with a value that has its identifier.
    fn with_known(&self, value: LogValue) -> ResolvedProposal {
        let (proposal, len) = (self.proposal.clone(), value.encoded().len());
        ResolvedProposal { proposal, len, value: Some(value) }
    }

    /// The proposal with its entries, if they are all there.
    fn with_entries(
        &self,
        find: impl Fn(&Sha256Digest) -> Option<Bytes>,
    ) -> Option<ResolvedProposal> {
        let Self { proposal, kept, .. } = self;
        let find = |digest| kept.get(digest).cloned().or_else(|| find(digest));
        let entries: Vec<Bytes> = proposal.entries.iter().map(find).collect::<Option<_>>()?;
        let len = entries.iter().map(Bytes::len).sum();
        let value = LogValue::new(proposal.leader, &entries);
        let value = value.filter(|value| value.id() == proposal.value);
        Some(ResolvedProposal { proposal: proposal.clone(), len, value })
    }

    fn keep(&mut self, digest: Sha256Digest, entry: Bytes) {
        let len: usize = self.kept.values().map(Bytes::len).sum();
        if len + entry.len() <= MAX_VALUE_LEN {
            self.kept.insert(digest, entry);
        }
    }
}
