use std::ops::Deref;

use super::*;

const TENTH: Duration = Duration::from_millis(100);
const PROBE_TURN: Option<u64> = Some(1);
const DRAIN_TURN: Option<u64> = Some(2);
const CRUISE_TURN: Option<u64> = Some(3);

/// An estimator and its clock, by which each interval follows the last.
struct Learner {
    estimator: RateEstimator,
    now: Duration,
}

impl Deref for Learner {
    type Target = RateEstimator;

    fn deref(&self) -> &RateEstimator {
        &self.estimator
    }
}

impl Learner {
    fn new() -> Self {
        Self { estimator: RateEstimator::new(), now: Duration::ZERO }
    }

    /// With a known bottleneck at this rate in bit/s.
    fn met(rate: f64) -> Self {
        let estimator = RateEstimator {
            rate,
            is_guess: false,
            bottleneck: BottleneckState::Met,
            ..RateEstimator::new()
        };
        Self { estimator, now: Duration::ZERO }
    }

    fn handle(
        &mut self,
        phase_number: Option<u64>,
        interval: MeasurementInterval,
    ) -> Option<ProbeResult> {
        let began = self.now;
        self.now += interval.sending;
        self.estimator.handle(self.now, phase_number, MeasurementInterval { began, ..interval })
    }

    /// An interval of this phase over a channel with this loss and capacity.
    fn send(&mut self, phase_number: u64, capacity_bps: f64, loss: f64) -> Option<ProbeResult> {
        let pace = self.pace_bps(ProbeCycle::phase(phase_number));
        let through = (capacity_bps / from_bps(pace)).min(1.0) * (1.0 - loss);
        self.handle(Some(phase_number), interval(pace, through))
    }

    /// A probe and its drain.
    fn cycle(&mut self, capacity_bps: f64, loss: f64) -> Option<ProbeResult> {
        self.send(1, capacity_bps, loss);
        self.send(2, capacity_bps, loss)
    }

    /// Grows until a bottleneck is met, and returns the number of intervals.
    fn grow(&mut self, capacity_bps: f64, loss: f64) -> usize {
        let grown = (1..100).find(|_| {
            self.send(0, capacity_bps, loss);
            self.is_probed()
        });
        grown.expect("a bottleneck is met")
    }

    /// Cruises for this number of intervals.
    fn cruise(&mut self, intervals: u64, capacity_bps: f64, loss: f64) {
        for _ in 0..intervals {
            self.send(3, capacity_bps, loss);
        }
    }
}

/// A tenth of a second at this rate, of which a fraction arrives.
fn interval(pace_bps: u64, arriving: f64) -> MeasurementInterval {
    let sent = pace_bps / 8 / 10 / 1000;
    MeasurementInterval {
        began: Duration::ZERO,
        sent,
        sent_bytes: sent * 1000,
        received: to_bps(from_bps(sent) * arriving),
        sending: TENTH,
        arriving: TENTH,
        messages: 1,
    }
}

#[test]
fn doubles_until_it_meets_the_bottleneck_and_stays_there() {
    let mut learner = Learner::new();
    assert_eq!((learner.source(), learner.rate_bps()), (RateSource::Guess, INITIAL_RATE_BPS));
    // From 20 Mbit/s to 1,280, of which too little arrives, but not far too little: that is
    // seen twice, and then tested.
    assert_eq!(learner.grow(1e9, 0.0), 9);
    assert_eq!(learner.source(), RateSource::Measured);
    for _ in 0..20 {
        assert_eq!(learner.cycle(1e9, 0.0), Some(ProbeResult::Same));
        assert!((0.97e9..0.99e9).contains(&from_bps(learner.rate_bps())));
    }
}

#[test]
fn a_channel_without_full_load_has_a_lower_bound() {
    let mut learner = Learner::new();
    for _ in 0..10 {
        assert_eq!(learner.handle(CRUISE_TURN, interval(50_000_000, 1.0)), None);
    }
    assert_eq!((learner.source(), learner.rate_bps()), (RateSource::AtLeast, 50_000_000));
    // As long as it is not given more, little more is planned with.
    assert_eq!(learner.pace_bps(ProbePhase::Cruise), 52_500_000);
    assert_eq!(learner.pace_bps(ProbePhase::Drain), 52_500_000, "it is in no phase");
    // An outage of an interval is not a bottleneck.
    assert_eq!(learner.handle(CRUISE_TURN, interval(50_000_000, 0.1)), None);
    assert_eq!(learner.handle(CRUISE_TURN, interval(50_000_000, 1.0)), None);
    assert_eq!(learner.source(), RateSource::AtLeast);
    assert!(!learner.is_tested());
}

/// Loss is not a rate: whatever part is lost at random, from the first interval or later.
#[test]
fn random_loss_does_not_lower_a_rate() {
    for loss in [0.05, 0.2, 0.3, 0.6, 0.9, 0.97, 1.0] {
        let mut learner = Learner::met(1e8);
        for _ in 0..60 {
            learner.cycle(1e8, loss);
            learner.cruise(4, 1e8, loss);
            assert!(learner.rate_bps() >= 80_000_000, "loss {loss}: {}", learner.rate_bps());
        }
        learner.cruise(4, 1e8, 0.0);
        learner.cycle(1e8, 0.0);
        let rate = from_bps(learner.rate_bps());
        assert!((0.9e8..1.05e8).contains(&rate), "loss {loss}: {rate}");
    }
    for loss in [0.05, 0.2, 0.5] {
        let mut learner = Learner::new();
        for _ in 0..60 {
            if learner.is_probed() {
                learner.cycle(1e8, loss);
            } else {
                learner.send(0, 1e8, loss);
            }
            assert!(learner.rate_bps() >= INITIAL_RATE_BPS);
        }
        let rate = from_bps(learner.rate_bps());
        assert!((0.93e8..1e8).contains(&rate), "loss {loss}: {rate}");
    }
}

#[test]
fn queueing_delay_lowers_the_measured_rate() {
    let mut learner = Learner::met(1e7);
    let probe = interval(12_500_000, 1.0);
    // All arrives, but later and later: 10 Mbit/s.
    learner.handle(PROBE_TURN, MeasurementInterval { arriving: TENTH * 5 / 4, ..probe });
    let drain = MeasurementInterval { arriving: TENTH * 3 / 4, ..interval(7_500_000, 1.0) };
    assert_eq!(learner.handle(DRAIN_TURN, drain), Some(ProbeResult::Same));
    assert!((9_700_000..=9_800_000).contains(&learner.rate_bps()));
}

#[test]
fn a_probe_that_loses_less_than_usual_does_not_raise_the_rate() {
    let mut learner = Learner::met(1e7);
    let drain = interval(7_500_000, 0.95);
    for _ in 0..4 {
        learner.handle(DRAIN_TURN, drain);
    }
    let probe = MeasurementInterval { arriving: TENTH * 5 / 4, ..interval(12_500_000, 1.0) };
    learner.handle(PROBE_TURN, probe);
    assert_eq!(learner.handle(DRAIN_TURN, drain), Some(ProbeResult::Same));
    assert!((9_700_000..=9_800_000).contains(&learner.rate_bps()));
}

/// A policer's burst lets a probe pass, and nothing after it.
#[test]
fn a_probe_that_arrives_has_to_be_confirmed() {
    let mut learner = Learner::met(1e8);
    for _ in 0..2 {
        assert_eq!(learner.cycle(2e8, 0.0), Some(ProbeResult::Changed));
        assert!((124_500_000..125_500_000).contains(&learner.pace_bps(ProbePhase::Cruise)));
        assert_eq!(learner.handle(CRUISE_TURN, interval(97_000_000, 1.0)), None, "before");
        assert_eq!(learner.send(0, 1.25e8, 0.0), None);
        assert_eq!(learner.send(0, 1e8, 0.0), Some(ProbeResult::BottleneckMet));
        assert!((97_000_000..=99_000_000).contains(&learner.rate_bps()));
    }
    assert_eq!(learner.cycle(2e8, 0.0), Some(ProbeResult::Changed));
    let before = from_bps(learner.pace_bps(ProbePhase::Cruise));
    for expected in [1.0, 1.25, 1.95, 3.81, 7.63, 15.26] {
        assert_eq!(learner.send(0, 1e10, 0.0), None);
        let pace = from_bps(learner.pace_bps(ProbePhase::Cruise)) / before;
        assert!((pace / expected - 1.0).abs() < 0.01, "{pace}, not {expected}");
    }
}

/// Other channels limit what it is given: a little more than it is known to carry shows little.
#[test]
fn a_probe_limited_by_other_channels_raises_the_rate_to_what_arrived() {
    let mut learner = Learner::met(1e8);
    let probe = |learner: &mut Learner, mbit: u64| {
        learner.handle(PROBE_TURN, interval(mbit * 1_000_000, 1.0));
        learner.handle(DRAIN_TURN, interval(75_000_000, 1.0))
    };
    assert_eq!(probe(&mut learner, 99), None);
    assert!((97_900_000..=98_000_000).contains(&learner.rate_bps()));
    assert_eq!(probe(&mut learner, 108), Some(ProbeResult::Same));
    assert!((105_800_000..=105_900_000).contains(&learner.rate_bps()));
    assert_eq!(probe(&mut learner, 120), Some(ProbeResult::Changed));
}

/// Two or three intervals show it, and a loss test of an interval.
#[test]
fn a_rate_that_falls_is_followed() {
    for (capacity, intervals) in [(7e6, 4), (2e6, 3), (1.5e6, 3)] {
        let mut learner = Learner::met(1e7);
        learner.cruise(intervals - 1, capacity, 0.0);
        assert_eq!((learner.rate_bps(), learner.is_tested()), (9_800_000, true), "{capacity}");
        learner.cruise(1, capacity, 0.0);
        let rate = from_bps(learner.rate_bps());
        assert!((0.9 * capacity..capacity).contains(&rate), "{rate}, not {capacity}");
    }
}

#[test]
fn a_burst_of_loss_is_no_low_rate() {
    let mut learner = Learner::met(1e7);
    for part in [0.2, 0.95, 0.6, 0.6, 0.95] {
        let pace = learner.pace_bps(ProbePhase::Cruise);
        assert_eq!(learner.handle(CRUISE_TURN, interval(pace, part)), None);
        assert!(!learner.is_tested());
    }
}

/// A rate falls by loss tests, and with random loss at the same time.
#[test]
fn a_rate_that_falls_far_beside_random_loss_is_followed() {
    for capacity in [3e6, 1e7, 5e7] {
        for loss in [0.1, 0.3, 0.5] {
            let mut learner = Learner::met(1e8);
            for _ in 0..10 {
                learner.cruise(8, capacity, loss);
                learner.cycle(capacity, loss);
            }
            let rate = from_bps(learner.rate_bps());
            assert!((0.8 * capacity..1.25 * capacity).contains(&rate), "{rate}, not {capacity}");
        }
    }
}

#[test]
fn a_falling_rate_with_lost_control_shares_is_followed() {
    let mut learner = Learner::met(1e7);
    let long = interval(INITIAL_RATE_BPS * 5, 0.2);
    let long = MeasurementInterval { sending: TENTH * 5, arriving: TENTH * 5, messages: 5, ..long };
    assert_eq!(learner.handle(None, long), None);
    assert!(learner.is_tested());
    learner.cruise(1, 2e6, 0.0);
    assert!((1_900_000..=2_000_000).contains(&learner.rate_bps()));
}

/// A channel that usually carries more is probed often, and grows at once: from the minimum to 20
/// Mbit/s within 20 intervals, of which 5 are cruises before a probe.
#[test]
fn a_rate_that_has_fallen_returns_soon() {
    let mut learner = Learner::met(2e7);
    learner.cruise(50, 2e7, 0.0);
    learner.cruise(30, 3e5, 0.0);
    assert_eq!(learner.rate_bps(), 588_000, "the minimum");
    learner.cycle(3e5, 0.0);
    assert_eq!(learner.cycle(2e7, 0.0), Some(ProbeResult::Changed));
    assert_eq!(learner.source(), RateSource::AtLeast);
    let intervals = learner.grow(2e7, 0.0);
    assert!(intervals <= 10, "{intervals}");
    assert!((19_000_000..=20_000_000).contains(&learner.rate_bps()), "{}", learner.rate_bps());
}

/// Bursts are lost of a load that is lower on average than the known rate.
#[test]
fn lost_bursts_show_a_bottleneck() {
    let mut learner = Learner::new();
    for _ in 0..20 {
        learner.handle(CRUISE_TURN, interval(53_000_000, 1.0));
    }
    assert_eq!(learner.source(), RateSource::AtLeast);
    for _ in 0..30 {
        let load = learner.pace_bps(ProbePhase::Cruise).min(14_000_000);
        let part = if learner.is_tested() { 1.0 } else { 0.95 };
        learner.handle(CRUISE_TURN, interval(load, part));
        if learner.is_probed() {
            break;
        }
    }
    assert_eq!(learner.source(), RateSource::Measured);
    assert!((12_000_000..=14_000_000).contains(&learner.rate_bps()));
    // Random loss is as high in the test.
    let mut learner = Learner::new();
    for _ in 0..20 {
        learner.handle(CRUISE_TURN, interval(53_000_000, 1.0));
    }
    for _ in 0..100 {
        let load = learner.pace_bps(ProbePhase::Cruise).min(14_000_000);
        learner.handle(CRUISE_TURN, interval(load, 0.95));
        assert_eq!(learner.source(), RateSource::AtLeast);
    }
}

#[test]
fn an_outage_ends_a_loss_test() {
    let mut learner = Learner::met(1e7);
    learner.cruise(2, 1e6, 0.0);
    assert!(learner.is_tested());
    learner.estimator.handle_outage();
    assert_eq!((learner.is_tested(), learner.rate_bps()), (false, 9_800_000));
}

#[test]
fn intervals_that_are_not_busy_are_ignored() {
    let mut learner = Learner::met(1e7);
    let half = interval(INITIAL_RATE_BPS, 0.5);
    assert_eq!(learner.handle(PROBE_TURN, half), None);
    assert_eq!(learner.handle(DRAIN_TURN, interval(1_000_000, 1.0)), None);
    assert_eq!(learner.handle(CRUISE_TURN, interval(1_000_000, 0.1)), None);
    assert_eq!(learner.rate_bps(), 9_800_000);
}

#[test]
fn a_rate_stays_within_bounds() {
    let mut learner = Learner::new();
    let zero = MeasurementInterval {
        sending: Duration::ZERO,
        arriving: Duration::ZERO,
        ..interval(1 << 40, 1.0)
    };
    for phase_number in 0..60 {
        learner.handle(Some(phase_number), MeasurementInterval { sent_bytes: u64::MAX, ..zero });
    }
    assert!(learner.rate_bps() <= 100_000_000_000);
    for phase_number in 0..600 {
        let interval = MeasurementInterval { received: 0, arriving: Duration::MAX, ..zero };
        learner.handle(Some(phase_number), interval);
    }
    assert!(learner.rate_bps() >= 588_000);
}

/// A channel that carries a twentieth of what it is given loses its control shares, too.
#[test]
fn a_channel_without_measurements_is_tested_at_the_lowest_rate() {
    let mut learner = Learner { now: TENTH, ..Learner::met(40e6) };
    learner.estimator.handle_silence(learner.now);
    assert!(learner.is_tested());
    assert!(learner.pace_bps(ProbePhase::Cruise) <= 800_000);
    // The first share that arrives tells what has arrived before the test.
    let before =
        MeasurementInterval { began: Duration::ZERO, messages: 5, ..interval(40_000_000, 0.05) };
    let now = learner.now + TENTH;
    assert_eq!(learner.estimator.handle(now, None, before), None);
    learner.now = now;
    let results = (0..20).find_map(|_| learner.send(3, 2e6, 0.0));
    assert_eq!(results, Some(ProbeResult::Changed));
    assert!((1.8e6..2.2e6).contains(&from_bps(learner.rate_bps())), "{}", learner.rate_bps());
}

/// TCP that has adapted itself to a lower rate loses little.
#[test]
fn a_rate_that_is_not_reached_is_forgotten_if_some_is_lost() {
    for (arriving, expected) in
        [(1.0, (30.5e6, RateSource::Measured)), (0.996, (20e6, RateSource::AtLeast))]
    {
        let mut learner = Learner::met(31e6);
        for _ in 0..30 {
            learner.handle(CRUISE_TURN, interval(20_000_000, arriving));
        }
        assert_eq!(learner.source(), expected.1);
        let rate = from_bps(learner.rate_bps());
        assert!((rate - expected.0).abs() < 5e5, "{rate}");
    }
}

/// BBR that fills a channel whose rate has risen and fallen back loses nothing.
#[test]
fn a_rise_that_is_not_reached_is_taken_back_in_steps() {
    let mut learner = Learner::met(20e6);
    learner.cycle(50e6, 0.0);
    for _ in 0..20 {
        let pace = learner.pace_bps(ProbePhase::Cruise).min(32_000_000);
        learner.handle(CRUISE_TURN, interval(pace, 1.0));
    }
    assert_eq!((learner.source(), learner.rate_bps()), (RateSource::AtLeast, 32_000_000));
    let mut bounds = vec![learner.rate_bps()];
    for _ in 0..120 {
        learner.handle(CRUISE_TURN, interval(16_000_000, 1.0));
        bounds.push(learner.rate_bps());
    }
    bounds.dedup();
    assert!(bounds.starts_with(&[32_000_000, 25_600_000, 20_480_000]), "{bounds:?}");
    // Not below the bottleneck that it has risen from, and nothing that is idle.
    assert_eq!(bounds.len(), 4, "{bounds:?}");
    assert!((19e6..20.4e6).contains(&from_bps(bounds[3])), "{bounds:?}");
    for _ in 0..90 {
        learner.handle(CRUISE_TURN, interval(4_000_000, 1.0));
    }
    assert_eq!(learner.rate_bps(), bounds[3]);
}

/// A rise does not outlast the next bottleneck: what is forgotten after it is no rise.
#[test]
fn a_bottleneck_ends_a_rise() {
    let mut learner = Learner::met(20e6);
    learner.cycle(50e6, 0.0);
    learner.grow(40e6, 0.0);
    assert_eq!(learner.source(), RateSource::Measured);
    // TCP at a lower rate loses a little, and the bound is what it reaches.
    for _ in 0..30 {
        learner.handle(CRUISE_TURN, interval(32_000_000, 0.996));
    }
    assert_eq!(learner.source(), RateSource::AtLeast);
    let bound = learner.rate_bps();
    for _ in 0..90 {
        learner.handle(CRUISE_TURN, interval(24_000_000, 1.0));
    }
    assert_eq!(learner.rate_bps(), bound);
}

/// What is sent may be as little by itself.
#[test]
fn a_lower_bound_that_is_not_reached_stays_if_nothing_is_lost() {
    let mut learner = Learner::new();
    for rate in [32_000_000, 16_000_000] {
        for _ in 0..90 {
            learner.handle(CRUISE_TURN, interval(rate, 1.0));
        }
        assert_eq!((learner.source(), learner.rate_bps()), (RateSource::AtLeast, 32_000_000));
    }
}
