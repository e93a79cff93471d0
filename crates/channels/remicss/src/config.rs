//! The configuration of one end of a tunnel, read from TOML and checked in full.

mod channel_use;
mod clients;
mod networks;
mod numbers;
mod parse;
#[cfg(test)]
mod tests;
mod types;

pub(crate) use channel_use::fates;
pub use clients::MAX_CLIENTS;
pub use parse::KEYS;
pub use types::{
    ChannelQuota, PacketOrder, PlanBounds, PlanObjective, QuotaPeriod, SchedulerKind,
    TunnelChannelConfig, TunnelClientConfig, TunnelConfig, TunnelEnd,
};
