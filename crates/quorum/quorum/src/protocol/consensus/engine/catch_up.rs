//! What a server does that is behind, or whose height makes no progress.

use std::time::Duration;

use super::super::codec::{ConsensusMessage, DecidedValue};
use super::super::context::ValidatorAddress;
use super::{ConsensusEngine, ConsensusOutput, HeightPhase, MAX_STALL};

impl ConsensusEngine {
    /// The height has made no progress for a while. Asks others for its value, and sends them the
    /// own entries again.
    pub(super) fn handle_stall(&mut self) {
        self.stall = None;
        let own = self.signer.address();
        let others: Vec<_> = self.servers().addresses().filter(|it| *it != own).collect();
        if let Some(servers) = self.requests.stalled(&others) {
            for server in servers {
                self.want(server);
            }
        } else {
            let want = ConsensusMessage::Want(self.height());
            self.outputs.push(ConsensusOutput::Broadcast(want));
        }
        let entries = self.pool.of(own).cloned().map(ConsensusMessage::Entry);
        self.outputs.extend(entries.map(ConsensusOutput::Broadcast));
        self.pause = (self.pause * 2).min(MAX_STALL);
    }

    /// A server works on a later height than the next one.
    pub(super) fn handle_ahead(&mut self, server: ValidatorAddress) {
        if self.phase == HeightPhase::Running {
            self.ask(server);
        } else {
            // An answer would come before the next height has begun. Who has sent the last value is
            // a better one to ask than who says that it is ahead.
            self.ahead.get_or_insert(server);
        }
    }

    /// Asks a server that is ahead for this height's value, unless enough were asked.
    pub(super) fn ask(&mut self, server: ValidatorAddress) {
        if self.requests.ask(server) {
            self.want(server);
        }
    }

    pub(super) fn want(&mut self, server: ValidatorAddress) {
        let want = ConsensusMessage::Want(self.height());
        self.outputs.push(ConsensusOutput::Send(server, want));
    }

    /// Adopts a value that others have committed.
    pub(super) fn adopt(&mut self, from: ValidatorAddress, decided: DecidedValue, now: Duration) {
        if !self.is_running(decided.height()) {
            if self.phase == HeightPhase::Committed && decided.height() >= self.height() {
                self.ahead.get_or_insert(from);
            }
            return;
        }
        let is_right = decided.value.id() == decided.certificate.value_id
            && self.signer.verifier().commit(&decided.certificate, self.servers()).is_ok();
        if !is_right {
            self.is_forged = true;
            return;
        }
        self.ahead = Some(from);
        self.commit(decided, now);
    }
}
