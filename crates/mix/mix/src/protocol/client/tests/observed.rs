//! An attacker on the path of all clients delays and drops messages and cuts connections. It sees
//! nothing that depends on messages: the times and lengths are the same, whoever wrote to whom, or
//! whether anybody wrote.

use std::time::Duration;

use super::exchanges::{EXCHANGES, Exchanges, OBLIVIOUS};
use super::person::NAMES;
use super::world::{Faults, Seen, World};
use crate::protocol::event::MixClientEvent;
use crate::protocol::presence::{Presence, PresenceAction};

/// The member that writes.
const WRITER: usize = 0;

/// The receivers to compare; `None` if it writes to nobody.
const SECRETS: [Option<usize>; 3] = [None, Some(1), Some(2)];

/// The number of rounds that the writer stays.
const STAY: u64 = 30;

/// When the attacker begins to act.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The writer has just been started, with queued messages.
    Start,
    /// The writer is in the middle of a conversation.
    Conversation,
    /// Its connection has been cut.
    Reconnect,
    /// It is about to leave.
    End,
}

const PHASES: [Phase; 4] = [Phase::Start, Phase::Conversation, Phase::Reconnect, Phase::End];

/// When the writer leaves.
#[derive(Clone, Copy, Debug)]
enum Leaves {
    AfterRounds,
    /// When all of its messages have arrived.
    OnDelivery,
}

/// `SUNDER_SEEDS=N` runs as many seeds, each in all phases. The bound is then that of each kind of
/// exchange, for which eleven seeds are enough.
#[test]
fn traffic_does_not_depend_on_who_writes_to_whom() {
    let of_kinds = EXCHANGES.map(check_traffic);
    let is_long = std::env::var_os("SUNDER_SEEDS").is_some();
    let runs: usize =
        if is_long { of_kinds.into_iter().min().unwrap() } else { of_kinds.into_iter().sum() };
    assert!(most_advantage(runs) <= 0.05, "{of_kinds:?} runs");
}

/// Returns the number of runs.
fn check_traffic(exchange: Exchanges) -> usize {
    let runs = sim::run_seeds(4, |seed| PHASES.map(|phase| is_the_same(exchange, seed, phase)));
    let runs: Vec<(bool, usize)> = runs.into_iter().flatten().collect();
    let different = runs.iter().filter(|(is_same, _)| !is_same).count();
    assert_eq!(different, 0, "of {} runs", runs.len());
    let read: usize = runs.iter().map(|(_, read)| *read).sum();
    assert!(2 * read > 3 * runs.len(), "{read} messages and answers were read");
    println!(
        "{exchange:?}: {} runs; by 99 %, a guess is right by at most chance + {:.4}",
        runs.len(),
        most_advantage(runs.len())
    );
    runs.len()
}

/// How much more often than by chance a guess is right at most, by 99 %. If all runs look the same,
/// the best guess is correct only by chance. If a fraction x of all runs differed, n equal runs in
/// a row would have probability (1 - x)^n.
fn most_advantage(runs: usize) -> f64 {
    let count = f64::from(u32::try_from(runs).unwrap());
    (1.0 - 0.01_f64.powf(1.0 / count)) / 2.0
}

/// Shows that the test can fail: it detects a client that leaves when its message has arrived.
#[test]
fn leaving_on_delivery_is_detected() {
    let differ = |seed: u64, phase| {
        let [one, other] = [SECRETS[1], SECRETS[2]]
            .map(|secret| run(OBLIVIOUS, seed, phase, secret, Leaves::OnDelivery).0);
        one != other
    };
    // Both messages can arrive at the same time by chance.
    let found = [3, 4].map(|seed| PHASES.map(|phase| differ(seed, phase)));
    let count = found.as_flattened().iter().filter(|it| **it).count();
    assert!(2 * count > found.as_flattened().len(), "{count} are found");
}

/// Whether the runs of all secrets look the same, and the number of messages read.
fn is_the_same(exchange: Exchanges, seed: u64, phase: Phase) -> (bool, usize) {
    let [none, one, other] =
        SECRETS.map(|secret| run(exchange, seed, phase, secret, Leaves::AfterRounds));
    if let Some(at) = none.0.iter().zip(&one.0).position(|(one, other)| one != other) {
        println!("{seed} {phase:?}: {:?} and {:?}", none.0[at], one.0[at]);
    }
    (none.0 == one.0 && none.0 == other.0, one.1 + other.1)
}

/// What the attacker sees, and the number of messages read.
fn run(
    exchange: Exchanges,
    seed: u64,
    phase: Phase,
    secret: Option<usize>,
    leaves: Leaves,
) -> (Vec<Seen>, usize) {
    let mut world = World::of_members(exchange, seed);
    world.seen.clear();
    let text = " and on".repeat(usize::try_from(seed % 7).unwrap() * 8);
    if let Some(to) = secret {
        assert!(world.people[WRITER].say(NAMES[to], &text));
    }
    if matches!(phase, Phase::Start) {
        // Its messages are on the disk before it is restarted.
        (0..20).for_each(|_| world.tick());
        world.restart(WRITER);
    }
    let mut presence = Presence::new(world.now);
    presence.leave_after(STAY);
    let begins_at = match phase {
        Phase::Start => 0,
        Phase::Conversation | Phase::Reconnect => STAY / 3,
        Phase::End => STAY - 5,
    };
    let before = world.people[WRITER].client.exchanges();
    let (mut rounds, mut acts) = (before, false);
    let end = world.now + Duration::from_secs(60);
    while world.now < end {
        if !acts && rounds - before >= begins_at {
            act(&mut world, seed, phase);
            acts = true;
        }
        world.tick();
        answer(&mut world);
        let now = world.people[WRITER].client.exchanges();
        (rounds..now).for_each(|_| presence.handle_round());
        rounds = now.max(rounds);
        let is_delivered = world.people[WRITER].undelivered() == 0 && secret.is_some();
        let is_over = match leaves {
            Leaves::AfterRounds => presence.poll(world.now) == Some(PresenceAction::Leave),
            Leaves::OnDelivery => is_delivered,
        };
        if is_over {
            world.leave(WRITER);
            break;
        }
    }
    // Lets the others continue.
    (0..200).for_each(|_| world.tick());
    let read = world.people.iter().flat_map(|it| it.read.values()).map(Vec::len).sum();
    (world.seen, read)
}

/// Delays one of the others, or what one sends is lost, or it is cut off.
fn act(world: &mut World, seed: u64, phase: Phase) {
    let victim = 1 + usize::try_from(seed % 2).unwrap();
    if matches!(phase, Phase::Reconnect) {
        world.cut_of(WRITER);
    }
    match seed / 2 % 4 {
        0 => world.delays[victim] = Duration::from_millis(300),
        1 => world.cut_of(victim),
        2 => world.faults = Faults { lost: 20, ..Faults::default() },
        _ => world.delays[WRITER] = Duration::from_millis(100),
    }
}

/// Clients answer the messages that they have received.
fn answer(world: &mut World) {
    for person in 1..NAMES.len() {
        let got = world.people[person].read.get(NAMES[WRITER]).map_or(0, Vec::len);
        let answered = world.people[person].sent.get(NAMES[WRITER]).map_or(0, Vec::len);
        if answered < got {
            world.people[person].say(NAMES[WRITER], "");
        }
    }
    for person in &world.people {
        let is_given_up = |event: &MixClientEvent| matches!(event, MixClientEvent::GivenUp { .. });
        assert!(!person.reported.iter().any(is_given_up));
    }
}
