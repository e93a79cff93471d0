//! Questions of requesters of an Ed25519 signature, and replies, from a server that sends malformed
//! or too many.

use super::ed25519::{founders, generated};
use super::*;

/// The replies of server 1 to questions, each with the asker's number, and why it has refused any.
fn replies_of_server_1(world: &mut World) -> (Vec<(Number, u8)>, Vec<String>) {
    let refused = refused_by_server_1(world);
    let replies = world.links.drain(..).map(|(_, to, _, bytes)| (to, bytes[0])).collect();
    (replies, refused)
}

/// Why server 1 has refused messages since the last call.
fn refused_by_server_1(world: &mut World) -> Vec<String> {
    while world.poll(1) {}
    let events = std::mem::take(&mut world.nodes.get_mut(&1).unwrap().events);
    let refused = events.into_iter().filter_map(|event| match event {
        QuorumServerEvent::MessageRefused { why, .. } => Some(why),
        _ => None,
    });
    refused.collect()
}

fn ask_server_1(world: &mut World, from: Number, kind: u8, session: &[u8]) {
    let question = [&[kind, 0, 0, 0, 0, 0, 0, 0, 7][..], &1_u64.to_be_bytes(), session].concat();
    let (now, from) = (world.now, identity(from).public());
    world.server(1).handle_message(now, &from, LinkTopic::Signing, &question, 0);
}

/// A server that may have nothing signed, or has no nonces of this server, cannot have points
/// decoded: a session with malformed ones is answered as if they were right.
#[test]
fn points_of_a_session_are_decoded_after_it_may_be_answered() {
    let mut world = founders(1, 13);
    generated(&mut world, &[1, 2, 3, 4]);
    world.run(|_| false);
    replies_of_server_1(&mut world);
    let message = b"message".to_vec();
    let session = |own: &[u8; 64], signers: &[u8], message: &[u8]| {
        let mut bytes = vec![u8::try_from(signers.len()).unwrap()];
        for signer in signers {
            bytes.push(*signer);
            bytes.extend(if *signer == 1 { own } else { &[0xff; 64] });
        }
        [&bytes[..], &u32::try_from(message.len()).unwrap().to_be_bytes(), message].concat()
    };
    let no_points = [0xff; 64];
    // It is not registered: a correct server may ask for it a moment early.
    ask_server_1(&mut world, 2, 9, &session(&no_points, &[1, 2], &message));
    assert_eq!(replies_of_server_1(&mut world), (vec![(2, 3)], vec![]));
    world.server(1).registered(MessageDigest::of(&message));
    // These are not nonces of this server: it gives others.
    ask_server_1(&mut world, 2, 9, &session(&no_points, &[1, 2], &message));
    assert_eq!(replies_of_server_1(&mut world), (vec![(2, 11)], vec![]));
    // Too many signers, one that is not in the group, and a set without this server.
    let malformed = "a malformed request for a signature".to_owned();
    for signers in [&[1, 2, 3][..], &[1, 9], &[2, 3]] {
        ask_server_1(&mut world, 2, 9, &session(&no_points, signers, &message));
        let expected = (vec![(2, 3)], vec![malformed.clone()]);
        assert_eq!(replies_of_server_1(&mut world), expected, "{signers:?}");
    }
    // With nonces of this server, the points are decoded. The nonces are gone.
    ask_server_1(&mut world, 2, 7, &[]);
    while world.poll(1) {}
    let (.., reply) = world.links.pop_back().unwrap();
    let own: [u8; 64] = reply[9..].try_into().unwrap();
    ask_server_1(&mut world, 2, 9, &session(&own, &[1, 2], &message));
    assert_eq!(replies_of_server_1(&mut world), (vec![(2, 3)], vec![malformed]));
    ask_server_1(&mut world, 2, 9, &session(&own, &[1, 2], &message));
    assert_eq!(replies_of_server_1(&mut world), (vec![(2, 11)], vec![]));
}

/// A reply that no request waits for cannot have points decoded: malformed ones are not noticed.
/// The reply of a server that owes one is decoded once, and another server takes its place.
#[test]
fn points_of_a_reply_are_decoded_if_a_request_waits_for_it() {
    let mut world = founders(1, 15);
    generated(&mut world, &[1, 2, 3, 4]);
    world.run(|_| false);
    replies_of_server_1(&mut world);
    let message = b"message".to_vec();
    for number in 1..=4 {
        world.server(number).registered(MessageDigest::of(&message));
    }
    let (now, id) = (world.now, LocalRequestId(99));
    let encoding = world.server(1).own_encoding();
    world.server(1).sign(now, id, message.clone(), encoding);
    while world.poll(1) {}
    let (_, asked, _, question) = world.links[0].clone();
    let request = u64::from_be_bytes(*question[1..].first_chunk().unwrap());
    let is_asked = |world: &World, number| world.links.iter().any(|(_, to, ..)| *to == number);
    let unasked = (2..=4).find(|it| !is_asked(&world, *it)).unwrap();
    world.links.retain(|(_, to, ..)| *to != asked);
    let refused = |world: &mut World, from: Number, kind: u8, request: u64| {
        let reply = [&[kind][..], &request.to_be_bytes(), &[0xff; 64]].concat();
        world.server(1).handle_message(
            now,
            &identity(from).public(),
            LinkTopic::Signing,
            &reply,
            0,
        );
        refused_by_server_1(world)
    };
    for kind in [8, 11] {
        let none: [String; 0] = [];
        assert_eq!(refused(&mut world, asked, kind, request + 1), none, "no such request");
        assert_eq!(refused(&mut world, unasked, kind, request), none, "it was not asked");
    }
    let why = refused(&mut world, asked, 8, request);
    assert!(matches!(&why[..], [why] if why.contains("not a point of prime order")), "{why:?}");
    assert!(refused(&mut world, asked, 8, request).is_empty(), "it owes nothing any more");
    world.run_until(|world| world.nodes[&1].replies.contains_key(&id));
    let signature = world.nodes[&1].replies[&id].clone().unwrap();
    assert!(world.public().verify(&message, &signature));
}

/// One server asks more than it may. Another one is answered in its turn, and the driver handles
/// other events in between.
#[test]
fn questions_are_answered_a_few_at_a_time_and_round_robin() {
    let mut world = founders(1, 14);
    generated(&mut world, &[1, 2, 3, 4]);
    world.run(|_| false);
    replies_of_server_1(&mut world);
    for _ in 0..70 {
        ask_server_1(&mut world, 2, 7, &[]);
    }
    ask_server_1(&mut world, 3, 7, &[]);
    let (mut replies, refused) = replies_of_server_1(&mut world);
    assert!(refused.is_empty());
    let busy: Vec<_> = replies.extract_if(.., |(_, kind)| *kind == 4).collect();
    assert_eq!(busy, [(2, 4); 6], "64 wait for each server");
    let mut expected = [(2, 8); 8];
    expected[1] = (3, 8);
    assert_eq!(replies, expected);
    assert_eq!(world.server(1).deadline(), Some(Duration::ZERO), "the others are due");
    let mut answered = replies.len();
    while world.server(1).deadline() == Some(Duration::ZERO) {
        let (replies, _) = replies_of_server_1(&mut world);
        assert!((1..=8).contains(&replies.len()), "{replies:?}");
        answered += replies.len();
    }
    assert_eq!(answered, 65);
}
