//! The best schedule for a request: which programs to solve, in which order, and which bound makes
//! it impossible where there is none.
//!
//! Every program here has a feasible point that is written down and not searched for: the limited
//! schedule at the best rate ([`ChannelSet::limited_schedule_at_best_rate`]). Bounds are then added
//! one by one; before each, the property it bounds is made as small as the bounds before it allow.
//! So a bound that cannot be kept is known by name, and with it the best value there is. No program
//! is unbounded: proportions sum to 1, and rates to no more than the channels carry.

use thiserror::Error;

use super::request::{Bound, Objective, PlanRequest, PlanRequestError, Requirements};
use crate::channels::{ChannelModel, ChannelSet, ShareSelection};
use crate::double_double::DoubleDouble;
use crate::schedules::{Averages, Schedule};
use crate::solver::{
    Column, Linear, Optimum, Program, ROUNDING, Relation, Row, SelectionLimits, SolverError, Unit,
    Weights,
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
pub struct Plan {
    /// The schedule.
    pub schedule: Schedule,
    /// Its averages on the channels it was made for.
    pub averages: Averages,
    /// For each objective of the request, how good it is and how much better it could be at most.
    pub optima: Vec<Certificate>,
}

/// How good a schedule is in an objective, and the proof that there is no better.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Certificate {
    /// The objective.
    pub objective: Objective,
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

impl Certificate {
    /// For a property's value in the end, which the objectives after it can have made a little
    /// worse.
    fn new(objective: Objective, value: f64, optimum: &Optimum) -> Self {
        // The program makes the rate's negative least.
        let minimised = if objective == Objective::Rate { -value } else { value };
        let gap = (minimised - optimum.bound).max(0.0) + ROUNDING * value.abs() + MIN_GAP;
        Self { objective, value, gap, rounds: optimum.rounds, columns: optimum.pool }
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
        bound: Bound,
        /// What it asks for.
        wanted: f64,
        /// The best there is, with everything else that was asked for before it.
        best: f64,
    },
    /// The solver failed, which is a fault of ours and not of the request.
    #[error("no exact plan was found: {0}; leave out bounds or channels of extremely small values")]
    Solver(#[from] SolverError),
}

fn infeasible(bound: Bound, wanted: f64, best: f64) -> String {
    let name = bound.property();
    let (unit, relation, extreme) = match bound {
        Bound::MaxRisk | Bound::MaxLoss => ("", "at most", "least"),
        Bound::MaxDelay | Bound::MaxDeliveredDelay => (" ms", "at most", "least"),
        Bound::MinRate => ("", "at least", "highest"),
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
    pub fn plan(&self, request: &PlanRequest) -> Result<Plan, PlanError> {
        request.check(self)?;
        let requirements = request.rounded();
        let mut planner = Planner::new(self, &requirements)?;
        planner.keep_bounds(&requirements)?;
        let mut optima = Vec::new();
        for objective in &requirements.objectives {
            optima.push((*objective, planner.optimise(*objective)));
        }
        planner.check()?;
        let averages = planner.schedule.averages(self);
        let optima = optima.into_iter().map(|(objective, optimum)| {
            Certificate::new(objective, averages.of(objective), &optimum)
        });
        Ok(Plan { optima: optima.collect(), schedule: planner.schedule, averages })
    }
}

/// The conditions so far, and a schedule that meets them.
struct Planner<'a> {
    set: &'a ChannelSet,
    /// Homogeneous rows: true of q if they are of any multiple.
    rows: Vec<Row>,
    limits: SelectionLimits,
    /// The rate that is kept; 0 if any will do.
    least_rate: f64,
    schedule: Schedule,
}

impl<'a> Planner<'a> {
    /// Kappa, mu and the rate.
    #[expect(clippy::cast_precision_loss, reason = "k and m are small")]
    fn new(set: &'a ChannelSet, requirements: &Requirements) -> Result<Self, PlanError> {
        let mut rows = Vec::new();
        if let Some(kappa) = requirements.kappa {
            rows.push(equal_zero(Linear {
                k: DoubleDouble::ONE,
                constant: (-kappa).into(),
                ..Linear::default()
            }));
        }
        if let Some(mu) = requirements.mu {
            rows.push(equal_zero(Linear {
                m: DoubleDouble::ONE,
                constant: (-mu).into(),
                ..Linear::default()
            }));
        }
        // What is free is as low as can be: that leaves the most rate.
        let kappa = requirements.kappa.unwrap_or(requirements.min_k as f64);
        let mu = requirements.mu.unwrap_or(kappa.max(requirements.min_m as f64));
        let schedule = set.limited_schedule_at_best_rate(kappa, mu).ok_or(SolverError::NoStart)?;
        let Requirements { min_k, min_m, kth_delay_ms, .. } = requirements;
        let limits =
            SelectionLimits { min_k: *min_k, min_m: *min_m, kth_delay_ms: kth_delay_ms.clone() };
        let mut planner = Self { set, rows, limits, least_rate: 0.0, schedule };
        let highest = if kth_delay_ms.is_some() {
            // It depends on the selections that are left, and so does a feasible schedule.
            planner.maximise_rate()?;
            (planner.value(Objective::Rate) * (1.0 - RELATIVE_TOLERANCE)).into()
        } else {
            set.best_rate_exactly(mu)
        };
        let best = highest.nearest();
        if let Some(wanted) =
            requirements.min_rate.filter(|rate| *rate > best * (1.0 + RELATIVE_TOLERANCE))
        {
            return Err(PlanError::Infeasible { bound: Bound::MinRate, wanted, best });
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
        self.least_rate = self.least_rate.max(rate.nearest());
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
    fn keep_bounds(&mut self, requirements: &Requirements) -> Result<(), PlanError> {
        let bounds = [
            (Bound::MaxRisk, requirements.max_risk, Objective::Risk),
            (Bound::MaxLoss, requirements.max_loss, Objective::Loss),
            (Bound::MaxDelay, requirements.max_delay_ms, Objective::Delay),
            (
                Bound::MaxDeliveredDelay,
                requirements.max_delivered_delay_ms,
                Objective::DeliveredDelay,
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
    fn optimise(&mut self, objective: Objective) -> Optimum {
        let optimum = match objective {
            Objective::Rate => self.maximise_rate(),
            _ => self.minimise(objective),
        };
        // Where the solver fails there is a schedule still, and the gap tells how good it is at
        // least.
        let optimum = optimum.unwrap_or_else(|_| Optimum {
            columns: self.schedule.entries().to_vec(),
            value: self.value(objective),
            bound: if objective == Objective::Rate { -self.set.total_rate() } else { 0.0 },
            rounds: 0,
            pool: self.schedule.entries().len(),
        });
        let value = self.value(objective);
        match objective {
            Objective::Rate => self.keep_rate((value * (1.0 - RELATIVE_TOLERANCE)).into()),
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
    fn minimise(&mut self, objective: Objective) -> Result<Optimum, SolverError> {
        // A mean over delivered symbols is a ratio of two sums. Scaling q so that its denominator
        // is 1 makes it linear (Charnes and Cooper).
        let (norm, unit) = if objective == Objective::DeliveredDelay {
            (weighted(Weights { delivered: 1.0, ..Weights::default() }), Unit::Delivered)
        } else {
            (Linear { constant: DoubleDouble::ONE, ..Linear::default() }, Unit::Sent)
        };
        let mut rows = self.rows.clone();
        rows.push(Row { left: norm, relation: Relation::Equal, right: 1.0 });
        self.solve(linear(objective), rows, unit)
    }

    /// Makes the schedule one of the highest rate under the rows, with q = p R: one program for
    /// both, in a unit that is near the result, since the solver's tolerance is absolute.
    fn maximise_rate(&mut self) -> Result<Optimum, SolverError> {
        let total = self.set.total_rate();
        let mut unit = total;
        loop {
            let mut rows = self.rows.clone();
            for (i, channel) in self.set.channels().iter().enumerate() {
                let right = channel.rate() / unit;
                rows.push(Row { left: use_of(self.set, i), relation: Relation::AtMost, right });
            }
            let mut optimum = self.solve(linear(Objective::Rate), rows, Unit::Rate)?;
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
        objective: Linear,
        rows: Vec<Row>,
        unit: Unit,
    ) -> Result<Optimum, SolverError> {
        let program = Program { objective, rows, limits: self.limits.clone(), unit };
        let start: Vec<ShareSelection> = self.schedule.entries().iter().map(|(t, _)| *t).collect();
        let optimum = program.solve(self.set, start)?;
        let sum: f64 = optimum.columns.iter().map(|(_, q)| q).sum();
        let entries = optimum.columns.iter().map(|(selection, q)| (*selection, q / sum));
        let entries = entries.filter(|(_, p)| *p > MIN_PROPORTION);
        self.schedule = Schedule::new(entries)?;
        Ok(optimum)
    }

    /// Whatever the solver says, the schedule must meet every row. Numbers that differ by more than
    /// its precision, a risk bound of 1e-14 beside risks of 0.2, are where it could be wrong.
    fn check(&self) -> Result<(), SolverError> {
        let entries = self.schedule.entries().iter();
        if entries.clone().any(|(selection, _)| !self.limits.allow(self.set, *selection)) {
            return Err(SolverError::BelowLimits);
        }
        let columns: Vec<_> = entries.map(|(t, p)| (Column::new(self.set, *t), p)).collect();
        let is_kept = |row: &Row| {
            let sum: f64 =
                columns.iter().map(|(column, p)| *p * row.left.of(column).nearest()).sum();
            let off = if row.relation == Relation::Equal { sum.abs() } else { sum };
            off <= ROW_TOLERANCE
        };
        // In a row of the rate, a slow channel's part can be as small as what is tolerated.
        let is_fast = self.value(Objective::Rate) >= self.least_rate * (1.0 - ROW_TOLERANCE);
        if is_fast && self.rows.iter().all(is_kept) { Ok(()) } else { Err(SolverError::Imprecise) }
    }

    /// Keeps a property at `value` or less, to the solver's precision in units of `unit`.
    fn keep_at_most(&mut self, objective: Objective, value: f64, unit: f64) {
        let mut left = linear(objective);
        let value = value * (1.0 + RELAXED.0);
        if objective == Objective::DeliveredDelay {
            left.properties.delivered -= value;
        } else {
            left.constant = left.constant - value.into();
        }
        self.rows.push(at_most_zero(left.times(1.0 / unit)));
    }

    /// The largest value that a property has for any selection.
    fn largest(&self, objective: Objective) -> f64 {
        match objective {
            Objective::Risk | Objective::Loss | Objective::Rate => 1.0,
            Objective::Delay | Objective::DeliveredDelay => {
                let delays = self.set.channels().iter().map(ChannelModel::delay_ms);
                delays.fold(1e-3, f64::max)
            }
        }
    }

    fn value(&self, objective: Objective) -> f64 {
        self.schedule.averages(self.set).of(objective)
    }
}

fn linear(objective: Objective) -> Linear {
    let none = Weights::default();
    match objective {
        Objective::Risk => weighted(Weights { risk: 1.0, ..none }),
        Objective::Loss => weighted(Weights { loss: 1.0, ..none }),
        Objective::Delay => weighted(Weights { delay_ms: 1.0, ..none }),
        Objective::DeliveredDelay => weighted(Weights { delivered_delay_ms: 1.0, ..none }),
        Objective::Rate => Linear { constant: -DoubleDouble::ONE, ..Linear::default() },
    }
}

fn weighted(properties: Weights) -> Linear {
    Linear { properties, ..Linear::default() }
}

fn use_of(set: &ChannelSet, channel: usize) -> Linear {
    let used = |i| if i == channel { DoubleDouble::ONE } else { DoubleDouble::ZERO };
    Linear { channels: (0..set.len()).map(used).collect(), ..Linear::default() }
}

fn equal_zero(left: Linear) -> Row {
    Row { left, relation: Relation::Equal, right: 0.0 }
}

fn at_most_zero(left: Linear) -> Row {
    Row { left, relation: Relation::AtMost, right: 0.0 }
}
