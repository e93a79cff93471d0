//! Registrations: they are stored, expire and are withdrawn, and other servers are told of them.

use std::time::{Instant, SystemTime};

use bytes::Bytes;
use keys::IdentityPublicKey;
use tracing::{info, warn};

use super::core::NodeEventLoop;
use super::local::RegistrationReply;
use super::registrations::ServerRegistrations;
use super::{LogStart, NodeError, lock};
use crate::log::{AgreementLog, LogFailed};
use crate::net::api::ApiCaller;
use crate::net::links::{LinkLane, LinkTopic};
use crate::net::store::{RegistrationRequest, audit};
use crate::protocol::policy::MessageDigest;
use crate::protocol::review::{MAX_LISTED, RegistrationList};
use crate::protocol::unix_seconds::UnixSeconds;

impl<L, F> NodeEventLoop<L, F>
where
    L: AgreementLog + Send,
    F: FnMut(LogStart<L>) -> Result<L, LogFailed>,
{
    /// Registers a message for a local user.
    pub(super) fn register(
        &mut self,
        message: &Bytes,
        by: ApiCaller,
    ) -> Result<RegistrationReply, NodeError> {
        let now = UnixSeconds::from_system(SystemTime::now());
        let until = UnixSeconds(now.0.saturating_add(self.registrations.lifetime.as_secs()));
        let request = RegistrationRequest { message, uid: by.uid, now, until };
        let registration = self.store.register(&request)?;
        let digest = MessageDigest::of(message);
        if registration.is_new {
            self.server.registered(digest);
            self.unused.insert(digest);
        }
        if registration.is_changed {
            self.record(&audit::AuditEvent::Registered { digest: digest.to_string(), by })?;
        }
        if let Some(evicted) = registration.evicted {
            warn!(message = %evicted, "the oldest registration was removed");
            self.forget(&evicted);
        }
        let next = &mut self.registrations.next_expiry;
        *next = Some(next.map_or(registration.until, |next| next.min(registration.until)));
        self.registrations.waiting = None;
        Ok(RegistrationReply { is_new: registration.is_new, until: registration.until })
    }

    /// Withdraws a registration for a local user. Returns whether there was one.
    pub(super) fn withdraw(
        &mut self,
        digest: MessageDigest,
        by: ApiCaller,
    ) -> Result<bool, NodeError> {
        // Nothing is signed any more, even if it cannot be stored.
        self.forget(&digest);
        let was_registered = self.store.withdraw(digest)?;
        if was_registered {
            self.record(&audit::AuditEvent::Withdrawn { digest: digest.to_string(), by })?;
        }
        Ok(was_registered)
    }

    fn forget(&mut self, digest: &MessageDigest) {
        self.server.unregistered(digest);
        self.unused.remove(digest);
        self.registrations.waiting = None;
    }

    /// Removes the registrations that have expired. If the clock was set back, shortens those that
    /// would last longer than a new one.
    pub(super) fn expire_registrations(&mut self) -> Result<(), NodeError> {
        let now = UnixSeconds::from_system(SystemTime::now());
        if now < std::mem::replace(&mut self.registrations.clock, now) {
            let lifetime = self.registrations.lifetime.as_secs();
            self.store.shorten_registrations(UnixSeconds(now.0.saturating_add(lifetime)))?;
            self.registrations.next_expiry = self.store.next_expiry()?;
            self.registrations.waiting = None;
        }
        if self.registrations.next_expiry.is_none_or(|at| now < at) {
            return Ok(());
        }
        let expired = self.store.expire(now)?;
        for digest in &expired {
            self.forget(digest);
            self.record(&audit::AuditEvent::Expired { digest: digest.to_string() })?;
        }
        if !expired.is_empty() {
            info!(count = expired.len(), "registrations have expired");
        }
        self.registrations.next_expiry = self.store.next_expiry()?;
        Ok(())
    }

    /// A message was signed for a local user.
    pub(super) fn note_used(&mut self, digest: MessageDigest) -> Result<(), NodeError> {
        if self.unused.remove(&digest) {
            self.store.mark_used(digest)?;
            self.registrations.waiting = None;
        }
        Ok(())
    }

    /// Asks other servers which registrations wait there.
    pub(super) fn ask_for_registrations(&mut self) -> Result<(), NodeError> {
        let now = self.now();
        while let Some((to, question)) = self.registrations.exchange.poll_question(now) {
            self.send_review(&to, question);
        }
        self.publish_registrations()
    }

    /// Handles a question or an answer of another server.
    pub(super) fn handle_review(
        &mut self,
        from: &IdentityPublicKey,
        bytes: &[u8],
    ) -> Result<(), NodeError> {
        let now = self.now();
        match self.registrations.exchange.handle(now, from, bytes) {
            Ok(true) => {
                let answer = self.waiting_registrations()?.to_answer();
                self.send_review(from, answer);
            }
            Ok(false) => {}
            Err(why) => self.refused_message(from, &why.to_string()),
        }
        Ok(())
    }

    fn send_review(&self, to: &IdentityPublicKey, bytes: Vec<u8>) {
        // Without a link, it is asked again when there is one.
        let _ = self.links.send(to, LinkTopic::Signing, LinkLane::Urgent, bytes.into());
    }

    /// The registrations that wait at this server.
    fn waiting_registrations(&mut self) -> Result<&RegistrationList, NodeError> {
        if self.registrations.waiting.is_none() {
            let newest = self.store.unused_registrations(MAX_LISTED)?;
            let total = self.unused.len() as u64;
            self.registrations.waiting = Some(RegistrationList { total, newest });
        }
        Ok(self.registrations.waiting.get_or_insert_default())
    }

    /// Publishes the registrations that wait at all servers.
    pub(super) fn publish_registrations(&mut self) -> Result<(), NodeError> {
        let (now, at) = (self.now(), Instant::now());
        let own = self.waiting_registrations()?.clone();
        let own = ServerRegistrations { server: self.links.own(), said: Some((at, own)) };
        let others = self.registrations.exchange.lists(now).map(|(server, said)| {
            let said = said.and_then(|(age, list)| Some((at.checked_sub(age)?, list.clone())));
            ServerRegistrations { server, said }
        });
        let all = std::iter::once(own).chain(others).collect();
        lock(&self.shared).registrations = all;
        Ok(())
    }
}
