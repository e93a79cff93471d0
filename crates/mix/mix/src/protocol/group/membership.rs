//! Forwards join requests, notices and announcements between members and administrators, and begins
//! the announced epochs.

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use keys::IdentityPublicKey;
use sha2::Sha256;

use super::epoch::AnnouncedEpoch;
use super::status::MixGroupEvent;
use super::{MAX_ADMINISTRATOR_MESSAGES, MAX_MEMBERSHIP_MESSAGES, MixGroup};
use crate::protocol::exchange::MixExchangeKind;
use crate::protocol::membership::{AnnouncementOrder, AnnouncementPreview};
use crate::protocol::wire::{ArchiveRecord, ProxyRefusal, ProxyToMember};

impl MixGroup {
    pub(super) fn handle_join(
        &mut self,
        key: IdentityPublicKey,
        request: Vec<u8>,
    ) -> Result<(), ProxyRefusal> {
        if self.is_inside(&key) {
            return Err(ProxyRefusal::AlreadyMember);
        }
        let is_full =
            |epoch: &AnnouncedEpoch| epoch.members() >= self.settings.terms.shape().members();
        if self.epoch.as_ref().is_some_and(is_full) {
            return Err(ProxyRefusal::GroupFull);
        }
        let connections = &self.connections;
        let is_connected = |key: &IdentityPublicKey| connections.values().any(|it| it.key == *key);
        self.joins.insert(key, request, is_connected)?;
        self.events.push_back(MixGroupEvent::JoinWaits { key });
        Ok(())
    }

    /// Passes join requests on to the administrators, not too many in an interval.
    pub(super) fn pass_on_joins(&mut self, now: Duration) {
        let interval = self.settings.terms.interval();
        while let Some((key, request)) = self.joins.pass_on(now, interval) {
            self.send_administrators(&ProxyToMember::JoinRequest { key, request });
        }
    }

    pub(super) fn handle_notice(
        &mut self,
        key: IdentityPublicKey,
        notice: Vec<u8>,
    ) -> Result<(), ProxyRefusal> {
        if self.number_of(&key).is_none() {
            return Err(ProxyRefusal::NotMember);
        }
        if self.notices.insert(&key, notice.clone()) {
            self.is_stored = false;
            self.send_administrators(&ProxyToMember::Notice { key, notice });
        }
        Ok(())
    }

    pub(super) fn handle_join_answer(&mut self, key: IdentityPublicKey, answer: Vec<u8>) {
        match self.connection_of(&key) {
            Some(id) if self.joins.remove(&key) => {
                self.send(id, &ProxyToMember::JoinAnswer(answer));
            }
            _ => self.joins.answer(&key, answer),
        }
    }

    /// Accepts the announcement of a later epoch. Another one was too late, because another
    /// administrator was faster: its administrator gets that one, and announces again.
    pub(super) fn handle_announcement(&mut self, announcement: &[u8]) -> Result<(), ProxyRefusal> {
        let epoch = AnnouncedEpoch::verify_after(self.newest(), announcement, &self.settings)?;
        if self.newest().is_none_or(|last| epoch.can_follow(last)) {
            self.is_restored = false;
            self.announced = Some(epoch);
        }
        Ok(())
    }

    /// A member or an administrator has a newer announcement than this proxy, or knows a later
    /// round: this proxy has lost its state, or has an old one.
    pub(super) fn handle_restore(
        &mut self,
        id: u64,
        round: u64,
        announcement: &[u8],
    ) -> Result<(), ProxyRefusal> {
        let key = self.connections[&id].key;
        // Anybody can send it, so what does not count is refused before signatures are verified.
        let preview = AnnouncementPreview::read(announcement);
        let preview = preview.ok_or(ProxyRefusal::BadAnnouncement)?;
        if preview.members() > self.settings.terms.shape().members() {
            return Err(ProxyRefusal::BadAnnouncement);
        }
        if !preview.lists(&key) {
            return Err(ProxyRefusal::NotMember);
        }
        match self.newest().map(|last| last.order_of(&preview)) {
            None | Some(AnnouncementOrder::Newer) => {
                let epoch =
                    AnnouncedEpoch::verify_after(self.newest(), announcement, &self.settings)?;
                self.events.push_back(MixGroupEvent::Restored { epoch: epoch.number(), by: key });
                self.restorers.clear();
                self.is_restored = true;
                self.announced = Some(epoch);
            }
            Some(AnnouncementOrder::Same) => {}
            // A member gets the announcement of this proxy. Others would wait for ever.
            Some(AnnouncementOrder::Fork) if !self.is_inside(&key) => {
                return Err(ProxyRefusal::NotMember);
            }
            // It was left out.
            Some(AnnouncementOrder::Older) if !self.is_inside(&key) => {
                return Err(ProxyRefusal::Removed);
            }
            Some(AnnouncementOrder::Older | AnnouncementOrder::Fork) => return Ok(()),
        }
        // Each member can do this once in an epoch, because it ends the open round.
        if self.restorers.insert(key.to_bytes()) && self.rounds.skip(round, self.is_restored) {
            self.is_stored = false;
        }
        Ok(())
    }

    /// The newest epoch: the announced one, or else the current one.
    pub(super) fn newest(&self) -> Option<&AnnouncedEpoch> {
        self.announced.as_ref().or(self.epoch.as_ref())
    }

    /// Begins the announced epoch. The open round is dropped without being closed: nobody would
    /// read its mailbox, because the first round of an epoch reads nothing.
    pub(super) fn begin_epoch(&mut self, now: Duration, epoch: AnnouncedEpoch) {
        let (number, members) = (epoch.number(), epoch.members());
        self.events.push_back(MixGroupEvent::EpochBegan { epoch: number, members });
        self.joins.remove_members(&epoch);
        self.notices.keep_members(&epoch);
        self.rounds.abandon();
        self.audits.begin_epoch();
        self.slow.clear();
        if !self.is_restored {
            self.restorers.clear();
        }
        let old = self.set_epoch(epoch);
        self.is_stored = false;
        for (id, key) in self.connections.iter().map(|(&id, it)| (id, it.key)).collect::<Vec<_>>() {
            let was_member = old.as_ref().is_some_and(|old| old.number_of(&key).is_some());
            if self.is_inside(&key) {
                self.admit(now, id);
                let was_one = old.as_ref().is_some_and(|old| old.administrators().contains(&key));
                if !was_one && self.is_administrator(&key) {
                    self.send_pending_membership(id);
                }
            } else if was_member {
                self.refuse(id, ProxyRefusal::Removed);
            }
        }
    }

    /// Makes an epoch the current one, and has its announcement kept if rounds are. Returns the
    /// epoch before.
    pub(super) fn set_epoch(&mut self, epoch: AnnouncedEpoch) -> Option<AnnouncedEpoch> {
        let announcement = epoch.announcement().to_vec();
        if !self.settings.terms.keep().is_zero() {
            self.records.push_back(ArchiveRecord::Announcement(announcement.clone()));
        }
        self.announcement = ProxyToMember::Announcement(announcement).encode().into();
        self.epoch.replace(epoch)
    }

    /// Sends the epoch to a member or an administrator, and sets up a member's exchanges.
    pub(super) fn admit(&mut self, now: Duration, id: u64) {
        let key = self.connections[&id].key;
        let Some(epoch) = &self.epoch else { return };
        let is_member = epoch.number_of(&key).is_some();
        self.transmit(id, self.announcement.clone(), false);
        let connection = self.connections.get_mut(&id).expect("the caller has it");
        if !is_member || !connection.is_new() {
            return;
        }
        let MixExchangeKind::Oblivious(engine) = self.settings.terms.exchange() else {
            return connection.set_up_broadcast();
        };
        self.engines += 1;
        let seed = derive_seed(&self.seed, self.engines);
        match (self.new_engine)(engine, self.settings.terms.shape(), seed) {
            Ok(engine) => {
                connection.set_up(engine);
                self.work(now, id);
            }
            Err(_) => self.refuse(id, ProxyRefusal::Engine),
        }
    }

    /// Sends an administrator everything that waits for one.
    pub(super) fn send_pending_membership(&mut self, id: u64) {
        let joins =
            self.joins.waiting().map(|(key, request)| ProxyToMember::JoinRequest { key, request });
        let notices = self.notices.all().map(|(key, notice)| ProxyToMember::Notice { key, notice });
        let found = self.audits.found().iter();
        let found = found.map(|it| ProxyToMember::AuditFailed { key: it.key, round: it.round });
        for message in joins.chain(notices).chain(found).collect::<Vec<_>>() {
            self.send(id, &message);
        }
    }

    /// Sends all administrators a message.
    pub(super) fn send_administrators(&mut self, message: &ProxyToMember) {
        let connections = self.connections.iter();
        let to = connections.filter(|(_, it)| self.is_administrator(&it.key)).map(|(&id, _)| id);
        for id in to.collect::<Vec<_>>() {
            self.send(id, message);
        }
    }

    /// Whether the key is that of an administrator: of the current epoch, or the founder before the
    /// first one.
    pub(super) fn is_administrator(&self, key: &IdentityPublicKey) -> bool {
        match &self.epoch {
            Some(epoch) => epoch.administrators().contains(key),
            None => *key == self.settings.administrator,
        }
    }

    pub(super) fn count_membership_message(
        &mut self,
        now: Duration,
        id: u64,
    ) -> Result<(), ProxyRefusal> {
        let is_administrator = self.is_administrator(&self.connections[&id].key);
        let connection = self.connections.get_mut(&id).expect("checked");
        let most =
            if is_administrator { MAX_ADMINISTRATOR_MESSAGES } else { MAX_MEMBERSHIP_MESSAGES };
        connection.count_membership_message(now, self.settings.terms.interval(), most)
    }

    pub(super) fn check_administrator(&self, key: &IdentityPublicKey) -> Result<(), ProxyRefusal> {
        if self.is_administrator(key) { Ok(()) } else { Err(ProxyRefusal::NotAdministrator) }
    }
}

/// The seed of an engine, or of the audits.
pub(super) fn derive_seed(seed: &[u8; 32], number: u64) -> [u8; 32] {
    let mut hmac = Hmac::<Sha256>::new_from_slice(seed).expect("a key of any length");
    hmac.update(&number.to_be_bytes());
    hmac.finalize().into_bytes().into()
}
