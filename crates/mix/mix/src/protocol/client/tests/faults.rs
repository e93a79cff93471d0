//! Messages of a dishonest proxy, and clients that may not join. Each fault is reported, and does
//! not affect other members.

use std::time::Duration;

use super::exchanges::{BROADCAST, EXCHANGES, Exchanges, OBLIVIOUS};
use super::person::{NAMES, secret};
use super::world::World;
use crate::protocol::client::{ClientConversations, LeaveGroupError, MixClientError};
use crate::protocol::event::MixClientEvent;
use crate::protocol::exchange::MixExchangeKind;
use crate::protocol::membership::{JoinRefusal, JoinRequest, MemberName, PrekeySecret};
use crate::protocol::round::{NONCE_LEN, Participant, RoundStart};
use crate::protocol::wire::{MemberToProxy, ProxyRefusal, ProxyToMember};

const DAY: Duration = Duration::from_secs(86_400);
const BOB: usize = 1;

/// Changes the round starts that are sent to bob.
fn change_rounds(world: &mut World, mut change: impl FnMut(&mut RoundStart) + 'static) {
    world.tamper = Some(Box::new(move |person, message| match message {
        ProxyToMember::Round { start, .. } if person == BOB => change(start),
        _ => {}
    }));
}

/// The events of bob as text.
fn reports(world: &World) -> Vec<String> {
    world.people[BOB].reported.iter().map(ToString::to_string).collect()
}

fn run_rounds(world: &mut World, count: u64) {
    let end = world.rounds + count;
    world.run_until("rounds go on", |world| world.rounds >= end);
}

/// Checks that the others take part in all rounds, with correct mailboxes and without reconnecting.
fn check_others(world: &World) {
    for person in [0, 2] {
        let status = world.people[person].status();
        assert_eq!((status.not_of_round_since, status.waiting_for), (None, None));
        let is_wrong = |it: &&MixClientEvent| {
            matches!(it, MixClientEvent::NotOfThisRound { .. } | MixClientEvent::LeftOut { .. })
        };
        assert_eq!(world.people[person].reported.iter().find(is_wrong), None, "{}", NAMES[person]);
    }
    assert!(world.errors.iter().all(|(person, _)| *person == BOB), "{:?}", world.errors);
}

#[test]
fn an_old_mailbox_is_noticed_and_messages_wait() {
    let mut world = World::of_members(OBLIVIOUS, 1);
    assert!(world.people[0].say("bob", ""));
    // The list is that of the round, but the mailbox is not.
    change_rounds(&mut world, |start| {
        let read = start.read.as_mut().unwrap();
        read.participants[0].nonce = [7; NONCE_LEN];
    });
    run_rounds(&mut world, 20);
    let since = world.people[BOB].status().not_of_round_since.unwrap();
    let first = reports(&world).into_iter().find(|it| it.starts_with("the mailbox of")).unwrap();
    let expected = format!(
        "the mailbox of round {since} is not the one that the members filled, since round {since}: \
         the proxy repeats an old one"
    );
    assert!(first.starts_with(&expected), "{first}");
    assert!(world.people[BOB].read.is_empty() && world.people[0].undelivered() == 1);
    check_others(&world);
    world.tamper = None;
    world.finish();
    assert_eq!(world.people[BOB].status().not_of_round_since, None);
    assert_eq!(world.people[BOB].read["alice"].len(), 1);
}

/// A list of another round, or other slots than those of the participants.
#[test]
fn a_changed_broadcast_is_noticed_by_its_author_and_messages_wait() {
    let mut world = World::of_members(BROADCAST, 1);
    assert!(world.people[0].say("bob", ""));
    change_rounds(&mut world, |start| {
        start.read.as_mut().unwrap().participants[0].nonce = [7; NONCE_LEN];
    });
    run_rounds(&mut world, 20);
    assert!(world.people[BOB].read.is_empty() && world.people[0].undelivered() == 1);
    assert_eq!(reports(&world).iter().filter(|it| it.starts_with("the proxy")).count(), 0);
    world.tamper = Some(Box::new(|person, message| match message {
        ProxyToMember::Round { opening, .. } if person == BOB => {
            opening[1..].iter_mut().for_each(|byte| *byte ^= 1);
        }
        _ => {}
    }));
    run_rounds(&mut world, 5);
    let text = "the proxy has changed what this member sent in round";
    assert!(reports(&world).iter().any(|it| it.starts_with(text)), "{:?}", reports(&world));
    check_others(&world);
    world.tamper = None;
    world.finish();
    assert_eq!(world.people[BOB].read["alice"].len(), 1);
}

#[test]
fn a_broadcast_of_another_length_ends_the_connection() {
    let changes: [fn(&mut Vec<u8>); 3] =
        [|slots| slots.push(0), |slots| slots.truncate(slots.len() - 1), |slots| slots.clear()];
    for change in changes {
        let mut world = World::of_members(BROADCAST, 2);
        world.tamper = Some(Box::new(move |person, message| match message {
            ProxyToMember::Round { opening, .. } if person == BOB && !opening.is_empty() => {
                change(opening);
            }
            _ => {}
        }));
        run_rounds(&mut world, 5);
        let (person, error) = world.errors.first().expect("the length is checked");
        let is_it = error.to_string().starts_with("an exchange with the proxy failed");
        assert!(*person == BOB && is_it && !error.is_final(), "{error}");
        check_others(&world);
        world.tamper = None;
        assert!(world.people[0].say("bob", ""));
        world.finish();
    }
}

/// In a group of broadcasts nobody audits, so the proxy would have a member removed.
#[test]
fn an_audit_that_cannot_have_been_made_ends_the_connection() {
    let mut world = World::of_members(BROADCAST, 13);
    let now = world.now;
    let failed = ProxyToMember::AuditFailed { key: secret(BOB).public(), round: 1 }.encode();
    let client = &mut world.people[0].client;
    let handled = client.handle_message(now, &failed);
    assert!(matches!(handled, Err(MixClientError::OutOfTurn(_))), "{handled:?}");
    assert!(!client.events.iter().any(|it| matches!(it, MixClientEvent::AuditFailed { .. })));
}

/// If bob's request waited for the disk, its timing would tell the proxy that bob has something to
/// write.
#[test]
fn a_request_does_not_wait_for_the_disk() {
    EXCHANGES.into_iter().for_each(check_request_does_not_wait);
}

fn check_request_does_not_wait(exchange: Exchanges) {
    let mut world = World::of_members(exchange, 8);
    run_rounds(&mut world, 2);
    world.disk = Duration::from_secs(60);
    assert!(world.people[BOB].say(NAMES[0], ""));
    run_rounds(&mut world, 10);
    assert_eq!(world.refusals, [], "nobody was late");
    let status = world.people[BOB].status();
    assert_eq!((status.anonymity_set, status.waiting_for), (NAMES.len(), None));
    assert!(!world.people[BOB].client.is_stored());
    assert_eq!(world.people[0].read.len(), 0, "what is not stored is not sent");
    world.disk = Duration::ZERO;
    world.now += Duration::from_secs(60);
    world.finish();
    world.check_all_read();
}

/// The proxy keeps requests, of which a member may have made several under other names.
#[test]
fn a_repeated_join_request_of_a_member_is_no_new_member() {
    let mut world = World::of_members(BROADCAST, 9);
    let invitation = world.invite("zoe", DAY);
    let prekey = PrekeySecret::new(1, [7; 32].into()).public();
    let name = MemberName::new("another").unwrap();
    let bob = secret(BOB);
    let request = JoinRequest { name, prekey, salt: [3; 16] }.encode(&bob, &invitation);
    let client = &mut world.people[0].client;
    client.events.clear();
    for _ in 0..2 {
        client.handle_join_request(world.now, &bob.public(), &request);
    }
    assert_eq!(client.events, []);
}

/// Whoever has seen an invitation can ask again and again. While the state is not on the disk, the
/// administrator writes to nobody.
#[test]
fn a_refused_join_request_is_answered_and_not_stored() {
    let mut world = World::of_members(BROADCAST, 12);
    let invitation = world.invite("zoe", DAY);
    run_rounds(&mut world, 3);
    world.run_until("alice's state is stored", |world| world.people[0].client.is_stored());
    let prekey = PrekeySecret::new(1, [7; 32].into()).public();
    let stranger = secret(9);
    let name = MemberName::new("zoe").unwrap();
    let request = JoinRequest { name, prekey, salt: [3; 16] }.encode(&stranger, &invitation);
    let mut forged = request.clone();
    *forged.last_mut().unwrap() ^= 1;
    let (now, client) = (world.now, &mut world.people[0].client);
    for _ in 0..3 {
        client.handle_join_request(now, &stranger.public(), &forged);
        assert!(client.is_stored(), "a refusal has the state written");
        let answer = client.poll_transmit(now).map(|message| message[0]);
        let join_answer = MemberToProxy::JoinAnswer { key: stranger.public(), answer: vec![] };
        assert_eq!(answer, Some(join_answer.encode()[0]));
    }
    assert!(matches!(client.event(), Some(MixClientEvent::NotAdmitted { .. })));
    // An admission is stored before it is answered.
    client.handle_join_request(now, &stranger.public(), &request);
    assert!(!client.is_stored() && client.poll_transmit(now).is_none());
}

#[test]
fn members_notice_when_left_out_of_a_round() {
    EXCHANGES.into_iter().for_each(check_left_out);
}

fn check_left_out(exchange: Exchanges) {
    let mut world = World::of_members(exchange, 2);
    // The member that joins first has the lower number.
    let ClientConversations::Member(bob) = &world.people[BOB].client.conversations else {
        panic!("no member")
    };
    let (number, len) = (bob.epoch().own(), bob.epoch().shape().own_slots_len());
    world.tamper = Some(Box::new(move |person, message| {
        let ProxyToMember::Round { start, opening } = message else { return };
        if let Some(read) = start.read.as_mut().filter(|_| person == BOB) {
            let at = read.participants.iter().position(|it| it.member == number);
            if let Some(at) = at {
                read.participants.remove(at);
                if exchange.kind == MixExchangeKind::Broadcast {
                    let start = 1 + at * len;
                    opening.drain(start..start + len);
                }
            }
        }
    }));
    run_rounds(&mut world, 5);
    let text = "the proxy has left this member out of round";
    assert!(reports(&world).iter().any(|it| it.starts_with(text)), "{:?}", reports(&world));
    check_others(&world);
}

#[test]
fn an_invalid_round_start_ends_the_connection() {
    type Change = fn(&mut RoundStart);
    let changes: [(Change, &str); 4] = [
        (|start| start.epoch += 1, "the proxy has opened a round of epoch"),
        (|start| start.round -= 5, "the proxy sent what this version does not understand"),
        (|start| start.read.as_mut().unwrap().round -= 9, "the proxy gives the mailbox of round"),
        (
            |start| {
                let nobody = Participant { member: 3, nonce: [0; NONCE_LEN] };
                start.read.as_mut().unwrap().participants.push(nobody);
            },
            "the participants of round",
        ),
    ];
    for (change, text) in changes {
        let mut world = World::of_members(OBLIVIOUS, 3);
        run_rounds(&mut world, 20);
        // A round without a previous one would be valid.
        change_rounds(&mut world, move |start| {
            if start.read.is_some() {
                change(start);
            }
        });
        run_rounds(&mut world, 10);
        let (person, error) = world.errors.first().expect(text);
        assert_eq!(*person, BOB);
        assert!(error.to_string().starts_with(text) && !error.is_final(), "{error}");
        check_others(&world);
        world.tamper = None;
        assert!(world.people[0].say("bob", ""));
        world.finish();
    }
}

/// Lets bob try to join with this invitation. Returns the error.
fn join(world: &mut World, invitation: &str) -> MixClientError {
    world.people[BOB].invitation = Some(invitation.to_owned());
    world.restart(BOB);
    world.errors.clear();
    world.run_until("bob is refused", |world| !world.errors.is_empty());
    let (person, error) = world.errors.pop().unwrap();
    assert_eq!((person, error.is_final()), (BOB, true), "{error}");
    error
}

#[test]
fn an_invitation_is_used_once_and_in_time() {
    let mut world = World::founded(OBLIVIOUS, 4);
    let expired = world.invite("bob", DAY).code().to_string();
    world.now += 2 * DAY;
    assert_eq!(join(&mut world, &expired), MixClientError::Join(JoinRefusal::Expired));
    let invitation = world.invite("carol", DAY).code().to_string();
    world.people[2].invitation = Some(invitation.clone());
    world.restart(2);
    world.run_until("carol is a member", |world| world.people[2].status().epoch > 0);
    assert_eq!(join(&mut world, &invitation), MixClientError::Join(JoinRefusal::Used));
}

#[test]
fn a_name_like_that_of_a_member_is_refused() {
    // In capitals and with a digit; with a Cyrillic letter.
    let names = [("CAR0L", JoinRefusal::NameTaken), ("C\u{430}ROL", JoinRefusal::Malformed)];
    for (name, refusal) in names {
        let mut world = World::of_members(OBLIVIOUS, 5);
        world.people[BOB].client.leave(world.now).unwrap();
        world.run_until("bob is removed", |world| !world.errors.is_empty());
        world.errors.clear();
        let invitation = world.invite("dora", DAY).code().to_string();
        world.people[BOB].name = name.into();
        assert_eq!(join(&mut world, &invitation), MixClientError::Join(refusal));
    }
}

#[test]
fn clients_without_an_invitation_are_refused_with_advice() {
    let mut world = World::of_members(OBLIVIOUS, 6);
    world.people[BOB].client.leave(world.now).unwrap();
    world.run_until("bob is removed", |world| !world.errors.is_empty());
    let error = world.errors.pop().unwrap().1;
    let text = error.to_string();
    assert!(error.is_final() && text.contains("this key from the group"), "{text}");
    world.restart(BOB);
    world.run_until("bob is refused", |world| !world.errors.is_empty());
    let text = world.errors.pop().unwrap().1.to_string();
    assert!(text.contains("over another channel, and for a new invitation"), "{text}");
}

#[test]
fn a_connection_that_is_replaced_twice_meets_another_host() {
    let mut world = World::of_members(OBLIVIOUS, 3);
    let refused = ProxyToMember::Refused(ProxyRefusal::Replaced).encode();
    let mut replace = |after: Duration| {
        world.now += after;
        world.people[BOB].client.handle_message(world.now, &refused).unwrap_err()
    };
    let minute = Duration::from_secs(60);
    assert_eq!(replace(Duration::ZERO), MixClientError::Displaced);
    assert_eq!(replace(2 * minute), MixClientError::Displaced);
    let error = replace(minute / 2);
    assert_eq!(error, MixClientError::Refused(ProxyRefusal::Replaced));
    assert!(error.is_final() && !MixClientError::Displaced.is_final());
}

#[test]
fn leaving_fails_with_a_reason() {
    let mut world = World::of_members(OBLIVIOUS, 7);
    let now = world.now;
    assert_eq!(world.people[0].client.leave(now), Err(LeaveGroupError::Administrator));
    let mut world = World::founded(OBLIVIOUS, 8);
    let now = world.now;
    assert_eq!(world.people[BOB].client.leave(now), Err(LeaveGroupError::NotAMember));
}

/// The proxy has the announcement, whoever is connected: its silence is its own.
#[test]
fn a_proxy_that_keeps_the_announcement_back_is_named() {
    for exchange in EXCHANGES {
        let mut world = World::of_members(exchange, 10);
        world.withhold = Some(Box::new(|person, message| {
            person == BOB && matches!(message, ProxyToMember::Announcement(_))
        }));
        world.restart(BOB);
        world.run_until("bob is greeted", |world| world.people[BOB].client.link.is_some());
        let bob = &world.people[BOB];
        assert_eq!(bob.client.silence_limit(), Some(Duration::from_secs(4)));
        let why = bob.status().waiting_for.unwrap();
        assert!(why.starts_with("the proxy has not sent"), "{why}");
    }
}

/// Nobody can know whether there is an answer.
#[test]
fn a_client_that_waits_for_an_administrator_does_not_call_the_proxy_silent() {
    let mut world = World::founded(BROADCAST, 11);
    let invitation = world.invite("bob", DAY);
    world.people[BOB].invitation = Some(invitation.code().to_string());
    world.leave(0);
    world.restart(BOB);
    world.run_until("bob is greeted", |world| world.people[BOB].client.link.is_some());
    let bob = &world.people[BOB];
    assert_eq!(bob.client.silence_limit(), None);
    let why = bob.status().waiting_for.unwrap();
    assert!(why.contains("administrator") && why.contains("the proxy keeps"), "{why}");
}
