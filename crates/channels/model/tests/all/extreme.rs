//! Requests with numbers that are far apart: tiny probabilities, rates across six decades, bounds
//! with large rounding errors. A plan meets the whole request, and every feasible request gets one.

use sim::SeededRng;
use sunder_model::{
    ChannelModel, ChannelSet, ChannelSubset, LossProbability, OptimalSchedule, PlanError,
    RiskProbability, ScheduleBound, ScheduleObjective, ScheduleRequirements, ShareSchedule,
    ShareSelection, SharedRiskGroup,
};

use crate::textbook::sets::{OBJECTIVES, fraction, means, requirements};
use crate::textbook::{averages, plan_for};

/// The number of random requests.
const REQUESTS: usize = 20_000;

/// The model's promised error of bounds: relative to them, and to the maximum value.
const EXACT: (f64, f64) = (1e-6, 1e-14);

#[test]
fn requirements_are_met_or_reported_as_infeasible() {
    let mut rng = SeededRng::new(8);
    let (mut planned, mut impossible) = (0, 0);
    let mut tightest = 1.0;
    for _ in 0..REQUESTS {
        let n = 1 + rng.index(6);
        let set = set(&mut rng, n);
        let request = request(&mut rng, &set);
        match plan_for(&set, &request) {
            Ok(plan) => {
                check(&set, &request, &plan);
                planned += 1;
                let bounds = [request.max_risk, request.max_loss].into_iter().flatten();
                tightest = bounds.filter(|bound| *bound > 0.0).fold(tightest, f64::min);
            }
            Err(PlanError::Infeasible { bound, wanted, best }) => {
                assert_eq!(
                    bound == ScheduleBound::MinRate,
                    best < wanted,
                    "{best}: {set:?}\n{request:?}"
                );
                impossible += 1;
            }
            Err(error) => panic!("{error}: {set:?}\n{request:?}"),
        }
    }
    println!(
        "{REQUESTS} requests: {planned} plans (the lowest bound on risk or loss {tightest:.0e}), \
         {impossible} that no schedule meets"
    );
    assert!(planned > REQUESTS / 4 && impossible > REQUESTS / 10, "{planned} and {impossible}");
}

/// Channels of any kind, some of which may be in groups.
fn set(rng: &mut SeededRng, n: usize) -> ChannelSet {
    let channels = (0..n).map(|_| {
        let delay_ms = if rng.chance(20) { 0.0 } else { 1000.0 * decades(rng) };
        ChannelModel::new(
            RiskProbability(probability(rng)),
            LossProbability(0.99 * probability(rng)),
            delay_ms,
            1e6 * decades(rng),
        )
    });
    let channels = channels.collect::<Result<Vec<ChannelModel>, _>>().unwrap();
    let groups = if n > 1 && rng.chance(30) { 1 + rng.index(3) } else { 0 };
    let groups = (0..groups).map(|_| {
        let mut order: Vec<usize> = (0..n).collect();
        rng.shuffle(&mut order);
        let members: ChannelSubset = order.into_iter().take(2 + rng.index(n - 1)).collect();
        SharedRiskGroup::new(
            members,
            RiskProbability(probability(rng)),
            LossProbability(0.99 * probability(rng)),
        )
        .unwrap()
    });
    let groups = groups.collect();
    ChannelSet::with_groups(channels, groups).unwrap()
}

/// From a millionth to 1, with every decade equally likely.
fn decades(rng: &mut SeededRng) -> f64 {
    10_f64.powf(-6.0 * fraction(rng))
}

fn probability(rng: &mut SeededRng) -> f64 {
    match rng.below(8) {
        0 => 0.0,
        1 => 1e-6,
        2 | 3 => fraction(rng),
        _ => decades(rng),
    }
}

/// Any combination of requirements.
fn request(rng: &mut SeededRng, set: &ChannelSet) -> ScheduleRequirements {
    let means = means(rng, set.len());
    let mut request = requirements(rng, set, means, [75, 40, 40, 40]);
    request.max_risk = bound(rng, set, ScheduleObjective::Risk).map(|risk| risk.min(1.0));
    request.max_loss = bound(rng, set, ScheduleObjective::Loss).map(|loss| loss.min(1.0));
    request.max_delay_ms = bound(rng, set, ScheduleObjective::Delay);
    request.max_delivered_delay_ms = bound(rng, set, ScheduleObjective::DeliveredDelay);
    request.objectives = OBJECTIVES.to_vec();
    rng.shuffle(&mut request.objectives);
    request.objectives.truncate(rng.index(4));
    request
}

/// No bound, or one near the value of a selection, which may be close to zero.
fn bound(rng: &mut SeededRng, set: &ChannelSet, objective: ScheduleObjective) -> Option<f64> {
    let channels: ChannelSubset = (0..set.len()).filter(|_| rng.chance(70)).collect();
    let selection = ShareSelection::new(1 + rng.index(channels.len()), channels).ok()?;
    let value = ShareSchedule::constant(selection).averages(set).value_of(objective);
    let bound = value * 10_f64.powf(fraction(rng) - 0.2);
    rng.chance(30).then_some(bound)
}

/// A plan meets the whole request.
fn check(set: &ChannelSet, request: &ScheduleRequirements, plan: &OptimalSchedule) {
    let found = averages(set, &plan.schedule);
    let case = || format!("{set:?}\n{request:?}\n{plan:?}\n{found:?}");
    for (mean, value) in [(request.kappa, found.kappa), (request.mu, found.mu)] {
        assert!(mean.is_none_or(|mean| (mean - value).abs() < 1e-9), "{}", case());
    }
    let entries = plan.schedule.entries();
    let limited = |t: &ShareSelection| t.k() >= request.min_k && t.m() >= request.min_m;
    assert!(entries.iter().all(|(selection, _)| limited(selection)), "{}", case());
    let slowest = set.channels().iter().map(ChannelModel::delay_ms).fold(1e-3, f64::max);
    for (most, value, largest) in [
        (request.max_risk, found.risk, 1.0),
        (request.max_loss, found.loss, 1.0),
        (request.max_delay_ms, found.delay_ms, slowest),
        (request.max_delivered_delay_ms, found.delivered_delay_ms, slowest),
    ] {
        let within = |most: f64| value <= most * (1.0 + EXACT.0) + EXACT.1 * largest;
        assert!(most.is_none_or(within), "{value} is not {most:?}: {}", case());
    }
    let full = request.mu.filter(|_| request.full_rate).and_then(|mu| set.best_rate(mu));
    for least in [full, request.min_rate].into_iter().flatten() {
        assert!(found.rate >= least * (1.0 - EXACT.0), "{} {least}: {}", found.rate, case());
    }
}
