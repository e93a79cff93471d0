//! One on the path of all clients, who delays, loses and cuts what it likes, sees nothing that
//! depends on messages: the same times and lengths, whoever wrote to whom, or whether anybody did.

use std::time::Duration;

use super::person::NAMES;
use super::world::{Faults, Seen, World};
use crate::client::MixClientEvent;
use crate::presence::{Presence, PresenceAction};

/// The one that writes.
const WRITER: usize = 0;

/// To whom it writes, if to anybody.
const SECRETS: [Option<usize>; 3] = [None, Some(1), Some(2)];

/// The rounds that the writer stays.
const STAY: u64 = 30;

/// When one on the path begins to act.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The writer has just been started, with what it is to say.
    Start,
    /// It is in the middle of a conversation.
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
    /// As a client would that ends when all has arrived.
    OnDelivery,
}

/// `SUNDER_SEEDS=N` runs as many seeds, each in all phases.
#[test]
fn nobody_on_the_path_sees_who_writes_to_whom() {
    let runs = sim::run_seeds(25, |seed| PHASES.map(|phase| is_the_same(seed, phase)));
    let runs: Vec<(bool, usize)> = runs.into_iter().flatten().collect();
    let different = runs.iter().filter(|(is_same, _)| !is_same).count();
    assert_eq!(different, 0, "of {} runs", runs.len());
    let read: usize = runs.iter().map(|(_, read)| *read).sum();
    assert!(2 * read > 3 * runs.len(), "{read} messages and answers were read");
    // Where all are the same, the best guess is right by chance. If it were not so in a part x of
    // all runs, this many in a row would be the same with probability (1 - x)^n.
    let count = f64::from(u32::try_from(runs.len()).unwrap());
    let bound = 1.0 - 0.01_f64.powf(1.0 / count);
    println!(
        "{} runs; by 99 %, a guess is right by at most chance + {:.4}",
        runs.len(),
        bound / 2.0
    );
    assert!(bound / 2.0 <= 0.05);
}

/// The test can fail: it finds a client that leaves when its message has arrived.
#[test]
fn who_leaves_on_delivery_is_seen() {
    let differ = |phase| {
        let traces = SECRETS.map(|secret| run(3, phase, secret, Leaves::OnDelivery).0);
        traces[1] != traces[2]
    };
    assert!(PHASES.map(differ).iter().filter(|it| **it).count() >= 3);
}

/// Whether all secrets look the same, and how many messages were read.
fn is_the_same(seed: u64, phase: Phase) -> (bool, usize) {
    let [none, one, other] = SECRETS.map(|secret| run(seed, phase, secret, Leaves::AfterRounds));
    if let Some(at) = none.0.iter().zip(&one.0).position(|(one, other)| one != other) {
        println!("{seed} {phase:?}: {:?} and {:?}", none.0[at], one.0[at]);
    }
    (none.0 == one.0 && none.0 == other.0, one.1 + other.1)
}

/// What is seen, and how many messages were read.
fn run(seed: u64, phase: Phase, secret: Option<usize>, leaves: Leaves) -> (Vec<Seen>, usize) {
    let mut world = World::of_members(seed);
    world.seen.clear();
    let text = " and on".repeat(usize::try_from(seed % 7).unwrap() * 8);
    if let Some(to) = secret {
        assert!(world.people[WRITER].say(NAMES[to], &text));
    }
    if matches!(phase, Phase::Start) {
        // What it said is on the disk before it is started.
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
    // What the others do afterwards.
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

/// Who has got something answers.
fn answer(world: &mut World) {
    for person in 1..NAMES.len() {
        let got = world.people[person].read.get(NAMES[WRITER]).map_or(0, Vec::len);
        let said = world.people[person].said.get(NAMES[WRITER]).map_or(0, Vec::len);
        if said < got {
            world.people[person].say(NAMES[WRITER], "");
        }
    }
    for person in &world.people {
        let is_given_up = |event: &MixClientEvent| matches!(event, MixClientEvent::GivenUp { .. });
        assert!(!person.told.iter().any(is_given_up));
    }
}
