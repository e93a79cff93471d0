//! Linear programs over schedules (IV-B, IV-D, IV-E), and their solution by column generation.

mod error;
mod linear;
mod master;
mod pricing;
mod program;

pub use error::SolverError;
pub(crate) use linear::{
    Column, Linear, Program, ROUNDING, Relation, Row, SelectionLimits, Unit, Weights,
};
pub(crate) use program::Optimum;
