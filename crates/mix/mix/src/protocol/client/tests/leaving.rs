//! A member that wishes to leave is removed, whatever connections, restarts and administrators do.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::administrators::{check_talk, epoch, has, name, wait_for_epoch, with_two};
use super::exchanges::{EXCHANGES, KEPT};
use super::person::{group, secret};
use super::world::World;
use crate::protocol::client::state::decode;
use crate::protocol::event::MixClientEvent;
use crate::protocol::membership::MemberNotice;
use crate::protocol::wire::{MemberToProxy, ProxyToMember};

const ALICE: usize = 0;
const BOB: usize = 1;
const CAROL: usize = 2;
const DAY: Duration = Duration::from_secs(86_400);

fn run_rounds(world: &mut World, count: u64) {
    let end = world.rounds + count;
    world.run_until("rounds go on", |world| world.rounds >= end);
}

fn store(world: &mut World, person: usize) {
    world.run_until("its state is stored", |world| world.people[person].client.is_stored());
}

fn leave(world: &mut World) {
    let now = world.now;
    world.people[BOB].client.leave(now).unwrap();
}

/// Bob was told that he is not a member any more, and Alice knows it.
fn is_removed(world: &World) -> bool {
    let is_told = world.errors.iter().any(|(person, error)| *person == BOB && error.is_final());
    is_told && world.people[ALICE].status().others == ["carol"]
}

fn has_left(event: &MixClientEvent) -> bool {
    matches!(event, MixClientEvent::Left { name } if name.as_str() == "bob")
}

/// How many such events Alice has seen.
fn count(world: &World, is_it: impl Fn(&MixClientEvent) -> bool) -> usize {
    world.people[ALICE].reported.iter().filter(|event| is_it(event)).count()
}

/// Bob leaves while no administrator is there, and then connects again: each connection begins with
/// a notice, of which the proxy must not forget the first one.
#[test]
fn a_member_leaves_while_no_administrator_is_there() {
    for exchange in EXCHANGES {
        let mut world = World::of_members(exchange, 51);
        let before = epoch(&world);
        world.leave(ALICE);
        run_rounds(&mut world, 5);
        leave(&mut world);
        run_rounds(&mut world, 5);
        store(&mut world, BOB);
        world.restart(BOB);
        world.run_until("bob takes part again", |world| {
            world.people[BOB].status().exchanges > 5 && world.people[BOB].status().is_leaving
        });
        store(&mut world, BOB);
        world.leave(BOB);
        world.restart(ALICE);
        wait_for_epoch(&mut world, before, &[ALICE, CAROL]);
        assert_eq!(world.people[ALICE].status().others, ["carol"]);
        assert!(has(&world, ALICE, has_left));
        check_talk(&mut world, &[ALICE, CAROL]);
        world.restart(BOB);
        world.run_until("bob is told", is_removed);
    }
}

/// What is sent over a connection that ends may not arrive, and the proxy may lose what has.
#[test]
fn a_wish_to_leave_outlives_connections_and_restarts_of_both_ends() {
    // The connection ends at once.
    let mut world = World::of_members(KEPT, 52);
    leave(&mut world);
    world.cut_of(BOB);
    world.run_until("bob is removed", is_removed);

    // There is none.
    let mut world = World::of_members(KEPT, 53);
    world.cut_of(BOB);
    world.run_until("bob knows", |world| world.people[BOB].client.link.is_none());
    leave(&mut world);
    world.run_until("bob is removed", is_removed);

    // The proxy loses the notice, and nobody else has it.
    let mut world = World::of_members(KEPT, 54);
    let state = world.proxy_state();
    world.leave(ALICE);
    leave(&mut world);
    store(&mut world, BOB);
    run_rounds(&mut world, 5);
    world.restart(BOB);
    world.restore_proxy_state(state);
    world.restart(ALICE);
    world.run_until("bob is removed", is_removed);
}

/// An epoch begins whose administrator had not heard of it.
#[test]
fn a_member_that_leaves_says_so_in_each_epoch() {
    let mut world = World::of_members(KEPT, 55);
    world.withhold = Some(Box::new(|person, message| {
        person == ALICE && matches!(message, ProxyToMember::Notice { .. })
    }));
    leave(&mut world);
    run_rounds(&mut world, 5);
    assert!(!is_removed(&world), "the proxy has kept it from the administrator");
    world.withhold = None;
    world.now += DAY;
    world.run_until("bob is removed", is_removed);
}

/// The proxy repeats the notice before Bob, who has joined again, has sent another prekey.
#[test]
fn who_has_left_and_joins_again_is_not_removed_by_the_same_notice() {
    let mut world = World::of_members(KEPT, 56);
    let said = Rc::new(RefCell::new(Vec::new()));
    let heard = said.clone();
    world.deviate = Some(Box::new(move |person, message| {
        if let MemberToProxy::Notice(notice) = message
            && person == BOB
            && MemberNotice::is_leave(notice)
        {
            heard.borrow_mut().clone_from(notice);
        }
    }));
    leave(&mut world);
    world.run_until("bob is removed", is_removed);
    store(&mut world, BOB);
    world.deviate = None;
    let invitation = world.invite("bob", DAY);
    world.people[BOB].invitation = Some(invitation.code().to_string());
    let before = epoch(&world);
    world.restart(BOB);
    let key = secret(BOB).public();
    let is_admitted = |event: &MixClientEvent| match event {
        MixClientEvent::Admitted { key: of, .. } => *of == key,
        _ => false,
    };
    world.run_until("bob is admitted again", |world| count(world, is_admitted) == 2);
    let repeated = ProxyToMember::Notice { key, notice: said.borrow().clone() }.encode();
    let now = world.now;
    world.people[ALICE].client.handle_message(now, &repeated).unwrap();
    wait_for_epoch(&mut world, before, &[ALICE, BOB, CAROL]);
    assert!(!world.people[BOB].status().is_leaving);
    assert_eq!(count(&world, has_left), 1);
}

/// The proxy keeps the wish until an administrator comes, who is not to obey it then.
#[test]
fn who_joins_again_before_it_is_removed_stays() {
    let mut world = World::of_members(KEPT, 57);
    let invitation = world.invite("dora", DAY);
    world.leave(ALICE);
    run_rounds(&mut world, 5);
    leave(&mut world);
    run_rounds(&mut world, 5);
    store(&mut world, BOB);
    world.people[BOB].invitation = Some(invitation.code().to_string());
    world.restart(BOB);
    world.run_until("bob takes part again", |world| {
        world.people[BOB].status().exchanges > 5 && !world.people[BOB].status().is_leaving
    });
    world.restart(ALICE);
    world.run_until("alice takes part", |world| world.people[ALICE].status().exchanges > 0);
    run_rounds(&mut world, 20);
    assert_eq!(count(&world, has_left), 0);
    assert_eq!(world.people[ALICE].status().others, ["carol", "bob"]);
}

/// Alice has not heard of it, and stops being an administrator. Nobody can remove bob then.
#[test]
fn a_wish_to_leave_ends_when_an_epoch_opens_with_no_other_administrator() {
    let mut world = with_two(KEPT, 58);
    world.withhold = Some(Box::new(|person, message| {
        person == ALICE && matches!(message, ProxyToMember::Notice { .. })
    }));
    leave(&mut world);
    run_rounds(&mut world, 5);
    assert!(world.people[BOB].status().is_leaving);
    let (now, before) = (world.now, epoch(&world));
    world.people[ALICE].client.remove_administrator(now, &name(ALICE)).unwrap();
    wait_for_epoch(&mut world, before, &[ALICE, BOB, CAROL]);
    let status = world.people[BOB].status();
    assert_eq!((&status.administrators[..], status.is_leaving), (&["bob".to_owned()][..], false));
    // The proxy still has the notice, and gives it to the next administrator.
    world.withhold = None;
    let (now, before) = (world.now, epoch(&world));
    world.people[BOB].client.add_administrator(now, &name(CAROL)).unwrap();
    wait_for_epoch(&mut world, before, &[ALICE, BOB, CAROL]);
    run_rounds(&mut world, 20);
    assert_eq!(world.people[CAROL].status().others, ["alice", "bob"]);
    check_talk(&mut world, &[ALICE, BOB, CAROL]);
}

fn is_leaving(state: &[u8]) -> bool {
    decode(state, &group(), 2).unwrap().epochs.is_leaving()
}

/// A state without the wish is one of the version before.
#[test]
fn the_wish_to_leave_is_in_the_state() {
    let mut world = World::of_members(KEPT, 57);
    let before = world.people[BOB].client.stored();
    leave(&mut world);
    let after = world.people[BOB].client.stored();
    // A program that does not know the wish refuses the state.
    assert!(after[0] >= 8);
    assert!(!is_leaving(&before) && is_leaving(&after));
    // Once is enough.
    leave(&mut world);
    assert!(*world.people[BOB].client.stored() == *after);
}
