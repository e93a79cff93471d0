//! The sending side: packets come in, shares of them go out on the channels.

pub mod bounds;
pub(crate) mod codel_queue;
pub mod plan;
pub mod priority;
pub mod schedule;
pub mod sender;
pub mod shared_fates;
pub(crate) mod similar_delays;
pub mod spare;
