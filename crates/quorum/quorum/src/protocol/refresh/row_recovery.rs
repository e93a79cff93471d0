//! How a server that missed the handover of a key, or has lost its share, gets its row of the
//! group's sharing from others of its group.

use std::collections::BTreeMap;
use std::time::Duration;

use handover::ParticipantId;

use super::entry::RefreshRole;
use super::handover_job::{RowRepairOutcome, RowRepairTask};
use super::message::{CommonValue, RefreshMessage};
use super::output::{RefreshJob, RefreshJobResult, RefreshOutcome, RefreshOutput, RefreshTask};
use super::retries::RetrySchedule;
use crate::protocol::combination::ServerIndex;
use crate::protocol::key_sharing::{KeyRowRepair, KeySharing, KeySigner};
use crate::protocol::wire::Sha256Digest;

/// A server that asks others for the common values of its row.
pub(crate) struct RowRecovery {
    index: ServerIndex,
    /// The same, as the sharing numbers it.
    own: ParticipantId,
    epoch: u64,
    sharing: KeySharing,
    digest: Sha256Digest,
    /// `None` while a job examines values, and at the end.
    repair: Option<KeyRowRepair>,
    /// The values that wait for the next job, at most one of each server.
    values: BTreeMap<ParticipantId, CommonValue>,
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
        let own = index.participant().filter(|it| sharing.size().contains(*it))?;
        Some(Self {
            index,
            own,
            epoch,
            digest: sharing.digest(),
            repair: Some(sharing.new_repair(own)),
            sharing,
            values: BTreeMap::new(),
            signer: None,
            retries: RetrySchedule::new(resend),
        })
    }

    /// The signer, once it has its row. Afterwards this is empty.
    pub(crate) fn take(&mut self) -> Option<KeySigner> {
        self.signer.take()
    }

    /// Handles a common value from another server. A wrong one changes nothing.
    pub(crate) fn handle_value(&mut self, from: ServerIndex, epoch: u64, value: &CommonValue) {
        let from = from.participant().filter(|it| self.sharing.size().contains(*it));
        if let Some(from) = from.filter(|_| epoch == self.epoch && self.signer.is_none()) {
            self.values.entry(from).or_insert_with(|| value.clone());
        }
    }

    /// Handles the result of one of its jobs.
    pub(crate) fn handle_job(&mut self, result: RefreshJobResult) {
        if let RefreshOutcome::RowRepaired(outcome) = result.outcome
            && result.scope_digest == self.digest
            && self.repair.is_none()
        {
            let RowRepairOutcome { repair, signer } = *outcome;
            (self.repair, self.signer) = (Some(repair), signer);
        }
    }

    /// The next job, and the questions that are due.
    pub(crate) fn poll_output(&mut self, now: Duration) -> Vec<RefreshOutput> {
        self.retries.begin_pass();
        if self.signer.is_some() {
            return Vec::new();
        }
        let mut outputs = Vec::new();
        if let Some(repair) = self.repair.take_if(|_| !self.values.is_empty()) {
            let (sharing, values) = (self.sharing.clone(), std::mem::take(&mut self.values));
            let task = RowRepairTask { own: self.own, sharing, repair, values };
            let task = RefreshTask::RepairRow(task);
            outputs.push(RefreshOutput::Job(RefreshJob { scope_digest: self.digest, task }));
        }
        let others = self.sharing.size().participants().map(ServerIndex::of);
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
