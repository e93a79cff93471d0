//! Channels that reduce a plan's rate by more than their redundancy is worth.
//!
//! At a mean multiplicity mu, a channel that carries little limits all others: with mu = 3 of
//! three channels, the tunnel is as fast as the slowest. A *spare channel* is one that the plan
//! leaves out for this reason. It gets a further share of each symbol for which it is ready, up to
//! the mean multiplicity mu, and no symbol waits for it. kappa and the privacy floor stay as they
//! are.

use model::{ChannelModel, ChannelSubset, ScheduleAverages};

/// Which of rate and redundancy a plan sacrifices if it cannot have both.
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

/// The exponent of the delivered fraction in the value of a plan: lost symbols hurt TCP far more
/// than they reduce the rate.
const LOSS_EXPONENT: i32 = 8;

/// The sets that remain of `up` without the least useful channels, if these are clearly less useful
/// than the next, and at least `least` channels remain. The first set omits the fewest channels.
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

/// The value of a plan: the rate at which it delivers, reduced for losses.
fn value(averages: &ScheduleAverages) -> f64 {
    averages.rate * (1.0 - averages.loss).powi(LOSS_EXPONENT)
}
