//! A client's view of the other members: their keys, the messages to them, and how it leaves them.

use std::collections::BTreeMap;
use std::time::Duration;

use keys::IdentityPublicKey;

use super::{CancelledChatMessages, LeaveGroupError, MixClient};
use crate::protocol::event::ChatMessageId;
use crate::protocol::membership::{EpochAnnouncement, MemberName, SafetyNumber};

impl MixClient {
    /// Drops the messages to the member with this name, or to all members, of which nothing was
    /// sent yet. Also returns the others that are not delivered, which may have left.
    pub fn cancel(&mut self, to: Option<&str>) -> CancelledChatMessages {
        let names: BTreeMap<[u8; 32], String> =
            self.epochs.others().map(|(key, name)| (key.to_bytes(), name.to_string())).collect();
        let conversations = self.conversations_mut();
        let mut cancelled = CancelledChatMessages::default();
        for (key, name) in names.iter().filter(|(_, name)| to.is_none_or(|to| to == *name)) {
            let (dropped, left) = conversations.cancel(key);
            cancelled.dropped.extend(dropped.into_iter().map(ChatMessageId));
            let left = left.into_iter().map(|id| (ChatMessageId(id), name.clone()));
            cancelled.left.extend(left);
        }
        self.is_stored &= cancelled.dropped.is_empty();
        cancelled
    }

    /// Asks the administrators to remove this member: now, if there is a connection, and again in
    /// each connection and each epoch until there is one without this member. An epoch that an
    /// administrator then announces does not include it.
    ///
    /// # Errors
    /// If this is the only administrator, or not a member.
    pub fn leave(&mut self, now: Duration) -> Result<(), LeaveGroupError> {
        let administrators = self.epochs.newest().map(EpochAnnouncement::administrators);
        let is_only = administrators.is_none_or(|all| all.keys().len() == 1);
        if self.administrator.is_some() && is_only {
            return Err(LeaveGroupError::Administrator);
        }
        if !self.epochs.is_member() {
            return Err(LeaveGroupError::NotAMember);
        }
        if !self.epochs.is_leaving() {
            let calendar = self.calendar(now);
            self.epochs.leave(calendar);
            self.membership_changed();
            // Otherwise it is sent as soon as the proxy has announced the epoch.
            if self.link.as_ref().is_some_and(|link| link.has_noticed) {
                self.send_notices(now);
            }
        }
        Ok(())
    }

    /// The other members of the current epoch, with their keys.
    pub fn others(&self) -> impl Iterator<Item = (&IdentityPublicKey, &MemberName)> {
        self.epochs.others()
    }

    /// The number that this client and the member with this key compare.
    pub fn safety_number(&self, other: &IdentityPublicKey) -> SafetyNumber {
        SafetyNumber::new(&self.group_id(), &self.identity.public(), other)
    }
}
