//! Invalid input is rejected with the right error, whose message is one line.

use std::error::Error;

use sunder_model::{
    Bound, ChannelError, ChannelModel, ChannelSet, ChannelSubset, Loss, MAX_CHANNELS, MAX_GROUPS,
    Objective, Plan, PlanError, PlanRequest, PlanRequestError, Requirements, Risk, Schedule,
    ScheduleError, SetError, ShareSelection, SharedRiskGroup,
};

/// Values that are not probabilities, times or rates.
const NO_NUMBERS: [f64; 4] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0];

fn good() -> ChannelModel {
    ChannelModel::new(Risk(0.5), Loss(0.5), 1.0, 1.0).unwrap()
}

fn three() -> ChannelSet {
    ChannelSet::new(vec![good(); 3]).unwrap()
}

/// A message is one line of plain text, and contains `part`.
#[track_caller]
fn assert_line(error: &dyn Error, part: &str) {
    let message = error.to_string();
    assert!(message.contains(part), "{message:?} does not say {part:?}");
    assert!(message.len() < 200 && !message.contains('\n'), "{message:?} is not one short line");
    assert!(!message.ends_with('.') && !message.contains("  "), "{message:?}");
}

/// Asserts that the error is of the variant, contains the value, and names it. NaN is not equal to
/// itself, so values are compared as bits.
macro_rules! assert_refused {
    ($result:expr, $variant:path, $value:expr) => {{
        let value: f64 = $value;
        match $result {
            Err(error @ $variant(held)) => {
                assert_eq!(held.to_bits(), value.to_bits());
                assert_line(&error, &value.to_string());
            }
            other => panic!("{value}: {other:?}"),
        }
    }};
}

#[test]
fn channels_out_of_range() {
    for bad in NO_NUMBERS.into_iter().chain([-1e-9, 1.0 + f64::EPSILON, 2.0]) {
        assert_refused!(ChannelModel::new(Risk(bad), Loss(0.0), 1.0, 1.0), ChannelError::Risk, bad);
        assert_refused!(ChannelModel::new(Risk(0.0), Loss(bad), 1.0, 1.0), ChannelError::Loss, bad);
    }
    assert_refused!(ChannelModel::new(Risk(0.0), Loss(1.0), 1.0, 1.0), ChannelError::Loss, 1.0);
    for bad in NO_NUMBERS.into_iter().chain([86_400_001.0]) {
        assert_refused!(
            ChannelModel::new(Risk(0.0), Loss(0.0), bad, 1.0),
            ChannelError::Delay,
            bad
        );
    }
    for bad in NO_NUMBERS.into_iter().chain([0.0, 9e-7, 1.1e9]) {
        assert_refused!(ChannelModel::new(Risk(0.0), Loss(0.0), 1.0, bad), ChannelError::Rate, bad);
    }
}

#[test]
fn channels_at_the_ends_of_the_ranges() {
    let below_1 = 1.0 - f64::EPSILON / 2.0;
    for risk in [0.0, -0.0, f64::MIN_POSITIVE, 1.0] {
        for loss in [0.0, f64::MIN_POSITIVE, below_1] {
            for delay_ms in [0.0, 86_400_000.0] {
                for rate in [1e-6, 1e9] {
                    ChannelModel::new(Risk(risk), Loss(loss), delay_ms, rate).unwrap();
                }
            }
        }
    }
}

#[test]
fn groups_out_of_range() {
    let two = ChannelSubset::first(2);
    for bad in NO_NUMBERS.into_iter().chain([1.5]) {
        assert_refused!(SharedRiskGroup::new(two, Risk(bad), Loss(0.0)), SetError::GroupRisk, bad);
        assert_refused!(SharedRiskGroup::new(two, Risk(0.0), Loss(bad)), SetError::GroupLoss, bad);
    }
    assert_refused!(SharedRiskGroup::new(two, Risk(0.0), Loss(1.0)), SetError::GroupLoss, 1.0);
    for few in [ChannelSubset::EMPTY, ChannelSubset::first(1), ChannelSubset::EMPTY.with(7)] {
        assert_eq!(SharedRiskGroup::new(few, Risk(0.0), Loss(0.0)), Err(SetError::SmallGroup));
    }
    assert_line(&SetError::SmallGroup, "at least two");
}

#[test]
fn sets_too_small_or_too_large() {
    assert_eq!(ChannelSet::new(Vec::new()), Err(SetError::Empty));
    assert_line(&SetError::Empty, "at least one");
    for many in [MAX_CHANNELS + 1, 64] {
        assert_eq!(ChannelSet::new(vec![good(); many]), Err(SetError::TooMany(many)));
        assert_line(&SetError::TooMany(many), &many.to_string());
    }
    ChannelSet::new(vec![good(); MAX_CHANNELS]).unwrap();

    let group = SharedRiskGroup::new(ChannelSubset::first(3), Risk(0.1), Loss(0.1)).unwrap();
    let too_many = SetError::TooManyGroups(MAX_GROUPS + 1);
    let groups = vec![group; MAX_GROUPS + 1];
    assert_eq!(ChannelSet::with_groups(vec![good(); 3], groups), Err(too_many));
    assert_line(&too_many, &(MAX_GROUPS + 1).to_string());
    let unknown = SetError::UnknownChannel(2);
    assert_eq!(ChannelSet::with_groups(vec![good(); 2], vec![group]), Err(unknown));
    assert_line(&unknown, "channel 2");
}

#[test]
fn thresholds_and_subsets_that_cannot_be() {
    for (k, m) in [(0, 0), (1, 0), (0, 3), (4, 3), (usize::MAX, 3)] {
        let error = ShareSelection::new(k, ChannelSubset::first(m)).unwrap_err();
        assert_line(&error, &k.to_string());
    }
    // There is no channel beyond the last; it is ignored.
    assert_eq!(ChannelSubset::first(64).len(), MAX_CHANNELS);
    assert_eq!(ChannelSubset::EMPTY.with(MAX_CHANNELS), ChannelSubset::EMPTY);
    assert_eq!(ChannelSubset::EMPTY.with(64), ChannelSubset::EMPTY);
    assert!(!ChannelSubset::first(64).contains(64));
}

#[test]
fn schedules_that_are_none() {
    let one = ShareSelection::new(1, ChannelSubset::first(1)).unwrap();
    for bad in NO_NUMBERS.into_iter().chain([1.5]) {
        assert_refused!(Schedule::new([(one, bad)]), ScheduleError::Proportion, bad);
    }
    for bad in [0.0, 0.5, 1.0 - 1e-8] {
        assert_refused!(Schedule::new([(one, bad)]), ScheduleError::Sum, bad);
    }
    assert!(matches!(Schedule::new([]), Err(ScheduleError::Sum(_))));
}

fn plan(requirements: &Requirements) -> Result<Plan, PlanError> {
    three().plan(&PlanRequest::new(requirements.clone())?)
}

fn refusal(request: &Requirements) -> PlanRequestError {
    match plan(request) {
        Err(PlanError::Request(error)) => {
            // The plan's error has the message of the request's.
            assert_eq!(PlanError::Request(error).to_string(), error.to_string());
            error
        }
        other => panic!("{request:?}: {other:?}"),
    }
}

#[test]
fn kappa_and_mu_that_cannot_be() {
    for bad in NO_NUMBERS.into_iter().chain([0.0, 1.0 - f64::EPSILON]) {
        let request = Requirements { kappa: Some(bad), ..Requirements::default() };
        assert_refused!(Err::<(), _>(refusal(&request)), PlanRequestError::Kappa, bad);
        let request = Requirements { mu: Some(bad), ..Requirements::default() };
        assert_refused!(Err::<(), _>(refusal(&request)), PlanRequestError::Mu, bad);
    }
    let crossed = PlanRequestError::KappaAboveMu { kappa: 2.5, mu: 2.0 };
    assert_eq!(
        refusal(&Requirements { kappa: Some(2.5), mu: Some(2.0), ..Requirements::default() }),
        crossed
    );
    assert_line(&crossed, "2.5");
    for kappa in [None, Some(2.0), Some(3.5)] {
        let error = refusal(&Requirements { kappa, mu: Some(3.5), ..Requirements::default() });
        assert_eq!(error, PlanRequestError::TooFewChannels { name: "mu", value: 3.5, n: 3 });
        assert_line(&error, "3.5");
    }
    let error = refusal(&Requirements { kappa: Some(4.0), ..Requirements::default() });
    assert_eq!(error, PlanRequestError::TooFewChannels { name: "kappa", value: 4.0, n: 3 });
    let error = refusal(&Requirements { full_rate: true, ..Requirements::default() });
    assert_eq!(error, PlanRequestError::FullRateWithoutMu);
    assert_line(&error, "mu");
}

#[test]
fn least_thresholds_and_multiplicities_that_cannot_be() {
    for min_k in [0, 4, usize::MAX] {
        let error = refusal(&Requirements { min_k, ..Requirements::default() });
        assert_eq!(error, PlanRequestError::MinK { min_k });
        assert_line(&error, &min_k.to_string());
    }
    for min_m in [0, 4, usize::MAX] {
        let error = refusal(&Requirements { min_m, ..Requirements::default() });
        assert_eq!(error, PlanRequestError::MinM { min_m });
        assert_line(&error, &min_m.to_string());
    }
    let request = Requirements { kappa: Some(1.5), mu: Some(2.5), ..Requirements::default() };
    assert_eq!(
        refusal(&Requirements { min_k: 2, ..request.clone() }),
        PlanRequestError::MinK { min_k: 2 }
    );
    assert_eq!(
        refusal(&Requirements { min_m: 3, ..request.clone() }),
        PlanRequestError::MinM { min_m: 3 }
    );
    // The mean of m is never below that of k, so a minimum threshold above mu is a contradiction.
    let request = Requirements { mu: Some(2.5), min_k: 3, ..Requirements::default() };
    assert_eq!(refusal(&request), PlanRequestError::MinK { min_k: 3 });
}

#[test]
fn bounds_that_cannot_be() {
    type Set = fn(&mut Requirements, f64);
    let bounds: [(&str, Bound, Set, bool); 5] = [
        ("risk", Bound::MaxRisk, |request, value| request.max_risk = Some(value), true),
        ("loss", Bound::MaxLoss, |request, value| request.max_loss = Some(value), true),
        ("delay", Bound::MaxDelay, |request, value| request.max_delay_ms = Some(value), false),
        (
            "delay of what arrives",
            Bound::MaxDeliveredDelay,
            |request, value| request.max_delivered_delay_ms = Some(value),
            false,
        ),
        ("rate", Bound::MinRate, |request, value| request.min_rate = Some(value), false),
    ];
    for (name, bound, set, is_probability) in bounds {
        for bad in NO_NUMBERS.into_iter().chain(is_probability.then_some(1.5)) {
            let mut request = Requirements::default();
            set(&mut request, bad);
            match refusal(&request) {
                error @ PlanRequestError::Bound(of, held) => {
                    assert_eq!((of, held.to_bits()), (bound, bad.to_bits()));
                    assert_line(&error, name);
                }
                other => panic!("{name} {bad}: {other:?}"),
            }
        }
    }
}

/// The error of an infeasible request is one line too, with the feasible value.
#[test]
fn bounds_that_no_schedule_keeps() {
    let request = Requirements { max_risk: Some(0.1), ..Requirements::default() };
    // All three shares are seen with probability 1/8.
    let error = plan(&request).unwrap_err();
    assert_line(&error, "0.125");
    assert_line(&error, "risk");
    let error = plan(&Requirements { min_rate: Some(4.0), ..Requirements::default() }).unwrap_err();
    assert_line(&error, "rate");
    assert!(matches!(error, PlanError::Infeasible { best, .. } if (best - 3.0).abs() < 1e-9));
}

#[test]
fn rates_and_schedules_outside_of_what_there_is() {
    let set = three();
    for bad in NO_NUMBERS.into_iter().chain([0.0, 0.999, 3.001]) {
        assert_eq!(set.best_rate(bad), None);
        assert_eq!(set.assured_rate(bad), None);
        assert_eq!(set.fully_used(bad), None);
        assert_eq!(set.used_rates(bad), None);
        for (kappa, mu) in [(1.0, bad), (bad, 2.0), (bad, bad)] {
            assert_eq!(set.limited_schedule(kappa, mu), None);
            assert_eq!(set.limited_schedule_at_best_rate(kappa, mu), None);
        }
    }
    for bad in NO_NUMBERS.into_iter().chain([0.0, 3.001]) {
        assert_eq!(set.multiplicity_at(bad), None);
    }
}

/// Values at the ends of their ranges make a plan, and no number of it is not a number.
#[test]
fn extreme_channels_have_plans() {
    let below_1 = 1.0 - f64::EPSILON / 2.0;
    let extreme = [(1.0, below_1, 86_400_000.0, 1e-6), (0.0, below_1, 0.0, 1e9)];
    let channels = extreme.into_iter().cycle().take(6);
    let channels = channels.map(|(z, l, d, r)| ChannelModel::new(Risk(z), Loss(l), d, r).unwrap());
    let set = ChannelSet::new(channels.collect()).unwrap();
    for objective in [Objective::Risk, Objective::Loss, Objective::Delay, Objective::Rate] {
        let request = Requirements { objectives: vec![objective], ..Requirements::default() };
        let averages = set.plan(&PlanRequest::new(request).unwrap()).unwrap().averages;
        for value in [averages.risk, averages.loss, averages.delay_ms, averages.rate] {
            assert!(value.is_finite() && value >= 0.0, "{objective:?}: {averages:?}");
        }
    }
}
