//! Clients that are killed, started from backups and have full disks, at a proxy whose slot length
//! changes. Messages that are marked as delivered were shown completely and once.

use std::collections::BTreeSet;
use std::time::Duration;

use super::exchanges::{EXCHANGES, Exchanges, OBLIVIOUS};
use super::person::{Backup, CROWD, NAMES, secret};
use super::world::{Faults, World};
use crate::protocol::client::state::decode;
use crate::protocol::event::MixClientEvent;

const ROUNDS: u64 = 250;

/// `SUNDER_SEEDS=N` runs as many sequences.
#[test]
fn delivered_messages_were_shown_whole_and_once() {
    let runs = sim::run_seeds(4, |seed| EXCHANGES.map(|exchange| run(exchange, seed)));
    let runs = runs.as_flattened();
    let sum = |of: fn(&Counts) -> usize| runs.iter().map(of).sum::<usize>();
    let [marked, restored, full] =
        [sum(|run| run.marked), sum(|run| run.restored), sum(|run| run.full)];
    let [resized, given_up] = [sum(|run| run.resized), sum(|run| run.given_up)];
    println!(
        "{} sequences: {restored} backups restored, {full} full disks, {resized} lengths, {marked} \
         messages marked, {given_up} given up",
        runs.len()
    );
    assert!(restored.min(full).min(resized) > 2 * runs.len() && marked > 20 * runs.len());
}

#[test]
fn shown_events_are_not_in_the_state_of_a_client_that_ends() {
    let mut world = World::of_members(OBLIVIOUS, 1);
    let client = &mut world.people[0].client;
    // Only the third has the sender's key: a version before did not keep it.
    let sender = Some(secret(1).public());
    let message = |text: &str| MixClientEvent::Message {
        key: sender.filter(|_| text == "third"),
        from: NAMES[1].into(),
        text: text.into(),
    };
    client.events = ["first", "second", "third"].map(message).into();
    client.is_stored = false;
    (client.poll_store(), client.handle_stored()).0.expect("a changed state");
    assert_eq!(client.event(), Some(&message("first")));
    client.handle_shown();
    assert!(client.is_stored(), "all that came together is noted together");
    client.store_without_shown();
    let state = client.poll_store().expect("a changed state");
    client.handle_stored();
    let restored = decode(&state, &client.settings.group, 2).unwrap();
    assert_eq!(restored.events, [message("second"), message("third")]);
    client.store_without_shown();
    assert!(client.is_stored(), "nothing was shown since");
}

#[derive(Default)]
struct Counts {
    marked: usize,
    restored: usize,
    full: usize,
    resized: usize,
    given_up: usize,
}

fn run(exchange: Exchanges, seed: u64) -> Counts {
    let mut world = World::of_members(exchange, seed);
    let mut counts = Counts::default();
    let mut backups: Vec<(usize, Backup)> = Vec::new();
    world.faults = Faults { cuts: 1, clients: 1, ..Faults::default() };
    world.people.iter_mut().for_each(|person| person.has_restored = true);
    let (mut sent, mut checked) = (0, [0; NAMES.len()]);
    let end = world.rounds + ROUNDS;
    while world.rounds < end {
        world.tick();
        match world.rng.u32(0..2_000) {
            // Some texts have several fragments.
            0..60 => {
                sent += 1;
                let (from, to) = (world.rng.usize(0..NAMES.len()), world.rng.usize(0..NAMES.len()));
                let padding = " and on".repeat(world.rng.usize(0..20));
                if from != to {
                    world.people[from].say(NAMES[to], &format!("{padding} number {sent}."));
                }
            }
            60..66 => {
                let person = world.rng.usize(0..NAMES.len());
                backups.push((person, world.people[person].backup()));
            }
            66..70 if !backups.is_empty() => {
                counts.restored += 1;
                let (person, backup) = backups[world.rng.usize(0..backups.len())].clone();
                world.people[person].restore(backup);
                world.restart(person);
            }
            70..74 => {
                counts.full += 1;
                let person = world.rng.usize(0..NAMES.len());
                let now = world.now;
                world.people[person].full_until = Some(now + Duration::from_secs(2));
            }
            74..77 => {
                counts.resized += 1;
                world.slot_len = [64, 96, 130][world.rng.usize(0..3)];
                world.stop_proxy();
            }
            _ => {}
        }
        let now = world.now;
        for person in &mut world.people {
            person.full_until = person.full_until.filter(|until| *until > now);
        }
        check(&mut world, &mut checked, sent);
    }
    world.people.iter_mut().for_each(|person| person.full_until = None);
    world.finish();
    check(&mut world, &mut checked, sent);
    for person in &world.people {
        counts.marked += person.marked.len();
        counts.given_up += person.given_up.len();
        let is_wrong =
            |event: &&MixClientEvent| matches!(event, MixClientEvent::NotOfThisRound { .. });
        assert_eq!(person.reported.iter().find(is_wrong), None);
    }
    counts
}

/// Checks that messages marked as delivered were shown, that no message is read twice, and that the
/// last message of each sender is complete, and that messages are in order. Deliveries that were
/// checked before are skipped. `said` is the number of the last text so far.
pub(super) fn check(world: &mut World, checked: &mut [usize], said: u32) {
    for person in &mut world.people {
        if std::mem::take(&mut person.was_restored) {
            person.restored_after = said;
        }
    }
    for ((sender, name), checked) in world.people.iter().zip(CROWD).zip(checked) {
        for (to, text) in &sender.marked[*checked..] {
            let receiver = CROWD.iter().position(|name| name == to).unwrap();
            let shown = &world.people[receiver].shown;
            assert!(shown.contains(&(name.to_owned(), text.clone())), "not shown: {text}");
        }
        *checked = sender.marked.len();
        for (from, texts) in &sender.read {
            let different: BTreeSet<_> = texts.iter().collect();
            assert_eq!(different.len(), texts.len(), "doubled: {texts:?}");
            assert!(texts.last().unwrap().ends_with('.'), "cut off");
            let from = &world.people[CROWD.iter().position(|name| name == from).unwrap()];
            let after = from.restored_after.max(sender.restored_after);
            let numbers = texts.iter().filter_map(|text| number_in(text)).filter(|it| *it > after);
            assert!(numbers.is_sorted(), "out of order: {texts:?}");
        }
    }
}

/// The number at the end of a text, which is greater in later ones.
fn number_in(text: &str) -> Option<u32> {
    text.rsplit_once(" number ")?.1.trim_end_matches('.').parse().ok()
}
