//! Requests for signatures that a server asks for again: links are down, or an epoch is beginning.

use super::handovers::four;
use super::*;

/// Server 1 has asked all servers while it has a link with none of them. Then there is one with
/// server 3, which gets the question and answers. The others do not run.
#[test]
fn a_server_is_asked_again_when_its_link_is_up() {
    let kinds = [GroupKeyKind::Rsa, GroupKeyKind::RsaPolynomial, GroupKeyKind::Ed25519];
    for (seed, kind) in (1..).zip(kinds) {
        let mut world = four(kind, seed);
        for number in [2, 4] {
            world.stop(number);
        }
        let (id, message) = (LocalRequestId(99), b"message".to_vec());
        for number in [1, 3] {
            world.server(number).registered(MessageDigest::of(&message));
        }
        world.down.insert((1, 3));
        let (begin, encoding) = (world.now, world.server(1).own_encoding());
        world.server(1).sign(begin, id, message.clone(), encoding);
        let half = begin + TIMEOUTS.sign / 2;
        while world.now < half {
            while world.poll(1) {}
            let next = world.server(1).deadline().unwrap();
            world.now = next.max(world.now + Duration::from_millis(1)).min(half);
        }
        assert!(world.links.iter().all(|(_, to, ..)| *to != 3), "{kind:?}: all is lost");
        world.down.remove(&(1, 3));
        world.link_up(1, 3);
        world.run_until(|world| world.nodes[&1].replies.contains_key(&id));
        let signature = world.nodes[&1].replies[&id].clone().unwrap();
        assert!(world.public().verify(&message, &signature), "{kind:?}");
    }
}

/// A server whose next epoch has begun, or not yet, is asked again. It does not refuse.
#[test]
fn a_request_of_the_next_epoch_or_the_one_before_is_answered_with_busy() {
    for kind in [GroupKeyKind::Rsa, GroupKeyKind::RsaPolynomial, GroupKeyKind::Ed25519] {
        let mut world = four(kind, 9);
        while world.poll(1) {}
        world.links.clear();
        let now = world.now;
        for (epoch, reply) in [(0_u64, 4), (2, 4), (3, 3)] {
            // With an Ed25519 key it asks for commitments.
            let asks = if kind == GroupKeyKind::Ed25519 { 7 } else { 1 };
            let question = [&[asks, 0, 0, 0, 0, 0, 0, 0, 7][..], &epoch.to_be_bytes()].concat();
            let from = identity(2).public();
            world.server(1).handle_message(now, &from, LinkTopic::Signing, &question, 0);
            while world.poll(1) {}
            let replies = world.links.drain(..).filter(|it| it.2 == LinkTopic::Signing);
            let replies: Vec<u8> = replies.map(|(.., bytes)| bytes[0]).collect();
            assert_eq!(replies, [reply], "{kind:?}, epoch {epoch}");
        }
    }
}
