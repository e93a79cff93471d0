//! The receiving half of a connection.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::super::packet::MAX_PAYLOAD;

/// How much later than others a datagram may arrive before it counts as lost.
const REORDER_WINDOW: Duration = Duration::from_millis(25);

/// The largest number of datagrams that wait for an earlier one.
const MAX_WAITING: usize = 4096;

/// An acknowledgement is sent for this many datagrams, or after this time.
const ACK_DATAGRAMS: u64 = 64;
const ACK_DELAY: Duration = Duration::from_millis(5);

/// The receiving half of a connection.
#[derive(Debug)]
pub(super) struct UdpTransportReceiver {
    /// Bytes in order, not read yet.
    ready: VecDeque<u8>,
    /// The number of the next datagram in order.
    next: u64,
    waiting: BTreeMap<u64, Box<[u8]>>,
    /// The first missing datagram, and when it counts as lost.
    missing: Option<(u64, Duration)>,
    /// The number that the peer has announced as sent, and whether the stream ends there.
    position: u64,
    has_end: bool,
    /// The largest number of datagrams that wait to be read.
    capacity: u64,
    ack_at: Option<Duration>,
    /// The last acknowledgement, and its limit.
    acknowledged: u64,
    announced: u64,
    received: u64,
}

impl UdpTransportReceiver {
    /// Creates a receiver with a buffer of this many bytes.
    pub(super) fn new(buffer: usize) -> Self {
        let capacity = (buffer / MAX_PAYLOAD) as u64;
        Self {
            ready: VecDeque::new(),
            next: 0,
            waiting: BTreeMap::new(),
            missing: None,
            position: 0,
            has_end: false,
            capacity,
            ack_at: None,
            acknowledged: 0,
            announced: capacity,
            received: 0,
        }
    }

    /// The number of bytes in the buffer.
    #[cfg(any(test, fuzzing))]
    pub(super) fn held(&self) -> usize {
        self.ready.len() + self.waiting.values().map(|payload| payload.len()).sum::<usize>()
    }

    /// All datagrams before this number have arrived.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Datagrams before this number are accepted.
    pub(super) fn limit(&self) -> u64 {
        let unread = self.ready.len().div_ceil(MAX_PAYLOAD) as u64;
        // The announced limit never falls, although short datagrams count as long ones.
        self.announced.max(self.next + self.capacity.saturating_sub(unread))
    }

    /// Inserts a part of the stream. Returns whether it is valid.
    pub(super) fn insert(&mut self, now: Duration, number: u64, payload: &[u8]) -> bool {
        if number >= self.limit() || (self.has_end && number >= self.position) {
            return false;
        }
        if number < self.next || self.waiting.contains_key(&number) {
            return true;
        }
        self.received += 1;
        if number == self.next {
            self.ready.extend(payload);
            self.next += 1;
            while let Some(payload) = self.waiting.remove(&self.next) {
                self.ready.extend(&payload[..]);
                self.next += 1;
            }
        } else if self.waiting.len() < MAX_WAITING {
            self.waiting.insert(number, payload.into());
        }
        self.position = self.position.max(number + 1);
        self.look_for_missing(now);
        let wait = if self.next - self.acknowledged.min(self.next) >= ACK_DATAGRAMS {
            Duration::ZERO
        } else {
            ACK_DELAY
        };
        self.acknowledge(now + wait);
        true
    }

    /// Handles the peer's statement that it has sent all datagrams before `next`.
    pub(super) fn handle_position(&mut self, now: Duration, next: u64, is_end: bool) -> bool {
        let is_right = if self.has_end { next <= self.position } else { next <= self.limit() };
        if !is_right || (is_end && next < self.position) {
            return false;
        }
        self.position = self.position.max(next);
        self.has_end |= is_end;
        self.look_for_missing(now);
        self.acknowledge(now);
        true
    }

    fn look_for_missing(&mut self, now: Duration) {
        if self.next == self.position {
            self.missing = None;
        } else if self.missing.is_none_or(|(number, _)| number != self.next) {
            self.missing = Some((self.next, now + REORDER_WINDOW));
        }
    }

    fn acknowledge(&mut self, at: Duration) {
        self.ack_at = Some(self.ack_at.map_or(at, |before| before.min(at)));
    }

    /// The datagram that is lost, if any.
    pub(super) fn handle_timeout(&self, now: Duration) -> Option<u64> {
        self.missing.filter(|(_, at)| now >= *at).map(|(number, _)| number)
    }

    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        let missing_at = self.missing.map(|(_, at)| at);
        [missing_at, self.ack_at].into_iter().flatten().min()
    }

    /// The acknowledgement that is due, if any: what has arrived, whether the end has, and the
    /// limit.
    pub(super) fn poll_ack(&mut self, now: Duration) -> Option<(u64, bool, u64)> {
        self.ack_at.take_if(|at| *at <= now)?;
        self.acknowledged = self.next;
        self.announced = self.limit();
        Some((self.next, self.is_received(), self.announced))
    }

    fn is_received(&self) -> bool {
        self.has_end && self.next == self.position
    }

    /// Whether the reader has read everything.
    pub(super) fn is_whole(&self) -> bool {
        self.is_received() && self.ready.is_empty()
    }

    pub(super) fn is_readable(&self) -> bool {
        !self.ready.is_empty() || self.is_received()
    }

    /// Copies bytes to the reader and removes them. Returns how many.
    pub(super) fn read(&mut self, now: Duration, to: &mut [u8]) -> usize {
        let len = to.len().min(self.ready.len());
        let (front, back) = self.ready.as_slices();
        let in_front = len.min(front.len());
        to[..in_front].copy_from_slice(&front[..in_front]);
        to[in_front..len].copy_from_slice(&back[..len - in_front]);
        self.ready.drain(..len);
        // There is much more space than was announced to the peer.
        if self.limit() - self.announced > self.capacity / 4 {
            self.acknowledge(now);
        }
        len
    }

    pub(super) fn received(&self) -> u64 {
        self.received
    }
}
