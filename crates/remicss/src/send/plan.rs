//! The best schedule for what the channels are like now.

use model::{
    Averages, Channel, ChannelSet, Need, Objective, PlanError, Schedule, Subset, Threshold,
};
use thiserror::Error;

/// What a tunnel is for: the two dials, and what its schedule makes best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Aim {
    /// The mean threshold.
    pub kappa: f64,
    /// The mean multiplicity.
    pub mu: f64,
    /// What is made best at full rate; what is left open by it is decided by risk, loss and delay in
    /// this order.
    pub objective: Objective,
    /// The privacy floor: the least threshold of any symbol.
    pub floor: u8,
    /// Whether packets will wait for those of their flow that were sent before. Then channels that
    /// others would have to wait for too long are left out, where that costs nothing but rate.
    pub keeps_order: bool,
}

/// Delays that differ by less, in ms, go together whatever their ratio: what TCP allows itself for
/// superpackets bridges it. Over two channels of 50 Mbit/s with delays of 0.1 and 2.5 ms, one connection
/// (BBR) gets 93 Mbit/s, and 45 if only one of them is used; with 0.1 and 4.7 ms at 300 Mbit/s, 557.
const SAME_DELAY_MS: f64 = 5.0;

/// A schedule, and what it promises.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The schedule, over channels that are up.
    pub schedule: Schedule,
    /// What the model says of it.
    pub averages: Averages,
}

/// There is no plan.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum NoPlan {
    /// Fewer channels are up than the privacy floor.
    #[error("{up} channels are up, and the privacy floor is {floor}")]
    BelowFloor {
        /// How many channels are up.
        up: usize,
        /// The floor.
        floor: usize,
    },
    /// The model has none.
    #[error(transparent)]
    Model(#[from] PlanError),
}

impl Aim {
    /// The best schedule at full rate over those of `channels` that are up. Where fewer are up than
    /// kappa and mu need, they are lowered as far as they must; the floor is not.
    ///
    /// # Errors
    /// If fewer are up than the floor.
    ///
    /// # Panics
    /// If there are more than [`model::MAX_CHANNELS`] channels.
    pub fn plan(&self, channels: &[Channel], up: Subset) -> Result<Plan, NoPlan> {
        let up: Subset = up.iter().filter(|channel| *channel < channels.len()).collect();
        let floor = usize::from(self.floor).max(1);
        if up.len() < floor {
            return Err(NoPlan::BelowFloor { up: up.len(), floor });
        }
        let plan = self.plan_over(channels, up)?;
        let better = self.company(channels, up).and_then(|company| {
            let better = self.plan_over(channels, company).ok()?;
            let is_as_good = self.cost(&better.averages) <= self.cost(&plan.averages) + SAME_COST;
            is_as_good.then_some(better)
        });
        Ok(better.unwrap_or(plan))
    }

    /// The same where the ends have agreed on a privacy floor, which may be above this end's own: the
    /// dials are not below it then.
    #[must_use]
    pub fn agreed(self, floor: u8) -> Self {
        let kappa = self.kappa.max(floor.into());
        Self { floor, kappa, mu: self.mu.max(kappa), ..self }
    }

    /// The channels whose delays go together best, if those are not all: none takes more than twice as
    /// long as the fastest, or some milliseconds longer, and of such companies they carry the most.
    ///
    /// A flow that is kept in order takes as long as the slowest of its channels. TCP takes the
    /// least round trip that it has seen for the path's own, and BBR keeps no more under way than
    /// twice what fits into that: if packets that wait take more than twice as long, it sends ever
    /// less. A slow channel so costs more than it carries.
    fn company(&self, channels: &[Channel], up: Subset) -> Option<Subset> {
        if !self.keeps_order {
            return None;
        }
        let delay = |channel: usize| channels[channel].delay_ms();
        let companies = up.iter().map(|fastest| {
            let most = delay(fastest) + delay(fastest).max(SAME_DELAY_MS);
            let goes_along = |other: &usize| (delay(fastest)..=most).contains(&delay(*other));
            up.iter().filter(goes_along).collect::<Subset>()
        });
        let rated = companies.filter_map(|company| {
            let set = set(channels, company);
            Some((company, set.best_rate(self.mu)?))
        });
        let best = rated.max_by(|(_, one), (_, other)| one.total_cmp(other));
        best.map(|(company, _)| company).filter(|company| *company != up)
    }

    /// What the objective makes small.
    fn cost(&self, averages: &Averages) -> f64 {
        match self.objective {
            Objective::Risk => averages.risk,
            Objective::Loss => averages.loss,
            Objective::Delay => averages.delay_ms,
            Objective::DeliveredDelay => averages.delivered_delay_ms,
            Objective::Rate => -averages.rate,
        }
    }

    fn plan_over(&self, channels: &[Channel], these: Subset) -> Result<Plan, NoPlan> {
        let places: Vec<usize> = these.iter().collect();
        let set = set(channels, these);
        let need = self.need(places.len(), usize::from(self.floor).max(1));
        // The objectives after the first are a matter of taste, and not worth having no plan for.
        let plan = set.plan(&need).or_else(|_| {
            set.plan(&Need { objectives: need.objectives[..1].to_vec(), ..need.clone() })
        })?;
        let entries = plan.schedule.entries().iter().map(|(threshold, p)| {
            let channels = threshold.channels().iter().map(|channel| places[channel]).collect();
            (Threshold::new(threshold.k(), channels).expect("as many channels as before"), *p)
        });
        let schedule = Schedule::new(entries).expect("the same proportions as before");
        Ok(Plan { schedule, averages: plan.averages })
    }

    #[expect(clippy::cast_precision_loss, reason = "16 at most")]
    fn need(&self, n: usize, floor: usize) -> Need {
        let mu = self.mu.min(n as f64);
        let kappa = self.kappa.min(mu).max(floor as f64);
        let mut objectives = vec![self.objective];
        let others = [Objective::Risk, Objective::Loss, Objective::Delay];
        objectives.extend(others.into_iter().filter(|other| *other != self.objective));
        Need {
            kappa: Some(kappa),
            mu: Some(mu.max(kappa)),
            full_rate: true,
            min_k: floor,
            objectives,
            ..Need::default()
        }
    }
}

/// Costs that differ by less are the same.
const SAME_COST: f64 = 1e-9;

/// Some of the channels, as a set of their own.
fn set(channels: &[Channel], these: Subset) -> ChannelSet {
    ChannelSet::new(these.iter().map(|channel| channels[channel]).collect())
        .expect("at least one channel, and not too many")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channels() -> Vec<Channel> {
        let channel = |rate| Channel::new(0.1, 0.01, 1.0, rate).unwrap();
        [5.0, 20.0, 60.0, 65.0, 100.0].map(channel).to_vec()
    }

    fn aim(kappa: f64, mu: f64, floor: u8) -> Aim {
        Aim { kappa, mu, objective: Objective::Risk, floor, keeps_order: true }
    }

    #[test]
    fn with_all_channels_it_is_the_models_plan() {
        let plan = aim(2.0, 3.0, 2).plan(&channels(), Subset::first(5)).unwrap();
        let set = ChannelSet::new(channels()).unwrap();
        assert!((plan.averages.rate - set.best_rate(3.0).unwrap()).abs() < 1e-9);
        assert!((plan.averages.kappa - 2.0).abs() < 1e-9 && (plan.averages.mu - 3.0).abs() < 1e-9);
        assert!(plan.schedule.entries().iter().all(|(threshold, _)| threshold.k() >= 2));
    }

    #[test]
    fn channels_that_are_down_have_no_share() {
        let up = Subset::first(5).iter().filter(|channel| *channel != 2).collect();
        let plan = aim(2.0, 3.0, 2).plan(&channels(), up).unwrap();
        assert!(plan.schedule.use_of(2).abs() < 1e-12);
        assert!((plan.averages.mu - 3.0).abs() < 1e-9);
    }

    #[test]
    fn dials_give_way_to_what_is_up_and_the_floor_does_not() {
        let up: Subset = [1, 4].into_iter().collect();
        let plan = aim(2.5, 4.0, 2).plan(&channels(), up).unwrap();
        assert!((plan.averages.kappa - 2.0).abs() < 1e-9 && (plan.averages.mu - 2.0).abs() < 1e-9);
        let refused = aim(2.5, 4.0, 2).plan(&channels(), Subset::first(1));
        assert_eq!(refused.unwrap_err(), NoPlan::BelowFloor { up: 1, floor: 2 });
    }

    #[test]
    fn dials_are_not_below_a_floor_that_was_agreed() {
        let dials = |aim: Aim| (aim.kappa, aim.mu, aim.floor);
        assert_eq!(dials(aim(1.5, 1.5, 1).agreed(2)), (2.0, 2.0, 2));
        assert_eq!(dials(aim(2.5, 3.0, 2).agreed(2)), (2.5, 3.0, 2));
    }

    #[test]
    fn a_channel_that_others_would_wait_for_is_left_out_where_it_costs_nothing_but_rate() {
        let pair = |delays: [f64; 2], rates: [f64; 2], risks: [f64; 2]| {
            let channel = |i: usize| Channel::new(risks[i], 0.0, delays[i], rates[i]).unwrap();
            [channel(0), channel(1)]
        };
        let used = |aim: Aim, channels: &[Channel]| {
            let plan = aim.plan(channels, Subset::first(2)).unwrap();
            [0, 1].map(|channel| plan.schedule.use_of(channel) > 0.0)
        };
        let same = [0.1, 0.1];
        let fibre_and_mobile = pair([5.0, 40.0], [300.0, 30.0], same);
        assert_eq!(used(aim(1.0, 1.0, 1), &fibre_and_mobile), [true, false]);
        let unordered = Aim { keeps_order: false, ..aim(1.0, 1.0, 1) };
        assert_eq!(used(unordered, &fibre_and_mobile), [true, true]);
        // The slow one carries more.
        assert_eq!(used(aim(1.0, 1.0, 1), &pair([5.0, 40.0], [30.0, 300.0], same)), [false, true]);
        // Twice as long is not too long.
        assert_eq!(used(aim(1.0, 1.0, 1), &pair([20.0, 40.0], [50.0, 50.0], same)), [true, true]);
        // Nor are some milliseconds, of which most may be a full packet's sending on a slow channel.
        assert_eq!(used(aim(1.0, 1.0, 1), &pair([0.2, 5.1], [50.0, 20.0], same)), [true, true]);
        assert_eq!(used(aim(1.0, 1.0, 1), &pair([0.2, 5.3], [50.0, 20.0], same)), [true, false]);
        // Both are needed.
        assert_eq!(used(aim(2.0, 2.0, 2), &fibre_and_mobile), [true, true]);
        // It would be less private.
        let watched = pair([5.0, 40.0], [300.0, 30.0], [0.5, 0.1]);
        assert_eq!(used(aim(1.0, 1.0, 1), &watched), [true, true]);
    }
}
