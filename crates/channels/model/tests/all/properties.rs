//! The paper's statements on all sets of channels: the monotonicity of its formulas, its theorems
//! in both directions, and lower bounds of optima.

use proptest::prelude::*;
use sunder_model::{
    ChannelModel, ChannelSet, ChannelSubset, LossProbability, PlanRequest, RiskProbability,
    ScheduleObjective, ScheduleRequirements, ShareSchedule, ShareSelection,
};

use crate::textbook::{agree, agree_to, number, plan_for, selections};

/// Special and tiny values are frequent.
fn probability(most: f64) -> impl Strategy<Value = f64> {
    prop_oneof![1 => Just(0.0), 1 => Just(1e-6), 1 => Just(most), 4 => 0.0..most]
}

fn channel() -> impl Strategy<Value = ChannelModel> {
    let delay_ms = prop_oneof![1 => Just(0.0), 1 => Just(10.0), 3 => 0.0..300.0];
    let rate = prop_oneof![1 => Just(1.0), 1 => Just(100.0), 3 => 1.0..1000.0];
    let values = (probability(1.0), probability(0.95), delay_ms, rate);
    values.prop_map(|(z, l, d, r)| {
        ChannelModel::new(RiskProbability(z), LossProbability(l), d, r).unwrap()
    })
}

fn set(most: usize) -> impl Strategy<Value = ChannelSet> {
    let channels = proptest::collection::vec(channel(), 1..=most);
    channels.prop_map(|channels| ChannelSet::new(channels).unwrap())
}

/// The position of a mean between its limits: often at one of them.
fn place() -> impl Strategy<Value = f64> {
    prop_oneof![1 => Just(0.0), 1 => Just(1.0), 1 => Just(1e-12), 1 => Just(1.0 - 1e-12), 5 => 0.0..1.0]
}

/// A set with a kappa and a mu for it, either of them often whole.
fn set_and_means(most: usize) -> impl Strategy<Value = (ChannelSet, f64, f64)> {
    (set(most), place(), place(), any::<(bool, bool)>()).prop_map(|(set, low, high, whole)| {
        let mu = 1.0 + high * (number(set.len()) - 1.0);
        let mu = if whole.0 { mu.floor() } else { mu };
        let kappa = 1.0 + low * (mu - 1.0);
        let kappa = if whole.1 { kappa.floor() } else { kappa };
        (set, kappa.min(mu), mu)
    })
}

fn selection(k: usize, channels: ChannelSubset) -> ShareSelection {
    ShareSelection::new(k, channels).unwrap()
}

/// The permitted rounding error between two probabilities, relative.
fn at_most(a: f64, b: f64) -> bool {
    a <= b * (1.0 + 1e-12)
}

/// Schedules of Theorem 5 have the means to 1e-12 and no other k and m than the means' neighbours.
fn check_limited(
    schedule: &ShareSchedule,
    set: &ChannelSet,
    kappa: f64,
    mu: f64,
) -> Result<(), TestCaseError> {
    let averages = schedule.averages(set);
    prop_assert!(agree_to(1e-12, averages.kappa, kappa), "{} is not {kappa}", averages.kappa);
    prop_assert!(agree_to(1e-12, averages.mu, mu), "{} is not {mu}", averages.mu);
    for (selection, p) in schedule.entries() {
        let (k, m) = (number(selection.k()), number(selection.m()));
        prop_assert!(k >= kappa.floor() && k <= kappa.ceil(), "k {k} of {p} for {kappa} {mu}");
        prop_assert!(m >= mu.floor() && m <= mu.ceil(), "m {m} of {p} for {kappa} {mu}");
    }
    Ok(())
}

fn request(kappa: f64, mu: f64, objectives: Vec<ScheduleObjective>) -> ScheduleRequirements {
    ScheduleRequirements {
        kappa: Some(kappa),
        mu: Some(mu),
        objectives,
        ..ScheduleRequirements::default()
    }
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn risk_and_loss_go_with_k_and_m(set in set(7)) {
        for small in selections(set.len()) {
            let (k, m) = (small.k(), small.channels());
            let one = set.properties(small);
            prop_assert!((0.0..=1.0).contains(&one.risk) && (0.0..=1.0).contains(&one.loss));
            prop_assert!((one.delivered + one.loss - 1.0).abs() < 1e-12);
            if k < m.len() {
                let next = set.properties(selection(k + 1, m));
                prop_assert!(at_most(next.risk, one.risk), "z({}) > z({k}) on {m:?}", k + 1);
                prop_assert!(at_most(one.loss, next.loss), "l({}) < l({k}) on {m:?}", k + 1);
            }
            for more in (0..set.len()).filter(|i| !m.contains(*i)) {
                let wider = set.properties(selection(k, m.with(more)));
                prop_assert!(at_most(one.risk, wider.risk), "z({k}) falls with {more} on {m:?}");
                prop_assert!(at_most(wider.loss, one.loss), "l({k}) rises with {more} on {m:?}");
            }
        }
    }

    /// Given that the kth share arrives the one before it did, and no later; but d(k, M) is over
    /// the symbols that arrive, and for a larger k these are others.
    #[test]
    fn delay_rises_with_k(set in set(7)) {
        for small in selections(set.len()) {
            let (k, m) = (small.k(), small.channels());
            let delay_ms = set.subset_delay_ms(small);
            let delays: Vec<f64> = m.iter().map(|i| set.channels()[i].delay_ms()).collect();
            let most = delays.iter().copied().fold(0.0, f64::max);
            let least = delays.into_iter().fold(f64::INFINITY, f64::min);
            prop_assert!(at_most(least, delay_ms) && at_most(delay_ms, most));
            prop_assert!(at_most(set.subset_delay_ms(selection(1, m)), delay_ms), "{small:?}");
            if k < m.len() {
                prop_assert!(at_most(delay_ms, set.subset_delay_ms(selection(k + 1, m))), "{small:?}");
            }
        }
    }

    #[test]
    fn all_channels_give_the_least_risk_and_loss(set in set(7)) {
        let risk = set.subset_risk(selection(set.len(), set.all()));
        let loss = set.subset_loss(selection(1, set.all()));
        for other in selections(set.len()) {
            prop_assert!(at_most(risk, set.subset_risk(other)), "{other:?}");
            prop_assert!(at_most(loss, set.subset_loss(other)), "{other:?}");
        }
    }

    #[test]
    fn the_best_rate_falls_with_mu((set, kappa, mu) in set_and_means(20)) {
        let (low, high) = (set.best_rate(kappa).unwrap(), set.best_rate(mu).unwrap());
        prop_assert!(at_most(high, low), "R_C({mu}) = {high} > {low} = R_C({kappa})");
        prop_assert!(at_most(set.assured_rate(mu).unwrap(), high), "Theorem 1 at {mu}");
        prop_assert!(at_most(high, set.total_rate() / mu), "more than all channels carry at {mu}");
        // Theorem 1's rate is that of the channel of rank ceil(mu).
        let mut rates: Vec<f64> = set.channels().iter().map(ChannelModel::rate).collect();
        rates.sort_by(|a, b| b.total_cmp(a));
        let rank = (1..=rates.len()).find(|rank| number(*rank) >= mu).unwrap();
        prop_assert_eq!(set.assured_rate(mu).unwrap().to_bits(), rates[rank - 1].to_bits());
    }

    #[test]
    fn the_full_use_limit_is_where_all_are_used((set, _, mu) in set_and_means(20)) {
        let used = set.fully_used(mu).unwrap();
        let n = number(set.len());
        prop_assert!(number(used.len()) > n - mu, "Corollary 2: {used:?} at {mu}");
        let limit = set.full_use_limit();
        prop_assert!((1.0..=n).contains(&limit));
        if mu <= limit * (1.0 - 1e-12) {
            prop_assert_eq!(used, set.all());
        } else if mu >= limit * (1.0 + 1e-12) {
            prop_assert_ne!(used, set.all());
        }
        // The full use of all of A, and R_C of the rest, is mu shares a symbol (Equation 1).
        let best = set.best_rate(mu).unwrap();
        let uses = set.used_rates(mu).unwrap();
        prop_assert!(agree_to(1e-12, uses.iter().sum::<f64>(), mu * best));
        for (i, (channel, r)) in set.channels().iter().zip(uses).enumerate() {
            prop_assert!(r <= channel.rate() && r <= best);
            prop_assert!(!used.contains(i) || agree_to(1e-12, r, channel.rate()));
        }
    }

    #[test]
    fn theorem_4_inverts_theorem_3((set, _, mu) in set_and_means(20), part in 0.0..1.0) {
        let best = set.best_rate(mu).unwrap();
        let back = set.multiplicity_at(best);
        // At mu = 1 and no loss of rounding R_C is all there is; a bit more is not a rate.
        if mu > 1.0 + 1e-9 {
            let back = back.unwrap();
            prop_assert!((back - mu).abs() <= 1e-12 * mu, "{mu} gives {best} gives {back}");
        }
        // Below the slowest channel's rate mu is n, for any rate.
        let rates = set.channels().iter().map(ChannelModel::rate);
        let (slowest, total) = (rates.fold(f64::INFINITY, f64::min), set.total_rate());
        let rate = slowest + part * (total - slowest);
        let mu = set.multiplicity_at(rate).unwrap();
        let again = set.best_rate(mu).unwrap();
        prop_assert!((again - rate).abs() <= 1e-12 * rate * number(set.len()), "{rate} gives {mu} gives {again}");
    }

    #[test]
    fn theorem_5_has_its_schedule((set, kappa, mu) in set_and_means(20)) {
        let schedule = set.limited_schedule(kappa, mu).unwrap();
        check_limited(&schedule, &set, kappa, mu)?;
    }

    #[test]
    fn theorem_5_has_its_schedule_at_the_best_rate((set, kappa, mu) in set_and_means(20)) {
        let schedule = set.limited_schedule_at_best_rate(kappa, mu).unwrap();
        let best = set.best_rate(mu).unwrap();
        for (i, channel) in set.channels().iter().enumerate() {
            let (ours, papers) = (schedule.channel_usage(i), (channel.rate() / best).min(1.0));
            prop_assert!((ours - papers).abs() <= 1e-12, "{ours} of channel {i} is not {papers}");
        }
        check_limited(&schedule, &set, kappa, mu)?;
    }

    /// A mean just below another, and just beside a whole number, where rounding would show.
    #[test]
    fn theorem_5_holds_for_means_close_together(
        set in set(20), place in place(), whole: bool, gap in 0..17i32, side: bool,
    ) {
        let n = number(set.len());
        let mu = 1.0 + place * (n - 1.0);
        let mu = if whole { mu.round() } else { mu };
        let gap = 10f64.powi(-gap);
        let (kappa, mu) = if side { ((mu - gap).max(1.0), mu) } else { (mu, (mu + gap).min(n)) };
        check_limited(&set.limited_schedule(kappa, mu).unwrap(), &set, kappa, mu)?;
        check_limited(&set.limited_schedule_at_best_rate(kappa, mu).unwrap(), &set, kappa, mu)?;
    }
}

proptest! {
    #![proptest_config(config(100))]

    #[test]
    fn what_is_asked_for_has_its_price((set, kappa, mu) in set_and_means(6)) {
        for objective in [ScheduleObjective::Risk, ScheduleObjective::Loss, ScheduleObjective::Delay] {
            let free = request(kappa, mu, vec![objective]);
            let full = ScheduleRequirements { full_rate: true, ..free.clone() };
            let value = |request: &ScheduleRequirements| plan_for(&set, request).unwrap().averages.value_of(objective);
            let values = [&free, &full, &free.clone().limited(), &full.clone().limited()].map(value);
            let [free, full, limited, both] = values;
            let no_better = |a: f64, b: f64| a >= b - 1e-9 * b.max(1.0);
            for (more, less) in [(full, free), (limited, free), (both, full), (both, limited)] {
                prop_assert!(no_better(more, less), "{objective:?} at {kappa}, {mu}: {values:?}");
            }
        }
    }

    #[test]
    fn fronts_are_monotone_between_lexicographic_optima((set, kappa, mu) in set_and_means(5)) {
        for (first, second) in [(ScheduleObjective::Risk, ScheduleObjective::Loss), (ScheduleObjective::Loss, ScheduleObjective::Delay)] {
            let request = request(kappa, mu, Vec::new());
            let front = set.pareto_front(&PlanRequest::new(request.clone()).unwrap(), first, second, 5).unwrap();
            let points = front.map(|plan| plan.unwrap().averages).collect::<Vec<_>>();
            for pair in points.windows(2) {
                let values = (pair[0].value_of(first), pair[1].value_of(first), pair[0].value_of(second), pair[1].value_of(second));
                prop_assert!(values.0 <= values.1 + 1e-9, "{values:?}");
                prop_assert!(values.3 <= values.2 + 1e-9 * values.2.max(1.0), "{values:?}");
            }
            for (end, order) in [(points.first(), vec![first, second]), (points.last(), vec![second, first])] {
                // Where there is one point, it is best in both.
                let best = plan_for(&set, &ScheduleRequirements { objectives: order, ..request.clone() }).unwrap().averages;
                for objective in [first, second] {
                    let (end, best) = (end.unwrap().value_of(objective), best.value_of(objective));
                    prop_assert!(agree_to(1e-7, end, best), "{objective:?}: {end} is not {best}");
                }
            }
        }
    }
}

/// With means that are whole but for rounding, the ends of a front are one but for rounding.
#[test]
fn a_front_of_one_plan_has_one_point() {
    let channel = |risk, loss| {
        ChannelModel::new(RiskProbability(risk), LossProbability(loss), 0.0, 1.0).unwrap()
    };
    let wrong = channel(0.351_474_811_170_799_65, 0.348_562_641_861_242_1);
    let others = [channel(1.0, 1e-6), channel(0.0, 1e-6), channel(1.0, 1e-6)];
    let [first, best, last] = others;
    let set = ChannelSet::new(vec![first, wrong, best, last]).unwrap();
    let request = PlanRequest::new(request(1.0, 1.000_000_000_003, Vec::new())).unwrap();
    let front =
        set.pareto_front(&request, ScheduleObjective::Risk, ScheduleObjective::Loss, 5).unwrap();
    for plan in front {
        plan.unwrap();
    }
}

/// Sums of uses that are whole but for rounding leave slivers of symbols with a channel too few or
/// too many. No schedule may start from them, or a program can give them any weight.
#[test]
fn rounding_leaves_no_symbol_below_the_limits() {
    let ten = vec![1.0; 10];
    for (rates, kappa, mu) in [(vec![3.0, 1.0, 1.0, 1.0], 1.0, 3.0), (ten, 3.0, 3.0)] {
        let channels = rates.iter().map(|rate| {
            ChannelModel::new(RiskProbability(0.1), LossProbability(0.1), 1.0, *rate).unwrap()
        });
        let set = ChannelSet::new(channels.collect()).unwrap();
        let schedule = set.limited_schedule_at_best_rate(kappa, mu).unwrap();
        check_limited(&schedule, &set, kappa, mu).unwrap();
        for objective in [ScheduleObjective::Risk, ScheduleObjective::Loss] {
            let request = ScheduleRequirements {
                full_rate: true,
                ..request(kappa, mu, vec![objective]).limited()
            };
            let plan = plan_for(&set, &request).unwrap();
            for (selection, p) in plan.schedule.entries() {
                let kept = selection.k() >= request.min_k && selection.m() >= request.min_m;
                assert!(kept, "{selection:?} for {p} of the symbols: {request:?}");
            }
        }
    }
}

/// Tiny probabilities are as exact as large ones: they are sums of products, never differences.
#[test]
fn tiny_risks_and_losses_are_exact() {
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-12 * b;
    let small = ChannelModel::new(RiskProbability(1e-3), LossProbability(1e-3), 1.0, 1.0).unwrap();
    let five = ChannelSet::new(vec![small; 5]).unwrap();
    let all = five.properties(selection(5, five.all()));
    assert!(close(all.risk, 1e-15), "{}", all.risk);
    let any = five.properties(selection(1, five.all()));
    assert!(close(any.loss, 1e-15), "{}", any.loss);
    // At least 4 of 5: 5 p^4 (1 - p) + p^5.
    let four = 5.0 * 1e-12 * 0.999 + 1e-15;
    assert!(close(five.subset_risk(selection(4, five.all())), four));
    assert!(close(five.subset_loss(selection(2, five.all())), four));
    // And the probability of delivery if nearly all is lost: 20 channels of 1e-6.
    let lossy =
        ChannelModel::new(RiskProbability(1e-6), LossProbability(1.0 - 1e-6), 1.0, 1.0).unwrap();
    let twenty = ChannelSet::new(vec![lossy; 20]).unwrap();
    let every = twenty.properties(selection(20, twenty.all()));
    assert!(close(every.risk, 1e-120), "{}", every.risk);
    // The loss itself is rounded to a number near 1, so the delivery is only as exact as that.
    assert!((every.delivered / 1e-120 - 1.0).abs() < 1e-8, "{}", every.delivered);
    assert!(agree(every.loss, 1.0) && agree(every.delay_ms, 1.0));
}
