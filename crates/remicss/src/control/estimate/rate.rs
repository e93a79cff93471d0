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
mod tests {
    use super::*;

    const TENTH: Duration = Duration::from_millis(100);
    const PROBE_TURN: Option<u64> = Some(1);
    const DRAIN_TURN: Option<u64> = Some(2);
    const CRUISE_TURN: Option<u64> = Some(3);

    /// A tenth of a second at this rate, of which a fraction arrives.
    fn interval(pace_bps: u64, arriving: f64) -> Interval {
        let sent = pace_bps / 8 / 10 / 1000;
        Interval {
            sent,
            sent_bytes: sent * 1000,
            received: to_bps(from_bps(sent) * arriving),
            sending: TENTH,
            arriving: TENTH,
            messages: 1,
        }
    }

    /// An interval of this phase over a channel with this loss and capacity.
    fn send(
        learner: &mut RateEstimator,
        phase_number: u64,
        capacity_bps: f64,
        loss: f64,
    ) -> Option<ProbeResult> {
        let pace = learner.pace_bps(ProbeCycle::phase(phase_number));
        let through = (capacity_bps / from_bps(pace)).min(1.0) * (1.0 - loss);
        learner.handle(Some(phase_number), interval(pace, through))
    }

    /// A probe and its drain.
    fn cycle(learner: &mut RateEstimator, capacity_bps: f64, loss: f64) -> Option<ProbeResult> {
        assert_eq!(send(learner, 1, capacity_bps, loss), None);
        send(learner, 2, capacity_bps, loss)
    }

    /// Grows until a bottleneck is met, and returns the number of intervals.
    fn grow(learner: &mut RateEstimator, capacity_bps: f64, loss: f64) -> usize {
        (1..100)
            .find(|_| send(learner, 0, capacity_bps, loss) == Some(ProbeResult::BottleneckMet))
            .expect("a bottleneck is met")
    }

    /// An estimator with a known bottleneck at this rate in bit/s.
    fn met(rate: f64) -> RateEstimator {
        RateEstimator { rate, bottleneck: Bottleneck::Met, ..RateEstimator::new() }
    }

    #[test]
    fn doubles_until_it_meets_the_bottleneck_and_stays_there() {
        let mut learner = RateEstimator::new();
        assert_eq!((learner.source(), learner.rate_bps()), (RateSource::Guess, INITIAL_RATE_BPS));
        // From 20 Mbit/s to 1,280, of which too little arrives, but not far too little: that is
        // seen twice.
        assert_eq!(grow(&mut learner, 1e9, 0.0), 8);
        assert_eq!(learner.source(), RateSource::Measured);
        for _ in 0..20 {
            assert_eq!(cycle(&mut learner, 1e9, 0.0), Some(ProbeResult::Same));
            assert!((0.97e9..0.99e9).contains(&from_bps(learner.rate_bps())));
        }
    }

    #[test]
    fn a_channel_without_full_load_has_a_lower_bound() {
        let mut learner = RateEstimator::new();
        for _ in 0..10 {
            assert_eq!(learner.handle(CRUISE_TURN, interval(50_000_000, 1.0)), None);
        }
        assert_eq!((learner.source(), learner.rate_bps()), (RateSource::AtLeast, 50_000_000));
        assert_eq!(learner.pace_bps(Phase::Cruise), 100_000_000);
        assert_eq!(learner.pace_bps(Phase::Drain), 100_000_000, "it is in no phase");
        // An outage of an interval is not a bottleneck.
        assert_eq!(learner.handle(CRUISE_TURN, interval(50_000_000, 0.1)), None);
        assert_eq!(learner.handle(CRUISE_TURN, interval(50_000_000, 1.0)), None);
        assert_eq!(learner.source(), RateSource::AtLeast);
    }

    #[test]
    fn random_loss_lowers_it_for_a_few_probes_at_most() {
        for loss in [0.05, 0.2, 0.5] {
            let mut learner = RateEstimator::new();
            for _ in 0..60 {
                if learner.is_probed() {
                    cycle(&mut learner, 1e8, loss);
                } else {
                    send(&mut learner, 0, 1e8, loss);
                }
                assert!(learner.rate_bps() >= 4_000_000, "{learner:?}");
            }
            let rate = from_bps(learner.rate_bps());
            assert!((0.93e8..1e8).contains(&rate), "loss {loss}: {rate}");
        }
    }

    #[test]
    fn queueing_delay_lowers_the_measured_rate() {
        let mut learner = met(1e7);
        let probe = interval(12_500_000, 1.0);
        // All arrives, but later and later: 10 Mbit/s.
        learner.handle(PROBE_TURN, Interval { arriving: TENTH * 5 / 4, ..probe });
        let drain = Interval { arriving: TENTH * 3 / 4, ..interval(7_500_000, 1.0) };
        assert_eq!(learner.handle(DRAIN_TURN, drain), Some(ProbeResult::Same));
        assert!((9_700_000..=9_800_000).contains(&learner.rate_bps()));
    }

    #[test]
    fn a_probe_that_loses_less_than_usual_does_not_raise_the_rate() {
        let mut learner = met(1e7);
        let drain = interval(7_500_000, 0.9);
        for _ in 0..DRAIN_SAMPLES {
            learner.handle(DRAIN_TURN, drain);
        }
        let probe = Interval { arriving: TENTH * 5 / 4, ..interval(12_500_000, 1.0) };
        learner.handle(PROBE_TURN, probe);
        assert_eq!(learner.handle(DRAIN_TURN, drain), Some(ProbeResult::Same));
        assert!((9_700_000..=9_800_000).contains(&learner.rate_bps()), "{learner:?}");
    }

    /// A policer's burst lets a probe pass, and nothing after it.
    #[test]
    fn a_probe_that_arrives_has_to_be_confirmed() {
        let mut learner = met(1e8);
        for _ in 0..2 {
            assert_eq!(cycle(&mut learner, 2e8, 0.0), Some(ProbeResult::Changed));
            assert!((124_500_000..125_500_000).contains(&learner.pace_bps(Phase::Cruise)));
            assert_eq!(learner.handle(CRUISE_TURN, interval(97_000_000, 1.0)), None, "before");
            assert_eq!(send(&mut learner, 0, 1.25e8, 0.0), None);
            assert_eq!(send(&mut learner, 0, 1e8, 0.0), Some(ProbeResult::BottleneckMet));
            assert!((97_000_000..=99_000_000).contains(&learner.rate_bps()));
        }
        assert_eq!(cycle(&mut learner, 2e8, 0.0), Some(ProbeResult::Changed));
        let before = from_bps(learner.pace_bps(Phase::Cruise));
        for expected in [1.0, 1.25, 1.95, 3.81, 7.63, 15.26] {
            assert_eq!(send(&mut learner, 0, 1e10, 0.0), None);
            let pace = from_bps(learner.pace_bps(Phase::Cruise)) / before;
            assert!((pace / expected - 1.0).abs() < 0.01, "{pace}, not {expected}");
        }
    }

    /// Other channels limit what it is given: a little more than it is known to carry shows little.
    #[test]
    fn a_probe_limited_by_other_channels_raises_the_rate_to_what_arrived() {
        let mut learner = met(1e8);
        let probe = |learner: &mut RateEstimator, mbit: u64| {
            learner.handle(PROBE_TURN, interval(mbit * 1_000_000, 1.0));
            learner.handle(DRAIN_TURN, interval(75_000_000, 1.0))
        };
        assert_eq!(probe(&mut learner, 99), None);
        assert!((97_900_000..=98_000_000).contains(&learner.rate_bps()));
        assert_eq!(probe(&mut learner, 108), Some(ProbeResult::Same));
        assert!((105_800_000..=105_900_000).contains(&learner.rate_bps()));
        assert_eq!(probe(&mut learner, 120), Some(ProbeResult::Changed));
    }

    #[test]
    fn a_falling_rate_is_followed_after_three_intervals() {
        let mut learner = met(1e7);
        let cruise = |learner: &mut RateEstimator, part| {
            let pace = learner.pace_bps(Phase::Cruise);
            learner.handle(CRUISE_TURN, interval(pace, part))
        };
        assert_eq!(cruise(&mut learner, 0.2), None);
        assert_eq!(cruise(&mut learner, 0.95), None, "a burst of loss");
        assert_eq!([0.2, 0.25].map(|part| cruise(&mut learner, part)), [None, None]);
        assert_eq!(cruise(&mut learner, 0.2), Some(ProbeResult::Changed));
        assert!((2_300_000..=2_500_000).contains(&learner.rate_bps()));
    }

    #[test]
    fn a_falling_rate_with_lost_control_shares_is_followed() {
        let mut learner = met(1e7);
        let long = interval(INITIAL_RATE_BPS * 5, 0.2);
        let long = Interval { sending: TENTH * 5, arriving: TENTH * 5, messages: 5, ..long };
        assert_eq!(learner.handle(None, long), Some(ProbeResult::Changed));
        assert!((1_900_000..=2_000_000).contains(&learner.rate_bps()));
    }

    #[test]
    fn intervals_that_are_not_busy_are_ignored() {
        let mut learner = met(1e7);
        let half = interval(INITIAL_RATE_BPS, 0.5);
        assert_eq!(learner.handle(PROBE_TURN, half), None);
        assert_eq!(learner.handle(DRAIN_TURN, interval(1_000_000, 1.0)), None);
        assert_eq!(learner.handle(CRUISE_TURN, interval(1_000_000, 0.1)), None);
        assert_eq!(learner.rate_bps(), 9_800_000);
    }

    #[test]
    fn a_rate_stays_within_bounds() {
        let mut learner = RateEstimator::new();
        let zero = Interval {
            sending: Duration::ZERO,
            arriving: Duration::ZERO,
            ..interval(1 << 40, 1.0)
        };
        for phase_number in 0..60 {
            learner.handle(Some(phase_number), Interval { sent_bytes: u64::MAX, ..zero });
        }
        assert!(learner.rate_bps() <= 100_000_000_000);
        for phase_number in 0..600 {
            learner.handle(
                Some(phase_number),
                Interval { received: 0, arriving: Duration::MAX, ..zero },
            );
        }
        assert!(learner.rate_bps() >= 62_000);
    }
}
