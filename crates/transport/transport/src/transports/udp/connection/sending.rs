//! The sending half of a connection.

use std::collections::VecDeque;
use std::time::Duration;

use super::super::packet::{MAX_PAYLOAD, OVERHEAD};

/// The size of the send buffer, in bytes.
const CAPACITY: usize = 1 << 20;

/// A waiting writer is not woken for less free space than this, in bytes.
const MIN_WRITABLE_ROOM: usize = CAPACITY / 4;

/// How long datagrams are collected before they are sent as a train.
const TRAIN: Duration = Duration::from_micros(100);

/// How far sending may be behind its schedule, because of a busy host, and still catch up.
const MAX_BEHIND: Duration = Duration::from_millis(2);

/// The delay until the position is sent when there is no more data, and the longest interval of its
/// repetition.
const MIN_POSITION_INTERVAL: Duration = Duration::from_millis(5);
const MAX_POSITION_INTERVAL: Duration = Duration::from_secs(1);

/// The sending half of a connection.
#[derive(Debug)]
pub(super) struct UdpTransportSender {
    /// Not sent yet.
    bytes: VecDeque<u8>,
    /// The number of the next datagram.
    next: u64,
    /// All datagrams before this number have arrived.
    acknowledged: u64,
    /// The peer accepts datagrams before this number.
    limit: u64,
    is_finished: bool,
    has_end_arrived: bool,
    /// The interval in ns for each byte of a packet.
    interval_ns: f64,
    /// When the next datagram may be sent.
    send_at: Duration,
    /// When the position is sent next, if something is unacknowledged.
    position_at: Duration,
    position_interval: Duration,
    /// A datagram and when it was sent, to measure the round-trip time.
    measured: Option<(u64, Duration)>,
    round_trip: Option<Duration>,
}

impl UdpTransportSender {
    /// Creates a sender with this rate in bytes/s of IP packets.
    pub(super) fn new(rate: f64, now: Duration) -> Self {
        Self {
            bytes: VecDeque::new(),
            next: 0,
            acknowledged: 0,
            limit: 0,
            is_finished: false,
            has_end_arrived: false,
            interval_ns: 1e9 / rate.max(1000.0),
            send_at: now,
            position_at: now,
            position_interval: MIN_POSITION_INTERVAL,
            measured: None,
            round_trip: None,
        }
    }

    /// Whether its buffer is within its bound.
    #[cfg(any(test, fuzzing))]
    pub(super) fn is_bounded(&self) -> bool {
        self.bytes.len() <= CAPACITY && self.acknowledged <= self.next
    }

    /// Raises the limit: the peer accepts datagrams before this number.
    pub(super) fn raise_limit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(CAPACITY - self.bytes.len());
        self.bytes.extend(&bytes[..taken]);
        taken
    }

    pub(super) fn is_worth_waking_writer(&self) -> bool {
        CAPACITY - self.bytes.len() >= MIN_WRITABLE_ROOM
    }

    pub(super) fn finish(&mut self, now: Duration) {
        if !self.is_finished {
            self.is_finished = true;
            self.position_at = now;
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Whether everything written has arrived, including the end if there is one.
    pub(super) fn is_flushed(&self) -> bool {
        self.bytes.is_empty()
            && self.acknowledged == self.next
            && self.is_finished == self.has_end_arrived
    }

    /// The largest possible number of unacknowledged bytes.
    pub(super) fn unacknowledged(&self) -> u64 {
        self.bytes.len() as u64 + (self.next - self.acknowledged) * MAX_PAYLOAD as u64
    }

    pub(super) fn was_sent(&self, number: u64) -> bool {
        number < self.next
    }

    pub(super) fn handle_ack(
        &mut self,
        now: Duration,
        next: u64,
        has_end: bool,
        limit: u64,
    ) -> bool {
        if next > self.next || (has_end && !(self.is_finished && self.bytes.is_empty())) {
            return false;
        }
        if next > self.acknowledged {
            self.acknowledged = next;
            self.position_interval = MIN_POSITION_INTERVAL;
            self.position_at = now + self.position_interval;
        }
        if let Some((number, at)) = self.measured
            && next > number
        {
            let sample = now.saturating_sub(at);
            self.round_trip = Some(self.round_trip.map_or(sample, |mean| (7 * mean + sample) / 8));
            self.measured = None;
        }
        self.has_end_arrived |= has_end && next == self.next;
        self.limit = self.limit.max(limit);
        true
    }

    pub(super) fn handle_timeout(&mut self, now: Duration) {
        // A late train is not caught up completely.
        self.send_at = self.send_at.max(now.saturating_sub(MAX_BEHIND));
    }

    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        if self.has_datagram() {
            Some(self.send_at + TRAIN)
        } else if self.bytes.is_empty() && self.is_flushed() {
            None
        } else {
            Some(self.position_at)
        }
    }

    fn has_datagram(&self) -> bool {
        !self.bytes.is_empty() && self.next < self.limit
    }

    /// The position, if it is to be sent now.
    pub(super) fn poll_position(&mut self, now: Duration, is_asked: bool) -> Option<(u64, bool)> {
        let is_due = !self.has_datagram() && !self.is_flushed() && now >= self.position_at;
        if !is_due && !is_asked {
            return None;
        }
        self.position_at = now + self.position_interval;
        self.position_interval = (self.position_interval * 2).min(MAX_POSITION_INTERVAL);
        Some((self.next, self.is_finished && self.bytes.is_empty()))
    }

    /// Passes the next datagram that is to be sent now to `write`. `None` if there is none.
    pub(super) fn poll_data(
        &mut self,
        now: Duration,
        write: impl FnOnce(u64, &[u8]),
    ) -> Option<()> {
        if !self.has_datagram() || now < self.send_at {
            return None;
        }
        let len = self.bytes.len().min(MAX_PAYLOAD);
        let (front, _) = self.bytes.as_slices();
        if front.len() >= len {
            write(self.next, &front[..len]);
            self.bytes.drain(..len);
        } else {
            let payload: Vec<u8> = self.bytes.drain(..len).collect();
            write(self.next, &payload);
        }
        self.measured.get_or_insert((self.next, now));
        self.next += 1;
        self.position_interval = MIN_POSITION_INTERVAL;
        self.position_at = now + self.position_interval;
        #[expect(clippy::cast_precision_loss, reason = "a length")]
        let takes = Duration::from_secs_f64((len + OVERHEAD) as f64 * self.interval_ns / 1e9);
        self.send_at = self.send_at.max(now.saturating_sub(MAX_BEHIND)) + takes;
        Some(())
    }

    pub(super) fn sent(&self) -> u64 {
        self.next
    }

    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// In bytes/s.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
    pub(super) fn rate(&self) -> u64 {
        (1e9 / self.interval_ns) as u64
    }
}
