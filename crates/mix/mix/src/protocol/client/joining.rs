//! How a client joins and learns the epochs' keys, and gives a proxy back what it has lost.

use std::sync::Arc;
use std::time::Duration;

use super::epochs::AnnouncementEffect;
use super::link::ProxyLink;
use super::report::MixClientError;
use super::state::JoinAttempt;
use super::{ClientConversations, MixClient};
use crate::protocol::conversations::Conversations;
use crate::protocol::event::MixClientEvent;
use crate::protocol::member::MixMember;
use crate::protocol::membership::{
    Administrator, AnnouncementOrder, EpochAnnouncement, JoinRequest, MemberNotice, decode_answer,
};
use crate::protocol::wire::{MemberToProxy, MembershipStatus, MixTerms};

/// Rounds after the last one that is known to have arrived, in which this client may have taken
/// part: after a restart it does not say what it has read since the last checkpoint, and a proxy
/// that is restarted skips numbers.
const UNKNOWN_ROUNDS: u64 = 1 << 16;

/// Joining, and the epochs.
impl MixClient {
    pub(super) fn handle_welcome(
        &mut self,
        now: Duration,
        terms: MixTerms,
        status: MembershipStatus,
        proxy: ProxyPosition,
    ) -> Result<(), MixClientError> {
        self.agreed.agree(&terms, &self.settings.terms)?;
        self.is_stored = false;
        if self.agreed.report_kept(&terms, &self.settings.terms) {
            self.events.push_back(MixClientEvent::RoundsKept);
        }
        if let Some((from, to)) = self.agreed.report_changed(&terms) {
            let event = MixClientEvent::TermsChanged { from, to };
            self.events.extend(self.reports.pass(now, event));
        }
        let mut link = ProxyLink::new(terms, *self.random.draw())?;
        let is_inside =
            matches!(status, MembershipStatus::Administrator | MembershipStatus::Member);
        link.has_announcement = is_inside && proxy.epoch > 0;
        self.link = Some(link);
        // The shape may have changed.
        self.end_member();
        self.begin_member()?;
        let (announced, known) = (proxy.epoch, self.epochs.newest_number());
        if proxy.is_restored && announced == known {
            self.report_restored(announced, false);
        }
        let last_round = self.conversations().last_round_of(known);
        let is_behind = announced < known || (announced == known && proxy.round < last_round);
        if is_behind && self.restore_proxy() {
            // The proxy announces the epoch then.
            return Ok(());
        }
        if announced < known && self.epochs.newest().is_none() && self.administrator.is_none() {
            return Err(MixClientError::OldEpoch { announced, known });
        }
        match status {
            MembershipStatus::Administrator if announced == 0 => {
                // The group begins with this client.
                let is_new = self.administrator.as_ref().is_some_and(|own| own.epoch() == 0);
                self.link()?.is_current = is_new;
                self.continue_proposal();
                self.announce_if_due(now);
                Ok(())
            }
            // The announcement follows.
            MembershipStatus::Administrator | MembershipStatus::Member => Ok(()),
            // The proxy says whether its list follows the one of this member, which was removed
            // then, or is of another branch of the group.
            MembershipStatus::Unknown | MembershipStatus::Waiting
                if self.join_attempt.is_none() && self.send_newest() =>
            {
                Ok(())
            }
            MembershipStatus::Unknown | MembershipStatus::Waiting => self.ask_to_join(),
        }
    }

    /// Gives a proxy that has lost it the newest announcement, and says so. Returns whether this
    /// client has one that the proxy takes from it.
    pub(super) fn restore_proxy(&mut self) -> bool {
        let is_sent = self.send_newest();
        if is_sent {
            self.report_restored(self.epochs.newest_number(), true);
        }
        is_sent
    }

    /// Sends the proxy the newest announcement that this client has, once in a connection. Returns
    /// whether it has one that the proxy takes from it.
    fn send_newest(&mut self) -> bool {
        let own = self.identity.public();
        let Some(newest) = self.epochs.newest().filter(|newest| newest.lists(&own)) else {
            return false;
        };
        let (epoch, announcement) = (newest.epoch(), newest.bytes().to_vec());
        let Some(link) = self.link.as_mut().filter(|link| !link.has_restored) else { return false };
        link.has_restored = true;
        let last_round = match self.conversations().last_round_of(epoch) {
            arrived if arrived > 0 && self.epochs.number() == epoch => {
                arrived.saturating_add(UNKNOWN_ROUNDS)
            }
            _ => 0,
        };
        let restore = MemberToProxy::Restore { round: last_round, announcement };
        self.transmits.push_back(restore.encode());
        true
    }

    fn report_restored(&mut self, epoch: u32, is_own: bool) {
        if std::mem::replace(&mut self.restored_epoch, epoch) != epoch {
            self.events.push_back(MixClientEvent::ProxyRestored { epoch, is_own });
        }
    }

    fn ask_to_join(&mut self) -> Result<(), MixClientError> {
        // The same request can safely be sent again, and its answer is recognised.
        if self.join_attempt.as_ref().is_none_or(|attempt| attempt.request.is_empty()) {
            let was_member = self.epochs.is_member();
            let none =
                if was_member { MixClientError::Removed } else { MixClientError::NotAMember };
            let invitation = self.settings.invitation.as_ref().ok_or(none)?;
            let request = JoinRequest {
                name: self.settings.name.clone(),
                prekey: self.epochs.prekey(),
                salt: *self.random.draw(),
            };
            let request = request.encode(&self.identity, invitation);
            self.join_attempt = Some(JoinAttempt { request, ..JoinAttempt::new(invitation) });
            self.membership_changed();
        }
        self.send_join_request();
        Ok(())
    }

    fn send_join_request(&mut self) {
        let request = self.join_attempt.as_ref().map(|attempt| attempt.request.clone());
        self.membership.extend(request.map(|it| MemberToProxy::Join(it).encode()));
    }

    pub(super) fn handle_join_answer(&mut self, answer: &[u8]) -> Result<(), MixClientError> {
        let request = self.join_attempt.as_ref().map_or(&[][..], |attempt| &attempt.request);
        let (salt, inviter) = (JoinRequest::salt(request), JoinRequest::inviter(request));
        let answer = salt.zip(inviter).and_then(|(salt, inviter)| {
            decode_answer(answer, &inviter, &self.group_id(), &self.identity.public(), &salt)
        });
        match answer {
            // The answer is to an earlier request. The proxy no longer has the current one pending,
            // so it is sent again.
            None => {
                self.send_join_request();
                Ok(())
            }
            Some(Ok(())) => {
                self.events.push_back(MixClientEvent::Joined);
                Ok(())
            }
            Some(Err(refusal)) => {
                if let Some(attempt) = &mut self.join_attempt {
                    attempt.request.clear();
                }
                self.membership_changed();
                Err(MixClientError::Join(refusal))
            }
        }
    }

    pub(super) fn handle_announcement(
        &mut self,
        now: Duration,
        bytes: &[u8],
    ) -> Result<(), MixClientError> {
        let at = &self.settings.group;
        let announcement = EpochAnnouncement::verify(bytes, at.group.as_str(), &at.administrator)?;
        if self.epochs.order(&announcement) == AnnouncementOrder::Older {
            // The proxy's answer to the newer announcement may still come.
            let is_restoring = self.link()?.has_restored || self.restore_proxy();
            let (announced, known) = (announcement.epoch(), self.epochs.newest_number());
            let old = MixClientError::OldEpoch { announced, known };
            return if is_restoring { Ok(()) } else { Err(old) };
        }
        // Rounds that have arrived are of the epoch before, and are read as its member.
        while !self.link()?.is_catching_up() && self.read_round() {}
        let TakenAnnouncement { effect, moved } = self.take_announcement(now, &announcement)?;
        self.link()?.is_current = true;
        self.handle_found();
        self.continue_proposal();
        self.announce_if_due(now);
        match effect {
            AnnouncementEffect::Known => {
                if !std::mem::replace(&mut self.link()?.has_noticed, true) {
                    self.send_notices(now);
                }
                self.begin_exchanges()?;
            }
            AnnouncementEffect::Opened => {
                self.begin_member()?;
                self.announce_prekey(now);
                self.begin_exchanges()?;
            }
            AnnouncementEffect::Prekey => {
                self.announce_prekey(now);
                // Without the key, this client cannot make the exchanges for which the proxy would
                // wait.
                if self.link()?.is_begun() {
                    return Err(MixClientError::NoKey);
                }
            }
            AnnouncementEffect::Removed => {
                self.end_member();
                self.reported_others = None;
                return Err(MixClientError::Removed);
            }
            AnnouncementEffect::NotYet => {}
        }
        moved.map_or(Ok(()), |to| Err(MixClientError::Moved(to)))
    }

    /// Takes over an announcement that is not older than the newest one, from the proxy or from a
    /// file. Returns its effect, and the proxy's new address if it has moved.
    pub(super) fn take_announcement(
        &mut self,
        now: Duration,
        announcement: &EpochAnnouncement,
    ) -> Result<TakenAnnouncement, MixClientError> {
        let order = self.epochs.order(announcement);
        // A new member knows from its invitation who the administrators were, whatever the proxy
        // says of it.
        let anchor = self.join_attempt.as_ref().filter(|_| self.epochs.newest().is_none());
        let administrators = announcement.administrators();
        let is_anchored =
            anchor.is_none_or(|attempt| administrators.continues_anchor(&attempt.anchor));
        if order == AnnouncementOrder::Fork {
            return Err(MixClientError::Fork);
        }
        if !is_anchored {
            return Err(MixClientError::NotAsInvited);
        }
        if order == AnnouncementOrder::Newer && announcement.epoch() <= self.epochs.number() {
            // It replaces the epoch that this client has opened.
            let epoch = announcement.epoch();
            self.events.push_back(MixClientEvent::EpochReplaced { epoch });
            self.end_member();
            self.epochs.forget_current();
            self.forget_position(epoch);
        }
        self.follow(now, announcement, order == AnnouncementOrder::Newer)
    }

    /// The epochs from this number on were replaced, and their rounds are not read any more.
    pub(super) fn forget_position(&mut self, epoch: u32) {
        self.conversations_mut().forget_position(epoch);
        if let Some(link) = &mut self.link {
            link.forget_position(epoch);
        }
    }

    /// Makes an announcement, which is the newest one or `is_newer`, the newest one.
    pub(super) fn follow(
        &mut self,
        now: Duration,
        announcement: &EpochAnnouncement,
        is_newer: bool,
    ) -> Result<TakenAnnouncement, MixClientError> {
        let calendar = self.calendar(now);
        let has_missed = self.link.as_ref().is_some_and(ProxyLink::keeps_rounds);
        let effect = self.epochs.handle_announcement(
            calendar,
            announcement,
            &self.identity,
            has_missed,
            &mut self.random,
        )?;
        let before = self.administrator_names();
        let is_first = self.epochs.newest().is_none();
        let has_moved = (is_first || is_newer) && self.epochs.set_newest(announcement.clone());
        if effect == AnnouncementEffect::Opened {
            self.join_attempt = None;
        }
        if matches!(effect, AnnouncementEffect::Known | AnnouncementEffect::Opened) {
            self.report_others();
        }
        let names = self.administrator_names();
        if !is_first && is_newer && names != before && !names.is_empty() {
            self.events.push_back(MixClientEvent::AdministratorsChanged { names });
        }
        let administrators = announcement.administrators().keys();
        if effect == AnnouncementEffect::Opened && administrators == [self.identity.public()] {
            // The others have left: nobody can remove this member. The prekey changes anyway.
            self.epochs.end_leaving(calendar, &mut self.random);
        }
        self.update_administrator(now, announcement);
        self.membership_changed();
        let moved = has_moved.then(|| announcement.proxy()).flatten();
        if let Some(to) = moved {
            self.handle_moved();
            self.events.push_back(MixClientEvent::ProxyMoved { to: to.clone() });
        }
        let moved = moved.map(|to| to.address.clone());
        Ok(TakenAnnouncement { effect, moved })
    }

    /// Reports the other members, unless they were reported since the start.
    fn report_others(&mut self) {
        let others = self.other_names();
        if self.reported_others.as_ref() != Some(&others) {
            self.reported_others = Some(others.clone());
            self.events.push_back(MixClientEvent::MembersChanged { others });
        }
    }

    /// Tells the administrators the current prekey.
    fn announce_prekey(&mut self, now: Duration) {
        if let Some(administrator) = &mut self.administrator {
            administrator.set_own_prekey(self.epochs.prekey(), self.epochs.number());
            self.announce_if_due(now);
        }
        if let Some(link) = &mut self.link {
            link.has_noticed = true;
        }
        self.send_notices(now);
    }

    /// Sends the other administrators, if there are others, the current prekey, or that this member
    /// leaves.
    pub(super) fn send_notices(&mut self, now: Duration) {
        let own = self.identity.public();
        let administrators = self.epochs.newest().map(EpochAnnouncement::administrators);
        let has_other = administrators
            .map_or(self.administrator.is_none(), |all| all.keys().iter().any(|key| *key != own));
        if !has_other {
            return;
        }
        let (prekey, opened) = (self.epochs.prekey(), self.epochs.number());
        let list = administrators.map(|all| *all.digest());
        if self.epochs.is_leaving() {
            // No prekey: who knows a later one takes the notice for an old one, and the next epoch
            // needs none.
            let calendar = self.calendar(now);
            let number = self.epochs.leave(calendar);
            self.membership_changed();
            return self.send_notice(MemberNotice::Leave { number });
        }
        // Administrators of the version before understand only the prekey.
        self.send_notice(MemberNotice::Prekey { prekey, opened });
        if self.administrator.as_ref().is_some_and(Administrator::steps_down)
            && let Some(list) = list
        {
            self.send_notice(MemberNotice::StepDown { prekey, opened, list });
        }
    }

    fn send_notice(&mut self, notice: MemberNotice) {
        let at = &self.settings.group;
        let notice = notice.encode(&self.identity, &at.administrator, at.group.as_str());
        self.membership.extend([MemberToProxy::Notice(notice).encode()]);
    }

    /// Enters the current epoch, if there is one.
    pub(super) fn begin_member(&mut self) -> Result<(), MixClientError> {
        let Some(link) = &self.link else { return Ok(()) };
        let is_kept = self.agreed.counts_members(link.terms(), &self.settings.terms);
        let Some(epoch) = self.epochs.epoch(link.terms().shape()).transpose()? else {
            return Ok(());
        };
        if let ClientConversations::Member(member) = &mut self.conversations {
            member.begin_epoch(epoch);
            self.take_events();
            return Ok(());
        }
        let none = ClientConversations::Waiting(Conversations::new(0));
        if let ClientConversations::Waiting(conversations) =
            std::mem::replace(&mut self.conversations, none)
        {
            let (own, seed) = (Arc::clone(&self.identity), *self.random.draw());
            let least = self.settings.least_participants;
            let mut member = MixMember::new(own, epoch, conversations, least, seed);
            member.set_kept(is_kept);
            self.conversations = ClientConversations::Member(Box::new(member));
            self.take_events();
        }
        Ok(())
    }

    /// Membership messages from now on wait until the state is stored.
    pub(super) fn membership_changed(&mut self) {
        self.is_stored = false;
        self.membership.handle_change();
    }

    pub(super) fn end_member(&mut self) {
        let none = ClientConversations::Waiting(Conversations::new(0));
        self.conversations = match std::mem::replace(&mut self.conversations, none) {
            ClientConversations::Member(member) => {
                ClientConversations::Waiting(member.into_conversations())
            }
            waiting @ ClientConversations::Waiting(_) => waiting,
        };
    }
}

/// The epoch and round that the proxy has, as it greets.
#[derive(Clone, Copy)]
pub(super) struct ProxyPosition {
    pub(super) epoch: u32,
    pub(super) round: u64,
    /// Whether a member has restored this epoch.
    pub(super) is_restored: bool,
}

/// The effect of an announcement that was taken over.
pub(super) struct TakenAnnouncement {
    pub(super) effect: AnnouncementEffect,
    /// The address to which the proxy has moved.
    moved: Option<String>,
}
