//! Predictions of the channel model for a tunnel over a trial's links (ReMICSS, IV).

use model::{OptimalSchedule, PlanRequest, ScheduleObjective, ScheduleRequirements};

use super::sweep::SweepCombination;
use crate::channel_model::{at_full_rate, channels};
use crate::trial::Trial;

/// The maximum payload rate of a tunnel over all links at the swept or set `mu`: `R_C`. As in
/// ReMICSS, VI-A, a channel's rate is that of datagrams over it alone.
pub(crate) fn rate(trial: &Trial, combination: &SweepCombination) -> Option<f64> {
    channels(trial.links.values())?.best_rate(combination.number("mu")?)
}

/// The minimum loss at full rate (IV-D).
pub(crate) fn loss(trial: &Trial, combination: &SweepCombination) -> Option<f64> {
    Some(plan(trial, combination, ScheduleObjective::Loss)?.averages.loss)
}

/// The minimum mean delay at full rate (IV-D).
pub(crate) fn delay(trial: &Trial, combination: &SweepCombination) -> Option<f64> {
    Some(plan(trial, combination, ScheduleObjective::Delay)?.averages.delay_ms)
}

/// The optimal plan at `kappa` and `mu`, with thresholds from `min_threshold` (by default 1).
fn plan(
    trial: &Trial,
    combination: &SweepCombination,
    objective: ScheduleObjective,
) -> Option<OptimalSchedule> {
    let (kappa, mu) = (combination.number("kappa")?, combination.number("mu")?);
    let floor = combination.number("min_threshold").unwrap_or(1.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let requirements =
        ScheduleRequirements { min_k: floor as usize, ..at_full_rate(kappa, mu, objective) };
    channels(trial.links.values())?.plan(&PlanRequest::new(requirements).ok()?).ok()
}
