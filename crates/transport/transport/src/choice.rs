//! The choice of a transport: the one that [`crate::model`] predicts to be the fastest.
//!
//! `docs/protocols/choice.md` describes the method.

mod auto;
mod cache;
mod decide;
mod examine;
#[cfg(test)]
mod measured;
mod racing;
mod remembered;

pub use auto::{ExpectedTransport, expected};
pub(crate) use auto::{TransportSelection, choose};
pub use decide::{DecisionBasis, TransportCandidate, TransportDecision, decide};
pub(crate) use examine::measure;
pub use examine::{PathExamination, examine};
pub(crate) use racing::connect_or_tcp;
