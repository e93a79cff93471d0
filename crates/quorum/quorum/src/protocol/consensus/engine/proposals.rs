//! Proposals by digests: their entries are found among those that wait, or asked for.

use std::time::Duration;

use arc_malachitebft_core_consensus::SignedConsensusMsg;
use arc_malachitebft_core_types::Round;
use bytes::Bytes;

use super::super::codec::ConsensusMessage;
use super::super::compact::CompactProposal;
use super::super::context::ValidatorAddress;
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

    /// Handles the proposals of this height whose entries are all there by now.
    pub(super) fn resolve_proposals(&mut self, now: Duration) -> ConsensusEngineResult {
        if self.phase != HeightPhase::Running || self.unresolved.is_empty() {
            return Ok(());
        }
        let find = |digest: &Sha256Digest| self.pool.find(digest);
        for (proposal, entries) in self.unresolved.take_resolved(self.state.height(), find) {
            let server = proposal.proposer;
            let len = entries.iter().map(Bytes::len).sum();
            self.outputs.push(ConsensusOutput::Charged(server, len));
            if let Some(message) = proposal.with_entries(&entries) {
                self.consensus(server, message, now)?;
            } else {
                let what = "a proposal of another value than it says";
                self.outputs.push(ConsensusOutput::Refused(server, what));
            }
            // The message at hand may be of another server.
            self.report_forged(server);
        }
        Ok(())
    }

    /// Asks proposers for entries that are late.
    pub(super) fn ask_for_entries(&mut self, now: Duration) {
        if self.phase != HeightPhase::Running {
            return;
        }
        let find = |digest: &Sha256Digest| self.pool.find(digest);
        for (proposal, missing) in self.unresolved.take_due(self.state.height(), now, find) {
            let CompactProposal { height, round, proposer, .. } = proposal;
            let question = ConsensusMessage::AskEntries(height, round, missing);
            self.outputs.push(ConsensusOutput::Send(proposer, question));
        }
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
