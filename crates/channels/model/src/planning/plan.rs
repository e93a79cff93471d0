//! The best schedule for a request: which programs to solve, in which order, and which bound makes
//! it impossible where there is none.
//!
//! Every program here has a feasible point that is written down and not searched for: the limited
//! schedule at the best rate ([`ChannelSet::limited_schedule_at_best_rate`]). Bounds are then added
//! one by one; before each, the property it bounds is made as small as the bounds before it allow.
//! So a bound that cannot be kept is known by name, and with it the best value there is. No program
//! is unbounded: proportions sum to 1, and rates to no more than the channels carry.

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

/// How far a value may be beyond a bound, relative to it, to count as within: what rounding costs.
const RELATIVE_TOLERANCE: f64 = 1e-9;

/// And absolute, where a bound is 0: a probability that is none.
const ABSOLUTE_TOLERANCE: f64 = 1e-30;

/// Bounds, and optima, that are smaller than this part of the largest value there is are kept to
/// within a millionth of this.
const MIN_UNIT: f64 = 1e-8;

/// A proportion that is left by rounding, and used for nothing.
const MIN_PROPORTION: f64 = 1e-18;

/// By how much bounds are relaxed, so that rounding in them leaves the schedules that just keep
/// them: a few units in the last place, of `f64` and of [`DoubleDouble`].
const RELAXED: (f64, f64) = (1e-15, 1e-28);

/// What the product of small probabilities is at most where it is too small for a number.
const MIN_GAP: f64 = 1e-300;

/// How far a row may be off in the end: rows are of order 1, bounds in units of themselves.
const ROW_TOLERANCE: f64 = 1e-6;

/// The best schedule for a request.
#[derive(Clone, Debug, PartialEq)]
pub struct OptimalSchedule {
    /// The schedule.
    pub schedule: ShareSchedule,
    /// Its averages on the channels it was made for.
    pub averages: ScheduleAverages,
    /// For each objective of the request, how good it is and how much better it could be at most.
    pub certificates: Vec<OptimalityCertificate>,
}

/// How good a schedule is in an objective, and the proof that there is no better.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OptimalityCertificate {
    /// The objective.
    pub objective: ScheduleObjective,
    /// The property's value.
    pub value: f64,
    /// No schedule for the request is better by more than this: the duality gap, in the property's
    /// unit. All rounding is in it, that of the proof too.
    pub gap: f64,
    /// How often all selections were priced.
    pub rounds: usize,
    /// How many selections took part in the end.
    pub columns: usize,
}

impl OptimalityCertificate {
    /// For a property's value in the end, which the objectives after it can have made a little
    /// worse.
    fn new(objective: ScheduleObjective, value: f64, optimum: &ProgramOptimum) -> Self {
        // The program makes the rate's negative least.
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
    /// No schedule keeps this bound, and those before it in the order risk, loss, delay after the
    /// rate.
    #[error("{}", infeasible(*bound, *wanted, *best))]
    Infeasible {
        /// The first bound that cannot be kept.
        bound: ScheduleBound,
        /// What it asks for.
        wanted: f64,
        /// The best there is, with everything else that was asked for before it.
        best: f64,
    },
    /// The solver failed, which is a fault of ours and not of the request.
    #[error("no exact plan was found: {0}; leave out bounds or channels of extremely small values")]
    Solver(#[from] SolverError),
}

fn infeasible(bound: ScheduleBound, wanted: f64, best: f64) -> String {
    let name = bound.property();
    let (unit, relation, extreme) = match bound {
        ScheduleBound::MaxRisk | ScheduleBound::MaxLoss => ("", "at most", "least"),
        ScheduleBound::MaxDelay | ScheduleBound::MaxDeliveredDelay => (" ms", "at most", "least"),
        ScheduleBound::MinRate => ("", "at least", "highest"),
    };
    format!(
        "a {name} of {relation} {wanted}{unit} cannot be had: with the rest of what is asked, the \
         {extreme} is {best}{unit}"
    )
}

impl ChannelSet {
    /// The best schedule for `request`: feasible, and best in its objectives in their order.
    /// Without objectives, any feasible one.
    ///
    /// # Errors
    /// If the request contradicts itself or the channels, or no schedule keeps its bounds: then the
    /// first that cannot be kept is named, with the best value there is.
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

/// The conditions so far, and a schedule that meets them.
struct SchedulePlanner<'a> {
    set: &'a ChannelSet,
    /// Homogeneous rows: true of q if they are of any multiple.
    rows: Vec<ProgramRow>,
    limits: SelectionLimits,
    /// The rate that is kept; 0 if any will do.
    least_rate: f64,
    schedule: ShareSchedule,
}

impl<'a> SchedulePlanner<'a> {
    /// Kappa, mu and the rate.
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
        // What is free is as low as can be: that leaves the most rate.
        let kappa = requirements.kappa.unwrap_or(requirements.min_k as f64);
        let mu = requirements.mu.unwrap_or(kappa.max(requirements.min_m as f64));
        let schedule = set.limited_schedule_at_best_rate(kappa, mu).ok_or(SolverError::NoStart)?;
        let ScheduleRequirements { min_k, min_m, kth_delay_ms, .. } = requirements;
        let limits =
            SelectionLimits { min_k: *min_k, min_m: *min_m, kth_delay_ms: kth_delay_ms.clone() };
        let mut planner = Self { set, rows, limits, least_rate: 0.0, schedule };
        let highest = if kth_delay_ms.is_some() {
            // It depends on the selections that are left, and so does a feasible schedule.
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

    /// No channel carries more than its rate when `rate` symbols are sent (IV-D; at `R_C(mu)` these
    /// inequalities and mu leave only the paper's equalities).
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

    /// Risk, loss and delay, one after the other.
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

    /// Makes the schedule best in `objective`, and keeps it so from now on.
    fn optimise(&mut self, objective: ScheduleObjective) -> ProgramOptimum {
        let optimum = match objective {
            ScheduleObjective::Rate => self.maximise_rate(),
            _ => self.minimise(objective),
        };
        // Where the solver fails there is a schedule still, and the gap tells how good it is at
        // least.
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

    /// Makes the schedule one of least `objective` under the rows.
    fn minimise(&mut self, objective: ScheduleObjective) -> Result<ProgramOptimum, SolverError> {
        // A mean over delivered symbols is a ratio of two sums. Scaling q so that its denominator
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
        self.solve(linear(objective), rows, unit)
    }

    /// Makes the schedule one of the highest rate under the rows, with q = p R: one program for
    /// both, in a unit that is near the result, since the solver's tolerance is absolute.
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
                self.solve(linear(ScheduleObjective::Rate), rows, ProgramUnit::Rate)?;
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

    /// Whatever the solver says, the schedule must meet every row. Numbers that differ by more than
    /// its precision, a risk bound of 1e-14 beside risks of 0.2, are where it could be wrong.
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
        // In a row of the rate, a slow channel's part can be as small as what is tolerated.
        let is_fast =
            self.value(ScheduleObjective::Rate) >= self.least_rate * (1.0 - ROW_TOLERANCE);
        if is_fast && self.rows.iter().all(is_kept) { Ok(()) } else { Err(SolverError::Imprecise) }
    }

    /// Keeps a property at `value` or less, to the solver's precision in units of `unit`.
    fn keep_at_most(&mut self, objective: ScheduleObjective, value: f64, unit: f64) {
        let mut left = linear(objective);
        let value = value * (1.0 + RELAXED.0);
        if objective == ScheduleObjective::DeliveredDelay {
            left.properties.delivered -= value;
        } else {
            left.constant = left.constant - value.into();
        }
        self.rows.push(at_most_zero(left.scaled(1.0 / unit)));
    }

    /// The largest value that a property has for any selection.
    fn largest(&self, objective: ScheduleObjective) -> f64 {
        match objective {
            ScheduleObjective::Risk | ScheduleObjective::Loss | ScheduleObjective::Rate => 1.0,
            ScheduleObjective::Delay | ScheduleObjective::DeliveredDelay => {
                let delays = self.set.channels().iter().map(ChannelModel::delay_ms);
                delays.fold(1e-3, f64::max)
            }
        }
    }

    fn value(&self, objective: ScheduleObjective) -> f64 {
        self.schedule.averages(self.set).value_of(objective)
    }
}

fn linear(objective: ScheduleObjective) -> LinearFunction {
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
