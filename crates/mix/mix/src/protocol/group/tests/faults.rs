//! Faults of one connection do not affect the others.

use std::time::Duration;

use keys::IdentitySecretKey;

use super::super::{
    GroupStateError, MAX_CATCH_UPS, MAX_MEMBERSHIP_MESSAGES, MAX_NON_MEMBERS, MAX_SET_UPS,
    MixGroup, MixGroupEvent, SLOW_ROUNDS,
};
use super::plain;
use super::world::{CLIENTS, INTERVAL, LEAST, World, announcement, secret, settings};
use crate::protocol::exchange::MixExchangeKind;
use crate::protocol::round::RoundPosition;
use crate::protocol::wire::{ArchiveRecord, MemberToProxy, MixTerms, ProxyRefusal, ProxyToMember};

fn events(world: &mut World) -> Vec<MixGroupEvent> {
    std::iter::from_fn(|| world.group.poll_event()).collect()
}

fn key(client: usize) -> keys::IdentityPublicKey {
    secret(client).public()
}

/// Rounds that were closed, with how many took part and how long they were open.
fn closed(events: &[MixGroupEvent]) -> Vec<(usize, usize, Duration)> {
    let closed = |event: &MixGroupEvent| match event {
        MixGroupEvent::RoundClosed { participants, late, took, .. } => {
            Some((*participants, *late, *took))
        }
        _ => None,
    };
    events.iter().filter_map(closed).collect()
}

#[test]
fn rounds_last_as_long_as_the_least_interval_if_all_answer() {
    let mut world = World::of_members(1, 4);
    events(&mut world);
    world.run(LEAST * 10);
    let closed = closed(&events(&mut world));
    assert_eq!(closed.len(), 10);
    assert!(closed.iter().all(|it| *it == (4, 0, LEAST)), "{closed:?}");
}

#[test]
fn a_silent_member_is_waited_for_in_one_round() {
    let mut world = World::of_members(2, 4);
    world.run(LEAST * 3);
    world.clients[3].is_silent = true;
    events(&mut world);
    world.run(INTERVAL + LEAST * 7);
    let events = events(&mut world);
    let closed = closed(&events);
    let first_late = closed.iter().position(|it| it.0 == 3).unwrap();
    assert_eq!(closed[first_late], (3, 1, INTERVAL));
    assert!(closed[first_late + 1..].iter().all(|it| *it == (3, 0, LEAST)), "{closed:?}");
    assert!(closed.len() > first_late + 4);
    let late = events.iter().filter(|it| matches!(it, MixGroupEvent::Late { .. }));
    assert_eq!(late.count(), 1);
    let status = world.group.status(world.now);
    assert_eq!((status.connected, status.counters.late), (4, 1));
    assert_eq!(status.late_members[0].key, key(3));
    assert!(status.late_members[0].since >= INTERVAL);
}

/// It is not late, and all rounds take as long as it likes.
#[test]
fn a_member_that_answers_just_in_time_is_named() {
    let mut world = World::of_members_by(MixExchangeKind::Broadcast, 14, 3);
    let just_in_time = INTERVAL.saturating_sub(LEAST);
    world.pass(LEAST);
    events(&mut world);
    for _ in 0..SLOW_ROUNDS {
        world.deliver(0);
        world.pass(just_in_time);
        // Nobody waits for this one.
        world.deliver(2);
        world.deliver(1);
    }
    let events = events(&mut world);
    let closed = closed(&events);
    assert!(closed.iter().all(|it| *it == (3, 0, just_in_time)), "{closed:?}");
    let slow = |event: &&MixGroupEvent| matches!(event, MixGroupEvent::Slow { .. });
    let named: Vec<_> = events.iter().filter(slow).collect();
    assert_eq!(named, [&MixGroupEvent::Slow { key: key(1), rounds: SLOW_ROUNDS }]);
}

#[test]
fn late_members_are_notified_and_take_part_again() {
    let mut world = World::of_members(3, 3);
    world.pass(LEAST);
    // Rounds go on without the request of client 2, which is on its way.
    for _ in 0..30 {
        world.deliver(0);
        world.deliver(1);
        world.run_job(0);
        world.pass(Duration::from_millis(100));
    }
    let (round, taken) = (world.last_round(), world.clients[2].rounds.len());
    assert!(round > 3 && world.clients[0].rounds.len() > taken + 2);
    events(&mut world);
    world.settle();
    world.run(LEAST * 5);
    let again = |event: &MixGroupEvent| matches!(event, MixGroupEvent::InTimeAgain { key: of, .. } if *of == key(2));
    assert!(events(&mut world).iter().any(again));
    assert!(world.clients[2].rounds.len() > taken + 2);
    assert!(world.group.status(world.now).late_members.is_empty());
}

/// Sends a message in the name of client 1, while rounds go on, and returns why it was refused. All
/// others take part in each round.
fn refused(message: &MemberToProxy) -> Option<ProxyRefusal> {
    let mut world = World::of_members(4, 4);
    world.run(LEAST * 2);
    let before = [0, 2, 3].map(|client: usize| world.clients[client].rounds.len());
    world.send(1, message);
    world.run(LEAST * 10);
    let after = [0, 2, 3].map(|client: usize| world.clients[client].rounds.len());
    assert_eq!(before.map(|rounds| rounds + 10), after, "others were disturbed");
    world.clients[1].refused
}

#[test]
fn misbehaving_connections_are_refused_without_affecting_others() {
    let request = |round| MemberToProxy::Request { round, nonce: [0; 16], body: vec![0; 40] };
    assert_eq!(refused(&request(1)), Some(ProxyRefusal::OutOfTurn), "a request again");
    assert_eq!(
        refused(&request(77)),
        Some(ProxyRefusal::OutOfTurn),
        "a request of a round to come"
    );
    assert_eq!(refused(&MemberToProxy::SetUp(vec![1])), Some(ProxyRefusal::OutOfTurn));
    assert_eq!(refused(&MemberToProxy::AuditSetUp(vec![1])), Some(ProxyRefusal::OutOfTurn));
    assert_eq!(refused(&MemberToProxy::AuditTables(vec![1])), Some(ProxyRefusal::OutOfTurn));
    assert_eq!(refused(&MemberToProxy::Join(vec![1])), Some(ProxyRefusal::AlreadyMember));
    assert_eq!(refused(&MemberToProxy::Notice(vec![0; 300])), Some(ProxyRefusal::Malformed));
    assert_eq!(refused(&MemberToProxy::Notice(vec![0; 256])), None);
    let answer = MemberToProxy::JoinAnswer { key: key(7), answer: vec![] };
    assert_eq!(refused(&answer), Some(ProxyRefusal::NotAdministrator));
    let own = announcement(1, 2, &[1, 2]);
    assert_eq!(refused(&MemberToProxy::Announce(own)), Some(ProxyRefusal::NotAdministrator));
}

#[test]
fn requests_for_wrong_rounds_or_exchanges_are_refused() {
    let lies = [
        (-1, 40, ProxyRefusal::WrongRound),
        (1, 40, ProxyRefusal::WrongRound),
        (0, 40, ProxyRefusal::Engine),
        (0, 4 + settings().terms.shape().mailbox_len() + 6, ProxyRefusal::Engine),
    ];
    for (offset, len, refusal) in lies {
        let mut world = World::of_members(5, 4);
        world.clients[2].is_silent = true;
        world.run(LEAST * 3);
        // The exchange of client 2 waits for its request.
        let round = world.group.rounds.open().unwrap().number().strict_add_signed(offset);
        world.send(2, &MemberToProxy::Request { round, nonce: [0; 16], body: vec![9; len] });
        world.run(LEAST);
        assert_eq!(world.clients[2].refused, Some(refusal));
        let before = world.clients[1].rounds.len();
        world.run(LEAST * 5);
        assert_eq!(world.clients[1].rounds.len(), before + 5);
    }
}

#[test]
fn a_broadcast_of_another_length_or_round_is_refused() {
    let broadcast = MixExchangeKind::Broadcast;
    let own = settings().terms.shape().own_slots_len();
    for (offset, len, refusal) in [
        (-1, own, ProxyRefusal::WrongRound),
        (0, own - 1, ProxyRefusal::Engine),
        (0, own + 1, ProxyRefusal::Engine),
        (0, 0, ProxyRefusal::Engine),
    ] {
        let mut world = World::of_members_by(broadcast, 5, 4);
        world.clients[2].is_silent = true;
        world.run(LEAST * 3);
        let round = world.group.rounds.open().unwrap().number().strict_add_signed(offset);
        world.send(2, &MemberToProxy::Request { round, nonce: [0; 16], body: vec![9; len] });
        world.run(LEAST);
        assert_eq!(world.clients[2].refused, Some(refusal));
        let before = world.clients[1].rounds.len();
        world.run(LEAST * 5);
        assert_eq!(world.clients[1].rounds.len(), before + 5);
    }
    // There is no set-up, and nothing to audit.
    for message in [MemberToProxy::SetUp(vec![1]), MemberToProxy::AuditSetUp(vec![1])] {
        let mut world = World::of_members_by(broadcast, 6, 4);
        world.send(1, &message);
        world.run(LEAST * 3);
        assert_eq!(world.clients[1].refused, Some(ProxyRefusal::OutOfTurn));
    }
    let mut world = World::of_members(7, 4);
    world.send(1, &MemberToProxy::CatchUp(RoundPosition::default()));
    world.run(LEAST * 3);
    assert_eq!(world.clients[1].refused, Some(ProxyRefusal::OutOfTurn), "not by broadcast");
}

/// The group searches its archive for each request, and all wait.
#[test]
fn a_member_asks_for_kept_rounds_a_few_times_in_an_interval() {
    let mut settings = settings();
    let shape = *settings.terms.shape();
    let terms = MixTerms::new(MixExchangeKind::Broadcast, shape, INTERVAL, LEAST).unwrap();
    settings.terms = terms.with_keep(Duration::from_secs(3_600));
    let mut group = MixGroup::with_engines(settings, None, [1; 32], plain::new).unwrap();
    let now = Duration::ZERO;
    group.handle_connected(now, 0, key(0));
    group.handle_message(now, 0, &MemberToProxy::Announce(announcement(0, 1, &[0, 1])).encode());
    group.handle_connected(now, 1, key(1));
    let at = |round| RoundPosition { epoch: 1, round };
    let ask = |group: &mut MixGroup, now, round| {
        group.handle_message(now, 1, &MemberToProxy::CatchUp(at(round)).encode());
        let is_refusal = |event: &MixGroupEvent| matches!(event, MixGroupEvent::Refused { .. });
        let refused = std::iter::from_fn(|| group.poll_event()).find(is_refusal);
        assert_eq!(group.poll_catch_up().is_none(), refused.is_some());
        refused
    };
    // A member that catches up asks for each answer once.
    for round in 0..10 * u64::from(MAX_CATCH_UPS) {
        assert_eq!(ask(&mut group, now, round), None);
        group.handle_past(1, false, vec![ArchiveRecord::Gap(at(round + 1))]);
    }
    // The first time was from the beginning too.
    for _ in 1..MAX_CATCH_UPS {
        assert_eq!(ask(&mut group, now, 0), None);
    }
    let now = now + INTERVAL;
    for _ in 0..MAX_CATCH_UPS {
        assert_eq!(ask(&mut group, now, 0), None);
    }
    let refusal = ProxyRefusal::TooManyMessages;
    assert_eq!(ask(&mut group, now, 0), Some(MixGroupEvent::Refused { key: key(1), refusal }));
}

#[test]
fn a_late_broadcast_member_takes_part_again() {
    let mut world = World::of_members_by(MixExchangeKind::Broadcast, 3, 3);
    world.pass(LEAST);
    for _ in 0..30 {
        world.deliver(0);
        world.deliver(1);
        world.pass(Duration::from_millis(100));
    }
    let taken = world.clients[2].rounds.len();
    assert!(world.clients[0].rounds.len() > taken + 2);
    world.settle();
    world.run(LEAST * 5);
    assert!(world.clients[2].rounds.len() > taken + 2);
    assert!(world.group.status(world.now).late_members.is_empty());
}

#[test]
fn auditors_that_do_not_answer_delay_no_round() {
    let mut world = World::of_members(13, 4);
    events(&mut world);
    world.run(LEAST * 42);
    let events = events(&mut world);
    let closed = closed(&events);
    assert!(closed.iter().all(|it| *it == (4, 0, LEAST)), "{closed:?}");
    let silent = events.iter().filter(|it| matches!(it, MixGroupEvent::AuditorSilent { .. }));
    let abandoned = events.iter().filter(|it| matches!(it, MixGroupEvent::AuditAbandoned { .. }));
    assert!(silent.count() >= 3 && abandoned.count() >= 1);
    // A late message is accepted and changes nothing.
    for client in 0..4 {
        let is_asked = |it: &ProxyToMember| matches!(it, ProxyToMember::Audit { .. });
        let asked = world.clients[client].received.iter().any(is_asked);
        world.send(client, &MemberToProxy::AuditSetUp(vec![1]));
        world.settle();
        let refused = world.clients[client].refused;
        assert_eq!(refused, (!asked).then_some(ProxyRefusal::OutOfTurn), "{client}");
    }
}

#[test]
fn a_member_has_one_connection_and_takes_part_once() {
    let mut world = World::of_members(6, 4);
    world.run(LEAST * 2);
    let round = world.last_round();
    let before: Vec<_> = world.clients.iter().map(|it| it.rounds.len()).collect();
    assert!(world.clients[2].rounds.contains(&round), "it has taken part in the open round");
    events(&mut world);
    world.connect(2);
    world.settle();
    let replaced = MixGroupEvent::Refused { key: key(2), refusal: ProxyRefusal::Replaced };
    assert!(events(&mut world).contains(&replaced));
    world.run(LEAST * 5);
    let after: Vec<_> = world.clients.iter().map(|it| it.rounds.len()).collect();
    assert!((0..4).all(|client| after[client] == before[client] + 5), "{before:?} {after:?}");
}

#[test]
fn exchanges_of_lost_connections_are_dropped() {
    let mut world = World::of_members(7, 3);
    world.pass(LEAST);
    world.settle();
    world.pass(LEAST);
    while world.jobs.len() < 3 {
        if !world.jobs.is_empty() && world.clients.iter().all(|it| it.outbox.is_empty()) {
            world.run_job(0);
        }
        (0..3).for_each(|client| world.deliver(client));
    }
    // The engines compute three answers. Client 1 connects again: its update must not be in the
    // mailbox, unless it hands in another one.
    world.connect(1);
    world.run(LEAST * 6);
    assert!(world.clients[1].rounds.len() >= 4);
}

#[test]
fn a_flood_of_join_requests_is_limited() {
    let mut world = World::of_members(8, 4);
    world.disconnect(0);
    let before = world.clients[2].rounds.len();
    let stranger = |number: usize| {
        let mut seed = [99; 32];
        seed[0] = u8::try_from(number).unwrap();
        IdentitySecretKey::new(&seed).public()
    };
    let join = MemberToProxy::Join(vec![1; 1024]).encode();
    for number in 0..MAX_NON_MEMBERS + 20 {
        let id = 1000 + number as u64;
        world.group.handle_connected(world.now, id, stranger(number));
        world.group.handle_message(world.now, id, &join);
    }
    let refused = |event: &&MixGroupEvent| {
        matches!(event, MixGroupEvent::Refused { refusal: ProxyRefusal::TooManyConnections, .. })
    };
    assert_eq!(events(&mut world).iter().filter(refused).count(), 20);
    assert_eq!(world.group.status(world.now).joins_waiting, MAX_NON_MEMBERS);
    // A client that disconnects makes room for another.
    world.group.handle_disconnected(world.now, 1000);
    world.group.handle_connected(world.now, 2000, stranger(100));
    world.group.handle_message(world.now, 2000, &join);
    let waiting = |world: &World, number| world.group.joins.is_waiting(&stranger(number));
    assert!(waiting(&world, 100) && !waiting(&world, 0) && waiting(&world, 1));
    for letter in 0..MAX_MEMBERSHIP_MESSAGES {
        world.group.handle_message(world.now, 2000, &join);
        let last =
            MixGroupEvent::Refused { key: stranger(100), refusal: ProxyRefusal::TooManyMessages };
        assert_eq!(events(&mut world).contains(&last), letter + 1 == MAX_MEMBERSHIP_MESSAGES);
    }
    world.run(LEAST * 5);
    assert_eq!(world.clients[2].rounds.len(), before + 5);
}

#[test]
fn set_up_messages_are_bounded() {
    let mut world = World::of_members(9, 3);
    world.connect(1);
    world.clients[1].outbox.clear();
    for _ in 0..=MAX_SET_UPS {
        world.send(1, &MemberToProxy::SetUp(vec![7; 100]));
        world.deliver(1);
    }
    assert_eq!(world.clients[1].refused, Some(ProxyRefusal::TooManyMessages));
}

/// An administrator that was slower than another one gets the other one's announcement.
#[test]
fn an_announcement_that_does_not_follow_is_ignored() {
    let mut world = World::of_members(10, 4);
    let too_late = world.next_announcement(2, &[0, 1]);
    world.announce(2, &[0, 1, 2]);
    world.settle();
    for ignored in [too_late, announcement(0, 1, &[0, 1]), announcement(0, 3, &[0, 1])] {
        world.send(0, &MemberToProxy::Announce(ignored));
        world.run(LEAST * 5);
        assert_eq!(world.clients[0].refused, None);
        let status = world.group.status(world.now);
        assert_eq!((status.epoch, status.members), (2, 3));
    }
}

#[test]
fn announcements_that_are_forged_change_nothing() {
    let forged_by_member = announcement(3, 2, &[0, 1, 2, 3]);
    let too_many = announcement(0, 2, &[0, 1, 2, 3, 4, 5, 6]);
    let mut changed = announcement(0, 2, &[0, 1]);
    changed[10] ^= 1;
    for (announcement, refusal) in [
        (forged_by_member, ProxyRefusal::BadAnnouncement),
        (too_many, ProxyRefusal::BadAnnouncement),
        (changed, ProxyRefusal::BadAnnouncement),
        (vec![], ProxyRefusal::BadAnnouncement),
    ] {
        let mut world = World::of_members(10, 4);
        let before = world.clients[2].rounds.len();
        world.send(0, &MemberToProxy::Announce(announcement));
        world.run(LEAST * 5);
        assert_eq!(world.clients[0].refused, Some(refusal));
        assert_eq!(world.group.status(world.now).epoch, 1);
        assert_eq!(world.clients[2].rounds.len(), before + 5);
        let announced = |it: &&ProxyToMember| matches!(it, ProxyToMember::Announcement(_));
        assert_eq!(world.clients[2].received.iter().filter(announced).count(), 1);
    }
}

#[test]
fn rounds_continue_after_a_restart_with_new_numbers() {
    let mut world = World::of_members(11, 4);
    for _ in 0..5 {
        world.run(LEAST * 4);
        let last = world.last_round();
        world.restart();
        (0..CLIENTS).for_each(|client| world.connect(client));
        world.run(LEAST * 4);
        assert!(world.last_round() > last);
        assert_eq!(world.group.status(world.now).counters.last_participants, 4);
    }
}

#[test]
fn nothing_is_sent_before_the_state_is_stored() {
    let group = MixGroup::with_engines(settings(), None, [1; 32], plain::new);
    let mut group = group.unwrap();
    let now = Duration::ZERO;
    group.handle_connected(now, 1, key(0));
    while group.poll_transmit().is_some() {}
    group.handle_message(now, 1, &MemberToProxy::Announce(announcement(0, 1, &[0, 1])).encode());
    assert_eq!(group.poll_transmit(), None);
    assert!(group.poll_store().is_some());
    assert!(group.poll_transmit().is_some());
    assert_eq!(group.poll_store(), None);
}

#[test]
fn a_damaged_state_is_refused() {
    let mut world = World::of_members(12, 3);
    world.send(1, &MemberToProxy::Notice(vec![5; 77]));
    world.settle();
    let stored = world.stored.clone().unwrap();
    let restore =
        |bytes: &[u8]| super::super::stored::StoredGroup::decode(bytes, &settings()).err();
    assert_eq!(restore(&stored), None);
    for at in 0..stored.len() {
        let mut changed = stored.clone();
        changed[at] ^= 0x10;
        assert_eq!(restore(&changed), Some(GroupStateError::Damaged));
        assert_eq!(restore(&stored[..at]), Some(GroupStateError::Damaged));
    }
    let mut other = settings();
    other.administrator = key(1);
    let error = super::super::stored::StoredGroup::decode(&stored, &other).err();
    assert_eq!(error, Some(GroupStateError::OtherGroup));
}
