//! Servers whose key is shared by a polynomial: they sign with it, and hand it over. The tests are
//! the same for each kind of such a key.

use super::ed25519::{generated, numbers};
use super::*;
use crate::protocol::signing::SigningEncoding;

/// An Ed25519 key, which the servers generate, and an RSA key, which a dealer has shared.
pub(super) const KINDS: [GroupKeyKind; 2] = [GroupKeyKind::Ed25519, GroupKeyKind::RsaPolynomial];

/// The servers of the first group, none of which runs.
pub(super) fn stopped(kind: GroupKeyKind, faulty: u8, seed: u64) -> World {
    match kind {
        GroupKeyKind::Ed25519 => World::founding(faulty, seed),
        kind => World::dealt(kind, faulty, seed),
    }
}

/// Servers that have started. They may have to generate their key.
pub(super) fn started(kind: GroupKeyKind, faulty: u8, seed: u64) -> World {
    let mut world = stopped(kind, faulty, seed);
    for number in world.numbers() {
        world.start(number);
    }
    world
}

/// Four servers that have the shares of a key.
pub(super) fn four(kind: GroupKeyKind, seed: u64) -> World {
    let mut world = started(kind, 1, seed);
    generated(&mut world, &[1, 2, 3, 4]);
    world.run(|_| false);
    world
}

/// Four servers sign a message for a user of server 1. The other server that answers first changes
/// its answers, and signs them, with this prefix. `change` gets a message for signing, and returns
/// the changed answer if it is one. Returns the server.
pub(super) fn sign_with_liar(
    world: &mut World,
    domain: &[u8],
    change: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> Number {
    let (id, message) = (LocalRequestId(0), b"message".to_vec());
    for number in 1..=4 {
        world.server(number).registered(MessageDigest::of(&message));
    }
    let (now, encoding) = (world.now, world.server(1).own_encoding());
    world.server(1).sign(now, id, message.clone(), encoding);
    let (mut liar, mut changed) = (None, Vec::new());
    for _ in 0..10_000 {
        for number in 1..=4 {
            world.poll(number);
        }
        for (from, _, topic, bytes) in &mut world.links {
            let is_other = liar.is_some_and(|liar| liar != *from);
            if *topic != LinkTopic::Signing || is_other || changed.contains(bytes) {
                continue;
            }
            let Some(answer) = change(bytes) else { continue };
            liar = Some(*from);
            let signature = identity(*from).sign(&[domain, &answer[..]].concat());
            *bytes = [&bytes[..9], &answer, &signature].concat().into();
            changed.push(bytes.clone());
        }
        if let Some((from, to, topic, bytes)) = world.links.pop_front() {
            let from = identity(from).public();
            world.server(to).handle_message(now, &from, topic, &bytes, 0);
        }
        if world.nodes[&1].replies.contains_key(&id) {
            break;
        }
    }
    let signature = world.nodes[&1].replies[&id].clone().unwrap();
    assert!(world.public().verify(&message, &signature));
    liar.expect("another server was asked")
}

#[test]
fn the_key_moves_to_groups_of_other_sizes_and_to_the_same_group() {
    for kind in KINDS {
        let mut world = started(kind, 1, 3);
        generated(&mut world, &[1, 2, 3, 4]);
        let public = world.public();
        let mut before = numbers(1, 1);
        // Disjoint and larger, disjoint and smaller, overlapping, the same.
        for (epoch, (first, faulty)) in (2..).zip([(100, 2), (50, 1), (52, 1), (52, 1)]) {
            let members = numbers(first, faulty);
            let new: Vec<Number> =
                members.iter().copied().filter(|it| !world.nodes.contains_key(it)).collect();
            world.join(new);
            let approving = before.len() / 3 + 1;
            let from: Vec<Number> = before.iter().copied().take(approving).collect();
            world.refresh(&from, &group(faulty, first));
            world.run_until(|world| world.have_epoch(epoch, &members));
            assert_eq!(world.public(), public);
            world.sign(members[1], &epoch.to_be_bytes());
            before = members;
        }
        world.run_until(|world| world.nodes.values().all(|it| it.saved.items.is_empty()));
        world.assert_wiped(5, &before);
        // The public key alone verifies the chain, which may begin with a founding header.
        let chain = world.nodes[&52].saved.start.as_ref().unwrap().chain.clone();
        let bytes: Vec<_> = chain.iter().map(|it| (it.header.to_bytes(), &it.signature)).collect();
        let pairs = || bytes.iter().map(|(header, signature)| (&header[..], &signature[..]));
        let verify = |message: &[u8], signature: &[u8]| public.verify(message, signature);
        assert_eq!(verify_chain(pairs(), verify).unwrap().epoch, 5);
        let is_generated = kind == GroupKeyKind::Ed25519;
        assert_eq!(verify_chain(pairs().take(1), verify).is_err(), is_generated, "no epoch");
        assert!(verify_chain(pairs().skip(1), verify).is_err(), "no beginning");
        // A server of an earlier group has nothing signed.
        let (now, encoding) = (world.now, world.server(1).own_encoding());
        world.server(1).registered(MessageDigest::of(b"after"));
        world.server(1).sign(now, LocalRequestId(99), b"after".to_vec(), encoding);
        world.run_until(|world| world.nodes[&1].replies.contains_key(&LocalRequestId(99)));
        assert_eq!(world.nodes[&1].replies[&LocalRequestId(99)], Err(SignRefusal::NoMember));
    }
}

/// In two of three seeds, a dealer or a receiver does not run either. In one of two, jobs end late.
/// `SUNDER_SEEDS=N` runs as many seeds, `SUNDER_SEED=S` one of them.
#[test]
fn servers_stop_and_start_while_they_move_a_key_and_messages_are_lost() {
    for kind in KINDS {
        sim::run_seeds(6, |seed| {
            let mut world = started(kind, 1, seed);
            (world.loss, world.crashes) = (20, 30);
            world.late = if seed % 2 == 0 { 0 } else { 60 };
            generated(&mut world, &[1, 2, 3, 4]);
            let public = world.public();
            (world.loss, world.crashes) = (0, 0);
            let members = numbers(100, 1);
            world.join(members.clone());
            let away: Option<Number> = match seed % 3 {
                0 => None,
                1 => Some(4),
                _ => Some(102),
            };
            if let Some(away) = away {
                world.stop(away);
            }
            let there: Vec<Number> =
                members.iter().copied().filter(|it| Some(*it) != away).collect();
            (world.loss, world.crashes) = (20, 30);
            let is_open = |world: &World| {
                let run = |node: &Node| node.server.as_ref()?.status().epoch?.run;
                let is_begun = world.nodes.values().any(|node| run(node).is_some());
                is_begun || world.have_epoch(2, &there)
            };
            let mut attempts = 0;
            while !is_open(&world) {
                // The operator's request does not survive a restart, so the operator repeats it.
                for at in [1, 2, 3] {
                    let now = world.now;
                    let _ = world.server(at).start_refresh(group(1, 100), now);
                }
                let until = world.now + Duration::from_secs(3);
                world.run(|world| is_open(world) || world.now > until);
                attempts += 1;
                assert!(attempts < 20);
            }
            world.run_until(|world| world.have_epoch(2, &there));
            (world.loss, world.crashes) = (0, 0);
            if let Some(away) = away {
                world.start(away);
            }
            world.run_until(|world| {
                members.iter().all(|number| world.nodes[number].saved.shares.contains_key(&2))
                    && world.nodes.values().all(|it| it.saved.items.is_empty())
                    && world.nodes.values().all(|it| {
                        let saved = &it.saved;
                        !saved.shares.contains_key(&1) && !saved.voting.contains_key(&1)
                    })
            });
            world.assert_wiped(2, &members);
            assert_eq!(world.public(), public);
            world.sign(103, b"after");
            let accused = |event: &QuorumServerEvent| {
                matches!(
                    event,
                    QuorumServerEvent::WrongEntry { .. }
                        | QuorumServerEvent::DealerExcluded { .. }
                        | QuorumServerEvent::FalseComplaint { .. }
                        | QuorumServerEvent::WrongAnswer { .. }
                )
            };
            for node in world.nodes.values() {
                assert!(!node.events.iter().any(accused), "a correct server is accused");
            }
        });
    }
}

/// It was away while the others generated the key, and others while the key moved.
#[test]
fn servers_that_were_away_get_their_shares_and_votes() {
    for kind in KINDS {
        let mut world = stopped(kind, 1, 4);
        (1..=3).for_each(|number| world.start(number));
        generated(&mut world, &[1, 2, 3]);
        world.start(4);
        world.run_until(|world| world.have_epoch(1, &[4]) && world.has_vote(4));
        world.stop(1);
        world.stop(2);
        world.sign(4, b"with the late one");
        world.start(1);
        world.start(2);
        world.join(100..104);
        world.stop(102);
        world.refresh(&[1, 4], &group(1, 100));
        world.run_until(|world| world.have_epoch(2, &[100, 101, 103]));
        world.stop(1);
        world.stop(2);
        world.start(102);
        world.run_until(|world| world.have_epoch(2, &[102]) && world.has_vote(102));
        world.stop(100);
        world.sign(102, b"after");
    }
}

/// A server that has lost its share, or its log, or both.
#[test]
fn a_lost_share_is_recovered() {
    for kind in KINDS {
        let mut world = started(kind, 1, 5);
        generated(&mut world, &[1, 2, 3, 4]);
        for (lost_log, number) in [(false, 2), (true, 3)] {
            world.run_until(|world| world.has_vote(number));
            world.stop(number);
            let node = world.nodes.get_mut(&number).unwrap();
            let share = node.saved.shares.remove(&1).unwrap();
            if lost_log {
                node.life = LogIncarnation([number; 32]);
            }
            world.start(number);
            world.run_until(|world| world.have_epoch(1, &[number]) && world.has_vote(number));
            world.run_until(|world| world.nodes[&number].saved.shares.contains_key(&1));
            // The row is determined by those of the others.
            assert!(world.nodes[&number].saved.shares[&1] == share);
        }
        world.stop(1);
        world.stop(4);
        world.sign(2, b"with recovered shares");
    }
}

#[test]
fn f_plus_1_servers_must_allow_a_message() {
    for kind in KINDS {
        let mut world = started(kind, 1, 6);
        generated(&mut world, &[1, 2, 3, 4]);
        let (now, encoding) = (world.now, world.server(1).own_encoding());
        let message = b"message".to_vec();
        world.server(1).sign(now, LocalRequestId(7), message.clone(), encoding);
        world.server(2).registered(MessageDigest::of(&message));
        world.server(2).sign(now, LocalRequestId(8), message.clone(), encoding);
        let header = world.nodes[&1].saved.start.as_ref().unwrap().header().to_bytes();
        world.server(3).sign(now, LocalRequestId(9), header, encoding);
        let other = match kind {
            GroupKeyKind::Ed25519 => SigningEncoding::Rsa(RsaEncoding::Pkcs1),
            _ => SigningEncoding::Ed25519,
        };
        world.server(2).sign(now, LocalRequestId(10), message.clone(), other);
        world
            .run_until(|world| world.nodes.values().map(|it| it.replies.len()).sum::<usize>() == 4);
        let policy = |refusal| Err(SignRefusal::Policy(refusal));
        assert_eq!(
            world.nodes[&1].replies[&LocalRequestId(7)],
            policy(MessageRefusal::NotRegistered)
        );
        let refused = &world.nodes[&2].replies[&LocalRequestId(8)];
        assert_eq!(*refused, Err(SignRefusal::TimedOut { refused: 3 }));
        assert_eq!(world.nodes[&3].replies[&LocalRequestId(9)], policy(MessageRefusal::Header));
        assert_eq!(world.nodes[&2].replies[&LocalRequestId(10)], Err(SignRefusal::Encoding));
        // The other one may be any.
        world.server(4).registered(MessageDigest::of(&message));
        for id in 11..16 {
            let now = world.now;
            world.server(2).sign(now, LocalRequestId(id), message.clone(), encoding);
            world.run_until(|world| world.nodes[&2].replies.contains_key(&LocalRequestId(id)));
            let signature = world.nodes[&2].replies[&LocalRequestId(id)].clone().unwrap();
            assert!(world.public().verify(&message, &signature));
        }
        let answered = |event: &QuorumServerEvent| {
            matches!(event, QuorumServerEvent::Answered { message: signed, .. }
                if *signed == MessageDigest::of(&message))
        };
        assert!(world.nodes[&4].events.iter().any(answered), "for the audit");
        assert!(!world.nodes[&3].events.iter().any(answered));
        assert_eq!(world.refused_messages(), 0, "correct servers may ask early");
    }
}

/// All servers get more requests than run at a time, and f servers are down.
#[test]
fn queued_requests_all_succeed_with_f_servers_down() {
    for kind in KINDS {
        let mut world = started(kind, 1, 7);
        generated(&mut world, &[1, 2, 3, 4]);
        world.sign(1, b"wanted by many");
        world.stop(4);
        let (now, encoding) = (world.now, world.server(1).own_encoding());
        for at in 1..=3 {
            for id in 1_000..1_100 {
                let (id, message) = (LocalRequestId(id), b"wanted by many".to_vec());
                world.server(at).sign(now, id, message, encoding);
            }
        }
        let replies = |world: &World| -> Vec<bool> {
            let all = world.nodes.values().flat_map(|node| &node.replies);
            all.filter(|(id, _)| id.0 >= 1_000).map(|(_, reply)| reply.is_ok()).collect()
        };
        world.run_until(|world| replies(world).len() == 300);
        assert!(replies(&world).iter().all(|is_ok| *is_ok));
    }
}

/// f = 10: 31 servers, to 4 and back.
#[test]
#[ignore = "takes some minutes"]
fn thirty_one_servers_hand_a_key_over() {
    for kind in KINDS {
        let mut world = started(kind, 10, 11);
        let members = numbers(1, 10);
        generated(&mut world, &members);
        world.sign(31, b"with eleven signers");
        world.join(100..104);
        world.refresh(&members[..11], &group(1, 100));
        world.run_until(|world| world.have_epoch(2, &[100, 101, 102, 103]));
        world.refresh(&[100, 101], &group(10, 1));
        world.run_until(|world| world.have_epoch(3, &members));
        world.sign(17, b"back");
    }
}
