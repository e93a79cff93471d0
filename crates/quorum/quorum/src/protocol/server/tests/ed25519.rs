//! Servers that generate an Ed25519 key, sign with it, and move it.

use handover::{
    GroupSize, HandoverAgreement, HandoverDealer, HandoverEntry, HandoverReceiver, HandoverTerms,
    ParticipantId,
};
use schnorr::SchnorrScheme;

use super::handovers::{four, sign_with_liar};
use super::world::BEGINNING;
use super::*;
use crate::protocol::refresh::{
    EncodedHandoverStep, LogEntry, LogEntryBody, LogEntryEffect, LogEntryRefusal, RefreshRole,
    RefreshRun, RunScheme as _,
};
use crate::protocol::signing::{SigningEncoding, SigningEvidence, WrongShareEvidence};
use crate::protocol::voting::VotingKey;

/// Servers that have started, and are to generate a key.
pub(super) fn founders(faulty: u8, seed: u64) -> World {
    let mut world = World::founding(faulty, seed);
    for number in world.numbers() {
        world.start(number);
    }
    world
}

pub(super) fn numbers(first: Number, faulty: u8) -> Vec<Number> {
    (first..=first + 3 * faulty).collect()
}

/// Runs until the key is generated, and these servers have the first epoch.
pub(super) fn generated(world: &mut World, members: &[Number]) {
    world.run_until(|world| world.have_epoch(1, members));
}

#[test]
fn servers_generate_a_key_and_sign() {
    for faulty in 1..=2 {
        let mut world = founders(faulty, 1);
        let members = numbers(1, faulty);
        let before = world.server(1).status().epoch.unwrap();
        assert!((before.epoch, before.has_shares, before.is_founding) == (0, false, true));
        assert!(world.server(1).public().is_none());
        // What needs the key is refused, and can be repeated.
        let now = world.now;
        world.server(1).registered(MessageDigest::of(b"early"));
        world.server(1).sign(now, LocalRequestId(9), b"early".to_vec(), SigningEncoding::Ed25519);
        world.run_until(|world| !world.nodes[&1].replies.is_empty());
        assert_eq!(world.nodes[&1].replies[&LocalRequestId(9)], Err(SignRefusal::NoKey));
        let refused = world.server(1).start_refresh(group(faulty, 1), now);
        assert_eq!(refused, Err(RefreshRefusal::NoKey));
        assert_eq!(world.server(1).cancel_refresh(now), Err(RefreshRefusal::NoKey));
        generated(&mut world, &members);
        let public = world.public();
        assert!(
            world.numbers().into_iter().all(|it| world.server(it).public() == Some(public.clone()))
        );
        for at in [1, 2, 2, 1, 3] {
            world.sign(at, format!("message {at}").as_bytes());
        }
        world.assert_wiped(1, &members);
    }
}

/// After the first request, each further one takes one round trip with f+1 servers.
#[test]
fn requests_use_the_commitments_that_come_with_answers() {
    let mut world = four(GroupKeyKind::Ed25519, 2);
    world.sign(1, b"first");
    world.run(|_| false);
    let sent = |world: &mut World| {
        let mut sent = Vec::new();
        while world.poll(1) {
            sent.extend(world.links.drain(..).map(|(_, to, _, bytes)| (to, bytes[0])));
        }
        sent
    };
    let (now, message) = (world.now, b"first".to_vec());
    world.server(1).sign(now, LocalRequestId(99), message, SigningEncoding::Ed25519);
    let sent = sent(&mut world);
    assert!(sent.iter().all(|(_, kind)| *kind == 9) && sent.len() <= 2, "{sent:?}");
}

/// The open run of a server.
pub(super) fn run_of(world: &World, number: Number) -> RefreshRun {
    let server = world.nodes[&number].server.as_ref().unwrap();
    server.epoch.as_ref().unwrap().agreement.run().unwrap().clone()
}

fn handover_of(world: &World, number: Number) -> Arc<HandoverAgreement<SchnorrScheme>> {
    SchnorrScheme::handover(run_of(world, number).handover().unwrap()).unwrap().clone()
}

pub(super) fn commit(world: &mut World, entry: &LogEntry) {
    let height = Height(world.log.len() as u64 + 1);
    world.log.push(CommittedEntries { height, entries: vec![entry.to_bytes().into()] });
}

/// A dealing of server 4 when a key is generated, to session keys that it has drawn itself.
fn deal_of_server_4(run: [u8; 32]) -> HandoverEntry<SchnorrScheme> {
    let new = GroupSize::of_faulty(1).unwrap();
    let terms = HandoverTerms { run, old: None, new };
    let mut drawn = HandoverAgreement::new(terms.clone());
    for participant in new.participants().take(3) {
        let receiver = HandoverReceiver::new(&terms, participant, &[participant.number(); 32]);
        for entry in receiver.unwrap().wanted_entries(&drawn) {
            drawn.apply(participant, &entry).unwrap();
        }
    }
    let own = ParticipantId::new(4).unwrap();
    HandoverDealer::new(&terms, own, None, &[9; 32]).unwrap().wanted_entry(&drawn).unwrap()
}

/// Server 4 does not run, and its entries are wrong: a dealing of another handover, and one whose
/// ciphertexts nobody can decrypt.
#[test]
fn faulty_dealers_are_excluded_and_the_key_is_generated() {
    for (seed, is_of_other_run) in [(1, true), (2, false), (3, false)] {
        let mut world = World::founding(1, seed);
        (1..=3).for_each(|number| world.start(number));
        let is_registered = |world: &World| !handover_of(world, 1).dealt().is_empty();
        world.run_until(|world| {
            (1..=3).all(|it| run_of(world, 1).has_registered(ServerIndex(it - 1)))
        });
        assert!(!is_registered(&world), "it can deal before the others");
        let run = run_of(&world, 1).id();
        let step = deal_of_server_4(if is_of_other_run { [7; 32] } else { run.0 });
        let step = if is_of_other_run {
            let mut bytes = step.to_bytes();
            bytes[..32].copy_from_slice(&run.0);
            HandoverEntry::<SchnorrScheme>::from_bytes(&bytes).unwrap()
        } else {
            step
        };
        let step = EncodedHandoverStep::new(&step);
        let body = LogEntryBody::Handover { step, voting: None, time: None };
        commit(&mut world, &LogEntry::new(ServerIndex(3), body, &identity(4)));
        generated(&mut world, &[1, 2, 3]);
        for number in 1..=3 {
            let is_accused = |event: &QuorumServerEvent| match event {
                QuorumServerEvent::WrongEntry { side: RefreshRole::Old, author, .. } => {
                    is_of_other_run && *author == ServerIndex(3)
                }
                QuorumServerEvent::DealerExcluded { dealer, .. } => *dealer == ServerIndex(3),
                _ => false,
            };
            assert!(world.nodes[&number].events.iter().any(is_accused), "seed {seed}");
        }
        world.sign(2, b"signed without server 4");
        // It comes back, and gets its share.
        world.start(4);
        world.run_until(|world| world.have_epoch(1, &[4]));
    }
}

/// Entries that are signed by others, are of other runs, or have no valid voting key, change
/// nothing. A Confirm without a share proves its author faulty.
#[test]
fn wrong_entries_of_receivers_change_nothing_or_accuse_them() {
    let mut world = World::founding(1, 8);
    (1..=3).for_each(|number| world.start(number));
    let run = run_of(&world, 1).id();
    let terms = HandoverTerms { run: run.0, old: None, new: GroupSize::of_faulty(1).unwrap() };
    let (own, index) = (ParticipantId::new(4).unwrap(), ServerIndex(3));
    let mut receiver = HandoverReceiver::new(&terms, own, &[7; 32]).unwrap();
    let empty = HandoverAgreement::new(terms.clone());
    let step = receiver.wanted_entries(&empty).remove(0);
    let secret = VotingSecret::from_bytes(Zeroizing::new([8; 32]));
    let body = |digest: Sha256Digest| LogEntryBody::Handover {
        step: EncodedHandoverStep::new(&step),
        voting: Some(Box::new(VotingKey::new(&secret, digest, index))),
        time: None,
    };
    let before = run_of(&world, 1);
    commit(&mut world, &LogEntry::new(index, body(run), &identity(3)));
    commit(&mut world, &LogEntry::new(ServerIndex(2), body(run), &identity(3)));
    commit(&mut world, &LogEntry::new(index, body(Sha256Digest([1; 32])), &identity(4)));
    // The right one, before the others register.
    commit(&mut world, &LogEntry::new(index, body(run), &identity(4)));
    world.run_until(|world| world.nodes[&1].log == Some(Height(3)));
    assert_eq!(run_of(&world, 1).handover(), before.handover());
    world.run_until(|world| run_of(world, 1).has_registered(index));
    // It claims a share of another handover.
    world.run_until(|world| run_of(world, 1).handover().unwrap().sharing().is_some());
    receiver.handle_log(&handover_of(&world, 1));
    let wanted = receiver.wanted_entries(&handover_of(&world, 1));
    let confirm = wanted.last().unwrap().to_bytes();
    assert_eq!(confirm[32], 5, "it has its share");
    let mut wrong = confirm.clone();
    wrong[40] ^= 1;
    let step = EncodedHandoverStep::parse(&wrong).unwrap();
    let body = LogEntryBody::Handover { step, voting: None, time: Some(BEGINNING) };
    commit(&mut world, &LogEntry::new(index, body, &identity(4)));
    generated(&mut world, &[1, 2, 3]);
    let is_accused = |event: &QuorumServerEvent| {
        matches!(event, QuorumServerEvent::WrongEntry { side: RefreshRole::New, author, .. }
            if *author == index)
    };
    assert!(world.nodes[&1].events.iter().any(is_accused));
}

/// Servers that are not in the group, or not the author, cannot have points decoded: a step with
/// malformed ones is refused for the first thing that is wrong. Its author can once, and is faulty.
#[test]
fn points_of_a_step_are_decoded_after_its_author_is_authenticated() {
    let mut world = World::founding(1, 12);
    world.start(1);
    let run = run_of(&world, 1).id();
    let mut agreement = world.server(1).epoch.as_ref().unwrap().agreement.clone();
    // f', and no points; and no point at all.
    let (deal, complain) =
        ([&[2, 1][..], &[0xff; 600]].concat(), [&[4, 1][..], &[0xff; 96]].concat());
    let entry = |index: u8, run: [u8; 32], step: &[u8], signer: Number| {
        let step = EncodedHandoverStep::parse(&[&run[..], step].concat()).unwrap();
        let body = LogEntryBody::Handover { step, voting: None, time: None };
        let entry = LogEntry::new(ServerIndex(index), body, &identity(signer));
        LogEntry::parse(&entry.to_bytes()).unwrap()
    };
    for (index, run, signer, expected) in [
        (3, [1; 32], 4, LogEntryRefusal::OtherRun),
        (9, run.0, 4, LogEntryRefusal::Signature),
        (3, run.0, 3, LogEntryRefusal::Signature),
    ] {
        assert_eq!(agreement.check(&entry(index, run, &deal, signer)), Err(expected));
    }
    assert_eq!(agreement.check(&entry(3, run.0, &complain, 4)), Err(LogEntryRefusal::Early));
    // However often it is checked, it is not decoded.
    let signed = entry(3, run.0, &deal, 4);
    assert!(agreement.check(&signed).is_ok());
    let (side, author) = (RefreshRole::Old, ServerIndex(3));
    let accused = |why| Ok(LogEntryEffect::Faulty { side, author, why });
    // A right one is to receivers that the log does not have.
    let early = entry(3, run.0, &deal_of_server_4(run.0).to_bytes()[32..], 4);
    assert_eq!(agreement.clone().apply(&early), accused(LogEntryRefusal::Early));
    let malformed = MalformedEncoding("not a point of prime order");
    assert_eq!(agreement.apply(&signed), accused(LogEntryRefusal::Malformed(malformed)));
    let again = entry(3, run.0, &[&deal[..], &[0]].concat(), 4);
    assert_eq!(agreement.check(&again), Err(LogEntryRefusal::Faulty));
    // A Deal among 31 servers has 13,730 bytes, and one of an RSA key many more.
    let long = entry(2, run.0, &[&[2, 10][..], &[0xff; 16_351]].concat(), 3);
    let too_long = MalformedEncoding("larger than a step of a handover may be");
    assert_eq!(agreement.check(&long), Err(LogEntryRefusal::Malformed(too_long)));
    let longer = [&run.0[..], &[2, 10], &vec![0xff; 256 << 10]].concat();
    assert_eq!(EncodedHandoverStep::parse(&longer), Err(too_long));
}

/// The share of a signature from a faulty server is found wrong, and the evidence convinces others.
#[test]
fn a_wrong_share_is_replaced_and_proven() {
    let mut world = four(GroupKeyKind::Ed25519, 9);
    let liar = sign_with_liar(&mut world, b"sunder-quorum answer to a session v1\0", |bytes| {
        let is_share = bytes[0] == 10;
        let mut answer = is_share.then(|| bytes[9..bytes.len() - 64].to_vec())?;
        answer[32] ^= 1;
        Some(answer)
    });
    let faulty = ServerIndex(liar - 1);
    let evidence = world.nodes[&1].events.iter().find_map(|event| match event {
        QuorumServerEvent::WrongAnswer { server, evidence: SigningEvidence::Ed25519(it) } => {
            assert_eq!(*server, faulty);
            WrongShareEvidence::parse(&it.to_bytes())
        }
        _ => None,
    });
    let evidence = evidence.expect("it is accused");
    // The epoch's header, which is public, is enough to verify it.
    let header = world.nodes[&3].saved.start.as_ref().unwrap().header().clone();
    assert!(evidence.verify(&header, faulty));
    assert!(!evidence.verify(&header, ServerIndex(0)));
    let of_other_sharing = GroupHeader { witnesses: Sha256Digest([7; 32]), ..header };
    assert!(!evidence.verify(&of_other_sharing, faulty));
}

/// A server that says after each question that its nonces are lost is replaced, without a wait.
#[test]
fn a_server_that_loses_its_nonces_for_ever_is_replaced() {
    let mut world = four(GroupKeyKind::Ed25519, 9);
    let message = b"message".to_vec();
    for number in 1..=4 {
        world.server(number).registered(MessageDigest::of(&message));
    }
    let now = world.now;
    world.server(1).sign(now, LocalRequestId(1), message.clone(), SigningEncoding::Ed25519);
    let (mut liar, mut refusals) = (None, 0);
    for _ in 0..10_000 {
        for number in 1..=4 {
            world.poll(number);
        }
        if world.nodes[&1].replies.contains_key(&LocalRequestId(1)) {
            break;
        }
        let Some((from, to, topic, mut bytes)) = world.links.pop_front() else { continue };
        let is_share = topic == LinkTopic::Signing && bytes[0] == 10;
        if is_share && *liar.get_or_insert(from) == from {
            // Its next commitments follow the digest of the session and the share.
            bytes = [&[11], &bytes[1..9], &bytes[73..137]].concat().into();
            refusals += 1;
        }
        let from = identity(from).public();
        world.server(to).handle_message(now, &from, topic, &bytes, 0);
    }
    let signature = world.nodes[&1].replies[&LocalRequestId(1)].clone().unwrap();
    assert!(world.public().verify(&message, &signature));
    assert!((1..=2).contains(&refusals), "{refusals}");
}

/// A chain that a founder makes alone, with a key of its own, convinces no other founder, and no
/// server that knows the key.
#[test]
fn nobody_believes_a_key_that_one_founder_has_made() {
    let mut world = World::founding(1, 10);
    world.start(1);
    let header = world.founding.clone().unwrap();
    let secret = IdentitySecretKey::new(&[77; 32]);
    let false_header = GroupHeader {
        kind: GroupHeaderKind::Epoch,
        epoch: 1,
        run: 1,
        previous: header.digest(),
        ..header.clone()
    };
    let signature = secret.sign(&false_header.to_bytes()).to_vec();
    let first = SignedGroupHeader { header, signature: Vec::new() };
    let second = SignedGroupHeader { header: false_header, signature };
    let start = GroupStart {
        chain: vec![first, second],
        refresh: None,
        height: Height(7),
        witnesses: Vec::new(),
    };
    let invite = [&[refreshing::INVITE][..], &start.to_bytes()].concat();
    for from in [2, 3, 4] {
        let from = identity(from).public();
        world.server(1).handle_message(Duration::ZERO, &from, LinkTopic::Refresh, &invite, 0);
    }
    assert_eq!(world.server(1).behind(), None);
    assert!(world.server(1).public().is_none());
    (2..=4).for_each(|number| world.start(number));
    generated(&mut world, &[1, 2, 3, 4]);
    let now = world.now;
    world.server(1).handle_message(now, &identity(2).public(), LinkTopic::Refresh, &invite, 0);
    assert_eq!(world.server(1).behind(), None);
    world.sign(1, b"still");
}
