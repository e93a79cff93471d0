//! The channel model: what privacy, loss, delay and rate a set of channels gives, and the best
//! schedule for a stated need.

mod channel;
mod columns;
mod front;
mod limited;
mod master;
mod need;
mod plan;
mod program;
mod properties;
mod rate;
pub mod sample;
mod schedule;
mod sensitivity;
pub mod simulate;
mod subset;

pub use channel::{Channel, ChannelError, ChannelSet, DELAYS_MS, Group, RATES, SetError};
pub use front::Front;
pub use need::{Bound, Need, NeedError, Objective};
pub use plan::{Certificate, Plan, PlanError};
pub use properties::Properties;
pub use schedule::{Averages, Schedule, ScheduleError};
pub use sensitivity::{IMPROVEMENT, Quantity, Sensitivity};
pub use subset::{Subset, Threshold, ThresholdError};

/// The most channels that a plan can be made for.
pub const MAX_CHANNELS: usize = 20;

/// The most groups of channels that share a fate.
pub const MAX_GROUPS: usize = 4;
