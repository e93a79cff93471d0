//! The configuration of one end of a tunnel, read from TOML and checked in full.

mod clients;
mod networks;
mod parse;
#[cfg(test)]
mod tests;
mod types;

pub use clients::MAX_CLIENTS;
pub use parse::KEYS;
pub use types::{
    PacketOrder, PlanBounds, PlanObjective, SchedulerKind, TunnelChannelConfig, TunnelClientConfig,
    TunnelConfig, TunnelEnd,
};
