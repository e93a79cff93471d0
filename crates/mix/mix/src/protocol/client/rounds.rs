//! A client in rounds: its requests, what it reads, and audits.

use std::time::Duration;

use super::link::{ProxyLink, UnreadRound};
use super::report::MixClientError;
use super::{ClientConversations, MixClient};
use crate::protocol::event::{MissedReason, MixClientEvent};
use crate::protocol::member::{MIN_AUDIT_ROUNDS, MixMemberError};
use crate::protocol::membership::EpochAnnouncement;
use crate::protocol::round::{Participant, RoundPosition, RoundStart};
use crate::protocol::wire::{ArchiveRecord, MemberToProxy};

/// After as many live rounds, and again after twice as many, it is reported that a client still
/// catches up.
const MIN_REPORTED_ROUNDS: u64 = 16;

/// If as many requests in a row are late, it is reported.
const MAX_LATE: u64 = 8;

impl MixClient {
    /// Begins to set up exchanges in the proxy's current epoch.
    pub(super) fn begin_exchanges(&mut self) -> Result<(), MixClientError> {
        if self.conversations().arrived() == RoundPosition::default()
            && let ClientConversations::Member(member) = &mut self.conversations
        {
            // A new member has missed nothing before its first epoch.
            member.skip(RoundPosition { epoch: self.epochs.number(), round: 0 });
            member.handle_caught_up();
            self.is_stored = false;
        }
        let arrived = self.conversations().arrived();
        let messages = self.link()?.begin(arrived)?;
        self.transmits.extend(messages);
        Ok(())
    }

    pub(super) fn handle_round(
        &mut self,
        now: Duration,
        start: &RoundStart,
        opening: Vec<u8>,
    ) -> Result<(), MixClientError> {
        let is_stored = self.is_stored();
        let (ClientConversations::Member(member), Some(link)) =
            (&mut self.conversations, &mut self.link)
        else {
            return Err(MixClientError::OutOfTurn("a round before the epoch"));
        };
        let generation = member.conversations().generation();
        let handled = link.handle_round(now, start, opening, member, is_stored);
        if let (Err(MixClientError::Round(MixMemberError::Read { .. })), Some(administrator)) =
            (&handled, &mut self.administrator)
        {
            // The proxy has lost the numbers of the epoch's rounds. They do not matter in the next.
            administrator.handle_unreadable_round();
            self.is_stored = false;
        }
        self.transmits.push_back(handled?);
        self.is_stored &= member.conversations().generation() == generation;
        self.membership.handle_round();
        Ok(())
    }

    pub(super) fn handle_answer(
        &mut self,
        now: Duration,
        round: u64,
        body: &[u8],
    ) -> Result<(), MixClientError> {
        let (ClientConversations::Member(member), Some(link)) =
            (&mut self.conversations, &mut self.link)
        else {
            return Err(MixClientError::OutOfTurn("an answer before the epoch"));
        };
        let generation = member.conversations().generation();
        link.handle_answer(now, round, body, member)?;
        self.is_stored &= member.conversations().generation() == generation;
        self.exchanges += u64::from(member.is_anonymous());
        self.take_events();
        Ok(())
    }

    /// Reads the next mailbox that has arrived in exchanges by broadcast. Returns whether there was
    /// one. The driver calls it when [`MixClient::poll_transmit`] returns nothing, so that the time
    /// of a request does not depend on what is read.
    pub fn read_round(&mut self) -> bool {
        let unread = self.link.as_mut().and_then(ProxyLink::take_unread);
        let (ClientConversations::Member(member), Some(unread)) = (&mut self.conversations, unread)
        else {
            return false;
        };
        let generation = member.conversations().generation();
        match unread {
            UnreadRound::Live(read, opening) => {
                if let Some((is_kept, mailbox)) = opening.split_first() {
                    member.read_mailbox(&read, mailbox, *is_kept == 1);
                }
                // Rounds of earlier epochs do not arrive any more, not even after a restart.
                if self.epochs.forget_past() {
                    member.handle_caught_up();
                    self.is_stored = false;
                }
            }
            UnreadRound::WhileCatchingUp(read, opening, rounds) => {
                if let Some((is_kept, mailbox)) = opening.split_first() {
                    member.compare_mailbox(&read, mailbox, *is_kept == 1);
                }
                if rounds >= MIN_REPORTED_ROUNDS && rounds.is_power_of_two() {
                    let event = MixClientEvent::CatchingUp { rounds };
                    self.events.extend(self.reports.pass(self.heard, event));
                }
            }
            UnreadRound::Past(ArchiveRecord::Gap(position)) => {
                member.skip(position);
                let (round, reason) = (position.round, MissedReason::NotKept);
                let event = MixClientEvent::Missed { round, reason };
                self.events.extend(self.reports.pass(self.heard, event));
            }
            UnreadRound::Past(ArchiveRecord::Announcement(announcement)) => {
                let at = &self.settings.group;
                let verified =
                    EpochAnnouncement::verify(&announcement, at.group.as_str(), &at.administrator);
                // The rounds of one that is not believed have no key, as if it were missing.
                let newest = self.epochs.newest();
                let is_believed = |announcement: &EpochAnnouncement| {
                    newest.is_none_or(|newest| newest.believes_past(announcement))
                };
                if let Some(announcement) = verified.ok().filter(is_believed) {
                    self.epochs.handle_past_announcement(&announcement, &self.identity);
                }
            }
            UnreadRound::Past(ArchiveRecord::Round(round)) => {
                let position = round.position();
                self.is_stored &= !self.epochs.forget_before(position.epoch);
                let epoch = self.epochs.epoch_of(&round);
                let is_read = epoch.is_some_and(|epoch| member.read_past(epoch, &round).is_ok());
                if !is_read {
                    // Of the current epoch, a made up round would hide those to come.
                    if position.epoch < self.epochs.number() {
                        member.skip(position);
                    }
                    if self.unreadable_epoch != position.epoch {
                        self.unreadable_epoch = position.epoch;
                        let (round, reason) = (position.round, MissedReason::NoKey);
                        let event = MixClientEvent::Missed { round, reason };
                        self.events.extend(self.reports.pass(self.heard, event));
                    }
                }
            }
            UnreadRound::CaughtUp => {
                member.handle_caught_up();
                self.is_stored &= !self.epochs.forget_past();
            }
        }
        self.is_stored &= member.conversations().generation() == generation;
        self.take_events();
        true
    }

    /// The proxy says that the request of a round came too late.
    pub(super) fn handle_late(&mut self, round: u64) -> Result<(), MixClientError> {
        let link = self.link()?;
        let before = link.late();
        let request = link.handle_late(round);
        let rounds = link.late();
        self.transmits.extend(request);
        if rounds > before && rounds >= MAX_LATE {
            let event = MixClientEvent::AlwaysLate { rounds };
            self.events.extend(self.reports.pass(self.heard, event));
        }
        Ok(())
    }

    /// Takes the member's events, and what was held back of earlier ones.
    pub(super) fn take_events(&mut self) {
        if let ClientConversations::Member(member) = &mut self.conversations {
            let events = std::iter::from_fn(|| member.poll_event());
            self.events.extend(events.filter_map(|event| self.reports.pass(self.heard, event)));
        }
        self.events.extend(self.reports.poll(self.heard));
    }

    /// Begins an audit. The protocol requires some rounds between two audits, which bounds what a
    /// deviating proxy can learn about masks and slot orders.
    pub(super) fn handle_audit(
        &mut self,
        epoch: u32,
        round: u64,
        subject: Participant,
    ) -> Result<(), MixClientError> {
        let ClientConversations::Member(member) = &mut self.conversations else {
            return Err(MixClientError::OutOfTurn("an audit before the epoch"));
        };
        let last = self.last_audit.filter(|(of, _)| *of == epoch).map(|(_, round)| round);
        if last.is_some_and(|last| round < last.saturating_add(MIN_AUDIT_ROUNDS)) {
            return Err(MixMemberError::Audit(round).into());
        }
        let set_up = member.begin_audit(epoch, round, subject)?;
        self.last_audit = Some((epoch, round));
        self.transmits.push_back(MemberToProxy::AuditSetUp(set_up).encode());
        Ok(())
    }
}
