//! The heights of the log. Their entries are applied to the agreed state of a refresh, in their
//! order. Where this takes long, a job applies them to a copy of the state. Until it ends, the
//! server acts as if the height was not committed yet, and signs. The log commits no other height
//! meanwhile, because it waits until this one is applied.

use std::time::Duration;

use random::{RandomError, RandomGenerator};

use super::QuorumServer;
use super::change::SavedStateChange;
use super::height_job::{
    AppliedEntry, HeightOutcome, HeightTask, IneffectiveEntry, ParsedEntry, apply_all,
};
use super::output::{QuorumServerEvent, QuorumServerOutput, QuorumServerTask};
use crate::protocol::log_types::{CommittedEntries, Height};

/// A height that a job applies.
pub(super) enum HeightInWork {
    /// The job with this number is under way.
    Applying(u64),
    /// It has ended.
    Applied(HeightOutcome),
}

impl QuorumServer {
    /// Applies the next height of the log. A height that was already applied changes nothing. The
    /// log must not pass another height before [`QuorumServerOutput::Applied`] reports this one.
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn handle_committed(
        &mut self,
        now: Duration,
        committed: &CommittedEntries,
        generator: &mut RandomGenerator,
    ) -> Result<(), RandomError> {
        let Some(epoch) = &mut self.epoch else { return Ok(()) };
        if self.height_in_work.is_some() {
            return Ok(());
        }
        let height = committed.height;
        if height <= self.height {
            self.report_applied(height);
            return Ok(());
        }
        let entries: Vec<_> = committed.entries.iter().map(ParsedEntry::new).collect();
        if entries.iter().any(ParsedEntry::is_costly) {
            let (number, agreement) = (self.next_height_job, Box::new(epoch.agreement.clone()));
            self.next_height_job += 1;
            self.height_in_work = Some(HeightInWork::Applying(number));
            let task = HeightTask { number, height, agreement, entries };
            self.job(QuorumServerTask::Height(task));
            return Ok(());
        }
        let effects = apply_all(&mut epoch.agreement, entries);
        self.finish_height(now, height, effects, generator)
    }

    /// A job has applied a height. The next step uses it. It is dropped if the server has begun
    /// another epoch meanwhile.
    pub(super) fn handle_height_job(&mut self, outcome: HeightOutcome) {
        if let Some(HeightInWork::Applying(number)) = self.height_in_work
            && number == outcome.number
        {
            self.height_in_work = Some(HeightInWork::Applied(outcome));
        }
    }

    /// Takes over the agreed state that a job has computed.
    pub(super) fn step_height(
        &mut self,
        now: Duration,
        generator: &mut RandomGenerator,
    ) -> Result<(), RandomError> {
        let is_applied = |it: &mut HeightInWork| matches!(it, HeightInWork::Applied(_));
        let Some(HeightInWork::Applied(outcome)) = self.height_in_work.take_if(is_applied) else {
            return Ok(());
        };
        let HeightOutcome { height, agreement, effects, .. } = outcome;
        let Some(epoch) = &mut self.epoch else { return Ok(()) };
        epoch.agreement = *agreement;
        self.finish_height(now, height, effects, generator)
    }

    /// The agreed state has changed by a height, with these effects.
    fn finish_height(
        &mut self,
        now: Duration,
        height: Height,
        effects: Vec<Result<AppliedEntry, IneffectiveEntry>>,
        generator: &mut RandomGenerator,
    ) -> Result<(), RandomError> {
        self.height = height;
        self.extend_catch_up_wait(now);
        let mut kept = Vec::new();
        let (mut changes, mut withdrawals) = (Vec::new(), Vec::new());
        for applied in effects {
            match applied {
                Ok(AppliedEntry { bytes, entry, effect, withdrawn }) => {
                    kept.push(bytes);
                    withdrawals.extend(self.withdrawal(&entry, withdrawn));
                    self.apply_commands(now, height, entry);
                    changes.push(effect);
                }
                Err(why) => {
                    self.event(QuorumServerEvent::EntryRefused { why: why.to_string() });
                }
            }
        }
        self.changes.push(SavedStateChange::Applied { height, entries: kept });
        for withdrawal in withdrawals {
            self.push(QuorumServerOutput::Event(withdrawal));
        }
        for change in changes {
            self.handle_entry_effect(now, height, &change, generator)?;
        }
        self.clear_settled_operator_request();
        self.report_applied(height);
        Ok(())
    }
}
