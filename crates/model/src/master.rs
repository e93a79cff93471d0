//! The master program of column generation, over the columns there are, by `microlp`.
//!
//! The solver gives the values of variables but not the prices of rows, so those are had by solving
//! the dual program, in which they are the variables. Why this solver: docs/model.md.

use microlp::{ComparisonOp, OptimizationDirection, Problem, Solution, SolveOptions};
use thiserror::Error;

use crate::columns::Column;
use crate::program::{Program, Relation};

/// Why a program was not solved.
#[derive(Clone, Debug, Error)]
pub(crate) enum MasterError {
    #[error("{0}")]
    Solver(#[from] microlp::Error),
    #[error("the solver stopped half-way")]
    Interrupted,
    #[error("it takes too many rounds")]
    Rounds,
}

/// The most that a row may be violated by: rows are of order 1.
const TOLERANCE: f64 = 1e-10;

/// The rows' prices, each at most `limit` in size: the best solution of the dual program, for costs
/// in units of `scale`. A limit keeps the first prices, of few columns, from being wild; it is as if
/// each row could be broken at that price.
///
/// # Errors
/// If the solver fails.
pub(crate) fn prices(
    program: &Program,
    pool: &[Column],
    scale: f64,
    limit: f64,
) -> Result<Vec<f64>, MasterError> {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let prices = program.rows.iter().map(|row| {
        let highest = if row.relation == Relation::Equal { limit } else { 0.0 };
        problem.add_var(row.right, (-limit, highest))
    });
    let prices: Vec<_> = prices.collect();
    for column in pool {
        let terms = prices.iter().zip(&program.rows);
        let terms: Vec<_> = terms.map(|(price, row)| (*price, row.left.of(column))).collect();
        let cost = program.objective.of(column) / scale;
        problem.add_constraint(&terms[..], ComparisonOp::Le, cost);
    }
    let solution = solve(&problem)?;
    Ok(prices.into_iter().map(|price| solution.var_value(price)).collect())
}

/// The columns that the best solution over the pool uses, and how much of each.
///
/// # Errors
/// If the solver fails, also because no solution is over these columns alone.
pub(crate) fn solution<'a>(
    program: &Program,
    pool: &'a [Column],
    scale: f64,
) -> Result<Vec<(&'a Column, f64)>, MasterError> {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let amounts = pool
        .iter()
        .map(|column| problem.add_var(program.objective.of(column) / scale, (0.0, f64::INFINITY)));
    let amounts: Vec<_> = amounts.collect();
    for row in &program.rows {
        let terms = amounts.iter().zip(pool);
        let terms: Vec<_> = terms.map(|(q, column)| (*q, row.left.of(column))).collect();
        let relation = match row.relation {
            Relation::Equal => ComparisonOp::Eq,
            Relation::AtMost => ComparisonOp::Le,
        };
        problem.add_constraint(&terms[..], relation, row.right);
    }
    let solution = solve(&problem)?;
    let amounts = pool.iter().zip(amounts).map(|(column, q)| (column, solution.var_value(q)));
    Ok(amounts.filter(|(_, q)| *q > 0.0).collect())
}

fn solve(problem: &Problem) -> Result<Solution, MasterError> {
    let mut options = SolveOptions::default();
    options.tolerances.feasibility = TOLERANCE;
    problem.solve_with(options)?.into_solution().map_err(|_| MasterError::Interrupted)
}
