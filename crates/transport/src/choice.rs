//! The choice of a transport: the fastest one by the predictions of [`crate::model`].
//!
//! `docs/protocols/choice.md` states how it is made.

mod decide;
mod examine;

pub use decide::{Candidate, Decision, decide};
pub use examine::{Examined, examine};
