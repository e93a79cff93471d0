//! The choice of a transport: the fastest one by the predictions of [`crate::model`].
//!
//! `docs/protocols/choice.md` states how it is made.

mod auto;
mod cache;
mod decide;
mod examine;
mod known;
#[cfg(test)]
mod measured;
mod racing;

pub(crate) use auto::{Chosen, choose};
pub use decide::{Basis, Candidate, Decision, decide};
pub(crate) use examine::measure;
pub use examine::{Examined, examine};
pub(crate) use racing::connect_or_tcp;
