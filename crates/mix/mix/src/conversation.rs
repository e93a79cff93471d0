//! What a member has said to a partner and heard from it: fragments that wait to be acknowledged,
//! and fragments that arrived.

mod framing;
mod incoming;
mod outgoing;

use zeroize::Zeroizing;

use crate::content::SlotContent;
use crate::state::{ConversationStateError, ConversationStateReader};
use incoming::IncomingFragments;
pub(crate) use outgoing::ConversationFull;
use outgoing::{AcknowledgementEffect, OutgoingFragments};

/// How many fragments are sent beyond the last one that was acknowledged.
const WINDOW: u32 = 16;
/// For how many exchanges after the last text a conversation counts as current.
const CURRENT_EXCHANGES: u64 = 256;

/// Both directions of a conversation.
pub(crate) struct Conversation {
    outgoing: OutgoingFragments,
    incoming: IncomingFragments,
    /// The exchange after which there last was new text, of either end; 0: none since the start.
    last_text_exchange: u64,
}

/// What a slot of the partner has brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotReadOutcome {
    /// A message that it completed: each fragment that is awaited can complete more than one.
    pub(crate) messages: Vec<String>,
    /// The numbers of own messages that were shown.
    pub(crate) delivered: Vec<u64>,
    /// The numbers of own messages of which nobody can tell any more whether they were shown: the
    /// state is older than what the partner has. They are not sent again.
    pub(crate) uncertain: Vec<u64>,
    /// Whether anything has changed that has to be stored.
    pub(crate) changed: bool,
}

impl Conversation {
    /// A new one, in this life of the state.
    pub(crate) fn new(life: u64) -> Self {
        let (outgoing, incoming) = (OutgoingFragments::new(life), IncomingFragments::default());
        Self { outgoing, incoming, last_text_exchange: 0 }
    }

    /// Appends a message with a number and a stamp, to be cut into fragments of at most `capacity`
    /// bytes. Each stamp is greater than all before.
    pub(crate) fn push(
        &mut self,
        exchange: u64,
        (id, stamp): (u64, u64),
        text: &str,
        capacity: usize,
    ) -> Result<(), ConversationFull> {
        self.last_text_exchange = exchange;
        self.outgoing.push(id, stamp, text.as_bytes(), capacity)
    }

    /// Gives up all messages that wait, and returns their numbers.
    pub(crate) fn give_up(&mut self) -> Vec<u64> {
        self.outgoing.give_up()
    }

    /// Whether there is something that was never sent: a fragment, or an acknowledgement.
    pub(crate) fn has_new(&self) -> bool {
        self.incoming.is_acknowledgement_due() || self.outgoing.has_new()
    }

    /// Whether a fragment that was sent has not been acknowledged.
    pub(crate) fn has_sent(&self) -> bool {
        self.outgoing.has_sent()
    }

    /// How many messages have not been acknowledged.
    pub(crate) fn undelivered(&self) -> usize {
        self.outgoing.messages()
    }

    /// When there was new text, if the conversation is current at this exchange.
    pub(crate) fn current(&self, exchange: u64) -> Option<u64> {
        // A member that has joined again counts its exchanges from the beginning.
        let recent = self.last_text_exchange > 0
            && exchange.saturating_sub(self.last_text_exchange) < CURRENT_EXCHANGES;
        (recent || self.undelivered() > 0).then_some(self.last_text_exchange)
    }

    /// The slot to write to the partner in this exchange: the next fragment, or, with `again` or
    /// without a new one, one that was sent: with `awaited` the one that the partner awaits, else
    /// the one that was sent least recently; and an acknowledgement.
    ///
    /// The caller draws `awaited`: fragments in a fixed order, of which the partner reads each
    /// fourth, could be the same four for ever.
    pub(crate) fn write(
        &mut self,
        exchange: u64,
        again: bool,
        awaited: bool,
        slot_len: usize,
    ) -> Zeroizing<Vec<u8>> {
        let (acknowledged_stream, acknowledged) = self.incoming.acknowledge();
        let stream = self.outgoing.stream();
        let next = self.outgoing.next(exchange, again, awaited);
        let (number, last, text) = next.unwrap_or((0, false, &[]));
        SlotContent { stream, number, acknowledged_stream, acknowledged, last, text }
            .encode(slot_len)
    }

    /// Takes a slot of the partner. `capacity` is that of the slots to it, and `stamp` the last one
    /// that was given out.
    pub(crate) fn read(
        &mut self,
        exchange: u64,
        content: &SlotContent<'_>,
        capacity: usize,
        stamp: &mut u64,
    ) -> SlotReadOutcome {
        let (stream, acknowledged) = (content.acknowledged_stream, content.acknowledged);
        let told = self.outgoing.acknowledge(stream, acknowledged, capacity, stamp);
        let messages = self.incoming.receive(content);
        if messages.is_some() {
            self.last_text_exchange = exchange;
        }
        let changed = told.is_some() || messages.is_some();
        let AcknowledgementEffect { delivered, uncertain } = told.unwrap_or_default();
        SlotReadOutcome { messages: messages.unwrap_or_default(), delivered, uncertain, changed }
    }

    /// Cuts what waits into fragments of another length, in a new stream.
    pub(crate) fn refragment(&mut self, capacity: usize) {
        self.outgoing.restart(self.outgoing.stream(), capacity);
    }

    /// At most how many bytes are stored.
    pub(crate) fn stored_len(&self) -> usize {
        self.outgoing.stored_len() + self.incoming.stored_len()
    }

    pub(crate) fn encode(&self, out: &mut Zeroizing<Vec<u8>>) {
        self.outgoing.encode(out);
        self.incoming.encode(out);
    }

    /// The conversation that was stored, in another life of the state.
    pub(crate) fn decode(
        state: &mut ConversationStateReader<'_>,
        life: u64,
        capacity: usize,
    ) -> Result<Self, ConversationStateError> {
        let outgoing = OutgoingFragments::decode(state, life, capacity)?;
        let incoming = IncomingFragments::decode(state)?;
        Ok(Self { outgoing, incoming, last_text_exchange: 0 })
    }
}

#[cfg(test)]
mod tests;
