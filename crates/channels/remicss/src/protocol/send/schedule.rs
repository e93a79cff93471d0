//! Schedulers, which choose the threshold (k, M) of each symbol.

mod dynamic;
mod planned;
mod scheduler;

pub use dynamic::{DynamicScheduler, MeanThresholdError};
pub use planned::PlannedScheduler;
pub use scheduler::{ChannelReadiness, SymbolScheduler};
