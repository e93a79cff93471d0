//! The price of what a schedule sends: plans of the least price agree with the textbook.

use sim::SeededRng;
use sunder_model::{
    ChannelModel, ChannelModelError, ChannelSet, LossProbability, PlanError, RiskProbability,
    ScheduleBound, ScheduleObjective, ScheduleRequirements,
};

use crate::textbook::sets::{common_set, fraction, means};
use crate::textbook::{Programs, agree, columns, plan_for};

/// A set whose channels have prices, some of them none.
fn priced_set(rng: &mut SeededRng, n: usize) -> ChannelSet {
    let base = common_set(rng, n);
    let priced = base.channels().iter().map(|channel| {
        let cost = if rng.chance(30) { 0.0 } else { 20.0 * fraction(rng) };
        channel.with_cost(cost).unwrap()
    });
    ChannelSet::new(priced.collect()).unwrap()
}

#[test]
fn the_least_price_is_that_of_all_schedules() {
    let mut rng = SeededRng::new(31);
    for round in 0..100 {
        let n = 2 + round % 4;
        let set = priced_set(&mut rng, n);
        let all = columns(&set);
        let (kappa, mu) = means(&mut rng, n);
        let rate = set.best_rate(mu).unwrap() * (0.2 + 0.7 * fraction(&mut rng));
        let request = ScheduleRequirements {
            kappa: Some(kappa),
            mu: Some(mu),
            min_rate: Some(rate),
            objectives: vec![ScheduleObjective::Cost],
            ..ScheduleRequirements::default()
        };
        let mut programs = Programs::new(&set, &all, &request);
        programs.keep_rate(rate);
        let best = programs.best(ScheduleObjective::Cost).unwrap();
        let plan = plan_for(&set, &request).unwrap();
        assert!(agree(plan.averages.cost, best), "{} is not {best}: {set:?}", plan.averages.cost);
        assert!(plan.averages.rate >= rate * (1.0 - 1e-6), "{plan:?}");
        let gap = plan.certificates[0].gap;
        assert!(gap <= 1e-6 * best.max(1e-9), "a gap of {gap}: {set:?}");
    }
}

#[test]
fn a_highest_price_is_kept_or_refused() {
    let channel = |risk, cost| {
        let model = ChannelModel::new(RiskProbability(risk), LossProbability(0.01), 5.0, 10.0);
        model.unwrap().with_cost(cost).unwrap()
    };
    let set =
        ChannelSet::new(vec![channel(0.3, 1.0), channel(0.2, 2.0), channel(0.1, 10.0)]).unwrap();
    let request = |max_cost| ScheduleRequirements {
        kappa: Some(1.0),
        mu: Some(1.0),
        max_cost: Some(max_cost),
        objectives: vec![ScheduleObjective::Risk],
        ..ScheduleRequirements::default()
    };
    let plan = plan_for(&set, &request(5.5)).unwrap();
    // By hand: between the channels of 1 and 10, half and half cost 5.5, at a risk of 0.2.
    assert!(agree(plan.averages.cost, 5.5), "{plan:?}");
    assert!(plan.averages.risk <= 0.2 + 1e-9, "{plan:?}");
    let refused = plan_for(&set, &request(0.5)).unwrap_err();
    let PlanError::Infeasible { bound, wanted, best } = refused else { panic!("{refused}") };
    assert_eq!((bound, wanted), (ScheduleBound::MaxCost, 0.5));
    assert!(agree(best, 1.0), "{best}");
}

#[test]
fn a_price_is_a_number_that_is_not_negative() {
    let channel = ChannelModel::new(RiskProbability(0.1), LossProbability(0.1), 1.0, 1.0).unwrap();
    for cost in [-1.0, f64::NAN, f64::INFINITY, 1e7] {
        let refused = channel.with_cost(cost).unwrap_err();
        assert!(matches!(refused, ChannelModelError::Cost(_)), "{cost}");
    }
}
