//! Why the solver has no reliable solution for a program.

use thiserror::Error;

use crate::schedules::ShareScheduleError;

/// Why the solver failed.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum SolverError {
    /// Violating a row costs too little to enforce the rows.
    #[error("the rows have no finite prices")]
    Unbounded,
    /// No solution satisfies all rows.
    #[error("the rows contradict each other")]
    Infeasible,
    /// The solver did not finish within its limit of rounds or pivots.
    #[error("it takes too many rounds")]
    Rounds,
    /// The initial schedule of the solver does not exist.
    #[error("there is no schedule to start from")]
    NoStart,
    /// The solution contains a k or m below the minimum.
    #[error("a symbol is below the limits")]
    BelowLimits,
    /// The solution violates a row by more than the tolerance.
    #[error("the numbers are too far apart")]
    Imprecise,
    /// The solution is not a schedule.
    #[error(transparent)]
    Schedule(#[from] ShareScheduleError),
}
