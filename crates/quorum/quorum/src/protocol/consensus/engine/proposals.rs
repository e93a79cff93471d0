//! When this server proposes, and proposals by digests: their values are known, or their entries
//! wait here or are asked for.

use std::time::Duration;

use arc_malachitebft_core_consensus::SignedConsensusMsg;
use arc_malachitebft_core_types::Round;

use super::super::codec::ConsensusMessage;
use super::super::compact::{CompactProposal, ResolvedProposal};
use super::super::context::{ValidatorAddress, ValueId};
use super::{ConsensusEngine, ConsensusEngineResult, ConsensusOutput, HeightPhase, TIMEOUTS};
use crate::protocol::log_types::Height;
use crate::protocol::wire::Sha256Digest;

/// The fewest servers of a large group, which gathers entries before a proposal, and proposes by
/// digests: smaller ones gain little, and may have servers of an older version, which knows whole
/// proposals only.
const LARGE_GROUP: usize = 14;

/// How long the proposer waits for further entries, for each server. The time that the votes of a
/// height take grows with the servers, and many entries come shortly after each other, such as
/// those of all new servers in a refresh.
const GATHERING: Duration = Duration::from_millis(3);

/// The shortest value that is proposed by digests.
const MIN_LEN: usize = 64 << 10;

/// How long entries of a proposal may be late before its proposer is asked for them, besides half
/// of the time that their authors may need to send them.
const ENTRY_DELAY: Duration = Duration::from_millis(100);

impl ConsensusEngine {
    /// Whether to wait for further entries before a proposal in this round. Round 0 alone waits,
    /// and less long than the others wait for a proposal.
    pub(super) fn gathers(&mut self, round: Round, now: Duration) -> bool {
        let servers = self.servers().len();
        if round != Round::ZERO || servers < LARGE_GROUP || self.pool.is_empty() {
            return false;
        }
        let time = GATHERING * u32::try_from(servers).unwrap_or(u32::MAX);
        let at = now + time.min(TIMEOUTS.propose / 2);
        now < *self.pending.gathered.get_or_insert(at)
    }

    /// Until when this server waits for further entries before it proposes.
    pub(super) fn gathering(&self) -> Option<Duration> {
        self.pending.gathered.filter(|_| self.pending.wanted == Some(Round::ZERO))
    }

    /// Handles a proposal by digests.
    pub(super) fn handle_compact(
        &mut self,
        from: ValidatorAddress,
        proposal: CompactProposal,
        now: Duration,
    ) -> ConsensusEngineResult {
        if proposal.proposer != from {
            let what = "a proposal of another server";
            self.outputs.push(ConsensusOutput::Refused(from, what));
            return Ok(());
        }
        let current = self.state.height();
        let is_current = self.is_running(proposal.height);
        if is_current && !self.proposes(&proposal) {
            return Ok(());
        }
        if is_current || proposal.height == current.next() {
            let asks_at = now + ENTRY_DELAY + self.transfer_time() / 2;
            self.unresolved.add(proposal, asks_at);
            return self.resolve_proposals(now);
        }
        if proposal.height > current {
            self.handle_ahead(from);
        }
        Ok(())
    }

    /// Whether the author of a proposal of this height proposes in its round. Otherwise nothing is
    /// done for it: its signature cannot be checked yet.
    pub(super) fn proposes(&self, proposal: &CompactProposal) -> bool {
        *self.state.get_proposer(proposal.height, proposal.round) == proposal.proposer
    }

    /// Handles the proposals of this height whose values are known, or whose entries are all there
    /// by now.
    pub(super) fn resolve_proposals(&mut self, now: Duration) -> ConsensusEngineResult {
        // One after the other: the value of one may be that of others.
        while self.phase == HeightPhase::Running
            && let Some(ResolvedProposal { proposal, len, value }) = self.take_resolved()
        {
            let server = proposal.proposer;
            self.outputs.push(ConsensusOutput::Charged(server, len));
            if let Some(value) = value {
                self.consensus(server, proposal.with_value(value), now)?;
            } else {
                let what = "a proposal of another value than it says";
                self.outputs.push(ConsensusOutput::Refused(server, what));
            }
            // The message at hand may be of another server.
            self.report_forged(server);
        }
        Ok(())
    }

    fn take_resolved(&mut self) -> Option<ResolvedProposal> {
        let (height, state, pool) = (self.state.height(), &self.state, &self.pool);
        // A value that is proposed again. Its entries need not wait here, for example if they came
        // in a whole proposal, or if others of their slots wait.
        let known = |id: &ValueId| {
            state.get_proposed_value_by_id(height, Round::ZERO, id).map(|proposed| proposed.value)
        };
        self.unresolved.take_resolved(height, known, |digest| pool.find(digest))
    }

    /// Asks proposers for entries that are late.
    pub(super) fn ask_for_entries(&mut self, now: Duration) -> ConsensusEngineResult {
        let deadline = self.unresolved.deadline(self.state.height());
        if self.phase != HeightPhase::Running || deadline.is_none_or(|at| at > now) {
            return Ok(());
        }
        // Their values may have come in other proposals.
        self.resolve_proposals(now)?;
        if self.phase != HeightPhase::Running {
            return Ok(());
        }
        let find = |digest: &Sha256Digest| self.pool.find(digest);
        for (proposal, missing) in self.unresolved.take_due(self.state.height(), now, find) {
            let CompactProposal { height, round, proposer, .. } = proposal;
            let question = ConsensusMessage::AskEntries(height, round, missing);
            self.outputs.push(ConsensusOutput::Send(proposer, question));
        }
        self.advance(now)
    }

    /// Sends a server entries of this server's proposal in a round, once, or what was committed
    /// meanwhile.
    pub(super) fn answer_entries(
        &mut self,
        from: ValidatorAddress,
        (height, round): (Height, Round),
        digests: &[Sha256Digest],
    ) {
        if height < self.height() {
            self.outputs.push(ConsensusOutput::SendCommitted(from, height));
            return;
        }
        if !self.is_running(height) {
            return;
        }
        let own = self.signer.address();
        let proposal = self.state.full_proposal_at_round_and_proposer(&height, round, &own);
        let Some(proposal) = proposal else { return };
        if !self.answered.insert((from, round.as_i64())) {
            return;
        }
        for entry in proposal.proposal.message.value.entries() {
            if digests.contains(&Sha256Digest::of(&[&entry])) {
                let answer = ConsensusMessage::Entry(entry);
                self.outputs.push(ConsensusOutput::Answer(from, answer));
            }
        }
    }
}

/// The message to a group of this many servers: a proposal of a large value is sent by digests.
pub(super) fn shortened(message: ConsensusMessage, servers: usize) -> ConsensusMessage {
    match &message {
        ConsensusMessage::Consensus(SignedConsensusMsg::Proposal(proposal))
            if servers >= LARGE_GROUP && proposal.message.value.encoded().len() >= MIN_LEN =>
        {
            ConsensusMessage::Compact(CompactProposal::of(proposal))
        }
        _ => message,
    }
}
