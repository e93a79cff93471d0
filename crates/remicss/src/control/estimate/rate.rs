//! The rate estimator of a channel whose rate is not configured.
//!
//! An estimator is in one of two states.
//!
//! - *No bottleneck* is known: the rate is a lower bound, the most that was carried. Twice as much
//!   is allowed and planned with, so the rate doubles with each report of a channel that is given
//!   the load. A channel that is given less than it is allowed, because others limit the load, is
//!   not limited by its estimate.
//! - *The bottleneck* was met: less arrived than was sent, or it took longer to arrive. What
//!   arrived is the rate. From then on the channel is probed from time to time. If repeatedly a
//!   little less arrives than was sent, this may be a bottleneck or random loss; a drain shows
//!   which.
//!
//! All channels in the second state go through the same phases ([`ProbeCycle`]). A channel was
//! probed if it was given more than its known rate.
//!
//! - The loss during drains (the mean of the last four) is random loss. So random loss is
//!   distinguished from a full queue, and does not keep a rate low.
//! - A probe that arrives, except for random loss, continues, since a policer lets a burst pass.
//!   After two more intervals that arrive no bottleneck is known, and the rate grows, at first by a
//!   quarter with each report.
//! - A probe that does not arrive completely gives the rate: what arrived, divided by the time that
//!   it took, corrected for random loss. A probe that waits in a queue and loses less than usual
//!   counts as complete, and no more. The next probe follows after 8 intervals, and as long as it
//!   gives the same rate after twice as many, up to 64.
//! - If three intervals in a row deliver less than three quarters of what was sent, and that was at
//!   least half of the known rate, the rate is lowered at once.

use std::time::Duration;

use super::probe_cycle::{Phase, ProbeCycle, ProbeResult};

/// The initial rate, in bit/s.
pub const INITIAL_RATE_BPS: u64 = 10_000_000;

/// The minimum and maximum rate, in bit/s.
const RATE_RANGE_BPS: (f64, f64) = (64e3, 100e9);

/// The factor by which the allowed rate exceeds the known one while no bottleneck is known. If
/// there was one before, the factor grows in steps.
const MAX_GROWTH: f64 = 2.0;
const GROWTH_STEP: f64 = 1.25;

/// The factors of the known rate in each phase. In a cruise it is below 1, so that a queue drains.
const CRUISE_GAIN: f64 = 0.98;
const PROBE_GAIN: f64 = 1.25;
const DRAIN_GAIN: f64 = 0.75;

/// A channel was busy from this fraction of its allowed rate.
const BUSY_FRACTION: f64 = 0.85;

/// An interval can confirm a probe from this fraction of the known rate.
const CONFIRM_FRACTION: f64 = 1.15;

/// The number of intervals that must confirm a probe that arrived.
const CONFIRMATIONS: u32 = 2;

/// A carried rate beyond this fraction of the known rate is a higher rate.
const GROWN_FRACTION: f64 = 1.1;

/// If at least this fraction arrives, no bottleneck was met.
const FULL_FRACTION: f64 = 0.9;

/// If less arrives for this number of intervals in a row while the rate does not grow, there may be
/// a bottleneck: a drain will show it.
const NEARLY_FULL_FRACTION: f64 = 0.97;
const NEARLY_FULL_INTERVALS: u64 = 5;

/// If less than this fraction arrives, the known rate is too high.
const LOW_FRACTION: f64 = 0.75;

/// Low arrival is significant from this fraction of the known rate.
const MIN_LOAD_FRACTION: f64 = 0.5;

/// The number of such intervals in a row after which the rate is lowered.
const LOW_INTERVALS: u64 = 3;

/// The number of drains from which random loss is estimated.
const DRAIN_SAMPLES: usize = 4;

/// A drain of which less than this fraction of the others' mean arrived has met a full queue.
const OUTLIER_FRACTION: f64 = 0.9;

/// Rates that differ by a smaller part are equal.
const RATE_TOLERANCE: f64 = 0.05;

/// Intervals with fewer datagrams are ignored.
const MIN_DATAGRAMS: u64 = 10;

/// The source of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateSource {
    /// The configuration.
    Configured,
    /// An estimator without measurements.
    Guess,
    /// This rate was carried, and no bottleneck is known.
    AtLeast,
    /// This rate is carried, and no more.
    Measured,
}

/// What was sent on a channel between two control messages, and how much of it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Datagrams sent.
    pub sent: u64,
    /// The bytes of those, as IP packets.
    pub sent_bytes: u64,
    /// Datagrams that arrived.
    pub received: u64,
    /// The time from sending one control share to sending the other.
    pub sending: Duration,
    /// The time from the arrival of one to the arrival of the other.
    pub arriving: Duration,
    /// The number of messages from the first share to the second: more than one if shares between
    /// them were lost.
    pub messages: u64,
}

/// The rate estimator of one channel.
#[derive(Clone, Debug)]
pub struct RateEstimator {
    /// The carried rate, corrected for random loss: an upper bound if the bottleneck was met, else
    /// a lower bound.
    rate: f64,
    is_guess: bool,
    bottleneck: Bottleneck,
    /// The fractions of the last drains that arrived.
    samples: [f64; DRAIN_SAMPLES],
    /// Their number.
    sampled: usize,
    /// The phase number and the interval of the last probe.
    probe: Option<(u64, Interval)>,
    /// The number of messages for which too little has arrived, and the maximum that has.
    low: u64,
    low_most: f64,
}

/// What is known of a channel's bottleneck.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bottleneck {
    /// It was not met. The allowed rate is the known rate times this factor.
    Unknown(f64),
    /// It was met.
    Met,
    /// It was met, but a probe has arrived, which this number of intervals must still confirm.
    Doubtful(u32),
}

impl RateEstimator {
    /// An estimator without measurements.
    pub fn new() -> Self {
        Self {
            rate: from_bps(INITIAL_RATE_BPS),
            is_guess: true,
            bottleneck: Bottleneck::Unknown(MAX_GROWTH),
            samples: [1.0; DRAIN_SAMPLES],
            sampled: 0,
            probe: None,
            low: 0,
            low_most: 0.0,
        }
    }

    /// Whether no bottleneck is known.
    pub fn is_unlimited(&self) -> bool {
        matches!(self.bottleneck, Bottleneck::Unknown(_))
    }

    /// Whether the channel follows the phases.
    pub fn is_probed(&self) -> bool {
        self.bottleneck == Bottleneck::Met
    }

    /// The known rate in bit/s: the rate of a cruise, or a lower bound.
    pub fn rate_bps(&self) -> u64 {
        to_bps(if self.is_unlimited() { self.rate } else { CRUISE_GAIN * self.rate })
    }

    /// Where [`Self::rate_bps`] is from.
    pub fn source(&self) -> RateSource {
        match self.bottleneck {
            Bottleneck::Unknown(_) if self.is_guess => RateSource::Guess,
            Bottleneck::Unknown(_) => RateSource::AtLeast,
            Bottleneck::Met | Bottleneck::Doubtful(_) => RateSource::Measured,
        }
    }

    /// The rate at which to send in a phase, in bit/s. Unless [`Self::is_probed`], it is the same
    /// in each phase.
    pub fn pace_bps(&self, phase: Phase) -> u64 {
        let part = match (self.bottleneck, phase) {
            (Bottleneck::Unknown(growth), _) => growth,
            (Bottleneck::Doubtful(_), _) | (Bottleneck::Met, Phase::Probe) => PROBE_GAIN,
            (Bottleneck::Met, Phase::Cruise) => CRUISE_GAIN,
            (Bottleneck::Met, Phase::Drain) => DRAIN_GAIN,
        };
        to_bps(self.rate * part)
    }

    /// Whether this number of bytes in this time is about the allowed rate of a phase.
    pub fn is_busy(&self, phase: Phase, bytes: u64, time: Duration) -> bool {
        bits_per_second(bytes, time) >= BUSY_FRACTION * from_bps(self.pace_bps(phase))
    }

    /// Handles an interval and the number of the phase that it was in, if it was in one.
    pub fn handle(&mut self, phase_number: Option<u64>, interval: Interval) -> Option<ProbeResult> {
        if interval.sent < MIN_DATAGRAMS {
            return None;
        }
        match self.bottleneck {
            Bottleneck::Unknown(growth) => return self.grow(interval, growth),
            Bottleneck::Doubtful(left) => return self.confirm(interval, left),
            Bottleneck::Met => {}
        }
        match (phase_number, phase_number.map(ProbeCycle::phase)) {
            (Some(phase_number), Some(Phase::Probe)) => {
                self.probe = (interval.sent_bps() > self.rate).then_some((phase_number, interval));
                None
            }
            (Some(phase_number), Some(Phase::Drain)) => {
                self.sample(interval);
                let (probed, probe) = self.probe.take()?;
                (probed + 1 == phase_number).then(|| self.evaluate(probe))
            }
            _ => self.watch(interval),
        }
    }

    /// Handles an interval while no bottleneck is known.
    fn grow(&mut self, interval: Interval, growth: f64) -> Option<ProbeResult> {
        let (carried, sent) = (self.carried(interval), interval.sent_bps());
        let (is_new, is_known) =
            (carried > GROWN_FRACTION * self.rate, sent < BUSY_FRACTION * self.rate);
        // Beyond the known rate a bottleneck is likely, and much is lost until it is certain.
        let intervals = match carried / sent {
            _ if is_known && !self.is_low(carried, sent) => 0,
            part if part >= NEARLY_FULL_FRACTION || is_new && part >= FULL_FRACTION => 0,
            part if part >= FULL_FRACTION => NEARLY_FULL_INTERVALS,
            part if part >= LOW_FRACTION && sent > GROWN_FRACTION * self.rate => 2,
            _ if sent > GROWN_FRACTION * self.rate => 1,
            _ => LOW_INTERVALS,
        };
        if intervals > 0 {
            return self.lower(interval.messages, carried, intervals).then(|| {
                self.bottleneck = Bottleneck::Met;
                ProbeResult::BottleneckMet
            });
        }
        if self.is_busy(Phase::Cruise, interval.sent_bytes, interval.sending) {
            self.bottleneck = Bottleneck::Unknown((growth * GROWTH_STEP).min(MAX_GROWTH));
        }
        if carried > self.rate {
            self.is_guess = false;
            self.set(carried);
        }
        (self.low, self.low_most) = (0, 0.0);
        None
    }

    /// Whether far too little arrived, and enough was sent to say so.
    fn is_low(&self, carried: f64, sent: f64) -> bool {
        sent >= MIN_LOAD_FRACTION * self.rate && carried < LOW_FRACTION * sent
    }

    /// Evaluates a probe, after its drain has shown the random loss.
    fn evaluate(&mut self, probe: Interval) -> ProbeResult {
        let carried = self.carried(probe);
        if carried < FULL_FRACTION * probe.sent_bps() {
            return self.correct(carried);
        }
        if carried < GROWN_FRACTION * self.rate {
            // Other channels have limited the probe.
            self.set(self.rate.max(carried));
            return ProbeResult::Same;
        }
        self.bottleneck = Bottleneck::Doubtful(CONFIRMATIONS);
        ProbeResult::Changed
    }

    /// Handles an interval after a probe that arrived.
    fn confirm(&mut self, interval: Interval, left: u32) -> Option<ProbeResult> {
        if interval.sent_bps() < CONFIRM_FRACTION * self.rate {
            return None;
        }
        let carried = self.carried(interval);
        if carried < GROWN_FRACTION * self.rate {
            self.bottleneck = Bottleneck::Met;
            self.correct(carried);
            return Some(ProbeResult::BottleneckMet);
        }
        self.bottleneck = Bottleneck::Doubtful(left - 1);
        if left == 1 {
            self.bottleneck = Bottleneck::Unknown(GROWTH_STEP);
            self.set(carried);
        }
        None
    }

    /// This rate is carried, and no more.
    fn correct(&mut self, carried: f64) -> ProbeResult {
        let is_same = (carried - self.rate).abs() <= RATE_TOLERANCE * self.rate;
        // Random differences are averaged.
        self.set(if is_same { self.rate.midpoint(carried) } else { carried });
        if is_same { ProbeResult::Same } else { ProbeResult::Changed }
    }

    /// Detects a rate that has fallen.
    fn watch(&mut self, interval: Interval) -> Option<ProbeResult> {
        let (carried, sent) = (self.carried(interval), interval.sent_bps().min(self.rate));
        if !self.is_low(carried, sent) {
            (self.low, self.low_most) = (0, 0.0);
            return None;
        }
        self.lower(interval.messages, carried, LOW_INTERVALS).then_some(ProbeResult::Changed)
    }

    /// Lowers the rate, if this number of intervals in a row have shown that it is too high. If
    /// control shares were lost, an interval is longer and counts for as many messages.
    fn lower(&mut self, messages: u64, carried: f64, intervals: u64) -> bool {
        self.low = self.low.saturating_add(messages);
        self.low_most = self.low_most.max(carried);
        if self.low < intervals {
            return false;
        }
        self.set(self.low_most);
        (self.low, self.low_most) = (0, 0.0);
        true
    }

    /// Records what arrived of an interval that met no bottleneck.
    fn sample(&mut self, interval: Interval) {
        self.samples[self.sampled % DRAIN_SAMPLES] = interval.arriving_part();
        self.sampled = self.sampled.checked_add(1).unwrap_or(DRAIN_SAMPLES);
    }

    /// The fraction of datagrams that is not lost at random.
    #[expect(clippy::cast_precision_loss, reason = "a few")]
    fn arriving(&self) -> f64 {
        let samples = &self.samples[..self.sampled.min(DRAIN_SAMPLES)];
        let Some(worst) = samples.iter().copied().reduce(f64::min) else { return 1.0 };
        let (sum, others) = (samples.iter().sum::<f64>(), samples.len() as f64 - 1.0);
        let mean = (sum - worst) / others.max(1.0);
        if worst < OUTLIER_FRACTION * mean { mean } else { sum / (others + 1.0) }
    }

    /// The carried rate, in bit/s, corrected for random loss. No more was carried than was sent: if
    /// by chance less was lost than usual, the correction would give a rate that fills the queue.
    fn carried(&self, interval: Interval) -> f64 {
        let arriving = self.arriving().max(f64::EPSILON);
        interval.passing_bps() * (interval.arriving_part() / arriving).min(1.0)
    }

    fn set(&mut self, rate: f64) {
        let (lowest, highest) = RATE_RANGE_BPS;
        self.rate = rate.clamp(lowest, highest);
    }
}

impl Default for RateEstimator {
    fn default() -> Self {
        Self::new()
    }
}

impl Interval {
    fn sent_bps(self) -> f64 {
        bits_per_second(self.sent_bytes, self.sending)
    }

    /// What was sent, divided by the time that it took to leave or to arrive, whichever was longer,
    /// so that a burst from a queue does not count as a rate.
    fn passing_bps(self) -> f64 {
        bits_per_second(self.sent_bytes, self.sending.max(self.arriving))
    }

    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    fn arriving_part(self) -> f64 {
        (self.received as f64 / self.sent.max(1) as f64).min(1.0)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn bits_per_second(bytes: u64, time: Duration) -> f64 {
    // A microsecond is the resolution of control messages.
    8.0 * bytes as f64 / time.as_secs_f64().max(1e-6)
}

#[expect(clippy::cast_precision_loss, reason = "rates are far below 2^53")]
fn from_bps(bps: u64) -> f64 {
    bps as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within RATES_BPS")]
fn to_bps(rate: f64) -> u64 {
    rate as u64
}

#[cfg(test)]
mod tests;
