//! UDT's own congestion control (Gu and Grossman 2007, section 3; paper 004, B.2), with its faults
//! in UDT4 mended.
//!
//! Each 10 ms without congestion the rate grows by a step that depends on the rate that is left
//! on the path, and not on the round-trip time. Congestion lowers the rate by a ninth, at most
//! once in each window of packets and a few times more at random.
//!
//! Other than in UDT4:
//! - the interval between packets has fractions of a nanosecond. UDT4 rounds it up to whole
//!   microseconds, so that one loss at 10 Gbit/s costs 40 % of the rate;
//! - at the end of the slow start without a measured speed, the interval is the round-trip time
//!   divided by the window. UDT4 has the inverse of that after a loss;
//! - a loss of less than [`NOISE`] of the packets is not taken for congestion, unless the queue of
//!   the path is seen to grow.

#![expect(clippy::cast_precision_loss, reason = "estimates")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "conversions saturate"
)]

use std::time::Duration;

use super::{Acked, CongestionControl, Limits, Lost, Metrics};

/// The interval of rate control (SYN).
const INTERVAL: Duration = Duration::from_millis(10);

/// The window at the begin, in packets.
const INITIAL_WINDOW: f64 = 16.0;

/// What the window has besides the packets that are on the way, in packets.
const SPARE_WINDOW: f64 = 16.0;

/// The interval between packets in the slow start: its window limits it.
const SLOW_START_INTERVAL_NS: f64 = 1000.0;

/// The interval grows by this factor where the rate is lowered by a ninth.
const DECREASE: f64 = 1.125;

/// How often the rate is lowered at most for the losses of one window of packets.
const MAX_DECREASES: u32 = 5;

/// The least step, and the factor of the step, of the rate's growth, in packets and packets times
/// bytes each 10 ms for each bit/s (the paper's formula).
const MIN_STEP: f64 = 0.01;
const STEP_FACTOR: f64 = 1.5e-6;

/// The part of packets that may be lost at random.
const NOISE: f64 = 0.02;

/// How many packets have to be sent before the part that is lost is known.
const MIN_COUNTED: f64 = 500.0;

/// UDT's own congestion control.
#[derive(Debug)]
pub struct NativeControl {
    interval_ns: f64,
    window: f64,
    max_window: f64,
    /// The length of a packet in bytes, with all headers.
    packet_len: f64,
    in_slow_start: bool,
    /// Whether packets were lost since the rate was last raised.
    has_loss: bool,
    raised_at: Duration,
    /// The next packet when the rate was last lowered: losses before it belong to that congestion.
    decreased_at: u64,
    /// The interval before it was last lowered.
    interval_before_ns: f64,
    /// Loss reports since then, how many there are on average, and after how many of them the rate
    /// is lowered again.
    reports: u32,
    average_reports: f64,
    reports_to_decrease: u32,
    decreases: u32,
    /// Packets sent and lost, with older ones counting less.
    sent: f64,
    lost: f64,
    random: u64,
}

impl NativeControl {
    /// For packets of `packet_len` bytes, all headers included, of which at most `max_window` may
    /// be unacknowledged. `seed` may be anything.
    pub fn new(packet_len: u16, max_window: u64, seed: u64) -> Self {
        Self {
            interval_ns: SLOW_START_INTERVAL_NS,
            window: INITIAL_WINDOW,
            max_window: max_window as f64,
            packet_len: f64::from(packet_len),
            in_slow_start: true,
            has_loss: false,
            raised_at: Duration::ZERO,
            decreased_at: 0,
            interval_before_ns: SLOW_START_INTERVAL_NS,
            reports: 0,
            average_reports: 1.0,
            reports_to_decrease: 1,
            decreases: 0,
            sent: 0.0,
            lost: 0.0,
            random: seed | 1,
        }
    }

    fn end_slow_start(&mut self, round_trip: Duration, arrival_speed: f64) {
        self.in_slow_start = false;
        self.interval_ns = if arrival_speed > 0.0 {
            1e9 / arrival_speed
        } else {
            (round_trip + INTERVAL).as_nanos() as f64 / self.window
        };
    }

    /// Raises the rate, by the step for the rate that is left on the path.
    fn raise(&mut self, capacity: f64) {
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
        self.interval_ns = self.interval_ns * interval / (self.interval_ns * step + interval);
    }

    fn lower(&mut self, next_number: u64) {
        self.interval_ns *= DECREASE;
        self.decreased_at = next_number;
    }

    fn loss(&self) -> f64 {
        if self.sent < MIN_COUNTED { 0.0 } else { self.lost / self.sent }
    }

    /// A number from 1 to `max`, by a xorshift generator: nothing depends on its quality.
    fn random(&mut self, max: f64) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let part = (self.random >> 11) as f64 / (1_u64 << 53) as f64;
        ((part * max).ceil() as u32).max(1)
    }
}

impl CongestionControl for NativeControl {
    fn on_sent(&mut self, _now: Duration, _next_number: u64) {
        self.sent += 1.0;
    }

    fn on_ack(&mut self, now: Duration, ack: &Acked) {
        if self.in_slow_start {
            self.window += ack.packets as f64;
            if self.window > self.max_window {
                self.end_slow_start(ack.round_trip, ack.arrival_speed);
            }
        } else if ack.arrival_speed > 0.0 {
            let on_the_way = ack.arrival_speed * (ack.round_trip + INTERVAL).as_secs_f64();
            self.window = (on_the_way + SPARE_WINDOW).min(self.max_window);
        }
        if now.saturating_sub(self.raised_at) < INTERVAL {
            return;
        }
        self.raised_at = now;
        // Of each round trip about a third is forgotten after 10 ms or more.
        let kept = (-INTERVAL.as_secs_f64() / (3.0 * ack.round_trip.as_secs_f64()).max(0.1)).exp();
        self.sent *= kept;
        self.lost *= kept;
        if self.in_slow_start || std::mem::take(&mut self.has_loss) {
            return;
        }
        self.raise(ack.capacity);
    }

    fn on_loss(&mut self, _now: Duration, loss: &Lost) {
        self.lost += loss.packets as f64;
        if self.loss() < NOISE && (loss.packets as f64) < NOISE * self.sent.max(MIN_COUNTED) {
            return;
        }
        if self.in_slow_start {
            self.end_slow_start(loss.round_trip, loss.arrival_speed);
            if loss.arrival_speed > 0.0 {
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
        }
    }

    fn limits(&self) -> Limits {
        Limits { interval_ns: self.interval_ns, window: self.window as u64 }
    }

    fn metrics(&self) -> Metrics {
        Metrics { in_slow_start: self.in_slow_start, loss: self.loss() }
    }
}
