//! Plans agree with the paper's linear programs, written out in full and solved by the textbook.

use sim::SeededRng;
use sunder_model::{
    ChannelSet, OptimalSchedule, PlanError, ScheduleBound, ScheduleObjective, ScheduleRequirements,
};

use crate::textbook::sets::{common_set, fraction, grouped_set, means, mixed_set, tied_set};
use crate::textbook::{Column, Programs, agree, agree_to, averages, best_rate, columns, plan_for};

const AVERAGES: [ScheduleObjective; 3] =
    [ScheduleObjective::Risk, ScheduleObjective::Loss, ScheduleObjective::Delay];

/// The sizes of `count` sets: 1 to 6 channels, the most of them 6.
fn sizes(count: usize) -> impl Iterator<Item = usize> {
    [1, 2, 3, 4, 4, 5, 5, 6, 6, 6].into_iter().cycle().take(count)
}

/// The request with and without the full rate and the limitation.
fn variants(request: &ScheduleRequirements) -> [ScheduleRequirements; 4] {
    let full = ScheduleRequirements { full_rate: true, ..request.clone() };
    [request.clone(), request.clone().limited(), full.clone(), full.limited()]
}

/// A plan's properties are right, and it meets the request except for the bounds.
fn check_plan(set: &ChannelSet, request: &ScheduleRequirements, plan: &OptimalSchedule) {
    let ours = averages(set, &plan.schedule);
    let case = || format!("{set:?}\n{request:?}\n{plan:?}\n{ours:?}");
    for objective in
        [ScheduleObjective::DeliveredDelay, ScheduleObjective::Rate].into_iter().chain(AVERAGES)
    {
        assert!(
            agree(ours.value_of(objective), plan.averages.value_of(objective)),
            "{objective:?}: {}",
            case()
        );
    }
    assert!(agree(plan.averages.kappa, ours.kappa), "{}", case());
    assert!(agree(plan.averages.mu, ours.mu), "{}", case());
    assert!(request.kappa.is_none_or(|kappa| agree(kappa, ours.kappa)), "{}", case());
    assert!(request.mu.is_none_or(|mu| agree(mu, ours.mu)), "{}", case());
    let sum: f64 = plan.schedule.entries().iter().map(|(_, p)| p).sum();
    assert!(agree(sum, 1.0), "{}", case());
    for (selection, p) in plan.schedule.entries() {
        assert!(
            *p > 0.0 && selection.k() >= request.min_k && selection.m() >= request.min_m,
            "{}",
            case()
        );
    }
    let rate =
        if request.full_rate { request.mu.map(|mu| best_rate(set, mu)) } else { request.min_rate };
    if let Some(rate) = rate {
        for (i, channel) in set.channels().iter().enumerate() {
            let carried = plan.schedule.channel_usage(i) * rate;
            assert!(carried <= channel.rate() * (1.0 + 1e-9), "channel {i}: {}", case());
        }
    }
}

/// Plans for `request` in each of `objectives` and compares them with the textbook's optima.
fn compare(
    set: &ChannelSet,
    all: &[Column],
    request: &ScheduleRequirements,
    objectives: &[ScheduleObjective],
) {
    let programs = Programs::new(set, all, request);
    for objective in objectives {
        let request = ScheduleRequirements { objectives: vec![*objective], ..request.clone() };
        let best = programs.best(*objective).expect("Theorem 5");
        let plan =
            plan_for(set, &request).unwrap_or_else(|error| panic!("{error}\n{set:?}\n{request:?}"));
        check_plan(set, &request, &plan);
        let value = plan.averages.value_of(*objective);
        assert!(agree(value, best), "{value} is not {best}: {set:?}\n{request:?}\n{plan:?}");
        let certificate = plan.certificates[0];
        assert!(
            agree(certificate.value, value) && certificate.gap >= 0.0,
            "{set:?}\n{request:?}\n{plan:?}"
        );
        // The gap must be true, however large it is.
        let gap = (value - best).abs();
        assert!(
            gap <= certificate.gap + 1e-9 * value.abs().max(1.0),
            "{set:?}\n{request:?}\n{plan:?}"
        );
    }
}

#[test]
fn plans_are_the_textbooks_optima() {
    let mut rng = SeededRng::new(1);
    for n in sizes(1000) {
        let set = mixed_set(&mut rng, n);
        let all = columns(&set);
        let (kappa, mu) = means(&mut rng, n);
        let request = ScheduleRequirements {
            kappa: Some(kappa),
            mu: Some(mu),
            ..ScheduleRequirements::default()
        };
        for request in variants(&request) {
            compare(&set, &all, &request, &AVERAGES);
        }
    }
}

#[test]
fn plans_with_kappa_or_mu_free_are_the_textbooks_optima() {
    let mut rng = SeededRng::new(2);
    for n in sizes(100) {
        let set = mixed_set(&mut rng, n);
        let all = columns(&set);
        let (kappa, mu) = means(&mut rng, n);
        let free = ScheduleRequirements::default();
        let requests = [
            ScheduleRequirements { kappa: Some(kappa), ..free.clone() },
            ScheduleRequirements { mu: Some(mu), ..free.clone() },
            ScheduleRequirements { mu: Some(mu), full_rate: true, ..free.clone() },
            ScheduleRequirements {
                min_k: 1 + rng.index(n),
                min_m: 1 + rng.index(n),
                ..free.clone()
            },
            free,
        ];
        for request in requests {
            compare(&set, &all, &request.clone().limited(), &AVERAGES);
            compare(
                &set,
                &all,
                &request,
                &[ScheduleObjective::Rate, ScheduleObjective::DeliveredDelay],
            );
        }
    }
}

/// The delays of the selections are limited to a range that begins and ends at channels' delays.
#[test]
fn plans_with_limited_delays_are_the_textbooks_optima() {
    let mut rng = SeededRng::new(8);
    let (mut planned, mut refused) = (0, 0);
    for n in sizes(300) {
        let set = common_set(&mut rng, n);
        let all = columns(&set);
        let (kappa, mu) = means(&mut rng, n);
        let mut ends = [0; 2].map(|_| set.channels()[rng.index(n)].delay_ms());
        ends.sort_by(f64::total_cmp);
        let request = ScheduleRequirements {
            kappa: Some(kappa),
            mu: Some(mu),
            kth_delay_ms: Some(ends[0]..=ends[1]),
            ..ScheduleRequirements::default()
        };
        let programs = Programs::new(&set, &all, &request);
        if programs.best(ScheduleObjective::Risk).is_some() {
            compare(&set, &all, &request, &AVERAGES);
            compare(&set, &all, &request, &[ScheduleObjective::Rate]);
            let full = ScheduleRequirements { full_rate: true, ..request };
            let plan =
                plan_for(&set, &full).unwrap_or_else(|error| panic!("{error}\n{set:?}\n{full:?}"));
            let best = programs.best(ScheduleObjective::Rate).unwrap();
            assert!(
                agree_to(1e-8, plan.averages.rate, best),
                "{best}: {set:?}\n{full:?}\n{plan:?}"
            );
            planned += 1;
        } else {
            assert!(plan_for(&set, &request).is_err(), "{set:?}\n{request:?}");
            refused += 1;
        }
    }
    assert!(planned > 50 && refused > 50, "{planned} {refused}");
}

#[test]
fn plans_for_groups_are_the_textbooks_optima() {
    let mut rng = SeededRng::new(3);
    for n in sizes(100).map(|n| n.max(2)) {
        let set = grouped_set(&mut rng, n);
        let all = columns(&set);
        let (kappa, mu) = means(&mut rng, n);
        let request = ScheduleRequirements {
            kappa: Some(kappa),
            mu: Some(mu),
            ..ScheduleRequirements::default()
        };
        for request in variants(&request) {
            compare(&set, &all, &request, &AVERAGES);
            compare(&set, &all, &request, &[ScheduleObjective::DeliveredDelay]);
        }
    }
}

#[test]
fn the_delay_of_what_arrives_is_the_textbooks() {
    let mut rng = SeededRng::new(4);
    for n in sizes(100) {
        let set = mixed_set(&mut rng, n);
        let all = columns(&set);
        let (kappa, mu) = means(&mut rng, n);
        let request = ScheduleRequirements {
            kappa: Some(kappa),
            mu: Some(mu),
            ..ScheduleRequirements::default()
        };
        for request in variants(&request) {
            compare(&set, &all, &request, &[ScheduleObjective::DeliveredDelay]);
        }
    }
}

/// A bound for each property or none, from infeasible to ineffective; and the textbook's result
/// with these bounds, one after the other.
struct Bounds {
    request: ScheduleRequirements,
    programs: Programs,
    /// The infeasible bound, and the best feasible value.
    broken: Option<(ScheduleBound, f64)>,
}

impl Bounds {
    /// `None` if a bound is so close to the best value that rounding decides.
    fn draw(rng: &mut SeededRng, set: &ChannelSet, all: &[Column]) -> Option<Self> {
        let (kappa, mu) = means(rng, set.len());
        let mut request = ScheduleRequirements {
            kappa: Some(kappa),
            mu: Some(mu),
            ..ScheduleRequirements::default()
        };
        match rng.below(4) {
            0 => request.kappa = None,
            1 => request.mu = None,
            _ => request = request.limited(),
        }
        let mut bounds =
            Self { programs: Programs::new(set, all, &request), request, broken: None };
        let loose = bounds.programs.clone();
        if rng.chance(50) {
            let best = bounds.programs.best(ScheduleObjective::Rate)?;
            let wanted = best * (0.5 + 0.6 * fraction(rng));
            bounds.request.min_rate = Some(wanted);
            bounds.keep(ScheduleBound::MinRate, best, wanted)?;
        }
        for (bound, objective) in [
            (ScheduleBound::MaxRisk, ScheduleObjective::Risk),
            (ScheduleBound::MaxLoss, ScheduleObjective::Loss),
            (ScheduleBound::MaxDelay, ScheduleObjective::Delay),
            (ScheduleBound::MaxDeliveredDelay, ScheduleObjective::DeliveredDelay),
        ] {
            if rng.chance(50) {
                continue;
            }
            // Around the optimum without the other bounds.
            let wanted = loose.best(objective)? * (0.9 + 0.8 * fraction(rng));
            match bound {
                ScheduleBound::MaxRisk => bounds.request.max_risk = Some(wanted.min(1.0)),
                ScheduleBound::MaxLoss => bounds.request.max_loss = Some(wanted.min(1.0)),
                ScheduleBound::MaxDelay => bounds.request.max_delay_ms = Some(wanted),
                _ => bounds.request.max_delivered_delay_ms = Some(wanted),
            }
            if bounds.broken.is_none() {
                let best = bounds.programs.best(objective)?;
                bounds.keep(bound, best, wanted)?;
            }
        }
        Some(bounds)
    }

    fn keep(&mut self, bound: ScheduleBound, best: f64, wanted: f64) -> Option<()> {
        let near = (wanted / best - 1.0).abs() < 1e-6;
        let possible =
            if bound == ScheduleBound::MinRate { wanted <= best } else { best <= wanted };
        match bound {
            _ if !possible => self.broken = Some((bound, best)),
            ScheduleBound::MinRate => self.programs.keep_rate(wanted),
            ScheduleBound::MaxRisk => self.programs.keep_at_most(ScheduleObjective::Risk, wanted),
            ScheduleBound::MaxLoss => self.programs.keep_at_most(ScheduleObjective::Loss, wanted),
            ScheduleBound::MaxDelay => self.programs.keep_at_most(ScheduleObjective::Delay, wanted),
            ScheduleBound::MaxDeliveredDelay => {
                self.programs.keep_at_most(ScheduleObjective::DeliveredDelay, wanted);
            }
            ScheduleBound::MaxCost => self.programs.keep_at_most(ScheduleObjective::Cost, wanted),
        }
        (!near).then_some(())
    }
}

#[test]
fn bounds_are_met_or_reported_as_the_textbook_does() {
    let mut rng = SeededRng::new(5);
    let (mut kept, mut broken) = (0, [0; 5]);
    for n in sizes(400) {
        let set = common_set(&mut rng, n);
        let all = columns(&set);
        let Some(bounds) = Bounds::draw(&mut rng, &set, &all) else { continue };
        let last = [ScheduleObjective::DeliveredDelay, ScheduleObjective::Rate];
        for objective in AVERAGES.into_iter().chain(last) {
            let request =
                ScheduleRequirements { objectives: vec![objective], ..bounds.request.clone() };
            let case = || format!("{set:?}\n{request:?}");
            match (plan_for(&set, &request), bounds.broken) {
                (Ok(plan), None) => {
                    check_plan(&set, &request, &plan);
                    let averages = plan.averages;
                    for (most, value) in [
                        (request.max_risk, averages.risk),
                        (request.max_loss, averages.loss),
                        (request.max_delay_ms, averages.delay_ms),
                        (request.max_delivered_delay_ms, averages.delivered_delay_ms),
                    ] {
                        assert!(most.is_none_or(|most| value <= most * (1.0 + 1e-9)), "{}", case());
                    }
                    let best =
                        bounds.programs.best(objective).expect("the textbook found it feasible");
                    let value = averages.value_of(objective);
                    // The optimum moves by a multiple of the rounding of a bound.
                    assert!(agree_to(1e-8, value, best), "{value} is not {best}: {}", case());
                    kept += 1;
                }
                (Err(PlanError::Infeasible { bound, best, .. }), Some((by, textbooks))) => {
                    assert_eq!(bound, by, "{}", case());
                    assert!(
                        agree_to(1e-8, best, textbooks),
                        "{best} is not {textbooks}: {}",
                        case()
                    );
                    broken[by as usize] += 1;
                }
                (plan, broken) => panic!("{plan:?} against {broken:?}: {}", case()),
            }
        }
    }
    // Both results occurred, and each bound was infeasible at times.
    assert!(kept > 300 && broken.iter().all(|times| *times > 20), "{kept} {broken:?}");
}

#[test]
fn the_highest_rate_within_bounds_is_the_textbooks() {
    let mut rng = SeededRng::new(6);
    for n in sizes(100) {
        let set = common_set(&mut rng, n);
        let all = columns(&set);
        let mut request = ScheduleRequirements {
            objectives: vec![ScheduleObjective::Rate],
            ..ScheduleRequirements::default()
        };
        let mut programs = Programs::new(&set, &all, &request);
        for objective in [ScheduleObjective::Risk, ScheduleObjective::Loss] {
            // Clearly within the feasible values after the bounds before.
            let least = programs.best(objective).unwrap();
            let most = programs.worst(objective).unwrap();
            let bound = least + (0.05 + 0.5 * fraction(&mut rng)) * (most - least);
            programs.keep_at_most(objective, bound);
            match objective {
                ScheduleObjective::Risk => request.max_risk = Some(bound),
                _ => request.max_loss = Some(bound),
            }
        }
        let best = programs.best(ScheduleObjective::Rate).unwrap();
        let plan = plan_for(&set, &request)
            .unwrap_or_else(|error| panic!("{error}: {set:?}\n{request:?}"));
        check_plan(&set, &request, &plan);
        assert!(agree_to(1e-8, plan.averages.rate, best), "{best}: {set:?}\n{request:?}\n{plan:?}");
    }
}

/// The second objective decides among the schedules that are best in the first. How much it gains
/// from the rounding that is allowed the first depends on the set, so the textbook solves it with
/// less and with more than that.
#[test]
fn the_second_objective_decides_among_the_best_in_the_first() {
    let mut rng = SeededRng::new(7);
    for n in sizes(100) {
        let set = tied_set(&mut rng, n);
        let all = columns(&set);
        let (kappa, mu) = means(&mut rng, n);
        let request = ScheduleRequirements {
            kappa: Some(kappa),
            mu: Some(mu).filter(|_| rng.chance(50)),
            objectives: vec![ScheduleObjective::Risk, ScheduleObjective::Loss],
            ..ScheduleRequirements::default()
        };
        let programs = Programs::new(&set, &all, &request);
        let risk = programs.best(ScheduleObjective::Risk).unwrap();
        let plan = plan_for(&set, &request)
            .unwrap_or_else(|error| panic!("{error}: {set:?}\n{request:?}"));
        check_plan(&set, &request, &plan);
        let within = |slack: f64| {
            let mut programs = programs.clone();
            programs.keep_at_most(ScheduleObjective::Risk, risk + slack);
            programs.best(ScheduleObjective::Loss)
        };
        let case = || format!("{risk} {set:?}\n{request:?}\n{plan:?}");
        assert!(agree(plan.averages.risk, risk), "{}", case());
        let lowest = within(1e-8 * risk + 1e-10).unwrap();
        assert!(plan.averages.loss >= lowest - 1e-6, "{lowest}: {}", case());
        let highest = within(1e-10 * risk).unwrap_or(1.0);
        assert!(plan.averages.loss <= highest + 1e-6, "{highest}: {}", case());
    }
}
