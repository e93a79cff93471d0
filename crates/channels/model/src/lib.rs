//! The channel model: the privacy, loss, delay and rate of a set of channels, and the best schedule
//! for a request.
//!
//! It follows Pohly and McDaniel, "Modeling Privacy and Tradeoffs in Multichannel Secret Sharing
//! Protocols" (DSN 2016). Section numbers in this crate refer to that paper. docs/model.md
//! describes the additions and the points where this crate interprets the paper differently. Every
//! function here is a pure function of its arguments.
//!
//! ```
//! use sunder_model::{
//!     ChannelModel, ChannelSet, LossProbability, PlanRequest, RiskProbability, ScheduleObjective,
//!     ScheduleRequirements,
//! };
//!
//! // RiskProbability, loss, delay in ms, rate in any unit.
//! let fibre = ChannelModel::new(RiskProbability(0.1), LossProbability(0.001), 5.0, 100.0)?;
//! let mobile = ChannelModel::new(RiskProbability(0.2), LossProbability(0.02), 40.0, 50.0)?;
//! let radio = ChannelModel::new(RiskProbability(0.05), LossProbability(0.01), 15.0, 20.0)?;
//! let set = ChannelSet::new(vec![fibre, mobile, radio])?;
//!
//! // Two shares a symbol at least to read it, three sent for half of the symbols: what is the
//! // least risk at the highest rate?
//! let requirements = ScheduleRequirements {
//!     kappa: Some(2.0),
//!     mu: Some(2.5),
//!     full_rate: true,
//!     objectives: vec![ScheduleObjective::Risk],
//!     ..ScheduleRequirements::default()
//! };
//! let plan = set.plan(&PlanRequest::new(requirements.limited())?)?;
//! assert!((plan.averages.rate - 40.0).abs() < 1e-9);
//! assert!(plan.averages.risk < 0.03);
//! assert!(plan.certificates[0].gap < 1e-9);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Map
//!
//! All modules are pure.
//!
//! - `channels`: channels, sets of them, and the pairs (k, M).
//! - `schedules`: what needs no linear program: properties of a symbol, averages, the optimal rate.
//! - `planning`: `request` is checked, `plan` finds the best schedule, `pareto` and `sensitivity`
//!   show what would improve it.
//! - `solver`: `program` alternates `master` (prices of the rows) and `pricing` (the best pair at
//!   these prices). `linear`: columns and rows.
//! - [`simulate`]: a Monte-Carlo simulation, to check the formulas. `double_double`: numbers of
//!   twice the precision.

mod channels;
mod double_double;
mod planning;
mod schedules;
pub mod simulate;
mod solver;

pub use channels::{
    COSTS, ChannelModel, ChannelModelError, ChannelSet, ChannelSetError, ChannelSubset, DELAYS_MS,
    LossProbability, MAX_CHANNELS, MAX_GROUPS, RATES, RiskProbability, ShareSelection,
    ShareSelectionError, SharedRiskGroup, channels_by_name,
};
pub use planning::{
    ChannelQuantity, ChannelSensitivity, OptimalSchedule, OptimalityCertificate, ParetoFront,
    PlanError, PlanRequest, PlanRequestError, SENSITIVITY_STEP, ScheduleBound, ScheduleObjective,
    ScheduleRequirements,
};
pub use schedules::{ScheduleAverages, SelectionProperties, ShareSchedule, ShareScheduleError};
pub use solver::SolverError;
