//! A member as the auditor of another one's update.

use std::collections::VecDeque;

use super::{MixMember, MixMemberError};
use crate::audit::{AuditSubject, UpdateAuditor};
use crate::{Participant, ReadRound, RoundStart};

/// A member audits updates of rounds that are so far apart at least: a proxy that asks for more
/// deviates.
pub const MIN_AUDIT_ROUNDS: u64 = 16;

/// Of so many rounds the participants are remembered: longer than a proxy asks for audits of one.
const REMEMBERED: usize = 32;

/// What an auditor has in an epoch.
#[derive(Default)]
pub(super) struct MemberAudits {
    /// The rounds that were read, the last one first.
    rounds: VecDeque<ReadRound>,
    /// The audit that waits for the proxy's choices.
    under_way: Option<(UpdateAuditor, u64, Participant)>,
}

impl MemberAudits {
    /// The participants of the round that is read now are known.
    pub(super) fn remember(&mut self, start: &RoundStart) {
        let last = self.rounds.front().map(|round| round.round);
        if let Some(read) = start.read.as_ref().filter(|read| Some(read.round) != last) {
            self.rounds.truncate(REMEMBERED - 1);
            self.rounds.push_front(read.clone());
        }
    }
}

impl MixMember {
    /// Begins an audit, in place of one that the proxy has not gone on with. Returns the set-up
    /// message.
    ///
    /// # Errors
    /// If the update is this member's, or of no round of the epoch of which it remembers this
    /// participant. Nothing has changed then.
    pub fn begin_audit(
        &mut self,
        epoch: u32,
        round: u64,
        subject: Participant,
    ) -> Result<Vec<u8>, MixMemberError> {
        let read = self.auditing.rounds.iter().find(|read| read.round == round);
        let is_listed = read.is_some_and(|read| read.participants.contains(&subject));
        if epoch != self.epoch.number() || subject.member == self.epoch.own() || !is_listed {
            return Err(MixMemberError::Audit(round));
        }
        let blocks = [(); 3].map(|()| self.random.block());
        let (auditor, message) = UpdateAuditor::new(blocks);
        self.auditing.under_way = Some((auditor, round, subject));
        Ok(message)
    }

    /// The garbled circuit for the proxy's choices, with which the audit ends.
    ///
    /// # Errors
    /// If no audit is under way, or the choices are not those of one.
    pub fn end_audit(&mut self, choices: &[u8]) -> Result<Vec<u8>, MixMemberError> {
        let (auditor, round, participant) =
            self.auditing.under_way.take().ok_or(MixMemberError::Audit(self.round))?;
        let (shape, key) = (self.epoch.shape(), self.epoch.key());
        Ok(auditor.tables(&AuditSubject { shape, key, round, participant }, choices)?)
    }
}
