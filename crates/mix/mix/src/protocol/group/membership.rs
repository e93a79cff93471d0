//! Forwards join requests, notices and announcements between members and the administrator, and
//! begins the announced epochs.

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use keys::IdentityPublicKey;
use sha2::Sha256;

use super::epoch::AnnouncedEpoch;
use super::status::MixGroupEvent;
use super::{MAX_ADMINISTRATOR_MESSAGES, MAX_MEMBERSHIP_MESSAGES, MixGroup};
use crate::protocol::exchange::MixExchangeKind;
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
        self.joins.insert(key, request.clone(), is_connected)?;
        self.events.push_back(MixGroupEvent::JoinWaits { key });
        self.send_administrator(&ProxyToMember::JoinRequest { key, request });
        Ok(())
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
            self.send_administrator(&ProxyToMember::Notice { key, notice });
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

    /// Accepts an announcement if the administrator made it and its epoch is later than all before.
    pub(super) fn handle_announcement(
        &mut self,
        announcement: Vec<u8>,
    ) -> Result<(), ProxyRefusal> {
        let epoch = AnnouncedEpoch::verify(announcement, &self.settings)?;
        let last = self.announced.as_ref().or(self.epoch.as_ref());
        if epoch.number() <= last.map_or(0, AnnouncedEpoch::number) {
            return Err(ProxyRefusal::OldAnnouncement);
        }
        self.announced = Some(epoch);
        Ok(())
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
        let old = self.epoch.replace(epoch);
        self.keep_announcement();
        self.is_stored = false;
        for (id, key) in self.connections.iter().map(|(&id, it)| (id, it.key)).collect::<Vec<_>>() {
            let was_member = old.as_ref().is_some_and(|old| old.number_of(&key).is_some());
            if self.is_inside(&key) {
                self.admit(now, id);
            } else if was_member {
                self.refuse(id, ProxyRefusal::Removed);
            }
        }
    }

    /// Has the announcement of the current epoch kept, if rounds are.
    pub(super) fn keep_announcement(&mut self) {
        if let Some(epoch) = &self.epoch
            && !self.settings.terms.keep().is_zero()
        {
            let announcement = epoch.announcement().to_vec();
            self.records.push_back(ArchiveRecord::Announcement(announcement));
        }
    }

    /// Sends the epoch to a member or the administrator, and sets up a member's exchanges.
    pub(super) fn admit(&mut self, now: Duration, id: u64) {
        let key = self.connections[&id].key;
        let Some(epoch) = &self.epoch else { return };
        let announcement = ProxyToMember::Announcement(epoch.announcement().to_vec());
        let is_member = epoch.number_of(&key).is_some();
        self.send(id, &announcement);
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

    /// Sends everything that waits for the administrator.
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

    pub(super) fn send_administrator(&mut self, message: &ProxyToMember) {
        let administrator = self.settings.administrator;
        if let Some(id) = self.connection_of(&administrator) {
            self.send(id, message);
        }
    }

    pub(super) fn count_membership_message(
        &mut self,
        now: Duration,
        id: u64,
    ) -> Result<(), ProxyRefusal> {
        let connection = self.connections.get_mut(&id).expect("checked");
        let is_administrator = connection.key == self.settings.administrator;
        let most =
            if is_administrator { MAX_ADMINISTRATOR_MESSAGES } else { MAX_MEMBERSHIP_MESSAGES };
        connection.count_membership_message(now, self.settings.terms.interval(), most)
    }

    pub(super) fn check_administrator(&self, key: &IdentityPublicKey) -> Result<(), ProxyRefusal> {
        if *key == self.settings.administrator {
            Ok(())
        } else {
            Err(ProxyRefusal::NotAdministrator)
        }
    }
}

/// The seed of an engine, or of the audits.
pub(super) fn derive_seed(seed: &[u8; 32], number: u64) -> [u8; 32] {
    let mut hmac = Hmac::<Sha256>::new_from_slice(seed).expect("a key of any length");
    hmac.update(&number.to_be_bytes());
    hmac.finalize().into_bytes().into()
}
