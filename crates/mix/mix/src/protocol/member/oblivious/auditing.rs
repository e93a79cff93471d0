//! A member as the auditor of another one's update.

use std::collections::VecDeque;

use super::super::{MixMember, MixMemberError};
use crate::protocol::audit::{AuditSubject, UpdateAuditor};
use crate::{Participant, ReadRound, RoundStart};

/// The minimum number of rounds between two updates that a member audits. A proxy that asks for
/// more audits deviates.
pub const MIN_AUDIT_ROUNDS: u64 = 16;

/// The number of rounds whose participants are remembered: more than the age of a round that a
/// proxy has audited.
const REMEMBERED: usize = 32;

/// A member's state as an auditor in an epoch.
#[derive(Default)]
pub(super) struct MemberAudits {
    /// The last rounds that were read, the latest first.
    rounds: VecDeque<ReadRound>,
    /// The audit that waits for the proxy's choices.
    under_way: Option<(UpdateAuditor, u64, Participant)>,
}

impl MemberAudits {
    /// Remembers the participants of the round that is read now.
    pub(super) fn remember(&mut self, start: &RoundStart) {
        let last = self.rounds.front().map(|round| round.round);
        if let Some(read) = start.read.as_ref().filter(|read| Some(read.round) != last) {
            self.rounds.truncate(REMEMBERED - 1);
            self.rounds.push_front(read.clone());
        }
    }
}

impl MixMember {
    /// Begins an audit. It replaces an unfinished one. Returns the set-up message.
    ///
    /// # Errors
    /// If the update is this member's own, or this member remembers no round of the epoch with this
    /// participant. The member is then unchanged.
    pub fn begin_audit(
        &mut self,
        epoch: u32,
        round: u64,
        subject: Participant,
    ) -> Result<Vec<u8>, MixMemberError> {
        let read = self.oblivious.auditing.rounds.iter().find(|read| read.round == round);
        let is_listed = read.is_some_and(|read| read.participants.contains(&subject));
        if epoch != self.epoch.number() || subject.member == self.epoch.own() || !is_listed {
            return Err(MixMemberError::Audit(round));
        }
        let blocks = [(); 3].map(|()| self.random.block());
        let (auditor, message) = UpdateAuditor::new(blocks);
        self.oblivious.auditing.under_way = Some((auditor, round, subject));
        Ok(message)
    }

    /// The garbled circuit for the proxy's choices. It ends the audit.
    ///
    /// # Errors
    /// If no audit is in progress, or the choices are invalid.
    pub fn end_audit(&mut self, choices: &[u8]) -> Result<Vec<u8>, MixMemberError> {
        let (auditor, round, participant) =
            self.oblivious.auditing.under_way.take().ok_or(MixMemberError::Audit(self.round))?;
        let (shape, key) = (self.epoch.shape(), self.epoch.key());
        Ok(auditor.tables(&AuditSubject { shape, key, round, participant }, choices)?)
    }
}
