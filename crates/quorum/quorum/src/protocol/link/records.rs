//! A link after its handshake: encrypted records in, messages out, and the reverse.
//!
//! A record is a length (two bytes, big-endian) and one encrypted chunk. Every minute each end
//! changes its key by a one-way function and deletes the previous one, so that an attacker who
//! breaks in later cannot decrypt recorded traffic.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use zeroize::{Zeroize as _, Zeroizing};

use super::handshake::LinkSession;
use super::lanes::{
    IncomingLanes, LaneMessage, LinkLane, LinkLaneError, LinkSendError, LinkTopic, MAX_CHUNK_LEN,
    OutgoingLanes, ReceivedChunk,
};

const TAG_LEN: usize = 16;
const MAX_RECORD_LEN: usize = MAX_CHUNK_LEN + TAG_LEN;

/// How often an end sends a ping.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// A peer that has sent nothing for this long is considered down.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// How often an end changes its key.
const REKEY_INTERVAL: Duration = Duration::from_secs(60);

/// Why a link has ended because of its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuorumLinkError {
    /// A record has an impossible length.
    #[error("a record of {0} bytes")]
    Length(usize),
    /// A record was changed, repeated, or is out of order.
    #[error("a record that was changed, repeated or reordered")]
    Decrypt,
    /// A chunk is rejected.
    #[error(transparent)]
    Lane(#[from] LinkLaneError),
    /// Nothing has arrived for too long.
    #[error("nothing has arrived for {} s", .0.as_secs())]
    Silent(Duration),
}

/// One link.
#[derive(Debug)]
pub(crate) struct QuorumLink {
    session: LinkSession,
    outgoing: OutgoingLanes,
    incoming: IncomingLanes,
    received: VecDeque<LaneMessage>,
    /// The start of an incomplete record.
    partial: Vec<u8>,
    /// A received chunk, and one that is sent. Each is wiped after use, and its buffer is never
    /// reallocated.
    plaintext: Zeroizing<Vec<u8>>,
    outgoing_chunk: Zeroizing<Vec<u8>>,
    heard: Duration,
    next_ping: Duration,
    next_rekey: Duration,
    /// The number of the unanswered ping, and when it was sent.
    pinged: Option<(u64, Duration)>,
    pings: u64,
    round_trip: Option<Duration>,
}

impl QuorumLink {
    /// A link whose handshake is complete.
    pub(crate) fn new(session: LinkSession, now: Duration) -> Self {
        Self {
            session,
            outgoing: OutgoingLanes::default(),
            incoming: IncomingLanes::default(),
            received: VecDeque::new(),
            partial: Vec::new(),
            plaintext: Zeroizing::new(vec![0; MAX_RECORD_LEN]),
            outgoing_chunk: Zeroizing::new(Vec::with_capacity(MAX_RECORD_LEN)),
            heard: now,
            next_ping: now,
            next_rekey: now + REKEY_INTERVAL,
            pinged: None,
            pings: 0,
            round_trip: None,
        }
    }

    /// Queues a message.
    ///
    /// # Errors
    /// If it is too long, or too many bytes are waiting.
    pub(crate) fn send(
        &mut self,
        topic: LinkTopic,
        lane: LinkLane,
        bytes: Bytes,
    ) -> Result<(), LinkSendError> {
        self.outgoing.push(topic, lane, bytes)
    }

    /// How many bytes wait to be sent on a lane.
    pub(crate) fn queued(&self, lane: LinkLane) -> usize {
        self.outgoing.queued(lane)
    }

    /// The round-trip time of the last ping.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// Handles bytes from the connection.
    ///
    /// # Errors
    /// If the peer may not send them. The link must be closed.
    pub(crate) fn handle_bytes(
        &mut self,
        now: Duration,
        bytes: &[u8],
    ) -> Result<(), QuorumLinkError> {
        let mut rest = bytes;
        while let Some(record) = take_record(&mut self.partial, &mut rest)? {
            self.handle_record(now, &record)?;
        }
        Ok(())
    }

    fn handle_record(&mut self, now: Duration, record: &[u8]) -> Result<(), QuorumLinkError> {
        let read = self.session.noise.read_message(record, &mut self.plaintext);
        let len = read.map_err(|_| QuorumLinkError::Decrypt)?;
        self.heard = now;
        let arrival = self.incoming.handle_chunk(&self.plaintext[..len]);
        self.plaintext[..len].zeroize();
        match arrival? {
            ReceivedChunk::Message(received) => self.received.push_back(received),
            ReceivedChunk::Ping(number) => self.outgoing.pong(number),
            ReceivedChunk::Pong(number) => {
                if let Some((_, at)) = self.pinged.take_if(|(pinged, _)| *pinged == number) {
                    self.round_trip = Some(now.saturating_sub(at));
                }
            }
            ReceivedChunk::Credit(lane, amount) => self.outgoing.take_credit(lane, amount)?,
            ReceivedChunk::Rekey => self.session.noise.rekey_incoming(),
            ReceivedChunk::Part => {}
        }
        Ok(())
    }

    /// The next received message. Call [`Self::consumed`] when it is no longer in use.
    pub(crate) fn poll_received(&mut self) -> Option<LaneMessage> {
        self.received.pop_front()
    }

    /// Records that a message of this length is no longer in use, so that its sender may send as
    /// much again. Returns whether credit is sent to it now.
    pub(crate) fn consumed(&mut self, lane: LinkLane, len: usize) -> bool {
        let credit = self.incoming.consumed(lane, len);
        credit.is_some_and(|credit| {
            self.outgoing.give_credit(lane, credit);
            true
        })
    }

    /// Appends the next record to the bytes for the connection. Returns whether there was one.
    pub(crate) fn poll_transmit(&mut self, bytes: &mut Vec<u8>) -> bool {
        let chunk = &mut self.outgoing_chunk;
        let Some(rekey) = self.outgoing.poll_chunk(chunk) else { return false };
        let (begin, len) = (bytes.len() + 2, chunk.len() + TAG_LEN);
        // At most MAX_RECORD_LEN, which is less than 2^16.
        bytes.extend(u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes());
        bytes.resize(begin + len, 0);
        let written = self.session.noise.write_message(chunk, &mut bytes[begin..]);
        debug_assert_eq!(written, Ok(len));
        chunk.as_mut_slice().zeroize();
        if rekey {
            self.session.noise.rekey_outgoing();
        }
        true
    }

    /// When to call [`Self::handle_timeout`].
    pub(crate) fn poll_timeout(&self) -> Duration {
        self.next_ping.min(self.heard + SILENCE_TIMEOUT)
    }

    /// Sends a ping when one is due.
    ///
    /// # Errors
    /// If the peer has been silent for too long.
    pub(crate) fn handle_timeout(&mut self, now: Duration) -> Result<(), QuorumLinkError> {
        let silent = now.saturating_sub(self.heard);
        if silent >= SILENCE_TIMEOUT {
            return Err(QuorumLinkError::Silent(silent));
        }
        if now >= self.next_ping {
            self.next_ping = now + PING_INTERVAL;
            self.pings += 1;
            self.outgoing.ping(self.pings);
            self.pinged = Some((self.pings, now));
        }
        if now >= self.next_rekey {
            self.next_rekey = now + REKEY_INTERVAL;
            self.outgoing.rekey();
        }
        Ok(())
    }
}

/// Takes the next record, without its length, from the received bytes.
fn take_record(
    partial: &mut Vec<u8>,
    rest: &mut &[u8],
) -> Result<Option<Vec<u8>>, QuorumLinkError> {
    if !fill_to(2, partial, rest) {
        return Ok(None);
    }
    let len = usize::from(u16::from_be_bytes([partial[0], partial[1]]));
    if !(TAG_LEN + 1..=MAX_RECORD_LEN).contains(&len) {
        return Err(QuorumLinkError::Length(len));
    }
    Ok(fill_to(2 + len, partial, rest).then(|| {
        let record = partial.split_off(2);
        partial.clear();
        record
    }))
}

/// Moves bytes until there are `len`. Returns whether there are.
fn fill_to(len: usize, partial: &mut Vec<u8>, rest: &mut &[u8]) -> bool {
    let missing = len.saturating_sub(partial.len()).min(rest.len());
    let (taken, left) = rest.split_at(missing);
    partial.extend_from_slice(taken);
    *rest = left;
    partial.len() >= len
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::handshake::tests::sessions;
    use super::*;

    const START: Duration = Duration::ZERO;

    fn pair() -> (QuorumLink, QuorumLink) {
        let (one, two) = sessions();
        (QuorumLink::new(one, START), QuorumLink::new(two, START))
    }

    fn transmit(link: &mut QuorumLink) -> Vec<u8> {
        let mut bytes = Vec::new();
        while link.poll_transmit(&mut bytes) {}
        bytes
    }

    #[test]
    fn messages_cross_at_any_cut() {
        let (mut one, mut two) = pair();
        let messages: Vec<Bytes> =
            (0..20u8).map(|i| vec![i; 1000 * usize::from(i)].into()).collect();
        for message in &messages {
            one.send(LinkTopic::Refresh, LinkLane::Bulk, message.clone()).unwrap();
        }
        for piece in transmit(&mut one).chunks(777) {
            two.handle_bytes(START, piece).unwrap();
        }
        let got: Vec<_> = std::iter::from_fn(|| two.poll_received()).map(|it| it.bytes).collect();
        assert_eq!(got, messages);
    }

    /// An end that keeps its key cannot decrypt what the other sends after a minute.
    #[test]
    fn keys_change_every_minute() {
        for keeps in [false, true] {
            let (mut one, mut two) = pair();
            let now = REKEY_INTERVAL;
            (one.heard, two.heard) = (now, now);
            one.handle_timeout(now).unwrap();
            let mut rekey = Vec::new();
            one.poll_transmit(&mut rekey);
            one.send(LinkTopic::Log, LinkLane::Urgent, Bytes::from_static(b"vote")).unwrap();
            let rest = transmit(&mut one);
            if keeps {
                two.session.noise.read_message(&rekey[2..], &mut [0]).unwrap();
                assert_eq!(two.handle_bytes(now, &rest), Err(QuorumLinkError::Decrypt));
            } else {
                two.handle_bytes(now, &rekey).unwrap();
                two.handle_bytes(now, &rest).unwrap();
                assert!(two.poll_received().is_some());
            }
        }
    }

    #[test]
    fn the_round_trip_is_measured_and_silence_ends_the_link() {
        let (mut one, mut two) = pair();
        one.handle_timeout(START).unwrap();
        let ping = transmit(&mut one);
        two.handle_bytes(Duration::from_millis(20), &ping).unwrap();
        let pong = transmit(&mut two);
        one.handle_bytes(Duration::from_millis(30), &pong).unwrap();
        assert_eq!(one.round_trip(), Some(Duration::from_millis(30)));
        let mut now = Duration::from_millis(30);
        let error = loop {
            now = one.poll_timeout().max(now + Duration::from_millis(1));
            if let Err(error) = one.handle_timeout(now) {
                break error;
            }
        };
        assert_eq!(error, QuorumLinkError::Silent(SILENCE_TIMEOUT));
    }

    #[test]
    fn changed_repeated_skipped_and_impossible_records_end_the_link() {
        let sent = || {
            let (mut one, two) = pair();
            let mut records = Vec::new();
            for _ in 0..2 {
                one.send(LinkTopic::Log, LinkLane::Urgent, Bytes::from_static(b"vote")).unwrap();
                records.push(transmit(&mut one));
            }
            (records, two)
        };
        let (records, _) = sent();
        for at in 2..records[0].len() {
            let (mut records, mut two) = sent();
            records[0][at] ^= 1;
            assert_eq!(two.handle_bytes(START, &records[0]), Err(QuorumLinkError::Decrypt));
        }
        let (records, mut two) = sent();
        two.handle_bytes(START, &records[0]).unwrap();
        assert_eq!(two.handle_bytes(START, &records[0]), Err(QuorumLinkError::Decrypt));
        let (records, mut two) = sent();
        assert_eq!(two.handle_bytes(START, &records[1]), Err(QuorumLinkError::Decrypt));
        for len in [0, TAG_LEN, MAX_RECORD_LEN + 1] {
            let (_, mut two) = sent();
            let begin = u16::try_from(len).unwrap().to_be_bytes();
            assert_eq!(two.handle_bytes(START, &begin), Err(QuorumLinkError::Length(len)));
        }
    }

    proptest! {
        /// A truncated stream yields exactly the messages before the truncation.
        #[test]
        fn a_truncated_stream_gives_whole_messages(cut in 0..5000usize) {
            let (mut one, mut two) = pair();
            for i in 0..10u8 {
                one.send(LinkTopic::Log, LinkLane::Urgent, vec![i; 400].into()).unwrap();
            }
            let bytes = transmit(&mut one);
            two.handle_bytes(START, &bytes[..cut.min(bytes.len())]).unwrap();
            for (i, got) in std::iter::from_fn(|| two.poll_received()).enumerate() {
                prop_assert_eq!(got.bytes.len(), 400);
                prop_assert_eq!(usize::from(got.bytes[0]), i);
            }
        }
    }
}
