//! Servers that have missed the beginning of an epoch, or receive the start of an ended one.

use super::*;
use crate::protocol::server::refreshing::{INVITE, RUN};

const ALL: [Number; 4] = [1, 2, 3, 4];

/// A server of the group that misses refreshes.
const LATE: Number = 4;

impl World {
    /// Four servers that have begun.
    fn of_four(seed: u64, others: impl IntoIterator<Item = Number>) -> Self {
        let mut world = Self::new(1, others, seed);
        world.run_until(|world| world.have_epoch(1, &ALL));
        world
    }

    /// A refresh to the same four servers, of which these run.
    fn refresh_of(&mut self, running: &[Number], epoch: u64) {
        self.refresh(&running[..2], &group(1, 1));
        self.run_until(|world| world.have_epoch(epoch, running));
    }

    /// What a server knows of the state of its group, with all signatures.
    fn start_of(&self, number: Number) -> GroupStart {
        let start = self.nodes[&number].server.as_ref().unwrap().start().unwrap().clone();
        assert!(start.is_chain_signed());
        start
    }

    /// Passes a start to a server, and lets only that server react.
    fn send_start(&mut self, to: Number, from: Number, start: &GroupStart) {
        let (now, bytes) = (self.now, [&[INVITE][..], &start.to_bytes()].concat());
        let from = identity(from).public();
        self.server(to).handle_message(now, &from, LinkTopic::Refresh, &bytes, 0);
        while self.poll(to) {}
    }

    fn status_of(&self, number: Number) -> QuorumServerStatus {
        self.nodes[&number].server.as_ref().unwrap().status()
    }

    fn epoch_of(&self, number: Number) -> u64 {
        self.status_of(number).epoch.unwrap().epoch
    }
}

#[test]
fn a_server_that_missed_any_number_of_refreshes_is_invited_again() {
    for missed in 1..=3 {
        let mut world = World::of_four(30 + missed, []);
        world.stop(LATE);
        for epoch in 2..=missed + 1 {
            world.refresh_of(&ALL[..3], epoch);
        }
        // The others have deleted everything before.
        world.forgotten = world.start_of(1).height;
        world.start(LATE);
        world.run_until(|world| world.have_epoch(missed + 1, &[LATE]));
        assert_eq!(world.status_of(LATE).behind, None);
        world.run_until(|world| world.nodes[&LATE].saved.shares.contains_key(&(missed + 1)));
        world.assert_wiped(missed + 1, &ALL);
        world.sign(LATE, b"after");
        // It is one of those that the next refresh needs.
        world.stop(1);
        world.refresh_of(&ALL[1..], missed + 2);
    }
}

#[test]
fn shares_are_wiped_on_a_signed_chain_of_a_later_epoch() {
    let mut world = World::of_four(40, 100..104);
    world.stop(LATE);
    world.refresh(&[1, 2], &group(1, 100));
    world.run_until(|world| world.have_epoch(2, &[100, 101, 102, 103]));
    let start = world.start_of(100);
    world.forgotten = start.height;
    world.start(LATE);
    world.links.clear();
    while world.poll(LATE) {}
    assert!(world.epoch_of(LATE) == 1 && world.nodes[&LATE].saved.shares.contains_key(&1));
    // The sender is unknown to it.
    world.send_start(LATE, 200, &start);
    assert!(world.nodes[&LATE].saved.shares.is_empty());
    let wiped = QuorumServerEvent::EpochEnded { epoch: 1, newest: 2 };
    let events = &world.nodes[&LATE].events;
    assert!(
        events.windows(2).any(|it| *it == [wiped.clone(), QuorumServerEvent::Wiped { epoch: 1 }]),
        "{events:?}"
    );
    let behind = NewerEpochStatus { epoch: 2, is_member: false, invites: 0, needed: 2 };
    assert_eq!(world.status_of(LATE).behind, Some(behind));
    let now = world.now;
    assert_eq!(world.server(LATE).start_refresh(group(1, 1), now), Err(RefreshRefusal::NoMember));
    // It does not ask the others for them, not even after a restart.
    world.stop(LATE);
    world.start(LATE);
    for _ in 0..20 {
        while world.poll(LATE) {}
        world.now += Duration::from_secs(1);
    }
    let asks = |(from, _, _, bytes): &(_, _, _, Bytes)| *from == LATE && bytes[0] == RUN;
    assert!(!world.links.iter().any(asks));
    assert_eq!(world.status_of(LATE).behind, Some(behind));
    assert!(world.nodes[&LATE].saved.shares.is_empty());
}

/// If all new servers received this now and wiped what they have, the key would be lost.
#[test]
fn refresh_items_for_the_newest_epoch_survive_its_announcement() {
    let mut world = World::of_four(50, []);
    let has_computed = |world: &World| {
        let mut items = world.nodes[&LATE].saved.items.values();
        items.any(|it| it.contains_key(&RunItemName::Shares))
    };
    world.refresh(&[1, 2], &group(1, 1));
    world.run_until(has_computed);
    // Its log stops.
    world.stalled.insert(LATE);
    assert_eq!(world.epoch_of(LATE), 1);
    world.run_until(|world| world.have_epoch(2, &ALL[..3]));
    world.run_until(|world| world.status_of(LATE).behind.is_some_and(|it| it.invites >= 2));
    assert_eq!(world.epoch_of(LATE), 1);
    assert!(world.nodes[&LATE].saved.shares.is_empty() && has_computed(&world));
    let items = world.nodes[&LATE].saved.items.values().flat_map(BTreeMap::keys);
    assert!(!items.into_iter().any(|it| matches!(it, RunItemName::Seed(_))));
    // Nobody can give it shares.
    ALL[..3].iter().for_each(|number| world.stop(*number));
    world.run_until(|world| world.have_epoch(2, &[LATE]));
    while world.poll(LATE) {}
    let saved = &world.nodes[&LATE].saved;
    assert!(saved.items.is_empty() && saved.shares.keys().eq(&[2]));
}

#[test]
fn server_at_a_false_height_of_an_ended_epoch_enters_the_newest() {
    let mut world = World::of_four(60, []);
    let mut first = world.start_of(1);
    world.stop(LATE);
    world.refresh_of(&ALL[..3], 2);
    let start = world.start_of(1);
    world.nodes.get_mut(&LATE).unwrap().saved = SavedServerState::default();
    world.start(LATE);
    world.links.clear();
    // f+1 servers of the first epoch, of which the keys were stolen since.
    first.height = Height(1_000_000);
    world.send_start(LATE, 1, &first);
    assert_eq!(world.status_of(LATE).epoch, None);
    world.send_start(LATE, 2, &first);
    assert_eq!((world.epoch_of(LATE), world.status_of(LATE).height), (1, first.height));
    world.send_start(LATE, 200, &start);
    assert_eq!(world.status_of(LATE).behind.unwrap().epoch, 2);
    // f servers of the newest epoch send a false height.
    let forged = GroupStart { height: Height(7), ..start.clone() };
    for (from, start) in [(1, &forged), (2, &start), (200, &forged), (3, &start)] {
        world.send_start(LATE, from, start);
        // Starts of servers of the ended epoch no longer count.
        world.send_start(LATE, from, &first);
    }
    world.now += TIMEOUTS.retry;
    while world.poll(LATE) {}
    let begun = world.nodes[&LATE].saved.start.as_ref().unwrap();
    assert_eq!((world.epoch_of(LATE), begun.height), (2, start.height));
    assert!(world.nodes[&LATE].saved.height < first.height);
    world.links.clear();
    for number in &ALL[..3] {
        world.link_up(LATE, *number);
        world.link_up(*number, LATE);
    }
    world.run_until(|world| world.have_epoch(2, &[LATE]));
    world.sign(LATE, b"after");
}

#[test]
fn a_chain_that_differs_from_the_known_one_changes_nothing() {
    let mut world = World::of_four(70, (50..54).chain(100..104));
    let saved: Vec<_> = world.nodes.values().map(|node| node.saved.clone()).collect();
    // More than f servers go back to a state of before.
    let chains = [100, 50].map(|first| {
        world.log.clear();
        world.sets.clear();
        world.links.clear();
        for (number, saved) in world.numbers().into_iter().zip(&saved) {
            world.stop(number);
            world.nodes.get_mut(&number).unwrap().saved = saved.clone();
        }
        world.numbers().into_iter().for_each(|number| world.start(number));
        world.refresh(&[1, 2], &group(1, first));
        let members: Vec<Number> = (first..first + 4).collect();
        world.run_until(|world| world.have_epoch(2, &members) && world.epoch_of(1) == 2);
        world.start_of(first)
    });
    let before = world.status_of(50);
    world.nodes.get_mut(&50).unwrap().events.clear();
    world.send_start(50, 100, &GroupStart { refresh: None, ..chains[0].clone() });
    assert_eq!(world.status_of(50), before);
    // A longer one, too.
    let mut longer = chains[0].clone();
    longer.chain.push(chains[0].chain[1].clone());
    world.send_start(50, 100, &longer);
    assert_eq!(world.status_of(50), before);
    let is_reported = |event: &QuorumServerEvent| matches!(event, QuorumServerEvent::MessageRefused { why, .. } if why.contains("more than f"));
    assert!(world.nodes[&50].events.iter().any(is_reported), "{:?}", world.nodes[&50].events);
}

#[test]
fn unsigned_starts_are_rejected() {
    let mut world = World::of_four(80, [100]);
    let start = world.start_of(1);
    let before = (world.status_of(2), world.status_of(100));
    let mut forged = vec![start.clone(); 5];
    forged[0].chain[0].signature[9] ^= 1;
    forged[1].chain.push(SignedGroupHeader { signature: vec![0; 64], ..start.chain[0].clone() });
    // It follows none.
    forged[2].chain.push(start.chain[0].clone());
    forged[3].witnesses[9] ^= 1;
    forged[4].chain[0].signature.clear();
    for forged in &forged {
        world.send_start(2, 3, forged);
        for from in [1, 3] {
            world.send_start(100, from, forged);
        }
    }
    assert_eq!(world.status_of(2), before.0);
    // The chain of one with wrong witnesses is right.
    let newer = world.status_of(100).behind.map(|behind| (behind.epoch, behind.invites));
    assert!(before.1.behind.is_none() || newer == Some((1, 0)), "{newer:?}");
    assert_eq!(world.status_of(100).epoch, None);
}
