//! What the fuzz target reaches of the inside of this crate.

use zeroize::Zeroizing;

use crate::content::{SlotContent, capacity};
use crate::conversation::Conversation;
use crate::state::ConversationStateReader;

const SLOT_LEN: usize = 64;

/// A member reads these slots, which a partner may have written: who has the keys of the two can
/// seal any content.
///
/// # Panics
/// If the conversation cannot be stored and restored.
pub fn read_slots(slots: &[Vec<u8>]) {
    let capacity = capacity(SLOT_LEN);
    let mut conversation = Conversation::new(5);
    let text = "more than one fragment of text, and more than two of it";
    let mut stamp = 5_u64;
    for (exchange, slot) in (1..).zip(slots) {
        // Whoever deviates can have the stamps run out.
        stamp = stamp.saturating_add(1);
        // If too much waits, it is not taken.
        _ = conversation.push(exchange, (exchange, stamp), text, capacity);
        let Some(content) = SlotContent::decode(slot) else { continue };
        let received = conversation.read(exchange, &content, capacity, &mut stamp);
        assert!(received.changed || received.messages.is_empty() && received.delivered.is_empty());
        conversation.write(exchange, exchange.is_multiple_of(8), exchange % 2 == 0, SLOT_LEN);
        let mut stored = Zeroizing::default();
        conversation.encode(&mut stored);
        let mut reader = ConversationStateReader(&stored);
        conversation = Conversation::decode(&mut reader, stamp, capacity).expect("it was stored");
    }
}
