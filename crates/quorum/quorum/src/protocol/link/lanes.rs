//! Messages in chunks. Each direction of a link has two lanes. Urgent messages do not wait for bulk
//! messages, because messages are cut into chunks and chunks of urgent messages go first.
//!
//! On each lane, at most a *window* of bytes may be sent that the receiver's program has not
//! consumed. So a program that is slow on one lane does not block the other, and a peer can make a
//! server store only a bounded number of bytes.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use bytes::Bytes;
use zeroize::Zeroizing;

/// The largest length of a bulk message, in bytes.
pub const MAX_MESSAGE_LEN: usize = 64 << 20;

/// The largest length of an urgent message, in bytes.
pub const MAX_URGENT_LEN: usize = 4 << 20;

/// The largest number of message bytes in a chunk. An urgent message waits for at most one bulk
/// chunk.
const MAX_CHUNK_DATA: usize = 16 << 10;

/// The largest length of a chunk.
pub(super) const MAX_CHUNK_LEN: usize = MAX_CHUNK_DATA + 6;

/// The cost of a message besides its bytes. It exceeds the memory overhead of a message, wherever
/// it waits.
pub(crate) const MESSAGE_COST: usize = 512;

/// The part of the server that a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkTopic {
    /// The agreement log.
    Log = 1,
    /// Requests for signatures, and answers.
    Signing = 2,
    /// Dealings, proofs, confirmations, recovery.
    Refresh = 3,
}

impl LinkTopic {
    /// All topics.
    pub const ALL: [Self; 3] = [Self::Log, Self::Signing, Self::Refresh];
}

/// The priority of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLane {
    /// Goes before all bulk messages. At most [`MAX_URGENT_LEN`] bytes.
    Urgent,
    /// At most [`MAX_MESSAGE_LEN`] bytes.
    Bulk,
}

impl LinkLane {
    pub(crate) const ALL: [Self; 2] = [Self::Urgent, Self::Bulk];

    fn max_len(self) -> usize {
        [MAX_URGENT_LEN, MAX_MESSAGE_LEN][self as usize]
    }

    /// The number of sent bytes that may be unconsumed. The receiver may hold back credit for an
    /// eighth of it (see [`IncomingLanes::consumed`]); a message of the largest length fits in the
    /// rest.
    fn window(self) -> usize {
        [8 << 20, 80 << 20][self as usize]
    }

    /// The number of bytes that may wait to be sent.
    fn max_queued(self) -> usize {
        [16 << 20, 256 << 20][self as usize]
    }
}

fn cost(len: usize) -> usize {
    len + MESSAGE_COST
}

/// Why a message is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkSendError {
    /// There is no link to this server at present.
    #[error("there is no link to the server")]
    Down,
    /// It is too long for its lane.
    #[error("a message of {0} bytes is too long")]
    TooLong(usize),
    /// Too many bytes wait to be sent to this server.
    #[error("too many bytes wait to be sent to the server")]
    Full,
}

/// The peer has sent a malformed chunk, or too many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkLaneError {
    /// A chunk has an impossible form.
    #[error("a malformed chunk of kind {0}")]
    Malformed(u8),
    /// An empty chunk.
    #[error("an empty chunk")]
    Empty,
    /// A message is too long for its lane.
    #[error("a message of {0} bytes is too long")]
    TooLong(usize),
    /// The unconsumed bytes exceed the window.
    #[error("more bytes than the window allows")]
    Window,
    /// The credit exceeds what was sent.
    #[error("credit for bytes that were not sent")]
    Credit,
}

const PING: u8 = 0;
const PONG: u8 = 1;
const CREDIT: u8 = 2;
const REKEY: u8 = 3;
const BEGIN: u8 = 4; // and 5: of the bulk lane
const CONTINUE: u8 = 6; // and 7: of the bulk lane

/// The outgoing messages of a link.
#[derive(Debug)]
pub(super) struct OutgoingLanes {
    ping: Option<u64>,
    pong: Option<u64>,
    rekey: bool,
    credit: [usize; 2],
    lanes: [OutgoingLane; 2],
}

#[derive(Debug)]
struct OutgoingLane {
    messages: VecDeque<(LinkTopic, Bytes)>,
    /// How many bytes of the first message are sent.
    sent: usize,
    /// The total cost of the messages.
    queued: usize,
    /// How many bytes may still be sent.
    credit: usize,
}

impl Default for OutgoingLanes {
    fn default() -> Self {
        let lanes = LinkLane::ALL.map(|lane| {
            let credit = lane.window();
            OutgoingLane { messages: VecDeque::new(), sent: 0, queued: 0, credit }
        });
        Self { ping: None, pong: None, rekey: false, credit: [0; 2], lanes }
    }
}

impl OutgoingLanes {
    /// Queues a message.
    ///
    /// # Errors
    /// If it is too long, or too many bytes are waiting.
    pub(super) fn push(
        &mut self,
        topic: LinkTopic,
        lane: LinkLane,
        bytes: Bytes,
    ) -> Result<(), LinkSendError> {
        let sending = &mut self.lanes[lane as usize];
        if bytes.len() > lane.max_len() {
            return Err(LinkSendError::TooLong(bytes.len()));
        }
        if sending.queued + cost(bytes.len()) > lane.max_queued() {
            return Err(LinkSendError::Full);
        }
        sending.queued += cost(bytes.len());
        sending.messages.push_back((topic, bytes));
        Ok(())
    }

    pub(super) fn ping(&mut self, number: u64) {
        self.ping = Some(number);
    }

    /// Answers the latest ping.
    pub(super) fn pong(&mut self, number: u64) {
        self.pong = Some(number);
    }

    /// Announces a key change after the chunk that carries the announcement.
    pub(super) fn rekey(&mut self) {
        self.rekey = true;
    }

    /// Gives the peer credit to send this many more bytes on a lane.
    pub(super) fn give_credit(&mut self, lane: LinkLane, amount: usize) {
        self.credit[lane as usize] += amount;
    }

    /// Accepts credit from the peer.
    ///
    /// # Errors
    /// If the credit exceeds the window.
    pub(super) fn take_credit(
        &mut self,
        lane: LinkLane,
        amount: usize,
    ) -> Result<(), LinkLaneError> {
        let sending = &mut self.lanes[lane as usize];
        let credit = sending.credit.checked_add(amount).filter(|credit| *credit <= lane.window());
        sending.credit = credit.ok_or(LinkLaneError::Credit)?;
        Ok(())
    }

    /// How many bytes wait on a lane.
    pub(super) fn queued(&self, lane: LinkLane) -> usize {
        self.lanes[lane as usize].queued
    }

    /// Writes the next chunk, if there is one. Returns whether the key changes after it.
    pub(super) fn poll_chunk(&mut self, chunk: &mut Vec<u8>) -> Option<bool> {
        chunk.clear();
        if std::mem::take(&mut self.rekey) {
            chunk.push(REKEY);
            return Some(true);
        }
        for (kind, number) in [(PONG, &mut self.pong), (PING, &mut self.ping)] {
            if let Some(number) = number.take() {
                chunk.push(kind);
                chunk.extend(number.to_be_bytes());
                return Some(false);
            }
        }
        for lane in LinkLane::ALL {
            // The largest window is less than 2^32.
            if let amount @ 1.. = std::mem::take(&mut self.credit[lane as usize])
                && let Ok(amount) = u32::try_from(amount)
            {
                chunk.extend([CREDIT, lane as u8]);
                chunk.extend(amount.to_be_bytes());
                return Some(false);
            }
        }
        let lane = LinkLane::ALL.into_iter().find(|&lane| self.lanes[lane as usize].is_ready())?;
        self.lanes[lane as usize].write(lane, chunk);
        Some(false)
    }
}

impl OutgoingLane {
    /// Whether the first message may continue or begin.
    fn is_ready(&self) -> bool {
        let first = self.messages.front();
        first.is_some_and(|(_, bytes)| self.sent > 0 || cost(bytes.len()) <= self.credit)
    }

    fn write(&mut self, lane: LinkLane, chunk: &mut Vec<u8>) {
        let Some((topic, bytes)) = self.messages.front() else { return };
        if self.sent == 0 {
            self.credit -= cost(bytes.len());
            chunk.extend([BEGIN + lane as u8, *topic as u8]);
            // At most 64 MiB.
            chunk.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
        } else {
            chunk.push(CONTINUE + lane as u8);
        }
        let end = bytes.len().min(self.sent + MAX_CHUNK_DATA);
        chunk.extend_from_slice(&bytes[self.sent..end]);
        self.sent = end;
        if end == bytes.len() {
            self.queued -= cost(end);
            self.sent = 0;
            self.messages.pop_front();
        }
    }
}

/// A received message, wiped when its bytes are dropped. Its sender receives credit after
/// [`IncomingLanes::consumed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaneMessage {
    pub(crate) topic: LinkTopic,
    pub(crate) lane: LinkLane,
    pub(crate) bytes: Bytes,
}

/// The content of a received chunk.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReceivedChunk {
    Ping(u64),
    Pong(u64),
    Credit(LinkLane, usize),
    /// The peer's key changes after this chunk.
    Rekey,
    Message(LaneMessage),
    /// A part of a message that is not complete yet.
    Part,
}

/// The incoming messages of a link.
#[derive(Debug, Default)]
pub(super) struct IncomingLanes([IncomingLane; 2]);

#[derive(Debug, Default)]
struct IncomingLane {
    partial: Option<PartialLaneMessage>,
    /// The cost of the messages that have arrived and are not consumed.
    unconsumed: usize,
    /// The cost of consumed messages for which the peer has not received credit yet.
    owed: usize,
}

#[derive(Debug)]
struct PartialLaneMessage {
    topic: LinkTopic,
    len: usize,
    /// It may contain secrets.
    bytes: Zeroizing<Vec<u8>>,
}

impl IncomingLanes {
    /// Reads a chunk.
    ///
    /// # Errors
    /// If it is malformed or exceeds the window. The link must be closed.
    pub(super) fn handle_chunk(&mut self, chunk: &[u8]) -> Result<ReceivedChunk, LinkLaneError> {
        let (&kind, rest) = chunk.split_first().ok_or(LinkLaneError::Empty)?;
        let malformed = LinkLaneError::Malformed(kind);
        let number = || rest.try_into().map(u64::from_be_bytes).map_err(|_| malformed);
        match kind {
            PING => Ok(ReceivedChunk::Ping(number()?)),
            PONG => Ok(ReceivedChunk::Pong(number()?)),
            CREDIT => match rest {
                [lane @ 0..=1, amount @ ..] => {
                    let amount = amount.try_into().map_err(|_| malformed)?;
                    let lane = LinkLane::ALL[usize::from(*lane)];
                    Ok(ReceivedChunk::Credit(lane, u32::from_be_bytes(amount) as usize))
                }
                _ => Err(malformed),
            },
            REKEY if rest.is_empty() => Ok(ReceivedChunk::Rekey),
            4..=5 => self.begin(LinkLane::ALL[usize::from(kind - BEGIN)], rest, malformed),
            6..=7 => self.go_on(LinkLane::ALL[usize::from(kind - CONTINUE)], rest, malformed),
            _ => Err(malformed),
        }
    }

    fn begin(
        &mut self,
        lane: LinkLane,
        rest: &[u8],
        malformed: LinkLaneError,
    ) -> Result<ReceivedChunk, LinkLaneError> {
        let (&[topic, a, b, c, d], data) = rest.split_first_chunk().ok_or(malformed)?;
        let topic = LinkTopic::ALL.into_iter().find(|it| *it as u8 == topic).ok_or(malformed)?;
        // The other topics have no messages this long.
        if lane == LinkLane::Bulk && topic != LinkTopic::Refresh {
            return Err(malformed);
        }
        let len = u32::from_be_bytes([a, b, c, d]) as usize;
        let receiving = &mut self.0[lane as usize];
        if receiving.partial.is_some() {
            return Err(malformed);
        }
        if len > lane.max_len() {
            return Err(LinkLaneError::TooLong(len));
        }
        if receiving.unconsumed + cost(len) > lane.window() {
            return Err(LinkLaneError::Window);
        }
        receiving.unconsumed += cost(len);
        // Memory is allocated as bytes arrive, not as they are announced.
        let bytes = Zeroizing::new(Vec::with_capacity(len.min(2 * MAX_CHUNK_DATA)));
        receiving.partial = Some(PartialLaneMessage { topic, len, bytes });
        receiving.extend(lane, data, malformed)
    }

    fn go_on(
        &mut self,
        lane: LinkLane,
        data: &[u8],
        malformed: LinkLaneError,
    ) -> Result<ReceivedChunk, LinkLaneError> {
        let receiving = &mut self.0[lane as usize];
        if data.is_empty() || receiving.partial.is_none() {
            return Err(malformed);
        }
        receiving.extend(lane, data, malformed)
    }

    /// Records that the program has consumed a message. Returns the credit that is due to the peer.
    /// Less than an eighth of the window is held back, so that not every message causes a credit
    /// chunk.
    pub(super) fn consumed(&mut self, lane: LinkLane, len: usize) -> Option<usize> {
        let receiving = &mut self.0[lane as usize];
        receiving.owed += cost(len);
        let due = receiving.owed >= lane.window() / 8;
        due.then(|| {
            let owed = std::mem::take(&mut receiving.owed);
            receiving.unconsumed -= owed;
            owed
        })
    }
}

impl IncomingLane {
    fn extend(
        &mut self,
        lane: LinkLane,
        data: &[u8],
        malformed: LinkLaneError,
    ) -> Result<ReceivedChunk, LinkLaneError> {
        let partial = self.partial.as_mut().ok_or(malformed)?;
        let left = partial.len - partial.bytes.len();
        // Only the last chunk of a message may be short. Otherwise a message could have very many
        // chunks.
        if data.len() > MAX_CHUNK_DATA || data.len() > left || data.len() < left.min(MAX_CHUNK_DATA)
        {
            return Err(malformed);
        }
        partial.extend(data);
        match self.partial.take_if(|partial| partial.bytes.len() == partial.len) {
            Some(PartialLaneMessage { topic, bytes, .. }) => {
                let bytes = Bytes::from_owner(bytes);
                Ok(ReceivedChunk::Message(LaneMessage { topic, lane, bytes }))
            }
            None => Ok(ReceivedChunk::Part),
        }
    }
}

impl PartialLaneMessage {
    /// Appends bytes. A buffer that is too short is wiped after its bytes have moved to a longer
    /// one. When a quarter of the message has arrived, the new buffer has room for all of it, so
    /// that the two never take more memory than the message itself.
    fn extend(&mut self, data: &[u8]) {
        let len = self.bytes.len() + data.len();
        if len > self.bytes.capacity() {
            let capacity = if 4 * len >= self.len { self.len } else { 2 * len };
            let mut longer = Zeroizing::new(Vec::with_capacity(capacity));
            longer.extend_from_slice(&self.bytes);
            self.bytes = longer;
        }
        self.bytes.extend_from_slice(data);
    }
}
