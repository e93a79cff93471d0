//! Refreshes in virtual time, with f Byzantine servers in each group, correct servers that crash at
//! any step, and links that lose, delay and reorder messages. The outcome is always the same: one
//! new group, right shares at its correct servers, and no correct server is accused.

mod adversary;
mod process;
mod scenario;
mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use sim::SeededRng;

use self::scenario::RefreshScenario;
use self::world::RefreshSimulation;

/// Events that must happen in some of the runs.
const EVENTS: [&str; 22] = [
    "message: Dealing",
    "message: Confirmation",
    "message: Need",
    "message: Fetch",
    "message: Proofs",
    "message: Ask",
    "message: Shares",
    "message: AskSum",
    "message: Sum",
    "Final",
    "Cancelled",
    "excluded",
    "false complaint",
    "crash",
    "restart",
    "faulty: Confirmations",
    "refused: Faulty",
    "refused: NoSessionKey",
    "refused: NotChosen",
    "refused: OtherRun",
    "faulty: Possession",
    "refused: Signature",
];

/// `SUNDER_SEEDS=N` runs this many seeds, `SUNDER_SEED=S` only this one.
#[test]
fn a_refresh_is_safe_and_finishes() {
    let runs = sim::run_seeds(120, run);
    let mut counts = BTreeMap::<&String, u64>::new();
    for (what, count) in runs.iter().flatten() {
        *counts.entry(what).or_default() += count;
    }
    println!("{counts:#?}");
    for event in EVENTS.map(str::to_owned).iter().filter(|_| runs.len() > 1) {
        assert!(counts.contains_key(event), "{event}: not in any run");
    }
}

/// Runs a seed. Returns the events, with their numbers.
fn run(seed: u64) -> BTreeMap<String, u64> {
    let mut rng = SeededRng::new(seed);
    let scenario = RefreshScenario::random(&mut rng);
    let mut world = RefreshSimulation::new(scenario, seed, rng);
    world.run();
    world.check();
    world.seen()
}

/// A time of this many milliseconds.
fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
