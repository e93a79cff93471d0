//! The queue of messages to a partner, until they are acknowledged.

use std::collections::VecDeque;

use encoding::{FieldReader, FieldWrite as _};
use zeroize::Zeroizing;

use super::framing::{MAX_FRAMED_LEN, begin, chain, frame, parse, text_of};
use super::{MIN_WINDOW, VERSION_BEFORE};
use crate::protocol::content::{ConversationDigest, FragmentAcknowledgement};
use crate::protocol::state::ConversationStateError;

/// The maximum number of queued fragments. The longest message has fewer.
const MAX_WAITING: u32 = 8192;

/// The maximum number of earlier streams that are remembered.
const MAX_FORMER_STREAMS: usize = 4;

/// The number of no exchange.
const LOST: u64 = 0;

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
    /// The maximum number of fragments beyond the last acknowledged one.
    window: u32,
    /// The sent fragments that are not acknowledged.
    sent: VecDeque<SentFragment>,
    /// How many of these, without a gap from the first one on, the proxy keeps for the partner in
    /// the order of their numbers.
    kept: usize,
    /// Earlier streams in which the messages were sent, the latest last.
    former: VecDeque<FormerStream>,
    /// The messages that are not completely acknowledged.
    messages: VecDeque<QueuedChatMessage>,
    /// The number of the last fragment of all messages so far.
    end: u32,
}

#[derive(Clone, Copy)]
struct SentFragment {
    /// The exchange in which it was last sent; [`LOST`] if it is known that it has not arrived.
    exchange: u64,
    /// The exchange before, in which it was sent. When its mailbox is read, the next request has
    /// been made already.
    before: u64,
}

impl SentFragment {
    fn send_again(&mut self, exchange: u64) {
        (self.before, self.exchange) = (self.exchange, exchange);
    }
}

/// A stream in which the queued messages were sent before, by an earlier incarnation. The partner
/// may have received them, and may acknowledge them when this member has gone.
#[derive(Clone, Copy)]
struct FormerStream {
    stream: u64,
    acknowledged: u32,
    digest: ConversationDigest,
    /// A fragment's number in it, less that in the current stream.
    shift: u32,
}

struct QueuedChatMessage {
    id: u64,
    /// Whether it was queued in this incarnation of the state. If so, the partner cannot have shown
    /// it in an earlier one.
    is_new: bool,
    /// Whether it was reported that the proxy keeps all of it.
    is_kept: bool,
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
            window: MIN_WINDOW,
            sent: VecDeque::new(),
            kept: 0,
            former: VecDeque::new(),
            messages: VecDeque::new(),
            end: 0,
        }
    }

    /// An empty stream with a number above both.
    fn after(&self, stream: u64) -> Self {
        Self { window: self.window, ..Self::above(self.stream.max(stream), self.incarnation) }
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
            is_kept: false,
            may_have_left: false,
            stamp,
            framed,
            capacity,
            end,
        });
        Ok(())
    }

    pub(super) fn set_window(&mut self, window: u32) {
        self.window = window;
    }

    /// What was sent in an exchange is lost.
    pub(super) fn handle_lost(&mut self, exchange: u64) {
        let lost = self.sent.iter_mut().skip(self.kept).filter(|it| it.exchange == exchange);
        lost.for_each(|it| it.exchange = LOST);
    }

    /// The proxy keeps for the partner what was sent in an exchange. Returns the numbers of the
    /// messages of which it now keeps all.
    ///
    /// A fragment counts only if those before it are kept in earlier rounds, or before it in the
    /// same one. The partner keeps a few that come ahead of others, but not all that are sent, and
    /// not when it ends.
    pub(super) fn handle_kept(&mut self, exchange: u64) -> Vec<u64> {
        let before = self.kept;
        let follows = |(at, it): &(usize, &SentFragment)| {
            let is_it = it.exchange == exchange || it.before == exchange;
            // What was sent earlier, and is not lost, can be ahead of others in an exchange.
            is_it && (it.before == LOST || *at == before)
        };
        self.kept += self.sent.iter().enumerate().skip(before).take_while(follows).count();
        let last = self.acknowledged + u32::try_from(self.kept).expect("at most a window");
        let whole = self.messages.iter_mut().take_while(|message| message.end <= last);
        let new = |message: &mut QueuedChatMessage| {
            (!std::mem::replace(&mut message.is_kept, true)).then_some(message.id)
        };
        whole.filter_map(new).collect()
    }

    /// Whether a fragment is to be sent that was never sent, or is lost.
    pub(super) fn has_new(&self) -> bool {
        self.has_unsent() || self.sent.iter().any(|it| it.exchange == LOST)
    }

    fn has_unsent(&self) -> bool {
        let sent = u32::try_from(self.sent.len()).expect("at most a window");
        sent < self.window.min(self.end - self.acknowledged)
    }

    pub(super) fn has_sent(&self) -> bool {
        !self.sent.is_empty()
    }

    /// The fragment to send in this exchange: its number, whether it is the last of its message,
    /// and its text. It is the first fragment that is lost, or else the first one that was never
    /// sent. With `again`, or without a new one, it is a retransmission: the first unacknowledged
    /// fragment, or the least recently sent one.
    pub(super) fn next(
        &mut self,
        exchange: u64,
        again: bool,
        awaited: bool,
    ) -> Option<(u32, bool, &[u8])> {
        let oldest = (0..self.sent.len()).min_by_key(|&index| self.sent[index].exchange);
        let index = match oldest {
            Some(lost) if self.sent[lost].exchange == LOST => {
                self.sent[lost].send_again(exchange);
                lost
            }
            Some(oldest) if again || !self.has_unsent() => {
                let index = if awaited { 0 } else { oldest };
                self.sent[index].send_again(exchange);
                index
            }
            _ if self.has_unsent() => {
                self.sent.push_back(SentFragment { exchange, before: LOST });
                self.sent.len() - 1
            }
            _ => return None,
        };
        let number = self.acknowledged + 1 + u32::try_from(index).expect("at most a window");
        if let Some(message) = self.messages.iter_mut().find(|message| number <= message.end) {
            message.may_have_left = true;
        }
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
            let delivered = self.acknowledge_former(stream, acknowledged, capacity)?;
            return Some(AcknowledgementEffect { delivered, uncertain: Vec::new() });
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

    /// Handles an acknowledgement of an earlier stream. Its digest shows that the partner has
    /// received these fragments. Returns the numbers of the messages that it has shown, if any. The
    /// others are sent again in a new stream.
    fn acknowledge_former(
        &mut self,
        stream: u64,
        acknowledged: FragmentAcknowledgement,
        capacity: usize,
    ) -> Option<Vec<u64>> {
        let FragmentAcknowledgement::Received(number, digest) = acknowledged else { return None };
        let former = *self.former.iter().find(|former| former.stream == stream)?;
        let last = number.checked_sub(former.shift)?;
        if number <= former.acknowledged || last > self.end {
            return None;
        }
        let after = (former.acknowledged + 1..=number).map(|at| at.checked_sub(former.shift));
        let received = after.map(|at| self.fragment(at.filter(|at| *at > 0)?)).try_fold(
            former.digest,
            |before, fragment| {
                let (last, text) = fragment?;
                Some(chain(before, last, text))
            },
        )?;
        let count = self.messages.partition_point(|it| it.end <= last);
        if received != digest || count == 0 {
            return None;
        }
        let delivered = self.messages.drain(..count).map(|message| message.id).collect();
        let former = self.former_streams();
        self.restart(self.stream, capacity);
        self.former = former;
        Some(delivered)
    }

    /// The streams in which the queued messages were sent, if they are numbered from 1 again.
    fn former_streams(&self) -> VecDeque<FormerStream> {
        let left: u32 = self.messages.iter().map(QueuedChatMessage::fragments).sum();
        let shift = self.end - left;
        let former = self.former.iter().map(|it| FormerStream { shift: it.shift + shift, ..*it });
        let (stream, acknowledged, digest) = (self.stream, self.acknowledged, self.digest);
        let own = FormerStream { stream, acknowledged, digest, shift };
        let mut all: VecDeque<_> = former.chain([own]).collect();
        all.drain(..all.len().saturating_sub(MAX_FORMER_STREAMS));
        all
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
        self.kept = self.kept.saturating_sub(arrived);
        (self.acknowledged, self.digest) = (number, digest);
        // The partner has begun with this stream.
        self.former.clear();
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
        let next = self.after(stream);
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
        let next = self.after(self.stream);
        let messages = std::mem::replace(self, next).messages;
        messages.into_iter().map(|message| message.id).collect()
    }

    /// At most how many bytes are stored.
    pub(super) fn stored_len(&self) -> usize {
        let messages = self.messages.iter().map(|message| 16 + message.framed.len());
        64 + 24 * MAX_FORMER_STREAMS + messages.sum::<usize>()
    }

    pub(super) fn encode(&self, out: &mut Zeroizing<Vec<u8>>) {
        out.extend_from_slice(&self.stream.to_be_bytes());
        out.extend_from_slice(&self.acknowledged.to_be_bytes());
        out.extend_from_slice(&self.digest);
        out.extend_from_slice(&self.end.to_be_bytes());
        out.push(u8::try_from(self.former.len()).expect("a few"));
        for FormerStream { stream, acknowledged, digest, shift } in &self.former {
            out.extend_from_slice(&stream.to_be_bytes());
            out.extend_from_slice(&acknowledged.to_be_bytes());
            out.extend_from_slice(digest);
            out.extend_from_slice(&shift.to_be_bytes());
        }
        out.extend_from_slice(&(self.messages.len() as u64).to_be_bytes());
        for message in &self.messages {
            out.extend_from_slice(&message.id.to_be_bytes());
            out.put_counted(&message.framed);
        }
    }

    /// Decodes a stored queue. The new incarnation sends its messages in a new stream. `version` is
    /// that of the state: the one before has no streams whose acknowledgements are still accepted.
    pub(super) fn decode(
        state: &mut FieldReader<'_>,
        version: u8,
        life: u64,
        capacity: usize,
    ) -> Result<Self, ConversationStateError> {
        let mut stored = Self::above(0, life);
        stored.stream = state.u64()?;
        if version > VERSION_BEFORE {
            (stored.acknowledged, stored.digest) = (state.u32()?, state.take()?);
            stored.end = state.u32()?;
            for _ in 0..state.u8()? {
                let (stream, acknowledged) = (state.u64()?, state.u32()?);
                let (digest, shift) = (state.take()?, state.u32()?);
                let former = FormerStream { stream, acknowledged, digest, shift };
                stored.former.push_back(former);
            }
        }
        let mut outgoing = Self::above(stored.stream, life);
        for _ in 0..state.u64()? {
            let (id, framed) = (state.u64()?, state.counted_up_to(MAX_FRAMED_LEN)?);
            let stamp = parse(framed).ok_or(ConversationStateError)?.stamp;
            let more = fragments(framed.len(), capacity);
            let end = outgoing.end.checked_add(more).ok_or(ConversationStateError)?;
            let framed = Zeroizing::new(framed.to_vec());
            let message = QueuedChatMessage {
                id,
                is_new: false,
                is_kept: false,
                may_have_left: true,
                stamp,
                framed,
                capacity,
                end,
            };
            outgoing.messages.push_back(message);
            outgoing.end = end;
        }
        if version > VERSION_BEFORE && !outgoing.messages.is_empty() {
            stored.end.checked_sub(outgoing.end).ok_or(ConversationStateError)?;
            stored.messages = std::mem::take(&mut outgoing.messages);
            outgoing.former = stored.former_streams();
            outgoing.messages = stored.messages;
        }
        Ok(outgoing)
    }
}
