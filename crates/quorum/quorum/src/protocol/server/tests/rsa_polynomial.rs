//! An RSA key that is shared by a polynomial: wrong parts of signatures, and wrong dealings.

use handover::{HandoverDealer, HandoverEntry, HandoverEntryBody, HandoverEntryKind};
use threshold_rsa::{ThresholdRsaScheme, ThresholdRsaSharing};

use super::ed25519::{commit, run_of};
use super::handovers::{four, sign_with_liar};
use super::*;
use crate::protocol::key_sharing::{KeySharing, KeySigner};
use crate::protocol::refresh::{
    EncodedHandoverStep, LogEntry, LogEntryBody, RefreshRole, RunScheme as _,
};
use crate::protocol::signing::{SigningEvidence, WrongPartEvidence};

fn sharing_of(world: &World) -> Arc<ThresholdRsaSharing> {
    let start = world.nodes[&3].saved.start.as_ref().unwrap();
    let sharing = KeySharing::parse_rsa(world.key.group().public(), &start.witnesses);
    let Some(KeySharing::Rsa(sharing)) = sharing else { panic!("the sharing of an RSA key") };
    sharing
}

/// The server that is asked first changes its parts, and signs them. Its part without a proof alone
/// is wrong, or the one with a proof, too. It is found and proven, and left out afterwards.
#[test]
fn a_wrong_part_is_replaced_and_proven() {
    for (seed, with_proof) in [(1, false), (2, true)] {
        let mut world = four(GroupKeyKind::RsaPolynomial, seed);
        // Name and number of a part without a proof.
        let short = 32 + 64;
        let liar = sign_with_liar(&mut world, b"sunder-quorum part of a signature v1\0", |bytes| {
            let is_part = bytes[0] == 2 && (with_proof || bytes.len() == 9 + short + 64);
            let mut part = is_part.then(|| bytes[9..bytes.len() - 64].to_vec())?;
            part[short - 1] ^= 1;
            Some(part)
        });
        let faulty = ServerIndex(liar - 1);
        world.run(|_| false);
        let evidence = world.nodes[&1].events.iter().find_map(|event| match event {
            QuorumServerEvent::WrongAnswer {
                server,
                evidence: SigningEvidence::RsaPolynomial(it),
            } => {
                assert_eq!(*server, faulty);
                WrongPartEvidence::parse(&it.to_bytes())
            }
            _ => None,
        });
        let evidence = evidence.expect("it is accused");
        // The epoch's header, which is public, is enough to verify it.
        let header = world.nodes[&3].saved.start.as_ref().unwrap().header().clone();
        let public = world.key.group().public();
        assert!(evidence.verify(public, &header, faulty));
        assert!(!evidence.verify(public, &header, ServerIndex((faulty.0 + 1) % 4)));
        let others = GroupHeader { group: group(1, 2), ..header.clone() };
        assert!(!evidence.verify(public, &others, faulty));
        let of_other_sharing = GroupHeader { witnesses: Sha256Digest([7; 32]), ..header };
        assert!(!evidence.verify(public, &of_other_sharing, faulty));
        // The next request does not ask it.
        let answered = |world: &World| {
            let events = &world.nodes[&liar].events;
            events.iter().filter(|it| matches!(it, QuorumServerEvent::Answered { .. })).count()
        };
        let before = answered(&world);
        world.sign(1, b"another message");
        assert_eq!(answered(&world), before);
    }
}

/// Server 4 does not run, and its dealings are wrong: it shares another number than its share, or
/// sends rows that nobody can decrypt, or bytes that are no dealing.
#[test]
fn faulty_dealers_are_excluded_and_the_key_moves() {
    for attack in 0..3 {
        let mut world = four(GroupKeyKind::RsaPolynomial, 10 + attack);
        world.stop(4);
        let members: Vec<Number> = (100..104).collect();
        world.join(members.clone());
        world.refresh(&[1, 2], &group(1, 100));
        let is_registered = |world: &World| {
            let epoch = world.nodes[&1].server.as_ref().unwrap().epoch.as_ref().unwrap();
            let run = epoch.agreement.run();
            run.is_some_and(|run| (0..4).all(|it| run.has_registered(ServerIndex(it))))
        };
        world.run_until(is_registered);
        let run = run_of(&world, 1);
        let handover = ThresholdRsaScheme::handover(run.handover().unwrap()).unwrap();
        let own = ServerIndex(3).participant().unwrap();
        let sharing = KeySharing::Rsa(sharing_of(&world));
        let saved = &world.nodes[&4].saved.shares[&1][0].1;
        let signer = KeySigner::from_bytes(&sharing, own, saved).unwrap();
        let share = ThresholdRsaScheme::share(&signer);
        let dealer = HandoverDealer::new(handover.terms(), own, share, &[9; 32]).unwrap();
        let mut step = dealer.wanted_entry(handover).unwrap();
        let HandoverEntryBody::Deal(dealing) = &mut step.body else { panic!("a dealing") };
        if attack == 1 {
            dealing.ciphertexts.values_mut().for_each(|it| it[0] ^= 1);
        }
        let mut bytes = step.to_bytes();
        if attack == 0 {
            // The last byte of the correction, before the length of a row. The commitment has three
            // numbers of 64 bytes.
            let correction = 32 + 1 + 1 + 4 + 3 * 64;
            let counted = bytes[correction..correction + 4].try_into().unwrap();
            let len = usize::try_from(u32::from_be_bytes(counted)).unwrap();
            bytes[correction + 4 + len - 1] ^= 1;
        } else if attack == 2 {
            bytes.pop();
        }
        let read = HandoverEntry::<ThresholdRsaScheme>::from_bytes(&bytes);
        assert_eq!(read.is_ok(), attack != 2);
        let step = EncodedHandoverStep::parse(&bytes).unwrap();
        assert_eq!(step.header().kind, HandoverEntryKind::Deal);
        let body = LogEntryBody::Handover { step, voting: None, time: None };
        commit(&mut world, &LogEntry::new(ServerIndex(3), body, &identity(4)));
        world.run_until(|world| world.have_epoch(2, &members));
        let is_accused = |event: &QuorumServerEvent| match event {
            QuorumServerEvent::WrongEntry { side: RefreshRole::Old, author, .. } => {
                attack != 1 && *author == ServerIndex(3)
            }
            QuorumServerEvent::DealerExcluded { dealer, .. } => *dealer == ServerIndex(3),
            _ => false,
        };
        for number in [1, 2, 3] {
            let events = &world.nodes[&number].events;
            assert!(events.iter().any(is_accused), "attack {attack}");
        }
        world.sign(101, b"after");
    }
}

/// A share is in memory as long as a part of a signature is computed with it, so it is reported as
/// wiped only afterwards.
#[test]
fn a_share_is_reported_as_wiped_when_no_job_uses_it() {
    let mut world = four(GroupKeyKind::RsaPolynomial, 30);
    let message = b"message".to_vec();
    world.slow = Some(2);
    world.keeps = |task| matches!(task, QuorumServerTask::Answer { .. });
    for number in 1..=4 {
        world.server(number).registered(MessageDigest::of(&message));
    }
    for at in 1..=4 {
        let (now, encoding) = (world.now, world.server(at).own_encoding());
        world.server(at).sign(now, LocalRequestId(0), message.clone(), encoding);
    }
    world.run_until(|world| !world.jobs.is_empty());
    world.refresh(&[1, 3], &group(1, 1));
    world.run_until(|world| world.have_epoch(2, &[1, 2, 3, 4]));
    world.run_until(|world| world.is_wiped(1, 1));
    assert!(!world.is_wiped(2, 1));
    world.finish_jobs();
    world.run_until(|world| world.is_wiped(2, 1));
}

/// Requests of other kinds of groups, and malformed ones, are refused.
#[test]
fn requests_of_other_kinds_of_keys_are_refused() {
    let mut world = four(GroupKeyKind::RsaPolynomial, 20);
    let (now, from) = (world.now, identity(2).public());
    let before = world.refused_messages();
    let epoch = 1_u64.to_be_bytes();
    // Commitments of FROST; a quick sign of combinatorial shares; neither with nor without a proof.
    for (kind, rest) in [(7, &[][..]), (1, &[0, 3, 1, 7]), (1, &[2, 1, 7])] {
        let bytes = [&[kind, 0, 0, 0, 0, 0, 0, 0, 9], &epoch[..], rest].concat();
        world.server(1).handle_message(now, &from, LinkTopic::Signing, &bytes, 0);
        world.run(|_| false);
    }
    // The second one is a request for another message than a registered one.
    assert_eq!(world.refused_messages() - before, 2);
}
