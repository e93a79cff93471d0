//! How a server that missed the handover of a key, or has lost its share, gets its row of the
//! group's sharing from others of its group.

use std::time::Duration;

use super::entry::RefreshRole;
use super::message::{CommonValue, RefreshMessage};
use super::output::RefreshOutput;
use super::retries::RetrySchedule;
use crate::protocol::combination::ServerIndex;
use crate::protocol::key_sharing::{KeyRowRepair, KeySharing, KeySigner};

/// A server that asks others for the common values of its row.
pub(crate) struct RowRecovery {
    index: ServerIndex,
    epoch: u64,
    sharing: KeySharing,
    repair: KeyRowRepair,
    signer: Option<KeySigner>,
    retries: RetrySchedule<ServerIndex>,
}

impl RowRecovery {
    /// A recovery of a server's row in an epoch. `None` if the group has no such server.
    pub(crate) fn new(
        index: ServerIndex,
        epoch: u64,
        sharing: KeySharing,
        resend: Duration,
    ) -> Option<Self> {
        let participant = index.participant().filter(|it| sharing.size().contains(*it))?;
        let (repair, retries) = (sharing.new_repair(participant), RetrySchedule::new(resend));
        Some(Self { index, epoch, sharing, repair, signer: None, retries })
    }

    /// The signer, once it has its row. Afterwards this is empty.
    pub(crate) fn take(&mut self) -> Option<KeySigner> {
        self.signer.take()
    }

    /// Handles a common value from another server. A wrong one changes nothing.
    pub(crate) fn handle_value(&mut self, from: ServerIndex, epoch: u64, value: &CommonValue) {
        let (Some(from), Some(own)) = (from.participant(), self.index.participant()) else {
            return;
        };
        if epoch == self.epoch && self.signer.is_none() {
            self.signer = self.repair.handle_value(&self.sharing, own, from, &value.0);
        }
    }

    /// The next question that is due.
    pub(crate) fn poll_output(&mut self, now: Duration) -> Vec<RefreshOutput> {
        self.retries.begin_pass();
        if self.signer.is_some() {
            return Vec::new();
        }
        let others = self.sharing.size().participants().map(ServerIndex::of);
        let mut outputs = Vec::new();
        for server in others.filter(|it| *it != self.index) {
            if self.retries.is_due(server, now) {
                let message = RefreshMessage::Ask { epoch: self.epoch, witnesses: false };
                outputs.push(RefreshOutput::Send { to: (RefreshRole::New, server), message });
            }
        }
        outputs
    }

    /// When to call [`Self::poll_output`] again.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.retries.deadline()
    }
}
