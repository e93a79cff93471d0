//! Sends the stream: chooses what is sent next, what is retransmitted, and when.

mod buffer;
mod flight;
mod pacer;
mod repairs;
mod round_trip;

use std::collections::BTreeMap;
use std::time::Duration;

use buffer::BurstSendBuffer;
use flight::BurstPacketsInFlight;
use pacer::{TrainPacer, bytes_f64};
use repairs::RepairSymbolQueue;

pub(super) use flight::BurstPacketContent;
pub(super) use round_trip::{BurstRttEstimator, MAX_ACK_DELAY};

use super::frame::{self, BurstAckFrame, REPAIR_OVERHEAD, STREAM_OVERHEAD, StreamFrameFlags};
use super::packet::MAX_DATAGRAM_LEN;
use super::rate;

/// Repair symbols protect the data when what is left to send is less than what is sent in this many
/// round trips.
const REPAIRED_ROUND_TRIPS: f64 = 1.5;

/// The rate of trains is measured if they have at least this many bytes.
const MEASURED_TRAIN: u64 = 16 * 1400;

/// What was sent with a stream of bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BurstSendCounts {
    pub(super) packets: u64,
    pub(super) repeated: u64,
}

#[derive(Debug)]
pub(super) struct BurstSender {
    buffer: BurstSendBuffer,
    is_finished: bool,
    /// The stream has arrived up to this offset; its end counts as one byte.
    acked_to: u64,
    /// The stream was sent up to this offset; its end counts as one byte.
    next: u64,
    /// The peer's window: the offset up to which the stream may be sent.
    window: u64,
    /// What is to be retransmitted: offsets and lengths. Length 0 is the end of the stream alone.
    lost: BTreeMap<u64, u16>,
    repairs: RepairSymbolQueue,
    flight: BurstPacketsInFlight,
    round_trip: BurstRttEstimator,
    model: rate::BurstCongestionModel,
    /// Packets sent before this time took another path.
    path_changed_at: Duration,
    pacer: TrainPacer,
    /// The number of consecutive retransmission timeouts.
    timeouts: u32,
    /// The number of probe packets that may be sent after a timeout.
    probes: u8,
    /// When the last packet that elicits an acknowledgement was sent.
    eliciting_at: Duration,
    /// Since when the peer's window blocks sending.
    stalled_since: Option<Duration>,
    counts: BurstSendCounts,
}

impl BurstSender {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            buffer: BurstSendBuffer::new(capacity),
            is_finished: false,
            acked_to: 0,
            next: 0,
            window: 0,
            lost: BTreeMap::new(),
            repairs: RepairSymbolQueue::default(),
            flight: BurstPacketsInFlight::new(),
            round_trip: BurstRttEstimator::default(),
            model: rate::BurstCongestionModel::new(None, MAX_DATAGRAM_LEN),
            path_changed_at: Duration::ZERO,
            pacer: TrainPacer::default(),
            timeouts: 0,
            probes: 0,
            eliciting_at: Duration::ZERO,
            stalled_since: None,
            counts: BurstSendCounts::default(),
        }
    }

    /// Opens the connection, with the peer's window, the initial rate in bytes/s, and the
    /// handshake's round-trip time.
    pub(super) fn establish(
        &mut self,
        window: u64,
        rate: Option<f64>,
        round_trip: Option<Duration>,
    ) {
        self.window = window;
        self.model = rate::BurstCongestionModel::new(rate, MAX_DATAGRAM_LEN);
        if let Some(round_trip) = round_trip {
            self.round_trip.add(round_trip);
        }
    }

    /// Sets the handshake's round-trip time, as a listener's end measures it.
    pub(super) fn handle_first_round_trip(&mut self, round_trip: Duration) {
        self.round_trip.add(round_trip);
    }

    /// Handles a change of path: rate and round-trip time are measured anew.
    pub(super) fn change_path(&mut self, now: Duration) {
        self.flight.detach_from_model();
        self.round_trip = BurstRttEstimator::default();
        self.model = rate::BurstCongestionModel::new(None, MAX_DATAGRAM_LEN);
        self.path_changed_at = now;
    }

    /// Handles the peer's measurement of a train to it.
    pub(super) fn handle_train(&mut self, rate: f64) {
        if self.next == 0 && self.model.in_flight() == 0 {
            self.model = rate::BurstCongestionModel::new(Some(rate), MAX_DATAGRAM_LEN);
        } else if !self.model.is_started() {
            self.model.start(rate);
        } else {
            self.model.on_train(rate);
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        self.buffer.write(bytes)
    }

    pub(super) fn finish(&mut self) {
        self.is_finished = true;
    }

    pub(super) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Whether there is enough room to wake a waiting writer.
    pub(super) fn has_room(&self) -> bool {
        self.buffer.has_room()
    }

    /// Whether everything was acknowledged, including the end of the stream if it was sent.
    pub(super) fn is_flushed(&self) -> bool {
        self.acked_to >= self.end()
    }

    /// Handles the peer's statement that it needs nothing more: nothing further is sent.
    pub(super) fn handle_done(&mut self) {
        if self.is_finished && self.next >= self.end() {
            self.acked_to = self.end();
        }
    }

    pub(super) fn written(&self) -> u64 {
        self.buffer.written_to()
    }

    /// The number of bytes that were sent and not acknowledged.
    pub(super) fn unacknowledged(&self) -> u64 {
        self.next.saturating_sub(self.acked_to)
    }

    /// The number of bytes that were not sent.
    pub(super) fn unsent(&self) -> u64 {
        self.end() - self.next
    }

    pub(super) fn round_trip(&self) -> &BurstRttEstimator {
        &self.round_trip
    }

    pub(super) fn rate(&self) -> f64 {
        self.model.rate()
    }

    /// See [`Metrics::link_rate`](rate::Metrics::link_rate).
    pub(super) fn link_rate(&self) -> f64 {
        self.model.metrics().link_rate
    }

    pub(super) fn counts(&self) -> BurstSendCounts {
        self.counts
    }

    /// The number of consecutive retransmission timeouts.
    pub(super) fn timeouts(&self) -> u32 {
        self.timeouts
    }

    /// Since when the peer's window blocks sending.
    pub(super) fn stalled_since(&self) -> Option<Duration> {
        self.stalled_since
    }

    /// The number of the next packet.
    pub(super) fn next_number(&self) -> u64 {
        self.flight.next_number()
    }

    /// Where the written stream ends; its end counts as one byte.
    fn end(&self) -> u64 {
        self.buffer.written_to() + u64::from(self.is_finished)
    }

    /// Whether the peer's window blocks new data.
    fn is_blocked(&self) -> bool {
        self.unsent() > 0
            && self.next >= self.window.min(self.buffer.written_to())
            && self.next < self.buffer.written_to()
    }

    /// Handles an acknowledgement. Calls `arrived` with the content of packets other than those of
    /// the stream. Returns whether the acknowledgement is valid.
    pub(super) fn handle_ack(
        &mut self,
        now: Duration,
        ack: &BurstAckFrame<'_>,
        mut arrived: impl FnMut(BurstPacketContent),
    ) -> bool {
        if ack.stream_end > self.next {
            return false;
        }
        let lost = &mut self.lost;
        let summary = self.flight.acknowledge(ack, |content| match content {
            BurstPacketContent::Stream { offset, .. } => {
                lost.remove(&offset);
            }
            other => arrived(other),
        });
        let Some(summary) = summary else { return false };
        if ack.window > self.window {
            self.window = ack.window;
            self.stalled_since = None;
        }
        if ack.stream_end > self.acked_to {
            self.acked_to = ack.stream_end;
            self.buffer.acknowledge(ack.stream_end);
            // If the end is acknowledged, `acked_to` exceeds every offset in `lost`.
            self.lost = self.lost.split_off(&self.acked_to);
        }
        let delay = Duration::from_micros(ack.delay_us.into()).min(MAX_ACK_DELAY * 2);
        let sent_at = summary.largest_sent_at.filter(|at| *at >= self.path_changed_at);
        let round_trip = sent_at.map(|at| {
            let measured = now.saturating_sub(at);
            measured.saturating_sub(delay.min(measured / 2)).max(Duration::from_micros(1))
        });
        if let Some(round_trip) = round_trip {
            self.round_trip.add(round_trip);
        }
        if let Some(newest) = summary.newest {
            self.timeouts = 0;
            self.probes = 0;
            self.repairs.on_arrived(summary.packets);
            let acked = rate::BurstAckEvent {
                newest,
                packets: summary.packets,
                bytes: summary.bytes,
                received_at: Duration::from_micros(ack.arrived_at_us),
                round_trip: round_trip.unwrap_or(self.round_trip.longest()),
            };
            self.model.on_ack(now, &acked);
            if let Some(rate) = ack.train_rate {
                self.model.on_train(rate);
            }
        }
        self.detect_losses(now);
        true
    }

    /// Detects lost packets.
    fn detect_losses(&mut self, now: Duration) {
        let (lost, acked_to) = (&mut self.lost, self.acked_to);
        let summary = self.flight.detect_losses(now, &self.round_trip, |content| {
            if let BurstPacketContent::Stream { offset, len } = content
                && offset + u64::from(len).max(1) > acked_to
            {
                lost.insert(offset, len);
            }
        });
        if let Some(newest) = summary.newest {
            self.repairs.on_lost(summary.packets);
            let lost =
                rate::BurstLossEvent { newest, packets: summary.packets, bytes: summary.bytes };
            self.model.on_loss(now, &lost);
        }
    }

    /// Handles timers that are due.
    pub(super) fn handle_timeout(&mut self, now: Duration) {
        if self.flight.loss_at(&self.round_trip).is_some_and(|at| now >= at) {
            self.detect_losses(now);
        }
        if self.probe_at().is_some_and(|at| now >= at) {
            self.timeouts += 1;
            self.probes = 2;
            self.eliciting_at = now;
        }
    }

    /// When a probe packet is sent because nothing was acknowledged.
    fn probe_at(&self) -> Option<Duration> {
        let waits = self.flight.has_outstanding() || self.is_blocked();
        waits.then(|| self.eliciting_at + self.round_trip.timeout(self.timeouts))
    }

    /// When the next call of [`handle_timeout`](Self::handle_timeout) or
    /// [`poll_transmit`](Self::poll_transmit) is due.
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        let loss_at = self.flight.loss_at(&self.round_trip);
        let send_at = if self.probes > 0 {
            Some(Duration::ZERO)
        } else {
            let (rate, train) = (self.model.rate(), train(&self.model));
            self.wants_to_send().then(|| self.pacer.ready_at(rate, train))
        };
        [loss_at, self.probe_at(), send_at].into_iter().flatten().min()
    }

    /// Whether there is something to send, and the window allows it.
    fn wants_to_send(&self) -> bool {
        let is_new = self.unsent() > 0 && !self.is_blocked();
        (is_new || !self.lost.is_empty() || self.repairs.is_ready())
            && self.model.in_flight() < self.model.window()
    }

    /// Writes the frame that is to be sent now, if any, in at most `max_len` bytes.
    pub(super) fn poll_transmit(
        &mut self,
        now: Duration,
        max_len: usize,
        frames: &mut Vec<u8>,
    ) -> Option<BurstPacketContent> {
        if self.probes > 0 {
            self.probes -= 1;
            return Some(self.write_probe(max_len, frames));
        }
        if !self.wants_to_send() {
            if self.is_blocked() {
                self.stalled_since.get_or_insert(now);
            }
            if self.model.in_flight() < self.model.window() {
                self.model.on_idle();
            }
            return None;
        }
        let (rate, train) = (self.model.rate(), train(&self.model));
        if !self.pacer.may_send(now, rate, train) {
            return None;
        }
        if let Some((offset, len)) = self.lost.pop_first() {
            return Some(self.write_repeated(offset, len, max_len, frames));
        }
        if self.repairs.write_ready(frames) {
            self.counts.repeated += 1;
            return Some(BurstPacketContent::Repair);
        }
        Some(self.write_new(max_len, frames))
    }

    /// Writes new bytes of the stream, or its end.
    fn write_new(&mut self, max_len: usize, frames: &mut Vec<u8>) -> BurstPacketContent {
        let written_to = self.buffer.written_to();
        let offset = self.next;
        let limit = written_to.min(self.window).saturating_sub(offset);
        let protected =
            self.model.rate() * REPAIRED_ROUND_TRIPS * self.round_trip.expected().as_secs_f64();
        let is_tail = bytes_f64(usize::try_from(self.unsent()).unwrap_or(usize::MAX)) < protected;
        // A repair symbol is as long as the data that it protects.
        let overhead = if is_tail { REPAIR_OVERHEAD } else { STREAM_OVERHEAD };
        let longest = max_len - overhead;
        let len = usize::try_from(limit).unwrap_or(usize::MAX).min(longest);
        let content = self.write_stream(offset, len, frames);
        self.next += len as u64;
        let is_end = self.is_finished && self.next == written_to;
        self.next += u64::from(is_end);
        self.counts.packets += 1;
        let is_last = len < longest || self.unsent() == 0;
        if len > 0 {
            let chunk = repairs::NewStreamChunk { offset, len, longest, is_end };
            self.repairs.on_sent(&chunk, is_tail, is_last, protected, &self.buffer);
        }
        content
    }

    fn write_repeated(
        &mut self,
        offset: u64,
        len: u16,
        max_len: usize,
        frames: &mut Vec<u8>,
    ) -> BurstPacketContent {
        self.counts.repeated += 1;
        // The path MTU may have shrunk since.
        let fit = usize::from(len).min(max_len - STREAM_OVERHEAD);
        if let Ok(rest) = u16::try_from(usize::from(len) - fit)
            && rest > 0
        {
            self.lost.insert(offset + fit as u64, rest);
        }
        self.write_stream(offset, fit, frames)
    }

    fn write_stream(
        &mut self,
        offset: u64,
        len: usize,
        frames: &mut Vec<u8>,
    ) -> BurstPacketContent {
        let end = offset + len as u64;
        let written_to = self.buffer.written_to();
        let is_end = self.is_finished && end == written_to;
        // The last packet for now is to be acknowledged at once.
        let is_urgent = end == written_to && self.lost.is_empty();
        // Only trains that are long enough are measured.
        let is_first = self.pacer.take_first() && self.model.burst() >= MEASURED_TRAIN;
        frame::write_stream(offset, StreamFrameFlags { is_end, is_urgent, is_first }, frames);
        let start = frames.len();
        frames.resize(start + len, 0);
        self.buffer.copy(offset, &mut frames[start..]);
        BurstPacketContent::Stream { offset, len: u16::try_from(len).unwrap_or(u16::MAX) }
    }

    /// Writes a probe packet, sent because nothing was acknowledged: the oldest unacknowledged
    /// bytes, or new ones.
    fn write_probe(&mut self, max_len: usize, frames: &mut Vec<u8>) -> BurstPacketContent {
        if let Some((offset, len)) = self.lost.pop_first() {
            return self.write_repeated(offset, len, max_len, frames);
        }
        if let Some((offset, len)) = self.flight.oldest_stream()
            && offset + u64::from(len) >= self.acked_to
        {
            return self.write_repeated(offset, len, max_len, frames);
        }
        if self.unsent() > 0 && !self.is_blocked() {
            return self.write_new(max_len, frames);
        }
        frame::write_ping(frames);
        BurstPacketContent::Control
    }

    /// Records that the next packet is sent, with this number of bytes.
    pub(super) fn on_sent(&mut self, now: Duration, bytes: usize, content: BurstPacketContent) {
        let counts = match content {
            BurstPacketContent::Nothing | BurstPacketContent::MtuProbe(_) => false,
            BurstPacketContent::Stream { .. } | BurstPacketContent::Repair => {
                self.pacer.on_sent(bytes);
                true
            }
            BurstPacketContent::Control | BurstPacketContent::TrainReport => true,
        };
        let model = counts.then(|| self.model.on_sent(now, bytes));
        if content != BurstPacketContent::Nothing {
            self.eliciting_at = now;
        }
        self.flight.push(now, bytes, content, model);
    }
}

/// The length of a train in bytes.
fn train(model: &rate::BurstCongestionModel) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a number of bytes")]
    let train = model.burst() as f64;
    train
}
