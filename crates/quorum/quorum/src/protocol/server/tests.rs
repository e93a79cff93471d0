//! Whole servers in memory, over links that may lose messages and a log that loses nothing.

mod approving;
mod attacks;
mod due_refresh;
mod ed25519;
mod frost_questions;
mod handovers;
mod headers;
mod inviting;
mod jobs;
mod lost_links;
mod replicating;
mod rsa_polynomial;
mod wiping;
mod world;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Weak;

use keys::rsa::RsaEncoding;
use rsa_arithmetic::dealer::DealerKey;
use rsa_arithmetic::fixture::short_key;
use sim::SeededRng;
use zeroize::Zeroizing;

use super::*;
use crate::protocol::ceremony::share_file::QuorumShareFile;
use crate::protocol::combination::ServerIndex;
use crate::protocol::group::{GroupHeader, GroupKeyKind, QuorumGroup, verify_chain};
use crate::protocol::log_types::{CommittedEntries, ServerSet, Voter};
use crate::protocol::policy::MessageRefusal;
use crate::protocol::refresh::{LogEntryRefusal, RefreshMessage, RunItemName};
use crate::protocol::signing::PartialSignQuery;
use crate::protocol::testing::{group, identity};
use crate::protocol::wire::Sha256Digest;
use world::{Node, Number, World};

const DELAYS: RefreshDelays = RefreshDelays {
    need: Duration::from_secs(5),
    grace: Duration::from_secs(20),
    resend: Duration::from_secs(1),
};

const TIMEOUTS: SigningTimeouts =
    SigningTimeouts { sign: Duration::from_secs(10), retry: Duration::from_secs(2) };

#[test]
fn a_group_signs_moves_its_key_and_signs_again() {
    for (old, new) in [(1, 1), (1, 2), (2, 1)] {
        let to = group(new, 100);
        let members: Vec<Number> = (0..=3 * new).map(|i| 100 + i).collect();
        let mut world = World::new(old, members.clone(), 1);
        world.sign(1, b"before");
        let first: Vec<Number> = (1..=3 * old + 1).collect();
        world.run_until(|world| world.have_epoch(1, &first));
        world.refresh(&first[..=usize::from(old)], &to);
        world.run_until(|world| world.have_epoch(2, &members));
        world.run_until(|world| {
            world.statuses().iter().all(|(number, status)| {
                let epoch = status.as_ref().unwrap().epoch.as_ref().unwrap();
                epoch.epoch == 2 && epoch.has_shares == members.contains(number)
            })
        });
        world.run_until(|world| world.nodes.values().all(|it| it.saved.items.is_empty()));
        world.assert_wiped(2, &members);
        world.sign(100, b"after");
        // Anyone can follow the chain with the public key alone.
        let chain = world.nodes[&100].saved.start.as_ref().unwrap().chain.clone();
        let bytes: Vec<_> = chain.iter().map(|it| (it.header.to_bytes(), &it.signature)).collect();
        let pairs = bytes.iter().map(|(header, signature)| (&header[..], &signature[..]));
        let public = world.key.group().public();
        let last = verify_chain(pairs, |message, signature| public.verify(message, signature));
        assert_eq!(last.unwrap().group, to);
        // Those of the old group cannot have anything signed.
        let now = world.now;
        world.server(1).sign(now, LocalRequestId(99), b"after".to_vec(), RsaEncoding::Pkcs1);
        world.run_until(|world| world.nodes[&1].replies.contains_key(&LocalRequestId(99)));
        assert_eq!(world.nodes[&1].replies[&LocalRequestId(99)], Err(SignRefusal::NoMember));
    }
}

#[test]
fn what_is_not_registered_is_not_signed() {
    let mut world = World::new(1, [], 2);
    let now = world.now;
    world.server(1).sign(now, LocalRequestId(7), b"message".to_vec(), RsaEncoding::Pkcs1);
    // Registered at the requester only.
    world.server(2).registered(MessageDigest::of(b"message"));
    world.server(2).sign(now, LocalRequestId(8), b"message".to_vec(), RsaEncoding::Pkcs1);
    let header = world.nodes[&1].saved.start.as_ref().unwrap().header().to_bytes();
    world.server(3).sign(now, LocalRequestId(9), header, RsaEncoding::Pkcs1);
    world.run_until(|world| world.nodes.values().map(|it| it.replies.len()).sum::<usize>() == 3);
    let policy = |refusal| Err(SignRefusal::Policy(refusal));
    assert_eq!(world.nodes[&1].replies[&LocalRequestId(7)], policy(MessageRefusal::NotRegistered));
    let refused = Err(SignRefusal::TimedOut { refused: 3 });
    assert_eq!(world.nodes[&2].replies[&LocalRequestId(8)], refused);
    assert_eq!(world.nodes[&3].replies[&LocalRequestId(9)], policy(MessageRefusal::Header));
    assert_eq!(world.refused_messages(), 0, "correct servers may ask early");
}

/// No answer or refusal is computed for a server that does not read its answers.
#[test]
fn a_backlogged_server_is_not_answered() {
    let mut world = World::new(1, [], 4);
    world.run_until(|world| world.have_epoch(1, &[1, 2, 3, 4]));
    let (now, message) = (world.now, b"message".to_vec());
    world.server(1).registered(MessageDigest::of(&message));
    let encoding = RsaEncoding::Pkcs1;
    let registered =
        PartialSignQuery { epoch: 1, signers: None, encoding, message: message.into() };
    let other = PartialSignQuery { epoch: 1, signers: None, encoding, message: Bytes::new() };
    let mut has_effect = |query: &PartialSignQuery, queued| {
        while world.poll(1) {}
        let request = [&[1, 0, 0, 0, 0, 0, 0, 0, 7][..], &query.to_bytes()].concat();
        world.server(1).handle_message(
            now,
            &identity(2).public(),
            LinkTopic::Signing,
            &request,
            queued,
        );
        world.poll(1)
    };
    assert!(!has_effect(&registered, (8 << 20) + 1));
    assert!(!has_effect(&other, (8 << 20) + 1));
    assert!(has_effect(&registered, 8 << 20));
    assert!(has_effect(&other, 8 << 20));
}

/// Of 33 requests, the last one waits until another one ends. If it then has little time left, its
/// user is told to try again, and not that servers are missing.
#[test]
fn a_request_that_has_waited_for_others_is_refused_as_busy() {
    for (waits_s, expected) in [(4, SignRefusal::Busy), (6, SignRefusal::TimedOut { refused: 0 })] {
        let mut world = World::new(1, [], 21);
        world.run_until(|world| world.have_epoch(1, &[1, 2, 3, 4]));
        for other in 2..=4 {
            world.stop(other);
        }
        let message = b"message".to_vec();
        world.server(1).registered(MessageDigest::of(&message));
        let now = world.now;
        for number in 0..32 {
            world.server(1).sign(now, LocalRequestId(number), message.clone(), RsaEncoding::Pkcs1);
        }
        world.now += Duration::from_secs(waits_s);
        let now = world.now;
        world.server(1).sign(now, LocalRequestId(32), message, RsaEncoding::Pkcs1);
        world.run_until(|world| world.nodes[&1].replies.len() == 33);
        let replies = &world.nodes[&1].replies;
        let first = Err(SignRefusal::TimedOut { refused: 0 });
        assert!((0..32).all(|number| replies[&LocalRequestId(number)] == first));
        assert_eq!(replies[&LocalRequestId(32)], Err(expected), "{waits_s} s");
    }
}

/// All servers get more requests than they can run at the same time. Everything is signed, and no
/// server considers another one faulty.
#[test]
fn queued_sign_requests_all_succeed() {
    let mut world = World::new(1, [], 3);
    world.run_until(|world| world.have_epoch(1, &[1, 2, 3, 4]));
    let message = b"wanted by many";
    world.sign(1, message);
    let now = world.now;
    for at in 1..=4 {
        for id in 1_000..1_100 {
            world.server(at).sign(now, LocalRequestId(id), message.to_vec(), RsaEncoding::Pkcs1);
        }
    }
    let replies = |world: &World| -> Vec<bool> {
        let all = world.nodes.values().flat_map(|node| &node.replies);
        all.filter(|(id, _)| id.0 >= 1_000).map(|(_, reply)| reply.is_ok()).collect()
    };
    world.run_until(|world| replies(world).len() == 400);
    assert!(replies(&world).iter().all(|is_ok| *is_ok));
    let is_complaint = |event: &&QuorumServerEvent| {
        matches!(
            event,
            QuorumServerEvent::MessageRefused { .. } | QuorumServerEvent::WrongAnswer { .. }
        )
    };
    for node in world.nodes.values() {
        assert_eq!(node.events.iter().find(is_complaint), None);
    }
}

/// `SUNDER_SEEDS=N` runs as many seeds, `SUNDER_SEED=S` one of them.
#[test]
fn servers_stop_and_start_at_any_step_and_messages_are_lost() {
    sim::run_seeds(8, |seed| {
        let mut world = World::new(1, 100..104, seed);
        let to = group(1, 100);
        let members: Vec<Number> = (100..104).collect();
        (world.loss, world.crashes) = (20, 30);
        world.run_until(|world| world.have_epoch(1, &[1, 2, 3, 4]));
        for at in [1, 2, 3] {
            // The operator's request does not survive a restart, so the operator repeats it.
            let now = world.now;
            let _ = world.server(at).start_refresh(to.clone(), now);
        }
        let is_open = |world: &World| {
            let number = |node: &Node| Some(node.server.as_ref()?.status().epoch?.run?.number);
            world.nodes.values().any(|node| number(node).is_some()) || world.have_epoch(2, &members)
        };
        let mut attempts = 0;
        while !is_open(&world) {
            world.refresh(&[1, 2], &to);
            let until = world.now + Duration::from_secs(3);
            world.run(|world| is_open(world) || world.now > until);
            attempts += 1;
            assert!(attempts < 20);
        }
        world.run_until(|world| world.have_epoch(2, &members));
        (world.loss, world.crashes) = (0, 0);
        let has_kept = |node: &Node| node.saved.shares.contains_key(&2);
        world.run_until(|world| {
            members.iter().all(|number| has_kept(&world.nodes[number]))
                && world.nodes.values().all(|it| it.saved.items.is_empty())
        });
        world.assert_wiped(2, &members);
        world.sign(103, b"after");
    });
}

#[test]
fn groups_may_overlap_and_keys_move_many_times() {
    // 1 to 4, then 3 to 6, and so on.
    let mut world = World::new(1, 5..=12, 3);
    for epoch in 2..=5_u8 {
        let before: Vec<Number> = (0..4).map(|i| 2 * epoch - 3 + i).collect();
        let members: Vec<Number> = before.iter().map(|number| number + 2).collect();
        world.run_until(|world| world.have_epoch(u64::from(epoch) - 1, &before));
        world.refresh(&before[1..3], &group(1, members[0]));
        world.run_until(|world| world.have_epoch(u64::from(epoch), &members));
        world.sign(members[1], &[epoch]);
    }
    world.run_until(|world| world.nodes.values().all(|it| it.saved.items.is_empty()));
    world.assert_wiped(5, &[9, 10, 11, 12]);
}

#[test]
fn a_key_comes_back_to_a_group_and_goes_on() {
    let mut world = World::new(1, (50..54).chain(100..104), 8);
    let groups = [1, 50, 1, 100, 1];
    for (i, pair) in groups.windows(2).enumerate() {
        let (old, new) = (pair[0], pair[1]);
        let epoch = i as u64 + 1;
        let members = |first: Number| (first..first + 4).collect::<Vec<_>>();
        world.run_until(|world| world.have_epoch(epoch, &members(old)));
        world.refresh(&members(old)[2..], &group(1, new));
        world.run_until(|world| world.have_epoch(epoch + 1, &members(new)));
        // Those of the group before have the whole chain, too.
        world.run_until(|world| {
            let servers = members(old).into_iter().chain(members(new));
            let mut starts = servers.map(|it| world.nodes[&it].server.as_ref()?.start());
            starts.all(|it| {
                it.is_some_and(|it| it.chain.len() as u64 == epoch + 1 && it.is_chain_signed())
            })
        });
        world.run(|_| false);
        for number in world.numbers() {
            world.stop(number);
            world.start(number);
        }
    }
    world.sign(4, b"after");
    world.assert_wiped(5, &[1, 2, 3, 4]);
}

#[test]
fn a_request_outlasts_the_end_of_its_epoch() {
    sim::run_seeds(6, |seed| {
        let mut world = World::new(1, [5, 6], seed);
        world.run_until(|world| world.have_epoch(1, &[1, 2, 3, 4]));
        for number in world.numbers() {
            let digest = MessageDigest::of(b"message");
            world.server(number).registered(digest);
        }
        world.refresh(&[1, 2], &group(1, 3));
        // Requests just before the end, at two servers, one of which leaves the group.
        let run = |world: &World| world.nodes[&4].server.as_ref()?.status().epoch?.run;
        world.run_until(|world| {
            run(world).is_some_and(|run| {
                run.without_shares.len() == run.group.members().len() - run.quorum + 1
            })
        });
        for at in [2, 4] {
            for id in 0..10 {
                let now = world.now;
                world.server(at).sign(
                    now,
                    LocalRequestId(id),
                    b"message".to_vec(),
                    RsaEncoding::Pkcs1,
                );
            }
        }
        world.run_until(|world| [2, 4].iter().all(|at| world.nodes[at].replies.len() == 10));
        world.run_until(|world| world.have_epoch(2, &[3, 4, 5, 6]));
        let public = world.key.group().public().clone();
        for reply in world.nodes[&4].replies.values() {
            assert!(public.verify(b"message", reply.as_ref().unwrap()), "seed {seed}: {reply:?}");
        }
        for reply in world.nodes[&2].replies.values() {
            let has_left = matches!(reply, Err(SignRefusal::EpochEnded));
            assert!(has_left || reply.is_ok(), "seed {seed}: {reply:?}");
        }
    });
}

#[test]
fn a_server_that_missed_the_refresh_recovers_its_shares() {
    let mut world = World::new(1, 100..104, 4);
    world.run_until(|world| world.have_epoch(1, &[1, 2, 3, 4]));
    world.stop(102);
    world.refresh(&[1, 2], &group(1, 100));
    world.run_until(|world| world.have_epoch(2, &[100, 101, 103]));
    world.stop(1);
    world.stop(2);
    world.start(102);
    world.run_until(|world| world.have_epoch(2, &[102]));
    world.stop(100);
    world.sign(102, b"after");
}

/// In the first epoch and in a later one, with a run open and without.
#[test]
fn a_server_whose_log_is_lost_votes_with_another_key() {
    let mut world = World::new(1, 100..104, 9);
    let mut lives = (1..).map(|life| LogIncarnation([life; 32]));
    for (epoch, members) in [(1, [1, 2, 3, 4]), (2, [100, 101, 102, 103])] {
        let at = members[1];
        world.run_until(|world| world.have_epoch(epoch, &members) && world.has_vote(at));
        let first = world.nodes[&at].key.unwrap();
        let lost = |world: &World| {
            let is_lost =
                |it: &QuorumServerEvent| *it == QuorumServerEvent::VotingKeyLost { epoch };
            world.nodes[&at].events.iter().any(is_lost)
        };
        // A restart with its log changes nothing.
        world.stop(at);
        world.start(at);
        world.run_until(|world| world.nodes[&at].log.is_some());
        world.run_until(|world| world.has_vote(at));
        assert_eq!(world.nodes[&at].key, Some(first));
        assert!(!lost(&world));
        world.stop(at);
        world.nodes.get_mut(&at).unwrap().life = lives.next().unwrap();
        let heights = world.log.len();
        let used = world.nodes[&at].keys.len();
        world.start(at);
        world.run_until(|world| world.nodes[&at].keys.len() > used && world.has_vote(at));
        assert_ne!(world.nodes[&at].key, Some(first));
        assert!(lost(&world), "the operator is told");
        assert!(world.log.len() <= heights + 3, "a few heights");
        if epoch == 1 {
            // The entry is committed again, by a faulty server: it changes nothing.
            let again = world.log[heights].clone();
            let height = Height(world.log.len() as u64 + 1);
            world.log.push(CommittedEntries { height, ..again });
            world.run_until(|world| world.sets.contains_key(&height));
            world.run(|_| false);
            assert!(world.has_vote(at));
            // Those who join learn the key from the refresh header.
            world.refresh(&members[..2], &group(1, 100));
        }
    }
    world.run_until(|world| world.nodes.values().all(|it| it.saved.items.is_empty()));
    world.assert_wiped(2, &[100, 101, 102, 103]);
}

/// It was not there when the others registered their keys.
#[test]
fn a_server_that_missed_the_refresh_gets_its_vote() {
    let mut world = World::new(1, 100..104, 10);
    world.run_until(|world| world.have_epoch(1, &[1, 2, 3, 4]));
    world.stop(102);
    world.refresh(&[1, 2], &group(1, 100));
    world.run_until(|world| world.have_epoch(2, &[100, 101, 103]));
    let last = world.sets.last_key_value().unwrap().1.clone();
    assert_eq!(last.voters().iter().filter(|voter| voter.key.is_some()).count(), 3);
    world.start(102);
    world.run_until(|world| world.has_vote(102));
    let header = world.nodes[&100].saved.start.as_ref().unwrap().header().clone();
    assert_eq!(header.voting[2], None);
}

/// An identity key that was stolen after the epoch gets no shares of a server that was cut off.
#[test]
fn shares_are_given_for_the_voting_key_of_their_epoch_only() {
    let mut world = World::new(1, [], 11);
    world.run_until(|world| world.have_epoch(1, &[1, 2, 3, 4]));
    let voting = |world: &World, number: Number| {
        VotingSecret::from_bytes(world.nodes[&number].saved.voting[&1].1.clone())
    };
    let public = |number: Number| identity(number).public();
    let ask = RefreshMessage::Ask { epoch: 1, witnesses: false }.to_bytes().to_vec();
    let question = |key: &VotingSecret, from: Number, to: Number| {
        let signature = key.sign(&questions::signed(&public(from), &public(to), &ask));
        [&[refreshing::QUESTION][..], &signature, &ask].concat()
    };
    let identity_key = VotingSecret::from_bytes(Zeroizing::new([2; 32]));
    assert_eq!(identity_key.public(), public(2));
    let own = voting(&world, 2);
    let mut damaged = question(&own, 2, 1);
    damaged[10] ^= 1;
    let wrong = [
        [&[1][..], &ask].concat(),
        question(&identity_key, 2, 1),
        question(&voting(&world, 3), 2, 1),
        // A question that a faulty server has received, and forwards.
        question(&own, 2, 3),
        damaged,
    ];
    let mut answers = |bytes: &[u8]| {
        let now = world.now;
        world.server(1).handle_message(now, &public(2), LinkTopic::Refresh, bytes, 0);
        let mut answers = 0;
        while let Some(output) = world
            .nodes
            .get_mut(&1)
            .unwrap()
            .server
            .as_mut()
            .unwrap()
            .poll_output(now, &mut world.generator)
            .unwrap()
        {
            answers += usize::from(matches!(output, QuorumServerOutput::Send { .. }));
        }
        answers
    };
    for bytes in &wrong {
        assert_eq!(answers(bytes), 0);
    }
    assert_eq!(answers(&question(&own, 2, 1)), 1);
}

#[test]
fn refresh_is_cancelled_by_f_plus_1_servers() {
    let mut world = World::new(1, [100], 5);
    world.run_until(|world| world.have_epoch(1, &[1, 2, 3, 4]));
    assert_eq!(world.server(1).cancel_refresh(Duration::ZERO), Err(RefreshRefusal::None));
    // Only one of the new servers runs.
    world.refresh(&[1, 2], &group(1, 100));
    let is_open = |world: &World| {
        let status = world.nodes[&3].server.as_ref().unwrap().status();
        status.epoch.unwrap().run.is_some()
    };
    world.run_until(is_open);
    let now = world.now;
    let other = world.server(3).start_refresh(group(1, 50), now);
    assert_eq!(other, Err(RefreshRefusal::UnderWay));
    world.server(3).cancel_refresh(now).unwrap();
    world.server(4).cancel_refresh(now).unwrap();
    world.run_until(|world| !is_open(world));
    world.sign(2, b"still");
    world.assert_wiped(1, &[1, 2, 3, 4]);
}

#[test]
fn malformed_messages_change_nothing() {
    let mut world = World::new(1, [100], 6);
    world.run_until(|world| world.have_epoch(1, &[1, 2, 3, 4]));
    let before = world.server(1).status();
    let mut seen = BTreeSet::new();
    for topic in [LinkTopic::Signing, LinkTopic::Refresh] {
        for len in 0..40 {
            for kind in 0..8 {
                let bytes = vec![kind; len];
                for from in [2, 100] {
                    world.server(1).handle_message(
                        Duration::ZERO,
                        &identity(from).public(),
                        topic,
                        &bytes,
                        0,
                    );
                }
            }
        }
    }
    while let Some(output) = world
        .nodes
        .get_mut(&1)
        .unwrap()
        .server
        .as_mut()
        .unwrap()
        .poll_output(world.now, &mut world.generator)
        .unwrap()
    {
        if let QuorumServerOutput::Event(QuorumServerEvent::MessageRefused { why, .. }) = output {
            seen.insert(why);
        }
    }
    assert_eq!(seen.len(), 7, "{seen:?}");
    assert_eq!(world.server(1).status(), before);
}
