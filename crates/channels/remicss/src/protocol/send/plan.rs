//! The optimal schedule for the current channels.

use std::ops::RangeInclusive;

use model::{
    ChannelModel, ChannelSet, ChannelSubset, OptimalSchedule, PlanError, PlanRequest,
    ScheduleAverages, ScheduleObjective, ScheduleRequirements, ShareSchedule, ShareSelection,
};
use thiserror::Error;

use super::bounds::{PlanBounds, UnmetBound};
use super::spare::{PlanPreference, SpareChannels, first_better, smaller_sets};
use crate::protocol::wire::channel_index::{ConfiguredIndex, LiveIndex};

/// The goal of a plan: kappa, mu, bounds, and what the schedule minimises.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlanGoal {
    /// The mean threshold.
    pub kappa: f64,
    /// The mean multiplicity.
    pub mu: f64,
    /// What is optimised at full rate.
    pub objective: ScheduleObjective,
    /// What decides ties. After it, risk, loss and delay do, in this order.
    pub second_objective: Option<ScheduleObjective>,
    /// The privacy floor: the minimum threshold of any symbol.
    pub floor: u8,
    /// Whether packets are kept in order. If they are, channels that are much slower than others
    /// are left out if this costs only rate.
    pub keeps_order: bool,
    /// What is sacrificed if redundancy costs much rate.
    pub prefer: PlanPreference,
    /// The bounds. Within them the rate is the highest possible.
    pub bounds: PlanBounds,
}

/// Delays are similar up to this factor. Besides twice the lowest round trip, BBR allows for data
/// that is acknowledged at once when a late packet arrives. Over two channels of 20 Mbit/s with 10
/// and 24 ms, one connection gets twice as much as over one of them.
const SIMILAR_DELAY_FACTOR: f64 = 2.5;

/// Delays that differ by less, in ms, are similar whatever their ratio: TCP's allowance for
/// superpackets bridges the difference. Over two channels of 50 Mbit/s with delays of 0.1 and 2.5
/// ms, one connection (BBR) gets 93 Mbit/s, and 45 if only one of them is used; with 0.1 and 4.7 ms
/// at 300 Mbit/s, 557.
const SIMILAR_DELAY_MS: f64 = 5.0;

/// The minimum fraction of the rate that must be left if fewer channels than mu have similar
/// delays.
const MIN_RATE_PART: f64 = 0.75;

/// A schedule and its averages.
#[derive(Clone, Debug)]
pub struct TunnelPlan {
    /// The schedule, over channels that are up.
    pub schedule: ShareSchedule,
    /// The model's averages for it.
    pub averages: ScheduleAverages,
    /// The channels that it leaves out, and that get further shares.
    pub spare: SpareChannels,
    /// The bound that no schedule keeps. Then the plan keeps none.
    pub unmet: Option<UnmetBound>,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum TunnelPlanError {
    /// Fewer channels are up than the privacy floor.
    #[error("{up} channels are up, and the privacy floor is {floor}")]
    BelowFloor {
        /// How many channels are up.
        up: usize,
        /// The floor.
        floor: usize,
    },
    /// The model has no plan.
    #[error(transparent)]
    Model(#[from] PlanError),
}

impl PlanGoal {
    /// The best schedule at full rate over those of `channels` that are up. If fewer are up than
    /// kappa and mu need, kappa and mu are lowered as far as necessary, but not below the floor. If
    /// rate is preferred, mu is also lowered if it costs too much rate.
    ///
    /// # Errors
    /// If fewer are up than the floor.
    ///
    /// # Panics
    /// If there are more than [`model::MAX_CHANNELS`] channels.
    pub fn plan(
        &self,
        channels: &[ChannelModel],
        up: ChannelSubset,
    ) -> Result<TunnelPlan, TunnelPlanError> {
        let up: ChannelSubset = up.iter().filter(|channel| *channel < channels.len()).collect();
        let floor = usize::from(self.floor).max(1);
        if up.len() < floor {
            return Err(TunnelPlanError::BelowFloor { up: up.len(), floor });
        }
        let plan = self.plan_in_order(channels, up)?;
        Ok(match self.prefer {
            PlanPreference::Rate => self.without_costly_channels(channels, up, plan),
            PlanPreference::Redundancy => plan,
        })
    }

    /// The plan over those channels of `up` that are worth their cost; `full` is the plan over all.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "16 at most")]
    fn without_costly_channels(
        &self,
        channels: &[ChannelModel],
        up: ChannelSubset,
        full: TunnelPlan,
    ) -> TunnelPlan {
        let least = (self.kappa.ceil() as usize).max(self.floor.into()).max(1);
        let sets = smaller_sets(channels, up, least).into_iter();
        let plans = sets.filter_map(|used| Some((used, self.plan_in_order(channels, used).ok()?)));
        let plans = plans.filter(|(_, plan)| plan.unmet.is_none() || full.unmet.is_some());
        let mut plans: Vec<(ChannelSubset, TunnelPlan)> = plans.collect();
        let averages: Vec<ScheduleAverages> = plans.iter().map(|(_, plan)| plan.averages).collect();
        let Some(better) = first_better(&full.averages, &averages) else {
            return full;
        };
        let (used, plan) = plans.swap_remove(better);
        let channels = up.iter().filter(|channel| !used.contains(*channel)).collect();
        let shares = (self.mu - plan.averages.mu).max(0.0);
        TunnelPlan { spare: SpareChannels { channels, shares }, ..plan }
    }

    /// The best schedule over these channels, or the best one of symbols with similar delays.
    fn plan_in_order(
        &self,
        channels: &[ChannelModel],
        up: ChannelSubset,
    ) -> Result<TunnelPlan, TunnelPlanError> {
        let live = LiveChannels::new(channels, up);
        let plan = self.plan_over(&live, None)?;
        let similar = if self.keeps_order { self.similar_delays(&live, &plan) } else { None };
        let better = similar.and_then(|delays_ms| {
            let better = self.plan_over(&live, Some(delays_ms)).ok()?;
            let is_as_good = (better.unmet.is_none() || plan.unmet.is_some())
                && self.cost(&better.averages) <= self.cost(&plan.averages) + COST_TOLERANCE;
            is_as_good.then_some(better)
        });
        Ok(better.unwrap_or(plan))
    }

    /// The same with the privacy floor on which the ends agreed, which may be above this end's own.
    /// kappa and mu are raised to it.
    #[must_use]
    pub fn with_floor(self, floor: u8) -> Self {
        let kappa = self.kappa.max(floor.into());
        Self { floor, kappa, mu: self.mu.max(kappa), ..self }
    }

    /// The range of similar delays with the highest rate, unless all channels have similar delays:
    /// none is more than 2.5 times the shortest, or more than some milliseconds longer. A symbol
    /// has the delay of its kth fastest channel, so slower channels can carry the shares beyond the
    /// kth. `None` if that would cost more than a stated part of `plan`'s rate, unless the channels
    /// with these delays are enough for mu.
    ///
    /// A flow that is kept in order has the delay of its slowest symbols. TCP assumes the lowest
    /// round trip that it has measured, and BBR keeps no more in flight than twice what fits into
    /// it: if packets in order take more than twice as long, BBR slows down more and more. So slow
    /// symbols cost more rate than they contribute.
    #[expect(clippy::cast_precision_loss, reason = "16 at most")]
    fn similar_delays(
        &self,
        live: &LiveChannels,
        plan: &TunnelPlan,
    ) -> Option<RangeInclusive<f64>> {
        let channels = live.set.channels();
        let mut delays: Vec<f64> = channels.iter().map(ChannelModel::delay_ms).collect();
        delays.sort_by(f64::total_cmp);
        let similar = |fastest: &f64| {
            let most = (SIMILAR_DELAY_FACTOR * fastest).max(fastest + SIMILAR_DELAY_MS);
            let count = delays.partition_point(|delay| *delay <= most);
            *fastest..=delays[count.saturating_sub(1)]
        };
        let mut ranges: Vec<RangeInclusive<f64>> = delays.iter().map(similar).collect();
        // Of ranges with the same end, the first includes the others.
        ranges.dedup_by(|range, before| range.end() <= before.end());
        if ranges.len() == 1 {
            return None;
        }
        let rated = ranges.into_iter().filter_map(|range| {
            let rate = self.best_rate(live, &range)?;
            let count = delays.iter().filter(|delay| range.contains(delay)).count();
            let is_enough = count as f64 >= self.mu || rate >= MIN_RATE_PART * plan.averages.rate;
            is_enough.then_some((range, rate))
        });
        // Of equal rates, that with the shorter delays.
        let is_higher = |rate: f64, other: f64| rate > (1.0 + RATE_TOLERANCE) * other;
        let best = rated.reduce(|best, next| if is_higher(next.1, best.1) { next } else { best });
        best.map(|(range, _)| range)
    }

    /// The highest rate of symbols with these delays.
    fn best_rate(&self, live: &LiveChannels, delays_ms: &RangeInclusive<f64>) -> Option<f64> {
        let request = self.request(live.set.len(), Some(delays_ms.clone())).ok()?;
        let plan = live.set.plan(&request.with_objectives(Vec::new())).ok()?;
        Some(plan.averages.rate)
    }

    /// The value that the objective minimises.
    fn cost(&self, averages: &ScheduleAverages) -> f64 {
        match self.objective {
            ScheduleObjective::Risk => averages.risk,
            ScheduleObjective::Loss => averages.loss,
            ScheduleObjective::Delay => averages.delay_ms,
            ScheduleObjective::DeliveredDelay => averages.delivered_delay_ms,
            ScheduleObjective::Rate => -averages.rate,
        }
    }

    /// The best plan at the highest rate of symbols with these delays.
    fn plan_over(
        &self,
        live: &LiveChannels,
        delays_ms: Option<RangeInclusive<f64>>,
    ) -> Result<TunnelPlan, TunnelPlanError> {
        let request = self.request(live.set.len(), delays_ms)?;
        let (plan, unmet) = self.best_within_bounds(&live.set, &request)?;
        Ok(TunnelPlan {
            schedule: live.configured_schedule(&plan.schedule),
            averages: plan.averages,
            spare: SpareChannels::default(),
            unmet,
        })
    }

    /// The best schedule at the highest rate within the bounds. If no schedule keeps them, the best
    /// one without bounds, and the first bound that cannot be kept.
    fn best_within_bounds(
        &self,
        set: &ChannelSet,
        request: &PlanRequest,
    ) -> Result<(OptimalSchedule, Option<UnmetBound>), PlanError> {
        let mut unmet = None;
        if self.bounds != PlanBounds::default() {
            let mut objectives = vec![ScheduleObjective::Rate];
            objectives.extend(request.requirements().objectives.iter().copied());
            let bounded = PlanRequest::new(ScheduleRequirements {
                full_rate: false,
                max_risk: self.bounds.max_risk,
                max_loss: self.bounds.max_loss,
                max_delay_ms: self.bounds.max_delay_ms,
                min_rate: self.bounds.min_rate_mbit,
                objectives,
                ..request.requirements().clone()
            })?;
            let rate_only = || bounded.with_objectives(vec![ScheduleObjective::Rate]);
            let planned = set.plan(&bounded).or_else(|error| match error {
                PlanError::Solver(_) => set.plan(&rate_only()),
                _ => Err(error),
            });
            match planned {
                Ok(plan) => return Ok((plan, None)),
                Err(PlanError::Infeasible { bound, wanted, best }) => {
                    unmet = Some(UnmetBound { bound, wanted, best });
                }
                // Whether the bounds can be kept is unknown: they are not given up silently.
                Err(error) => return Err(error),
            }
        }
        // The objectives after the first only break ties. If there is no plan with them, the first
        // one is enough.
        let plan = set
            .plan(request)
            .or_else(|_| set.plan(&request.with_objectives(vec![self.objective])))?;
        Ok((plan, unmet))
    }

    #[expect(clippy::cast_precision_loss, reason = "16 at most")]
    fn request(
        &self,
        n: usize,
        kth_delay_ms: Option<RangeInclusive<f64>>,
    ) -> Result<PlanRequest, PlanError> {
        let floor = usize::from(self.floor).max(1);
        let mu = self.mu.min(n as f64);
        let kappa = self.kappa.min(mu).max(floor as f64);
        let mut objectives = vec![self.objective];
        let others = [ScheduleObjective::Risk, ScheduleObjective::Loss, ScheduleObjective::Delay];
        for other in self.second_objective.into_iter().chain(others) {
            if !objectives.contains(&other) {
                objectives.push(other);
            }
        }
        let requirements = ScheduleRequirements {
            kappa: Some(kappa),
            mu: Some(mu.max(kappa)),
            full_rate: true,
            min_k: floor,
            kth_delay_ms,
            objectives,
            ..ScheduleRequirements::default()
        };
        Ok(PlanRequest::new(requirements)?)
    }
}

/// Costs that differ by less are equal, and so are rates that differ by less than this part.
const COST_TOLERANCE: f64 = 1e-9;
const RATE_TOLERANCE: f64 = 1e-6;

/// The channels that a plan may use, as a set of their own: the model plans for all channels of a
/// set, whose indices have no gaps.
struct LiveChannels {
    /// The models, by [`LiveIndex`].
    set: ChannelSet,
    live: ChannelSubset,
}

impl LiveChannels {
    /// Those of the configured channels that are in `live`: at least one, and not too many.
    fn new(channels: &[ChannelModel], live: ChannelSubset) -> Self {
        let models = live.iter().map(|channel| channels[channel]).collect();
        let set = ChannelSet::new(models).expect("at least one channel, and not too many");
        Self { set, live }
    }

    /// A schedule over this set, as one over the configured channels.
    fn configured_schedule(&self, schedule: &ShareSchedule) -> ShareSchedule {
        let entries = schedule.entries().iter().map(|(threshold, proportion)| {
            let configured = |place| LiveIndex(place).configured_index(self.live);
            let channels = threshold.channels().iter().filter_map(configured);
            let channels = channels.map(|ConfiguredIndex(channel)| channel).collect();
            let threshold = ShareSelection::new(threshold.k(), channels);
            (threshold.expect("as many channels as before"), *proportion)
        });
        ShareSchedule::new(entries).expect("the same proportions as before")
    }
}

#[cfg(test)]
mod tests {
    use model::{LossProbability, RiskProbability, ScheduleBound};

    use super::*;

    fn channels() -> Vec<ChannelModel> {
        let channel = |rate| {
            ChannelModel::new(RiskProbability(0.1), LossProbability(0.01), 1.0, rate).unwrap()
        };
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
        }
    }

    /// All channels are equally private. Two are slow, and two lose more.
    #[test]
    fn the_second_objective_decides_ties() {
        let channel = |loss, delay_ms| {
            ChannelModel::new(RiskProbability(0.1), LossProbability(loss), delay_ms, 10.0).unwrap()
        };
        let channels =
            [channel(0.0, 40.0), channel(0.1, 40.0), channel(0.0, 1.0), channel(0.1, 1.0)];
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

    #[test]
    fn a_slow_channel_is_left_out_if_that_costs_only_rate() {
        let pair = |delays: [f64; 2], rates: [f64; 2], risks: [f64; 2]| {
            let channel = |i: usize| {
                ChannelModel::new(
                    RiskProbability(risks[i]),
                    LossProbability(0.0),
                    delays[i],
                    rates[i],
                )
                .unwrap()
            };
            [channel(0), channel(1)]
        };
        let used = |goal: PlanGoal, channels: &[ChannelModel]| {
            let plan = goal.plan(channels, ChannelSubset::first(2)).unwrap();
            [0, 1].map(|channel| plan.schedule.channel_usage(channel) > 0.0)
        };
        let same = [0.1, 0.1];
        let fibre_and_mobile = pair([5.0, 40.0], [300.0, 30.0], same);
        assert_eq!(used(goal(1.0, 1.0, 1), &fibre_and_mobile), [true, false]);
        let unordered = PlanGoal { keeps_order: false, ..goal(1.0, 1.0, 1) };
        assert_eq!(used(unordered, &fibre_and_mobile), [true, true]);
        // The slow one carries more.
        assert_eq!(used(goal(1.0, 1.0, 1), &pair([5.0, 40.0], [30.0, 300.0], same)), [false, true]);
        // Twice as long is not too long.
        assert_eq!(used(goal(1.0, 1.0, 1), &pair([20.0, 40.0], [50.0, 50.0], same)), [true, true]);
        // Nor are some milliseconds, of which most may be a full packet's sending on a slow
        // channel.
        assert_eq!(used(goal(1.0, 1.0, 1), &pair([0.2, 5.1], [50.0, 20.0], same)), [true, true]);
        assert_eq!(used(goal(1.0, 1.0, 1), &pair([0.2, 5.3], [50.0, 20.0], same)), [true, false]);
        // Nor is some more.
        assert_eq!(used(goal(1.0, 1.0, 1), &pair([20.0, 50.0], [50.0, 50.0], same)), [true, true]);
        assert_eq!(used(goal(1.0, 1.0, 1), &pair([20.0, 51.0], [50.0, 50.0], same)), [true, false]);
        // Both are needed.
        assert_eq!(used(goal(2.0, 2.0, 2), &fibre_and_mobile), [true, true]);
        // It would be less private.
        let watched = pair([5.0, 40.0], [300.0, 30.0], [0.5, 0.1]);
        assert_eq!(used(goal(1.0, 1.0, 1), &watched), [true, true]);
    }

    #[test]
    fn a_slow_channel_carries_shares_that_others_can_do_without() {
        let channel = |delay| {
            ChannelModel::new(RiskProbability(0.0), LossProbability(0.0), delay, 20.0).unwrap()
        };
        let planned = |goal: PlanGoal, delays: &[f64]| {
            let channels: Vec<ChannelModel> = delays.iter().map(|delay| channel(*delay)).collect();
            let plan = goal.plan(&channels, ChannelSubset::first(channels.len())).unwrap();
            let kth = |selection: &ShareSelection| {
                let mut own: Vec<f64> = selection.channels().iter().map(|i| delays[i]).collect();
                own.sort_by(f64::total_cmp);
                own[selection.k() - 1]
            };
            let entries = plan.schedule.entries().iter();
            let slowest = entries.map(|(selection, _)| kth(selection)).fold(0.0, f64::max);
            (plan.averages.rate, slowest)
        };
        let is_near = |(rate, slowest): (f64, f64), expected: (f64, f64)| {
            assert!((rate - expected.0).abs() < 1e-6, "{rate}, {slowest}");
            assert!((slowest - expected.1).abs() < 1e-9, "{rate}, {slowest}");
        };
        let unequal = [1.6, 4.6, 10.6, 60.6];
        is_near(planned(goal(2.0, 2.5, 2), &unequal), (30.0, 10.6));
        let unordered = PlanGoal { keeps_order: false, ..goal(2.0, 2.5, 2) };
        is_near(planned(unordered, &unequal), (32.0, 60.6));
        // Symbols of two channels have similar delays, but too low a rate.
        is_near(planned(goal(2.0, 2.5, 2), &[1.6, 4.6, 16.6, 60.6]), (32.0, 60.6));
        // Two channels are enough for mu.
        is_near(planned(goal(2.0, 2.0, 2), &[1.6, 4.6, 60.6, 200.6]), (20.0, 4.6));
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
}
