//! Simulates a schedule symbol by symbol.

use console::CommandFailure;
use console::CommandProgress;
use fastrand::Rng;
use model::ChannelSet;
use model::simulate::{ScheduleSimulation, SimulationEstimates};

use planning::PlanAnswer;

/// A fixed seed, so that two runs can be compared.
const SEED: u64 = 0x0073_756e_6465_7221;

/// The number of symbols between updates of the progress bar.
const CHUNK: usize = 100_000;

/// Simulates symbols with the answer's schedule.
///
/// # Errors
/// If there is no schedule.
pub(super) fn run(
    set: &ChannelSet,
    answer: &PlanAnswer,
    symbols: u64,
) -> Result<SimulationEstimates, CommandFailure> {
    let planned = answer.planned.as_ref().ok_or_else(|| {
        CommandFailure::Usage(String::from(
            "--simulate needs a schedule: give --kappa and --mu, an --objective or a bound",
        ))
    })?;
    let mut rng = Rng::with_seed(SEED);
    let mut simulation = ScheduleSimulation::new(set, &planned.schedule);
    let progress = CommandProgress::steps(symbols);
    let mut left = symbols;
    while left > 0 {
        let chunk = usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
        simulation.run(chunk as u64, &mut || rng.u64(..));
        progress.advance(chunk);
        left -= chunk as u64;
    }
    Ok(simulation.estimates())
}
