//! A schedule tried out: symbols sent one by one in a simulation.

use fastrand::Rng;
use model::ChannelSet;
use model::simulate::{Estimates, Simulation};

use super::answer::Answer;
use crate::failure::Failure;
use crate::progress::Progress;

/// The same draws each time, so that two runs can be compared.
const SEED: u64 = 0x0073_756e_6465_7221;

/// How many symbols are sent between two looks at the progress bar.
const CHUNK: usize = 100_000;

/// Sends so many symbols by the answer's schedule.
///
/// # Errors
/// When there is no schedule.
pub(super) fn run(set: &ChannelSet, answer: &Answer, symbols: u64) -> Result<Estimates, Failure> {
    let made = answer.made.as_ref().ok_or_else(|| {
        Failure::Usage(String::from(
            "--simulate needs a schedule: give --kappa and --mu, an --objective or a bound",
        ))
    })?;
    let mut rng = Rng::with_seed(SEED);
    let mut simulation = Simulation::new(set, &made.schedule);
    let progress = Progress::steps(symbols);
    let mut left = symbols;
    while left > 0 {
        let chunk = usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK));
        simulation.run(chunk as u64, &mut || rng.u64(..));
        progress.advance(chunk);
        left -= chunk as u64;
    }
    Ok(simulation.estimates())
}
