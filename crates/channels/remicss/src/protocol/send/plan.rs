//! The optimal schedule for the current channels.

use std::ops::RangeInclusive;

use model::{
    ChannelModel, ChannelSet, ChannelSubset, OptimalSchedule, PlanError, PlanRequest,
    ScheduleAverages, ScheduleObjective, ScheduleRequirements, ShareSchedule, ShareSelection,
};
use thiserror::Error;

use super::bounds::{PlanBounds, UnmetBound};
use super::shared_fates::SharedFates;
use super::similar_delays::longest_similar_ms;
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
    /// Whether packets are kept in order. If they are, symbols with long delays are left out if
    /// this costs only rate, and at most a tenth of it.
    pub keeps_order: bool,
    /// What is sacrificed if redundancy costs much rate.
    pub prefer: PlanPreference,
    /// The bounds. Within them the rate is the highest possible, unless the price is minimised.
    pub bounds: PlanBounds,
    /// The channels that share a fate.
    pub fates: SharedFates,
}

/// Order may cost this part of the rate.
const MAX_ORDER_COST: f64 = 0.1;

/// The greatest difference of symbols' delays, in ms, that the receiver makes up for. Its reorder
/// window is a quarter longer, and at most 200 ms.
const MAX_DELAY_SPREAD_MS: f64 = 150.0;

/// If delays differ by more, or are bounded: the minimum fraction of the rate that must be left if
/// fewer channels than mu have the remaining delays.
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
            // The cheapest plan uses no channel for its rate.
            PlanPreference::Rate if self.objective != ScheduleObjective::Cost => {
                self.without_costly_channels(channels, up, plan)
            }
            _ => plan,
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

    /// The best schedule over these channels, or the best one of symbols with short delays.
    fn plan_in_order(
        &self,
        channels: &[ChannelModel],
        up: ChannelSubset,
    ) -> Result<TunnelPlan, TunnelPlanError> {
        let live = LiveChannels::new(channels, self.fates, up);
        let plan = self.plan_over(&live, None)?;
        let shortest = if self.keeps_order { self.shortest_delays(&live, &plan) } else { None };
        let better = shortest.and_then(|delays_ms| {
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

    /// The range of the shortest delays whose symbols have at least nine tenths of `plan`'s rate.
    /// `None` if that is no restriction.
    ///
    /// A flow that is kept in order has the delay of its slowest symbols, and the receiver gives
    /// this delay to all symbols (`DelayEqualizer`). So slow symbols cost delay, and are used only
    /// for more than a tenth of the rate. Delays that are similar to the shortest cost nothing. A
    /// symbol has the delay of its kth fastest channel, so slower channels can carry the shares
    /// beyond the kth.
    ///
    /// A bound on the delay holds for each of these symbols, since each has the longest delay. If
    /// no range has enough rate, because of that bound or because the receiver can make up for
    /// [`MAX_DELAY_SPREAD_MS`] only, it is the range with the highest rate: but `None` if that
    /// would cost more than a stated part of `plan`'s rate, unless the channels with these delays
    /// are enough for mu.
    fn shortest_delays(
        &self,
        live: &LiveChannels,
        plan: &TunnelPlan,
    ) -> Option<RangeInclusive<f64>> {
        let channels = live.set.channels();
        let mut delays: Vec<f64> = channels.iter().map(ChannelModel::delay_ms).collect();
        delays.sort_by(f64::total_cmp);
        let (shortest, longest) = (*delays.first()?, *delays.last()?);
        let bound = self.bounds.max_delay_ms.unwrap_or(f64::INFINITY);
        let similar = longest_similar_ms(shortest).min(bound);
        let up_to = |limit: f64| (limit - MAX_DELAY_SPREAD_MS).max(shortest)..=limit;
        let longer = delays.iter().copied().filter(|delay| (similar..=bound).contains(delay));
        let ranges = [similar].into_iter().chain(longer).map(up_to);
        let mut best: Option<(RangeInclusive<f64>, f64)> = None;
        for range in ranges {
            let is_restricted = *range.start() > shortest || *range.end() < longest;
            let rate = if is_restricted { self.best_rate(live, &range) } else { None };
            let Some(rate) = rate else {
                if is_restricted {
                    continue;
                }
                return None;
            };
            if rate >= (1.0 - MAX_ORDER_COST) * plan.averages.rate {
                return Some(range);
            }
            // Of equal rates, that with the shorter delays.
            if best.as_ref().is_none_or(|(_, other)| rate > (1.0 + RATE_TOLERANCE) * other) {
                best = Some((range, rate));
            }
        }
        let (range, rate) = best?;
        let count = delays.iter().filter(|delay| range.contains(delay)).count();
        #[expect(clippy::cast_precision_loss, reason = "16 at most")]
        let is_enough = count as f64 >= self.mu || rate >= MIN_RATE_PART * plan.averages.rate;
        is_enough.then_some(range)
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
            ScheduleObjective::Cost => averages.cost,
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
        let is_cheapest = self.objective == ScheduleObjective::Cost;
        if is_cheapest || self.bounds != PlanBounds::default() {
            let mut objectives = request.requirements().objectives.clone();
            // What is requested comes before the rate if the price is minimised.
            let requested = 1 + usize::from(self.second_objective.is_some());
            objectives.insert(if is_cheapest { requested } else { 0 }, ScheduleObjective::Rate);
            let first = objectives[0];
            let bounded = PlanRequest::new(ScheduleRequirements {
                full_rate: false,
                max_risk: self.bounds.max_risk,
                max_loss: self.bounds.max_loss,
                max_delay_ms: self.bounds.max_delay_ms,
                min_rate: self.bounds.min_rate_mbit,
                objectives,
                ..request.requirements().clone()
            })?;
            let first_only = || bounded.with_objectives(vec![first]);
            let planned = set.plan(&bounded).or_else(|error| match error {
                PlanError::Solver(_) => set.plan(&first_only()),
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
    /// Those of the configured channels that are in `live`: at least one, and not too many. `fates`
    /// are of configured channels.
    fn new(channels: &[ChannelModel], fates: SharedFates, live: ChannelSubset) -> Self {
        let set = ChannelSet::new(channels.to_vec())
            .and_then(|set| set.with_shared_fates(fates.sets()))
            .and_then(|set| set.restricted(live));
        let set = set.expect("at least one channel, not too many, and fates of channels");
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
mod tests;
