//! Plans: the request for a schedule, the best schedule, and the changes that would improve it.

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
