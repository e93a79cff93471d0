//! A connection after its handshake: a stream in each direction.

mod receiving;
mod sending;
mod timers;

use std::time::Duration;

use super::arrivals::SabulArrivalMeter;
use super::congestion::{SabulCongestionControl, SabulCongestionMetrics};
use super::number;
use super::packet::SabulPacket;
use super::ranges::SabulNumberRanges;
use super::receive_buffer::SabulReceiveBuffer;
use super::round_trip::{SabulRttEstimator, SabulUnansweredAcks};
use super::send_buffer::SabulSendBuffer;
use super::session_parameters::SabulSessionParameters;
use timers::SabulTimers;

/// The interval of full acknowledgements (SYN).
const ACK_INTERVAL: Duration = Duration::from_millis(10);

/// How many times the shutdown is sent without a request from the peer.
const SHUTDOWNS: u32 = 3;

/// A waiting writer is not woken for less free space than this, in bytes.
const MIN_WRITABLE_ROOM: usize = 1 << 16;

/// How long the shutdown is repeated to a peer that may have missed it, in addition to three
/// response timeouts: the peer's own pauses are this long.
const SHUTDOWN_LINGER: Duration = Duration::from_secs(1);

/// How much later than the path's delays an acknowledgement may arrive before the oldest packet is
/// retransmitted: the interval of acknowledgements, and that of a repeated loss report.
const RETRANSMISSION_SLACK: Duration = Duration::from_millis(30);

/// A keepalive from the peer is answered if nothing was sent to it for this long. A peer that
/// receives keepalives has no reason to send its own.
const ANSWER_KEEP_ALIVE: Duration = Duration::from_secs(1);

/// The longest pause between two retransmissions of the oldest packet.
const MAX_RETRANSMISSION_PAUSE: Duration = Duration::from_secs(1);

/// For this many full acknowledgements, the round-trip time is measured here; afterwards the peer's
/// measurements are used. UDT4's smoothed value starts at 100 ms, of which each measurement
/// replaces 1/8, so that a long path would seem to have a queue.
const LOCAL_RTT_SAMPLES: u32 = 32;

/// Why a connection failed or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SabulConnectionError {
    /// Nothing was received from the peer for this long.
    #[error("the peer was silent for {} s", .0.as_secs())]
    Silent(Duration),
    /// The peer closed the connection before all of the stream had arrived.
    #[error("the peer closed the connection before all data had arrived")]
    Truncated,
    /// The peer closed the connection: written data does not arrive.
    #[error("the peer closed the connection")]
    Closed,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SabulReadOutcome {
    /// The number of bytes read, at least one.
    Bytes(usize),
    /// Nothing has arrived yet.
    Nothing,
    /// The peer has closed the stream: no more data follows.
    End,
}

/// A connection with a stream in each direction.
#[derive(Debug)]
pub struct SabulConnection {
    agreed: SabulSessionParameters,
    started_at: Duration,
    send: SabulSendBuffer,
    receive: SabulReceiveBuffer,
    congestion: Box<dyn SabulCongestionControl>,
    round_trip: SabulRttEstimator,
    /// The number of full acknowledgements for which the round-trip time is still measured here,
    /// and not by the peer.
    local_rtt_samples_left: u32,
    arrivals: SabulArrivalMeter,
    /// The peer's measurements in packets/s, smoothed. 0 if unknown.
    peer_arrival_speed: f64,
    capacity: f64,
    acks: SabulUnansweredAcks,
    /// The peer has confirmed the acknowledgement of all packets before this one.
    ack_confirmed_to: u64,
    /// The last full acknowledgement: its packet number, its window, and how often it was repeated.
    acknowledged: u64,
    announced_window: u64,
    ack_repetitions: u32,
    rates_sent_at: Option<Duration>,
    /// The number of full acknowledgements that contained the arrival speed.
    rates_sent: u32,
    packets_since_ack: u64,
    /// What is to be sent as soon as possible.
    due: DueControlPackets,
    /// When the last packet was sent.
    last_sent_at: Duration,
    timers: SabulTimers,
    /// When the next packet may be sent, in ns since `started_at`.
    next_send_ns: f64,
    last_received_at: Duration,
    phase: SabulConnectionPhase,
    statistics: SabulStatistics,
}

/// Control packets that are to be sent.
#[expect(clippy::struct_excessive_bools, reason = "each is due or not, whatever the others are")]
#[derive(Debug, Default)]
struct DueControlPackets {
    ack_of_ack: Option<u32>,
    /// Newly detected losses.
    losses: SabulNumberRanges,
    light_ack: bool,
    full_ack: bool,
    keep_alive: bool,
    shutdowns: u32,
    handshake: bool,
}

impl DueControlPackets {
    fn has_any(&self) -> bool {
        self.ack_of_ack.is_some()
            || !self.losses.is_empty()
            || self.light_ack
            || self.full_ack
            || self.keep_alive
            || self.shutdowns > 0
            || self.handshake
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SabulConnectionPhase {
    Open,
    /// Closed by the program; ends when the peer has acknowledged everything.
    Flushing,
    /// Everything was acknowledged and the shutdown was sent. Until then, the peer is answered.
    ShutDown {
        until: Duration,
    },
    /// Closed by the program, and over.
    Over,
    /// The peer has closed the connection. Until then its last acknowledgement, which may have been
    /// overtaken, is still accepted.
    PeerShutDown {
        until: Duration,
    },
    /// The peer has closed the connection, and it is over.
    ClosedByPeer,
    Failed(SabulConnectionError),
}

/// Counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SabulStatistics {
    /// Data packets that were sent for the first time.
    pub sent: u64,
    /// Data packets that were retransmitted.
    pub repeated: u64,
    /// Data packets that have arrived for the first time.
    pub received: u64,
    /// Data packets that were duplicates, or for which there was no space.
    pub useless: u64,
    /// Datagrams that are not valid packets of this connection.
    pub refused: u64,
}

impl SabulConnection {
    /// Creates a connection with the agreed parameters.
    pub(crate) fn new(
        agreed: SabulSessionParameters,
        congestion: Box<dyn SabulCongestionControl>,
        round_trip: Option<Duration>,
        now: Duration,
    ) -> Self {
        let first = number::first(agreed.first_number);
        let payload = agreed.max_payload();
        let mut measured = SabulRttEstimator::new();
        if let Some(sample) = round_trip {
            measured.add(sample);
        }
        Self {
            started_at: now,
            send: SabulSendBuffer::new(
                first,
                payload,
                agreed.send_buffer,
                u64::from(agreed.peer_window),
            ),
            receive: SabulReceiveBuffer::new(first, payload, u64::from(agreed.window)),
            congestion,
            round_trip: measured,
            local_rtt_samples_left: LOCAL_RTT_SAMPLES,
            arrivals: SabulArrivalMeter::default(),
            peer_arrival_speed: 0.0,
            capacity: 0.0,
            acks: SabulUnansweredAcks::default(),
            ack_confirmed_to: first,
            acknowledged: first,
            announced_window: u64::from(agreed.window),
            ack_repetitions: 0,
            rates_sent_at: None,
            rates_sent: 0,
            packets_since_ack: 0,
            due: DueControlPackets::default(),
            last_sent_at: now,
            timers: SabulTimers::new(now),
            next_send_ns: 0.0,
            last_received_at: now,
            phase: SabulConnectionPhase::Open,
            statistics: SabulStatistics::default(),
            agreed,
        }
    }

    /// Copies as many bytes of the stream to the send buffer as there is room for. Returns their
    /// number.
    ///
    /// # Errors
    /// If the connection has ended or was closed.
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, SabulConnectionError> {
        match self.phase {
            SabulConnectionPhase::Open => Ok(self.send.write(bytes)),
            SabulConnectionPhase::Failed(error) => Err(error),
            SabulConnectionPhase::Flushing
            | SabulConnectionPhase::ShutDown { .. }
            | SabulConnectionPhase::Over
            | SabulConnectionPhase::PeerShutDown { .. }
            | SabulConnectionPhase::ClosedByPeer => Err(SabulConnectionError::Closed),
        }
    }

    /// Reads bytes of the peer's stream.
    ///
    /// # Errors
    /// If the connection has failed, once all bytes that arrived before were read.
    pub fn read(
        &mut self,
        to: &mut [u8],
        now: Duration,
    ) -> Result<SabulReadOutcome, SabulConnectionError> {
        let len = self.receive.read(to);
        if len > 0 {
            self.announce_room(now);
            return Ok(SabulReadOutcome::Bytes(len));
        }
        match self.phase {
            SabulConnectionPhase::Failed(error) => Err(error),
            SabulConnectionPhase::PeerShutDown { .. } | SabulConnectionPhase::ClosedByPeer => {
                if self.receive.missing().is_empty() {
                    Ok(SabulReadOutcome::End)
                } else {
                    Err(SabulConnectionError::Truncated)
                }
            }
            SabulConnectionPhase::Open
            | SabulConnectionPhase::Flushing
            | SabulConnectionPhase::ShutDown { .. }
            | SabulConnectionPhase::Over => Ok(SabulReadOutcome::Nothing),
        }
    }

    /// How many bytes [`write`](Self::write) would accept.
    pub fn writable(&self) -> usize {
        if self.phase == SabulConnectionPhase::Open { self.send.room() } else { 0 }
    }

    /// Whether [`write`](Self::write) would accept enough bytes to wake a waiting writer.
    pub(crate) fn is_worth_waking_writer(&self) -> bool {
        self.writable() >= MIN_WRITABLE_ROOM.min(self.agreed.send_buffer / 2)
    }

    /// How many bytes [`read`](Self::read) would return.
    pub fn readable(&self) -> usize {
        self.receive.readable()
    }

    /// How many written bytes the peer has not acknowledged.
    pub(crate) fn unacknowledged(&self) -> u64 {
        self.send.len() as u64
    }

    /// Whether the peer has acknowledged everything that was written.
    pub fn is_flushed(&self) -> bool {
        self.send.is_empty()
    }

    /// Closes the connection after everything written has arrived.
    pub fn close(&mut self, now: Duration) {
        if self.phase == SabulConnectionPhase::Open {
            self.phase = SabulConnectionPhase::Flushing;
            self.end_flushing(now);
        }
    }

    /// Whether the peer sends nothing more, or nothing more can be written.
    pub(crate) fn has_ended(&self) -> bool {
        self.is_over() || matches!(self.phase, SabulConnectionPhase::PeerShutDown { .. })
    }

    /// Whether it has ended and needs no more datagrams or timeouts. Data that has arrived can
    /// still be read.
    pub fn is_over(&self) -> bool {
        matches!(
            self.phase,
            SabulConnectionPhase::Over
                | SabulConnectionPhase::ClosedByPeer
                | SabulConnectionPhase::Failed(_)
        )
    }

    /// The socket identifier of this end.
    pub fn socket(&self) -> u32 {
        self.agreed.socket
    }

    /// The error with which the connection failed.
    pub fn error(&self) -> Option<SabulConnectionError> {
        match self.phase {
            SabulConnectionPhase::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// The counters of the connection.
    pub fn statistics(&self) -> SabulStatistics {
        self.statistics
    }

    /// The smoothed round-trip time.
    pub fn round_trip(&self) -> Duration {
        self.round_trip.mean()
    }

    /// The sending rate in bytes of the stream per second; `None` if only the window limits it.
    pub(crate) fn rate_bytes_per_s(&self) -> Option<u64> {
        let interval_ns = self.congestion.limits().interval_ns;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let rate = (f64::from(self.agreed.max_payload()) * 1e9 / interval_ns) as u64;
        (interval_ns > 0.0).then_some(rate)
    }

    /// The state of the congestion control.
    pub fn congestion(&self) -> SabulCongestionMetrics {
        self.congestion.metrics()
    }

    /// The time of the next call of [`handle_timeout`](Self::handle_timeout), or of
    /// [`poll_transmit`](Self::poll_transmit) if that has more to send then.
    pub fn poll_timeout(&self) -> Option<Duration> {
        match self.phase {
            SabulConnectionPhase::Over
            | SabulConnectionPhase::ClosedByPeer
            | SabulConnectionPhase::Failed(_) => return None,
            _ if self.due.has_any() => return Some(self.started_at),
            SabulConnectionPhase::ShutDown { until }
            | SabulConnectionPhase::PeerShutDown { until } => return Some(until),
            SabulConnectionPhase::Open | SabulConnectionPhase::Flushing => {}
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let paced = self.send.has_packet(self.congestion.limits().window).then(|| {
            self.started_at + Duration::from_nanos(self.next_send_ns.ceil().max(0.0) as u64)
        });
        [paced, self.oldest_retransmission_at()]
            .into_iter()
            .flatten()
            .chain([self.timers.next()])
            .min()
    }

    /// Handles a datagram from the peer's address for this connection's socket.
    pub fn handle_datagram(&mut self, now: Duration, datagram: &[u8]) {
        self.handle_arrived(now, now, datagram);
    }

    /// Like [`handle_datagram`](Self::handle_datagram), for a datagram that arrived at
    /// `arrived_at`.
    pub fn handle_arrived(&mut self, now: Duration, arrived_at: Duration, datagram: &[u8]) {
        match SabulPacket::parse(datagram) {
            Some(packet) if packet.destination == self.agreed.socket => {
                self.handle_packet(now, arrived_at, &packet);
            }
            _ => self.statistics.refused += 1,
        }
    }

    /// Makes the connection send the listener's response.
    pub(crate) fn respond(&mut self) {
        self.due.handshake = true;
    }

    /// Handles timers that are due.
    pub fn handle_timeout(&mut self, now: Duration) {
        match self.phase {
            SabulConnectionPhase::Open | SabulConnectionPhase::Flushing => {}
            SabulConnectionPhase::ShutDown { until } if now >= until => {
                self.phase = SabulConnectionPhase::Over;
                return;
            }
            SabulConnectionPhase::PeerShutDown { until } if now >= until => {
                self.phase = SabulConnectionPhase::ClosedByPeer;
                return;
            }
            SabulConnectionPhase::ShutDown { .. }
            | SabulConnectionPhase::Over
            | SabulConnectionPhase::PeerShutDown { .. }
            | SabulConnectionPhase::ClosedByPeer
            | SabulConnectionPhase::Failed(_) => return,
        }
        if now.saturating_sub(self.last_received_at) >= self.agreed.silence {
            self.phase =
                SabulConnectionPhase::Failed(SabulConnectionError::Silent(self.agreed.silence));
            return;
        }
        if self.timers.take_acknowledge(now) {
            self.due.full_ack = true;
        }
        let interval = self.report_interval();
        for losses in self.timers.take_losses(now, self.receive.missing(), interval).iter() {
            self.due.losses.insert(losses);
        }
        if self.timers.take_tail_loss(now)
            && self.send.unacknowledged() > 0
            && !self.send.has_packet(self.congestion.limits().window)
        {
            // The last packets may be lost. Retransmitting one of them makes the peer answer.
            let last = self.send.next_number() - 1;
            self.send.mark_lost(last..last + 1, now);
        }
        if self.oldest_retransmission_at().is_some_and(|at| at <= now) {
            self.send.mark_lost_again(
                now.saturating_sub(self.round_trip.response_timeout() + RETRANSMISSION_SLACK),
            );
        }
        match self.timers.take_silence(now, self.round_trip.response_timeout()) {
            0 => {}
            _ if self.send.in_flight() == 0 => self.due.keep_alive = true,
            1 => {
                // UDT4 sends nothing while it waits for a packet that was lost twice. The last
                // packet makes it report what is missing.
                self.send.mark_lost_again(now.saturating_sub(self.round_trip.mean()));
                let last = self.send.next_number() - 1;
                self.send.mark_lost(last..last + 1, now);
            }
            _ => {
                self.send.mark_all_lost();
                self.congestion.on_timeout(now);
            }
        }
    }

    /// When the oldest packet counts as lost again. UDT4 reports a loss only once, so that nothing
    /// follows if the report, or the retransmitted packet, is lost.
    fn oldest_retransmission_at(&self) -> Option<Duration> {
        let (sent_at, repetitions) = self.send.oldest()?;
        let least = self.round_trip.response_timeout() + RETRANSMISSION_SLACK;
        let pause = least * (1 << repetitions.saturating_sub(1).min(6));
        Some(sent_at + pause.min(MAX_RETRANSMISSION_PAUSE).max(least))
    }

    /// Sends an acknowledgement if there is much free space after little was announced.
    fn announce_room(&mut self, now: Duration) {
        let capacity = u64::from(self.agreed.window);
        if self.announced_window < capacity / 4 && self.receive.window() >= capacity / 2 {
            self.timers.acknowledge(now, Duration::ZERO);
        }
    }

    fn end_flushing(&mut self, now: Duration) {
        if self.phase == SabulConnectionPhase::Flushing && self.send.is_empty() {
            self.due.full_ack = true;
            self.due.shutdowns = SHUTDOWNS;
            let until = now + 3 * self.round_trip.response_timeout() + SHUTDOWN_LINGER;
            self.phase = SabulConnectionPhase::ShutDown { until };
        }
    }
}
