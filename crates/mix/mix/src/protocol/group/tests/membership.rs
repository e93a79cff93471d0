//! Messages between joining clients, members and the administrator.

use super::world::{LEAST, World, announcement, secret};
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
fn the_last_notice_of_a_member_is_kept_over_a_restart() {
    let mut world = World::of_members(3, 3);
    world.disconnect(0);
    for byte in [1, 2] {
        world.send(1, &MemberToProxy::Notice(vec![byte; 77]));
    }
    world.send(2, &MemberToProxy::Notice(vec![3; 77]));
    world.settle();
    world.restart();
    world.connect(0);
    let notices = |world: &World| {
        let received = world.clients[0].received.iter();
        let mut notices: Vec<_> = received
            .filter_map(|it| match it {
                ProxyToMember::Notice { key, notice } => Some((key.to_bytes(), notice[0])),
                _ => None,
            })
            .collect();
        notices.sort_unstable_by_key(|it| it.1);
        notices
    };
    let key = |client| secret(client).public().to_bytes();
    assert_eq!(notices(&world), [(key(1), 2), (key(2), 3)]);
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
fn an_administrator_need_not_be_a_member() {
    let mut world = World::new(5);
    world.connect(0);
    world.connect(1);
    world.send(0, &MemberToProxy::Announce(announcement(0, 3, &[1, 2])));
    world.connect(2);
    world.run(LEAST * 5);
    assert!(world.clients[0].rounds.is_empty() && world.clients[0].connection.is_some());
    assert!(world.clients[1].rounds.len() >= 3 && world.clients[2].rounds.len() >= 3);
}
