//! Plans over channels that differ.

use model::{LossProbability, RiskProbability, ScheduleBound};

use super::*;

fn channels() -> Vec<ChannelModel> {
    let channel =
        |rate| ChannelModel::new(RiskProbability(0.1), LossProbability(0.01), 1.0, rate).unwrap();
    [5.0, 20.0, 60.0, 65.0, 100.0].map(channel).to_vec()
}

fn goal(kappa: f64, mu: f64, floor: u8) -> PlanGoal {
    PlanGoal {
        kappa,
        mu,
        objective: ScheduleObjective::Risk,
        second_objective: None,
        floor,
        keeps_order: true,
        prefer: PlanPreference::Redundancy,
        bounds: PlanBounds::default(),
        fates: SharedFates::default(),
    }
}

/// All channels are equally private. Two are slow, and two lose more.
#[test]
fn the_second_objective_decides_ties() {
    let channel = |loss, delay_ms| {
        ChannelModel::new(RiskProbability(0.1), LossProbability(loss), delay_ms, 10.0).unwrap()
    };
    let channels = [channel(0.0, 40.0), channel(0.1, 40.0), channel(0.0, 1.0), channel(0.1, 1.0)];
    let goal = PlanGoal { keeps_order: false, ..goal(2.0, 2.0, 2) };
    let by = |second| {
        let goal = PlanGoal { second_objective: Some(second), ..goal };
        goal.plan(&channels, ChannelSubset::first(4)).unwrap().averages
    };
    let (loss, delay) = (by(ScheduleObjective::Loss), by(ScheduleObjective::Delay));
    assert!((loss.risk - delay.risk).abs() < 1e-6, "{loss:?}, {delay:?}");
    assert!(loss.loss < delay.loss - 1e-3, "{loss:?}, {delay:?}");
    assert!(delay.delay_ms < loss.delay_ms - 1.0, "{loss:?}, {delay:?}");
}

/// Over three channels, of which the fastest is the riskiest.
#[test]
fn bounds_are_kept_at_a_lower_rate_or_reported() {
    let channel = |risk, rate| {
        ChannelModel::new(RiskProbability(risk), LossProbability(0.01), 1.0, rate).unwrap()
    };
    let channels = [channel(0.5, 100.0), channel(0.1, 20.0), channel(0.1, 20.0)];
    let up = ChannelSubset::first(3);
    let free = goal(1.0, 1.0, 1);
    let fastest = free.plan(&channels, up).unwrap().averages;
    assert!(fastest.rate > 139.0 && fastest.risk > 0.3, "{fastest:?}");
    let within = |bounds| PlanGoal { bounds, ..free }.plan(&channels, up).unwrap();
    let private = within(PlanBounds { max_risk: Some(0.2), ..PlanBounds::default() });
    assert!(private.unmet.is_none() && private.averages.risk <= 0.2 + 1e-6, "{private:?}");
    assert!((39.0..fastest.rate).contains(&private.averages.rate), "{private:?}");
    let impossible = within(PlanBounds {
        max_risk: Some(0.2),
        min_rate_mbit: Some(120.0),
        ..PlanBounds::default()
    });
    let unmet = impossible.unmet.expect("no schedule keeps both");
    assert_eq!((unmet.bound, unmet.wanted), (ScheduleBound::MaxRisk, 0.2));
    assert!(unmet.to_string().starts_with("max_risk = 0.2 cannot be kept: the least risk is"));
    assert!((impossible.averages.rate - fastest.rate).abs() < 1e-6, "as without bounds");
}

#[test]
fn with_all_channels_it_is_the_models_plan() {
    let plan = goal(2.0, 3.0, 2).plan(&channels(), ChannelSubset::first(5)).unwrap();
    let set = ChannelSet::new(channels()).unwrap();
    assert!((plan.averages.rate - set.best_rate(3.0).unwrap()).abs() < 1e-9);
    assert!((plan.averages.kappa - 2.0).abs() < 1e-9 && (plan.averages.mu - 3.0).abs() < 1e-9);
    assert!(plan.schedule.entries().iter().all(|(threshold, _)| threshold.k() >= 2));
}

#[test]
fn channels_that_are_down_have_no_share() {
    let up = ChannelSubset::first(5).iter().filter(|channel| *channel != 2).collect();
    let plan = goal(2.0, 3.0, 2).plan(&channels(), up).unwrap();
    assert!(plan.schedule.channel_usage(2).abs() < 1e-12);
    assert!((plan.averages.mu - 3.0).abs() < 1e-9);
}

#[test]
fn kappa_and_mu_are_lowered_to_the_channels_up_but_not_below_the_floor() {
    let up: ChannelSubset = [1, 4].into_iter().collect();
    let plan = goal(2.5, 4.0, 2).plan(&channels(), up).unwrap();
    assert!((plan.averages.kappa - 2.0).abs() < 1e-9 && (plan.averages.mu - 2.0).abs() < 1e-9);
    let refused = goal(2.5, 4.0, 2).plan(&channels(), ChannelSubset::first(1));
    assert_eq!(refused.unwrap_err(), TunnelPlanError::BelowFloor { up: 1, floor: 2 });
}

#[test]
fn kappa_and_mu_are_raised_to_the_agreed_floor() {
    let means = |goal: PlanGoal| (goal.kappa, goal.mu, goal.floor);
    assert_eq!(means(goal(1.5, 1.5, 1).with_floor(2)), (2.0, 2.0, 2));
    assert_eq!(means(goal(2.5, 3.0, 2).with_floor(2)), (2.5, 3.0, 2));
}

/// A private channel.
fn private(delay_ms: f64, rate: f64) -> ChannelModel {
    ChannelModel::new(RiskProbability(0.0), LossProbability(0.0), delay_ms, rate).unwrap()
}

/// The rate of a plan over all channels, and the delay of its slowest symbols.
fn rate_and_delay(goal: PlanGoal, channels: &[ChannelModel]) -> (f64, f64) {
    let plan = goal.plan(channels, ChannelSubset::first(channels.len())).unwrap();
    let kth = |selection: &ShareSelection| {
        let own = selection.channels().iter().map(|channel| channels[channel].delay_ms());
        let mut own: Vec<f64> = own.collect();
        own.sort_by(f64::total_cmp);
        own[selection.k() - 1]
    };
    let entries = plan.schedule.entries().iter();
    let slowest = entries.map(|(selection, _)| kth(selection)).fold(0.0, f64::max);
    (plan.averages.rate, slowest)
}

fn assert_near((rate, delay): (f64, f64), expected: (f64, f64)) {
    assert!((rate - expected.0).abs() < 1e-6, "{rate}, {delay}");
    assert!((delay - expected.1).abs() < 1e-9, "{rate}, {delay}");
}

#[test]
fn slow_symbols_are_left_out_if_that_costs_at_most_a_tenth_of_the_rate() {
    let planned = |delays: [f64; 2], rates: [f64; 2]| {
        let channels = [0, 1].map(|channel| private(delays[channel], rates[channel]));
        rate_and_delay(goal(1.0, 1.0, 1), &channels)
    };
    assert_near(planned([5.0, 40.0], [300.0, 30.0]), (300.0, 5.0));
    assert_near(planned([5.0, 40.0], [300.0, 40.0]), (340.0, 40.0));
    // The slow one carries more: the other one is used too, as it does not delay packets.
    assert_near(planned([5.0, 40.0], [30.0, 300.0]), (330.0, 40.0));
    // Delays that are similar cost nothing: some milliseconds more, or a multiple.
    assert_near(planned([0.2, 5.1], [300.0, 30.0]), (330.0, 5.1));
    assert_near(planned([0.2, 5.3], [300.0, 30.0]), (300.0, 0.2));
    assert_near(planned([20.0, 50.0], [300.0, 30.0]), (330.0, 50.0));
    assert_near(planned([20.0, 51.0], [300.0, 30.0]), (300.0, 20.0));
    // The receiver cannot make up for more than 150 ms.
    assert_near(planned([5.0, 155.0], [50.0, 50.0]), (100.0, 155.0));
    assert_near(planned([5.0, 156.0], [50.0, 50.0]), (50.0, 5.0));
    assert_near(planned([5.0, 156.0], [50.0, 60.0]), (60.0, 156.0));
}

#[test]
fn slow_symbols_are_used_where_privacy_or_kappa_requires_them() {
    let fibre_and_mobile = [private(5.0, 300.0), private(40.0, 30.0)];
    assert_near(rate_and_delay(goal(2.0, 2.0, 2), &fibre_and_mobile), (30.0, 40.0));
    let watched = |risk, delay, rate| {
        ChannelModel::new(RiskProbability(risk), LossProbability(0.0), delay, rate).unwrap()
    };
    let watched = [watched(0.5, 5.0, 300.0), watched(0.1, 40.0, 30.0)];
    assert_near(rate_and_delay(goal(1.0, 1.0, 1), &watched), (330.0, 40.0));
}

#[test]
fn order_costs_at_most_a_tenth_of_the_rate_over_three_uplinks() {
    let channel = |risk, loss, delay, rate| {
        ChannelModel::new(RiskProbability(risk), LossProbability(loss), delay, rate).unwrap()
    };
    // The example of docs/guides/choosing-channels.md.
    let uplinks = [
        channel(0.01, 0.0005, 6.0, 100.0),
        channel(0.005, 0.01, 25.0, 40.0),
        channel(0.002, 0.003, 9.0, 20.0),
    ];
    let up = ChannelSubset::first(3);
    for kappa in [1.0, 1.5, 2.0] {
        for mu in [2.0, 2.5, 2.9] {
            for prefer in [PlanPreference::Rate, PlanPreference::Redundancy] {
                let ordered = PlanGoal { prefer, ..goal(kappa, mu, 1) };
                let unordered = PlanGoal { keeps_order: false, ..ordered };
                let [ordered, unordered] =
                    [ordered, unordered].map(|goal| goal.plan(&uplinks, up).unwrap().averages);
                assert!(ordered.rate >= 0.9 * unordered.rate, "{ordered:?}, {unordered:?}");
                assert!((ordered.kappa - kappa).abs() < 1e-6, "{ordered:?}");
                assert!((ordered.mu - unordered.mu).abs() < 1e-6, "{ordered:?}");
            }
        }
    }
    let two_of_two = goal(2.0, 2.0, 2).plan(&uplinks, up).unwrap().averages;
    assert!((two_of_two.rate - 60.0).abs() < 1e-6, "{two_of_two:?}");
}

/// In order, all packets are as late as the slowest.
#[test]
fn a_bound_on_the_delay_holds_for_each_symbol() {
    let channels = [private(5.0, 100.0), private(20.0, 40.0), private(40.0, 60.0)];
    let within = |max_delay_ms| {
        let bounds = PlanBounds { max_delay_ms: Some(max_delay_ms), ..PlanBounds::default() };
        rate_and_delay(PlanGoal { bounds, ..goal(1.0, 1.0, 1) }, &channels)
    };
    assert_near(within(40.0), (200.0, 40.0));
    // On average, all channels would keep this.
    assert_near(within(30.0), (140.0, 20.0));
    assert_near(within(18.5), (100.0, 5.0));
}

#[test]
fn a_slow_channel_carries_shares_that_others_can_do_without() {
    let planned = |goal: PlanGoal, delays: [f64; 4]| {
        rate_and_delay(goal, &delays.map(|delay| private(delay, 20.0)))
    };
    let unequal = [1.6, 4.6, 10.6, 60.6];
    assert_near(planned(goal(2.0, 2.5, 2), unequal), (30.0, 10.6));
    let unordered = PlanGoal { keeps_order: false, ..goal(2.0, 2.5, 2) };
    assert_near(planned(unordered, unequal), (32.0, 60.6));
    assert_near(planned(goal(2.0, 2.5, 2), [1.6, 4.6, 16.6, 60.6]), (30.0, 16.6));
    // Without the slowest channel there is half of the rate.
    assert_near(planned(goal(2.0, 2.0, 2), [1.6, 4.6, 10.6, 60.6]), (40.0, 60.6));
}

fn plan_of(kappa: f64, mu: f64, prefer: PlanPreference, channels: &[(f64, f64)]) -> TunnelPlan {
    let model = |(rate, loss): &(f64, f64)| {
        ChannelModel::new(RiskProbability(0.1), LossProbability(*loss), 10.0, *rate).unwrap()
    };
    let models: Vec<ChannelModel> = channels.iter().map(model).collect();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 or 2")]
    let floor = kappa as u8;
    let objective = ScheduleObjective::Risk;
    let bounds = PlanBounds::default();
    let goal = PlanGoal {
        kappa,
        mu,
        objective,
        second_objective: None,
        floor,
        keeps_order: true,
        prefer,
        bounds,
        fates: SharedFates::default(),
    };
    let plan = goal.plan(&models, ChannelSubset::first(channels.len())).unwrap();
    assert!((plan.averages.kappa - kappa).abs() < 1e-6, "privacy stays: {plan:?}");
    assert!(plan.averages.mu + plan.spare.shares <= mu + 1e-6, "{plan:?}");
    plan
}

fn spare(plan: &TunnelPlan) -> Vec<usize> {
    plan.spare.channels.iter().collect()
}

const GOOD: (f64, f64) = (20.0, 0.0);

#[test]
fn a_channel_that_carries_little_limits_no_other() {
    let slow = [(0.1, 0.0), GOOD, GOOD];
    let slow_plan = |kappa, mu| plan_of(kappa, mu, PlanPreference::Rate, &slow);
    for (kappa, mu, shares, rate) in [(2.0, 3.0, 1.0, 20.0), (2.0, 2.5, 0.5, 20.0)] {
        let plan = slow_plan(kappa, mu);
        assert_eq!(spare(&plan), [0], "{mu}");
        assert!((plan.spare.shares - shares).abs() < 1e-6, "{plan:?}");
        assert!((plan.averages.rate - rate).abs() < 0.1, "{plan:?}");
    }
    // With mu = 2 it limits nothing: it is used as far as it carries.
    for kappa in [1.0, 2.0] {
        assert_eq!(spare(&slow_plan(kappa, 2.0)), [0; 0]);
    }
}

#[test]
fn redundancy_is_kept_if_it_is_preferred() {
    let plan = plan_of(2.0, 3.0, PlanPreference::Redundancy, &[(0.1, 0.0), GOOD, GOOD]);
    assert_eq!(spare(&plan), [0; 0]);
    assert!((plan.averages.rate - 0.1).abs() < 1e-6);
}

#[test]
fn redundancy_that_costs_little_is_kept() {
    for slowest in [20.0, 17.0] {
        let plan = plan_of(2.0, 3.0, PlanPreference::Rate, &[(slowest, 0.0), GOOD, GOOD]);
        assert_eq!(spare(&plan), [0; 0], "{slowest}");
    }
    let plan = plan_of(2.0, 3.0, PlanPreference::Rate, &[(15.0, 0.0), GOOD, GOOD]);
    assert_eq!(spare(&plan), [0]);
}

/// A channel that loses much is worth nothing to TCP, unless others make up for it.
#[test]
fn a_channel_that_loses_much_is_left_out_where_its_shares_are_needed() {
    let lossy = [(20.0, 0.6), GOOD, GOOD];
    for mu in [2.0, 2.5] {
        let plan = plan_of(2.0, mu, PlanPreference::Rate, &lossy);
        assert_eq!((spare(&plan), plan.averages.loss), (vec![0], 0.0), "{mu}");
    }
    assert_eq!(spare(&plan_of(2.0, 3.0, PlanPreference::Rate, &lossy)), [0; 0]);
    // There is no other.
    assert_eq!(spare(&plan_of(2.0, 2.0, PlanPreference::Rate, &[(20.0, 0.6), GOOD])), [0; 0]);
}
