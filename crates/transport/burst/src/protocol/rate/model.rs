//! The congestion model: the sending rate, and the bytes that may be in flight.

mod phases;

use std::collections::VecDeque;
use std::time::Duration;

use super::growth::CubicGrowth;
use super::losses::CongestionLossDetector;
use super::path::{DeliverySnapshot, PathMeasurements};
use super::reports::{BurstAckEvent, BurstCongestionMetrics, BurstLossEvent, PacketSendState};
use phases::BurstCongestionPhase;

/// The packets sent in the first round trip if there is no initial rate.
const INITIAL_PACKETS: u64 = 64;

/// The smallest congestion window, in packets.
const MIN_WINDOW: u64 = 4;

/// The packets that may be in flight in addition to the computed window.
const WINDOW_SLACK: u64 = 8;

/// The factor by which a measured train may raise the rate above the known delivery rate.
const MAX_TRAIN_GAIN: f64 = 16.0;

/// The rate of trains is the median of the latest ones, at most this many.
const TRAINS: usize = 5;

/// The pacing gains of a pulse: the first tests for more capacity, the second drains the queue.
const PULSE_GAINS: [f64; 2] = [1.25, 0.75];

/// While the rate is held against flows that do not yield, it falls only if loss exceeds this.
const MAX_LOSS: f64 = 0.25;

/// The congestion model of one direction.
#[derive(Debug)]
pub struct BurstCongestionModel {
    /// The length of the longest datagram, in bytes.
    datagram: u64,
    phase: BurstCongestionPhase,
    path: PathMeasurements,
    sent: u64,
    delivered: u64,
    in_flight: u64,
    /// Packets sent before `delivered` reaches this number of bytes are application-limited.
    limited_until: u64,
    /// The initial rate, in bytes/s; 0 before it is known.
    start: f64,
    /// In bytes/s, before the pacing gain.
    rate: f64,
    gain: f64,
    /// The congestion window while competing, in bytes.
    window: f64,
    /// The window while draining, in bytes. It includes what was in flight when the drain began:
    /// packets lost but not yet detected as lost must not block sending.
    drain_window: f64,
    /// The highest delivery rates in this pulse cycle and in the two before, in bytes/s.
    delivery_rates: [f64; 3],
    cycle_began: Duration,
    cycles: u64,
    /// The rates of the latest trains, in bytes/s.
    trains: VecDeque<f64>,
    /// The highest median rate of several trains, in bytes/s; 0 if there were too few.
    link_rate: f64,
    /// A round trip ends when a packet is acknowledged that was sent after this many bytes.
    round_end: u64,
    losses: CongestionLossDetector,
    /// Congestion seen by packets sent before this time has been responded to.
    responded_at: Duration,
    /// When a pending response to congestion is due.
    decrease_at: Option<Duration>,
    /// How the rate or the window grows after a decrease.
    growth: Option<CubicGrowth>,
    /// The number of decreases that had no effect, and the rate before them.
    ineffective_decreases: u32,
    rate_before_contention: f64,
    last_queue_probe: Duration,
    now: Duration,
}

impl BurstCongestionModel {
    /// A model with an initial rate in bytes/s, if known, for datagrams of up to `datagram` bytes.
    pub fn new(start: Option<f64>, datagram: usize) -> Self {
        let start = start.filter(|rate| rate.is_finite() && *rate > 0.0);
        let gain = if start.is_some() { PULSE_GAINS[0] } else { 2.0 };
        Self {
            datagram: (datagram as u64).max(1),
            phase: BurstCongestionPhase::Start { gain, since: Duration::ZERO },
            path: PathMeasurements::default(),
            sent: 0,
            delivered: 0,
            in_flight: 0,
            limited_until: 0,
            start: start.unwrap_or(0.0),
            rate: start.unwrap_or(0.0),
            gain: 1.0,
            window: 0.0,
            drain_window: 0.0,
            delivery_rates: [0.0; 3],
            cycle_began: Duration::ZERO,
            cycles: 0,
            trains: VecDeque::new(),
            link_rate: 0.0,
            round_end: 0,
            losses: CongestionLossDetector::default(),
            responded_at: Duration::ZERO,
            decrease_at: None,
            growth: None,
            ineffective_decreases: 0,
            rate_before_contention: 0.0,
            last_queue_probe: Duration::ZERO,
            now: Duration::ZERO,
        }
    }

    /// Records a packet that is sent.
    pub fn on_sent(&mut self, now: Duration, bytes: usize) -> PacketSendState {
        self.on_time(now);
        self.sent += bytes as u64;
        self.in_flight += bytes as u64;
        PacketSendState {
            at: now,
            total: self.sent,
            is_limited: self.delivered < self.limited_until,
        }
    }

    /// Records that there is nothing to send, although [`rate`](Self::rate) and
    /// [`window`](Self::window) allow it.
    pub fn on_idle(&mut self) {
        self.limited_until = self.delivered + self.in_flight.max(1);
    }

    /// Whether there is a rate: an initial one was set, or something was acknowledged.
    pub fn is_started(&self) -> bool {
        self.start > 0.0
    }

    /// Restarts at this rate in bytes/s, after packets have been sent.
    pub fn start(&mut self, rate: f64) {
        (self.start, self.rate) = (rate, rate);
        self.phase = BurstCongestionPhase::Start { gain: PULSE_GAINS[0], since: self.now };
    }

    /// Records the rate, measured by the peer, of a train of packets that were sent back to back.
    pub fn on_train(&mut self, rate: f64) {
        if !rate.is_finite() || rate <= 0.0 {
            return;
        }
        if self.trains.len() == TRAINS {
            self.trains.pop_front();
        }
        self.trains.push_back(rate);
        if self.trains.len() > TRAINS / 2 {
            self.link_rate = self.link_rate.max(self.train_rate().unwrap_or(0.0));
        }
        let (BurstCongestionPhase::Start { .. }, Some(measured)) = (self.phase, self.train_rate())
        else {
            return;
        };
        if self.start == 0.0 {
            return;
        }
        let most = MAX_TRAIN_GAIN * self.start.max(self.delivery_rate());
        let target = (0.9 * measured).min(most);
        let is_far = target > 1.2 * self.rate || self.rate > 1.3 * measured;
        if is_far {
            self.rate = target;
            self.phase = BurstCongestionPhase::Start { gain: PULSE_GAINS[0], since: self.now };
        }
    }

    /// Records acknowledged packets.
    pub fn on_ack(&mut self, now: Duration, acked: &BurstAckEvent) {
        self.in_flight = self.in_flight.saturating_sub(acked.bytes);
        self.delivered += acked.bytes;
        self.path.on_round_trip(now, acked.round_trip);
        if self.rate == 0.0 {
            let bytes = (INITIAL_PACKETS * self.datagram) as f64;
            self.start = bytes / self.smoothed().as_secs_f64();
            self.rate = self.start;
        }
        self.count(acked.newest.at, acked.packets, 0);
        let point = DeliverySnapshot {
            sent_at: acked.newest.at,
            received_at: acked.received_at,
            sent: acked.newest.total,
            delivered: self.delivered,
            round_trip: acked.round_trip,
        };
        if let Some(sample) = self.path.on_point(point, self.datagram) {
            if !acked.newest.is_limited || sample.rate > self.delivery_rate() {
                self.delivery_rates[0] = self.delivery_rates[0].max(sample.rate);
            }
            self.on_sample(now, &sample, acked.newest.is_limited);
        }
        if acked.newest.total > self.round_end {
            self.end_round();
        }
        if self.decrease_at.is_some_and(|at| now >= at) {
            self.decrease(now);
        }
        self.on_time(now);
    }

    /// Records lost packets.
    pub fn on_loss(&mut self, now: Duration, lost: &BurstLossEvent) {
        self.in_flight = self.in_flight.saturating_sub(lost.bytes);
        self.count(lost.newest.at, lost.packets, lost.packets);
        let is_ours = matches!(
            self.phase,
            BurstCongestionPhase::Cruise
                | BurstCongestionPhase::Compete
                | BurstCongestionPhase::QueueProbe { .. }
        );
        if is_ours
            && self.decrease_at.is_none()
            && lost.newest.at >= self.responded_at
            && self.losses.are_congestion()
        {
            // Until then, the delivery rate may show that the path has changed.
            self.decrease_at = Some(now + self.path.span());
        }
    }

    /// The sending rate, in bytes/s.
    pub fn rate(&self) -> f64 {
        let smoothed = self.smoothed().as_secs_f64();
        if smoothed == 0.0 {
            // Without an initial rate, the first packets form a train.
            return if self.rate > 0.0 { self.rate } else { f64::MAX };
        }
        (self.rate * self.gain).max((MIN_WINDOW * self.datagram) as f64 / smoothed)
    }

    /// The congestion window: the bytes that may be in flight.
    pub fn window(&self) -> u64 {
        let Some(least) = self.path.min_rtt() else {
            // One second at the rate, as no round trip is known.
            return to_bytes(self.rate).max(INITIAL_PACKETS * self.datagram);
        };
        let window = match self.phase {
            BurstCongestionPhase::Start { .. } => self.rate * (self.smoothed() * 2).as_secs_f64(),
            BurstCongestionPhase::Drain { .. } => self.drain_window,
            BurstCongestionPhase::Cruise => {
                PULSE_GAINS[0] * self.rate * (least + self.queue_bound() * 2).as_secs_f64()
            }
            BurstCongestionPhase::Compete | BurstCongestionPhase::QueueProbe { .. } => self.window,
            BurstCongestionPhase::HoldRate { .. } => 2.0 * self.rate * least.as_secs_f64(),
        };
        to_bytes(window).max(MIN_WINDOW * self.datagram) + WINDOW_SLACK * self.datagram
    }

    /// How many bytes to send back to back: half a millisecond's worth. At the start at least 16
    /// packets, so that the receiver can measure them as a train.
    pub fn burst(&self) -> u64 {
        let bytes = to_bytes(self.rate() * 0.5e-3);
        let train = (16 * self.datagram) as f64 / self.rate();
        let is_short = train < self.path.span().as_secs_f64().max(0.016) / 8.0;
        let is_train = matches!(self.phase, BurstCongestionPhase::Start { .. })
            && (self.cycles == 0 || is_short);
        bytes.clamp(if is_train { 16 } else { 1 } * self.datagram, 64 * self.datagram)
    }

    /// The bytes that were sent and are neither acknowledged nor lost.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// The state of the model.
    pub fn metrics(&self) -> BurstCongestionMetrics {
        BurstCongestionMetrics {
            phase: match self.phase {
                BurstCongestionPhase::Start { .. } => "start",
                BurstCongestionPhase::Drain { .. } => "drain",
                BurstCongestionPhase::Cruise => "cruise",
                BurstCongestionPhase::Compete => "compete",
                BurstCongestionPhase::QueueProbe { .. } => "queue probe",
                BurstCongestionPhase::HoldRate { .. } => "hold rate",
            },
            delivery_rate: self.delivery_rate(),
            link_rate: self.link_rate,
            round_trip: self.smoothed(),
            min_rtt: self.path.min_rtt().unwrap_or_default(),
            loss: self.losses.smoothed(),
        }
    }

    fn smoothed(&self) -> Duration {
        self.path.smoothed()
    }

    fn delivery_rate(&self) -> f64 {
        self.delivery_rates.into_iter().fold(0.0, f64::max)
    }

    fn train_rate(&self) -> Option<f64> {
        let mut sorted: Vec<f64> = self.trains.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied()
    }

    /// The queueing delay up to which the queue is not drained.
    fn queue_bound(&self) -> Duration {
        Duration::from_millis(10).max(self.path.min_rtt().unwrap_or_default() / 8)
    }

    /// Converts a window in bytes to packets.
    fn in_packets(&self, window: f64) -> f64 {
        window / self.datagram as f64
    }

    /// Counts acknowledged and lost packets for the loss detector.
    fn count(&mut self, sent_at: Duration, packets: u64, lost: u64) {
        let is_long = self.path.is_queue_nearly_full(self.path.queue());
        self.losses.add(packets, lost, is_long, sent_at > self.responded_at);
    }

    fn end_round(&mut self) {
        let loss = self.losses.end_round();
        if matches!(self.phase, BurstCongestionPhase::HoldRate { .. }) && loss > MAX_LOSS {
            self.delivery_rates = self.delivery_rates.map(|rate| 0.95 * rate);
        }
        self.round_end = self.sent;
    }
}

/// Bytes, at most 2^63.
fn to_bytes(bytes: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
    let bytes = bytes.clamp(0.0, 9e18) as u64;
    bytes
}
