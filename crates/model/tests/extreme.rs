//! Needs of numbers that are far apart: tiny probabilities, rates of six decades, bounds beside
//! which rounding is large. A plan that is given out keeps all that was asked, and none is refused.

use model::{
    Bound, Channel, ChannelSet, Group, Need, Objective, Plan, PlanError, Schedule, Subset,
    Threshold,
};
use sim::Rng;

mod textbook;
use textbook::averages;
use textbook::sets::{fraction, means};

/// How many needs are drawn.
const NEEDS: usize = 20_000;

/// What the model promises of bounds: relative to them, and to the largest value there can be.
const EXACT: (f64, f64) = (1e-6, 1e-14);

const OBJECTIVES: [Objective; 5] = [
    Objective::Risk,
    Objective::Loss,
    Objective::Delay,
    Objective::DeliveredDelay,
    Objective::Rate,
];

#[test]
fn whatever_is_asked_is_kept_or_refused() {
    let mut rng = Rng::new(8);
    let (mut planned, mut impossible) = (0, 0);
    let mut tightest = 1.0;
    for _ in 0..NEEDS {
        let n = 1 + rng.index(6);
        let set = set(&mut rng, n);
        let need = need(&mut rng, &set);
        match set.plan(&need) {
            Ok(plan) => {
                check(&set, &need, &plan);
                planned += 1;
                let bounds = [need.max_risk, need.max_loss].into_iter().flatten();
                tightest = bounds.filter(|bound| *bound > 0.0).fold(tightest, f64::min);
            }
            Err(PlanError::Infeasible { bound, wanted, best }) => {
                assert_eq!(bound == Bound::MinRate, best < wanted, "{best}: {set:?}\n{need:?}");
                impossible += 1;
            }
            Err(error) => panic!("{error}: {set:?}\n{need:?}"),
        }
    }
    println!(
        "{NEEDS} needs: {planned} plans (the lowest bound on risk or loss {tightest:.0e}), \
         {impossible} that no schedule meets"
    );
    assert!(planned > NEEDS / 4 && impossible > NEEDS / 10, "{planned} and {impossible}");
}

/// Channels of any kind there can be, some of which may share a fate.
fn set(rng: &mut Rng, n: usize) -> ChannelSet {
    let channels = (0..n).map(|_| {
        let delay_ms = if rng.chance(20) { 0.0 } else { 1000.0 * decades(rng) };
        Channel::new(probability(rng), 0.99 * probability(rng), delay_ms, 1e6 * decades(rng))
    });
    let channels = channels.collect::<Result<Vec<Channel>, _>>().unwrap();
    let groups = if n > 1 && rng.chance(30) { 1 + rng.index(3) } else { 0 };
    let groups = (0..groups).map(|_| {
        let mut order: Vec<usize> = (0..n).collect();
        rng.shuffle(&mut order);
        let members: Subset = order.into_iter().take(2 + rng.index(n - 1)).collect();
        Group::new(members, probability(rng), 0.99 * probability(rng)).unwrap()
    });
    let groups = groups.collect();
    ChannelSet::with_groups(channels, groups).unwrap()
}

/// From a millionth to 1, each decade as often as another.
fn decades(rng: &mut Rng) -> f64 {
    10_f64.powf(-6.0 * fraction(rng))
}

fn probability(rng: &mut Rng) -> f64 {
    match rng.below(8) {
        0 => 0.0,
        1 => 1e-6,
        2 | 3 => fraction(rng),
        _ => decades(rng),
    }
}

/// Anything that can be asked at once.
fn need(rng: &mut Rng, set: &ChannelSet) -> Need {
    let (kappa, mu) = means(rng, set.len());
    let need = Need {
        kappa: Some(kappa).filter(|_| rng.chance(75)),
        mu: Some(mu).filter(|_| rng.chance(75)),
        ..Need::default()
    };
    let mut need = if rng.chance(40) { need.limited() } else { need };
    need.full_rate = need.mu.is_some() && rng.chance(40);
    need.min_rate = Some(set.best_rate(mu).unwrap() * fraction(rng)).filter(|_| rng.chance(40));
    need.max_risk = bound(rng, set, Objective::Risk).map(|risk| risk.min(1.0));
    need.max_loss = bound(rng, set, Objective::Loss).map(|loss| loss.min(1.0));
    need.max_delay_ms = bound(rng, set, Objective::Delay);
    need.max_delivered_delay_ms = bound(rng, set, Objective::DeliveredDelay);
    need.objectives = OBJECTIVES.to_vec();
    rng.shuffle(&mut need.objectives);
    need.objectives.truncate(rng.index(4));
    need
}

/// No bound, or one near to what some threshold has, which may be next to nothing.
fn bound(rng: &mut Rng, set: &ChannelSet, objective: Objective) -> Option<f64> {
    let channels: Subset = (0..set.len()).filter(|_| rng.chance(70)).collect();
    let threshold = Threshold::new(1 + rng.index(channels.len()), channels).ok()?;
    let value = Schedule::constant(threshold).averages(set).of(objective);
    let bound = value * 10_f64.powf(fraction(rng) - 0.2);
    rng.chance(30).then_some(bound)
}

/// A plan keeps all of the need.
fn check(set: &ChannelSet, need: &Need, plan: &Plan) {
    let found = averages(set, &plan.schedule);
    let case = || format!("{set:?}\n{need:?}\n{plan:?}\n{found:?}");
    for (mean, value) in [(need.kappa, found.kappa), (need.mu, found.mu)] {
        assert!(mean.is_none_or(|mean| (mean - value).abs() < 1e-9), "{}", case());
    }
    let entries = plan.schedule.entries();
    let limited = |t: &Threshold| t.k() >= need.min_k && t.m() >= need.min_m;
    assert!(entries.iter().all(|(threshold, _)| limited(threshold)), "{}", case());
    let slowest = set.channels().iter().map(Channel::delay_ms).fold(1e-3, f64::max);
    for (most, value, largest) in [
        (need.max_risk, found.risk, 1.0),
        (need.max_loss, found.loss, 1.0),
        (need.max_delay_ms, found.delay_ms, slowest),
        (need.max_delivered_delay_ms, found.delivered_delay_ms, slowest),
    ] {
        let within = |most: f64| value <= most * (1.0 + EXACT.0) + EXACT.1 * largest;
        assert!(most.is_none_or(within), "{value} is not {most:?}: {}", case());
    }
    let full = need.mu.filter(|_| need.full_rate).and_then(|mu| set.best_rate(mu));
    for least in [full, need.min_rate].into_iter().flatten() {
        assert!(found.rate >= least * (1.0 - EXACT.0), "{} {least}: {}", found.rate, case());
    }
}
