//! Runs streams over their channels' connections.

mod break_watcher;
pub(crate) mod connection;
pub(crate) mod datagrams;
pub(crate) mod driver;
mod open_count;
mod path_states;
pub(crate) mod program;
mod pump;
pub(crate) mod rejoins;
pub(crate) mod report;
pub(crate) mod retained_memory;
