//! The conversations in a round: to whom a member writes, and the effects of a slot of a partner.

use super::MixMember;
use crate::GroupMember;
use crate::protocol::content::SlotContent;
use crate::protocol::event::{ChatMessageId, GivenUpReason, MixClientEvent};

/// Every eighth exchange sends retransmissions before new fragments. Otherwise a continuous flow to
/// one partner could delay another partner's retransmissions for ever.
const RETRANSMIT_PERIOD: u64 = 8;

impl MixMember {
    /// Whether retransmissions come first in this exchange.
    pub(super) fn retransmits_first(&self) -> bool {
        self.exchange.is_multiple_of(RETRANSMIT_PERIOD)
    }

    /// The partners to write to, in three classes, each in random order: those for whom there is
    /// something new; those that have not acknowledged everything that was sent; and all others
    /// with a current conversation, because acknowledgements may be lost. With `again`, the second
    /// class comes before the first. Nobody while too few take part.
    ///
    /// An order that is not random could keep the rounds in which this member writes to another,
    /// and those in which the other reads it, apart for ever.
    pub(super) fn partners_in_turn(&mut self, again: bool) -> Vec<usize> {
        let mut partners: Vec<(u8, usize)> = Vec::new();
        if self.is_anonymous() {
            partners.extend(self.conversations.iter().filter_map(|(key, conversation)| {
                let partner = usize::from(*self.numbers.get(key)?);
                let (new, sent) = (conversation.has_new(), conversation.has_sent());
                let (first, second) = if again { (sent, new) } else { (new, sent) };
                let current = conversation.current(self.exchange).is_some();
                let kind = if first {
                    0
                } else if second {
                    1
                } else {
                    2
                };
                (kind < 2 || current).then_some((kind, partner))
            }));
        }
        for i in (1..partners.len()).rev() {
            let other = self.below(i + 1);
            partners.swap(i, other);
        }
        partners.sort_by_key(|&(kind, _)| kind);
        partners.into_iter().map(|(_, partner)| partner).collect()
    }

    /// Handles the content of a slot that a partner has written for this member.
    pub(super) fn receive(&mut self, partner: &GroupMember, slot: &[u8]) {
        let Some(content) = SlotContent::decode(slot) else { return };
        let received = self.conversations.read(self.exchange, &partner.key, &content);
        let name = || partner.name.clone();
        self.events.extend(received.delivered.into_iter().map(|id| {
            let id = ChatMessageId(id);
            MixClientEvent::Delivered { id, to: name() }
        }));
        self.events.extend(received.uncertain.into_iter().map(|id| {
            let (id, reason) = (ChatMessageId(id), GivenUpReason::Uncertain);
            MixClientEvent::GivenUp { id, to: name(), reason }
        }));
        self.events.extend(received.messages.into_iter().map(|text| {
            let key = Some(partner.key);
            MixClientEvent::Message { key, from: name(), text }
        }));
    }
}
