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
}

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
        let places: Vec<usize> = up.iter().filter(|channel| *channel < channels.len()).collect();
        let floor = usize::from(self.floor).max(1);
        if places.len() < floor {
            return Err(NoPlan::BelowFloor { up: places.len(), floor });
        }
        let these = places.iter().map(|place| channels[*place]).collect();
        let set = ChannelSet::new(these).expect("at least one channel, and not too many");
        let need = self.need(places.len(), floor);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn channels() -> Vec<Channel> {
        let channel = |rate| Channel::new(0.1, 0.01, 1.0, rate).unwrap();
        [5.0, 20.0, 60.0, 65.0, 100.0].map(channel).to_vec()
    }

    fn aim(kappa: f64, mu: f64, floor: u8) -> Aim {
        Aim { kappa, mu, objective: Objective::Risk, floor }
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
}
