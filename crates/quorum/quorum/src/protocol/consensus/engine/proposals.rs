//! Proposals by digests: their entries are found among those that wait, or asked for.

use std::time::Duration;

use arc_malachitebft_core_types::Round;

use super::super::codec::ConsensusMessage;
use super::super::compact::CompactProposal;
use super::super::context::ValidatorAddress;
use super::{ConsensusEngine, ConsensusEngineResult, ConsensusOutput, HeightPhase};
use crate::protocol::log_types::Height;
use crate::protocol::wire::Sha256Digest;

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
        if self.is_running(proposal.height) || proposal.height == current.next() {
            let asks_at = now + ENTRY_DELAY + self.transfer_time() / 2;
            self.unresolved.add(proposal, asks_at);
            return self.resolve_proposals(now);
        }
        if proposal.height > current {
            self.handle_ahead(from);
        }
        Ok(())
    }

    /// Handles the proposals of this height whose entries are all there by now.
    pub(super) fn resolve_proposals(&mut self, now: Duration) -> ConsensusEngineResult {
        if self.phase != HeightPhase::Running || self.unresolved.is_empty() {
            return Ok(());
        }
        let find = |digest: &Sha256Digest| self.pool.find(digest);
        for (proposal, entries) in self.unresolved.take_resolved(self.state.height(), find) {
            let server = proposal.proposer;
            let refusal = match proposal.with_entries(&entries) {
                Some(message) => {
                    self.consensus(server, message, now)?;
                    // The message at hand may be of another server.
                    std::mem::take(&mut self.is_forged).then_some("a wrong signature")
                }
                None => Some("a proposal of another value than it says"),
            };
            let refused = refusal.map(|why| ConsensusOutput::Refused(server, why));
            self.outputs.extend(refused);
        }
        Ok(())
    }

    /// Asks proposers for entries that are late.
    pub(super) fn ask_for_entries(&mut self, now: Duration) {
        if self.phase != HeightPhase::Running {
            return;
        }
        for proposal in self.unresolved.take_due(self.state.height(), now) {
            let CompactProposal { height, round, proposer, mut entries, .. } = proposal;
            entries.retain(|digest| self.pool.find(digest).is_none());
            let question = ConsensusMessage::AskEntries(height, round, entries);
            self.outputs.push(ConsensusOutput::Send(proposer, question));
        }
    }

    /// Sends a server entries of this server's proposal in a round, once.
    pub(super) fn answer_entries(
        &mut self,
        from: ValidatorAddress,
        (height, round): (Height, Round),
        digests: &[Sha256Digest],
    ) {
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
