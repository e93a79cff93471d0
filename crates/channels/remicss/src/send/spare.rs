//! Channels that cost a plan more rate than the redundancy that they add is worth.
//!
//! At a mean multiplicity mu, a channel that carries little limits all others: with mu = 3 of
//! three channels, the tunnel is as fast as the slowest. A *spare channel* is one that the plan
//! leaves out for this reason. It gets a further share of each symbol for which it is ready, up to
//! the mean multiplicity mu, and no symbol waits for it. kappa and the privacy floor stay as they
//! are.

use model::{ChannelModel, ChannelSubset, ScheduleAverages};

/// Which of rate and redundancy a plan gives up if it cannot have both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanPreference {
    /// Redundancy, down to kappa, as far as it costs more than a fifth of the rate.
    #[default]
    Rate,
    /// Rate: the mean multiplicity is always mu.
    Redundancy,
}

/// The channels that a plan does not wait for, and the mean number of shares that they get of a
/// symbol.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SpareChannels {
    /// The channels.
    pub channels: ChannelSubset,
    /// The mean number of shares that they may get of a symbol.
    pub shares: f64,
}

/// Redundancy may cost this fraction of the rate.
const MAX_COST: f64 = 0.2;

/// Among plans within this fraction of the best, the one with the most channels is chosen.
const NEARLY_BEST: f64 = 0.9;

/// The exponent of the delivered fraction in the value of a plan: TCP suffers from lost symbols far
/// more than they count as rate.
const LOSS_EXPONENT: i32 = 8;

/// The sets that are left of `up` if the least useful channels are left out, where they are clearly
/// less useful than the next, and at least so many are left. The first leaves out the fewest.
pub(super) fn smaller_sets(
    channels: &[ChannelModel],
    up: ChannelSubset,
    least: usize,
) -> Vec<ChannelSubset> {
    let worth = |channel: usize| {
        channels[channel].rate() * (1.0 - channels[channel].loss()).powi(LOSS_EXPONENT)
    };
    let mut order: Vec<usize> = up.iter().collect();
    order.sort_by(|one, other| worth(*one).total_cmp(&worth(*other)));
    let is_step = |cut: &usize| worth(order[*cut - 1]) < (1.0 - MAX_COST) * worth(order[*cut]);
    let cuts = (1..order.len()).filter(|cut| order.len() - cut >= least).filter(is_step);
    cuts.map(|cut| order[cut..].iter().copied().collect()).collect()
}

/// The first of these averages of plans that is nearly the best, if `full` is clearly worse.
pub(super) fn first_better(full: &ScheduleAverages, others: &[ScheduleAverages]) -> Option<usize> {
    let best = others.iter().map(value).fold(0.0, f64::max);
    let is_bad = value(full) < (1.0 - MAX_COST) * best;
    let nearly_best = || others.iter().position(|other| value(other) >= NEARLY_BEST * best);
    is_bad.then(nearly_best).flatten()
}

/// What a plan is worth: the rate at which it delivers, and less for losses.
fn value(averages: &ScheduleAverages) -> f64 {
    averages.rate * (1.0 - averages.loss).powi(LOSS_EXPONENT)
}
