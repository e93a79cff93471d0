//! Messages between joining clients, members and the administrator.

use std::sync::Arc;
use std::time::Duration;

use keys::IdentityPublicKey;

use super::super::epoch::AnnouncedEpoch;
use super::super::{MAX_JOINS_PASSED_ON, MixGroup};
use super::world::{INTERVAL, LEAST, World, announcement, secret, settings};
use crate::protocol::exchange::MixExchangeKind;
use crate::protocol::membership::announcement_by_two;
use crate::protocol::wire::{MemberToProxy, MembershipStatus, ProxyRefusal, ProxyToMember};

fn requests(world: &World) -> Vec<&ProxyToMember> {
    let received = world.clients[0].received.iter();
    received.filter(|it| matches!(it, ProxyToMember::JoinRequest { .. })).collect()
}

#[test]
fn a_request_waits_for_the_administrator_and_its_answer_for_the_client() {
    let mut world = World::of_members(1, 3);
    world.disconnect(0);
    world.connect(5);
    assert_eq!(world.clients[5].status, Some(MembershipStatus::Unknown));
    world.send(5, &MemberToProxy::Join(b"please".to_vec()));
    world.settle();
    world.disconnect(5);
    world.connect(0);
    let key = secret(5).public();
    let expected = ProxyToMember::JoinRequest { key, request: b"please".to_vec() };
    assert_eq!(requests(&world), [&expected]);
    world.connect(5);
    assert_eq!(world.clients[5].status, Some(MembershipStatus::Waiting));
    world.disconnect(5);
    world.send(0, &MemberToProxy::JoinAnswer { key, answer: b"yes".to_vec() });
    world.settle();
    world.connect(5);
    let answer = ProxyToMember::JoinAnswer(b"yes".to_vec());
    assert_eq!(world.clients[5].received.last(), Some(&answer));
    world.connect(0);
    assert_eq!(requests(&world).len(), 1, "an answered request does not wait");
    world.announce(2, &[0, 1, 2, 5]);
    world.run(LEAST * 4);
    assert!(world.clients[5].rounds.len() >= 3);
    assert_eq!(world.group.status(world.now).epoch, 2);
}

/// Outsiders connect again and again, and so evade the limit of each connection.
#[test]
fn administrators_get_a_bounded_number_of_join_requests_in_an_interval() {
    let mut world = World::of_members(10, 3);
    let flood = |world: &mut World| {
        for byte in 0..u8::MAX {
            let client = 5 + usize::from(byte) % 3;
            world.connect(client);
            world.send(client, &MemberToProxy::Join(vec![byte; 100]));
            world.settle();
        }
    };
    let newcomer = 4;
    let has_asked = |world: &World| {
        let key = secret(newcomer).public();
        requests(world)
            .iter()
            .any(|it| matches!(it, ProxyToMember::JoinRequest { key: of, .. } if *of == key))
    };
    let most = usize::try_from(MAX_JOINS_PASSED_ON).unwrap();
    flood(&mut world);
    assert_eq!(requests(&world).len(), most);
    world.connect(newcomer);
    world.send(newcomer, &MemberToProxy::Join(b"please".to_vec()));
    world.settle();
    assert!(!has_asked(&world) && world.group.status(world.now).joins_waiting == 4);
    // The oldest comes first, so others cannot keep it back.
    world.pass(INTERVAL);
    assert!(has_asked(&world));
    flood(&mut world);
    assert_eq!((requests(&world).len(), world.clients[0].refused), (2 * most, None));
}

#[test]
fn removed_members_are_notified() {
    let mut world = World::of_members(2, 4);
    world.connect(6);
    world.announce(2, &[2, 0, 1]);
    world.run(LEAST * 4);
    assert_eq!(world.clients[3].refused, Some(ProxyRefusal::Removed));
    assert_eq!(world.clients[6].refused, None, "a stranger is not told");
    let announced = |it: &ProxyToMember| matches!(it, ProxyToMember::Announcement(_));
    assert!(!world.clients[6].received.iter().any(announced));
    assert_eq!(world.group.status(world.now).members, 3);
    world.connect(3);
    assert_eq!(world.clients[3].status, Some(MembershipStatus::Unknown));
    world.send(3, &MemberToProxy::Notice(vec![1]));
    world.settle();
    assert_eq!(world.clients[3].refused, Some(ProxyRefusal::NotMember));
}

#[test]
fn the_last_notices_of_a_member_are_kept_over_a_restart() {
    let mut world = World::of_members(3, 3);
    world.disconnect(0);
    // That the member leaves is 2: neither takes the place of the other.
    for byte in [4, 2, 1] {
        world.send(1, &MemberToProxy::Notice(vec![byte; 77]));
    }
    world.send(2, &MemberToProxy::Notice(vec![4; 77]));
    world.send(2, &MemberToProxy::Notice(vec![3; 77]));
    world.settle();
    world.restart();
    world.connect(0);
    let key = |client| secret(client).public().to_bytes();
    let notices = |world: &World| {
        let received = world.clients[0].received.iter();
        let mut notices: Vec<_> = received
            .filter_map(|it| match it {
                ProxyToMember::Notice { key, notice } => Some((key.to_bytes(), notice[0])),
                _ => None,
            })
            .collect();
        // Stable: of a member, that it leaves comes first.
        notices.sort_by_key(|(of, _)| *of == key(2));
        notices
    };
    assert_eq!(notices(&world), [(key(1), 2), (key(1), 1), (key(2), 3)]);
    world.announce(2, &[0, 2]);
    world.settle();
    world.clients[0].received.clear();
    world.connect(0);
    assert_eq!(notices(&world), [(key(2), 3)], "who is no member has no notice");
}

#[test]
fn a_full_group_takes_no_requests() {
    let mut world = World::of_members(4, 6);
    world.connect(7);
    world.send(7, &MemberToProxy::Join(vec![1]));
    world.settle();
    assert_eq!(world.clients[7].refused, Some(ProxyRefusal::GroupFull));
}

#[test]
fn an_administrator_is_a_member() {
    let mut world = World::of_members(5, 3);
    world.announce(2, &[1, 2]);
    world.settle();
    assert_eq!(world.clients[0].refused, Some(ProxyRefusal::BadAnnouncement));
    assert_eq!(world.group.status(world.now).epoch, 1);
}

#[test]
fn an_epoch_follows_the_one_that_the_proxy_has() {
    let mut world = World::of_members(8, 3);
    for number in [3, u32::MAX] {
        world.announce(number, &[0, 1]);
        world.settle();
        assert_eq!(world.group.status(world.now).epoch, 1);
    }
    // Of an administrator that does not know the first one.
    let other = announcement(0, 2, &[0, 1]);
    world.send(0, &MemberToProxy::Announce(other));
    world.settle();
    assert_eq!(world.group.status(world.now).epoch, 1);
    world.announce(2, &[0, 1]);
    world.settle();
    assert_eq!(world.group.status(world.now).epoch, 2);
}

#[test]
fn a_member_cannot_use_up_the_numbers_of_rounds() {
    let mut world = World::of_members_by(MixExchangeKind::Broadcast, 9, 3);
    let announcement = world.group.newest().unwrap().announcement().to_vec();
    let restore = |round| MemberToProxy::Restore { round, announcement: announcement.clone() };
    world.send(1, &restore((1 << 62) - 1));
    world.run(LEAST * 3);
    assert!(world.last_round() < 100, "{}", world.last_round());
    // A proxy whose state is a little old takes the number, and does not say that it lost the
    // epoch. That is so for a second member too.
    world.send(2, &restore(70_000));
    world.run(LEAST * 3);
    assert!((70_000..71_000).contains(&world.last_round()));
    world.connect(3);
    let is_restored =
        |it: &ProxyToMember| matches!(it, ProxyToMember::Welcome { is_restored: true, .. });
    assert!(!world.clients[3].received.iter().any(is_restored));
    world.send(0, &restore((1 << 62) - 1));
    world.run(LEAST * 3);
    assert!(world.last_round() < 71_000);
}

/// A proxy without a state, and members that have epoch 3.
fn lost(world: &mut World) -> Vec<u8> {
    world.announce(2, &[0, 1, 2]);
    world.settle();
    world.announce(3, &[0, 1, 2]);
    world.settle();
    let newest = world.group.newest().unwrap().announcement().to_vec();
    world.stored = None;
    world.restart();
    newest
}

#[test]
fn a_member_restores_an_epoch_and_the_numbers_of_its_rounds() {
    let mut world = World::of_members_by(MixExchangeKind::Broadcast, 6, 3);
    let announcement = lost(&mut world);
    world.connect(1);
    assert_eq!(world.clients[1].status, Some(MembershipStatus::Unknown));
    let restore = |round| MemberToProxy::Restore { round, announcement: announcement.clone() };
    let before = world.clients[1].rounds.len();
    world.send(1, &restore(500));
    world.run(LEAST * 3);
    assert_eq!(world.group.status(world.now).epoch, 3);
    let rounds = &world.clients[1].rounds[before..];
    assert!(rounds.len() >= 2 && rounds.iter().all(|round| *round > 500), "{rounds:?}");
    // Others are told, and a member that knows a later round says so once.
    world.connect(2);
    let restored = |it: &ProxyToMember| {
        matches!(it, ProxyToMember::Welcome { epoch: 3, is_restored: true, .. })
    };
    assert!(world.clients[2].received.iter().any(restored));
    world.send(2, &restore(900));
    world.run(LEAST * 3);
    let last = world.last_round();
    assert!(last > 900);
    world.send(2, &restore(5_000));
    world.run(LEAST * 3);
    assert!((last..last + 10).contains(&world.last_round()), "only once in an epoch");
    // It is stored.
    world.restart();
    world.connect(1);
    world.run(LEAST * 3);
    assert!(world.last_round() > last && world.group.status(world.now).epoch == 3);
}

#[test]
fn only_the_listed_restore_and_nothing_old() {
    let mut world = World::of_members_by(MixExchangeKind::Broadcast, 7, 3);
    let old = world.group.newest().unwrap().announcement().to_vec();
    let announcement = lost(&mut world);
    world.connect(6);
    world.send(6, &MemberToProxy::Restore { round: 1, announcement: announcement.clone() });
    world.settle();
    assert_eq!(world.clients[6].refused, Some(ProxyRefusal::NotMember));
    assert_eq!(world.group.status(world.now).epoch, 0);
    let mut forged = announcement.clone();
    forged[200] ^= 1;
    world.connect(1);
    world.send(1, &MemberToProxy::Restore { round: 1, announcement: forged });
    world.settle();
    assert_eq!(world.clients[1].refused, Some(ProxyRefusal::BadAnnouncement));
    // An older one is replaced by the newest, and does not come back.
    world.connect(1);
    world.send(1, &MemberToProxy::Restore { round: 50, announcement: old.clone() });
    world.settle();
    assert_eq!(world.group.status(world.now).epoch, 1);
    world.connect(2);
    world.send(2, &MemberToProxy::Restore { round: 60, announcement });
    world.send(1, &MemberToProxy::Restore { round: 1 << 63, announcement: old });
    world.run(LEAST * 3);
    assert_eq!(world.group.status(world.now).epoch, 3);
    assert!(world.last_round() < 100);
}

/// Anybody can send announcements to be restored. Those that cannot count are refused before their
/// signatures are verified: here none is valid.
#[test]
fn announcements_that_cannot_count_are_refused_unverified() {
    let mut world = World::of_members_by(MixExchangeKind::Broadcast, 7, 3);
    let restore = |announcement: &[u8]| {
        let mut announcement = announcement.to_vec();
        *announcement.last_mut().unwrap() ^= 1;
        MemberToProxy::Restore { round: 1, announcement }
    };
    let stranger = 6;
    let is_listed = announcement(0, 1, &[0, stranger]);
    world.announce(2, &[0, 1, 2]);
    world.settle();
    let newest = world.group.newest().unwrap().announcement().to_vec();
    // An old one, one without the client, and one of another list of administrators end the
    // connection.
    world.connect(stranger);
    world.send(stranger, &restore(&is_listed));
    world.settle();
    assert_eq!(world.clients[stranger].refused, Some(ProxyRefusal::Removed));
    world.connect(stranger);
    world.send(stranger, &restore(&newest));
    world.settle();
    assert_eq!(world.clients[stranger].refused, Some(ProxyRefusal::NotMember));
    let [founder, one, other] = [0, 1, stranger].map(|client| secret(client).public());
    let by_two = |epoch, members: &[IdentityPublicKey]| {
        announcement_by_two(&secret(0), "friends", epoch, members)
    };
    let announced = AnnouncedEpoch::verify(&by_two(9, &[founder, one]), &settings()).unwrap();
    world.group.epoch = Some(announced);
    world.connect(stranger);
    world.send(stranger, &restore(&by_two(10, &[founder, other])));
    world.settle();
    assert_eq!(world.clients[stranger].refused, Some(ProxyRefusal::NotMember));
    // Only one that could be the newest is verified.
    world.connect(stranger);
    world.send(stranger, &restore(&by_two(10, &[founder, one, other])));
    world.settle();
    assert_eq!(world.clients[stranger].refused, Some(ProxyRefusal::BadAnnouncement));
}

/// In a large group, a copy for each member would take much memory.
#[test]
fn all_members_get_the_same_bytes_of_an_announcement() {
    let mut group = MixGroup::new(settings(), None, [7; 32]).unwrap();
    let now = Duration::ZERO;
    group.handle_connected(now, 0, secret(0).public());
    let announcement = announcement(0, 1, &[0, 1, 2]);
    group.handle_message(now, 0, &MemberToProxy::Announce(announcement.clone()).encode());
    for client in [1, 2] {
        group.handle_connected(now, client as u64, secret(client).public());
    }
    let _ = group.poll_store();
    let sent = std::iter::from_fn(|| group.poll_transmit());
    let announced = ProxyToMember::Announcement(announcement).encode();
    let all: Vec<_> = sent.map(|it| it.message).filter(|it| **it == *announced).collect();
    assert_eq!(all.len(), 3);
    assert!(all.iter().all(|it| Arc::ptr_eq(it, &all[0])));
}
