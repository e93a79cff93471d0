//! Plans: what a schedule is requested for, the best schedule, and what could make it better.

mod pareto;
mod plan;
mod request;
mod sensitivity;

pub use pareto::ParetoFront;
pub use plan::{Certificate, Plan, PlanError};
pub use request::{Bound, Objective, PlanRequest, PlanRequestError, Requirements};
pub use sensitivity::{Quantity, SENSITIVITY_STEP, Sensitivity};
