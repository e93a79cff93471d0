//! The queue of messages to a partner, until they are acknowledged.

use std::collections::VecDeque;

use encoding::{FieldReader, FieldWrite as _};
use zeroize::Zeroizing;

use super::WINDOW;
use super::framing::{MAX_FRAMED_LEN, begin, chain, frame, parse, text_of};
use crate::protocol::content::{ConversationDigest, FragmentAcknowledgement};
use crate::protocol::state::ConversationStateError;

/// The maximum number of queued fragments. The longest message has fewer.
const MAX_WAITING: u32 = 8192;

/// The queue to the partner is full.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConversationFull;

/// The stream of fragments to a partner, numbered from 1. A stream belongs to one incarnation of
/// the state: after a restart, fragments are sent in a new stream. A fragment number of a stream
/// therefore never stands for two texts, whatever stored state the member was started from.
pub(super) struct OutgoingFragments {
    /// See [`crate::Conversations::new`].
    incarnation: u64,
    stream: u64,
    /// The number of the last acknowledged fragment.
    acknowledged: u32,
    /// The digest of these fragments.
    digest: ConversationDigest,
    /// For each sent fragment that is not acknowledged, the exchange in which it was last sent.
    sent: VecDeque<u64>,
    /// The messages that are not completely acknowledged.
    messages: VecDeque<QueuedChatMessage>,
    /// The number of the last fragment of all messages so far.
    end: u32,
}

struct QueuedChatMessage {
    id: u64,
    /// Whether it was queued in this incarnation of the state. If so, the partner cannot have shown
    /// it in an earlier one.
    is_new: bool,
    /// Whether a fragment of it may have been sent, in any stream and incarnation.
    may_have_left: bool,
    stamp: u64,
    framed: Zeroizing<Vec<u8>>,
    /// The maximum length of a fragment in bytes.
    capacity: usize,
    /// The number of its last fragment.
    end: u32,
}

impl QueuedChatMessage {
    fn fragments(&self) -> u32 {
        fragments(self.framed.len(), self.capacity)
    }

    /// The fragment with this number, and whether it is the last one; `None` if it belongs to a
    /// later message.
    fn fragment(&self, number: u32) -> Option<(bool, &[u8])> {
        let from_end = self.end.checked_sub(number)?;
        let index = self.fragments() - 1 - from_end;
        let start = index as usize * self.capacity;
        let end = self.framed.len().min(start + self.capacity);
        Some((from_end == 0, &self.framed[start..end]))
    }
}

fn fragments(len: usize, capacity: usize) -> u32 {
    u32::try_from(len.div_ceil(capacity).max(1)).expect("a message has at most 64 KiB")
}

/// The effect of an acknowledgement, as numbers of messages.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AcknowledgementEffect {
    /// The messages that the partner has shown.
    pub(super) delivered: Vec<u64>,
    /// The messages that were queued in an earlier incarnation of the state, and that the partner
    /// may or may not have shown. They are not sent again.
    pub(super) uncertain: Vec<u64>,
}

impl OutgoingFragments {
    pub(super) fn new(life: u64) -> Self {
        Self::above(0, life)
    }

    /// An empty stream with a number greater than `before` that no other incarnation has chosen.
    fn above(before: u64, incarnation: u64) -> Self {
        // Two incarnations that start from the same number differ in these bits.
        let step = 1 + (incarnation & u64::from(u32::MAX));
        let stream = before.saturating_add(step).max(incarnation).max(1);
        Self {
            incarnation,
            stream,
            acknowledged: 0,
            digest: begin(stream),
            sent: VecDeque::new(),
            messages: VecDeque::new(),
            end: 0,
        }
    }

    pub(super) fn stream(&self) -> u64 {
        self.stream
    }

    /// The number of queued messages.
    pub(super) fn messages(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn push(
        &mut self,
        id: u64,
        stamp: u64,
        text: &[u8],
        capacity: usize,
    ) -> Result<(), ConversationFull> {
        let framed = frame(stamp, text);
        let end =
            self.end.checked_add(fragments(framed.len(), capacity)).ok_or(ConversationFull)?;
        if end - self.acknowledged > MAX_WAITING {
            return Err(ConversationFull);
        }
        self.end = end;
        self.messages.push_back(QueuedChatMessage {
            id,
            is_new: true,
            may_have_left: false,
            stamp,
            framed,
            capacity,
            end,
        });
        Ok(())
    }

    pub(super) fn has_new(&self) -> bool {
        let sent = u32::try_from(self.sent.len()).expect("at most a window");
        sent < WINDOW.min(self.end - self.acknowledged)
    }

    pub(super) fn has_sent(&self) -> bool {
        !self.sent.is_empty()
    }

    /// The fragment to send in this exchange: its number, whether it is the last of its message,
    /// and its text. It is the first fragment that was never sent. With `again`, or without a new
    /// one, it is a retransmission: the first unacknowledged fragment, or the least recently sent
    /// one.
    pub(super) fn next(
        &mut self,
        exchange: u64,
        again: bool,
        awaited: bool,
    ) -> Option<(u32, bool, &[u8])> {
        let oldest = (0..self.sent.len()).min_by_key(|&index| self.sent[index]);
        let index = match oldest {
            Some(oldest) if again || !self.has_new() => {
                let index = if awaited { 0 } else { oldest };
                self.sent[index] = exchange;
                index
            }
            _ if self.has_new() => {
                self.sent.push_back(exchange);
                self.sent.len() - 1
            }
            _ => return None,
        };
        let number = self.acknowledged + 1 + u32::try_from(index).expect("at most a window");
        let message = self.messages.iter_mut().find(|message| number <= message.end);
        message.into_iter().for_each(|message| message.may_have_left = true);
        let (last, text) = self.fragment(number)?;
        Some((number, last, text))
    }

    fn fragment(&self, number: u32) -> Option<(bool, &[u8])> {
        self.messages.iter().find_map(|message| message.fragment(number))
    }

    /// Handles an acknowledgement. Returns its effect, or `None` if it acknowledges nothing new. An
    /// impossible acknowledgement means that one of the ends has lost its state or restarted from
    /// an old one: all queued messages are then sent again in a new stream. `stamp` is the last
    /// stamp used.
    pub(super) fn acknowledge(
        &mut self,
        stream: u64,
        acknowledged: FragmentAcknowledgement,
        capacity: usize,
        stamp: &mut u64,
    ) -> Option<AcknowledgementEffect> {
        if stream < self.stream {
            return None;
        }
        let mut effect = AcknowledgementEffect::default();
        match acknowledged {
            _ if stream > self.stream => self.restart(stream, capacity),
            FragmentAcknowledgement::Received(number, digest) => {
                if self.digest_of(number) != Some(digest) {
                    self.restart(stream, capacity);
                } else if number == self.acknowledged {
                    return None;
                } else {
                    effect.delivered = self.arrived(number, digest);
                }
            }
            FragmentAcknowledgement::Refused(shown) => {
                effect.uncertain = self.stamp_after(shown, stamp);
                self.restart(stream, capacity);
            }
        }
        Some(effect)
    }

    /// The digest of the stream up to a fragment; `None` if it was acknowledged before or does not
    /// exist.
    fn digest_of(&self, number: u32) -> Option<ConversationDigest> {
        if number < self.acknowledged || number > self.end {
            return None;
        }
        let after = self.acknowledged + 1..=number;
        after.map(|at| self.fragment(at)).try_fold(self.digest, |before, fragment| {
            let (last, text) = fragment?;
            Some(chain(before, last, text))
        })
    }

    /// Handles the arrival of all fragments up to this one. Returns the messages that have arrived.
    fn arrived(&mut self, number: u32, digest: ConversationDigest) -> Vec<u64> {
        let arrived = self.sent.len().min((number - self.acknowledged) as usize);
        self.sent.drain(..arrived);
        (self.acknowledged, self.digest) = (number, digest);
        let arrived = self.messages.partition_point(|message| message.end <= number);
        self.messages.drain(..arrived).map(|message| message.id).collect()
    }

    /// Handles a refusal: the partner has shown messages up to the stamp `shown`, and cannot check
    /// older ones. Messages that it cannot have shown get greater stamps. The others are dropped,
    /// and their numbers are returned.
    fn stamp_after(&mut self, shown: u64, stamp: &mut u64) -> Vec<u64> {
        *stamp = shown.max(*stamp);
        let (known, uncertain): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.messages)
            .into_iter()
            .partition(|message| message.is_new || message.stamp > shown);
        self.messages = known;
        for message in self.messages.iter_mut().filter(|message| message.is_new) {
            *stamp = stamp.saturating_add(1);
            message.stamp = *stamp;
            message.framed = frame(*stamp, text_of(&message.framed));
        }
        uncertain.into_iter().map(|message| message.id).collect()
    }

    /// Begins a stream with a number greater than `stream`, with all queued messages.
    pub(super) fn restart(&mut self, stream: u64, capacity: usize) {
        let next = Self::above(self.stream.max(stream), self.incarnation);
        let messages = std::mem::replace(self, next).messages;
        for mut message in messages {
            self.end += fragments(message.framed.len(), capacity);
            (message.capacity, message.end) = (capacity, self.end);
            self.messages.push_back(message);
        }
    }

    /// Drops the messages of which no fragment was sent. Returns their numbers, and those of the
    /// other queued messages.
    pub(super) fn cancel(&mut self) -> (Vec<u64>, Vec<u64>) {
        // Fragments are sent in order, so these messages are the last ones.
        let kept = self.messages.partition_point(|message| message.may_have_left);
        let dropped = self.messages.drain(kept..).map(|message| message.id).collect();
        self.end = self.messages.back().map_or(self.acknowledged, |last| last.end);
        (dropped, self.messages.iter().map(|message| message.id).collect())
    }

    /// Drops all queued messages, and returns their numbers.
    pub(super) fn give_up(&mut self) -> Vec<u64> {
        let next = Self::above(self.stream, self.incarnation);
        let messages = std::mem::replace(self, next).messages;
        messages.into_iter().map(|message| message.id).collect()
    }

    /// At most how many bytes are stored.
    pub(super) fn stored_len(&self) -> usize {
        32 + self.messages.iter().map(|message| 16 + message.framed.len()).sum::<usize>()
    }

    pub(super) fn encode(&self, out: &mut Zeroizing<Vec<u8>>) {
        out.extend_from_slice(&self.stream.to_be_bytes());
        out.extend_from_slice(&(self.messages.len() as u64).to_be_bytes());
        for message in &self.messages {
            out.extend_from_slice(&message.id.to_be_bytes());
            out.put_counted(&message.framed);
        }
    }

    /// Decodes a stored queue. The new incarnation sends its messages in a new stream.
    pub(super) fn decode(
        state: &mut FieldReader<'_>,
        life: u64,
        capacity: usize,
    ) -> Result<Self, ConversationStateError> {
        let mut outgoing = Self::above(state.u64()?, life);
        for _ in 0..state.u64()? {
            let (id, framed) = (state.u64()?, state.counted_up_to(MAX_FRAMED_LEN)?);
            let stamp = parse(framed).ok_or(ConversationStateError)?.stamp;
            let more = fragments(framed.len(), capacity);
            let end = outgoing.end.checked_add(more).ok_or(ConversationStateError)?;
            let framed = Zeroizing::new(framed.to_vec());
            let message = QueuedChatMessage {
                id,
                is_new: false,
                may_have_left: true,
                stamp,
                framed,
                capacity,
                end,
            };
            outgoing.messages.push_back(message);
            outgoing.end = end;
        }
        Ok(outgoing)
    }
}
