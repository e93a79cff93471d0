//! Both ends of a stream in virtual time, from the cookies to the end, over channels that delay,
//! stall, break, trickle, and change what they carry. The only outcomes are the exact bytes of the
//! other application, or an error.

mod application;
mod scenario;
mod wire;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sim::SeededRng;

use self::scenario::{STEADY_TIME, StreamScenario};
use self::world::StreamSimulation;
use super::{StreamFailure, StreamProtocolError};

const CLIENT: usize = 0;
const SERVER: usize = 1;

/// For how long an application may hear nothing while as many channels work as are needed.
const MAX_SILENCE: Duration = Duration::from_secs(3);

/// The timers that have to fire in some of the runs, with the phase in which they do.
const TIMERS: [&str; 17] = [
    "cookies",
    "table",
    "Confirming Limit",
    "Answer Limit",
    "Request Limit",
    "Refused Limit",
    "Confirming Coalesce",
    "Open Coalesce",
    "Confirming Confirm",
    "Answer Receive",
    "Request Receive",
    "Open Receive",
    "Open Behind",
    "Open Silence",
    "Open LostChannel",
    "Open ShrinkIncoming",
    "Open ShrinkOutgoing",
];

/// `SUNDER_SEEDS=N` runs as many seeds, `SUNDER_SEED=S` one of them.
#[test]
fn streams_are_exact_or_fail() {
    let runs = sim::run_seeds(1_200, run);
    let mut counts = BTreeMap::<&str, u64>::new();
    for seen in runs.iter().flatten() {
        *counts.entry(seen).or_default() += 1;
    }
    println!("{counts:#?}");
    // An abort is seldom stuck: it takes a connection that is full at the end of a record.
    let rare = (runs.len() >= 10_000).then_some("Aborting Limit");
    for timer in TIMERS.into_iter().chain(rare).filter(|_| runs.len() > 1) {
        assert!(counts.contains_key(timer), "{timer} has not fired");
    }
}

/// Channels fail in random sequences. `SUNDER_SEEDS` and `SUNDER_SEED` as above.
#[test]
fn streams_outlast_sequences_of_outages() {
    let runs = sim::run_seeds(100, |seed| {
        let mut rng = SeededRng::new(seed);
        let scenario = StreamScenario::of_outages(&mut rng);
        let mut world = StreamSimulation::new(&scenario, seed);
        world.run_steadily(STEADY_TIME, MAX_SILENCE);
        for end in [CLIENT, SERVER] {
            assert!(world.end(end).application.is_exact(), "seed {seed}: other bytes");
        }
        world.into_seen()
    });
    let rejoined = runs.iter().filter(|seen| seen.contains("rejoined")).count();
    assert!(2 * rejoined >= runs.len(), "channels rejoin in {rejoined} of {} runs", runs.len());
}

/// Runs a seed. Returns which timers fired, and how both ends ended.
fn run(seed: u64) -> BTreeSet<String> {
    let mut rng = SeededRng::new(seed);
    let scenario = if rng.chance(20) {
        StreamScenario::rare(&mut rng)
    } else {
        StreamScenario::random(&mut rng)
    };
    let mut world = StreamSimulation::new(&scenario, seed);
    world.run();
    for end in [CLIENT, SERVER] {
        let (own, peer_says) = (world.end(end), scenario.ends[1 - end].says);
        let context = format!(
            "seed {seed}, end {end}, at {:?}: {:?}, {}, {scenario:#?}",
            world.now(),
            own.failure,
            own.state()
        );
        let is_whole = own.application.heard() == peer_says;
        if scenario.must_be_exact() {
            assert!(own.application.is_exact(), "other bytes: {context}");
            assert!(!own.application.has_heard_all() || is_whole, "cut short: {context}");
        }
        if scenario.must_end() {
            assert!(own.is_over, "not over: {context}");
        }
        if scenario.must_succeed() {
            let in_time = world.now() < scenario.must_finish_within();
            assert!(in_time, "late: {context}");
            assert!(own.has_finished && is_whole, "not finished: {context}");
        }
        if let Some(refusal) = scenario.must_refuse()
            && end == CLIENT
        {
            let is_refused = matches!(
                own.failure,
                Some(StreamFailure::Protocol(StreamProtocolError::Refused(it))) if it == refusal
            );
            assert!(is_refused, "not refused: {context}");
        }
    }
    world.into_seen()
}

/// A time of so many milliseconds.
fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
