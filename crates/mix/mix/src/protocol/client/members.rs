//! A client's view of the other members: their keys, and the messages to them.

use std::collections::BTreeMap;

use keys::IdentityPublicKey;

use super::{CancelledChatMessages, MixClient};
use crate::protocol::event::ChatMessageId;
use crate::protocol::membership::{MemberName, SafetyNumber};

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

    /// The other members of the current epoch, with their keys.
    pub fn others(&self) -> impl Iterator<Item = (&IdentityPublicKey, &MemberName)> {
        self.epochs.others()
    }

    /// The number that this client and the member with this key compare.
    pub fn safety_number(&self, other: &IdentityPublicKey) -> SafetyNumber {
        SafetyNumber::new(&self.group_id(), &self.identity.public(), other)
    }
}
