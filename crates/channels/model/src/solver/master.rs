//! The master program of column generation, over the current columns: the simplex method with the
//! inverse of the basis, in numbers of twice the usual precision ([`DoubleDouble`]).
//!
//! Programs combine risks of 1e-15 with risks of 1, and proportions of 1e-12 with 1/2. In `f64` the
//! small ones would be lost in rounding errors. docs/model.md explains why no library's solver is
//! used.

use super::error::SolverError;
use super::linear::{LinearFunction, LinearProgram, ProgramColumn, ProgramRow, RowRelation};
use crate::double_double::DoubleDouble;

/// The largest number of pivots before the solver fails. A few hundred are usual.
const MAX_PIVOTS: usize = 100_000;

/// A reduced cost below this fraction of the terms that it is the sum of counts as 0: in the search
/// with `f64`, and in the final search.
const COST_TOLERANCE: (f64, f64) = (1e-9, 1e-22);

/// A pivot below this fraction of the largest in its column counts as 0.
const MIN_PIVOT: f64 = 1e-20;

/// Ratios whose difference is below this, relative or absolute, are equal.
const RATIO_TOLERANCE: (f64, f64) = (1e-22, 1e-30);

/// A variable of the master program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MasterVariable {
    /// The amount of a column, by its index in the pool.
    Column(usize),
    /// The slack of a row of [`RowRelation::AtMost`].
    Slack(usize),
    /// By how much the left side of a row of [`RowRelation::Equal`] is too small. It costs the
    /// limit.
    Shortfall(usize),
    /// By how much the left side of a row is too large. It costs the limit.
    Surplus(usize),
}

/// The program over a growing pool of columns.
pub(crate) struct MasterProgram<'a> {
    objective: &'a LinearFunction,
    rows: &'a [ProgramRow],
    pool: Vec<PooledColumn>,
    basis: Vec<MasterVariable>,
    inverse: Vec<Vec<DoubleDouble>>,
    /// The amount of each basic variable.
    amounts: Vec<DoubleDouble>,
    /// The unit of costs.
    scale: f64,
    /// The cost of violating a row, in that unit.
    limit: f64,
}

/// A column with its coefficients, in its own unit, in which the largest is 1.
struct PooledColumn {
    column: ProgramColumn,
    coefficients: Vec<DoubleDouble>,
    nearest: Vec<f64>,
    cost: f64,
    unit: f64,
}

impl<'a> MasterProgram<'a> {
    /// The program without columns.
    pub(crate) fn new(program: &'a LinearProgram) -> Self {
        let rows = &program.rows;
        let basis = rows.iter().enumerate().map(|(i, row)| match row.relation {
            RowRelation::Equal => MasterVariable::Shortfall(i),
            RowRelation::AtMost => MasterVariable::Slack(i),
        });
        let unit_row = |i| {
            (0..rows.len())
                .map(move |j| if i == j { DoubleDouble::ONE } else { DoubleDouble::ZERO })
        };
        Self {
            objective: &program.objective,
            rows,
            pool: Vec::new(),
            basis: basis.collect(),
            inverse: (0..rows.len()).map(|i| unit_row(i).collect()).collect(),
            amounts: rows.iter().map(|row| row.right.into()).collect(),
            scale: 1.0,
            limit: 0.0,
        }
    }

    /// The number of columns.
    pub(crate) fn len(&self) -> usize {
        self.pool.len()
    }

    /// Whether the pool contains this column.
    pub(crate) fn contains(&self, column: &ProgramColumn) -> bool {
        self.pool.iter().any(|pooled| pooled.column.selection == column.selection)
    }

    /// Adds a column.
    pub(crate) fn push(&mut self, column: ProgramColumn) {
        let coefficients = self.rows.iter().map(|row| row.left.evaluate(&column));
        let coefficients: Vec<DoubleDouble> = coefficients.collect();
        let most = coefficients.iter().map(|value| value.to_f64().abs()).fold(0.0, f64::max);
        // A power of two, so that scaling does not round.
        let unit = if most > 0.0 { most.log2().floor().exp2() } else { 1.0 };
        let by = DoubleDouble::from(1.0 / unit);
        let coefficients: Vec<DoubleDouble> =
            coefficients.into_iter().map(|value| value * by).collect();
        let nearest = coefficients.iter().map(|value| value.to_f64()).collect();
        let cost = self.objective.evaluate(&column).to_f64() / unit;
        self.pool.push(PooledColumn { column, coefficients, nearest, cost, unit });
    }

    /// Solves the program, and returns the rows' prices at the optimum, for costs in units of
    /// `scale`. Violating a row costs `limit`, so no price is larger. This prevents extreme prices
    /// in the first rounds, which have few columns.
    ///
    /// # Errors
    /// If the solver fails.
    pub(crate) fn solve(&mut self, scale: f64, limit: f64) -> Result<Vec<f64>, SolverError> {
        (self.scale, self.limit) = (scale, limit);
        for _ in 0..MAX_PIVOTS {
            let prices = self.prices(limit);
            let Some(entering) = self.entering(&prices) else { return Ok(self.nearest(&prices)) };
            let column = self.in_basis(entering);
            let leaving = self.leaving(&column).ok_or(SolverError::Unbounded)?;
            self.pivot(leaving, entering, &column);
        }
        Err(SolverError::Rounds)
    }

    /// Prices of the same solution as if violating a row cost nothing. They are less extreme for
    /// redundant rows, which can have any price, and useless otherwise.
    pub(crate) fn minimal_prices(&self) -> Vec<f64> {
        self.nearest(&self.prices(0.0))
    }

    /// The columns with a positive amount in the solution, and their amounts.
    pub(crate) fn solution(&self) -> impl Iterator<Item = (&ProgramColumn, f64)> {
        let basic = self.basis.iter().zip(&self.amounts);
        basic.filter_map(|(variable, amount)| match variable {
            MasterVariable::Column(place) if amount.to_f64() > 0.0 => {
                let pooled = &self.pool[*place];
                Some((&pooled.column, amount.to_f64() / pooled.unit))
            }
            _ => None,
        })
    }

    /// The objective.
    pub(crate) fn value(&self) -> f64 {
        self.solution().map(|(column, q)| q * self.objective.evaluate(column).to_f64()).sum()
    }

    /// The sum of the violations of all rows.
    pub(crate) fn infeasibility(&self) -> f64 {
        let basic = self.basis.iter().zip(&self.amounts);
        let broken = basic.filter(|(variable, _)| {
            matches!(variable, MasterVariable::Shortfall(_) | MasterVariable::Surplus(_))
        });
        broken.map(|(_, amount)| amount.to_f64()).sum()
    }

    /// Prices in `f64`, with the sign that a valid proof of a bound requires: the slack of a row of
    /// [`RowRelation::AtMost`] must not have a negative value. Rounding and a limit of 0 can break
    /// this.
    fn nearest(&self, prices: &[DoubleDouble]) -> Vec<f64> {
        let pairs = self.rows.iter().zip(prices);
        let nearest = pairs.map(|(row, price)| match row.relation {
            RowRelation::Equal => price.to_f64(),
            RowRelation::AtMost => price.to_f64().min(0.0),
        });
        nearest.collect()
    }

    fn prices(&self, limit: f64) -> Vec<DoubleDouble> {
        let mut prices = vec![DoubleDouble::ZERO; self.rows.len()];
        for (variable, row) in self.basis.iter().zip(&self.inverse) {
            let cost = match variable {
                MasterVariable::Column(place) => self.pool[*place].cost / self.scale,
                MasterVariable::Slack(_) => 0.0,
                MasterVariable::Shortfall(_) | MasterVariable::Surplus(_) => limit,
            };
            if cost != 0.0 {
                let terms = prices.iter_mut().zip(row);
                terms
                    .for_each(|(price, value)| *price = *price + DoubleDouble::from(cost) * *value);
            }
        }
        prices
    }

    /// The variable with the lowest reduced cost, if that is below 0.
    fn entering(&self, prices: &[DoubleDouble]) -> Option<MasterVariable> {
        let nearest: Vec<f64> = prices.iter().map(|price| price.to_f64()).collect();
        let columns = self.pool.iter().enumerate().filter_map(|(place, pooled)| {
            let (mut reduced, mut size) =
                (pooled.cost / self.scale, pooled.cost.abs() / self.scale);
            for (price, coefficient) in nearest.iter().zip(&pooled.nearest) {
                let term = price * coefficient;
                reduced -= term;
                size += term.abs();
            }
            (reduced < -COST_TOLERANCE.0 * size).then_some((MasterVariable::Column(place), reduced))
        });
        let rows = self.rows.iter().zip(prices).enumerate().flat_map(|(i, (row, price))| {
            let limit = DoubleDouble::from(self.limit);
            let other = match row.relation {
                RowRelation::Equal => (MasterVariable::Shortfall(i), limit - *price),
                RowRelation::AtMost => (MasterVariable::Slack(i), -*price),
            };
            let least = -COST_TOLERANCE.1 * self.limit;
            let both = [other, (MasterVariable::Surplus(i), limit + *price)];
            let both = both.map(|(variable, reduced)| (variable, reduced.to_f64()));
            both.into_iter().filter(move |(_, reduced)| *reduced < least)
        });
        let candidates = columns.chain(rows).filter(|(variable, _)| !self.basis.contains(variable));
        let least = candidates.min_by(|a, b| a.1.total_cmp(&b.1));
        least.map(|(variable, _)| variable).or_else(|| self.entering_exactly(prices))
    }

    /// The same for columns, in full precision, for when the search in `f64` finds none.
    fn entering_exactly(&self, prices: &[DoubleDouble]) -> Option<MasterVariable> {
        let columns = self.pool.iter().enumerate().filter_map(|(place, pooled)| {
            let cost = pooled.cost / self.scale;
            let (mut reduced, mut size) = (DoubleDouble::from(cost), cost.abs());
            for (price, coefficient) in prices.iter().zip(&pooled.coefficients) {
                let term = *price * *coefficient;
                reduced = reduced - term;
                size += term.to_f64().abs();
            }
            let reduced = reduced.to_f64();
            (reduced < -COST_TOLERANCE.1 * size).then_some((MasterVariable::Column(place), reduced))
        });
        let candidates = columns.filter(|(variable, _)| !self.basis.contains(variable));
        candidates.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(variable, _)| variable)
    }

    /// The inverse of the basis times the variable's column: by how much a unit of the variable
    /// reduces each basic variable.
    fn in_basis(&self, variable: MasterVariable) -> Vec<DoubleDouble> {
        let row = |inverse: &Vec<DoubleDouble>| match variable {
            MasterVariable::Column(place) => {
                let terms = inverse.iter().zip(&self.pool[place].coefficients);
                let terms = terms.filter(|(_, coefficient)| **coefficient != DoubleDouble::ZERO);
                terms.fold(DoubleDouble::ZERO, |sum, (value, coefficient)| {
                    sum + *value * *coefficient
                })
            }
            MasterVariable::Slack(i) | MasterVariable::Shortfall(i) => inverse[i],
            MasterVariable::Surplus(i) => -inverse[i],
        };
        self.inverse.iter().map(row).collect()
    }

    /// The index of the basic variable that reaches 0 first. Ties are common here, and are broken
    /// lexicographically, so that no basis repeats.
    fn leaving(&self, column: &[DoubleDouble]) -> Option<usize> {
        let most = column.iter().fold(0.0, |most: f64, value| most.max(value.to_f64().abs()));
        let places = (0..column.len()).filter(|i| column[*i].to_f64() > MIN_PIVOT * most);
        places.reduce(|first, other| {
            let ratios = |i: usize| {
                let row = std::iter::once(&self.amounts[i]).chain(&self.inverse[i]);
                row.map(move |value| *value / column[i])
            };
            for (a, b) in ratios(first).zip(ratios(other)) {
                let apart = (a - b).abs().to_f64();
                if apart
                    > RATIO_TOLERANCE.0 * a.abs().to_f64().max(b.abs().to_f64()) + RATIO_TOLERANCE.1
                {
                    return if a < b { first } else { other };
                }
            }
            first
        })
    }

    fn pivot(&mut self, leaving: usize, entering: MasterVariable, column: &[DoubleDouble]) {
        let by = column[leaving];
        let amount = self.amounts[leaving] / by;
        let row: Vec<DoubleDouble> =
            self.inverse[leaving].iter().map(|value| *value / by).collect();
        for (i, factor) in column.iter().enumerate() {
            if i != leaving && *factor != DoubleDouble::ZERO {
                self.amounts[i] = self.amounts[i] - *factor * amount;
                let values = self.inverse[i].iter_mut().zip(&row);
                values.for_each(|(value, of_row)| *value = *value - *factor * *of_row);
            }
        }
        self.amounts[leaving] = amount;
        self.inverse[leaving] = row;
        self.basis[leaving] = entering;
    }
}
