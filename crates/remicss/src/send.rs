//! The sending side: packets come in, shares of them go out on the channels.

pub mod batch;
pub mod pace;
pub mod plan;
pub(crate) mod queue;
pub mod schedule;
pub mod sender;
