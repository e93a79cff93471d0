//! Entry point of the fuzz target into private parts of this crate.

use encoding::FieldReader;
use zeroize::Zeroizing;

use crate::protocol::content::{SlotContent, capacity};
use crate::protocol::conversation::{Conversation, VERSION};

const SLOT_LEN: usize = 64;

/// Lets a member read these slots as if a partner had written them. A partner knows the keys of the
/// pair, so it can seal any content.
///
/// # Panics
/// If the conversation cannot be stored and restored.
pub fn read_slots(slots: &[Vec<u8>]) {
    let capacity = capacity(SLOT_LEN);
    let mut conversation = Conversation::new(5);
    let text = "more than one fragment of text, and more than two of it";
    let mut stamp = 5_u64;
    for (exchange, slot) in (1..).zip(slots) {
        // A deviating partner can exhaust the stamps.
        stamp = stamp.saturating_add(1);
        // Ignores the error of a full queue.
        _ = conversation.push(exchange, (exchange, stamp), text, capacity);
        let Some(content) = SlotContent::decode(slot) else { continue };
        let received = conversation.read(exchange, &content, capacity, &mut stamp);
        assert!(received.changed || received.messages.is_empty() && received.delivered.is_empty());
        conversation.write(exchange, exchange.is_multiple_of(8), exchange % 2 == 0, SLOT_LEN);
        let mut stored = Zeroizing::default();
        conversation.encode(&mut stored);
        let mut reader = FieldReader::new(&stored);
        conversation =
            Conversation::decode(&mut reader, VERSION, stamp, capacity).expect("it was stored");
    }
}
