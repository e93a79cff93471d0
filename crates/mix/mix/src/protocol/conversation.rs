//! A conversation with a partner: outgoing fragments that wait for acknowledgement, and incoming
//! fragments.

mod framing;
mod incoming;
mod outgoing;

use encoding::FieldReader;
use zeroize::Zeroizing;

use crate::protocol::content::SlotContent;
use crate::protocol::state::ConversationStateError;
use incoming::IncomingFragments;
pub(crate) use outgoing::ConversationFull;
use outgoing::{AcknowledgementEffect, OutgoingFragments};

/// The send window, the maximum number of fragments beyond the last acknowledged one, where rounds
/// may be missed: as many fragments as a receiver keeps that have arrived ahead of others.
pub(crate) const MIN_WINDOW: u32 = 16;
/// The send window where all rounds are read in order: more than the longest message needs.
pub(crate) const MAX_WINDOW: u32 = 512;
/// The version of the state of conversations, and the one before, which is read.
pub(crate) const VERSION: u8 = 3;
pub(crate) const VERSION_BEFORE: u8 = 2;
/// The number of exchanges after the last text for which a conversation counts as current.
const CURRENT_EXCHANGES: u64 = 256;

/// Both directions of a conversation.
pub(crate) struct Conversation {
    outgoing: OutgoingFragments,
    incoming: IncomingFragments,
    /// The exchange of the last new text of either end; 0 if there was none since the start.
    last_text_exchange: u64,
    /// The last exchange in which something was acknowledged.
    acknowledged_exchange: u64,
}

/// The effects of a slot of the partner.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotReadOutcome {
    /// The messages that it completed. One fragment can complete several.
    pub(crate) messages: Vec<String>,
    /// The numbers of own messages that the partner has shown.
    pub(crate) delivered: Vec<u64>,
    /// The numbers of own messages that the partner may or may not have shown, because this
    /// member's state is an old copy. They are not sent again.
    pub(crate) uncertain: Vec<u64>,
    /// Whether a change must be stored.
    pub(crate) changed: bool,
}

impl Conversation {
    /// A new conversation, in this incarnation of the state.
    pub(crate) fn new(life: u64) -> Self {
        let (outgoing, incoming) = (OutgoingFragments::new(life), IncomingFragments::default());
        Self { outgoing, incoming, last_text_exchange: 0, acknowledged_exchange: 0 }
    }

    /// From now on as many fragments are sent without an acknowledgement.
    pub(crate) fn set_window(&mut self, window: u32) {
        self.outgoing.set_window(window);
    }

    /// What was written in an exchange is lost, and is to be written again.
    pub(crate) fn handle_lost(&mut self, exchange: u64) {
        self.outgoing.handle_lost(exchange);
        if self.acknowledged_exchange == exchange {
            self.incoming.acknowledge_again();
        }
    }

    /// The proxy keeps what was written in an exchange. Returns the numbers of the messages of
    /// which it now keeps all.
    pub(crate) fn handle_kept(&mut self, exchange: u64) -> Vec<u64> {
        self.outgoing.handle_kept(exchange)
    }

    /// Queues a message with a number and a stamp, in fragments of at most `capacity` bytes. The
    /// stamp must be greater than all earlier ones.
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

    /// Drops all queued messages, and returns their numbers.
    pub(crate) fn give_up(&mut self) -> Vec<u64> {
        self.outgoing.give_up()
    }

    /// Drops the messages of which nothing was sent. Returns their numbers, and those of the
    /// others.
    pub(crate) fn cancel(&mut self) -> (Vec<u64>, Vec<u64>) {
        self.outgoing.cancel()
    }

    /// Whether a new fragment or an acknowledgement is to be sent.
    pub(crate) fn has_new(&self) -> bool {
        self.incoming.is_acknowledgement_due() || self.outgoing.has_new()
    }

    /// Whether a sent fragment is not acknowledged yet.
    pub(crate) fn has_sent(&self) -> bool {
        self.outgoing.has_sent()
    }

    /// The number of messages that are not acknowledged yet.
    pub(crate) fn undelivered(&self) -> usize {
        self.outgoing.messages()
    }

    /// The exchange of the last new text, if the conversation is current at this exchange.
    pub(crate) fn current(&self, exchange: u64) -> Option<u64> {
        let recent = self.last_text_exchange > 0
            && exchange.saturating_sub(self.last_text_exchange) < CURRENT_EXCHANGES;
        (recent || self.undelivered() > 0).then_some(self.last_text_exchange)
    }

    /// The slot to write to the partner in this exchange. It contains an acknowledgement and the
    /// next new fragment. With `again`, or without a new fragment, it retransmits one: with
    /// `awaited` the first unacknowledged fragment, otherwise the least recently sent one.
    ///
    /// The caller draws `awaited` at random. In a fixed order, a partner that reads every fourth
    /// slot could get the same four fragments for ever.
    pub(crate) fn write(
        &mut self,
        exchange: u64,
        again: bool,
        awaited: bool,
        slot_len: usize,
    ) -> Zeroizing<Vec<u8>> {
        self.acknowledged_exchange = exchange;
        let (acknowledged_stream, acknowledged) = self.incoming.acknowledge();
        let stream = self.outgoing.stream();
        let next = self.outgoing.next(exchange, again, awaited);
        let (number, last, text) = next.unwrap_or((0, false, &[]));
        SlotContent { stream, number, acknowledged_stream, acknowledged, last, text }
            .encode(slot_len)
    }

    /// Handles a slot of the partner. `capacity` is that of the slots to the partner, and `stamp`
    /// is the last stamp used.
    pub(crate) fn read(
        &mut self,
        exchange: u64,
        content: &SlotContent<'_>,
        capacity: usize,
        stamp: &mut u64,
    ) -> SlotReadOutcome {
        let (stream, acknowledged) = (content.acknowledged_stream, content.acknowledged);
        let effect = self.outgoing.acknowledge(stream, acknowledged, capacity, stamp);
        let messages = self.incoming.receive(content);
        if messages.is_some() {
            self.last_text_exchange = exchange;
        }
        let changed = effect.is_some() || messages.is_some();
        let AcknowledgementEffect { delivered, uncertain } = effect.unwrap_or_default();
        SlotReadOutcome { messages: messages.unwrap_or_default(), delivered, uncertain, changed }
    }

    /// Fragments the queued messages again, with another fragment length and in a new stream.
    pub(crate) fn refragment(&mut self, capacity: usize) {
        self.outgoing.restart(self.outgoing.stream(), capacity);
    }

    /// The maximum length of the stored state in bytes.
    pub(crate) fn stored_len(&self) -> usize {
        self.outgoing.stored_len() + self.incoming.stored_len()
    }

    pub(crate) fn encode(&self, out: &mut Zeroizing<Vec<u8>>) {
        self.outgoing.encode(out);
        self.incoming.encode(out);
    }

    /// Decodes a stored conversation of a version of the state, for a new incarnation of it.
    pub(crate) fn decode(
        state: &mut FieldReader<'_>,
        version: u8,
        life: u64,
        capacity: usize,
    ) -> Result<Self, ConversationStateError> {
        let outgoing = OutgoingFragments::decode(state, version, life, capacity)?;
        let incoming = IncomingFragments::decode(state)?;
        Ok(Self { outgoing, incoming, last_text_exchange: 0, acknowledged_exchange: 0 })
    }
}

#[cfg(test)]
mod tests;
