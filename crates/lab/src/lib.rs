//! The laboratory: networks on one machine, and experiments on them.
//!
//! - [`sandbox`]: a place where a program may make networks without being root.
//! - [`Host`]: a network namespace.
//! - [`Link`]: joins two hosts by an emulated wire with rate, delay, loss and more.
//! - [`Trial`]: a network, the programs on it, and what is measured; [`perform`] does so.

mod host;
mod link;
mod perform;
pub mod sandbox;
mod trial;
mod tun;

pub use host::Host;
pub use link::{Conditions, Counts, Direction, ImpossibleCondition, Lateness, Link, LinkOptions};
pub use perform::{Measured, Place, TrialError, perform};
pub use trial::{HostPlan, LinkPlan, MeasurePlan, ProgramPlan, Trial, ValuePlan};
