//! A proxy that loses its state, has an old one, or moves. The group goes on, with or without an
//! administrator.

use std::time::Duration;

use super::exchanges::{EXCHANGES, KEPT};
use super::person::{NAMES, group};
use super::world::World;
use crate::protocol::client::MixClientError;
use crate::protocol::event::MixClientEvent;
use crate::protocol::membership::ProxyAddress;
use crate::protocol::wire::{MembershipStatus, ProxyRefusal, ProxyToMember};

const ALICE: usize = 0;
const BOB: usize = 1;
const CAROL: usize = 2;

fn run_rounds(world: &mut World, count: u64) {
    let end = world.rounds + count;
    world.run_until("rounds go on", |world| world.rounds >= end);
}

fn epoch(world: &World) -> u32 {
    world.group.as_ref().map_or(0, |group| group.status(world.now).epoch)
}

fn take_part(world: &World, people: &[usize]) -> bool {
    people.iter().all(|&person| {
        let status = world.people[person].status();
        status.anonymity_set == people.len() && status.epoch == epoch(world)
    })
}

fn restored(world: &World, person: usize) -> usize {
    let is_it = |event: &&MixClientEvent| matches!(event, MixClientEvent::ProxyRestored { .. });
    world.people[person].reported.iter().filter(is_it).count()
}

#[test]
fn a_proxy_that_has_lost_its_state_gets_it_from_the_members() {
    for exchange in EXCHANGES {
        for has_administrator in [true, false] {
            let mut world = World::of_members(exchange, 41);
            run_rounds(&mut world, 50);
            let mut people = vec![ALICE, BOB, CAROL];
            if !has_administrator {
                world.leave(ALICE);
                people.remove(0);
                run_rounds(&mut world, 5);
            }
            let before = epoch(&world);
            for &from in &people {
                for &to in people.iter().filter(|&&to| to != from) {
                    assert!(world.people[from].say(NAMES[to], &" and on".repeat(20)));
                }
            }
            world.lose_proxy_state();
            let lost = world.now;
            world.run_until("it has lost everything", |world| world.group.is_some());
            world.run_until("all are back", |world| {
                epoch(world) >= before && take_part(world, &people)
            });
            let took = world.now.saturating_sub(lost);
            assert!(took < Duration::from_secs(15), "{took:?}");
            world.run_until("all arrives", |world| {
                people.iter().all(|&person| world.people[person].undelivered() == 0)
            });
            for &person in &people {
                assert_eq!(restored(&world, person), 1, "{}", NAMES[person]);
            }
            world.check_all_read();
            // It loses the state again, in the same epoch, and members are away meanwhile.
            world.lose_proxy_state();
            run_rounds(&mut world, 20);
            world.run_until("all are back again", |world| take_part(world, &people));
        }
    }
}

#[test]
fn a_proxy_that_was_restored_from_an_old_state_gets_the_newest_epoch() {
    for exchange in EXCHANGES {
        let mut world = World::of_members(exchange, 42);
        run_rounds(&mut world, 10);
        let backup = world.proxy_state();
        let old = epoch(&world);
        for _ in 0..3 {
            world.now += Duration::from_secs(86_400);
            let before = epoch(&world);
            world.run_until("the next epoch", |world| {
                epoch(world) > before && take_part(world, &[ALICE, BOB, CAROL])
            });
            run_rounds(&mut world, 10);
        }
        let before = epoch(&world);
        assert!(before > old);
        world.leave(ALICE);
        run_rounds(&mut world, 5);
        assert!(world.people[BOB].say("carol", "") && world.people[CAROL].say("bob", ""));
        world.restore_proxy_state(backup);
        world.run_until("they are back", |world| {
            epoch(world) == before && take_part(world, &[BOB, CAROL])
        });
        world.run_until("all arrives", |world| {
            [BOB, CAROL].iter().all(|&person| world.people[person].undelivered() == 0)
        });
        assert!(restored(&world, BOB) == 1 && restored(&world, CAROL) == 1);
        // The administrator comes back, and goes on.
        world.restart(ALICE);
        world.run_until("all are there", |world| take_part(world, &[ALICE, BOB, CAROL]));
        world.check_all_read();
    }
}

#[test]
fn members_follow_a_proxy_that_moves_and_invitations_name_the_new_address() {
    for exchange in EXCHANGES {
        let mut world = World::of_members(exchange, 43);
        run_rounds(&mut world, 10);
        let to = ProxyAddress {
            address: "elsewhere.example:6700".into(),
            key: super::person::secret(77).public(),
        };
        let now = world.now;
        assert!(world.people[BOB].client.move_proxy(now, to.clone()).is_err());
        world.people[ALICE].client.move_proxy(now, to.clone()).unwrap();
        world.run_until("all know", |world| {
            world.people.iter().all(|it| it.client.epochs.moved() == Some(&to))
        });
        let moved = MixClientError::Moved(to.address.clone());
        world.run_until("all connect there", |world| {
            world.errors.iter().filter(|(_, error)| *error == moved).count() == NAMES.len()
        });
        assert!(!moved.is_final());
        // The new proxy has nothing of the old one.
        world.lose_proxy_state();
        let before = epoch(&world);
        world.run_until("all are there", |world| {
            epoch(world) > before && take_part(world, &[ALICE, BOB, CAROL])
        });
        let invitation = world.invite("dora", Duration::from_secs(60));
        assert_eq!(invitation.group().proxy_address(), to);
        // It is remembered.
        world.run_until("it is stored", |world| world.people[BOB].client.is_stored());
        world.restart(BOB);
        assert_eq!(world.people[BOB].client.epochs.moved(), Some(&to));
    }
}

/// The proxy is at its second address, and a third one is announced that is wrong.
#[test]
fn members_find_a_proxy_that_does_not_move_as_announced() {
    for exchange in EXCHANGES {
        let mut world = World::of_members(exchange, 44);
        world.address = Some(group().proxy_address());
        let [to, wrong] = [77, 78].map(|number| ProxyAddress {
            address: format!("mix{number}.example:6700"),
            key: super::person::secret(number).public(),
        });
        let announce = |world: &mut World, to: &ProxyAddress| {
            let now = world.now;
            world.errors.clear();
            world.people[ALICE].client.move_proxy(now, to.clone()).unwrap();
            let moved = MixClientError::Moved(to.address.clone());
            world.run_until("all leave the proxy", |world| {
                world.errors.iter().filter(|(_, error)| *error == moved).count() == NAMES.len()
            });
        };
        announce(&mut world, &to);
        world.lose_proxy_state();
        world.address = Some(to);
        world.run_until("all are there", |world| take_part(world, &[ALICE, BOB, CAROL]));
        announce(&mut world, &wrong);
        world.run_until("all are back", |world| take_part(world, &[ALICE, BOB, CAROL]));
        // It is remembered.
        world.run_until("it is stored", |world| world.people[BOB].client.is_stored());
        world.leave(BOB);
        world.run_until("he has left", |world| take_part(world, &[ALICE, CAROL]));
        world.restart(BOB);
        world.run_until("he is back", |world| take_part(world, &[ALICE, BOB, CAROL]));
        // What is wrong can be corrected.
        let right = world.address.clone().unwrap();
        announce(&mut world, &right);
        world.restart(BOB);
        assert_eq!(world.people[BOB].client.begin_connection(), right);
    }
}

/// A proxy that greets, but has another announcement or other terms, or is silent then.
#[test]
fn a_proxy_that_greets_and_cannot_serve_does_not_hold_its_members() {
    let mut world = World::of_members(KEPT, 45);
    world.address = Some(group().proxy_address());
    let to = ProxyAddress {
        address: "mix77.example:6700".into(),
        key: super::person::secret(77).public(),
    };
    let now = world.now;
    world.people[ALICE].client.move_proxy(now, to.clone()).unwrap();
    world.run_until("bob knows", |world| world.people[BOB].client.epochs.moved() == Some(&to));
    let client = &mut world.people[BOB].client;
    let terms = *client.link.as_ref().unwrap().terms();
    client.handle_disconnected(now);
    let welcome = ProxyToMember::Welcome {
        terms,
        status: MembershipStatus::Member,
        epoch: u32::MAX,
        round: 0,
        is_restored: false,
    };
    for message in [Some(welcome), Some(ProxyToMember::Refused(ProxyRefusal::Removed)), None] {
        assert_eq!(client.begin_connection(), to);
        if let Some(message) = message {
            client.handle_connected(now);
            let error = client.handle_message(now, &message.encode()).err();
            assert!(!error.is_some_and(|error| error.is_final()));
        }
        client.handle_disconnected(now);
        // Without a connection in between, nothing is counted twice.
        client.handle_disconnected(now);
        assert_eq!(client.begin_connection(), group().proxy_address());
        client.handle_disconnected(now);
    }
    // Refused at all addresses, it is no member any more.
    let removed = ProxyToMember::Refused(ProxyRefusal::Removed).encode();
    for is_final in [false, true] {
        client.begin_connection();
        client.handle_connected(now);
        assert_eq!(client.handle_message(now, &removed).unwrap_err().is_final(), is_final);
        client.handle_disconnected(now);
    }
}
