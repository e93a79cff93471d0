//! Plans: what a schedule is requested for, the best schedule, and what could make it better.

mod pareto;
mod plan;
mod request;
mod sensitivity;

pub use pareto::ParetoFront;
pub use plan::{OptimalSchedule, OptimalityCertificate, PlanError};
pub use request::{
    PlanRequest, PlanRequestError, ScheduleBound, ScheduleObjective, ScheduleRequirements,
};
pub use sensitivity::{ChannelQuantity, ChannelSensitivity, SENSITIVITY_STEP};
