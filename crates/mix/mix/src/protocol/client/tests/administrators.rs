//! Several administrators: lost and old states, conflicts, and administrators that never come back.

use std::time::Duration;

use super::exchanges::{EXCHANGES, Exchanges, KEPT};
use super::person::{NAMES, secret};
use super::world::World;
use crate::protocol::client::{AcceptableTerms, MixClient, MixClientError, MixClientSettings};
use crate::protocol::event::MixClientEvent;
use crate::protocol::member::MixMemberError;
use crate::protocol::membership::{EpochAnnouncement, MemberName};
use crate::protocol::wire::{MemberToProxy, MembershipStatus, ProxyToMember};

const ALICE: usize = 0;
const BOB: usize = 1;
const CAROL: usize = 2;
const DAY: Duration = Duration::from_secs(86_400);

pub(super) fn name(person: usize) -> MemberName {
    MemberName::new(NAMES[person]).unwrap()
}

pub(super) fn epoch(world: &World) -> u32 {
    world.group.as_ref().map_or(0, |group| group.status(world.now).epoch)
}

/// Waits for the next epoch, in which all these take part.
pub(super) fn wait_for_epoch(world: &mut World, after: u32, people: &[usize]) {
    world.run_until("an epoch with them", |world| {
        let status = |person: &usize| world.people[*person].status();
        epoch(world) > after
            && people.iter().map(status).all(|it| {
                it.epoch == epoch(world)
                    && it.anonymity_set == people.len()
                    && !it.has_notices_waiting
            })
    });
}

/// A group with two administrators, alice and bob.
pub(super) fn with_two(exchange: Exchanges, seed: u64) -> World {
    let mut world = World::of_members(exchange, seed);
    let (now, before) = (world.now, epoch(&world));
    world.people[ALICE].client.add_administrator(now, &name(BOB)).unwrap();
    wait_for_epoch(&mut world, before, &[ALICE, BOB, CAROL]);
    for person in &world.people {
        assert_eq!(person.status().administrators, ["alice", "bob"]);
    }
    world
}

pub(super) fn has(world: &World, person: usize, is_it: impl Fn(&MixClientEvent) -> bool) -> bool {
    world.people[person].reported.iter().any(is_it)
}

/// Everybody speaks with everybody, and everything arrives.
pub(super) fn check_talk(world: &mut World, people: &[usize]) {
    for &from in people {
        for &to in people.iter().filter(|&&to| to != from) {
            let said = |world: &mut World| world.people[from].say(NAMES[to], "");
            let end = world.now + Duration::from_secs(60);
            while !said(world) {
                assert!(world.now < end, "{} cannot speak", NAMES[from]);
                world.tick();
            }
        }
    }
    world.run_until("all arrives", |world| {
        people.iter().all(|&person| world.people[person].undelivered() == 0)
    });
}

#[test]
fn an_administrator_that_has_lost_its_state_goes_on_from_the_newest_announcement() {
    for exchange in EXCHANGES {
        let mut world = World::of_members(exchange, 21);
        check_talk(&mut world, &[ALICE, BOB, CAROL]);
        let before = epoch(&world);
        world.people[ALICE].has_restored = true;
        world.people[ALICE].lose_state();
        world.restart(ALICE);
        wait_for_epoch(&mut world, before, &[ALICE, BOB, CAROL]);
        let is_it =
            |event: &MixClientEvent| matches!(event, MixClientEvent::TakenOver { members: 3, .. });
        assert!(has(&world, ALICE, is_it), "{:?}", world.people[ALICE].reported);
        for person in [BOB, CAROL] {
            world.people[person].has_restored = true;
        }
        check_talk(&mut world, &[ALICE, BOB, CAROL]);
    }
}

#[test]
fn an_old_backup_of_an_administrator_readmits_nobody() {
    for exchange in EXCHANGES {
        let mut world = World::of_members(exchange, 22);
        let backup = world.people[ALICE].backup();
        let (now, before) = (world.now, epoch(&world));
        world.people[ALICE].client.remove(now, &name(CAROL)).unwrap();
        world.run_until("carol is removed", |world| epoch(world) > before);
        world.leave(CAROL);
        wait_for_epoch(&mut world, before, &[ALICE, BOB]);
        // Two more epochs.
        for _ in 0..2 {
            let before = epoch(&world);
            world.now += DAY;
            wait_for_epoch(&mut world, before, &[ALICE, BOB]);
        }
        let before = epoch(&world);
        world.people[ALICE].restore(backup);
        world.people[ALICE].has_restored = true;
        world.restart(ALICE);
        wait_for_epoch(&mut world, before, &[ALICE, BOB]);
        assert_eq!(world.people[BOB].status().others, ["alice"]);
        world.people[BOB].has_restored = true;
        check_talk(&mut world, &[ALICE, BOB]);
        assert_eq!(world.people[BOB].status().others, ["alice"]);
    }
}

#[test]
fn a_group_lives_on_when_its_founder_never_comes_back() {
    for exchange in EXCHANGES {
        let mut world = with_two(exchange, 23);
        world.leave(ALICE);
        // The next epoch is bob's.
        let before = epoch(&world);
        world.now += DAY;
        world.run_until("bob announces", |world| epoch(world) > before);
        // Bob removes carol, who joins again, and takes alice from the list.
        let (now, before) = (world.now, epoch(&world));
        world.people[BOB].client.remove(now, &name(CAROL)).unwrap();
        world.run_until("carol is removed", |world| epoch(world) > before);
        world.leave(CAROL);
        let invitation = world.invite_by(BOB, "carol", DAY);
        assert_eq!(*invitation.inviter(), secret(BOB).public());
        world.people[CAROL].invitation = Some(invitation.code().to_string());
        let before = epoch(&world);
        world.restart(CAROL);
        world.run_until("carol is back", |world| {
            epoch(world) > before && world.people[CAROL].status().epoch == epoch(world)
        });
        let (now, before) = (world.now, epoch(&world));
        world.people[BOB].client.remove(now, &name(ALICE)).unwrap();
        wait_for_epoch(&mut world, before, &[BOB, CAROL]);
        assert_eq!(world.people[CAROL].status().administrators, ["bob"]);
        check_talk(&mut world, &[BOB, CAROL]);
    }
}

#[test]
fn both_administrators_announce_at_once_and_nothing_is_lost() {
    for seed in 0..8 {
        let mut world = with_two(EXCHANGES[seed % 3], 30 + seed as u64);
        let before = epoch(&world);
        // One removes carol, and the other makes her an administrator; both announce an epoch.
        let (now, carol) = (world.now, name(CAROL));
        world.people[ALICE].client.remove(now, &carol).unwrap();
        world.people[BOB].client.add_administrator(now, &carol).unwrap();
        world.now += Duration::from_secs(10);
        wait_for_epoch(&mut world, before, &[ALICE, BOB]);
        world.run_until("both changes are decided", |world| {
            [ALICE, BOB].iter().all(|&person| {
                let status = world.people[person].status();
                status.others.len() == 1 && status.administrators == ["alice", "bob"]
            })
        });
        // A prekey can cross an announcement.
        let is_wrong = |(person, error): &&(usize, MixClientError)| {
            *person != CAROL && *error != MixClientError::NoKey
        };
        assert_eq!(world.errors.iter().find(is_wrong), None);
        world.leave(CAROL);
        check_talk(&mut world, &[ALICE, BOB]);
    }
}

#[test]
fn an_administrator_hands_over() {
    let mut world = World::of_members(KEPT, 24);
    let (now, before) = (world.now, epoch(&world));
    assert!(world.people[BOB].client.hand_over(now, &name(CAROL)).is_err());
    world.people[ALICE].client.hand_over(now, &name(BOB)).unwrap();
    world.run_until("bob is the administrator", |world| {
        world.people.iter().all(|it| it.status().administrators == ["bob"])
    });
    wait_for_epoch(&mut world, before, &[ALICE, BOB, CAROL]);
    let now = world.now;
    assert!(world.people[ALICE].client.remove(now, &name(CAROL)).is_err());
    let is_it =
        |event: &MixClientEvent| event.to_string() == "the administrator of the group is now bob";
    assert!(has(&world, CAROL, is_it), "{:?}", world.people[CAROL].reported);
    // The founder can leave now.
    world.people[ALICE].client.leave(now).unwrap();
    let before = epoch(&world);
    world.run_until("alice has left", |world| epoch(world) > before);
    world.leave(ALICE);
    wait_for_epoch(&mut world, before, &[BOB, CAROL]);
    check_talk(&mut world, &[BOB, CAROL]);
}

/// Bob was an administrator, and a program of his own goes on as if he were one.
#[test]
fn a_removed_administrator_announces_nothing() {
    let mut world = with_two(KEPT, 25);
    let old = world.people[BOB].client.export().unwrap().to_vec();
    let (now, before) = (world.now, epoch(&world));
    world.people[ALICE].client.remove_administrator(now, &name(BOB)).unwrap();
    wait_for_epoch(&mut world, before, &[ALICE, BOB, CAROL]);
    let after = epoch(&world);
    // Bob's announcement, made before he knew: it is signed and of a later epoch.
    let old = EpochAnnouncement::verify(&old, "friends", &secret(ALICE).public()).unwrap();
    let mut own = crate::protocol::membership::Administrator::take_over(
        std::sync::Arc::new(secret(BOB)),
        super::person::group(),
        &old,
        super::exchanges::SINCE_1970,
    )
    .unwrap();
    own.remove(&name(CAROL)).unwrap();
    let mut random = crate::protocol::random::ForwardSecureRng::new([9; 32]);
    let late = super::exchanges::SINCE_1970 + DAY * 9;
    let forged = own.handle_timeout(late, &mut random).unwrap().to_vec();
    // An honest proxy does not take it, from anybody.
    for message in [
        MemberToProxy::Announce(forged.clone()),
        MemberToProxy::Restore { round: 0, announcement: forged.clone() },
    ] {
        world.send_as(BOB, &message);
        let rounds = world.rounds + 10;
        world.run_until("rounds go on", |world| world.rounds >= rounds);
        assert_eq!(epoch(&world), after);
    }
    // A dishonest one shows it to carol, who ends the connection and keeps what she knows.
    let shown = ProxyToMember::Announcement(forged).encode();
    let now = world.now;
    let handled = world.people[CAROL].client.handle_message(now, &shown);
    assert!(
        matches!(handled, Ok(()) | Err(MixClientError::OldEpoch { .. } | MixClientError::Fork)),
        "{handled:?}"
    );
    assert_eq!(world.people[CAROL].status().administrators, ["alice"]);
    assert_eq!(world.people[CAROL].status().epoch, after);
}

/// The proxy says to a new client that it is a member already, and shows the group of an
/// administrator who was removed before the client was invited.
#[test]
fn a_new_client_is_not_taken_to_a_fork() {
    let mut world = with_two(KEPT, 27);
    let old = world.people[BOB].client.export().unwrap().to_vec();
    let (now, before) = (world.now, epoch(&world));
    world.people[ALICE].client.remove_administrator(now, &name(BOB)).unwrap();
    wait_for_epoch(&mut world, before, &[ALICE, BOB, CAROL]);
    let invitation = world.invite("dora", DAY);
    let newest = world.people[ALICE].client.export().unwrap().to_vec();
    let settings = |invitation| MixClientSettings {
        group: super::person::group(),
        founds: false,
        name: MemberName::new("dora").unwrap(),
        invitation,
        least_participants: 2,
        terms: AcceptableTerms::default(),
        now,
        since_1970: super::exchanges::SINCE_1970,
    };
    let identity = std::sync::Arc::new(secret(7));
    let welcome = ProxyToMember::Welcome {
        terms: super::exchanges::settings_with(KEPT, super::exchanges::SLOT_LEN).terms,
        status: MembershipStatus::Member,
        epoch: before,
        round: 1,
        is_restored: false,
    };
    let show = |client: &mut MixClient, shown: &[u8]| {
        client.handle_connected(now);
        client.handle_message(now, &welcome.encode()).unwrap();
        client.handle_message(now, &ProxyToMember::Announcement(shown.to_vec()).encode())
    };
    let invited = settings(Some(invitation));
    let mut client = MixClient::new(invited, identity.clone(), None, [3; 32]).unwrap();
    assert_eq!(show(&mut client, &old), Err(MixClientError::NotAsInvited));
    // It remembers this.
    let stored = client.poll_store().unwrap();
    let mut client = MixClient::new(settings(None), identity, Some(&stored), [4; 32]).unwrap();
    assert_eq!(show(&mut client, &old), Err(MixClientError::NotAsInvited));
    assert_eq!(show(&mut client, &newest), Ok(()));
}

/// The proxy gives a mailbox to read that the member cannot read, because the numbers of rounds
/// were lost.
#[test]
fn an_administrator_announces_an_epoch_if_rounds_cannot_be_read() {
    let mut world = World::of_members(KEPT, 28);
    let before = epoch(&world);
    let end = world.now + Duration::from_secs(5);
    world.run_until("time passes", |world| world.now >= end);
    assert_eq!(epoch(&world), before);
    let mut is_done = false;
    world.tamper = Some(Box::new(move |person, message| {
        if let ProxyToMember::Round { start, .. } = message
            && person == ALICE
            && let Some(read) = &mut start.read
            && !std::mem::replace(&mut is_done, true)
        {
            read.round = 1;
        }
    }));
    world.run_until("another epoch", |world| epoch(world) > before);
    let is_it = |error: &MixClientError| {
        matches!(error, MixClientError::Round(MixMemberError::Read { .. }))
    };
    assert!(world.errors.iter().any(|(person, error)| *person == ALICE && is_it(error)));
}

#[test]
fn members_are_exported_and_imported() {
    let mut world = World::of_members(KEPT, 26);
    let exported = world.people[CAROL].client.export().unwrap().to_vec();
    // The founder's state and the proxy's are lost.
    world.people.iter_mut().for_each(|person| person.has_restored = true);
    world.leave(BOB);
    world.leave(CAROL);
    world.people[ALICE].lose_state();
    world.people[ALICE].founds = false;
    world.lose_proxy_state();
    world.restart(ALICE);
    let until = world.now + Duration::from_secs(20);
    world.run_until("time passes", |world| world.now >= until);
    assert_eq!(epoch(&world), 0, "a founder without a state founds nothing by itself");
    let why = world.people[ALICE].status().waiting_for.unwrap();
    assert!(why.starts_with("neither this chat nor the proxy"), "{why}");
    let now = world.now;
    assert!(world.people[ALICE].client.import(now, b"nothing").is_err());
    world.people[ALICE].client.import(now, &exported).unwrap();
    assert!(world.people[ALICE].client.import(now, &exported).is_err(), "not newer");
    world.restart(BOB);
    world.restart(CAROL);
    wait_for_epoch(&mut world, 0, &[ALICE, BOB, CAROL]);
    check_talk(&mut world, &[ALICE, BOB, CAROL]);
}
