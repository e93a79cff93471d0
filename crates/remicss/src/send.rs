//! The sending side: packets come in, shares of them go out on the channels.

pub mod batch;
pub(crate) mod codel_queue;
pub mod pacer;
pub mod plan;
pub mod schedule;
pub mod sender;
