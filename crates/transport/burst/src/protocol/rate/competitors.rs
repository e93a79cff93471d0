//! Simple models of TCP's congestion controls, as competitors in simulations.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::unchecked_time_subtraction,
    reason = "simulated numbers are small, and times in order"
)]

use std::time::Duration;

use super::simulation::{PACKET, SimulatedAck, SimulatedCongestionControl, SimulatedPacketRecord};

/// CUBIC (RFC 9438) with slow start and the delay test of `HyStart`, without pacing.
pub(super) struct SimulatedCubic {
    /// In packets.
    window: f64,
    threshold: f64,
    max: f64,
    epoch: Option<Duration>,
    k: f64,
    estimate: f64,
    /// Losses of packets sent before this time belong to the same congestion event.
    recovered: Duration,
    least: Duration,
    smoothed: Duration,
    round_end: u64,
    round_least: Duration,
    round_samples: u32,
}

impl Default for SimulatedCubic {
    fn default() -> Self {
        Self {
            window: 10.0,
            threshold: f64::INFINITY,
            max: 0.0,
            epoch: None,
            k: 0.0,
            estimate: 0.0,
            recovered: Duration::ZERO,
            least: Duration::MAX,
            smoothed: Duration::ZERO,
            round_end: 0,
            round_least: Duration::MAX,
            round_samples: 0,
        }
    }
}

impl SimulatedCongestionControl for SimulatedCubic {
    fn on_sent(&mut self, _: Duration) -> Option<super::PacketSendState> {
        None
    }

    fn on_ack(&mut self, ack: &SimulatedAck) {
        let round_trip = ack.now - ack.record.sent_at;
        self.least = self.least.min(round_trip);
        if self.smoothed.is_zero() {
            self.smoothed = round_trip;
        }
        self.smoothed = self.smoothed * 7 / 8 + round_trip / 8;
        if ack.record.delivered >= self.round_end {
            self.round_end = ack.delivered;
            (self.round_least, self.round_samples) = (Duration::MAX, 0);
        }
        self.round_samples += 1;
        if self.round_samples <= 8 {
            self.round_least = self.round_least.min(round_trip);
        }
        if self.window < self.threshold {
            self.window += 1.0;
            let step = (self.least / 8).clamp(Duration::from_millis(4), Duration::from_millis(16));
            if self.round_samples == 8 && self.round_least >= self.least + step {
                self.threshold = self.window;
            }
            return;
        }
        let epoch = *self.epoch.get_or_insert_with(|| {
            if self.max <= self.window {
                (self.max, self.k) = (self.window, 0.0);
            } else {
                self.k = ((self.max - self.window) / 0.4).cbrt();
            }
            self.estimate = self.window;
            ack.now
        });
        let t = (ack.now - epoch + self.smoothed).as_secs_f64();
        let target = (0.4 * (t - self.k).powi(3) + self.max).clamp(self.window, 1.5 * self.window);
        // At least as fast as Reno.
        self.estimate += if self.estimate < self.max { 3.0 * 0.3 / 1.7 } else { 1.0 } / self.window;
        self.window += (target - self.window) / self.window;
        self.window = self.window.max(self.estimate);
    }

    fn on_loss(&mut self, now: Duration, newest: &SimulatedPacketRecord, _: u64) {
        if newest.sent_at < self.recovered {
            return;
        }
        self.recovered = now;
        self.epoch = None;
        self.max = if self.window < self.max { self.window * 0.85 } else { self.window };
        self.window = (self.window * 0.7).max(2.0);
        self.threshold = self.window;
    }

    fn rate(&self) -> f64 {
        f64::INFINITY
    }

    fn window(&self) -> u64 {
        (self.window * PACKET as f64) as u64
    }
}

/// BBR, version 1, as in Linux.
pub(super) struct SimulatedBbr {
    /// The delivery rate of each of the last ten round trips, in bytes/s.
    rates: [f64; 10],
    least: Duration,
    least_at: Duration,
    round: usize,
    round_end: u64,
    mode: SimulatedBbrMode,
    full: f64,
    full_rounds: u32,
    cycle: usize,
    cycle_at: Duration,
    had_loss: bool,
}

#[derive(PartialEq)]
enum SimulatedBbrMode {
    Startup,
    Drain,
    ProbeRate,
    ProbeRoundTrip(Duration),
}

const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];

impl Default for SimulatedBbr {
    fn default() -> Self {
        Self {
            rates: [0.0; 10],
            least: Duration::MAX,
            least_at: Duration::ZERO,
            round: 0,
            round_end: 0,
            mode: SimulatedBbrMode::Startup,
            full: 0.0,
            full_rounds: 0,
            cycle: 2,
            cycle_at: Duration::ZERO,
            had_loss: false,
        }
    }
}

impl SimulatedBbr {
    fn bottleneck(&self) -> f64 {
        self.rates.iter().copied().fold(0.0, f64::max)
    }

    fn product(&self) -> f64 {
        if self.least == Duration::MAX {
            return 10.0 * PACKET as f64;
        }
        self.bottleneck() * self.least.as_secs_f64()
    }
}

impl SimulatedCongestionControl for SimulatedBbr {
    fn on_sent(&mut self, _: Duration) -> Option<super::PacketSendState> {
        None
    }

    fn on_ack(&mut self, ack: &SimulatedAck) {
        let record = &ack.record;
        let round_trip = ack.now - record.sent_at;
        let is_round = record.delivered >= self.round_end;
        if is_round {
            self.round_end = ack.delivered;
            self.round += 1;
            self.rates[self.round % 10] = 0.0;
        }
        let interval = (ack.now - record.delivered_at).max(round_trip.min(self.least));
        let rate = (ack.delivered - record.delivered) as f64 / interval.as_secs_f64();
        let slot = self.round % 10;
        self.rates[slot] = self.rates[slot].max(rate);
        let is_expired = ack.now > self.least_at + Duration::from_secs(10);
        if round_trip <= self.least || is_expired {
            (self.least, self.least_at) = (round_trip, ack.now);
        }
        match self.mode {
            SimulatedBbrMode::Startup if is_round => {
                if self.bottleneck() >= 1.25 * self.full {
                    (self.full, self.full_rounds) = (self.bottleneck(), 0);
                } else {
                    self.full_rounds += 1;
                    if self.full_rounds == 3 {
                        self.mode = SimulatedBbrMode::Drain;
                    }
                }
            }
            SimulatedBbrMode::Drain if ack.in_flight as f64 <= self.product() => {
                (self.mode, self.cycle, self.cycle_at) = (SimulatedBbrMode::ProbeRate, 2, ack.now);
            }
            SimulatedBbrMode::ProbeRate => {
                let is_over = ack.now > self.cycle_at + self.least;
                let gain = CYCLE[self.cycle];
                let in_flight = ack.in_flight as f64;
                let is_next = match self.cycle {
                    0 => is_over && (self.had_loss || in_flight >= gain * self.product()),
                    1 => is_over || in_flight <= self.product(),
                    _ => is_over,
                };
                if is_next {
                    self.cycle = (self.cycle + 1) % 8;
                    (self.cycle_at, self.had_loss) = (ack.now, false);
                }
            }
            SimulatedBbrMode::ProbeRoundTrip(until) if ack.now >= until => {
                self.least_at = ack.now;
                (self.mode, self.cycle, self.cycle_at) = (SimulatedBbrMode::ProbeRate, 2, ack.now);
            }
            _ => {}
        }
        if is_expired && !matches!(self.mode, SimulatedBbrMode::ProbeRoundTrip(_)) {
            self.mode =
                SimulatedBbrMode::ProbeRoundTrip(ack.now + Duration::from_millis(200) + self.least);
        }
    }

    fn on_loss(&mut self, _: Duration, _: &SimulatedPacketRecord, _: u64) {
        self.had_loss = true;
    }

    fn rate(&self) -> f64 {
        let gain = match self.mode {
            SimulatedBbrMode::Startup => 2.89,
            SimulatedBbrMode::Drain => 1.0 / 2.89,
            SimulatedBbrMode::ProbeRate => CYCLE[self.cycle],
            SimulatedBbrMode::ProbeRoundTrip(_) => 1.0,
        };
        let rate = self.bottleneck();
        if rate == 0.0 { f64::INFINITY } else { gain * rate }
    }

    fn window(&self) -> u64 {
        let gain = match self.mode {
            SimulatedBbrMode::Startup | SimulatedBbrMode::Drain => 2.89,
            SimulatedBbrMode::ProbeRate => 2.0,
            SimulatedBbrMode::ProbeRoundTrip(_) => return 4 * PACKET,
        };
        ((gain * self.product()) as u64).max(10 * PACKET)
    }

    fn burst(&self) -> u64 {
        // Linux sends segments of up to one millisecond's worth.
        ((self.rate() / 1000.0) as u64).clamp(2 * PACKET, 44 * PACKET)
    }
}
