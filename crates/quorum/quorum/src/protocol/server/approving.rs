//! The operator's part in refreshes: to approve one, to withdraw the approval, and to cancel. The
//! agreement log commits what a server submits for its operator.

use std::time::Duration;

use super::change::{ApprovalWait, SavedStateChange};
use super::output::QuorumServerEvent;
use super::{MAX_EPOCHS, OperatorRequest, QuorumServer, RefreshRefusal};
use crate::protocol::group::QuorumGroup;
use crate::protocol::refresh::{LogEntry, LogEntryBody};
use crate::protocol::unix_seconds::UnixSeconds;
use crate::protocol::wire::Sha256Digest;

impl QuorumServer {
    /// Approves a refresh to a group, at the request of this server's operator.
    ///
    /// # Errors
    /// If this server is not a member of the group, the group has no key yet or the new one is too
    /// large for it, another refresh is open, this server has withdrawn too many approvals, or the
    /// key has had too many epochs.
    pub fn start_refresh(
        &mut self,
        group: QuorumGroup,
        now: Duration,
    ) -> Result<(), RefreshRefusal> {
        let epoch = self.epoch.as_ref().filter(|epoch| epoch.index.is_some());
        let epoch = epoch.filter(|_| self.newer.is_none()).ok_or(RefreshRefusal::NoMember)?;
        if epoch.agreement.is_founding() {
            return Err(RefreshRefusal::NoKey);
        }
        if epoch.start.chain.len() >= MAX_EPOCHS as usize {
            return Err(RefreshRefusal::TooManyEpochs);
        }
        group.check_key(epoch.header.key)?;
        let approved = epoch.index.and_then(|index| epoch.agreement.approvals().get(&index));
        let wanted = match (epoch.agreement.run(), &self.operator_request) {
            (Some(run), _) => Some(run.group()),
            (None, Some(OperatorRequest::Approve(wanted))) => Some(wanted),
            (None, Some(OperatorRequest::Cancel | OperatorRequest::Withdraw { .. })) => {
                return Err(RefreshRefusal::UnderWay);
            }
            (None, None) => approved,
        };
        match wanted {
            Some(wanted) if *wanted == group => Ok(()),
            Some(_) => Err(RefreshRefusal::UnderWay),
            None if !epoch.index.is_some_and(|index| epoch.agreement.can_approve(index)) => {
                Err(RefreshRefusal::Withdrawn)
            }
            None => {
                (self.operator_request, self.operator_request_at) =
                    (Some(OperatorRequest::Approve(group)), now);
                Ok(())
            }
        }
    }

    /// Votes to cancel the open refresh, at the request of this server's operator. The refresh ends
    /// when f+1 servers have voted so.
    ///
    /// # Errors
    /// If this server is not a member of the group, the group has no key yet, or no refresh is
    /// open.
    pub fn cancel_refresh(&mut self, now: Duration) -> Result<(), RefreshRefusal> {
        let epoch = self.epoch.as_ref().filter(|epoch| epoch.index.is_some());
        let epoch = epoch.filter(|_| self.newer.is_none()).ok_or(RefreshRefusal::NoMember)?;
        if epoch.agreement.is_founding() {
            return Err(RefreshRefusal::NoKey);
        }
        if epoch.agreement.run().is_none()
            && !epoch.agreement.has_approvals()
            && self.operator_request.is_none()
        {
            return Err(RefreshRefusal::None);
        }
        (self.operator_request, self.operator_request_at) = (Some(OperatorRequest::Cancel), now);
        Ok(())
    }

    /// Submits the withdrawal of this server's approval of a refresh that has not begun, at the
    /// request of its operator. The log need not have the approval yet. The approval counts until
    /// [`QuorumServerEvent::ApprovalWithdrawn`].
    ///
    /// # Errors
    /// If this server is not a member of the group, or has no approval to withdraw.
    pub fn withdraw_approval(&mut self, now: Duration) -> Result<(), RefreshRefusal> {
        let epoch = self.epoch.as_ref().filter(|epoch| epoch.index.is_some());
        let epoch = epoch.filter(|_| self.newer.is_none()).ok_or(RefreshRefusal::NoMember)?;
        let index = epoch.index.filter(|index| epoch.agreement.can_approve(*index));
        let index = index.ok_or(RefreshRefusal::NotApproved)?;
        let group = match (&self.operator_request, epoch.agreement.approvals().get(&index)) {
            (_, Some(approved)) => approved.digest(),
            (Some(OperatorRequest::Approve(submitted)), None) => submitted.digest(),
            (Some(OperatorRequest::Withdraw { group, .. }), None) => *group,
            (_, None) => return Err(RefreshRefusal::NotApproved),
        };
        self.operator_request = Some(OperatorRequest::Withdraw {
            run: epoch.agreement.run_number(),
            withdrawn: epoch.agreement.withdrawn(index),
            group,
            has_expired: false,
        });
        self.operator_request_at = now;
        // Otherwise a refresh that is due is approved again at once.
        self.postpone_due_refresh(now);
        Ok(())
    }

    /// When this server withdraws its approval, unless the refresh begins.
    pub(super) fn approval_expires(&self) -> Option<UnixSeconds> {
        let (approval, _) = self.waiting_approval()?;
        let wait = self.approval_wait.filter(|wait| approval.is_same(wait))?;
        let longest = self.settings.approval_expires.as_secs();
        Some(UnixSeconds(wait.since.0.saturating_add(longest)))
    }

    /// This server's approval that waits for others now, as if it began to wait at this time, and
    /// the digest of its group. An approval of the current list whose refresh is due is none,
    /// because this server would approve it again.
    fn waiting_approval(&self) -> Option<(ApprovalWait, Sha256Digest)> {
        let epoch = self.epoch.as_ref().filter(|_| self.newer.is_none())?;
        let index = epoch.index.filter(|index| epoch.agreement.can_approve(*index))?;
        let group = epoch.agreement.approvals().get(&index)?;
        if self.is_refresh_due() && *group == epoch.header.group {
            return None;
        }
        let (run, withdrawn) = (epoch.agreement.run_number(), epoch.agreement.withdrawn(index));
        let epoch = epoch.header.epoch;
        Some((ApprovalWait { epoch, run, withdrawn, since: self.time }, group.digest()))
    }

    /// Withdraws an approval that too few others have shared in time, so that an old list does not
    /// become valid by the approval of one more server. The wait goes on over a restart. If the
    /// clock was set back, it begins again.
    pub(super) fn expire_approval(&mut self, now: Duration) {
        let Some((approval, group)) = self.waiting_approval().filter(|_| self.time.0 > 0) else {
            return;
        };
        let known = self.approval_wait.filter(|wait| approval.is_same(wait));
        if known.is_none_or(|known| self.time < known.since) {
            self.approval_wait = Some(approval);
            self.changes.push(SavedStateChange::ApprovalWaits(approval));
        }
        let is_over = self.approval_expires().is_some_and(|at| at <= self.time);
        if is_over && self.operator_request.is_none() {
            let ApprovalWait { run, withdrawn, .. } = approval;
            let has_expired = true;
            self.operator_request =
                Some(OperatorRequest::Withdraw { run, withdrawn, group, has_expired });
            self.operator_request_at = now;
        }
    }

    /// What to report when this entry is committed, if it withdraws this server's approval of a
    /// group.
    pub(super) fn withdrawal(
        &self,
        entry: &LogEntry,
        approved: Option<Sha256Digest>,
    ) -> Option<QuorumServerEvent> {
        let epoch = self.epoch.as_ref().filter(|epoch| epoch.index == Some(entry.author))?;
        if !matches!(entry.body, LogEntryBody::Withdraw { .. }) {
            return None;
        }
        let number = epoch.header.epoch + 1;
        Some(match &self.operator_request {
            Some(OperatorRequest::Withdraw { group, has_expired: true, .. }) => {
                QuorumServerEvent::ApprovalExpired { epoch: number, group: *group }
            }
            Some(OperatorRequest::Withdraw { group, .. }) => {
                QuorumServerEvent::ApprovalWithdrawn { epoch: number, group: Some(*group) }
            }
            // It was submitted before a restart.
            _ => QuorumServerEvent::ApprovalWithdrawn { epoch: number, group: approved },
        })
    }

    /// Submits the operator's request, repeatedly until it is committed.
    pub(super) fn submit_operator_request(&mut self, now: Duration) {
        let (Some(requested), Some(epoch)) = (&self.operator_request, &self.epoch) else { return };
        let Some(index) = epoch.index.filter(|_| self.operator_request_at <= now) else { return };
        let identity = &self.settings.identity;
        let entry = match requested {
            OperatorRequest::Approve(group) => {
                epoch.agreement.approval(index, group.clone(), identity)
            }
            OperatorRequest::Withdraw { .. } => epoch.agreement.withdrawal(index, identity),
            OperatorRequest::Cancel => epoch.agreement.cancellation(index, identity),
        };
        self.operator_request_at = now + self.settings.timeouts.retry;
        self.submit(&entry);
    }

    /// Clears the operator's request if it has been committed, or can no longer be.
    pub(super) fn clear_settled_operator_request(&mut self) {
        let Some(epoch) = &self.epoch else { return };
        let is_granted = match (&self.operator_request, epoch.index) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(OperatorRequest::Approve(_)), Some(index)) => {
                epoch.agreement.has_approved(index) || !epoch.agreement.can_approve(index)
            }
            (Some(OperatorRequest::Withdraw { run, withdrawn, .. }), Some(index)) => {
                let agreement = &epoch.agreement;
                (agreement.run_number(), agreement.withdrawn(index)) != (*run, *withdrawn)
                    || agreement.run().is_some()
            }
            (Some(OperatorRequest::Cancel), Some(index)) => {
                epoch.agreement.has_cancelled(index)
                    || epoch.agreement.run().is_none() && !epoch.agreement.has_approvals()
            }
        };
        if is_granted {
            self.operator_request = None;
        }
    }
}
