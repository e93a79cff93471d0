//! The rate estimator of a channel whose rate is not configured.
//!
//! *Loss is not a rate.* A channel loses datagrams at random, at any rate, or because it is given
//! more than it carries. A rate is therefore lowered only by a *loss test*: when too little of
//! what is sent arrives, the channel is given clearly less than what arrives. If as much is lost
//! as before, the loss is random, and the rate stays; otherwise what arrived before, corrected for
//! the loss that is left, is the rate.
//!
//! An estimator is in one of these states.
//!
//! - *No bottleneck* is known: the rate is a lower bound, the most that was carried. While it
//!   grows, up to twice as much is allowed and planned with, so the rate doubles with each report
//!   of a channel that is given the load. If it does not grow, the plan allows little more: TCP may
//!   have adapted itself to a bottleneck, and a plan that relies on twice the rate would starve the
//!   other channels.
//! - *The bottleneck* was met: what arrived is the rate. From then on the channel is probed from
//!   time to time.
//! - *In doubt*: the bottleneck was met, and a probe has arrived, which further intervals must
//!   confirm, since a policer lets a burst pass. After them no bottleneck is known, and the rate
//!   grows, at first by a quarter with each report.
//!
//! A loss test may begin in each of them. If no control share arrives at all, nothing is measured,
//! and the test is at the lowest rate.
//!
//! If a considerable load, some of which was lost, has not reached a rate for seconds, the rate is
//! forgotten: the rate that was reached is a lower bound. Without loss only a rise above the last
//! bottleneck is taken back, in steps.
//!
//! All channels with a known bottleneck go through the same phases ([`ProbeCycle`]). A channel was
//! probed if it was given more than its known rate.
//!
//! - The loss during drains (the mean of the last four) and in loss tests is random loss. An
//!   interval that loses significantly less shows that random loss has ended.
//! - A probe that does not arrive completely gives the rate: what arrived, divided by the time that
//!   it took, corrected for random loss. The next probe follows after 4 intervals, and as long as
//!   it gives the same rate after twice as many, up to 64. A channel that has *fallen*, because it
//!   has carried clearly more within ten minutes, is probed every 4 intervals, and needs no
//!   confirmation.

use std::time::Duration;

use super::interval::{MeasurementInterval, bits_per_second, from_count};
use super::loss_test::{LossEvidence, LossTestResult, LossTester};
use super::probe_cycle::{ProbeCycle, ProbePhase, ProbeResult};
use super::random_loss::RandomLossEstimator;
use super::sustained_rate::SustainedRate;

/// The initial rate, in bit/s.
pub const INITIAL_RATE_BPS: u64 = 10_000_000;

/// The minimum and maximum rate, in bit/s. At the minimum an interval still has enough datagrams to
/// be measured: 10 of 1,500 bytes in 200 ms. A channel that carries less appears to lose the
/// difference.
const RATE_RANGE_BPS: (f64, f64) = (600e3, 100e9);

/// From this rate on, in bit/s, 100 ms have 10 datagrams of 1,500 bytes.
const MIN_MEASURING_BPS: f64 = 1.2e6;

/// Intervals with fewer datagrams are ignored: half of those at the minimum rate, as the rate is a
/// quarter lower in a drain.
const MIN_DATAGRAMS: u64 = 5;

/// The factor by which the allowed rate exceeds the known one while no bottleneck is known. It goes
/// up in steps while the rate grows, and down while it does not.
const MIN_GROWTH: f64 = 1.05;
const MAX_GROWTH: f64 = 2.0;

/// The factor after the first probe that arrives on a channel that has fallen.
const MAX_FALLEN_GROWTH: f64 = 4.0;
const GROWTH_STEP: f64 = 1.25;

/// The factors of the known rate in each phase. In a cruise it is below 1, so that a queue drains.
const CRUISE_GAIN: f64 = 0.98;
const PROBE_GAIN: f64 = 1.25;

/// The same for a channel that has fallen. The probe gain is higher, because a probe should exceed
/// the known rate even with a varying load, such as TCP's.
const FALLEN_PROBE_GAIN: f64 = 1.5;
const DRAIN_GAIN: f64 = 0.75;

/// Fewer lost datagrams do not count as a lost burst.
const MIN_MISSING: u64 = 4;

/// The number of lost bursts without growth after which there may be a bottleneck: TCP fills it
/// only for a moment.
const LOST_BURSTS: u64 = 3;

/// A channel is busy from this fraction of its allowed rate, or from the second fraction if it has
/// fallen.
const BUSY_FRACTION: f64 = 0.85;
const FALLEN_BUSY_FRACTION: f64 = 0.5;

/// An interval can confirm a probe from this fraction of the known rate.
const CONFIRM_FRACTION: f64 = 1.15;

/// The number of intervals that must confirm a probe that arrived.
const CONFIRMATIONS: u32 = 2;

/// While no bottleneck is known, the rate grows if more than this fraction of it is carried.
const GROWING_FRACTION: f64 = 1.02;

/// A carried rate beyond this fraction of the known rate is a higher rate.
const GROWN_FRACTION: f64 = 1.1;

/// If a load of at least this fraction of a rate does not reach it for this time, TCP may have
/// adapted itself to a lower rate. Without any loss, which BBR avoids, this is less certain: then a
/// rate that had risen is only multiplied by this factor.
const MIN_USED_FRACTION: f64 = 0.25;
const UNUSED_TIME: Duration = Duration::from_secs(3);
const UNUSED_STEP: f64 = 0.8;

/// If at least this fraction arrives, no bottleneck was met.
const FULL_FRACTION: f64 = 0.9;

/// If less arrives for this number of intervals in a row while the rate does not grow, there may be
/// a bottleneck.
const NEARLY_FULL_FRACTION: f64 = 0.97;
const NEARLY_FULL_INTERVALS: u64 = 5;

/// What arrives is also examined over at least this number of datagrams and this time: bursts may
/// be lost of a load that is below the known rate on average, and a known rate may be a little too
/// high.
const LONG_DATAGRAMS: u64 = 200;
const LONG_TIME: Duration = Duration::from_secs(1);
const NEARLY_RIGHT_FRACTION: f64 = 0.92;

/// If less than this fraction arrives, the known rate may be too high.
const LOW_FRACTION: f64 = 0.75;

/// If less than this fraction arrives, it is probably much too high.
const VERY_LOW_FRACTION: f64 = 0.5;

/// Low arrival is significant from this fraction of the known rate.
const MIN_LOAD_FRACTION: f64 = 0.5;

/// The numbers of such intervals in a row after which there is a loss test.
const LOW_INTERVALS: u64 = 3;
const VERY_LOW_INTERVALS: u64 = 2;

/// Rates that differ by a smaller part are equal.
const RATE_TOLERANCE: f64 = 0.05;

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

/// The rate estimator of one channel.
#[derive(Clone, Debug)]
pub struct RateEstimator {
    /// The carried rate, corrected for random loss: an upper bound if the bottleneck was met, else
    /// a lower bound.
    rate: f64,
    is_guess: bool,
    bottleneck: BottleneckState,
    /// When the factor of [`BottleneckState::Unknown`] was last set for growth.
    grown_at: Duration,
    random_loss: RandomLossEstimator,
    /// The phase number and the interval of the last probe.
    probe: Option<(u64, MeasurementInterval)>,
    /// The last intervals in a row of which too little has arrived.
    low: LossEvidence,
    /// The intervals that have lost bursts since the rate has grown.
    bursts: LossEvidence,
    /// The last intervals, unless they are probes.
    recent: LossEvidence,
    /// The last intervals in a row with a load of less than the rate.
    unused: LossEvidence,
    tester: LossTester,
    usual: SustainedRate,
    /// The rate of the last bottleneck, if the rate has risen since by probes; else infinite.
    risen_from: f64,
}

/// What is known of a channel's bottleneck.
#[derive(Clone, Copy, Debug, PartialEq)]
enum BottleneckState {
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
            bottleneck: BottleneckState::Unknown(MAX_GROWTH),
            grown_at: Duration::ZERO,
            random_loss: RandomLossEstimator::new(),
            probe: None,
            low: LossEvidence::default(),
            bursts: LossEvidence::default(),
            recent: LossEvidence::default(),
            unused: LossEvidence::default(),
            tester: LossTester::new(),
            usual: SustainedRate::default(),
            risen_from: f64::INFINITY,
        }
    }

    /// Whether no bottleneck is known.
    pub fn is_unlimited(&self) -> bool {
        matches!(self.bottleneck, BottleneckState::Unknown(_))
    }

    /// Whether the channel follows the phases.
    pub fn is_probed(&self) -> bool {
        self.bottleneck == BottleneckState::Met
    }

    /// Whether a loss test is running. Meanwhile the channel is given less than its rate.
    pub fn is_tested(&self) -> bool {
        self.tester.pace_bps().is_some()
    }

    /// Whether the channel usually carries clearly more.
    pub fn is_below_usual(&self) -> bool {
        self.usual.is_above(self.rate)
    }

    /// The rate that determines how often the channel is measured, in bit/s: the known one; or the
    /// usual one, if an interval still has enough datagrams, because a channel that has fallen must
    /// be measured often.
    pub fn measuring_bps(&self) -> u64 {
        let is_enough = self.rate >= MIN_MEASURING_BPS;
        if is_enough { self.rate_bps().max(to_bps(self.usual.rate())) } else { self.rate_bps() }
    }

    /// The known rate in bit/s: the rate of a cruise, or a lower bound.
    pub fn rate_bps(&self) -> u64 {
        to_bps(if self.is_unlimited() { self.rate } else { CRUISE_GAIN * self.rate })
    }

    /// Where [`Self::rate_bps`] is from.
    pub fn source(&self) -> RateSource {
        match self.bottleneck {
            BottleneckState::Unknown(_) if self.is_guess => RateSource::Guess,
            BottleneckState::Unknown(_) => RateSource::AtLeast,
            BottleneckState::Met | BottleneckState::Doubtful(_) => RateSource::Measured,
        }
    }

    /// The rate to plan with in a phase, in bit/s. Unless [`Self::is_probed`], it is the same in
    /// each phase.
    pub fn planned_bps(&self, phase: ProbePhase) -> u64 {
        let part = match (self.bottleneck, phase) {
            (BottleneckState::Unknown(growth), _) => growth,
            (BottleneckState::Met, ProbePhase::Probe) if self.is_below_usual() => FALLEN_PROBE_GAIN,
            (BottleneckState::Doubtful(_), _) | (BottleneckState::Met, ProbePhase::Probe) => {
                PROBE_GAIN
            }
            (BottleneckState::Met, ProbePhase::Cruise) => CRUISE_GAIN,
            (BottleneckState::Met, ProbePhase::Drain) => DRAIN_GAIN,
        };
        to_bps(self.rate * part)
    }

    /// The rate at which to send in a phase, in bit/s: the planned one, or that of a loss test.
    pub fn pace_bps(&self, phase: ProbePhase) -> u64 {
        self.tester.pace_bps().map_or_else(|| self.planned_bps(phase), to_bps)
    }

    /// The fraction that is lost at any rate, 0 to 1: by the last drains and loss tests.
    pub fn random_loss(&self) -> f64 {
        1.0 - self.random_loss.arrival_fraction()
    }

    /// Whether this number of bytes in this time is about the allowed rate of a phase.
    pub fn is_busy(&self, phase: ProbePhase, bytes: u64, time: Duration) -> bool {
        let part = if self.is_below_usual() { FALLEN_BUSY_FRACTION } else { BUSY_FRACTION };
        bits_per_second(bytes, time) >= part * from_bps(self.pace_bps(phase))
    }

    /// Called when the channel is down: a running test has no result.
    pub fn handle_outage(&mut self) {
        self.tester.cancel();
        (self.low, self.bursts, self.recent, self.unused, self.probe) = Default::default();
        self.grow_slowly();
    }

    /// A channel that had a fault may carry less after its recovery.
    fn grow_slowly(&mut self) {
        if let BottleneckState::Unknown(growth) = &mut self.bottleneck
            && !self.is_guess
        {
            *growth = MIN_GROWTH;
        }
    }

    /// Called if none of the last control shares has arrived, though packets may have: the channel
    /// may be given many times what it carries. A test shows whether it is.
    pub fn handle_silence(&mut self, now: Duration) {
        if !self.is_tested() {
            self.begin_test(now, LossEvidence::default());
        }
    }

    /// Handles an interval and the number of the phase that it was in, if it was in one.
    pub fn handle(
        &mut self,
        now: Duration,
        phase_number: Option<u64>,
        interval: MeasurementInterval,
    ) -> Option<ProbeResult> {
        if !self.is_guess {
            self.usual.update(now, self.rate);
        }
        if self.is_tested() {
            let verdict = self.tester.handle(now, interval)?;
            return self.handle_verdict(verdict);
        }
        if interval.sent < MIN_DATAGRAMS {
            return None;
        }
        self.random_loss.handle_interval(interval);
        if self.random_loss.loses_nearly_all() {
            return None;
        }
        self.forget_unused(interval);
        match self.bottleneck {
            BottleneckState::Unknown(growth) => return self.grow(now, interval, growth),
            BottleneckState::Doubtful(left) => return self.confirm(now, interval, left),
            BottleneckState::Met => {}
        }
        match (phase_number, phase_number.map(ProbeCycle::phase)) {
            (Some(phase_number), Some(ProbePhase::Probe)) => {
                self.probe = (interval.sent_bps() > self.rate).then_some((phase_number, interval));
                None
            }
            (Some(phase_number), Some(ProbePhase::Drain)) if !self.is_low(interval) => {
                self.random_loss.sample(interval.arrived_fraction());
                let (probed, probe) = self.probe.take()?;
                (probed + 1 == phase_number).then(|| self.evaluate(now, probe)).flatten()
            }
            _ => {
                self.watch(now, interval);
                None
            }
        }
    }

    /// Forgets a rate that is not reached although there is load: at once if a little of it is
    /// lost. Without loss only a rise is taken back, in steps.
    fn forget_unused(&mut self, interval: MeasurementInterval) {
        let is_idle = interval.sent_bps() < MIN_USED_FRACTION * self.rate;
        if is_idle || interval.sent_bps() > FULL_FRACTION * self.rate {
            self.unused = LossEvidence::default();
            return;
        }
        self.unused.add(interval);
        let sum = self.unused.sum();
        let is_lossless = sum.missing() == 0;
        let has_risen = self.is_unlimited() && self.rate > self.risen_from;
        if sum.sending < UNUSED_TIME || is_lossless && !has_risen {
            return;
        }
        let unused = std::mem::take(&mut self.unused);
        let carried = self.random_loss.correct_for_loss(unused.max_arrival_bps(), self.rate);
        let bound = self.risen_from.max(UNUSED_STEP * self.rate);
        self.set(if is_lossless { carried.max(bound) } else { carried });
        self.bottleneck = BottleneckState::Unknown(MIN_GROWTH);
    }

    /// Handles an interval while no bottleneck is known.
    fn grow(
        &mut self,
        now: Duration,
        interval: MeasurementInterval,
        growth: f64,
    ) -> Option<ProbeResult> {
        let (carried, sent) = (self.carried(interval), interval.sent_bps());
        let (is_new, is_known) =
            (carried > GROWN_FRACTION * self.rate, sent < BUSY_FRACTION * self.rate);
        // Beyond the known rate a bottleneck is likely, and much is lost until it is certain.
        let intervals = match carried / sent {
            _ if is_known && !self.is_low(interval) => 0,
            part if part >= NEARLY_FULL_FRACTION || is_new && part >= FULL_FRACTION => 0,
            part if part >= FULL_FRACTION => NEARLY_FULL_INTERVALS,
            part if part >= LOW_FRACTION && sent > GROWN_FRACTION * self.rate => 2,
            _ if sent > GROWN_FRACTION * self.rate => 1,
            _ => LOW_INTERVALS,
        };
        if intervals > 0 {
            self.suspect(now, interval, intervals);
            return None;
        }
        self.low = LossEvidence::default();
        if self.watch_long(now, interval, NEARLY_FULL_FRACTION) {
            return None;
        }
        if carried < NEARLY_FULL_FRACTION * sent && interval.missing() >= MIN_MISSING {
            // A burst was lost, so the rate is hardly more than this.
            self.bottleneck = BottleneckState::Unknown(MIN_GROWTH);
            if self.bursts.add(interval) >= LOST_BURSTS {
                let bursts = std::mem::take(&mut self.bursts);
                self.begin_test(now, bursts);
            }
        } else if carried > GROWING_FRACTION * self.rate {
            self.bottleneck = BottleneckState::Unknown((growth * GROWTH_STEP).min(MAX_GROWTH));
            self.grown_at = now;
        } else if sent >= MIN_LOAD_FRACTION * self.rate && interval.began >= self.grown_at {
            self.bottleneck = BottleneckState::Unknown((growth / GROWTH_STEP).max(MIN_GROWTH));
        }
        if carried > self.rate {
            self.is_guess = false;
            self.bursts = LossEvidence::default();
            self.set(carried);
        }
        None
    }

    /// Begins a loss test if less than this fraction of the last intervals arrived. Returns whether
    /// it did.
    fn watch_long(&mut self, now: Duration, interval: MeasurementInterval, enough: f64) -> bool {
        self.recent.add(interval);
        let sum = self.recent.sum();
        if sum.sent < LONG_DATAGRAMS || sum.sending < LONG_TIME {
            return false;
        }
        let recent = std::mem::take(&mut self.recent);
        self.random_loss.correct_for_loss(sum.arrived_fraction(), 1.0) < enough
            && self.begin_test(now, recent)
    }

    /// Whether far too little arrived, and enough was sent for this to be significant.
    fn is_low(&self, interval: MeasurementInterval) -> bool {
        let sent = self.counted_bps(interval);
        sent >= MIN_LOAD_FRACTION * self.rate && self.carried(interval) < LOW_FRACTION * sent
    }

    /// The rate of the sent bytes that counts: a probe or a growing rate may send more than is
    /// carried.
    fn counted_bps(&self, interval: MeasurementInterval) -> f64 {
        let sent = interval.sent_bps();
        if self.is_unlimited() { sent } else { sent.min(self.rate) }
    }

    /// Evaluates a probe, after its drain has shown the random loss.
    fn evaluate(&mut self, now: Duration, probe: MeasurementInterval) -> Option<ProbeResult> {
        let carried = self.carried(probe);
        if carried < FULL_FRACTION * probe.sent_bps() {
            return self.correct(now, probe, carried);
        }
        if carried < GROWN_FRACTION * self.rate {
            // Other channels have limited the probe.
            self.set(self.rate.max(carried));
            return Some(ProbeResult::Same);
        }
        self.recent = LossEvidence::default();
        if self.is_below_usual() {
            let growth = (self.usual.rate() / carried).clamp(MAX_GROWTH, MAX_FALLEN_GROWTH);
            self.bottleneck = BottleneckState::Unknown(growth);
            self.grown_at = now;
            self.set(carried);
        } else {
            self.bottleneck = BottleneckState::Doubtful(CONFIRMATIONS);
        }
        Some(ProbeResult::Changed)
    }

    /// Handles an interval after a probe that arrived.
    fn confirm(
        &mut self,
        now: Duration,
        interval: MeasurementInterval,
        left: u32,
    ) -> Option<ProbeResult> {
        if interval.sent_bps() < CONFIRM_FRACTION * self.rate {
            return None;
        }
        let carried = self.carried(interval);
        if carried < GROWN_FRACTION * self.rate {
            self.bottleneck = BottleneckState::Met;
            self.correct(now, interval, carried)?;
            return Some(ProbeResult::BottleneckMet);
        }
        self.bottleneck = BottleneckState::Doubtful(left - 1);
        if left == 1 {
            self.bottleneck = BottleneckState::Unknown(GROWTH_STEP);
            self.risen_from = self.rate;
            self.set(carried);
        }
        None
    }

    /// Sets this rate as carried, with no more. If it is far lower than the known one, a loss test
    /// must show whether it is right.
    fn correct(
        &mut self,
        now: Duration,
        probe: MeasurementInterval,
        carried: f64,
    ) -> Option<ProbeResult> {
        if carried < LOW_FRACTION * self.rate {
            self.suspect(now, probe, 1);
            return None;
        }
        let is_same = (carried - self.rate).abs() <= RATE_TOLERANCE * self.rate;
        // Random differences are averaged.
        self.set(if is_same { self.rate.midpoint(carried) } else { carried });
        Some(if is_same { ProbeResult::Same } else { ProbeResult::Changed })
    }

    /// Detects a rate that may have fallen.
    fn watch(&mut self, now: Duration, interval: MeasurementInterval) {
        if self.watch_long(now, interval, NEARLY_RIGHT_FRACTION) {
            return;
        }
        if !self.is_low(interval) {
            self.low = LossEvidence::default();
            return;
        }
        let is_very_low = self.carried(interval) < VERY_LOW_FRACTION * self.counted_bps(interval);
        let intervals = if is_very_low { VERY_LOW_INTERVALS } else { LOW_INTERVALS };
        self.suspect(now, interval, intervals);
    }

    /// Begins a loss test, if this number of intervals in a row have shown that the rate may be too
    /// high. If control shares were lost, an interval is longer and counts for as many messages.
    fn suspect(&mut self, now: Duration, interval: MeasurementInterval, intervals: u64) {
        if self.low.add(interval) >= intervals {
            let evidence = std::mem::take(&mut self.low);
            self.begin_test(now, evidence);
        }
    }

    fn begin_test(&mut self, now: Duration, evidence: LossEvidence) -> bool {
        if self.rate <= RATE_RANGE_BPS.0 {
            return false;
        }
        // The pace may be above the known rate, of which a test never gives more than a part.
        let rate = self.rate.max(evidence.sum().sent_bps());
        (self.bursts, self.recent, self.probe) = Default::default();
        self.tester.begin(now, rate, evidence)
    }

    fn handle_verdict(&mut self, verdict: LossTestResult) -> Option<ProbeResult> {
        let rate = match verdict {
            LossTestResult::Random { arriving } => {
                self.random_loss.reset(arriving);
                self.grow_slowly();
                return None;
            }
            LossTestResult::Bottleneck { rate, arriving } => {
                self.random_loss.reset(arriving);
                rate
            }
            LossTestResult::Below { rate } => rate,
        };
        self.is_guess = false;
        self.bottleneck = BottleneckState::Met;
        self.risen_from = f64::INFINITY;
        self.set(rate);
        Some(ProbeResult::Changed)
    }

    /// The carried rate, in bit/s, corrected for random loss.
    fn carried(&self, interval: MeasurementInterval) -> f64 {
        self.random_loss.correct_for_loss(interval.arriving_bps(), interval.bounded_send_bps())
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

fn from_bps(bps: u64) -> f64 {
    from_count(bps)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within RATES_BPS")]
fn to_bps(rate: f64) -> u64 {
    rate as u64
}

#[cfg(test)]
mod tests;
