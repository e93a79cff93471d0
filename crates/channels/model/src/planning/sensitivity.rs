//! Which channel's risk, loss, delay or rate affects the plan most.

use super::plan::PlanError;
use super::request::{PlanRequest, ScheduleObjective};
use crate::channels::{ChannelModel, ChannelSet, LossProbability, RiskProbability};

/// By how much a quantity is improved to measure its effect: a tenth.
pub const SENSITIVITY_STEP: f64 = 0.1;

/// A quantity of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChannelQuantity {
    /// The risk z.
    Risk,
    /// The loss l.
    Loss,
    /// The delay d.
    Delay,
    /// The rate r.
    Rate,
}

impl ChannelQuantity {
    /// All quantities.
    pub const ALL: [Self; 4] = [Self::Risk, Self::Loss, Self::Delay, Self::Rate];
}

/// The effect of one quantity of one channel.
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelSensitivity {
    /// The channel, by index.
    pub channel: usize,
    /// The quantity.
    pub quantity: ChannelQuantity,
    /// The best value of the request's first objective if this quantity were better by a tenth: a
    /// lower risk, loss or delay, or a higher rate. An error if there were no plan.
    pub value: Result<f64, PlanError>,
}

impl ChannelSet {
    /// For each channel and quantity in turn: the best value of the request's first objective (the
    /// rate, if it has none) if that quantity were better by a tenth. Each plan is computed anew,
    /// so the result is exact for this step and not only for an infinitesimal one.
    ///
    /// A better quantity does not always improve the plan: at full rate, a faster channel must be
    /// used more.
    pub fn sensitivities(
        &self,
        request: &PlanRequest,
    ) -> impl ExactSizeIterator<Item = ChannelSensitivity> + use<'_> {
        let objectives = &request.requirements().objectives;
        let objective = objectives.first().copied().unwrap_or(ScheduleObjective::Rate);
        let request = request.with_objectives(vec![objective]);
        (0..4 * self.len()).map(move |place| {
            let (channel, quantity) = (place / 4, ChannelQuantity::ALL[place % 4]);
            let better = self.with_better(channel, quantity);
            let value = better.plan(&request).map(|plan| plan.averages.value_of(objective));
            ChannelSensitivity { channel, quantity, value }
        })
    }

    /// This set with one quantity of one channel a tenth better.
    fn with_better(&self, channel: usize, quantity: ChannelQuantity) -> Self {
        let mut channels = self.channels().to_vec();
        let old = channels[channel];
        let less = |value: f64, of: ChannelQuantity| {
            if of == quantity { value * (1.0 - SENSITIVITY_STEP) } else { value }
        };
        let rate = if quantity == ChannelQuantity::Rate {
            old.rate() * (1.0 + SENSITIVITY_STEP)
        } else {
            old.rate()
        };
        let better = ChannelModel::new(
            RiskProbability(less(old.risk(), ChannelQuantity::Risk)),
            LossProbability(less(old.loss(), ChannelQuantity::Loss)),
            less(old.delay_ms(), ChannelQuantity::Delay),
            rate,
        );
        // Only a rate at the end of its range cannot be improved; then nothing changes.
        channels[channel] = better.and_then(|better| better.with_cost(old.cost())).unwrap_or(old);
        Self::with_groups(channels, self.groups().to_vec())
            .and_then(|set| set.with_shared_fates(self.shared_fates().to_vec()))
            .unwrap_or_else(|_| self.clone())
    }
}
