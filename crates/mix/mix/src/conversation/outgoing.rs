//! Messages to a partner, until they have arrived.

use std::collections::VecDeque;

use zeroize::Zeroizing;

use super::WINDOW;
use super::framing::{MAX_FRAMED_LEN, begin, chain, frame, parse, text_of};
use crate::content::{ConversationDigest, FragmentAcknowledgement};
use crate::state::{ConversationStateError, ConversationStateReader, put_bytes};

/// How many fragments wait for a partner at most: the longest message has fewer.
const MAX_WAITING: u32 = 8192;

/// Too many messages wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConversationFull;

/// The stream of fragments to a partner, numbered from 1. It is of one life of the state: what is
/// sent after another start from what was stored is in another stream. So no number of a fragment
/// stands for two texts, whatever state the member has been started from.
pub(super) struct OutgoingFragments {
    /// See [`crate::Conversations::new`].
    incarnation: u64,
    stream: u64,
    /// All fragments up to this one have arrived.
    acknowledged: u32,
    /// Of these.
    digest: ConversationDigest,
    /// For each fragment after those, that was sent, the exchange in which it was last.
    sent: VecDeque<u64>,
    /// Those of which a fragment has not been acknowledged.
    messages: VecDeque<QueuedChatMessage>,
    /// The number of the last fragment of all messages so far.
    end: u32,
}

struct QueuedChatMessage {
    id: u64,
    /// Whether it was queued in this life of the state: then the partner has not shown it in an
    /// earlier one.
    is_new: bool,
    stamp: u64,
    framed: Zeroizing<Vec<u8>>,
    /// The bytes of a fragment.
    capacity: usize,
    /// The number of the last fragment.
    end: u32,
}

impl QueuedChatMessage {
    fn fragments(&self) -> u32 {
        fragments(self.framed.len(), self.capacity)
    }

    /// The fragment with a number, and whether it is the last one; `None` if it is of a later one.
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

/// What an acknowledgement has told, by the messages' numbers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AcknowledgementEffect {
    /// They were shown.
    pub(super) delivered: Vec<u64>,
    /// They were queued in an earlier life of the state, and the partner no longer knows whether it
    /// has shown them. They are not sent again.
    pub(super) uncertain: Vec<u64>,
}

impl OutgoingFragments {
    pub(super) fn new(life: u64) -> Self {
        Self::above(0, life)
    }

    /// Without messages, with a greater number than `before`, which no other life has drawn.
    fn above(before: u64, incarnation: u64) -> Self {
        // Two lives that go on from the same number differ in these bits.
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

    /// How many messages wait.
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

    /// The number of the fragment to send in this exchange, whether it is the last one of its
    /// message, and its text: the first that was never sent, or, with `again` or without such a
    /// one, one that was sent: the first of these, which the partner awaits, or the one that was
    /// sent least recently.
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
        let (last, text) = self.fragment(number)?;
        Some((number, last, text))
    }

    fn fragment(&self, number: u32) -> Option<(bool, &[u8])> {
        self.messages.iter().find_map(|message| message.fragment(number))
    }

    /// Takes an acknowledgement. Returns what it tells, or `None` if that is nothing new. One that
    /// cannot be tells that one of the ends has lost its state or goes on from an old one: then all
    /// messages that wait are sent again in a new stream. `stamp` is the last stamp that was given
    /// out.
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
        let mut told = AcknowledgementEffect::default();
        match acknowledged {
            _ if stream > self.stream => self.restart(stream, capacity),
            FragmentAcknowledgement::Received(number, digest) => {
                if self.digest_of(number) != Some(digest) {
                    self.restart(stream, capacity);
                } else if number == self.acknowledged {
                    return None;
                } else {
                    told.delivered = self.arrived(number, digest);
                }
            }
            FragmentAcknowledgement::Refused(shown) => {
                told.uncertain = self.stamp_after(shown, stamp);
                self.restart(stream, capacity);
            }
        }
        Some(told)
    }

    /// The digest of the stream up to a fragment; `None` if it was acknowledged before, or is none.
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

    /// All fragments up to this one have arrived. Returns the messages that have.
    fn arrived(&mut self, number: u32, digest: ConversationDigest) -> Vec<u64> {
        let arrived = self.sent.len().min((number - self.acknowledged) as usize);
        self.sent.drain(..arrived);
        (self.acknowledged, self.digest) = (number, digest);
        let arrived = self.messages.partition_point(|message| message.end <= number);
        self.messages.drain(..arrived).map(|message| message.id).collect()
    }

    /// The partner knows of messages up to a stamp, and cannot tell older ones from each other:
    /// gives greater stamps to those that it cannot have shown, and drops the others, whose numbers
    /// are returned.
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

    /// Begins a stream with a greater number than `stream`, with all messages that wait.
    pub(super) fn restart(&mut self, stream: u64, capacity: usize) {
        let next = Self::above(self.stream.max(stream), self.incarnation);
        let messages = std::mem::replace(self, next).messages;
        for mut message in messages {
            self.end += fragments(message.framed.len(), capacity);
            (message.capacity, message.end) = (capacity, self.end);
            self.messages.push_back(message);
        }
    }

    /// Gives up all that waits. Returns the numbers of these messages.
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
            put_bytes(out, &message.framed);
        }
    }

    /// In a new life, what waits is sent in a new stream.
    pub(super) fn decode(
        state: &mut ConversationStateReader<'_>,
        life: u64,
        capacity: usize,
    ) -> Result<Self, ConversationStateError> {
        let mut outgoing = Self::above(state.u64()?, life);
        for _ in 0..state.u64()? {
            let (id, framed) = (state.u64()?, state.bytes(MAX_FRAMED_LEN)?);
            let stamp = parse(framed).ok_or(ConversationStateError)?.stamp;
            let more = fragments(framed.len(), capacity);
            let end = outgoing.end.checked_add(more).ok_or(ConversationStateError)?;
            let framed = Zeroizing::new(framed.to_vec());
            let message = QueuedChatMessage { id, is_new: false, stamp, framed, capacity, end };
            outgoing.messages.push_back(message);
            outgoing.end = end;
        }
        Ok(outgoing)
    }
}
