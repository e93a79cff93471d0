//! Linear programs over schedules (IV-B, IV-D, IV-E), and their solution by column generation.

mod error;
mod linear;
mod master;
mod pricing;
mod program;

pub use error::SolverError;
pub(crate) use linear::{
    LinearFunction, LinearProgram, ProgramColumn, ProgramRow, ProgramUnit, PropertyWeights,
    ROUNDING, RowRelation, SelectionLimits,
};
pub(crate) use program::ProgramOptimum;
