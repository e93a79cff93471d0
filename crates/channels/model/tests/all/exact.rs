//! No gap is below the error: plans for channels of extreme numbers against the optimum in exact
//! arithmetic.

use num_rational::BigRational;
use num_traits::{Signed, ToPrimitive, Zero};
use sim::SeededRng;
use sunder_model::{
    ChannelModel, ChannelSet, LossProbability, PlanError, RiskProbability, ScheduleObjective,
    ScheduleRequirements,
};

use crate::rational::{average, best, best_rate, columns, exact};
use crate::textbook::plan_for;
use crate::textbook::sets::{OBJECTIVES, fraction, requirements};

/// The number of random sets of channels, unless the environment variable `EXACT_SETS` has another.
const SETS: usize = 2_000;

/// The permitted error of kappa, mu and the rate, relative.
const OFF: f64 = 1e-12;

/// A gap of more than this part of the value is wide.
const WIDE: f64 = 1e-6;

#[test]
fn no_gap_is_below_the_error() {
    let sets = std::env::var("EXACT_SETS").ok().and_then(|sets| sets.parse().ok()).unwrap_or(SETS);
    let mut rng = SeededRng::new(18);
    let mut seen = Seen::default();
    for _ in 0..sets {
        let n = 1 + rng.index(4);
        let set = extreme_set(&mut rng, n);
        let all = columns(&set);
        let request = extreme_need(&mut rng, &set);
        for objective in OBJECTIVES {
            let request = ScheduleRequirements { objectives: vec![objective], ..request.clone() };
            seen.compare(&set, &request, objective, best(&set, &all, &request, objective));
        }
    }
    println!("{sets} sets: {seen:?}");
    assert!(seen.plans > 3 * sets && seen.refused == 0, "{seen:?}");
    assert!(seen.error < 1e-9 && 100 * seen.wide <= seen.plans, "{seen:?}");
}

/// The cheapest use of the slow channel is none: a price on its limit must not count for using
/// less.
#[test]
fn a_row_that_leaves_something_has_no_price_for_it() {
    let channels = [
        (4.665_988_019_511_453e-13, 0.0001, 700.0, 0.048_747_433_314_652_39),
        (0.999_999_902_108_109_5, 0.999_999_999_996_302_7, 0.001, 0.032_790_384_672_393_83),
        (0.999_999_999_982_298_5, 0.224, 0.0, 0.000_305_022_550_195_360_6),
    ];
    let channels = channels.map(|(z, l, d, r)| {
        ChannelModel::new(RiskProbability(z), LossProbability(l), d, r).unwrap()
    });
    let set = ChannelSet::new(channels.to_vec()).unwrap();
    let request = ScheduleRequirements {
        mu: Some(2.0),
        min_rate: Some(0.018_538_985_990_497),
        ..ScheduleRequirements::default()
    };
    let all = columns(&set);
    let mut seen = Seen::default();
    for objective in OBJECTIVES {
        let request = ScheduleRequirements { objectives: vec![objective], ..request.clone() };
        seen.compare(&set, &request, objective, best(&set, &all, &request, objective));
    }
    assert!(seen.plans == OBJECTIVES.len() && seen.error < 1e-12, "{seen:?}");
}

/// The results of all sets.
#[derive(Debug, Default)]
struct Seen {
    plans: usize,
    /// No schedule meets the request, and the plan reports that.
    infeasible: usize,
    /// The plan reports that, or the opposite, where rounding decides.
    within_rounding: usize,
    /// There is a schedule and no plan.
    refused: usize,
    /// Plans with a gap of more than a millionth of the value: for the delay of the symbols that
    /// arrive, and for all else.
    wide_delivered: usize,
    wide: usize,
    /// The largest error and the largest gap of the plans for all else, relative to the value.
    error: f64,
    gap: f64,
}

impl Seen {
    fn compare(
        &mut self,
        set: &ChannelSet,
        request: &ScheduleRequirements,
        objective: ScheduleObjective,
        optimum: Option<BigRational>,
    ) {
        let case = || format!("{set:?}\n{request:?}");
        let (plan, optimum) = match (plan_for(set, request), optimum) {
            (Ok(plan), Some(optimum)) => (plan, optimum),
            (Err(PlanError::Infeasible { .. }), None) => {
                self.infeasible += 1;
                return;
            }
            (Err(PlanError::Solver(reason)), _) => {
                println!("{reason}: {}", case());
                self.refused += 1;
                return;
            }
            (Err(PlanError::Infeasible { wanted, best, .. }), _)
                if (wanted / best - 1.0).abs() < 1e-9 =>
            {
                self.within_rounding += 1;
                return;
            }
            (Ok(_), None) => {
                self.within_rounding += 1;
                return;
            }
            (Err(error), _) => panic!("{error}: {}", case()),
        };
        let certificate = plan.certificates[0];
        let achieved = average(set, &plan.schedule, objective);
        let sign = if objective == ScheduleObjective::Rate { -1.0 } else { 1.0 };
        let error = (&achieved - &optimum) * exact(sign);
        // A bound is kept to within rounding, which can make the value better than the optimum.
        let is_bounded = request.max_risk.is_some() || request.max_loss.is_some();
        let error = if is_bounded { error } else { error.abs() };
        let gap = exact(certificate.gap);
        let number = |value: &BigRational| value.to_f64().unwrap();
        assert!(
            error <= gap,
            "the {objective:?} {} is {} from the best, {}, with a gap of {}: {}",
            number(&achieved),
            number(&error),
            number(&optimum),
            certificate.gap,
            case()
        );
        // The reported properties are true too.
        let difference = (exact(certificate.value) - &achieved) * exact(sign);
        assert!(difference.to_f64().unwrap().abs() <= certificate.gap, "{}", case());
        check_means(set, request, &plan.schedule);
        self.plans += 1;
        if optimum.is_zero() {
            return;
        }
        let (error, gap) = (number(&(error / &optimum)), number(&(gap / &optimum)));
        if objective == ScheduleObjective::DeliveredDelay {
            self.wide_delivered += usize::from(gap > WIDE);
        } else {
            self.wide += usize::from(gap > WIDE);
            (self.error, self.gap) = (self.error.max(error), self.gap.max(gap));
        }
    }
}

/// Kappa, mu and the rate are those of the request.
fn check_means(
    set: &ChannelSet,
    request: &ScheduleRequirements,
    schedule: &sunder_model::ShareSchedule,
) {
    let found = schedule.averages(set);
    for (mean, value) in [(request.kappa, found.kappa), (request.mu, found.mu)] {
        assert!(mean.is_none_or(|mean| (mean - value).abs() < OFF), "{set:?}\n{request:?}");
    }
    if let Some(mu) = request.mu.filter(|_| request.full_rate) {
        let most = best_rate(set, &exact(mu)).to_f64().unwrap();
        assert!(found.rate >= most * (1.0 - OFF), "{set:?}\n{request:?}");
    }
}

/// Channels of risks and losses near to 0 and to 1, and rates twelve decades apart.
fn extreme_set(rng: &mut SeededRng, n: usize) -> ChannelSet {
    let channels = (0..n).map(|_| {
        let risk = if rng.chance(5) { 1.0 } else { probability(rng) };
        let delay_ms = if rng.chance(20) { 0.0 } else { 1e6 * decades(rng, 9.0) };
        ChannelModel::new(
            RiskProbability(risk),
            LossProbability(probability(rng)),
            delay_ms,
            1e6 * decades(rng, 12.0),
        )
    });
    ChannelSet::new(channels.collect::<Result<_, _>>().unwrap()).unwrap()
}

/// From 10^-`most` to 1, with every decade equally likely.
fn decades(rng: &mut SeededRng, most: f64) -> f64 {
    10_f64.powf(-most * fraction(rng))
}

fn probability(rng: &mut SeededRng) -> f64 {
    match rng.below(8) {
        0 => 0.0,
        1 => fraction(rng),
        2 | 3 => (1.0 - decades(rng, 15.0)).max(0.0),
        _ => decades(rng, 15.0) * (1.0 - f64::EPSILON),
    }
}

fn extreme_need(rng: &mut SeededRng, set: &ChannelSet) -> ScheduleRequirements {
    let n = f64::from(u32::try_from(set.len()).unwrap());
    let mu = mean(rng, 1.0, n);
    let kappa = if rng.chance(20) { mu } else { mean(rng, 1.0, mu) };
    let mut request = requirements(rng, set, (kappa, mu), [80, 50, 50, 30]);
    request.max_risk = Some(decades(rng, 15.0)).filter(|_| rng.chance(15));
    request.max_loss = Some(decades(rng, 15.0)).filter(|_| rng.chance(15));
    request
}

/// A mean from `low` to `high`: anywhere, whole, or next to a whole number.
fn mean(rng: &mut SeededRng, low: f64, high: f64) -> f64 {
    let mean = low + fraction(rng) * (high - low);
    let near = match rng.below(4) {
        0 => mean.round(),
        1 => mean.round() + (fraction(rng) - 0.5) * decades(rng, 12.0),
        _ => mean,
    };
    let near = near.clamp(low, high);
    // A value within 1e-14 of a whole number counts as whole.
    if (near - near.round()).abs() < 2e-14 { near.round().clamp(low, high) } else { near }
}
