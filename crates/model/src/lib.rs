//! The channel model: what privacy, loss, delay and rate a set of channels gives, and the best
//! schedule for a stated need.
//!
//! It follows Pohly and McDaniel, "Modeling Privacy and Tradeoffs in Multichannel Secret
//! Sharing Protocols" (DSN 2016); section numbers in this crate are that paper's, and docs/model.md
//! tells what it adds and where it reads it differently. Everything here is a pure function of its
//! arguments.
//!
//! ```
//! use model::{Channel, ChannelSet, Need, Objective};
//!
//! // Risk, loss, delay in ms, rate.
//! let fibre = Channel::new(0.1, 0.001, 5.0, 100.0)?;
//! let mobile = Channel::new(0.2, 0.02, 40.0, 50.0)?;
//! let radio = Channel::new(0.05, 0.01, 15.0, 20.0)?;
//! let set = ChannelSet::new(vec![fibre, mobile, radio])?;
//!
//! // Two shares a symbol at least to read it, three sent for half of the symbols: what is the
//! // least risk at the highest rate?
//! let need = Need {
//!     kappa: Some(2.0),
//!     mu: Some(2.5),
//!     full_rate: true,
//!     objectives: vec![Objective::Risk],
//!     ..Need::default()
//! };
//! let plan = set.plan(&need.limited())?;
//! assert!((plan.averages.rate - 40.0).abs() < 1e-9);
//! assert!(plan.averages.risk < 0.03);
//! assert!(plan.optima[0].gap < 1e-9);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod channel;
mod columns;
mod double;
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
