//! Why a program has no trustworthy solution.

use thiserror::Error;

use crate::schedules::ShareScheduleError;

/// Why the solver failed.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum SolverError {
    /// Breaking a row costs too little to keep the rows.
    #[error("the rows have no finite prices")]
    Unbounded,
    /// No solution meets all rows.
    #[error("the rows contradict each other")]
    Infeasible,
    /// It did not end within its bound on rounds or pivots.
    #[error("it takes too many rounds")]
    Rounds,
    /// The schedule that the solver begins with does not exist.
    #[error("there is no schedule to start from")]
    NoStart,
    /// The solution has a k or m below the least.
    #[error("a symbol is below the limits")]
    BelowLimits,
    /// The solution breaks a row by more than its tolerance.
    #[error("the numbers are too far apart")]
    Imprecise,
    /// The solution is not a schedule.
    #[error(transparent)]
    Schedule(#[from] ShareScheduleError),
}
