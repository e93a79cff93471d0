//! The configuration of one end of a tunnel, read from TOML and checked in full.

mod error;
mod parse;
#[cfg(test)]
mod tests;
mod types;

pub use error::ConfigError;
pub use types::{ChannelConfig, Config, End, PacketOrder, PlanObjective, SchedulerKind};
