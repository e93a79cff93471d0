//! The configuration of one end of a tunnel, read from TOML and checked in full.

mod parse;
#[cfg(test)]
mod tests;
mod types;

pub use parse::KEYS;
pub use types::{
    PacketOrder, PlanBounds, PlanObjective, SchedulerKind, TunnelChannelConfig, TunnelConfig,
    TunnelEnd,
};
