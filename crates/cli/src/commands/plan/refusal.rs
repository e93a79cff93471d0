//! Explains why there is no plan, with the names of the command line's options.

use model::{Bound, PlanError, PlanRequestError};

use crate::failure::Failure;
use crate::numbers::{rounded_down, rounded_up};

/// The failure: which option is wrong, and what is possible.
pub(super) fn refuse(error: PlanError) -> Failure {
    match error {
        PlanError::Request(PlanRequestError::Bound(name, value)) => Failure::Usage(format!(
            "{} {value} is not within its range; give {}",
            option(name),
            range(name)
        )),
        PlanError::Request(error) => Failure::Usage(error.to_string()),
        PlanError::Infeasible { bound, wanted, best } => {
            Failure::Usage(infeasible(bound, wanted, best))
        }
        error @ PlanError::Solver(_) => Failure::Failed(error.to_string()),
    }
}

/// The option for a bound of the model.
fn option(name: &str) -> &str {
    match name {
        "risk" => "--max-risk",
        "loss" => "--max-loss",
        "delay" => "--max-delay",
        "rate" => "--min-rate",
        other => other,
    }
}

fn range(name: &str) -> &'static str {
    match name {
        "risk" | "loss" => "0 to 1",
        _ => "0 or more",
    }
}

/// Rounded so that a request with the printed value is feasible.
fn infeasible(bound: Bound, wanted: f64, best: f64) -> String {
    let (option, best) = match bound {
        Bound::MaxRisk => ("--max-risk", format!("least risk is {}", rounded_up(best))),
        Bound::MaxLoss => ("--max-loss", format!("least loss is {}", rounded_up(best))),
        Bound::MaxDelay => ("--max-delay", format!("least delay is {} ms", rounded_up(best))),
        Bound::MaxDeliveredDelay => {
            ("the highest delay of what arrives,", format!("least is {} ms", rounded_up(best)))
        }
        Bound::MinRate => ("--min-rate", format!("highest rate is {} Mbit/s", rounded_down(best))),
    };
    format!("{option} {wanted} cannot be kept: with the rest of what is asked, the {best}")
}
