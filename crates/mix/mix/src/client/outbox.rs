//! What a client says of membership: prekeys, requests and answers to join, announcements. It waits
//! until what it tells is on the disk, and in a group with rounds for the next one.

use std::collections::VecDeque;

/// Messages to the proxy that wait for the disk.
#[derive(Default)]
pub(super) struct MembershipOutbox {
    /// With the number of the change that is to be stored before.
    messages: VecDeque<(u64, Vec<u8>)>,
    /// How often membership has changed: now, in the state that is being written, and on the disk.
    /// Other changes of the state are not waited for: they are those of conversations.
    changes: u64,
    storing: u64,
    stored: u64,
    /// What was stored when the last request was made.
    stored_at_round: u64,
}

impl MembershipOutbox {
    /// Adds messages, which tell of membership as it is now.
    pub(super) fn extend(&mut self, messages: impl IntoIterator<Item = Vec<u8>>) {
        let changes = self.changes;
        self.messages.extend(messages.into_iter().map(|message| (changes, message)));
    }

    /// Membership has changed.
    pub(super) fn handle_change(&mut self) {
        self.changes += 1;
    }

    /// The state as it is now is being written.
    pub(super) fn begin_to_store(&mut self) {
        self.storing = self.changes;
    }

    /// It is on the disk.
    pub(super) fn end_to_store(&mut self) {
        self.stored = self.storing;
    }

    /// The request of a round was made.
    pub(super) fn handle_round(&mut self) {
        self.stored_at_round = self.stored;
    }

    /// The next message that can be sent.
    pub(super) fn poll(&mut self, has_rounds: bool) -> Option<Vec<u8>> {
        let stored = if has_rounds { self.stored_at_round } else { self.stored };
        self.messages.front().filter(|(needed, _)| *needed <= stored)?;
        self.messages.pop_front().map(|(_, message)| message)
    }

    /// The connection has ended, with what was to be sent over it.
    pub(super) fn clear(&mut self) {
        self.messages.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_for_the_disk_and_for_a_round() {
        let mut outbox = MembershipOutbox::default();
        outbox.handle_change();
        outbox.extend([vec![1]]);
        outbox.handle_round();
        assert_eq!(outbox.poll(true), None);
        outbox.begin_to_store();
        assert_eq!(outbox.poll(false), None);
        outbox.end_to_store();
        assert_eq!(outbox.poll(true), None, "before the next round");
        outbox.handle_round();
        assert_eq!(outbox.poll(true), Some(vec![1]));
        // Further changes do not hold it up.
        outbox.handle_change();
        outbox.extend([vec![2]]);
        outbox.begin_to_store();
        outbox.handle_change();
        outbox.extend([vec![3]]);
        outbox.end_to_store();
        outbox.handle_round();
        assert_eq!(outbox.poll(true), Some(vec![2]));
        assert_eq!(outbox.poll(false), None);
    }
}
