//! Channels, sets of them, and the pairs (k, M) that say how a symbol is sent over a set.

mod channel;
mod set;
mod subset;

pub use channel::{ChannelError, ChannelModel, DELAYS_MS, Loss, RATES, Risk};
pub(crate) use set::Scenario;
pub use set::{ChannelSet, MAX_GROUPS, SetError, SharedRiskGroup};
pub use subset::{ChannelSubset, MAX_CHANNELS, ShareSelection, ShareSelectionError};
