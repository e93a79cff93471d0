//! UDT's own congestion control (Gu and Grossman 2007, section 3; the Transputation paper, B.2),
//! with fixes for defects of UDT4.
//!
//! Every 10 ms without congestion, the rate grows by a step that depends on the unused capacity of
//! the path, and not on the round-trip time. Congestion lowers the rate by a ninth, once in each
//! window of packets, and a few more times at random.
//!
//! Differences from UDT4:
//! - The interval between packets has fractions of a nanosecond. UDT4 rounds it up to whole
//!   microseconds, so that one loss at 10 Gbit/s costs 40 % of the rate.
//! - When slow start ends without a measured speed, the interval is the round-trip time divided by
//!   the window. UDT4 uses the inverse of that after a loss.
//! - Loss of less than [`RANDOM_LOSS_SHARE`] of the packets is not treated as congestion, unless
//!   the queue of the path grows.

#![expect(clippy::cast_precision_loss, reason = "estimates")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "conversions saturate"
)]

use std::time::Duration;

use super::delivery::SabulDeliveryMeter;
use super::{
    SabulAckEvent, SabulCongestionControl, SabulCongestionMetrics, SabulLossEvent, SabulSendLimits,
};

/// The interval of rate control (SYN).
const INTERVAL: Duration = Duration::from_millis(10);

/// The initial window, in packets.
const INITIAL_WINDOW: f64 = 64.0;

/// At least this many packets are sent in a round trip plus 10 ms.
const MIN_WINDOW: f64 = 2.0;

/// How much larger the window is than the packets in flight, in packets.
const SPARE_WINDOW: f64 = 16.0;

/// The interval between packets in slow start, in which the window limits the rate.
const SLOW_START_INTERVAL_NS: f64 = 1000.0;

/// The factor by which the interval grows when the rate is lowered by a ninth.
const DECREASE: f64 = 1.125;

/// The factor by which the interval grows after a timeout, when all packets are retransmitted.
const TIMEOUT_DECREASE: f64 = 2.0;

/// How often the rate is lowered at most for losses in one window of packets.
const MAX_DECREASES: u32 = 5;

/// The constants of the paper's formula for the growth of the rate: the smallest step, in packets
/// each 10 ms, and the factor of the step, in packets times bytes each 10 ms for each bit/s.
const MIN_STEP: f64 = 0.01;
const STEP_FACTOR: f64 = 1.5e-6;

/// The fraction of packets whose loss counts as random.
const RANDOM_LOSS_SHARE: f64 = 0.02;

/// Losses are congestion if they exceed random loss by this many standard deviations.
const SIGNIFICANT: f64 = 3.0;

/// The queue counts as growing if the smoothed round-trip time exceeds the min RTT by more than
/// this, and by more than this fraction of it.
const QUEUE: Duration = Duration::from_millis(10);
const QUEUE_PART: u32 = 8;

/// In slow start, the measured speed is the path's rate if the window is less than the first
/// fraction of what the path holds, because packets sent together arrive at the path's rate; or if
/// it is more than the second, because the path is full.
const PATH_BURST_SHARE: f64 = 0.5;
const PATH_FULL_SHARE: f64 = 1.5;

/// Without a queue on the path, the rate grows by at least this fraction each round trip. Packet
/// pairs measure the unused capacity, but are useless where devices and kernels handle packets in
/// batches.
const MIN_GROWTH: f64 = 1.0 / 16.0;

/// The minimum growth does not apply if the rate exceeds the peer's arrival rate by this factor.
const MAX_AHEAD: f64 = 1.15;

/// The window is what is sent in this many round trips: a packet that is lost twice blocks the
/// acknowledgement of later packets for that long.
const WINDOW_ROUND_TRIPS: u32 = 4;

/// UDT's own congestion control.
#[derive(Debug)]
pub struct UdtCongestionControl {
    interval_ns: f64,
    /// The longest interval.
    max_interval_ns: f64,
    window: f64,
    max_window: f64,
    /// The length of a packet with all headers, in bytes.
    packet_len: f64,
    in_slow_start: bool,
    /// Whether packets were lost since the rate was last raised.
    has_loss: bool,
    /// Whether nothing was acknowledged since the last timeout lowered the rate.
    has_timed_out: bool,
    raised_at: Duration,
    /// The next packet number when the rate was last lowered: losses before it belong to the same
    /// congestion event.
    decreased_at: u64,
    /// The interval before the rate was last lowered.
    interval_before_ns: f64,
    /// The loss reports since then, their average number, and the number after which the rate is
    /// lowered again.
    reports: u32,
    average_reports: f64,
    reports_to_decrease: u32,
    decreases: u32,
    delivery: SabulDeliveryMeter,
    /// Packets sent and lost, exponentially weighted.
    sent: f64,
    lost: f64,
    random: u64,
}

impl UdtCongestionControl {
    /// Creates a congestion control for packets of `packet_len` bytes, with all headers, of which
    /// at most `max_window` may be unacknowledged. `seed` may be any number.
    pub fn new(packet_len: u16, max_window: u64, seed: u64) -> Self {
        Self {
            interval_ns: SLOW_START_INTERVAL_NS,
            max_interval_ns: INTERVAL.as_nanos() as f64,
            window: INITIAL_WINDOW,
            max_window: max_window as f64,
            packet_len: f64::from(packet_len),
            in_slow_start: true,
            has_loss: false,
            has_timed_out: false,
            raised_at: Duration::ZERO,
            decreased_at: 0,
            interval_before_ns: SLOW_START_INTERVAL_NS,
            reports: 0,
            average_reports: 1.0,
            reports_to_decrease: 1,
            decreases: 0,
            delivery: SabulDeliveryMeter::default(),
            sent: 0.0,
            lost: 0.0,
            random: seed | 1,
        }
    }

    /// Ends slow start. The rate becomes `speed`, the peer's arrival rate in packets/s; 0 if
    /// unknown.
    fn end_slow_start(&mut self, round_trip: Duration, speed: f64) {
        self.in_slow_start = false;
        self.interval_ns = if speed > 0.0 {
            1e9 / speed
        } else {
            (round_trip + INTERVAL).as_nanos() as f64 / self.window
        };
        self.interval_before_ns = self.interval_ns;
    }

    /// The path's rate in packets/s, if the arrivals in slow start reveal it.
    fn path_speed(&self, ack: &SabulAckEvent) -> Option<f64> {
        let speed = self.delivery.speed(ack.arrival_speed)?;
        let held = self.window / (speed * (ack.min_rtt + INTERVAL).as_secs_f64());
        (!(PATH_BURST_SHARE..=PATH_FULL_SHARE).contains(&held)).then_some(speed)
    }

    /// The peer's arrival rate in packets/s, where the peer reports `at_peer`. 0 if unknown: UDT4
    /// reports a million before its first measurement.
    fn arrival_rate(&self, at_peer: f64) -> f64 {
        self.delivery.speed(at_peer).map_or(0.0, |speed| speed.min(at_peer))
    }

    /// Raises the rate by the step for the unused capacity of the path.
    fn raise(&mut self, ack: &SabulAckEvent) {
        let capacity = ack.capacity;
        let rate = 1e9 / self.interval_ns;
        let mut left = capacity - rate;
        if self.interval_ns > self.interval_before_ns && capacity / 9.0 < left {
            left = capacity / 9.0;
        }
        let left_bps = left * self.packet_len * 8.0;
        let step = if left_bps > 0.0 {
            (10_f64.powf(left_bps.log10().ceil()) * STEP_FACTOR / self.packet_len).max(MIN_STEP)
        } else {
            MIN_STEP
        };
        let interval = INTERVAL.as_nanos() as f64;
        let round_trips = INTERVAL.as_secs_f64() / ack.round_trip.max(INTERVAL).as_secs_f64();
        let growth = MIN_GROWTH * round_trips * interval / self.interval_ns;
        // A full path shows first in the arrival rate, and later in its queue.
        let arrives = self.arrival_rate(ack.arrival_speed);
        let is_full = has_queue(ack.round_trip, ack.min_rtt) || rate > MAX_AHEAD * arrives;
        let step = if is_full { step.min(growth) } else { step.max(growth) };
        self.interval_ns = self.interval_ns * interval / (self.interval_ns * step + interval);
    }

    fn lower(&mut self, next_number: u64) {
        self.interval_ns = (self.interval_ns * DECREASE).min(self.max_interval_ns);
        self.decreased_at = next_number;
    }

    fn loss(&self) -> f64 {
        self.lost / self.sent.max(1.0)
    }

    /// Whether packets are lost because of congestion, and not at random.
    fn is_congested(&self, round_trip: Duration, least_round_trip: Duration) -> bool {
        let noise = RANDOM_LOSS_SHARE * self.sent;
        self.lost > noise + SIGNIFICANT * noise.sqrt() + SIGNIFICANT
            || has_queue(round_trip, least_round_trip)
    }

    /// A random number from 1 to `max`, from a xorshift generator, whose quality does not matter.
    fn random(&mut self, max: f64) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let part = (self.random >> 11) as f64 / (1_u64 << 53) as f64;
        ((part * max).ceil() as u32).max(1)
    }
}

fn has_queue(round_trip: Duration, least_round_trip: Duration) -> bool {
    round_trip.saturating_sub(least_round_trip) > QUEUE.max(least_round_trip / QUEUE_PART)
}

impl SabulCongestionControl for UdtCongestionControl {
    fn on_sent(&mut self, _now: Duration, _next_number: u64) {
        self.sent += 1.0;
    }

    fn on_ack(&mut self, now: Duration, ack: &SabulAckEvent) {
        self.delivery.add(now, ack.next, ack.is_light, ack.round_trip);
        self.has_timed_out &= ack.packets == 0;
        self.max_interval_ns = (ack.round_trip + INTERVAL).as_nanos() as f64 / MIN_WINDOW;
        if self.in_slow_start {
            self.window += ack.packets as f64;
            if let Some(speed) = self.path_speed(ack) {
                self.end_slow_start(ack.round_trip, speed);
            } else if self.window > self.max_window {
                self.end_slow_start(ack.round_trip, self.arrival_rate(ack.arrival_speed));
            }
        }
        if !self.in_slow_start {
            let time = WINDOW_ROUND_TRIPS * ack.round_trip + INTERVAL;
            let speed = self.arrival_rate(ack.arrival_speed).max(1e9 / self.interval_ns);
            self.window = (speed * time.as_secs_f64() + SPARE_WINDOW).min(self.max_window);
        }
        if now.saturating_sub(self.raised_at) < INTERVAL {
            return;
        }
        self.raised_at = now;
        // The counts decay every 10 ms, with a time constant of three round trips.
        let kept = (-INTERVAL.as_secs_f64() / (3.0 * ack.round_trip.as_secs_f64()).max(0.1)).exp();
        self.sent *= kept;
        self.lost *= kept;
        if self.in_slow_start || std::mem::take(&mut self.has_loss) {
            return;
        }
        self.raise(ack);
    }

    fn on_loss(&mut self, now: Duration, loss: &SabulLossEvent) {
        self.delivery.add(now, loss.end, false, loss.round_trip);
        self.lost += loss.packets as f64;
        if !self.is_congested(loss.round_trip, loss.min_rtt) {
            return;
        }
        if self.in_slow_start {
            let speed = self.arrival_rate(loss.arrival_speed);
            self.end_slow_start(loss.round_trip, speed);
            if speed > 0.0 {
                return;
            }
        }
        self.has_loss = true;
        if loss.first >= self.decreased_at {
            self.interval_before_ns = self.interval_ns;
            self.average_reports =
                (self.average_reports * 0.875 + f64::from(self.reports) * 0.125).ceil();
            self.reports = 1;
            self.decreases = 1;
            self.reports_to_decrease = self.random(self.average_reports);
            self.lower(loss.next_number);
        } else if self.decreases < MAX_DECREASES {
            self.decreases += 1;
            self.reports += 1;
            if self.reports.is_multiple_of(self.reports_to_decrease) {
                self.lower(loss.next_number);
            }
        }
    }

    fn on_timeout(&mut self, _now: Duration) {
        if self.in_slow_start {
            self.window = INITIAL_WINDOW;
        } else if !std::mem::replace(&mut self.has_timed_out, true) {
            self.interval_ns = (self.interval_ns * TIMEOUT_DECREASE).min(self.max_interval_ns);
        }
    }

    fn limits(&self) -> SabulSendLimits {
        let interval_ns = self.interval_ns.min(self.max_interval_ns);
        SabulSendLimits { interval_ns, window: self.window as u64 }
    }

    fn metrics(&self) -> SabulCongestionMetrics {
        SabulCongestionMetrics { in_slow_start: self.in_slow_start, loss: self.loss() }
    }
}
