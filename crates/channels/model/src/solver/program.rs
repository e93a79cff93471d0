//! Linear programs over schedules (IV-B, IV-D, IV-E), and their solution by column generation.
//!
//! A program has one variable q(k, M) >= 0 for each selection. These n 2^(n-1) variables are too
//! many to write down, but there are few rows. So the solver starts with a few columns and
//! alternates two steps. The master program over the current columns gives each row a price (dual
//! value). Pricing ([`ColumnPricing`]) then searches all selections for those that lower the
//! objective at these prices. If there is none, the solution is optimal over all selections, and
//! the result of pricing is the proof: the prices and the lowest reduced cost are a lower bound on
//! every solution, regardless of rounding in the solver. Rounding in the proof itself is bounded
//! and subtracted ([`ROUNDING`]).

use super::error::SolverError;
use super::linear::{
    LinearProgram, ProgramColumn, ProgramUnit, PropertyWeights, ROUNDING, ReducedCost,
};
use super::master::MasterProgram;
use super::pricing::ColumnPricing;
use crate::channels::{ChannelSet, ShareSelection};
use crate::double_double::DoubleDouble;

/// The solution of a program.
#[derive(Clone, Debug)]
pub(crate) struct ProgramOptimum {
    /// The selections with q > 0.
    pub(crate) columns: Vec<(ShareSelection, f64)>,
    /// The objective.
    pub(crate) value: f64,
    /// No solution's objective is lower than this.
    pub(crate) bound: f64,
    pub(crate) rounds: usize,
    pub(crate) pool_len: usize,
}

/// The largest number of rounds before the solver fails. With 20 channels the largest observed
/// number was 45.
const MAX_ROUNDS: usize = 1000;

/// A column whose reduced cost is not below this, in units of the value, is not added.
const REDUCED_COST_TOLERANCE: f64 = -1e-10;

/// The gap at which a program counts as solved, relative to its value.
const GAP_TOLERANCE: f64 = 1e-9;

/// The first and the last limit of prices, in units of the value.
const PRICE_LIMITS: (f64, f64) = (1e3, 1e18);

/// The largest sum of violations of rows in a solution. Rows are of order 1.
const MAX_INFEASIBILITY: f64 = 1e-20;

/// As [`ROUNDING`], for coefficients that are exact until the terms are summed (30 roundings).
const SUMMING: f64 = 1e-14;

impl LinearProgram {
    /// Solves the program. `start` contains the selections of a solution that is feasible except
    /// for the limits.
    ///
    /// # Errors
    /// If the solver fails.
    pub(crate) fn solve(
        &self,
        set: &ChannelSet,
        start: impl IntoIterator<Item = ShareSelection>,
    ) -> Result<ProgramOptimum, SolverError> {
        let mut master = MasterProgram::new(self);
        let start = start.into_iter().filter(|selection| self.limits.allow(set, *selection));
        start.for_each(|selection| master.push(ProgramColumn::new(set, selection)));
        let mut pricing = ColumnPricing::new(set, &self.limits, self.unit);
        // No property is negative; only the rate is maximised.
        let mut bound = if self.unit == ProgramUnit::Rate { f64::NEG_INFINITY } else { 0.0 };
        // The unit of costs, so that tolerances are relative to the value.
        let mut scale = 1.0;
        let mut limit = PRICE_LIMITS.0;
        // The result of the previous limit.
        let mut before = None;
        for rounds in 1..=MAX_ROUNDS {
            let prices = match master.solve(scale, limit) {
                // A column can gain more than violating the rows costs.
                Err(SolverError::Unbounded) if limit < PRICE_LIMITS.1 => {
                    limit *= 100.0;
                    continue;
                }
                prices => prices?,
            };
            let better = pricing.best(&self.reduced_cost(set, &prices, scale));
            bound = bound.max(self.bound(&prices, scale, &better));
            if add_improving(&mut master, set, &better) {
                continue;
            }
            let value = master.value();
            let is_kept = master.infeasibility() <= MAX_INFEASIBILITY;
            let is_near = |bound: f64| is_kept && value - bound <= GAP_TOLERANCE * value.abs();
            let is_limited = prices.iter().any(|price| price.abs() > 0.99 * limit);
            if !is_near(bound) && is_limited {
                // A redundant row can have any price, and the smallest price causes the least
                // rounding.
                let prices = master.minimal_prices();
                let better = pricing.best(&self.reduced_cost(set, &prices, scale));
                bound = bound.max(self.bound(&prices, scale, &better));
            }
            if is_kept && !is_near(bound) && value != 0.0 && value.abs() < scale / 4.0 {
                (scale, before) = (value.abs(), None);
            } else if !is_near(bound)
                && is_limited
                && limit < PRICE_LIMITS.1
                && before != Some(value)
            {
                (limit, before) = (100.0 * limit, is_kept.then_some(value));
            } else if is_kept {
                let columns = master.solution().map(|(column, q)| (column.selection, q)).collect();
                return Ok(ProgramOptimum {
                    columns,
                    value,
                    bound,
                    rounds,
                    pool_len: master.len(),
                });
            } else {
                return Err(SolverError::Infeasible);
            }
        }
        Err(SolverError::Rounds)
    }

    /// A lower bound of the reduced costs at these prices, for costs in units of `scale`, including
    /// any rounding in them and in the properties of a selection. No quantity of a selection is
    /// negative, so reducing the coefficients is enough.
    #[expect(clippy::cast_precision_loss, reason = "k is small")]
    fn reduced_cost(&self, set: &ChannelSet, prices: &[f64], scale: f64) -> ReducedCost {
        let (mut constant, mut k) = (DoubleDouble::ZERO, DoubleDouble::ZERO);
        let mut channels = vec![DoubleDouble::ZERO; set.len()];
        let (mut properties, mut sizes) = (PropertyWeights::default(), PropertyWeights::default());
        let rows = self.rows.iter().zip(prices).map(|(row, price)| (&row.left, -price));
        for (linear, factor) in rows.chain([(&self.objective, 1.0 / scale)]) {
            let by = DoubleDouble::from(factor);
            constant = constant + by * linear.constant;
            k = k + by * linear.k;
            for (i, weight) in channels.iter_mut().enumerate() {
                let own = linear.channels.get(i).copied().unwrap_or_default();
                *weight = *weight + by * (linear.m + own);
            }
            properties = properties.plus_scaled(linear.properties, factor);
            sizes = sizes.plus_scaled(linear.properties.absolute(), factor.abs());
        }
        let lower = |value: DoubleDouble| value.to_f64() - SUMMING * value.to_f64().abs();
        ReducedCost {
            constant: lower(constant),
            by_k: std::array::from_fn(|threshold| lower(k) * threshold as f64),
            channels: channels.into_iter().map(lower).collect(),
            properties: properties.plus_scaled(sizes, -ROUNDING),
        }
    }

    /// A lower bound of every solution's objective, from these prices and the lowest reduced cost
    /// (weak duality).
    fn bound(&self, prices: &[f64], scale: f64, found: &[(ShareSelection, f64)]) -> f64 {
        let least = found.first().map_or(0.0, |(_, cost)| cost.min(0.0));
        let paid = self.rows.iter().zip(prices).map(|(row, price)| row.right * price);
        let paid: f64 = paid.map(|paid| paid - ROUNDING * paid.abs()).sum();
        match self.unit {
            ProgramUnit::Sent | ProgramUnit::Delivered => scale * (paid + least * (1.0 + ROUNDING)),
            // Each unit of q costs -1. With prices larger by this factor, no reduced cost is below
            // 0.
            ProgramUnit::Rate => {
                let left = 1.0 + scale * least;
                if left > 0.0 { scale * paid / left } else { f64::NEG_INFINITY }
            }
        }
    }
}

/// Adds to the pool the selections that would lower the value and are not in it. Returns whether
/// there were any.
fn add_improving(
    master: &mut MasterProgram,
    set: &ChannelSet,
    found: &[(ShareSelection, f64)],
) -> bool {
    let before = master.len();
    for (selection, _) in found.iter().filter(|(_, cost)| *cost < REDUCED_COST_TOLERANCE) {
        let column = ProgramColumn::new(set, *selection);
        if !master.contains(&column) {
            master.push(column);
        }
    }
    master.len() > before
}
