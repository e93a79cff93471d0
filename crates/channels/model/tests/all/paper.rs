//! The paper's own statements on sets of channels: Figure 2, its experiments, examples,
//! corollaries.

use sim::SeededRng;
use sunder_model::{
    ChannelModel, ChannelSet, ChannelSubset, LossProbability, RiskProbability, ScheduleObjective,
    ScheduleRequirements, ShareSchedule, ShareSelection,
};

use crate::textbook::sets::mixed_set;
use crate::textbook::{agree_to, best_rate, number, plan_for};

/// Channels for which only the rates matter.
fn of_rates(rates: &[f64]) -> ChannelSet {
    let channels = rates.iter().map(|rate| {
        ChannelModel::new(RiskProbability(0.5), LossProbability(0.0), 1.0, *rate).unwrap()
    });
    ChannelSet::new(channels.collect()).unwrap()
}

fn of(channels: &[(f64, f64, f64, f64)]) -> ChannelSet {
    let channels = channels.iter().map(|&(z, l, d, r)| {
        ChannelModel::new(RiskProbability(z), LossProbability(l), d, r).unwrap()
    });
    ChannelSet::new(channels.collect()).unwrap()
}

fn selection(k: usize, channels: impl IntoIterator<Item = usize>) -> ShareSelection {
    ShareSelection::new(k, channels.into_iter().collect()).unwrap()
}

/// `R_C` at each mu is the fraction given, and what Theorem 4 gives over every set S.
#[track_caller]
fn assert_rates(set: &ChannelSet, rates: &[(f64, f64)]) {
    for (mu, rate) in rates {
        let ours = set.best_rate(*mu).unwrap();
        assert!(agree_to(1e-14, ours, *rate), "{ours} at {mu} is not {rate}");
        let all = best_rate(set, *mu);
        assert!(agree_to(1e-14, ours, all), "{ours} at {mu} is not {all}");
    }
}

/// The candidates for r = (3, 4, 8) are 15/mu, 7/(mu - 1) and 3/(mu - 2).
#[test]
fn figure_2() {
    let set = of_rates(&[3.0, 4.0, 8.0]);
    let limit = 15.0 / 8.0;
    let rates = [(1.0, 15.0), (1.5, 10.0), (limit, 8.0), (2.0, 7.0), (2.5, 14.0 / 3.0), (3.0, 3.0)];
    assert_rates(&set, &rates);
    // As mu rises fewer symbols are sent, and from 15/8 on the fastest channel has rate left.
    assert!(agree_to(1e-15, set.full_use_limit(), limit));
    assert_eq!(set.fully_used(limit), Some(set.all()));
    assert_eq!(set.fully_used(limit + 1e-9), Some(ChannelSubset::first(2)));
    assert_eq!(set.used_rates(2.0), Some(vec![3.0, 4.0, 7.0]));
    assert_eq!(set.used_rates(3.0), Some(vec![3.0, 3.0, 3.0]));
}

/// The candidates for r = (5, 20, 60, 65, 100) are 250/mu, 150/(mu - 1), 85/(mu - 2), 25/(mu - 3)
/// and 5/(mu - 4).
#[test]
fn the_diverse_setup() {
    let rates = [
        (1.0, 250.0),
        (1.5, 500.0 / 3.0),
        (2.0, 125.0),
        (2.5, 100.0),
        (3.0, 75.0),
        (3.4, 425.0 / 7.0),
        (3.8, 125.0 / 4.0),
        (4.0, 25.0),
        (4.5, 10.0),
        (5.0, 5.0),
    ];
    assert_rates(&of_rates(&[5.0, 20.0, 60.0, 65.0, 100.0]), &rates);
    // The channels' order does not matter.
    assert_rates(&of_rates(&[65.0, 5.0, 100.0, 60.0, 20.0]), &rates);
}

#[test]
fn theorem_4_needs_no_subsets() {
    let mut rng = SeededRng::new(1);
    for n in (1..=8).cycle().take(200) {
        let set = mixed_set(&mut rng, n);
        for step in 0..=40 {
            let mu = 1.0 + (number(n) - 1.0) * f64::from(step) / 40.0;
            assert_rates(&set, &[(mu, best_rate(&set, mu))]);
        }
    }
}

/// IV-E: limiting a schedule costs delay.
#[test]
fn the_example_of_a_limited_schedule() {
    let set = of(&[(0.0, 0.0, 2.0, 1.0), (0.0, 0.0, 9.0, 1.0), (0.0, 0.0, 10.0, 1.0)]);
    let objectives = vec![ScheduleObjective::Delay];
    let request = ScheduleRequirements {
        kappa: Some(2.0),
        mu: Some(3.0),
        objectives,
        ..ScheduleRequirements::default()
    };
    let free = plan_for(&set, &request).unwrap();
    assert!(agree_to(1e-12, free.averages.delay_ms, 6.0));
    let half_and_half = [(selection(1, 0..3), 0.5), (selection(3, 0..3), 0.5)];
    assert_eq!(free.schedule, ShareSchedule::new(half_and_half).unwrap());
    let limited = plan_for(&set, &request.limited()).unwrap();
    assert!(agree_to(1e-12, limited.averages.delay_ms, 9.0));
    assert_eq!(limited.schedule, ShareSchedule::constant(selection(2, 0..3)));
}

#[test]
fn corollary_1_identical_rates_are_always_used_in_full() {
    for n in 1..=20u32 {
        for rate in [0.3, 1.0, 100.0, 1e9 / 3.0] {
            let set = of_rates(&vec![rate; n as usize]);
            assert!(agree_to(1e-14, set.full_use_limit(), f64::from(n)));
            for step in 0..=100 {
                let mu = 1.0 + f64::from((n - 1) * step) / 100.0;
                assert_eq!(set.fully_used(mu), Some(set.all()), "{n} of {rate} at {mu}");
            }
        }
    }
}

#[test]
fn corollary_2_more_than_n_less_mu_are_used_in_full() {
    let mut rng = SeededRng::new(2);
    for n in (1..=12).cycle().take(500) {
        let set = mixed_set(&mut rng, n);
        for step in 0..=40 {
            let mu = 1.0 + (number(n) - 1.0) * f64::from(step) / 40.0;
            let used = set.fully_used(mu).unwrap().len();
            assert!(number(used) > number(n) - mu, "{used} at {mu}: {set:?}");
        }
    }
}

/// `Z_C` and `L_C` are products over all channels; `D_C` goes through the channels by delay, each
/// reached if all before it lost their share.
#[test]
fn the_best_values_are_the_closed_formulas() {
    let mut rng = SeededRng::new(3);
    for n in (1..=10).cycle().take(300) {
        let set = mixed_set(&mut rng, n);
        let channels = set.channels();
        let every = set.properties(selection(n, 0..n));
        let any = set.properties(selection(1, 0..n));
        let z: f64 = channels.iter().map(ChannelModel::risk).product();
        let l: f64 = channels.iter().map(ChannelModel::loss).product();
        assert!((every.risk - z).abs() <= 1e-13 * z, "{} is not {z}: {set:?}", every.risk);
        assert!((any.loss - l).abs() <= 1e-13 * l, "{} is not {l}: {set:?}", any.loss);

        let mut by_delay: Vec<&ChannelModel> = channels.iter().collect();
        by_delay.sort_by(|a, b| a.delay_ms().total_cmp(&b.delay_ms()));
        let (mut sum, mut all_lost) = (0.0, 1.0);
        for channel in by_delay {
            // lambda(a) is the loss of the channel of the a-th delay, delta(a).
            sum += (1.0 - channel.loss()) * channel.delay_ms() * all_lost;
            all_lost *= channel.loss();
        }
        let d = sum / (1.0 - l);
        assert!(agree_to(1e-12, any.delay_ms, d), "{} is not {d}: {set:?}", any.delay_ms);
    }
}

#[test]
fn without_loss_the_best_delay_is_the_fastest_channels() {
    let set = of(&[(0.1, 0.0, 7.0, 1.0), (0.2, 0.0, 3.0, 1.0), (0.3, 0.0, 5.0, 1.0)]);
    for (k, delay_ms) in [(1, 3.0), (2, 5.0), (3, 7.0)] {
        assert_eq!(set.properties(selection(k, 0..3)).delay_ms.to_bits(), f64::to_bits(delay_ms));
    }
}

/// Under the paper's own definition d(k, M) leaves lost symbols out. So `D_C` = d(1, C) is not the
/// least D(p) where there is loss: using the fastest channel alone loses more symbols, but those
/// that arrive were all fast.
#[test]
fn more_channels_can_raise_the_delay() {
    let set = of(&[(0.0, 0.5, 1.0, 1.0), (0.0, 0.0, 100.0, 1.0)]);
    let delay_ms =
        |channels: &[usize]| set.properties(selection(1, channels.iter().copied())).delay_ms;
    // 1 in half of the cases, 100 in the others.
    assert!(agree_to(1e-15, delay_ms(&[0, 1]), 50.5));
    assert!(agree_to(1e-15, delay_ms(&[0]), 1.0));
    let request = ScheduleRequirements {
        objectives: vec![ScheduleObjective::Delay],
        ..ScheduleRequirements::default()
    };
    assert!(agree_to(1e-12, plan_for(&set, &request).unwrap().averages.delay_ms, 1.0));
}

/// IV-C: at mu = 1 each channel has the part of the symbols that is its part of the rate.
#[test]
fn the_highest_rate_of_all_and_its_schedule() {
    let rates = [5.0, 20.0, 60.0, 65.0, 100.0];
    let set = of_rates(&rates);
    let entries = rates.iter().enumerate().map(|(i, rate)| (selection(1, [i]), rate / 250.0));
    let papers = ShareSchedule::new(entries).unwrap();
    assert!(agree_to(1e-14, papers.rate(&set), 250.0));
    assert!(agree_to(1e-14, set.total_rate(), 250.0));

    let best = set.limited_schedule_at_best_rate(1.0, 1.0).unwrap();
    assert_eq!(best.entries().len(), papers.entries().len());
    for ((ours, p), (theirs, q)) in best.entries().iter().zip(papers.entries()) {
        assert_eq!(ours, theirs);
        assert!((p - q).abs() < 1e-14, "{ours:?}: {p} is not {q}");
    }
    let plan = plan_for(
        &set,
        &ScheduleRequirements {
            objectives: vec![ScheduleObjective::Rate],
            ..ScheduleRequirements::default()
        },
    )
    .unwrap();
    assert!(agree_to(1e-9, plan.averages.rate, 250.0));
    assert!(agree_to(1e-9, plan.averages.mu, 1.0));
}
