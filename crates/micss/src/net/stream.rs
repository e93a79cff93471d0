//! Runs streams over their channels' connections.

mod breaks;
pub(crate) mod connection;
pub(crate) mod driver;
pub(crate) mod kept;
mod open_count;
mod path_states;
mod pump;
pub(crate) mod rejoins;
pub(crate) mod report;
