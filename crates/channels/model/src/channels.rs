//! Channels, sets of channels, and the pairs (k, M) that define how a symbol is sent over a set.

mod channel;
mod set;
mod subset;

pub use channel::{
    COSTS, ChannelModel, ChannelModelError, DELAYS_MS, LossProbability, RATES, RiskProbability,
};
pub(crate) use set::RiskGroupOutcome;
pub use set::{ChannelSet, ChannelSetError, MAX_GROUPS, SharedRiskGroup};
pub use subset::{
    ChannelSubset, MAX_CHANNELS, ShareSelection, ShareSelectionError, channels_by_name,
};
