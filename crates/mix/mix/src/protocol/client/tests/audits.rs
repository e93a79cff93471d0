//! Audits between clients and their group: deviating members are found, and auditors that deviate
//! or do not answer change nothing else.

use std::time::Duration;

use super::exchanges::{OBLIVIOUS, settings};
use super::person::{NAMES, secret};
use super::world::World;
use crate::protocol::client::MixClientError;
use crate::protocol::event::MixClientEvent;
use crate::protocol::group::{AuditFailedMember, GroupCounters, MIN_AUDIT_ROUNDS};
use crate::protocol::member::MixMemberError;
use crate::protocol::round::{NONCE_LEN, Participant};
use crate::protocol::wire::{MemberToProxy, ProxyRefusal, ProxyToMember};

const ALICE: usize = 0;
const BOB: usize = 1;
const CAROL: usize = 2;

fn counters(world: &World) -> GroupCounters {
    world.group.as_ref().unwrap().status(world.now).counters
}

fn found(world: &World) -> Vec<AuditFailedMember> {
    world.group.as_ref().unwrap().status(world.now).found
}

fn audits(world: &World) -> u64 {
    let GroupCounters { audits_passed, audits_failed, audits_disputed, audits_abandoned, .. } =
        counters(world);
    audits_passed + audits_failed + audits_disputed + audits_abandoned
}

fn run_audits(world: &mut World, count: u64) {
    let end = audits(world) + count;
    world.run_until("audits are made", |world| audits(world) >= end);
}

/// Adds to all slots of an update.
fn spoil(message: &mut MemberToProxy) {
    if let MemberToProxy::Request { body, .. } = message {
        let shape = *settings().terms.shape();
        body[..shape.mailbox_len()].iter_mut().step_by(shape.slot_len()).for_each(|it| *it ^= 1);
    }
}

/// Makes a garbled circuit say the opposite.
fn lie(message: &mut MemberToProxy) {
    if let MemberToProxy::AuditTables(tables) = message {
        *tables.last_mut().unwrap() ^= 1;
    }
}

#[test]
fn honest_members_pass_all_audits() {
    let mut world = World::of_members(OBLIVIOUS, 1);
    for round in 0..20 {
        world.people[round % 3].say(NAMES[(round + 1) % 3], " and more of it");
        run_audits(&mut world, 1);
    }
    let rounds = world.rounds;
    run_audits(&mut world, 1);
    assert!(world.rounds - rounds >= MIN_AUDIT_ROUNDS - 1, "{}", world.rounds - rounds);
    assert_eq!(counters(&world).audits_passed, audits(&world));
    assert!(world.people.iter().all(|it| it.status().audits > 1));
    assert_eq!((&world.errors[..], found(&world)), (&[][..], vec![]));
}

#[test]
fn members_that_write_into_slots_of_others_are_left_out() {
    let mut world = World::of_members(OBLIVIOUS, 2);
    world.deviate = Some(Box::new(|person, message| {
        if person == BOB {
            spoil(message);
        }
    }));
    world.run_until("bob is found", |world| !found(world).is_empty());
    let of_bob = found(&world)[0];
    assert_eq!((of_bob.key, of_bob.is_left_out), (secret(BOB).public(), true));
    world.deviate = None;
    assert!(world.people[ALICE].say("carol", ""));
    world.run_until("bob is refused, and the others go on", |world| {
        world.people[ALICE].undelivered() == 0 && !world.errors.is_empty()
    });
    let left_out = MixClientError::Refused(ProxyRefusal::LeftOut);
    assert!(world.errors.iter().all(|it| *it == (BOB, left_out.clone())), "{:?}", world.errors);
    assert!(!left_out.is_final());
    // The administrator is told the name.
    let is_reported = |it: &MixClientEvent| {
        it.to_string()
            .starts_with("the proxy reports that two members have found in an audit that bob")
    };
    assert!(world.people[ALICE].reported.iter().any(is_reported));
    assert!(!world.people[CAROL].reported.iter().any(is_reported));
    world.now += Duration::from_secs(86_400);
    world.run_until("bob takes part in another epoch", |world| {
        found(world).is_empty() && world.people[BOB].status().anonymity_set == 3
    });
}

#[test]
fn one_auditor_alone_leaves_nobody_out() {
    let mut world = World::of_members(OBLIVIOUS, 3);
    world.deviate = Some(Box::new(|person, message| {
        if person == CAROL {
            lie(message);
        }
    }));
    run_audits(&mut world, 12);
    let GroupCounters { audits_passed, audits_failed, audits_disputed, .. } = counters(&world);
    // Carol has accused others, and nobody confirmed it.
    assert!(audits_passed > 0 && audits_disputed > 0 && audits_failed == 0);
    assert_eq!((&world.errors[..], found(&world)), (&[][..], vec![]));
}

#[test]
fn two_auditors_that_deviate_leave_a_member_out_but_not_the_administrator() {
    let mut world = World::of_members(OBLIVIOUS, 4);
    world.deviate = Some(Box::new(|person, message| {
        if person != ALICE {
            lie(message);
        }
    }));
    world.run_until("alice is accused", |world| !found(world).is_empty());
    let of_alice = found(&world)[0];
    assert_eq!((of_alice.key, of_alice.is_left_out), (secret(ALICE).public(), false));
    world.deviate = None;
    run_audits(&mut world, 2);
    assert_eq!(world.errors, []);
}

#[test]
fn a_silent_auditor_is_replaced() {
    let mut world = World::of_members(OBLIVIOUS, 5);
    world.tamper = Some(Box::new(|person, message| {
        if person == CAROL && matches!(message, ProxyToMember::Audit { .. }) {
            *message = ProxyToMember::Late { round: 0 };
        }
    }));
    run_audits(&mut world, 8);
    assert_eq!(counters(&world).audits_passed, audits(&world));
    // Carol is the only other member who could confirm what alice finds.
    world.deviate = Some(Box::new(|person, message| {
        if person == BOB {
            spoil(message);
        }
    }));
    world.run_until("bob is accused", |world| counters(world).audits_disputed > 0);
    assert_eq!((&world.errors[..], found(&world)), (&[][..], vec![]));
}

#[test]
fn an_auditor_whose_connection_ends_is_replaced() {
    let mut world = World::of_members(OBLIVIOUS, 6);
    world.deviate = Some(Box::new(|person, message| {
        if let (CAROL, MemberToProxy::AuditSetUp(set_up)) = (person, message) {
            set_up.pop();
        }
    }));
    run_audits(&mut world, 6);
    assert!(world.refusals.contains(&ProxyRefusal::Engine));
    assert!(world.errors.iter().all(|it| it.0 == CAROL), "{:?}", world.errors);
    world.errors.clear();
    world.refusals.clear();
    world.deviate = Some(Box::new(|person, message| {
        if let (CAROL, MemberToProxy::AuditTables(tables)) = (person, message) {
            tables.push(0);
        }
    }));
    run_audits(&mut world, 6);
    assert!(world.refusals.contains(&ProxyRefusal::Engine));
    assert!(world.errors.iter().all(|it| it.0 == CAROL), "{:?}", world.errors);
    assert_eq!(counters(&world).audits_passed, audits(&world));
}

#[test]
fn a_client_audits_only_listed_updates() {
    type Change = fn(&mut u32, &mut u64, &mut Participant);
    let changes: [Change; 5] = [
        |epoch, _, _| *epoch += 1,
        |_, round, _| *round += 1,
        |_, round, _| *round -= 1,
        |_, _, subject| subject.nonce = [7; NONCE_LEN],
        |_, _, subject| subject.member ^= 1,
    ];
    for change in changes {
        let mut world = World::of_members(OBLIVIOUS, 7);
        world.tamper = Some(Box::new(move |person, message| match message {
            ProxyToMember::Audit { epoch, round, subject } if person == BOB => {
                change(epoch, round, subject);
            }
            _ => {}
        }));
        world.run_until("bob ends its connection", |world| !world.errors.is_empty());
        let (person, error) = &world.errors[0];
        assert!(matches!(error, MixClientError::Round(MixMemberError::Audit(_))), "{error}");
        assert!(*person == BOB && !error.is_final());
    }
}

#[test]
fn a_client_is_asked_for_one_audit_in_some_rounds() {
    let mut world = World::of_members(OBLIVIOUS, 8);
    let (asks, asked) = std::sync::mpsc::channel();
    world.tamper = Some(Box::new(move |person, message| {
        if person == BOB && matches!(message, ProxyToMember::Audit { .. }) {
            asks.send(message.encode()).unwrap();
        }
    }));
    // An audit may already be in progress.
    let enough = world.people[BOB].status().audits + 2;
    world.run_until("bob has audited", |world| world.people[BOB].status().audits >= enough);
    let (ask, now) = (asked.try_iter().last().unwrap(), world.now);
    let client = &mut world.people[BOB].client;
    let again = client.handle_message(now, &ask);
    assert!(matches!(again, Err(MixClientError::Round(MixMemberError::Audit(_)))));
    let choices = ProxyToMember::AuditChoices(vec![0; 9]).encode();
    let unasked = client.handle_message(now, &choices);
    assert!(matches!(unasked, Err(MixClientError::Round(MixMemberError::Audit(_)))));
}
