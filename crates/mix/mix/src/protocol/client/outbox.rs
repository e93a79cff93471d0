//! A client's outgoing membership messages: prekeys, join requests and answers, announcements. A
//! message waits until the change that it reports is on the disk, and then for the next round, if
//! there are rounds.

use std::collections::VecDeque;

/// Messages to the proxy that wait for the disk.
#[derive(Default)]
pub(super) struct MembershipOutbox {
    /// Each message, with the number of the change that must be stored first.
    messages: VecDeque<(u64, Vec<u8>)>,
    /// The number of membership changes: in the current state, in the state that is being written,
    /// and in the stored state. Changes of conversations do not count.
    changes: u64,
    storing: u64,
    stored: u64,
    /// The value of `stored` when the last request was made.
    stored_at_round: u64,
}

impl MembershipOutbox {
    /// Adds messages that report the current membership.
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

    /// That state is on the disk.
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

    /// Whether messages wait.
    pub(super) fn is_waiting(&self) -> bool {
        !self.messages.is_empty()
    }

    /// The connection has ended. Drops its messages.
    pub(super) fn clear(&mut self) {
        self.messages.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership_messages_wait_for_the_disk_and_a_round() {
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
        // Later changes do not delay the message.
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
