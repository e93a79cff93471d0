//! Invalid input is rejected with the right error, whose message is one line.

use std::error::Error;

use sunder_model::{
    ChannelModel, ChannelModelError, ChannelSet, ChannelSetError, ChannelSubset, LossProbability,
    MAX_CHANNELS, MAX_GROUPS, OptimalSchedule, PlanError, PlanRequest, PlanRequestError,
    RiskProbability, ScheduleBound, ScheduleObjective, ScheduleRequirements, ShareSchedule,
    ShareScheduleError, ShareSelection, SharedRiskGroup,
};

/// Values that are not probabilities, times or rates.
const NO_NUMBERS: [f64; 4] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0];

fn good() -> ChannelModel {
    ChannelModel::new(RiskProbability(0.5), LossProbability(0.5), 1.0, 1.0).unwrap()
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
        assert_refused!(
            ChannelModel::new(RiskProbability(bad), LossProbability(0.0), 1.0, 1.0),
            ChannelModelError::Risk,
            bad
        );
        assert_refused!(
            ChannelModel::new(RiskProbability(0.0), LossProbability(bad), 1.0, 1.0),
            ChannelModelError::Loss,
            bad
        );
    }
    assert_refused!(
        ChannelModel::new(RiskProbability(0.0), LossProbability(1.0), 1.0, 1.0),
        ChannelModelError::Loss,
        1.0
    );
    for bad in NO_NUMBERS.into_iter().chain([86_400_001.0]) {
        assert_refused!(
            ChannelModel::new(RiskProbability(0.0), LossProbability(0.0), bad, 1.0),
            ChannelModelError::Delay,
            bad
        );
    }
    for bad in NO_NUMBERS.into_iter().chain([0.0, 9e-7, 1.1e9]) {
        assert_refused!(
            ChannelModel::new(RiskProbability(0.0), LossProbability(0.0), 1.0, bad),
            ChannelModelError::Rate,
            bad
        );
    }
}

#[test]
fn channels_at_the_ends_of_the_ranges() {
    let below_1 = 1.0 - f64::EPSILON / 2.0;
    for risk in [0.0, -0.0, f64::MIN_POSITIVE, 1.0] {
        for loss in [0.0, f64::MIN_POSITIVE, below_1] {
            for delay_ms in [0.0, 86_400_000.0] {
                for rate in [1e-6, 1e9] {
                    ChannelModel::new(RiskProbability(risk), LossProbability(loss), delay_ms, rate)
                        .unwrap();
                }
            }
        }
    }
}

#[test]
fn groups_out_of_range() {
    let two = ChannelSubset::first(2);
    for bad in NO_NUMBERS.into_iter().chain([1.5]) {
        assert_refused!(
            SharedRiskGroup::new(two, RiskProbability(bad), LossProbability(0.0)),
            ChannelSetError::GroupRisk,
            bad
        );
        assert_refused!(
            SharedRiskGroup::new(two, RiskProbability(0.0), LossProbability(bad)),
            ChannelSetError::GroupLoss,
            bad
        );
    }
    assert_refused!(
        SharedRiskGroup::new(two, RiskProbability(0.0), LossProbability(1.0)),
        ChannelSetError::GroupLoss,
        1.0
    );
    for few in [ChannelSubset::EMPTY, ChannelSubset::first(1), ChannelSubset::EMPTY.with(7)] {
        assert_eq!(
            SharedRiskGroup::new(few, RiskProbability(0.0), LossProbability(0.0)),
            Err(ChannelSetError::SmallGroup)
        );
    }
    assert_line(&ChannelSetError::SmallGroup, "at least two");
}

#[test]
fn sets_too_small_or_too_large() {
    assert_eq!(ChannelSet::new(Vec::new()), Err(ChannelSetError::Empty));
    assert_line(&ChannelSetError::Empty, "at least one");
    for many in [MAX_CHANNELS + 1, 64] {
        assert_eq!(ChannelSet::new(vec![good(); many]), Err(ChannelSetError::TooMany(many)));
        assert_line(&ChannelSetError::TooMany(many), &many.to_string());
    }
    ChannelSet::new(vec![good(); MAX_CHANNELS]).unwrap();

    let group =
        SharedRiskGroup::new(ChannelSubset::first(3), RiskProbability(0.1), LossProbability(0.1))
            .unwrap();
    let too_many = ChannelSetError::TooManyGroups(MAX_GROUPS + 1);
    let groups = vec![group; MAX_GROUPS + 1];
    assert_eq!(ChannelSet::with_groups(vec![good(); 3], groups), Err(too_many));
    assert_line(&too_many, &(MAX_GROUPS + 1).to_string());
    let unknown = ChannelSetError::UnknownChannel(2);
    assert_eq!(ChannelSet::with_groups(vec![good(); 2], vec![group]), Err(unknown));
    assert_line(&unknown, "channel 2");
}

#[test]
fn invalid_thresholds_and_subsets_are_rejected() {
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
fn invalid_schedules_are_rejected() {
    let one = ShareSelection::new(1, ChannelSubset::first(1)).unwrap();
    for bad in NO_NUMBERS.into_iter().chain([1.5]) {
        assert_refused!(ShareSchedule::new([(one, bad)]), ShareScheduleError::Proportion, bad);
    }
    for bad in [0.0, 0.5, 1.0 - 1e-8] {
        assert_refused!(ShareSchedule::new([(one, bad)]), ShareScheduleError::Sum, bad);
    }
    assert!(matches!(ShareSchedule::new([]), Err(ShareScheduleError::Sum(_))));
}

fn plan(requirements: &ScheduleRequirements) -> Result<OptimalSchedule, PlanError> {
    three().plan(&PlanRequest::new(requirements.clone())?)
}

fn refusal(request: &ScheduleRequirements) -> PlanRequestError {
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
fn invalid_kappa_and_mu_are_rejected() {
    for bad in NO_NUMBERS.into_iter().chain([0.0, 1.0 - f64::EPSILON]) {
        let request = ScheduleRequirements { kappa: Some(bad), ..ScheduleRequirements::default() };
        assert_refused!(Err::<(), _>(refusal(&request)), PlanRequestError::Kappa, bad);
        let request = ScheduleRequirements { mu: Some(bad), ..ScheduleRequirements::default() };
        assert_refused!(Err::<(), _>(refusal(&request)), PlanRequestError::Mu, bad);
    }
    let crossed = PlanRequestError::KappaAboveMu { kappa: 2.5, mu: 2.0 };
    assert_eq!(
        refusal(&ScheduleRequirements {
            kappa: Some(2.5),
            mu: Some(2.0),
            ..ScheduleRequirements::default()
        }),
        crossed
    );
    assert_line(&crossed, "2.5");
    for kappa in [None, Some(2.0), Some(3.5)] {
        let error = refusal(&ScheduleRequirements {
            kappa,
            mu: Some(3.5),
            ..ScheduleRequirements::default()
        });
        assert_eq!(error, PlanRequestError::TooFewChannels { name: "mu", value: 3.5, n: 3 });
        assert_line(&error, "3.5");
    }
    let error =
        refusal(&ScheduleRequirements { kappa: Some(4.0), ..ScheduleRequirements::default() });
    assert_eq!(error, PlanRequestError::TooFewChannels { name: "kappa", value: 4.0, n: 3 });
    let error =
        refusal(&ScheduleRequirements { full_rate: true, ..ScheduleRequirements::default() });
    assert_eq!(error, PlanRequestError::FullRateWithoutMu);
    assert_line(&error, "mu");
}

#[test]
fn invalid_least_thresholds_and_multiplicities_are_rejected() {
    for min_k in [0, 4, usize::MAX] {
        let error = refusal(&ScheduleRequirements { min_k, ..ScheduleRequirements::default() });
        assert_eq!(error, PlanRequestError::MinK { min_k });
        assert_line(&error, &min_k.to_string());
    }
    for min_m in [0, 4, usize::MAX] {
        let error = refusal(&ScheduleRequirements { min_m, ..ScheduleRequirements::default() });
        assert_eq!(error, PlanRequestError::MinM { min_m });
        assert_line(&error, &min_m.to_string());
    }
    let request =
        ScheduleRequirements { kappa: Some(1.5), mu: Some(2.5), ..ScheduleRequirements::default() };
    assert_eq!(
        refusal(&ScheduleRequirements { min_k: 2, ..request.clone() }),
        PlanRequestError::MinK { min_k: 2 }
    );
    assert_eq!(
        refusal(&ScheduleRequirements { min_m: 3, ..request.clone() }),
        PlanRequestError::MinM { min_m: 3 }
    );
    // The mean of m is never below that of k, so a minimum threshold above mu is a contradiction.
    let request =
        ScheduleRequirements { mu: Some(2.5), min_k: 3, ..ScheduleRequirements::default() };
    assert_eq!(refusal(&request), PlanRequestError::MinK { min_k: 3 });
}

#[test]
fn invalid_bounds_are_rejected() {
    type Set = fn(&mut ScheduleRequirements, f64);
    let bounds: [(&str, ScheduleBound, Set, bool); 5] = [
        ("risk", ScheduleBound::MaxRisk, |request, value| request.max_risk = Some(value), true),
        ("loss", ScheduleBound::MaxLoss, |request, value| request.max_loss = Some(value), true),
        (
            "delay",
            ScheduleBound::MaxDelay,
            |request, value| request.max_delay_ms = Some(value),
            false,
        ),
        (
            "delay of the symbols that arrive",
            ScheduleBound::MaxDeliveredDelay,
            |request, value| request.max_delivered_delay_ms = Some(value),
            false,
        ),
        ("rate", ScheduleBound::MinRate, |request, value| request.min_rate = Some(value), false),
    ];
    for (name, bound, set, is_probability) in bounds {
        for bad in NO_NUMBERS.into_iter().chain(is_probability.then_some(1.5)) {
            let mut request = ScheduleRequirements::default();
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
fn infeasible_bounds_are_reported() {
    let request = ScheduleRequirements { max_risk: Some(0.1), ..ScheduleRequirements::default() };
    // All three shares are seen with probability 1/8.
    let error = plan(&request).unwrap_err();
    assert_line(&error, "0.125");
    assert_line(&error, "risk");
    let error =
        plan(&ScheduleRequirements { min_rate: Some(4.0), ..ScheduleRequirements::default() })
            .unwrap_err();
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
    let channels = channels.map(|(z, l, d, r)| {
        ChannelModel::new(RiskProbability(z), LossProbability(l), d, r).unwrap()
    });
    let set = ChannelSet::new(channels.collect()).unwrap();
    for objective in [
        ScheduleObjective::Risk,
        ScheduleObjective::Loss,
        ScheduleObjective::Delay,
        ScheduleObjective::Rate,
    ] {
        let request =
            ScheduleRequirements { objectives: vec![objective], ..ScheduleRequirements::default() };
        let averages = set.plan(&PlanRequest::new(request).unwrap()).unwrap().averages;
        for value in [averages.risk, averages.loss, averages.delay_ms, averages.rate] {
            assert!(value.is_finite() && value >= 0.0, "{objective:?}: {averages:?}");
        }
    }
}
