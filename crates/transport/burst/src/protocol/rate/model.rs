//! The model: how fast to send, and how much may be in flight.

use std::collections::VecDeque;
use std::time::Duration;

use super::growth::CubicGrowth;
use super::losses::{CongestionLossDetector, NOISE};
use super::path::{DeliveryRateSample, DeliverySnapshot, PathMeasurements};
use super::reports::{BurstAckEvent, BurstCongestionMetrics, BurstLossEvent, PacketSendState};

/// The packets of the first round trip if there is no rate to start at.
const INITIAL_PACKETS: u64 = 64;

/// The smallest window, in packets.
const MIN_WINDOW: u64 = 4;

/// Packets that may be in flight besides the window that is computed.
const WINDOW_SLACK: u64 = 8;

/// By how much a measured train may raise the rate above what is known to be delivered.
const MAX_TRAIN_GAIN: f64 = 16.0;

/// The rate is the median of so many trains.
const TRAINS: usize = 5;

/// The gains of a pulse: it measures whether the path carries more, and then drains its queue.
const PULSE_GAINS: [f64; 2] = [1.25, 0.75];

/// The gain while a queue is drained, and from then until the effect is known.
const DRAIN_GAIN: f64 = 0.5;
const DRAINED_GAIN: f64 = 0.95;

/// So often a queue is drained before others are taken to fill it.
const MAX_DRAINS: u32 = 3;

/// The gain of a window that TCP's would be like: acknowledgements, not the pace, limit it.
const COMPETE_GAIN: f64 = 1.2;

/// So many decreases that did not help show that others do not yield.
const MAX_INEFFECTIVE_DECREASES: u32 = 4;

/// The loss of which less than a half is accepted from those who do not yield.
const MAX_LOSS: f64 = 0.25;

#[derive(Clone, Copy, Debug, PartialEq)]
enum BurstCongestionPhase {
    /// The rate is multiplied with the gain as long as what was sent since `since` arrives as fast.
    Start { gain: f64, since: Duration },
    /// Half as much is sent until a time, which empties the queue if it is only our own. The rate
    /// was measured with packets sent before `measured`.
    Drain { until: Duration, attempt: u32, measured: Option<Duration> },
    /// The rate is what the path delivers; pulses measure whether it is more.
    Cruise,
    /// A queue that others fill: a window as TCP's, which shrinks if the queue overflows.
    Compete,
    /// As `Compete`, but less is sent between two times, to see whether the queue then shrinks;
    /// the delay of the packets before.
    QueueProbe { began: Duration, until: Duration, queue: Option<Duration> },
    /// Others yield neither to delay nor to loss: the rate is what the path delivers.
    HoldRate { until: Duration },
}

/// The congestion model of a direction. It is told of each packet that is sent, acknowledged or
/// lost.
#[derive(Debug)]
pub struct BurstCongestionModel {
    /// The length of the longest datagram, in bytes.
    datagram: u64,
    phase: BurstCongestionPhase,
    path: PathMeasurements,
    sent: u64,
    delivered: u64,
    in_flight: u64,
    /// Packets sent before so many bytes are delivered measure the application.
    limited_until: u64,
    /// Where the rate started, in bytes/s; 0 before it is known.
    start: f64,
    /// bytes/s, without the gain.
    rate: f64,
    gain: f64,
    /// In bytes, while competing.
    window: f64,
    /// In bytes. What was lost is not yet known to be: it must not keep from sending.
    drain_window: f64,
    /// The fastest delivery in this cycle of a pulse and the two before, in bytes/s.
    delivery_rates: [f64; 3],
    cycle_began: Duration,
    cycles: u64,
    /// The latest rates of trains, in bytes/s.
    trains: VecDeque<f64>,
    /// The highest rate that several of them had, in bytes/s; 0 if there were too few.
    link_rate: f64,
    /// A round trip ends with a packet that was sent after so many bytes.
    round_end: u64,
    losses: CongestionLossDetector,
    /// Congestion of packets sent before has been responded to.
    responded_at: Duration,
    /// The time of a response to congestion.
    decrease_at: Option<Duration>,
    /// How the rate or the window grows after that.
    growth: Option<CubicGrowth>,
    /// The decreases that did not help, and the rate before them.
    ineffective_decreases: u32,
    rate_before_contention: f64,
    last_queue_probe: Duration,
    now: Duration,
}

impl BurstCongestionModel {
    /// A model that starts at the given rate in bytes/s if there is one. The longest datagram has
    /// so many bytes.
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

    /// A packet is sent.
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

    /// There is nothing to send, although [`rate`](Self::rate) and [`window`](Self::window) allow
    /// it.
    pub fn on_idle(&mut self) {
        self.limited_until = self.delivered + self.in_flight.max(1);
    }

    /// Whether there is a rate: it was given, or something is acknowledged.
    pub fn is_started(&self) -> bool {
        self.start > 0.0
    }

    /// Starts at this rate in bytes/s, though something is sent already.
    pub fn start(&mut self, rate: f64) {
        (self.start, self.rate) = (rate, rate);
        self.phase = BurstCongestionPhase::Start { gain: PULSE_GAINS[0], since: self.now };
    }

    /// The peer has measured this rate of a train of packets that were sent without gaps.
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

    /// Packets are acknowledged.
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

    /// Packets are lost.
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
            // In the meantime the rate of delivery may show that the path has changed.
            self.decrease_at = Some(now + self.path.span());
        }
    }

    /// How fast to send, in bytes/s.
    pub fn rate(&self) -> f64 {
        let smoothed = self.smoothed().as_secs_f64();
        if smoothed == 0.0 {
            // Without a rate to start at the first packets are a train.
            return if self.rate > 0.0 { self.rate } else { f64::MAX };
        }
        (self.rate * self.gain).max((MIN_WINDOW * self.datagram) as f64 / smoothed)
    }

    /// How many bytes may be in flight.
    pub fn window(&self) -> u64 {
        let Some(least) = self.path.min_rtt() else {
            // A second at the rate: no round trip is known.
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

    /// How many bytes to send without gaps before a pause: half a millisecond's. In the beginning
    /// at least 16 packets, so that the receiver can measure them as a train.
    pub fn burst(&self) -> u64 {
        let bytes = to_bytes(self.rate() * 0.5e-3);
        let train = (16 * self.datagram) as f64 / self.rate();
        let is_short = train < self.path.span().as_secs_f64().max(0.016) / 8.0;
        let is_train = matches!(self.phase, BurstCongestionPhase::Start { .. })
            && (self.cycles == 0 || is_short);
        bytes.clamp(if is_train { 16 } else { 1 } * self.datagram, 64 * self.datagram)
    }

    /// The bytes that are sent and neither acknowledged nor lost.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// What the model believes.
    pub fn metrics(&self) -> BurstCongestionMetrics {
        BurstCongestionMetrics {
            phase: match self.phase {
                BurstCongestionPhase::Start { .. } => "start",
                BurstCongestionPhase::Drain { .. } => "drain",
                BurstCongestionPhase::Cruise => "cruise",
                BurstCongestionPhase::Compete => "compete",
                BurstCongestionPhase::QueueProbe { .. } => "dip",
                BurstCongestionPhase::HoldRate { .. } => "insist",
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

    /// The longest delay in the queue that is not drained.
    fn queue_bound(&self) -> Duration {
        Duration::from_millis(10).max(self.path.min_rtt().unwrap_or_default() / 8)
    }

    /// A window in packets.
    fn in_packets(&self, window: f64) -> f64 {
        window / self.datagram as f64
    }

    /// Counts packets, of which some are lost.
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

    /// Does what depends on the time alone.
    fn on_time(&mut self, now: Duration) {
        self.now = now;
        self.gain = match self.phase {
            BurstCongestionPhase::Start { .. } => 1.0,
            BurstCongestionPhase::Drain { until, .. } if now < until => DRAIN_GAIN,
            BurstCongestionPhase::Drain { .. } => DRAINED_GAIN,
            BurstCongestionPhase::HoldRate { until } => {
                if now > until || self.losses.smoothed() < NOISE / 2.0 {
                    (self.phase, self.rate_before_contention) =
                        (BurstCongestionPhase::Cruise, self.rate);
                    // Half as many decreases show whether the others are still there.
                    self.ineffective_decreases = MAX_INEFFECTIVE_DECREASES / 2;
                }
                self.pulse(now)
            }
            BurstCongestionPhase::Cruise => match self.growth {
                Some(growth) => {
                    self.rate = growth.at(now);
                    if growth.is_over(now) {
                        (self.growth, self.cycle_began) = (None, now);
                    }
                    1.0
                }
                None => self.pulse(now),
            },
            BurstCongestionPhase::Compete => {
                let (window, smoothed) = (self.window, self.smoothed());
                let packets = self.in_packets(window);
                let growth = self
                    .growth
                    .get_or_insert_with(|| CubicGrowth::at_level(now, window, packets, smoothed));
                self.window = growth.at(now);
                self.rate = self.window / smoothed.as_secs_f64().max(1e-6);
                if now > self.last_queue_probe + Duration::from_secs(2).max(smoothed * 10) {
                    let until = now + Duration::from_millis(20).max(smoothed / 2);
                    self.phase =
                        BurstCongestionPhase::QueueProbe { began: now, until, queue: None };
                    self.last_queue_probe = now;
                }
                COMPETE_GAIN
            }
            BurstCongestionPhase::QueueProbe { until, .. } if now < until => DRAIN_GAIN,
            BurstCongestionPhase::QueueProbe { .. } => COMPETE_GAIN,
        };
    }

    /// The gain at this point of a cycle, which has one pulse.
    fn pulse(&mut self, now: Duration) -> f64 {
        let span = self.path.span();
        if now > self.cycle_began + self.smoothed() + span * 4 {
            self.end_cycle(now);
        }
        let since = now.saturating_sub(self.cycle_began);
        if since < span {
            PULSE_GAINS[0]
        } else if since < span * 2 {
            PULSE_GAINS[1]
        } else {
            1.0
        }
    }

    fn end_cycle(&mut self, now: Duration) {
        self.cycle_began = now;
        let [latest, ..] = self.delivery_rates;
        if latest > 1.15 * self.rate && self.phase == BurstCongestionPhase::Cruise {
            // The path carries the pulse: it may carry much more.
            self.rate = latest;
            self.trains.clear();
            self.phase = BurstCongestionPhase::Start { gain: 1.5, since: now };
        } else if self.delivery_rate() > 0.0 {
            self.rate = self.delivery_rate();
        }
        self.delivery_rates.rotate_right(1);
        self.delivery_rates[0] = 0.0;
    }

    fn on_sample(&mut self, now: Duration, sample: &DeliveryRateSample, is_limited: bool) {
        match self.phase {
            BurstCongestionPhase::Start { gain, since } => {
                if self.is_overloaded(sample) {
                    self.growth = None;
                    self.slow_down(now, sample);
                } else if sample.first_sent_at >= since && sample.sent_rate > 0.7 * self.rate {
                    self.grow(now, gain, sample);
                }
            }
            BurstCongestionPhase::Cruise if self.is_overloaded(sample) => {
                // Hardly less arrives: the rate was measured too high, and the queue is our own. A
                // little less: others came. Much: the path has changed.
                let others = (0.8..0.95).contains(&(sample.rate / self.rate));
                self.growth = others.then(|| {
                    let window = self.rate * self.smoothed().as_secs_f64();
                    CubicGrowth::new(now, self.rate, self.in_packets(window), self.smoothed())
                });
                self.slow_down(now, sample);
            }
            BurstCongestionPhase::Drain { until, attempt, measured: Some(sent_at) }
                if sample.first_sent_at >= sent_at && !is_limited =>
            {
                // The packets of the earlier measurement were in part sent on an empty queue.
                self.delivery_rates = [sample.rate, 0.0, 0.0];
                self.rate = sample.rate;
                self.phase = BurstCongestionPhase::Drain { until, attempt, measured: None };
            }
            BurstCongestionPhase::Drain { until, attempt, .. } if sample.last_sent_at >= until => {
                if sample.queue <= self.queue_bound() / 2 {
                    self.rate = self.delivery_rate();
                    self.cruise(now);
                } else if attempt < MAX_DRAINS {
                    self.drain(now, sample.queue, attempt + 1, None);
                } else {
                    self.compete(now);
                }
            }
            BurstCongestionPhase::QueueProbe { began, until, queue } => {
                if let Some(queue) = queue
                    && sample.last_sent_at >= until
                {
                    self.end_queue_probe(now, until.saturating_sub(began), queue, sample);
                } else if queue.is_none() && sample.last_sent_at >= began {
                    self.phase = BurstCongestionPhase::QueueProbe {
                        began,
                        until,
                        queue: Some(sample.queue),
                    };
                }
            }
            BurstCongestionPhase::Cruise
            | BurstCongestionPhase::Drain { .. }
            | BurstCongestionPhase::Compete
            | BurstCongestionPhase::HoldRate { .. } => {}
        }
    }

    /// Whether packets arrive more slowly than they were sent, and the queue is long or overflows.
    fn is_overloaded(&self, sample: &DeliveryRateSample) -> bool {
        let is_lossy = sample.missing >= 8 * self.datagram
            && sample.missing as f64 > 2.5 * self.losses.noise() * sample.sent as f64;
        sample.first_sent_at >= self.responded_at
            && sample.rate < 0.9 * sample.sent_rate
            && (sample.queue > self.queue_bound() || is_lossy)
    }

    /// What was sent at the rate has arrived: multiplies it.
    fn grow(&mut self, now: Duration, gain: f64, sample: &DeliveryRateSample) {
        let most = self.train_rate().map_or(f64::INFINITY, |rate| 0.98 * rate);
        if sample.rate < 0.9 * sample.sent_rate || sample.queue > self.queue_bound() / 2 {
            self.slow_down(now, sample);
        } else if most < 1.1 * self.rate {
            self.rate = self.rate.max(most);
            self.cruise(now);
        } else {
            self.rate = (sample.rate * gain).min(most).max(self.rate);
            self.phase =
                BurstCongestionPhase::Start { gain: (gain * PULSE_GAINS[0]).min(2.0), since: now };
        }
    }

    /// The path delivers less than is sent.
    fn slow_down(&mut self, now: Duration, sample: &DeliveryRateSample) {
        self.rate = sample.rate;
        self.delivery_rates = [sample.rate, 0.0, 0.0];
        (self.responded_at, self.decrease_at) = (now, None);
        self.drain(now, sample.queue, 1, Some(sample.last_sent_at));
    }

    fn drain(&mut self, now: Duration, queue: Duration, attempt: u32, measured: Option<Duration>) {
        let until = now + queue.div_f64(1.0 - DRAIN_GAIN);
        self.phase = BurstCongestionPhase::Drain { until, attempt, measured };
        let least = self.path.min_rtt().unwrap_or_default();
        self.drain_window = self.in_flight as f64 + self.rate * least.as_secs_f64();
    }

    fn cruise(&mut self, now: Duration) {
        self.phase = BurstCongestionPhase::Cruise;
        self.cycles += 1;
        self.cycle_began = now;
    }

    fn compete(&mut self, now: Duration) {
        self.phase = BurstCongestionPhase::Compete;
        self.window = self.rate * self.smoothed().as_secs_f64();
        self.growth = None;
        self.last_queue_probe = now;
    }

    /// The queue that is only our own shrinks by half of the time in which half as much is sent.
    fn end_queue_probe(
        &mut self,
        now: Duration,
        duration: Duration,
        before: Duration,
        sample: &DeliveryRateSample,
    ) {
        let is_ours = before.saturating_sub(self.path.queue()) > duration * 3 / 8;
        if is_ours || sample.queue < self.queue_bound() / 4 {
            self.growth = None;
            self.slow_down(now, sample);
        } else {
            self.phase = BurstCongestionPhase::Compete;
        }
    }

    /// The queue has overflowed.
    fn decrease(&mut self, now: Duration) {
        let since = self.losses.take_since_response();
        let is_still_long = since.part_in_long_queue() >= 0.4;
        let is_early = self.growth.is_some_and(|growth| growth.part(now) < 0.6);
        if is_early
            && self.phase == BurstCongestionPhase::Cruise
            && self.losses.accept_as_noise(&since)
        {
            // As much is lost though less is sent: it is not our doing.
            self.rate = self.rate_before_contention.max(self.rate);
            (self.responded_at, self.decrease_at, self.growth) = (now, None, None);
            self.cycle_began = now;
            return;
        }
        if is_early && is_still_long {
            self.ineffective_decreases += 1;
        } else {
            self.ineffective_decreases = self.ineffective_decreases.saturating_sub(1);
            if self.ineffective_decreases == 0 {
                self.rate_before_contention = self.rate;
            }
        }
        (self.responded_at, self.decrease_at) = (now, None);
        let smoothed = self.smoothed();
        if self.ineffective_decreases >= MAX_INEFFECTIVE_DECREASES {
            self.rate = self.rate_before_contention;
            self.delivery_rates = [0.0; 3];
            self.growth = None;
            self.phase = BurstCongestionPhase::HoldRate {
                until: now + Duration::from_secs(20).max(smoothed * 100),
            };
            self.cycle_began = now;
            return;
        }
        let packets = self.in_packets(self.rate * smoothed.as_secs_f64());
        let level = if self.phase == BurstCongestionPhase::Cruise {
            self.rate
        } else {
            self.phase = BurstCongestionPhase::Compete;
            self.window
        };
        self.growth = Some(match self.growth {
            Some(earlier) => earlier.restart(now, level, packets, smoothed),
            None => CubicGrowth::new(now, level, packets, smoothed),
        });
        self.on_time(now);
    }
}

/// Bytes, at most 2^63.
fn to_bytes(bytes: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
    let bytes = bytes.clamp(0.0, 9e18) as u64;
    bytes
}
