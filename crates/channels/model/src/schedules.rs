//! Schedules, and what is known of symbols and schedules without a program: properties of one
//! symbol, averages, the optimal rate, and schedules that are written down directly.

mod limited;
mod properties;
mod rate;
mod schedule;

pub use properties::SelectionProperties;
pub(crate) use properties::mean_delay;
pub use schedule::{ScheduleAverages, ShareSchedule, ShareScheduleError};
