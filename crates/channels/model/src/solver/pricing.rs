//! Pricing: finds the selections with the lowest reduced costs by one walk over all sets of
//! channels.
//!
//! The walk adds channels in order of their delay. Each set is an earlier one plus a channel, so
//! its distributions are the earlier ones plus a draw: O(n) work for each set, for all k together,
//! and memory for one path only. For 20 channels there are a million sets.

use super::linear::{ProgramUnit, ReducedCost, SelectionLimits};
use crate::channels::{ChannelSet, ChannelSubset, MAX_CHANNELS, RiskGroupOutcome, ShareSelection};
use crate::schedules::mean_delay;

/// The distribution of a number of channels: at j, the probability of j.
type CountDistribution = [f64; MAX_CHANNELS + 1];

/// The state of the walk for one set of channels.
#[derive(Clone)]
struct PricingNode {
    channels: ChannelSubset,
    /// The part of the reduced cost that depends on the channels only.
    cost: f64,
    /// For each scenario, the distribution of the number of shares seen.
    seen: Vec<CountDistribution>,
    /// For each scenario, the distribution of the number of shares that arrive.
    arrived: Vec<CountDistribution>,
    /// At index k - 1, the probability that k shares arrive.
    delivered: [f64; MAX_CHANNELS],
    /// At index k - 1, that probability times the expected time until the kth share arrives.
    delayed: [f64; MAX_CHANNELS],
    /// The delay of the slowest channel.
    slowest_ms: f64,
}

/// Finds the selections with the lowest reduced costs within limits.
pub(crate) struct ColumnPricing<'a> {
    set: &'a ChannelSet,
    limits: &'a SelectionLimits,
    unit: ProgramUnit,
    /// The nodes from the empty set to the current set.
    path: Vec<PricingNode>,
    /// For each m and k, the lowest reduced cost so far and its channels.
    best: Vec<[(f64, ChannelSubset); MAX_CHANNELS + 1]>,
}

const NONE: (f64, ChannelSubset) = (f64::INFINITY, ChannelSubset::EMPTY);

impl<'a> ColumnPricing<'a> {
    pub(crate) fn new(set: &'a ChannelSet, limits: &'a SelectionLimits, unit: ProgramUnit) -> Self {
        let root = PricingNode {
            channels: ChannelSubset::EMPTY,
            cost: 0.0,
            seen: set.risk_scenarios().iter().map(nothing_yet).collect(),
            arrived: set.loss_scenarios().iter().map(nothing_yet).collect(),
            delivered: [0.0; MAX_CHANNELS],
            delayed: [0.0; MAX_CHANNELS],
            slowest_ms: 0.0,
        };
        let best = vec![[NONE; MAX_CHANNELS + 1]; set.len() + 1];
        Self { set, limits, unit, path: vec![root; set.len() + 1], best }
    }

    /// The selection with the lowest reduced cost for each k and m, in ascending order of cost.
    pub(crate) fn best(&mut self, cost: &ReducedCost) -> Vec<(ShareSelection, f64)> {
        self.best.fill([NONE; MAX_CHANNELS + 1]);
        self.path[0].cost = cost.constant;
        self.walk(cost, 0, 0);
        let by_k = self.best.iter().flat_map(|row| row.iter().enumerate());
        let selections = by_k.filter_map(|(k, (cost, channels))| {
            Some((ShareSelection::new(k, *channels).ok()?, *cost))
        });
        let mut found: Vec<(ShareSelection, f64)> = selections.collect();
        found.sort_by(|a, b| a.1.total_cmp(&b.1));
        found
    }

    /// Visits all sets that extend the node at `depth` by channels from index `next` on, in order
    /// of delay.
    fn walk(&mut self, cost: &ReducedCost, depth: usize, next: usize) {
        let order = self.set.by_delay();
        // Beyond these indices there are too few channels for the smallest m.
        let end = order.len().min((depth + order.len() + 1).saturating_sub(self.limits.min_m));
        for (place, &channel) in order.iter().enumerate().take(end).skip(next) {
            let (nodes, below) = self.path.split_at_mut(depth + 1);
            below[0].extend(&nodes[depth], self.set, channel, cost);
            if depth + 1 >= self.limits.min_m {
                self.note(depth + 1, cost);
            }
            self.walk(cost, depth + 1, place + 1);
        }
    }

    /// Records the reduced costs of the node at `depth`, which has `depth` channels.
    fn note(&mut self, depth: usize, cost: &ReducedCost) {
        let min_k = self.limits.min_k;
        if depth < min_k {
            return;
        }
        let node = &self.path[depth];
        let mut costs = node.costs(depth, cost);
        if self.unit == ProgramUnit::Delivered {
            let delivered = costs.iter_mut().skip(1).zip(&node.delivered);
            delivered.for_each(|(cost, delivered)| *cost /= delivered.max(f64::MIN_POSITIVE));
        }
        // The kth channel of the path is the kth fastest.
        let kth = self.path[min_k..=depth].iter().map(|kth| kth.slowest_ms);
        let by_k = self.best[depth][min_k..=depth].iter_mut().zip(&costs[min_k..=depth]);
        for ((best, &cost), kth_ms) in by_k.zip(kth) {
            if cost < best.0 && self.limits.allow_delay(kth_ms) {
                *best = (cost, node.channels);
            }
        }
    }
}

impl PricingNode {
    /// Sets this node to `from` plus a channel that is not faster than any of its channels.
    fn extend(&mut self, from: &Self, set: &ChannelSet, channel: usize, cost: &ReducedCost) {
        let (m, weights) = (from.channels.len() + 1, cost.properties);
        self.channels = from.channels.with(channel);
        self.cost = from.cost + cost.channels[channel];
        self.slowest_ms = set.channels()[channel].delay_ms();
        if weights.risk != 0.0 {
            let scenarios = set.risk_scenarios().iter().zip(&from.seen);
            for (seen, (scenario, before)) in self.seen.iter_mut().zip(scenarios) {
                draw_one_more(
                    seen,
                    before,
                    scenario.channel_probabilities[channel],
                    1.0 - scenario.channel_probabilities[channel],
                );
            }
        }
        if weights.loss != 0.0 || weights.needs_delivery() {
            let scenarios = set.loss_scenarios().iter().zip(&from.arrived);
            for (arrived, (scenario, before)) in self.arrived.iter_mut().zip(scenarios) {
                draw_one_more(
                    arrived,
                    before,
                    1.0 - scenario.channel_probabilities[channel],
                    scenario.channel_probabilities[channel],
                );
            }
        }
        if weights.needs_delivery() {
            self.extend_delay(from, set, channel, m);
        }
    }

    /// The new share is the slowest, so it is the kth to arrive if k - 1 of the others arrive.
    fn extend_delay(&mut self, from: &Self, set: &ChannelSet, channel: usize, m: usize) {
        self.delivered[..m].copy_from_slice(&from.delivered[..m]);
        self.delayed[..m].copy_from_slice(&from.delayed[..m]);
        for (scenario, before) in set.loss_scenarios().iter().zip(&from.arrived) {
            let arrives = 1.0 - scenario.channel_probabilities[channel];
            let sums = self.delivered.iter_mut().zip(&mut self.delayed).take(m);
            for ((delivered, delayed), before) in sums.zip(before) {
                *delivered += before * arrives;
                *delayed += before * arrives * self.slowest_ms;
            }
        }
    }

    /// The reduced costs for each k from 1 to m, the number of this node's channels.
    fn costs(&self, m: usize, cost: &ReducedCost) -> CountDistribution {
        let weights = cost.properties;
        let mut costs = [0.0; MAX_CHANNELS + 1];
        let by_k = &mut costs[1..=m];
        for (cost_at_k, of_k) in by_k.iter_mut().zip(&cost.by_k[1..=m]) {
            *cost_at_k = self.cost + of_k;
        }
        if weights.risk != 0.0 {
            let seen = total(&self.seen);
            let mut risk = 0.0;
            for (cost_at_k, seen) in by_k.iter_mut().zip(&seen[1..=m]).rev() {
                risk += seen;
                *cost_at_k += weights.risk * risk;
            }
        }
        if weights.loss != 0.0 {
            let arrived = total(&self.arrived);
            let mut loss = 0.0;
            for (cost_at_k, arrived) in by_k.iter_mut().zip(&arrived) {
                loss += arrived;
                *cost_at_k += weights.loss * loss;
            }
        }
        if weights.needs_delivery() {
            let sums = self.delivered.iter().zip(&self.delayed);
            for (cost_at_k, (delivered, delayed)) in by_k.iter_mut().zip(sums) {
                let delay_ms = mean_delay(*delivered, *delayed, self.slowest_ms);
                *cost_at_k += weights.delay_ms * delay_ms
                    + weights.delivered_delay_ms * delayed
                    + weights.delivered * delivered;
            }
        }
        costs
    }
}

/// Without channels, the number of shares is 0 with certainty.
fn nothing_yet(scenario: &RiskGroupOutcome) -> CountDistribution {
    let mut count = [0.0; MAX_CHANNELS + 1];
    count[0] = scenario.probability;
    count
}

/// The probability of each number of shares over all scenarios.
fn total(scenarios: &[CountDistribution]) -> CountDistribution {
    let (first, others) = scenarios.split_first().expect("there is always one");
    let mut total = *first;
    for other in others {
        total.iter_mut().zip(other).for_each(|(sum, part)| *sum += part);
    }
    total
}

/// The distribution `before` plus a draw. Impossible numbers have probability zero and are computed
/// nevertheless: loops of one fixed length are faster than shorter loops of varying lengths.
fn draw_one_more(
    after: &mut CountDistribution,
    before: &CountDistribution,
    success: f64,
    failure: f64,
) {
    after[0] = before[0] * failure;
    for (after, pair) in after[1..].iter_mut().zip(before.windows(2)) {
        *after = pair[1] * failure + pair[0] * success;
    }
}
