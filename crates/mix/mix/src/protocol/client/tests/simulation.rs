//! A thousand rounds of three clients and a proxy, over connections that are cut or lose messages.
//! The clients and the proxy are killed at any step and restarted from their stored state.

use super::exchanges::{EXCHANGES, Exchanges};
use super::person::NAMES;
use super::world::{Faults, World};
use crate::protocol::client::MixClientError;
use crate::protocol::wire::ProxyRefusal;

const ROUNDS: u64 = 1_000;

/// `SUNDER_SEEDS=N` runs as many seeds, `SUNDER_SEED=S` one of them.
#[test]
fn no_message_is_lost_or_doubled_in_a_thousand_rounds() {
    let runs = sim::run_seeds(2, |seed| EXCHANGES.map(|exchange| run(exchange, seed)));
    let runs = runs.as_flattened();
    let restarts: u64 = runs.iter().map(|it| it.0).sum();
    let messages: usize = runs.iter().map(|it| it.1).sum();
    println!("{} runs: {restarts} restarts, {messages} messages", runs.len());
    assert!(restarts > 20 * runs.len() as u64 && messages > 100 * runs.len());
}

/// Returns the number of restarts, and the number of messages read.
fn run(exchange: Exchanges, seed: u64) -> (u64, usize) {
    // In each second run nothing is lost but by cut connections: then no end finds fault with the
    // other.
    let lost = if seed.is_multiple_of(2) { 0 } else { 3 };
    let mut world =
        World::new(exchange, seed, Faults { cuts: 2, clients: 2, proxy: 1, lost, days: 100 });
    while world.rounds < ROUNDS {
        world.tick();
        if world.rng.u32(0..40) == 0 {
            speak(&mut world);
        }
    }
    world.finish();
    world.check_all_read();
    for (person, error) in &world.errors {
        let is_fair = match error {
            // Connecting again is enough. A request to join can cross the announcement.
            MixClientError::Refused(ProxyRefusal::Replaced | ProxyRefusal::AlreadyMember)
            | MixClientError::Displaced
            | MixClientError::NoKey => true,
            error => lost > 0 && !error.is_final(),
        };
        assert!(is_fair, "{}: {error}", NAMES[*person]);
    }
    let messages = world.people.iter().flat_map(|it| it.read.values()).map(Vec::len).sum();
    (world.restarts, messages)
}

fn speak(world: &mut World) {
    let (from, to) = (world.rng.usize(0..NAMES.len()), world.rng.usize(0..NAMES.len()));
    // Short ones in most cases, and some of several fragments.
    let long = world.rng.u32(0..5) == 0;
    let padding = if long { " and on".repeat(world.rng.usize(0..60)) } else { String::new() };
    if from != to {
        world.people[from].say(NAMES[to], &padding);
    }
}
