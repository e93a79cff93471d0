//! Schedules and what can be computed without a linear program: the properties of one symbol,
//! averages, the optimal rate, and explicitly constructed schedules.

mod limited;
mod properties;
mod rate;
mod schedule;

pub use properties::SelectionProperties;
pub(crate) use properties::mean_delay;
pub use schedule::{ScheduleAverages, ShareSchedule, ShareScheduleError};
