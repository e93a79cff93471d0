//! Linear programs over schedules (IV-B, IV-D, IV-E), and their solution by column generation.
//!
//! A program has one variable q(k, M) >= 0 for each threshold: far too many to write down, n 2^(n-1)
//! of them, in few rows. So it starts from a few, and alternates: the master program over the columns
//! there are gives a price (dual value) to each row; pricing ([`Pricing`]) looks through every
//! threshold for those that would lower the objective at these prices. When there is none, the
//! solution is optimal over all of them, and what pricing found is the proof: the prices and the
//! least reduced cost give a lower bound on every solution, whatever rounding was in the solver.

use crate::columns::{Column, Pricing};
use crate::master::{self, MasterError};
use crate::{ChannelSet, Threshold};

/// A linear function of a threshold: a coefficient for each quantity that a program deals in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Linear {
    pub(crate) constant: f64,
    pub(crate) k: f64,
    pub(crate) m: f64,
    pub(crate) risk: f64,
    pub(crate) loss: f64,
    pub(crate) delay_ms: f64,
    /// For (1 - l) d, the delay weighted by delivery.
    pub(crate) delivered_delay_ms: f64,
    /// For each channel, whether it is in M; empty where none matters.
    pub(crate) channels: Vec<f64>,
}

impl Linear {
    /// The function's value for a column.
    #[expect(clippy::cast_precision_loss, reason = "k and m are small")]
    pub(crate) fn of(&self, column: &Column) -> f64 {
        let Column { threshold, properties } = column;
        let used = self.channels.iter().enumerate();
        let used = used.filter(|(i, _)| threshold.channels().contains(*i)).map(|(_, w)| w);
        let mut value = self.constant
            + self.k * threshold.k() as f64
            + self.m * threshold.m() as f64
            + self.risk * properties.risk
            + self.loss * properties.loss
            + used.sum::<f64>();
        if self.delay_ms != 0.0 {
            value += self.delay_ms * properties.delay_ms;
        }
        value + self.delivered_delay_ms * properties.delivered_delay_ms()
    }

    /// Whether a delay has a part in it.
    pub(crate) fn needs_delay(&self) -> bool {
        self.delay_ms != 0.0 || self.delivered_delay_ms != 0.0
    }

    /// Whether it is positive or 0 for every threshold.
    fn is_never_negative(&self) -> bool {
        let Self { constant, k, m, risk, loss, delay_ms, delivered_delay_ms, channels } = self;
        let all = [constant, k, m, risk, loss, delay_ms, delivered_delay_ms];
        all.into_iter().chain(channels).all(|coefficient| *coefficient >= 0.0)
    }

    /// Adds `factor` times `other`.
    pub(crate) fn add(&mut self, other: &Self, factor: f64) {
        self.constant += factor * other.constant;
        self.k += factor * other.k;
        self.m += factor * other.m;
        self.risk += factor * other.risk;
        self.loss += factor * other.loss;
        self.delay_ms += factor * other.delay_ms;
        self.delivered_delay_ms += factor * other.delivered_delay_ms;
        if self.channels.len() < other.channels.len() {
            self.channels.resize(other.channels.len(), 0.0);
        }
        self.channels.iter_mut().zip(&other.channels).for_each(|(w, o)| *w += factor * o);
    }
}

/// How a row's left side relates to its right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    /// The sum of q times the row's function is `right`.
    Equal,
    /// It is at most `right`.
    AtMost,
}

/// A row of a program: a linear condition on q.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) left: Linear,
    pub(crate) relation: Relation,
    pub(crate) right: f64,
}

/// Minimise the sum of q times `objective`, subject to `rows`, over all thresholds with at least
/// `min_k` and `min_m`.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) objective: Linear,
    pub(crate) rows: Vec<Row>,
    pub(crate) min_k: usize,
    pub(crate) min_m: usize,
    /// What the sum of q is at most, which follows from the rows.
    pub(crate) mass: f64,
}

/// The solution of a program.
#[derive(Clone, Debug)]
pub(crate) struct Optimum {
    /// The thresholds with q > 0.
    pub(crate) columns: Vec<(Threshold, f64)>,
    /// The objective.
    pub(crate) value: f64,
    /// No solution's objective is lower than this.
    pub(crate) bound: f64,
    pub(crate) rounds: usize,
    pub(crate) pool: usize,
}

/// Rounds after which a program is given up; with 20 channels 45 were the most.
const MAX_ROUNDS: usize = 1000;

/// A column of no less reduced cost than this, in units of the value, would not lower it.
const NO_BETTER: f64 = -1e-10;

/// The gap at which a program is solved, relative to its value, and as a number.
const GAP: (f64, f64) = (1e-10, 1e-16);

/// The first and the last limit to prices, in units of the value.
const LIMITS: (f64, f64) = (1e3, 1e9);

impl Program {
    /// Solves it, from `start`, the thresholds of a feasible solution.
    ///
    /// # Errors
    /// If the solver fails.
    pub(crate) fn solve(
        &self,
        set: &ChannelSet,
        start: impl IntoIterator<Item = Threshold>,
    ) -> Result<Optimum, MasterError> {
        let start = start.into_iter().filter(|t| t.k() >= self.min_k && t.m() >= self.min_m);
        let mut pool: Vec<Column> = start.map(|t| Column::new(set, t)).collect();
        let mut pricing = Pricing::new(set, self.min_k, self.min_m);
        let mut bound = if self.objective.is_never_negative() { 0.0 } else { f64::NEG_INFINITY };
        // The unit that costs are in, so that tolerances are relative to the value.
        let mut scale = 1.0;
        let mut limit = LIMITS.0;
        for rounds in 1..=MAX_ROUNDS {
            let prices = match master::prices(self, &pool, scale, limit) {
                // What a column earns can be more than the limit lets the rows ask for.
                Err(MasterError::Solver(microlp::Error::Infeasible)) if limit < LIMITS.1 => {
                    limit *= 100.0;
                    continue;
                }
                prices => prices?,
            };
            let (reduced, paid) = self.at(&prices, scale);
            let better = pricing.best(&reduced);
            let least = better.first().map_or(0.0, |(_, cost)| cost.min(0.0));
            bound = bound.max(scale * (paid + self.mass * least));
            if add_better(&mut pool, set, &better) {
                continue;
            }
            let columns = master::solution(self, &pool, scale)?;
            let value: f64 = columns.iter().map(|(column, q)| q * self.objective.of(column)).sum();
            let is_solved = value - bound <= GAP.0 * value.abs() + GAP.1;
            let is_limited = prices.iter().any(|price| price.abs() > 0.99 * limit);
            if !is_solved && value != 0.0 && value.abs() < scale / 4.0 {
                scale = value.abs();
            } else if !is_solved && is_limited && limit < LIMITS.1 {
                limit *= 100.0;
            } else {
                let columns =
                    columns.into_iter().map(|(column, q)| (column.threshold, q)).collect();
                return Ok(Optimum { columns, value, bound, rounds, pool: pool.len() });
            }
        }
        Err(MasterError::Rounds)
    }

    /// The reduced cost at these prices, and what the right sides cost at them; in units of `scale`.
    fn at(&self, prices: &[f64], scale: f64) -> (Linear, f64) {
        let mut reduced = Linear::default();
        reduced.add(&self.objective, 1.0 / scale);
        let mut paid = 0.0;
        for (row, price) in self.rows.iter().zip(prices) {
            reduced.add(&row.left, -price);
            paid += row.right * price;
        }
        (reduced, paid)
    }
}

/// Adds to the pool what would lower the value and is not in it; whether there was any.
fn add_better(pool: &mut Vec<Column>, set: &ChannelSet, found: &[(Threshold, f64)]) -> bool {
    let before = pool.len();
    for (threshold, _) in found.iter().filter(|(_, cost)| *cost < NO_BETTER) {
        if !pool.iter().any(|column| column.threshold == *threshold) {
            pool.push(Column::new(set, *threshold));
        }
    }
    pool.len() > before
}
