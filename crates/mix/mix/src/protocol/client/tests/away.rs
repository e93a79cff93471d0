//! Members that are never there together: the proxy keeps the rounds between.

use std::time::Duration;

use super::exchanges::{Exchanges, KEPT};
use super::person::NAMES;
use super::world::World;
use crate::protocol::client::MixClientError;
use crate::protocol::event::{MissedReason, MixClientEvent};
use crate::protocol::round::RoundPosition;
use crate::protocol::wire::{ArchiveRecord, ProxyToMember};

const BOB: usize = 1;
const CAROL: usize = 2;
const HOUR: Duration = Duration::from_secs(3_600);

/// A group whose members are away, except its administrator.
fn world(exchange: Exchanges, seed: u64) -> World {
    let mut world = World::of_members(exchange, seed);
    // The administrator has received the prekeys for the next epochs.
    run_rounds(&mut world, 10);
    world.leave(BOB);
    world.leave(CAROL);
    run_rounds(&mut world, 5);
    world
}

fn run_rounds(world: &mut World, count: u64) {
    let end = world.rounds + count;
    world.run_until("rounds go on", |world| world.rounds >= end);
}

/// A member comes, has caught up with all rounds, takes part in some, and goes.
fn visit(world: &mut World, person: usize, rounds: u64) {
    world.restart(person);
    world.run_until("it takes part", |world| world.people[person].status().exchanges > 0);
    run_rounds(world, rounds);
    world.run_until("its state is stored", |world| world.people[person].client.is_stored());
    world.leave(person);
}

fn missed(world: &World, person: usize) -> Vec<MissedReason> {
    let reason = |event: &MixClientEvent| match event {
        MixClientEvent::Missed { reason, .. } => Some(*reason),
        _ => None,
    };
    world.people[person].reported.iter().filter_map(reason).collect()
}

fn stored(world: &World, person: usize) -> usize {
    let is_it = |event: &&MixClientEvent| matches!(event, MixClientEvent::Stored { .. });
    world.people[person].reported.iter().filter(is_it).count()
}

#[test]
fn members_that_are_never_there_together_talk() {
    for seed in 0..6 {
        let mut world = world(KEPT, seed);
        world.restart(BOB);
        world.run_until("bob takes part", |world| world.people[BOB].status().exchanges > 0);
        // Some texts have several fragments.
        let count = 8;
        for number in 0..count {
            assert!(world.people[BOB].say("carol", &" and on".repeat(number * 5)));
        }
        world.run_until("all is kept", |world| stored(world, BOB) == count);
        world.run_until("it is stored", |world| world.people[BOB].client.is_stored());
        world.leave(BOB);
        assert_eq!(world.people[BOB].undelivered(), count);

        let epoch = world.people[0].status().epoch;
        // Epochs begin, and the proxy is started again, while both are away.
        for _ in 0..3 {
            world.now += HOUR * 25;
            if seed % 2 == 0 {
                world.now -= HOUR * 10;
            }
            run_rounds(&mut world, 3);
            world.stop_proxy();
            run_rounds(&mut world, 3);
        }
        assert!(world.people[0].status().epoch > epoch);
        if seed % 2 == 1 {
            // The rounds are older than two days.
            visit(&mut world, CAROL, 10);
            assert!(world.people[CAROL].read.is_empty());
            assert_eq!(missed(&world, CAROL), [MissedReason::NotKept]);
            continue;
        }
        visit(&mut world, CAROL, 10);
        assert_eq!(world.people[CAROL].read["bob"].len(), count);
        assert_eq!(missed(&world, CAROL), []);
        visit(&mut world, BOB, 10);
        assert_eq!(world.people[BOB].undelivered(), 0, "acknowledged while bob was away");
        assert_eq!(missed(&world, BOB), []);
        world.check_all_read();
    }
}

#[test]
fn rounds_that_have_arrived_are_read_before_the_next_epoch_begins() {
    let mut world = World::of_members(KEPT, 1);
    run_rounds(&mut world, 10);
    world.reads_nothing = Some(CAROL);
    assert!(world.people[BOB].say("carol", ""));
    world.run_until("it is kept", |world| stored(world, BOB) == 1);
    world.leave(BOB);
    let epoch = world.people[CAROL].status().epoch;
    world.now += HOUR * 25;
    world.run_until("an epoch begins", |world| world.people[CAROL].status().epoch > epoch);
    world.reads_nothing = None;
    run_rounds(&mut world, 5);
    assert_eq!(world.people[CAROL].read["bob"].len(), 1);
}

#[test]
fn a_member_that_leaves_when_an_epoch_begins_misses_nothing() {
    let mut world = World::of_members(KEPT, 0);
    run_rounds(&mut world, 10);
    let epoch = world.people[CAROL].status().epoch;
    world.now += HOUR * 25;
    world.run_until("an epoch begins", |world| world.people[CAROL].status().epoch > epoch);
    world.run_until("its state is stored", |world| world.people[CAROL].client.is_stored());
    world.leave(CAROL);
    visit(&mut world, CAROL, 10);
    assert_eq!(missed(&world, CAROL), []);
}

#[test]
fn a_restored_member_reads_what_is_kept_again() {
    let mut world = world(KEPT, 3);
    let backup = world.people[CAROL].backup();
    visit(&mut world, CAROL, 5);
    world.restart(BOB);
    world.run_until("bob takes part", |world| world.people[BOB].status().exchanges > 0);
    assert!(world.people[BOB].say("carol", ""));
    world.run_until("it is kept", |world| stored(world, BOB) == 1);
    visit(&mut world, CAROL, 10);
    assert_eq!(world.people[CAROL].read["bob"].len(), 1);
    world.run_until("bob knows", |world| world.people[BOB].undelivered() == 0);
    world.people[CAROL].restore(backup);
    world.people[CAROL].has_restored = true;
    visit(&mut world, CAROL, 10);
    assert_eq!(world.people[CAROL].read["bob"].len(), 1, "read again, once");
    assert!(world.people[BOB].say("carol", ""));
    world.run_until("it is kept", |world| stored(world, BOB) == 2);
    visit(&mut world, CAROL, 10);
    assert_eq!(world.people[CAROL].read["bob"].len(), 2);
}

#[test]
fn a_full_archive_stops_and_not_the_rounds() {
    let mut world = world(KEPT, 4);
    world.is_archive_full = true;
    world.restart(BOB);
    world.run_until("bob takes part", |world| world.people[BOB].status().exchanges > 0);
    assert!(world.people[BOB].say("carol", ""));
    run_rounds(&mut world, 20);
    assert_eq!(stored(&world, BOB), 0, "nothing is promised");
    world.is_archive_full = false;
    run_rounds(&mut world, 5);
    world.restart(CAROL);
    // Bob is still there, and sends again.
    world.finish();
    assert!(missed(&world, CAROL).contains(&MissedReason::NotKept));
    world.check_all_read();
}

#[test]
fn an_archive_with_few_bytes_keeps_the_last_rounds() {
    let mut world = world(KEPT, 5);
    world.keep_bytes = 200 << 10;
    world.stop_proxy();
    (0..6).for_each(|_| run_rounds(&mut world, 500));
    let len: usize = world.segments.values().map(Vec::len).sum();
    assert!((100 << 10..=300 << 10).contains(&len), "{len}");
    visit(&mut world, CAROL, 5);
    assert_eq!(missed(&world, CAROL), [MissedReason::NotKept]);
    visit(&mut world, CAROL, 5);
    assert_eq!(missed(&world, CAROL).len(), 1, "only once: {}", NAMES[CAROL]);
}

/// A gap up to an epoch to come would hide all rounds until then, those of another proxy as well.
#[test]
fn a_proxy_does_not_hide_epochs_to_come_by_a_gap() {
    let mut world = world(KEPT, 1);
    world.tamper = Some(Box::new(|person, message| {
        if let ProxyToMember::Past { records, .. } = message
            && person == BOB
        {
            *records = vec![ArchiveRecord::Gap(RoundPosition { epoch: 9, round: 1 })];
        }
    }));
    let refused = MixClientError::OutOfTurn("past rounds of an epoch to come");
    world.restart(BOB);
    world.run_until("bob refuses it", |world| world.errors.contains(&(BOB, refused.clone())));
    world.tamper = None;
    world.run_until("bob takes part", |world| world.people[BOB].status().exchanges > 0);
    assert!(world.people[0].say("bob", "hello"));
    world.run_until("bob reads it", |world| !world.people[BOB].shown.is_empty());
}

/// A gap up to a round to come would hide all until the next epoch, those of another proxy as well.
#[test]
fn a_proxy_does_not_hide_rounds_to_come_by_a_gap() {
    let mut world = world(KEPT, 2);
    let epoch = world.people[0].status().epoch;
    world.tamper = Some(Box::new(move |person, message| {
        if let ProxyToMember::Past { is_last, records } = message
            && person == BOB
        {
            *is_last = true;
            *records = vec![ArchiveRecord::Gap(RoundPosition { epoch, round: u64::MAX })];
        }
    }));
    world.restart(BOB);
    world.run_until("bob takes part", |world| world.people[BOB].status().exchanges > 0);
    assert!(world.people[0].say("bob", "hello"));
    world.run_until("bob reads it", |world| world.people[BOB].shown.len() == 1);
    // What bob has stored hides nothing either, when the proxy is honest.
    world.tamper = None;
    world.run_until("it is stored", |world| world.people[BOB].client.is_stored());
    world.leave(BOB);
    assert!(world.people[0].say("bob", "hello"));
    run_rounds(&mut world, 5);
    world.restart(BOB);
    world.run_until("bob reads it", |world| world.people[BOB].shown.len() == 2);
    assert_eq!(world.people[0].status().epoch, epoch, "no other epoch has helped");
}

/// A member that waits for past rounds reads no live ones, so a proxy could keep all back.
#[test]
fn a_proxy_that_does_not_send_past_rounds_is_refused_and_own_slots_are_compared() {
    let mut world = world(KEPT, 6);
    world.withhold = Some(Box::new(|person, message| {
        person == BOB && matches!(message, ProxyToMember::Past { .. })
    }));
    world.tamper = Some(Box::new(|person, message| {
        if let ProxyToMember::Round { opening, .. } = message
            && person == BOB
        {
            opening.iter_mut().skip(1).for_each(|byte| *byte ^= 1);
        }
    }));
    world.restart(BOB);
    let is_changed = |it: &MixClientEvent| matches!(it, MixClientEvent::ChangedByProxy { .. });
    world.run_until("bob compares", |world| world.people[BOB].reported.iter().any(is_changed));
    world.tamper = None;
    let is_refused = |world: &World| {
        let is_it = |error: &MixClientError| matches!(error, MixClientError::OutOfTurn(_));
        world.errors.iter().any(|(person, error)| *person == BOB && is_it(error))
    };
    world.run_until("bob refuses it", is_refused);
    let is_it = |it: &MixClientEvent| matches!(it, MixClientEvent::CatchingUp { rounds: 16 });
    assert!(world.people[BOB].reported.iter().any(is_it));
    world.withhold = None;
    assert!(world.people[0].say("bob", "hello"));
    world.run_until("bob reads it", |world| !world.people[BOB].shown.is_empty());
}

#[test]
fn a_proxy_that_always_says_late_is_reported() {
    let mut world = World::of_members(KEPT, 7);
    world.tamper = Some(Box::new(|person, message| {
        if let ProxyToMember::Answer { round, .. } = message
            && person == BOB
        {
            *message = ProxyToMember::Late { round: *round };
        }
    }));
    let is_it = |it: &MixClientEvent| matches!(it, MixClientEvent::AlwaysLate { .. });
    world.run_until("bob says so", |world| world.people[BOB].reported.iter().any(is_it));
    assert!(world.errors.is_empty(), "{:?}", world.errors);
    assert!(world.people[0].reported.iter().all(|it| !is_it(it)));
}
