//! The operator's part in refreshes: to approve one, to withdraw the approval, and to cancel. The
//! agreement log commits what a server submits for its operator.

use std::time::Duration;

use super::output::QuorumServerEvent;
use super::{OperatorRequest, QuorumServer, RefreshRefusal};
use crate::protocol::group::QuorumGroup;
use crate::protocol::unix_seconds::UnixSeconds;

impl QuorumServer {
    /// Approves a refresh to a group, at the request of this server's operator.
    ///
    /// # Errors
    /// If this server is not a member of the group, or another refresh is open.
    pub fn start_refresh(
        &mut self,
        group: QuorumGroup,
        now: Duration,
    ) -> Result<(), RefreshRefusal> {
        let epoch = self.epoch.as_ref().filter(|epoch| epoch.index.is_some());
        let epoch = epoch.filter(|_| self.newer.is_none()).ok_or(RefreshRefusal::NoMember)?;
        let approved = epoch.index.and_then(|index| epoch.agreement.approvals().get(&index));
        let wanted = match (epoch.agreement.run(), &self.operator_request) {
            (Some(run), _) => Some(run.group()),
            (None, Some(OperatorRequest::Approve(wanted))) => Some(wanted),
            (None, Some(OperatorRequest::Cancel | OperatorRequest::Withdraw)) => {
                return Err(RefreshRefusal::UnderWay);
            }
            (None, None) => approved,
        };
        match wanted {
            Some(wanted) if *wanted == group => Ok(()),
            Some(_) => Err(RefreshRefusal::UnderWay),
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
    /// If this server is not a member of the group, or no refresh is open.
    pub fn cancel_refresh(&mut self, now: Duration) -> Result<(), RefreshRefusal> {
        let epoch = self.epoch.as_ref().filter(|epoch| epoch.index.is_some());
        let epoch = epoch.filter(|_| self.newer.is_none()).ok_or(RefreshRefusal::NoMember)?;
        if epoch.agreement.run().is_none()
            && !epoch.agreement.has_approvals()
            && self.operator_request.is_none()
        {
            return Err(RefreshRefusal::None);
        }
        (self.operator_request, self.operator_request_at) = (Some(OperatorRequest::Cancel), now);
        Ok(())
    }

    /// Withdraws this server's approval of a refresh that has not begun, at the request of its
    /// operator.
    ///
    /// # Errors
    /// If this server is not a member of the group, or has no approval to withdraw.
    pub fn withdraw_approval(&mut self, now: Duration) -> Result<(), RefreshRefusal> {
        let epoch = self.epoch.as_ref().filter(|epoch| epoch.index.is_some());
        let epoch = epoch.filter(|_| self.newer.is_none()).ok_or(RefreshRefusal::NoMember)?;
        if !epoch.index.is_some_and(|index| epoch.agreement.can_withdraw(index)) {
            return Err(RefreshRefusal::NotApproved);
        }
        (self.operator_request, self.operator_request_at) = (Some(OperatorRequest::Withdraw), now);
        // Otherwise a refresh that is due is approved again at once.
        self.postpone_due_refresh(now);
        Ok(())
    }

    /// When this server withdraws its approval, unless the refresh begins.
    pub(super) fn approval_expires(&self) -> Option<UnixSeconds> {
        let waits = self.settings.approval_expires.as_secs();
        self.approved_since.map(|since| UnixSeconds(since.0.saturating_add(waits)))
    }

    /// Withdraws an approval that too few others have shared in time, so that an old list does not
    /// become valid by the approval of one more server.
    pub(super) fn expire_approval(&mut self, now: Duration) {
        let approved = self.epoch.as_ref().filter(|_| self.newer.is_none()).and_then(|epoch| {
            let index = epoch.index.filter(|index| epoch.agreement.can_withdraw(*index))?;
            Some((epoch.header.epoch + 1, epoch.agreement.approvals().get(&index)?.digest()))
        });
        let Some((epoch, group)) = approved.filter(|_| self.time.0 > 0) else {
            self.approved_since = None;
            return;
        };
        self.approved_since.get_or_insert(self.time);
        let is_over = self.approval_expires().is_some_and(|at| at <= self.time);
        if is_over && self.operator_request.is_none() {
            (self.operator_request, self.operator_request_at) =
                (Some(OperatorRequest::Withdraw), now);
            self.event(QuorumServerEvent::ApprovalExpired { epoch, group });
        }
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
            OperatorRequest::Withdraw => epoch.agreement.withdrawal(index, identity),
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
            (Some(OperatorRequest::Approve(_)), Some(index)) => epoch.agreement.has_approved(index),
            (Some(OperatorRequest::Withdraw), Some(index)) => !epoch.agreement.can_withdraw(index),
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
