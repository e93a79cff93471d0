//! Finds the best schedule for a request: which linear programs to solve, in which order, and, if
//! no schedule exists, which bound is infeasible.
//!
//! Every program here has a feasible point that is known without a search: the limited schedule at
//! the best rate ([`ChannelSet::limited_schedule_at_best_rate`]). Bounds are then added one by one.
//! Before each, the property that it bounds is minimised under the bounds already added. So an
//! infeasible bound is identified, together with the best value that can be reached. No program is
//! unbounded: proportions sum to 1, and rates are limited by the channels.

use thiserror::Error;

use super::request::{
    PlanRequest, PlanRequestError, ScheduleBound, ScheduleObjective, ScheduleRequirements,
};
use crate::channels::{ChannelModel, ChannelSet, ShareSelection};
use crate::double_double::DoubleDouble;
use crate::schedules::{ScheduleAverages, ShareSchedule};
use crate::solver::{
    LinearFunction, LinearProgram, ProgramColumn, ProgramOptimum, ProgramRow, ProgramUnit,
    PropertyWeights, ROUNDING, RowRelation, SelectionLimits, SolverError,
};

/// By how much a value may exceed a bound, relative to the bound, and still satisfy it: it allows
/// for rounding.
const RELATIVE_TOLERANCE: f64 = 1e-9;

/// The same as an absolute value, for bounds of 0: smaller probabilities count as 0.
const ABSOLUTE_TOLERANCE: f64 = 1e-30;

/// Bounds and optima below this fraction of the largest possible value are met to within a
/// millionth of it.
const MIN_UNIT: f64 = 1e-8;

/// Smaller proportions are rounding errors, and are dropped.
const MIN_PROPORTION: f64 = 1e-18;

/// By how much bounds are relaxed, so that rounding does not exclude schedules that meet them
/// exactly: a few units in the last place, of `f64` and of [`DoubleDouble`].
const RELAXED: (f64, f64) = (1e-15, 1e-28);

/// An upper bound of a product of small probabilities that underflows.
const MIN_GAP: f64 = 1e-300;

/// By how much the final solution may violate a row. Rows are of order 1, and bounds are in units
/// of themselves.
const ROW_TOLERANCE: f64 = 1e-6;

/// The best schedule for a request.
#[derive(Clone, Debug, PartialEq)]
pub struct OptimalSchedule {
    /// The schedule.
    pub schedule: ShareSchedule,
    /// Its averages on the channels it was made for.
    pub averages: ScheduleAverages,
    /// For each objective of the request, its value and a bound on how much better it could be.
    pub certificates: Vec<OptimalityCertificate>,
}

/// The value of a schedule in an objective, and the proof that no schedule is better by more than
/// the gap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimalityCertificate {
    /// The objective.
    pub objective: ScheduleObjective,
    /// The property's value.
    pub value: f64,
    /// No schedule for the request is better by more than this: the duality gap, in the property's
    /// unit. It includes all rounding, even that of the proof.
    pub gap: f64,
    /// How often all selections were priced.
    pub rounds: usize,
    /// The number of selections in the final program.
    pub columns: usize,
}

impl OptimalityCertificate {
    /// For a property's final value, which later objectives may have made slightly worse.
    fn new(objective: ScheduleObjective, value: f64, optimum: &ProgramOptimum) -> Self {
        // The program minimises the negative of the rate.
        let minimised = if objective == ScheduleObjective::Rate { -value } else { value };
        let gap = (minimised - optimum.bound).max(0.0) + ROUNDING * value.abs() + MIN_GAP;
        Self { objective, value, gap, rounds: optimum.rounds, columns: optimum.pool_len }
    }
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PlanError {
    /// The request itself is wrong.
    #[error(transparent)]
    Request(#[from] PlanRequestError),
    /// No schedule meets this bound together with the bounds before it. Their order is risk, loss,
    /// delay and price, after the rate.
    #[error("{}", infeasible(*bound, *wanted, *best))]
    Infeasible {
        /// The first infeasible bound.
        bound: ScheduleBound,
        /// The requested value.
        wanted: f64,
        /// The best possible value under all requirements before it.
        best: f64,
    },
    /// The solver failed, which is a bug of this crate and not an error in the request.
    #[error(
        "no exact plan was found: {0}; leave out bounds or channels with extremely small values"
    )]
    Solver(#[from] SolverError),
}

fn infeasible(bound: ScheduleBound, wanted: f64, best: f64) -> String {
    let name = bound.property();
    let (unit, relation, extreme) = match bound {
        ScheduleBound::MaxRisk | ScheduleBound::MaxLoss | ScheduleBound::MaxCost => {
            ("", "at most", "least")
        }
        ScheduleBound::MaxDelay | ScheduleBound::MaxDeliveredDelay => (" ms", "at most", "least"),
        ScheduleBound::MinRate => ("", "at least", "highest"),
    };
    format!(
        "a {name} of {relation} {wanted}{unit} cannot be met: with the other requirements, the \
         {extreme} is {best}{unit}"
    )
}

impl ChannelSet {
    /// The best schedule for `request`: feasible, and best in its objectives in their order.
    /// Without objectives, any feasible schedule.
    ///
    /// # Errors
    /// If the request contradicts itself or the channels, or if a bound is infeasible: the error
    /// then names the first such bound and the best possible value.
    pub fn plan(&self, request: &PlanRequest) -> Result<OptimalSchedule, PlanError> {
        request.check(self)?;
        let requirements = request.rounded();
        let mut planner = SchedulePlanner::new(self, &requirements)?;
        planner.keep_bounds(&requirements)?;
        let mut optima = Vec::new();
        for objective in &requirements.objectives {
            optima.push((*objective, planner.optimise(*objective)));
        }
        planner.check()?;
        let averages = planner.schedule.averages(self);
        let optima = optima.into_iter().map(|(objective, optimum)| {
            OptimalityCertificate::new(objective, averages.value_of(objective), &optimum)
        });
        Ok(OptimalSchedule { certificates: optima.collect(), schedule: planner.schedule, averages })
    }
}

/// The conditions added so far, and a schedule that meets them.
struct SchedulePlanner<'a> {
    set: &'a ChannelSet,
    /// Homogeneous rows: if q satisfies them, so does every multiple of q.
    rows: Vec<ProgramRow>,
    limits: SelectionLimits,
    /// The rate to keep; 0 if any rate is allowed.
    least_rate: f64,
    schedule: ShareSchedule,
}

impl<'a> SchedulePlanner<'a> {
    /// Adds kappa, mu and the rate.
    #[expect(clippy::cast_precision_loss, reason = "k and m are small")]
    fn new(set: &'a ChannelSet, requirements: &ScheduleRequirements) -> Result<Self, PlanError> {
        let mut rows = Vec::new();
        if let Some(kappa) = requirements.kappa {
            rows.push(equal_zero(LinearFunction {
                k: DoubleDouble::ONE,
                constant: (-kappa).into(),
                ..LinearFunction::default()
            }));
        }
        if let Some(mu) = requirements.mu {
            rows.push(equal_zero(LinearFunction {
                m: DoubleDouble::ONE,
                constant: (-mu).into(),
                ..LinearFunction::default()
            }));
        }
        // Free values are set as low as possible, which allows the highest rate.
        let kappa = requirements.kappa.unwrap_or(requirements.min_k as f64);
        let mu = requirements.mu.unwrap_or(kappa.max(requirements.min_m as f64));
        let schedule = set.limited_schedule_at_best_rate(kappa, mu).ok_or(SolverError::NoStart)?;
        let ScheduleRequirements { min_k, min_m, kth_delay_ms, .. } = requirements;
        let limits =
            SelectionLimits { min_k: *min_k, min_m: *min_m, kth_delay_ms: kth_delay_ms.clone() };
        let mut planner = Self { set, rows, limits, least_rate: 0.0, schedule };
        let highest = if kth_delay_ms.is_some() {
            // The rate, and a feasible schedule, depend on the selections that are left.
            planner.maximise_rate()?;
            (planner.value(ScheduleObjective::Rate) * (1.0 - RELATIVE_TOLERANCE)).into()
        } else {
            set.best_rate_exactly(mu)
        };
        let best = highest.to_f64();
        if let Some(wanted) =
            requirements.min_rate.filter(|rate| *rate > best * (1.0 + RELATIVE_TOLERANCE))
        {
            return Err(PlanError::Infeasible { bound: ScheduleBound::MinRate, wanted, best });
        }
        if requirements.full_rate {
            planner.keep_rate(highest);
        } else if let Some(rate) = requirements.min_rate {
            planner.keep_rate(DoubleDouble::from(rate).min(highest));
        }
        Ok(planner)
    }

    /// Adds rows that no channel carries more than its rate when `rate` symbols are sent (IV-D). At
    /// `R_C(mu)`, these inequalities and mu imply the paper's equalities.
    fn keep_rate(&mut self, rate: DoubleDouble) {
        self.least_rate = self.least_rate.max(rate.to_f64());
        for (i, channel) in self.set.channels().iter().enumerate() {
            let own = DoubleDouble::from(channel.rate());
            if own < rate {
                let mut left = use_of(self.set, i);
                left.constant = -(own / rate) * (DoubleDouble::ONE + DoubleDouble::from(RELAXED.1));
                self.rows.push(at_most_zero(left));
            }
        }
    }

    /// Adds the bounds of risk, loss, delay and price, one after the other.
    fn keep_bounds(&mut self, requirements: &ScheduleRequirements) -> Result<(), PlanError> {
        let bounds = [
            (ScheduleBound::MaxRisk, requirements.max_risk, ScheduleObjective::Risk),
            (ScheduleBound::MaxLoss, requirements.max_loss, ScheduleObjective::Loss),
            (ScheduleBound::MaxDelay, requirements.max_delay_ms, ScheduleObjective::Delay),
            (
                ScheduleBound::MaxDeliveredDelay,
                requirements.max_delivered_delay_ms,
                ScheduleObjective::DeliveredDelay,
            ),
            (ScheduleBound::MaxCost, requirements.max_cost, ScheduleObjective::Cost),
        ];
        for (bound, wanted, objective) in bounds {
            let Some(wanted) = wanted else { continue };
            if self.value(objective) > wanted {
                self.minimise(objective)?;
                let best = self.value(objective);
                if best > wanted * (1.0 + RELATIVE_TOLERANCE) + ABSOLUTE_TOLERANCE {
                    return Err(PlanError::Infeasible { bound, wanted, best });
                }
            }
            let kept = wanted.max(self.value(objective));
            self.keep_at_most(objective, kept, kept.max(MIN_UNIT * self.largest(objective)));
        }
        Ok(())
    }

    /// Optimises `objective`, and keeps its optimum from now on.
    fn optimise(&mut self, objective: ScheduleObjective) -> ProgramOptimum {
        let optimum = match objective {
            ScheduleObjective::Rate => self.maximise_rate(),
            _ => self.minimise(objective),
        };
        // If the solver fails, the current schedule is still valid, and the gap bounds how far it
        // is from the optimum.
        let optimum = optimum.unwrap_or_else(|_| ProgramOptimum {
            columns: self.schedule.entries().to_vec(),
            value: self.value(objective),
            bound: if objective == ScheduleObjective::Rate { -self.set.total_rate() } else { 0.0 },
            rounds: 0,
            pool_len: self.schedule.entries().len(),
        });
        let value = self.value(objective);
        match objective {
            ScheduleObjective::Rate => self.keep_rate((value * (1.0 - RELATIVE_TOLERANCE)).into()),
            _ => {
                self.keep_at_most(
                    objective,
                    value * (1.0 + RELATIVE_TOLERANCE) + ABSOLUTE_TOLERANCE,
                    value.max(MIN_UNIT * self.largest(objective)),
                );
            }
        }
        optimum
    }

    /// Minimises `objective` under the rows.
    fn minimise(&mut self, objective: ScheduleObjective) -> Result<ProgramOptimum, SolverError> {
        // A mean over delivered symbols is a ratio of two sums. Scaling q so that the denominator
        // is 1 makes it linear (Charnes and Cooper).
        let (norm, unit) = if objective == ScheduleObjective::DeliveredDelay {
            (
                weighted(PropertyWeights { delivered: 1.0, ..PropertyWeights::default() }),
                ProgramUnit::Delivered,
            )
        } else {
            (
                LinearFunction { constant: DoubleDouble::ONE, ..LinearFunction::default() },
                ProgramUnit::Sent,
            )
        };
        let mut rows = self.rows.clone();
        rows.push(ProgramRow { left: norm, relation: RowRelation::Equal, right: 1.0 });
        self.solve(linear(self.set, objective), rows, unit)
    }

    /// Maximises the rate under the rows, with q = p R: one program gives both. The unit is near
    /// the result, because the solver's tolerance is absolute.
    fn maximise_rate(&mut self) -> Result<ProgramOptimum, SolverError> {
        let total = self.set.total_rate();
        let mut unit = total;
        loop {
            let mut rows = self.rows.clone();
            for (i, channel) in self.set.channels().iter().enumerate() {
                let right = channel.rate() / unit;
                rows.push(ProgramRow {
                    left: use_of(self.set, i),
                    relation: RowRelation::AtMost,
                    right,
                });
            }
            let mut optimum =
                self.solve(linear(self.set, ScheduleObjective::Rate), rows, ProgramUnit::Rate)?;
            let rate = -optimum.value * unit;
            if rate < unit / 4.0 && rate > 0.0 {
                unit = rate;
            } else {
                optimum.value *= unit;
                optimum.bound *= unit;
                return Ok(optimum);
            }
        }
    }

    fn solve(
        &mut self,
        objective: LinearFunction,
        rows: Vec<ProgramRow>,
        unit: ProgramUnit,
    ) -> Result<ProgramOptimum, SolverError> {
        let program = LinearProgram { objective, rows, limits: self.limits.clone(), unit };
        let start: Vec<ShareSelection> = self.schedule.entries().iter().map(|(t, _)| *t).collect();
        let optimum = program.solve(self.set, start)?;
        let sum: f64 = optimum.columns.iter().map(|(_, q)| q).sum();
        let entries = optimum.columns.iter().map(|(selection, q)| (*selection, q / sum));
        let entries = entries.filter(|(_, p)| *p > MIN_PROPORTION);
        self.schedule = ShareSchedule::new(entries)?;
        Ok(optimum)
    }

    /// Checks that the schedule meets every row, whatever the solver reports. The solver could be
    /// wrong if numbers differ by more than its precision, such as a risk bound of 1e-14 beside
    /// risks of 0.2.
    fn check(&self) -> Result<(), SolverError> {
        let entries = self.schedule.entries().iter();
        if entries.clone().any(|(selection, _)| !self.limits.allow(self.set, *selection)) {
            return Err(SolverError::BelowLimits);
        }
        let columns: Vec<_> = entries.map(|(t, p)| (ProgramColumn::new(self.set, *t), p)).collect();
        let is_kept = |row: &ProgramRow| {
            let sum: f64 =
                columns.iter().map(|(column, p)| *p * row.left.evaluate(column).to_f64()).sum();
            let off = if row.relation == RowRelation::Equal { sum.abs() } else { sum };
            off <= ROW_TOLERANCE
        };
        // In a row of the rate, the part of a slow channel can be as small as the tolerance.
        let is_fast =
            self.value(ScheduleObjective::Rate) >= self.least_rate * (1.0 - ROW_TOLERANCE);
        if is_fast && self.rows.iter().all(is_kept) { Ok(()) } else { Err(SolverError::Imprecise) }
    }

    /// Adds the row that a property is at most `value`, to the solver's precision in units of
    /// `unit`.
    fn keep_at_most(&mut self, objective: ScheduleObjective, value: f64, unit: f64) {
        let mut left = linear(self.set, objective);
        let value = value * (1.0 + RELAXED.0);
        if objective == ScheduleObjective::DeliveredDelay {
            left.properties.delivered -= value;
        } else {
            left.constant = left.constant - value.into();
        }
        self.rows.push(at_most_zero(left.scaled(1.0 / unit)));
    }

    /// The largest value of a property over all selections.
    fn largest(&self, objective: ScheduleObjective) -> f64 {
        match objective {
            ScheduleObjective::Risk | ScheduleObjective::Loss | ScheduleObjective::Rate => 1.0,
            ScheduleObjective::Delay | ScheduleObjective::DeliveredDelay => {
                let delays = self.set.channels().iter().map(ChannelModel::delay_ms);
                delays.fold(1e-3, f64::max)
            }
            ScheduleObjective::Cost => {
                let costs = self.set.channels().iter().map(ChannelModel::cost);
                costs.sum::<f64>().max(1e-3)
            }
        }
    }

    fn value(&self, objective: ScheduleObjective) -> f64 {
        self.schedule.averages(self.set).value_of(objective)
    }
}

fn linear(set: &ChannelSet, objective: ScheduleObjective) -> LinearFunction {
    let none = PropertyWeights::default();
    match objective {
        ScheduleObjective::Risk => weighted(PropertyWeights { risk: 1.0, ..none }),
        ScheduleObjective::Loss => weighted(PropertyWeights { loss: 1.0, ..none }),
        ScheduleObjective::Delay => weighted(PropertyWeights { delay_ms: 1.0, ..none }),
        ScheduleObjective::DeliveredDelay => {
            weighted(PropertyWeights { delivered_delay_ms: 1.0, ..none })
        }
        ScheduleObjective::Rate => {
            LinearFunction { constant: -DoubleDouble::ONE, ..LinearFunction::default() }
        }
        ScheduleObjective::Cost => {
            let costs = set.channels().iter().map(|channel| channel.cost().into());
            LinearFunction { channels: costs.collect(), ..LinearFunction::default() }
        }
    }
}

fn weighted(properties: PropertyWeights) -> LinearFunction {
    LinearFunction { properties, ..LinearFunction::default() }
}

fn use_of(set: &ChannelSet, channel: usize) -> LinearFunction {
    let used = |i| if i == channel { DoubleDouble::ONE } else { DoubleDouble::ZERO };
    LinearFunction { channels: (0..set.len()).map(used).collect(), ..LinearFunction::default() }
}

fn equal_zero(left: LinearFunction) -> ProgramRow {
    ProgramRow { left, relation: RowRelation::Equal, right: 0.0 }
}

fn at_most_zero(left: LinearFunction) -> ProgramRow {
    ProgramRow { left, relation: RowRelation::AtMost, right: 0.0 }
}
