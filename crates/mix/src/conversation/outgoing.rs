//! Messages to a partner, until they have arrived.

use std::collections::VecDeque;

use zeroize::Zeroizing;

use super::WINDOW;
use crate::content::MAX_TEXT_LEN;
use crate::state::{Reader, StateError, put_bytes};

/// How many fragments wait for a partner at most: the longest message has fewer.
const MAX_WAITING: u32 = 4096;

/// Too many messages wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// The stream of fragments to a partner, numbered from 1.
pub(super) struct Outgoing {
    stream: u64,
    /// All fragments up to this one have arrived.
    acknowledged: u32,
    /// For each fragment after those that were sent, the exchange in which it was last.
    sent: VecDeque<u64>,
    /// Those of which a fragment has not been acknowledged.
    messages: VecDeque<Message>,
    /// The number of the last fragment of all messages so far.
    end: u32,
}

struct Message {
    id: u64,
    text: Zeroizing<Vec<u8>>,
    /// The bytes of a fragment.
    capacity: usize,
    /// The number of the last fragment.
    end: u32,
}

impl Message {
    fn fragments(&self) -> u32 {
        fragments(self.text.len(), self.capacity)
    }

    /// The fragment with a number, and whether it is the last one; `None` if it is of a later one.
    fn fragment(&self, number: u32) -> Option<(bool, &[u8])> {
        let from_end = self.end.checked_sub(number)?;
        let index = self.fragments() - 1 - from_end;
        let start = index as usize * self.capacity;
        let end = self.text.len().min(start + self.capacity);
        Some((from_end == 0, &self.text[start..end]))
    }
}

fn fragments(len: usize, capacity: usize) -> u32 {
    u32::try_from(len.div_ceil(capacity).max(1)).expect("a message has at most 64 KiB")
}

impl Outgoing {
    pub(super) fn new(stream: u64) -> Self {
        Self { stream, acknowledged: 0, sent: VecDeque::new(), messages: VecDeque::new(), end: 0 }
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
        text: Zeroizing<Vec<u8>>,
        capacity: usize,
    ) -> Result<(), Full> {
        let end = self.end.checked_add(fragments(text.len(), capacity)).ok_or(Full)?;
        if end - self.acknowledged > MAX_WAITING {
            return Err(Full);
        }
        self.end = end;
        self.messages.push_back(Message { id, text, capacity, end });
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
        let (last, text) = self.messages.iter().find_map(|message| message.fragment(number))?;
        Some((number, last, text))
    }

    /// Takes an acknowledgement. Returns the messages that have arrived by it, or `None` if it
    /// says nothing new. An acknowledgement that cannot be tells that one of the ends has lost its
    /// state: then all messages that wait are sent again in a new stream.
    pub(super) fn acknowledge(
        &mut self,
        stream: u64,
        number: u32,
        capacity: usize,
    ) -> Option<Vec<u64>> {
        let lost = number < self.acknowledged || number > self.end;
        if stream > self.stream || (stream == self.stream && lost) {
            self.restart(stream, capacity);
            return Some(Vec::new());
        }
        if stream < self.stream || number == self.acknowledged {
            return None;
        }
        let arrived = self.sent.len().min((number - self.acknowledged) as usize);
        self.sent.drain(..arrived);
        self.acknowledged = number;
        let arrived = self.messages.partition_point(|message| message.end <= number);
        Some(self.messages.drain(..arrived).map(|message| message.id).collect())
    }

    /// Begins a stream with a greater number than `stream`, with all messages that wait.
    pub(super) fn restart(&mut self, stream: u64, capacity: usize) {
        let stream = self.stream.max(stream).saturating_add(1);
        let messages = std::mem::replace(self, Self::new(stream)).messages;
        for Message { id, text, .. } in messages {
            self.end += fragments(text.len(), capacity);
            self.messages.push_back(Message { id, text, capacity, end: self.end });
        }
    }

    /// At most how many bytes are stored.
    pub(super) fn stored_len(&self) -> usize {
        32 + self.messages.iter().map(|message| 16 + message.text.len()).sum::<usize>()
    }

    pub(super) fn encode(&self, out: &mut Zeroizing<Vec<u8>>) {
        out.extend_from_slice(&self.stream.to_be_bytes());
        out.extend_from_slice(&self.acknowledged.to_be_bytes());
        let first = self.messages.front().map_or(self.end, |first| first.end - first.fragments());
        out.extend_from_slice(&first.to_be_bytes());
        out.extend_from_slice(&(self.messages.len() as u64).to_be_bytes());
        for message in &self.messages {
            out.extend_from_slice(&message.id.to_be_bytes());
            put_bytes(out, &message.text);
        }
    }

    /// What was sent and not acknowledged counts as never sent.
    pub(super) fn decode(state: &mut Reader<'_>, capacity: usize) -> Result<Self, StateError> {
        let mut outgoing = Self::new(state.u64()?);
        outgoing.acknowledged = state.u32()?;
        outgoing.end = state.u32()?;
        for _ in 0..state.u64()? {
            let (id, text) = (state.u64()?, state.bytes(MAX_TEXT_LEN)?);
            let more = fragments(text.len(), capacity);
            let end = outgoing.end.checked_add(more).ok_or(StateError)?;
            let text = Zeroizing::new(text.to_vec());
            outgoing.messages.push_back(Message { id, text, capacity, end });
            outgoing.end = end;
        }
        let first_end = outgoing.messages.front().map_or(u32::MAX, |first| first.end);
        let first = outgoing.messages.front().map_or(outgoing.end, |m| m.end - m.fragments());
        if !(first..first_end).contains(&outgoing.acknowledged) {
            return Err(StateError);
        }
        Ok(outgoing)
    }
}
