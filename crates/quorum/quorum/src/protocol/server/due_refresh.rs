//! Refreshes without an operator: when an epoch is as old as configured, its servers approve new
//! shares for the same group (the thesis's proactive refresh).

use std::time::Duration;

use super::output::QuorumServerEvent;
use super::{LAST_DUE_EPOCH, OperatorRequest, QuorumServer};
use crate::protocol::unix_seconds::UnixSeconds;

/// After a cancelled refresh, a due one begins this much later. So operators who have cancelled it
/// can approve another list.
const PAUSE_AFTER_CANCEL: Duration = Duration::from_secs(3_600);

impl QuorumServer {
    /// When this server approves new shares for its group by itself. A faulty server cannot move
    /// this time by more than the clocks of the correct ones differ, because the header of the
    /// epoch has the time. `None` after [`LAST_DUE_EPOCH`].
    pub(super) fn next_refresh(&self) -> Option<UnixSeconds> {
        let epoch = self.epoch.as_ref().filter(|epoch| epoch.index.is_some())?;
        if epoch.header.epoch >= LAST_DUE_EPOCH {
            return None;
        }
        let (every, mut began) = (self.settings.refresh_every?, epoch.header.time?);
        if began > self.time
            && let Some((seen, at)) = self.epoch_seen
            && seen == epoch.header.epoch
        {
            // The clocks of several servers were ahead when it began.
            began = at;
        }
        Some(UnixSeconds(began.0.saturating_add(every.as_secs())))
    }

    /// Notes when this server has first seen its epoch, by its own clock. A header cannot have an
    /// earlier time than the one before, so one with a time in the far future would otherwise
    /// prevent refreshes until then.
    pub(super) fn note_epoch_seen(&mut self) {
        let Some(epoch) = &self.epoch else { return };
        let number = epoch.header.epoch;
        if self.epoch_seen.is_none_or(|(known, at)| known != number || self.time < at) {
            self.epoch_seen = Some((number, self.time));
        }
    }

    /// Whether the group is as old as configured.
    pub(super) fn is_refresh_due(&self) -> bool {
        self.next_refresh().is_some_and(|at| at <= self.time)
    }

    /// Approves the refresh if it is due. What other servers have approved does not matter: else
    /// one faulty server could prevent it.
    pub(super) fn approve_due_refresh(&mut self, now: Duration) {
        let is_due = self.is_refresh_due();
        let is_idle = self.newer.is_none() && self.operator_request.is_none();
        if !is_due || !is_idle || now < self.due_refresh_from {
            return;
        }
        let Some(epoch) = &self.epoch else { return };
        let can_approve = |it| epoch.agreement.can_approve(it) && !epoch.agreement.has_approved(it);
        if !epoch.index.is_some_and(can_approve) {
            return;
        }
        let (number, group) = (epoch.header.epoch + 1, epoch.header.group.clone());
        let event = QuorumServerEvent::RefreshDue { epoch: number, group: group.digest() };
        self.operator_request = Some(OperatorRequest::Approve(group));
        self.operator_request_at = now;
        self.event(event);
    }

    /// A refresh was cancelled.
    pub(super) fn postpone_due_refresh(&mut self, now: Duration) {
        self.due_refresh_from = now + PAUSE_AFTER_CANCEL;
    }
}
