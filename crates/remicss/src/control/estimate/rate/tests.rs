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
    let zero =
        Interval { sending: Duration::ZERO, arriving: Duration::ZERO, ..interval(1 << 40, 1.0) };
    for phase_number in 0..60 {
        learner.handle(Some(phase_number), Interval { sent_bytes: u64::MAX, ..zero });
    }
    assert!(learner.rate_bps() <= 100_000_000_000);
    for phase_number in 0..600 {
        learner
            .handle(Some(phase_number), Interval { received: 0, arriving: Duration::MAX, ..zero });
    }
    assert!(learner.rate_bps() >= 62_000);
}
