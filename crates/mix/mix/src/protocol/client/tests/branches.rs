//! Two administrators that the proxy has kept apart have both changed the list of administrators:
//! the group has two branches, until the members of one follow the other one.

use std::time::Duration;

use super::administrators::{check_talk, epoch, has, name, wait_for_epoch, with_two};
use super::exchanges::{BROADCAST, KEPT};
use super::person::{NAMES, secret};
use super::world::{ProxyState, World};
use crate::protocol::client::{ImportError, MixClientError};
use crate::protocol::event::MixClientEvent;
use crate::protocol::membership::EpochAnnouncement;

const ALICE: usize = 0;
const BOB: usize = 1;
const CAROL: usize = 2;

/// What bob does, while alice makes carol an administrator in the next epoch but one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bob {
    AddsCarol,
    RemovesCarol,
    RemovesAlice,
}

/// A group of two branches: alice and carol are in one, and bob in the other.
struct Branches {
    world: World,
    /// Before they have parted.
    before: Vec<u8>,
    /// The newest list of each.
    alices: Vec<u8>,
    bobs: Vec<u8>,
    /// The proxy in bob's branch.
    proxy_of_bob: ProxyState,
}

fn export(world: &World, person: usize) -> Vec<u8> {
    world.people[person].client.export().unwrap().to_vec()
}

fn stop(world: &mut World, people: &[usize]) {
    world.run_until("all is stored", |world| {
        people.iter().all(|&person| world.people[person].client.is_stored())
    });
    for &person in people {
        world.leave(person);
    }
}

/// The proxy is in the branch of alice and carol, which are connected.
fn branches(seed: u64, bob: Bob) -> Branches {
    let mut world = with_two(if seed.is_multiple_of(2) { BROADCAST } else { KEPT }, seed);
    let (before, proxy_before) = (export(&world, ALICE), world.proxy_state());
    stop(&mut world, &[BOB]);
    let (now, parted) = (world.now, epoch(&world));
    // An epoch without a change of the list, too.
    world.now += Duration::from_secs(86_400);
    world.run_until("another epoch", |world| epoch(world) > parted);
    world.people[ALICE].client.add_administrator(now, &name(CAROL)).unwrap();
    wait_for_epoch(&mut world, parted + 1, &[ALICE, CAROL]);
    let (alices, proxy_of_alice) = (export(&world, ALICE), world.proxy_state());
    stop(&mut world, &[ALICE, CAROL]);
    world.restore_proxy_state(proxy_before);
    world.restart(BOB);
    world.run_until("bob is there", |world| world.people[BOB].status().anonymity_set == 1);
    assert!(!world.people[BOB].say("carol", "") || bob != Bob::AddsCarol || seed % 2 == 1);
    let (now, client) = (world.now, &mut world.people[BOB].client);
    match bob {
        Bob::AddsCarol => client.add_administrator(now, &name(CAROL)).unwrap(),
        // Removing carol alone does not change the list.
        Bob::RemovesCarol => {
            client.add_administrator(now, &name(CAROL)).unwrap();
            let end = world.now + Duration::from_secs(10);
            world.run_until("an epoch", |world| world.now >= end);
            world.people[BOB].client.remove(end, &name(CAROL)).unwrap();
        }
        Bob::RemovesAlice => client.remove(now, &name(ALICE)).unwrap(),
    }
    let end = world.now + Duration::from_secs(10);
    world.run_until("an epoch", |world| world.now >= end);
    let (bobs, proxy_of_bob) = (export(&world, BOB), world.proxy_state());
    assert!(epoch(&world) > parted);
    stop(&mut world, &[BOB]);
    world.restore_proxy_state(proxy_of_alice);
    world.restart(ALICE);
    world.restart(CAROL);
    world.run_until("alice and carol are there", |world| {
        [ALICE, CAROL].iter().all(|&it| world.people[it].status().anonymity_set == 2)
    });
    world.errors.clear();
    Branches { world, before, alices, bobs, proxy_of_bob }
}

#[test]
fn a_member_follows_the_other_branch_if_its_user_says_so() {
    for seed in [60, 61] {
        let Branches { mut world, before, alices, bobs, .. } = branches(seed, Bob::AddsCarol);
        world.restart(BOB);
        world.run_until("bob is told", |world| world.errors.contains(&(BOB, MixClientError::Fork)));
        let text = MixClientError::Fork.to_string();
        assert!(text.contains("sunder chat import --replace") && !text.contains('\n'), "{text}");
        let now = world.now;
        let client = &mut world.people[BOB].client;
        assert_eq!(client.import(now, &alices), Err(ImportError::Fork));
        let difference = client.compare_list(&alices).unwrap();
        let mut both = difference.both;
        both.sort();
        assert_eq!(both, NAMES);
        assert_eq!((difference.only_own.len(), difference.only_other.len()), (0, 0));
        assert_eq!((&*difference.signer, difference.proxy), ("alice", None));
        let own = client.replace_list(now, &bobs);
        assert!(matches!(own, Err(ImportError::NotNewer(_))), "{own:?}");
        client.replace_list(now, &alices).unwrap();
        // The newest list, which others make meanwhile.
        let known = epoch(&world);
        wait_for_epoch(&mut world, known, &[ALICE, BOB, CAROL]);
        check_talk(&mut world, &[ALICE, BOB, CAROL]);
        assert_eq!(world.people[BOB].status().administrators, NAMES);
        // Nothing of before comes back, over a restart too.
        for restarts in [false, true] {
            if restarts {
                world.run_until("it is stored", |world| world.people[BOB].client.is_stored());
                world.restart(BOB);
            }
            let (now, client) = (world.now, &mut world.people[BOB].client);
            assert_eq!(client.replace_list(now, &bobs), Err(ImportError::LeftBefore));
            let old = client.replace_list(now, &before);
            assert!(matches!(old, Err(ImportError::NotNewer(_))), "{old:?}");
            let old = client.replace_list(now, &alices);
            assert!(matches!(old, Err(ImportError::NotNewer(_))), "{old:?}");
        }
    }
}

/// Bob has removed carol, and alice has not: the difference says so. Carol's removal is not undone.
#[test]
fn the_difference_names_who_is_in_which_list() {
    let Branches { mut world, alices, bobs, .. } = branches(62, Bob::RemovesCarol);
    let difference = world.people[ALICE].client.compare_list(&bobs).unwrap();
    assert_eq!(difference.both, ["alice", "bob"]);
    assert_eq!((&difference.only_own[..], difference.only_other.len()), (&["carol".into()][..], 0));
    let shown = difference.to_string();
    assert!(shown.contains("only in the list of this chat") && shown.contains(": carol\n"));
    let carol = world.people[CAROL].client.compare_list(&bobs);
    assert_eq!(carol, Err(ImportError::NotListed));
    // Carol's key, because bob has no name for it any more, or cannot open the other list.
    let difference = world.people[BOB].client.compare_list(&alices).unwrap();
    let key = secret(CAROL).public().to_string();
    assert!(difference.only_other == ["carol"] || difference.only_other == [key]);
    world.restart(BOB);
    let now = world.now;
    world.people[BOB].client.replace_list(now, &alices).unwrap();
    world.run_until("bob removes carol again", |world| {
        world.people[ALICE].status().others == ["bob"]
    });
    let is_it = |event: &MixClientEvent| matches!(event, MixClientEvent::RemovedAgain { .. });
    assert!(has(&world, BOB, is_it));
    world.leave(CAROL);
    check_talk(&mut world, &[ALICE, BOB]);
}

/// A list that was signed by somebody whom alice does not know as an administrator is not followed:
/// bob, who has removed her, is one in her list, and she is none in his.
#[test]
fn a_list_is_followed_only_if_a_known_administrator_has_signed_it() {
    let Branches { mut world, alices, bobs, .. } = branches(63, Bob::RemovesAlice);
    let now = world.now;
    let bob = world.people[BOB].client.replace_list(now, &alices);
    assert_eq!(bob, Err(ImportError::UnknownSigner(Box::new(secret(ALICE).public()))));
    // Carol knows bob.
    assert!(world.people[CAROL].client.compare_list(&bobs).is_ok());
    let mut forged = bobs.clone();
    *forged.last_mut().unwrap() ^= 1;
    let forged = world.people[CAROL].client.replace_list(now, &forged);
    assert!(matches!(forged, Err(ImportError::Announcement(_))), "{forged:?}");
}

/// Carol is no member in the proxy's list, which is not the one that she knows: she is told so, and
/// does not wait for ever.
#[test]
fn a_member_that_the_other_branch_does_not_have_is_told() {
    // Carol's list is of an earlier or the same epoch, or of a later one.
    for later_epochs in [0, 3] {
        let Branches { mut world, bobs, proxy_of_bob, .. } = branches(64, Bob::RemovesCarol);
        for _ in 0..later_epochs {
            let before = epoch(&world);
            world.now += Duration::from_secs(86_400);
            wait_for_epoch(&mut world, before, &[ALICE, CAROL]);
        }
        let founder = secret(ALICE).public();
        let number =
            |list: &[u8]| EpochAnnouncement::verify(list, "friends", &founder).unwrap().epoch();
        assert_eq!(number(&export(&world, CAROL)) > number(&bobs), later_epochs > 0);
        stop(&mut world, &[ALICE, CAROL]);
        world.restore_proxy_state(proxy_of_bob);
        world.errors.clear();
        world.restart(CAROL);
        world.run_until("carol is told", |world| {
            world.errors.iter().any(|(person, _)| *person == CAROL)
        });
        assert_eq!(world.errors, [(CAROL, MixClientError::Fork)]);
    }
}

/// Whoever was removed while it was away is told that, and not that there are two lists.
#[test]
fn a_member_that_was_removed_while_it_was_away_is_told() {
    let mut world = with_two(BROADCAST, 65);
    stop(&mut world, &[CAROL]);
    let (now, before) = (world.now, epoch(&world));
    world.people[BOB].client.remove(now, &name(CAROL)).unwrap();
    wait_for_epoch(&mut world, before, &[ALICE, BOB]);
    world.errors.clear();
    world.restart(CAROL);
    world.run_until("carol is told", |world| !world.errors.is_empty());
    assert_eq!(world.errors, [(CAROL, MixClientError::Removed)]);
}
