//! Bounds on the averages of what an end sends.

use std::fmt::{self, Display, Formatter};

use model::ScheduleBound;

/// Bounds on the averages of a plan. `None`: any value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlanBounds {
    /// The highest risk.
    pub max_risk: Option<f64>,
    /// The highest loss.
    pub max_loss: Option<f64>,
    /// The highest mean delay of the symbols sent, in ms.
    pub max_delay_ms: Option<f64>,
    /// The lowest rate, in Mbit/s.
    pub min_rate_mbit: Option<f64>,
}

/// A bound that no schedule keeps at kappa and mu over the channels that are up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnmetBound {
    /// The bound.
    pub bound: ScheduleBound,
    /// Its value.
    pub wanted: f64,
    /// The best possible value, with the bounds before it: risk, loss and delay, after the rate.
    pub best: f64,
}

impl Display for UnmetBound {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let (key, extreme, unit) = match self.bound {
            ScheduleBound::MaxRisk => ("max_risk", "least risk", ""),
            ScheduleBound::MaxLoss => ("max_loss", "least loss", ""),
            ScheduleBound::MaxDelay => ("max_delay_ms", "least delay", " ms"),
            ScheduleBound::MaxDeliveredDelay => ("the delay", "least delay", " ms"),
            ScheduleBound::MaxCost => ("the price of a GB", "least price", ""),
            ScheduleBound::MinRate => ("min_rate_mbit", "highest rate", " Mbit/s"),
        };
        let Self { wanted, best, .. } = self;
        write!(out, "{key} = {wanted} cannot be kept: the {extreme} is {best:.4}{unit}")
    }
}
