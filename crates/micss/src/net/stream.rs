//! Runs streams over their channels' connections.

mod breaks;
pub(crate) mod connection;
pub(crate) mod driver;
mod open_count;
mod path_states;
mod pump;
pub(crate) mod report;
