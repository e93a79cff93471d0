//! The phases of the congestion model: what the rate does as time passes, as samples of the
//! delivery rate arrive, and as the queue overflows.

use std::time::Duration;

use super::{BurstCongestionModel, PULSE_GAINS};
use crate::protocol::rate::growth::CubicGrowth;
use crate::protocol::rate::losses::NOISE;
use crate::protocol::rate::path::DeliveryRateSample;

/// The pacing gain while a queue is drained, and from then until the effect is known.
const DRAIN_GAIN: f64 = 0.5;
const DRAINED_GAIN: f64 = 0.95;

/// A queue that is still there after this many drains is attributed to competing flows.
const MAX_DRAINS: u32 = 3;

/// The pacing gain while competing: the window limits the rate, as in TCP, and not the pacer.
const COMPETE_GAIN: f64 = 1.2;

/// After this many ineffective decreases, the competing flows are assumed not to yield.
const MAX_INEFFECTIVE_DECREASES: u32 = 4;

/// What the model does with its rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum BurstCongestionPhase {
    /// The rate is multiplied by `gain` whenever what was sent since `since` has arrived as fast.
    Start { gain: f64, since: Duration },
    /// Sends at half the rate, measured with packets sent up to `measured`, to empty our queue.
    Drain { until: Duration, attempt: u32, measured: Option<Duration> },
    /// The rate is the delivery rate. Pulses test whether the path carries more.
    Cruise,
    /// Other flows fill the queue: the window behaves as TCP's.
    Compete,
    /// As `Compete`, but less is sent from `began` to `until`, to see whether `queue`, the delay
    /// before, shrinks.
    QueueProbe { began: Duration, until: Duration, queue: Option<Duration> },
    /// Other flows yield neither to delay nor to loss: the rate stays at the delivery rate.
    HoldRate { until: Duration },
}

impl BurstCongestionModel {
    /// Updates the gain, and changes phase if the time alone requires it.
    pub(super) fn on_time(&mut self, now: Duration) {
        self.now = now;
        self.gain = match self.phase {
            BurstCongestionPhase::Start { .. } => 1.0,
            BurstCongestionPhase::Drain { until, .. } if now < until => DRAIN_GAIN,
            BurstCongestionPhase::Drain { .. } => DRAINED_GAIN,
            BurstCongestionPhase::HoldRate { until } => {
                if now > until || self.losses.smoothed() < NOISE / 2.0 {
                    (self.phase, self.rate_before_contention) =
                        (BurstCongestionPhase::Cruise, self.rate);
                    // Next time, half as many ineffective decreases suffice to hold the rate again.
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

    /// The pacing gain at this point of a cycle, which contains one pulse.
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
            // The path carries the pulse, so it may carry much more.
            self.rate = latest;
            self.trains.clear();
            self.phase = BurstCongestionPhase::Start { gain: 1.5, since: now };
        } else if self.delivery_rate() > 0.0 {
            self.rate = self.delivery_rate();
        }
        self.delivery_rates.rotate_right(1);
        self.delivery_rates[0] = 0.0;
    }

    pub(super) fn on_sample(
        &mut self,
        now: Duration,
        sample: &DeliveryRateSample,
        is_limited: bool,
    ) {
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
                // If hardly less arrives, the rate was measured too high and the queue is our own.
                // If a little less arrives, competing flows have started. If much less, the path
                // has changed.
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
                // Some packets of the earlier measurement were sent while the queue was empty.
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

    /// Whether packets arrive more slowly than they were sent, while the queue is long or
    /// overflows.
    fn is_overloaded(&self, sample: &DeliveryRateSample) -> bool {
        let is_lossy = sample.missing >= 8 * self.datagram
            && sample.missing as f64 > 2.5 * self.losses.noise() * sample.sent as f64;
        sample.first_sent_at >= self.responded_at
            && sample.rate < 0.9 * sample.sent_rate
            && (sample.queue > self.queue_bound() || is_lossy)
    }

    /// Packets sent at the current rate have arrived: raises the rate.
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

    /// The path delivers less than is sent: lowers the rate and drains the queue.
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

    /// If the queue is only our own, it shrinks by half of the time in which half as much is sent.
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

    /// The queue has overflowed: lowers the rate or the window.
    pub(super) fn decrease(&mut self, now: Duration) {
        let since = self.losses.take_since_response();
        let is_still_long = since.part_in_long_queue() >= 0.4;
        let is_early = self.growth.is_some_and(|growth| growth.part(now) < 0.6);
        if is_early
            && self.phase == BurstCongestionPhase::Cruise
            && self.losses.accept_as_noise(&since)
        {
            // The loss is the same at a lower rate: the path causes it, not our rate.
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
