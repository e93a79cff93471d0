//! Proposals by digests: their values are known, or their entries wait here or are asked for.

use std::time::Duration;

use arc_malachitebft_core_consensus::SignedConsensusMsg;
use arc_malachitebft_core_types::Round;

use super::super::codec::ConsensusMessage;
use super::super::compact::{CompactProposal, ResolvedProposal};
use super::super::context::{ValidatorAddress, ValueId};
use super::{ConsensusEngine, ConsensusEngineResult, ConsensusOutput, HeightPhase};
use crate::protocol::log_types::Height;
use crate::protocol::wire::Sha256Digest;

/// The shortest value that is proposed by digests, and the fewest servers to which it is: smaller
/// groups gain little, and may have servers of an older version, which knows whole proposals only.
const MIN_LEN: usize = 64 << 10;
const MIN_SERVERS: usize = 14;

/// How long entries of a proposal may be late before its proposer is asked for them, besides half
/// of the time that their authors may need to send them.
const ENTRY_DELAY: Duration = Duration::from_millis(100);

impl ConsensusEngine {
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
            if servers >= MIN_SERVERS && proposal.message.value.encoded().len() >= MIN_LEN =>
        {
            ConsensusMessage::Compact(CompactProposal::of(proposal))
        }
        _ => message,
    }
}
