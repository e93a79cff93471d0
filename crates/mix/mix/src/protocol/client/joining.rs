//! How a client joins and learns the epochs' keys, and the administrator's part of it.

use std::sync::Arc;
use std::time::Duration;

use keys::IdentityPublicKey;

use super::epochs::AnnouncementEffect;
use super::link::ProxyLink;
use super::report::MixClientError;
use super::{ClientConversations, MixClient};
use crate::protocol::conversations::Conversations;
use crate::protocol::event::MixClientEvent;
use crate::protocol::member::MixMember;
use crate::protocol::membership::{EpochAnnouncement, JoinRequest, MemberNotice, decode_answer};
use crate::protocol::wire::{MemberToProxy, MembershipStatus, MixTerms};

/// Joining, and the epochs.
impl MixClient {
    pub(super) fn handle_welcome(
        &mut self,
        now: Duration,
        terms: MixTerms,
        status: MembershipStatus,
        epoch: u32,
    ) -> Result<(), MixClientError> {
        self.link = Some(ProxyLink::new(terms, *self.random.draw())?);
        // The shape may have changed.
        self.end_member();
        self.begin_member()?;
        self.is_stored = false;
        if epoch < self.epochs.number() && self.administrator.is_none() {
            return Err(MixClientError::OldEpoch { announced: epoch, known: self.epochs.number() });
        }
        match status {
            MembershipStatus::Administrator => {
                self.handle_epoch(epoch);
                self.announce_if_due(now);
            }
            MembershipStatus::Member => self.send_notice(self.epochs.notice()),
            MembershipStatus::Unknown | MembershipStatus::Waiting => self.ask_to_join()?,
        }
        Ok(())
    }

    fn ask_to_join(&mut self) -> Result<(), MixClientError> {
        // The same request can safely be sent again, and its answer is recognised.
        if self.join_request.is_none() {
            let was_member = self.epochs.is_member();
            let none =
                if was_member { MixClientError::Removed } else { MixClientError::NotAMember };
            let invitation = self.settings.invitation.as_ref().ok_or(none)?;
            let request = JoinRequest {
                name: self.settings.name.clone(),
                prekey: self.epochs.prekey(),
                salt: *self.random.draw(),
            };
            self.join_request = Some(request.encode(&self.identity, invitation));
            self.membership_changed();
        }
        self.membership
            .extend(self.join_request.clone().map(|it| MemberToProxy::Join(it).encode()));
        Ok(())
    }

    pub(super) fn handle_join_answer(&mut self, answer: &[u8]) -> Result<(), MixClientError> {
        let at = &self.settings.group;
        let salt = self.join_request.as_deref().and_then(JoinRequest::salt);
        let answer = salt.and_then(|salt| {
            let own = self.identity.public();
            decode_answer(answer, &at.administrator, at.group.as_str(), &own, &salt)
        });
        match answer {
            // The answer is to an earlier request. The proxy no longer has the current one pending,
            // so it is sent again.
            None => {
                let again = self.join_request.clone().map(|it| MemberToProxy::Join(it).encode());
                self.membership.extend(again);
                Ok(())
            }
            Some(Ok(())) => {
                self.events.push_back(MixClientEvent::Joined);
                Ok(())
            }
            Some(Err(refusal)) => {
                self.join_request = None;
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
        let (known, announced) = (self.epochs.number(), announcement.epoch());
        let calendar = self.calendar(now);
        let has_missed = self.link.as_ref().is_some_and(|link| !link.has_caught_up());
        let outcome = self.epochs.handle_announcement(
            calendar,
            &announcement,
            &self.identity,
            has_missed,
            &mut self.random,
        )?;
        match outcome {
            AnnouncementEffect::Known => self.begin_exchanges(),
            // The administrator has the newer epoch and has announced it.
            AnnouncementEffect::Old if self.administrator.is_some() => Ok(()),
            AnnouncementEffect::Old => Err(MixClientError::OldEpoch { announced, known }),
            AnnouncementEffect::Opened => {
                self.membership_changed();
                self.join_request = None;
                self.begin_member()?;
                self.announce_prekey(now);
                self.events
                    .push_back(MixClientEvent::MembersChanged { others: self.other_names() });
                self.begin_exchanges()
            }
            AnnouncementEffect::Prekey => {
                self.membership_changed();
                self.announce_prekey(now);
                // Without the key, this client cannot make the exchanges for which the proxy would
                // wait.
                if self.link()?.is_begun() { Err(MixClientError::NoKey) } else { Ok(()) }
            }
            AnnouncementEffect::Removed => {
                self.membership_changed();
                self.end_member();
                Err(MixClientError::Removed)
            }
            AnnouncementEffect::NotYet => Ok(()),
        }
    }

    /// Tells the administrator the current prekey.
    fn announce_prekey(&mut self, now: Duration) {
        if let Some(administrator) = &mut self.administrator {
            administrator.set_own_prekey(self.epochs.prekey(), self.epochs.number());
            self.announce_if_due(now);
        } else {
            self.send_notice(self.epochs.notice());
        }
    }

    pub(super) fn send_notice(&mut self, notice: MemberNotice) {
        let at = &self.settings.group;
        let notice = notice.encode(&self.identity, &at.administrator, at.group.as_str());
        self.membership.extend([MemberToProxy::Notice(notice).encode()]);
    }

    /// Enters the current epoch, if there is one.
    fn begin_member(&mut self) -> Result<(), MixClientError> {
        let Some(link) = &self.link else { return Ok(()) };
        let is_kept = !link.terms().keep().is_zero();
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

    fn end_member(&mut self) {
        let none = ClientConversations::Waiting(Conversations::new(0));
        self.conversations = match std::mem::replace(&mut self.conversations, none) {
            ClientConversations::Member(member) => {
                ClientConversations::Waiting(member.into_conversations())
            }
            waiting @ ClientConversations::Waiting(_) => waiting,
        };
    }
}

/// The minimum interval between two reports of refusals to the administrator. The holder of a used
/// invitation can send any number of requests, under any names.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(60);

/// Limits the rate of reports about refused join requests.
#[derive(Default)]
pub(super) struct JoinRefusalLimiter {
    last_reported: Option<Duration>,
    unreported: u64,
}

impl JoinRefusalLimiter {
    /// If a refusal is to be reported now, returns the number of refusals that were not reported
    /// before.
    fn take_report(&mut self, now: Duration) -> Option<u64> {
        let since = self.last_reported.map(|last| now.saturating_sub(last));
        if since.is_some_and(|since| since < REFUSAL_INTERVAL) {
            self.unreported += 1;
            return None;
        }
        self.last_reported = Some(now);
        Some(std::mem::take(&mut self.unreported))
    }
}

/// The administrator's part.
impl MixClient {
    pub(super) fn handle_join_request(
        &mut self,
        now: Duration,
        key: &IdentityPublicKey,
        request: &[u8],
    ) {
        let calendar = self.calendar(now);
        let (Some(administrator), Some(link)) = (&mut self.administrator, &self.link) else {
            return;
        };
        let max_members = link.terms().shape().members();
        let decision = administrator.handle_join_request(calendar, max_members, key, request);
        let answer = MemberToProxy::JoinAnswer { key: *key, answer: decision.answer };
        let event = match (decision.outcome, decision.name, decision.invited) {
            (Ok(()), Some(name), Some(invited)) => {
                Some(MixClientEvent::Admitted { name, invited, key: *key })
            }
            (Ok(()), ..) => None,
            (Err(reason), name, invited) => self
                .refusals
                .take_report(now)
                .map(|others| MixClientEvent::NotAdmitted { name, invited, reason, others }),
        };
        self.events.extend(event);
        self.membership_changed();
        self.membership.extend([answer.encode()]);
        self.announce_if_due(now);
    }

    pub(super) fn handle_notice(&mut self, now: Duration, key: &IdentityPublicKey, notice: &[u8]) {
        let Some(administrator) = &mut self.administrator else { return };
        let left = administrator.handle_notice(key, notice);
        self.events.extend(left.map(|name| MixClientEvent::Left { name }));
        self.membership_changed();
        self.announce_if_due(now);
    }

    /// The proxy has reported its current epoch.
    fn handle_epoch(&mut self, epoch: u32) {
        let Some(administrator) = &mut self.administrator else { return };
        let missed = administrator.handle_epoch(epoch).map(<[u8]>::to_vec);
        self.membership.extend(missed.map(|it| MemberToProxy::Announce(it).encode()));
    }

    pub(super) fn announce_if_due(&mut self, now: Duration) {
        let calendar = self.calendar(now);
        let (Some(administrator), Some(_)) = (&mut self.administrator, &self.link) else { return };
        let made = administrator.handle_timeout(calendar, &mut self.random).map(<[u8]>::to_vec);
        if let Some(announcement) = made {
            self.membership_changed();
            self.membership.extend([MemberToProxy::Announce(announcement).encode()]);
        }
    }
}
