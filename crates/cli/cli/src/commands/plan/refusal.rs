//! Explains why there is no plan, with the names of the command line's options.

use console::CommandFailure;
use model::{PlanError, PlanRequestError, ScheduleBound};

use crate::numbers::{rounded_down, rounded_up};

/// The failure: which option is wrong, and what is possible.
pub(super) fn refuse(error: PlanError) -> CommandFailure {
    match error {
        PlanError::Request(PlanRequestError::Bound(bound, value)) => CommandFailure::Usage(
            format!("{} {value} is not within its range; give {}", option(bound), range(bound)),
        ),
        PlanError::Request(error) => CommandFailure::Usage(error.to_string()),
        PlanError::Infeasible { bound, wanted, best } => {
            CommandFailure::Usage(infeasible(bound, wanted, best))
        }
        error @ PlanError::Solver(_) => CommandFailure::Failed(error.to_string()),
    }
}

/// The option for a bound of the model.
fn option(bound: ScheduleBound) -> &'static str {
    match bound {
        ScheduleBound::MaxRisk => "--max-risk",
        ScheduleBound::MaxLoss => "--max-loss",
        ScheduleBound::MaxDelay => "--max-delay",
        ScheduleBound::MaxDeliveredDelay => "the maximum delay of the symbols that arrive,",
        ScheduleBound::MinRate => "--min-rate",
        ScheduleBound::MaxCost => "--max-cost",
    }
}

fn range(bound: ScheduleBound) -> &'static str {
    match bound {
        ScheduleBound::MaxRisk | ScheduleBound::MaxLoss => "0 to 1",
        _ => "0 or more",
    }
}

/// Rounded so that a request with the printed value is feasible.
fn infeasible(bound: ScheduleBound, wanted: f64, best: f64) -> String {
    let best = match bound {
        ScheduleBound::MaxRisk => format!("least risk is {}", rounded_up(best)),
        ScheduleBound::MaxLoss => format!("least loss is {}", rounded_up(best)),
        ScheduleBound::MaxDelay => format!("least delay is {} ms", rounded_up(best)),
        ScheduleBound::MaxDeliveredDelay => format!("least is {} ms", rounded_up(best)),
        ScheduleBound::MaxCost => format!("least price of a GB is {}", rounded_up(best)),
        ScheduleBound::MinRate => format!("highest rate is {} Mbit/s", rounded_down(best)),
    };
    let option = option(bound);
    format!("{option} {wanted} cannot be met: with the other requirements, the {best}")
}
