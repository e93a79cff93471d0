//! Explains why there is no plan, with the names of the command line's options.

use model::{Bound, PlanError, PlanRequestError};

use crate::failure::Failure;
use crate::numbers::{rounded_down, rounded_up};

/// The failure: which option is wrong, and what is possible.
pub(super) fn refuse(error: PlanError) -> Failure {
    match error {
        PlanError::Request(PlanRequestError::Bound(bound, value)) => Failure::Usage(format!(
            "{} {value} is not within its range; give {}",
            option(bound),
            range(bound)
        )),
        PlanError::Request(error) => Failure::Usage(error.to_string()),
        PlanError::Infeasible { bound, wanted, best } => {
            Failure::Usage(infeasible(bound, wanted, best))
        }
        error @ PlanError::Solver(_) => Failure::Failed(error.to_string()),
    }
}

/// The option for a bound of the model.
fn option(bound: Bound) -> &'static str {
    match bound {
        Bound::MaxRisk => "--max-risk",
        Bound::MaxLoss => "--max-loss",
        Bound::MaxDelay => "--max-delay",
        Bound::MaxDeliveredDelay => "the highest delay of what arrives,",
        Bound::MinRate => "--min-rate",
    }
}

fn range(bound: Bound) -> &'static str {
    match bound {
        Bound::MaxRisk | Bound::MaxLoss => "0 to 1",
        _ => "0 or more",
    }
}

/// Rounded so that a request with the printed value is feasible.
fn infeasible(bound: Bound, wanted: f64, best: f64) -> String {
    let best = match bound {
        Bound::MaxRisk => format!("least risk is {}", rounded_up(best)),
        Bound::MaxLoss => format!("least loss is {}", rounded_up(best)),
        Bound::MaxDelay => format!("least delay is {} ms", rounded_up(best)),
        Bound::MaxDeliveredDelay => format!("least is {} ms", rounded_up(best)),
        Bound::MinRate => format!("highest rate is {} Mbit/s", rounded_down(best)),
    };
    let option = option(bound);
    format!("{option} {wanted} cannot be kept: with the rest of what is asked, the {best}")
}
