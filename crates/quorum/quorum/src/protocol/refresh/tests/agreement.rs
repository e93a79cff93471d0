//! The entries that the agreement rejects, by kind and condition.

use encoding::FieldReader;

use super::super::complaint;
use super::super::dealing::Dealing;
use super::super::entry::{Complaint, LogEntryBody};
use super::super::manifest::DealingManifest;
use super::super::new_server;
use super::super::session::SessionSecret;
use super::*;
use crate::protocol::voting::{VotingKey, VotingSecret};
use crate::protocol::wire::Sha256Digest;

const OTHER: Sha256Digest = Sha256Digest([9; 32]);

/// A refresh that has finished, with all its entries.
fn finished() -> World {
    let mut world = World::new(1, 1, 5);
    world.run();
    world.assert_refreshed(4);
    world
}

/// The first entry of a kind, with the agreement before it.
fn first(world: &World, is_meant: impl Fn(&LogEntryBody) -> bool) -> (RefreshAgreement, LogEntry) {
    let mut entries = world.history.iter().filter(|(_, entry)| is_meant(&entry.body));
    entries.next().expect("there is one").clone()
}

fn apply(
    agreement: &RefreshAgreement,
    entry: &LogEntry,
) -> Result<LogEntryEffect, LogEntryRefusal> {
    let (mut changed, before) = (agreement.clone(), agreement.run().map(RefreshRun::id));
    let result = changed.apply(&LogEntry::parse(&entry.to_bytes()).unwrap());
    if result.is_err() {
        assert_eq!(changed.run().map(RefreshRun::id), before, "a refused entry changes nothing");
    }
    result
}

/// Asserts the effect of an entry that proves its author faulty.
#[allow(clippy::unnecessary_wraps)]
fn faulty(
    side: RefreshRole,
    author: ServerIndex,
    why: LogEntryRefusal,
) -> Result<LogEntryEffect, LogEntryRefusal> {
    Ok(LogEntryEffect::Faulty { side, author, why })
}

/// The identity key of an entry's author.
fn author(entry: &LogEntry) -> IdentitySecretKey {
    let first = if entry.side() == RefreshRole::Old { 1 } else { 100 };
    identity(first + entry.author.0)
}

fn resigned(entry: &LogEntry, body: LogEntryBody) -> LogEntry {
    LogEntry::new(entry.author, body, &author(entry))
}

#[test]
fn each_entry_is_signed_by_its_author_and_counts_once_in_its_run_before_the_end() {
    let world = finished();
    assert!(world.history.len() >= 2 + 4 + 4 + 3, "{}", world.history.len());
    let ended = &world.agreement;
    for (before, entry) in &world.history {
        assert!(apply(before, entry).is_ok());
        let body = &entry.body;
        let forged = LogEntry::new(entry.author, body.clone(), &identity(77));
        assert_eq!(apply(before, &forged), Err(LogEntryRefusal::Signature));
        let stranger = LogEntry::new(ServerIndex(9), body.clone(), &identity(77));
        assert_eq!(apply(before, &stranger), Err(LogEntryRefusal::Signature));
        let mut other = body.clone();
        match &mut other {
            LogEntryBody::Approve { epoch, .. }
            | LogEntryBody::Withdraw { epoch, .. }
            | LogEntryBody::Cancel { epoch, .. }
            | LogEntryBody::Voting { epoch, .. } => *epoch = OTHER,
            LogEntryBody::SessionKey { run, .. }
            | LogEntryBody::Complaint { run, .. }
            | LogEntryBody::Computed { run, .. } => *run = OTHER,
            LogEntryBody::Proved { manifest, .. } => manifest.run = OTHER,
            LogEntryBody::Command { segment, .. } => *segment = OTHER,
            LogEntryBody::Handover { .. } => unreachable!("the key is an RSA key"),
        }
        assert_eq!(apply(before, &resigned(entry, other)), Err(LogEntryRefusal::OtherRun));
        let mut after = before.clone();
        let change = after.apply(entry).unwrap();
        let expected = if change == LogEntryEffect::Final {
            LogEntryRefusal::Ended
        } else {
            LogEntryRefusal::Repeated
        };
        assert_eq!(apply(&after, entry), Err(expected));
        assert_eq!(apply(ended, entry), Err(LogEntryRefusal::Ended));
    }
}

#[test]
fn a_withdrawn_approval_does_not_count_and_is_not_committed_again() {
    let world = finished();
    let (mut agreement, _) = first(&world, |body| matches!(body, LogEntryBody::Approve { .. }));
    let approval = |agreement: &RefreshAgreement, server: u8, first| {
        agreement.approval(ServerIndex(server), group(1, first), &identity(1 + server))
    };
    let withdrawal = |agreement: &RefreshAgreement, server: u8| {
        agreement.withdrawal(ServerIndex(server), &identity(1 + server))
    };
    let approved = approval(&agreement, 0, 50);
    // Withdrawn before it is committed, it is not committed any more.
    let (mut before, early) = (agreement.clone(), withdrawal(&agreement, 0));
    assert_eq!(before.apply(&early), Ok(LogEntryEffect::Counted));
    assert_eq!(before.apply(&approved), Err(LogEntryRefusal::Repeated));
    assert!(!before.has_approvals());
    assert_eq!(agreement.apply(&approved), Ok(LogEntryEffect::Counted));
    let forged = agreement.withdrawal(ServerIndex(0), &identity(2));
    assert_eq!(agreement.apply(&forged), Err(LogEntryRefusal::Signature));
    let withdrawn = withdrawal(&agreement, 0);
    assert_eq!(LogEntry::parse(&withdrawn.to_bytes()).as_ref(), Ok(&withdrawn));
    assert_eq!(agreement.apply(&withdrawn), Ok(LogEntryEffect::Counted));
    assert!(!agreement.has_approvals());
    for entry in [&approved, &withdrawn] {
        assert_eq!(agreement.apply(entry), Err(LogEntryRefusal::Repeated), "it was before");
    }
    // One more approval of the list does not open a run.
    let other = approval(&agreement, 1, 50);
    assert_eq!(agreement.apply(&other), Ok(LogEntryEffect::Counted));
    // The first server can approve again, the same list or another one.
    let again = approval(&agreement, 0, 60);
    assert_eq!(LogEntry::parse(&again.to_bytes()).as_ref(), Ok(&again));
    assert_eq!(agreement.apply(&again), Ok(LogEntryEffect::Counted));
    assert_eq!(agreement.apply(&withdrawn), Err(LogEntryRefusal::Repeated));
    for number in 2..=16 {
        let withdrawn = withdrawal(&agreement, 0);
        assert_eq!(agreement.apply(&withdrawn), Ok(LogEntryEffect::Counted));
        if number < 16 {
            let again = approval(&agreement, 0, 60);
            assert_eq!(agreement.apply(&again), Ok(LogEntryEffect::Counted));
        }
    }
    // An approval that could not be withdrawn does not count.
    for more in [withdrawal(&agreement, 0), approval(&agreement, 0, 60)] {
        assert_eq!(agreement.apply(&more), Err(LogEntryRefusal::Repeated), "16 in a run");
    }
    for (server, expected) in [(3, LogEntryEffect::Counted), (2, LogEntryEffect::Opened)] {
        let approved = approval(&agreement, server, 60);
        assert_eq!(agreement.apply(&approved), Ok(expected));
    }
    let late = withdrawal(&agreement, 1);
    assert_eq!(agreement.apply(&late), Err(LogEntryRefusal::Repeated), "the run is open");
}

/// One entry of each form that is written. A new form must be added here.
#[test]
fn all_forms_of_entries_are_distinct_and_parsed_as_written() {
    let world = finished();
    let (agreement, approve) = first(&world, |body| matches!(body, LogEntryBody::Approve { .. }));
    let (epoch, run) = (OTHER, 3);
    let LogEntryBody::Approve { group, .. } = approve.body.clone() else { unreachable!() };
    let computed = first(&world, |body| matches!(body, LogEntryBody::Computed { .. })).1;
    let LogEntryBody::Computed { run: of, witnesses, possession, .. } = computed.body else {
        unreachable!()
    };
    let computed = |time| {
        let (witnesses, possession) = (witnesses.clone(), possession.clone());
        LogEntryBody::Computed { run: of, witnesses, possession, time }
    };
    let (mut dealt_world, dealings) = dealt();
    let session = session(&dealt_world);
    let held = dealt_world.setting.new.combination().labels_of(ServerIndex(0)).next().unwrap();
    let about = (dealings[0].proofs.manifest.rows[0].0, held);
    let generator = &mut dealt_world.generator;
    let voting = VotingSecret::random(generator).unwrap();
    let complaint =
        new_server::complaint(&dealings[0], about, ServerIndex(0), &session, generator).unwrap();
    let bodies = vec![
        LogEntryBody::Approve { epoch, run, withdrawn: 0, group: group.clone() },
        LogEntryBody::Approve { epoch, run, withdrawn: 1, group },
        LogEntryBody::Withdraw { epoch, run, withdrawn: 0 },
        LogEntryBody::Cancel { epoch, run },
        first(&world, |body| matches!(body, LogEntryBody::SessionKey { .. })).1.body,
        first(&world, |body| matches!(body, LogEntryBody::Proved { .. })).1.body,
        LogEntryBody::Complaint { run: of, complaint: Box::new(complaint) },
        computed(None),
        computed(Some(UnixSeconds(7))),
        agreement.voting_entry(ServerIndex(0), &voting, &identity(1)).body,
        LogEntryBody::Command { segment: OTHER, number: 0, requests: vec![vec![7; 40]] },
    ];
    let mut kinds = std::collections::BTreeSet::new();
    for body in bodies {
        let entry = LogEntry::new(ServerIndex(0), body, &identity(1));
        let bytes = entry.to_bytes();
        assert_eq!(LogEntry::parse(&bytes).as_ref(), Ok(&entry));
        assert!(kinds.insert(bytes[1]), "{:?}", entry.body);
    }
    assert_eq!(kinds, (1..=11).collect());
}

#[test]
fn approvals_and_cancellations_are_for_the_run_and_one_of_each_server() {
    let world = finished();
    let (agreement, entry) = first(&world, |body| matches!(body, LogEntryBody::Approve { .. }));
    let LogEntryBody::Approve { epoch, run, withdrawn, group: approved } = entry.body.clone()
    else {
        unreachable!()
    };
    let later = LogEntryBody::Approve { epoch, run: run + 1, withdrawn, group: approved };
    assert_eq!(apply(&agreement, &resigned(&entry, later)), Err(LogEntryRefusal::OtherRun));
    let session = first(&world, |body| matches!(body, LogEntryBody::SessionKey { .. })).1;
    assert_eq!(apply(&agreement, &session), Err(LogEntryRefusal::OtherRun), "no run is open");
    // Two servers that approve different groups open nothing; one cannot change its mind.
    let mut split = agreement.clone();
    for (server, first) in [(0, 100), (1, 50)] {
        let own = identity(1 + server);
        let entry = split.approval(ServerIndex(server), group(1, first), &own);
        assert_eq!(split.apply(&entry), Ok(LogEntryEffect::Counted));
        let entry = split.approval(ServerIndex(server), group(1, 60), &own);
        assert_eq!(split.apply(&entry), Err(LogEntryRefusal::Repeated));
    }
    let entry = split.approval(ServerIndex(2), group(1, 50), &identity(3));
    assert_eq!(split.apply(&entry), Ok(LogEntryEffect::Opened));
    let entry = split.approval(ServerIndex(3), group(1, 50), &identity(4));
    assert_eq!(split.apply(&entry), Err(LogEntryRefusal::Repeated), "the run is open");
    let cancel = |agreement: &RefreshAgreement, i: u8| {
        agreement.cancellation(ServerIndex(i), &identity(1 + i))
    };
    let first = cancel(&split, 0);
    assert_eq!(split.apply(&first), Ok(LogEntryEffect::Counted));
    assert_eq!(split.apply(&first), Err(LogEntryRefusal::Repeated));
    let second = cancel(&split, 3);
    assert_eq!(split.apply(&second), Ok(LogEntryEffect::Cancelled));
    assert_eq!(split.apply(&second), Err(LogEntryRefusal::OtherRun), "it was for the run before");
    assert_eq!(split.run_number(), 2);
}

#[test]
fn a_voting_key_is_proven_and_replaces_the_one_that_counts() {
    let mut world = World::new(1, 1, 5);
    let mut secret = || VotingSecret::random(&mut world.generator).unwrap();
    let [first, second, of_another] = [(); 3].map(|()| secret());
    let mut agreement = world.agreement.clone();
    let (own, identity_key) = (ServerIndex(1), identity(2));
    let entry = agreement.voting_entry(own, &first, &identity_key);
    // A key that the author does not have, or that was proven by another server.
    let LogEntryBody::Voting { epoch, replaced, .. } = entry.body.clone() else { unreachable!() };
    let stolen = Box::new(VotingKey::new(&of_another, epoch, ServerIndex(2)));
    let stolen =
        LogEntry::new(own, LogEntryBody::Voting { epoch, replaced, voting: stolen }, &identity_key);
    assert_eq!(apply(&agreement, &stolen), Err(LogEntryRefusal::VotingKey));
    let forged = LogEntry::new(own, entry.body.clone(), &identity(77));
    assert_eq!(apply(&agreement, &forged), Err(LogEntryRefusal::Signature));
    let of_nobody = agreement.voting_entry(ServerIndex(9), &first, &identity_key);
    assert_eq!(apply(&agreement, &of_nobody), Err(LogEntryRefusal::Signature));
    assert_eq!(agreement.apply(&entry), Ok(LogEntryEffect::Counted));
    assert_eq!(agreement.voting()[1], Some(first.public()));
    assert_eq!(apply(&agreement, &entry), Err(LogEntryRefusal::Repeated));
    let next = agreement.voting_entry(own, &second, &identity_key);
    assert_eq!(agreement.apply(&next), Ok(LogEntryEffect::Counted));
    // Committed again, the first one does not bring back a key that was lost.
    assert_eq!(apply(&agreement, &entry), Err(LogEntryRefusal::VotingKey));
    // What a run ends with does not depend on it, and the key outlasts a run that is given up.
    for i in [0, 1] {
        let cancel = agreement.cancellation(ServerIndex(i), &identity(1 + i));
        agreement.apply(&cancel).unwrap();
    }
    assert_eq!((agreement.run_number(), agreement.voting()[1]), (2, Some(second.public())));
    // A server that joins the next run learns it from the refresh header.
    let header = agreement.refresh_header(world.setting.new.clone());
    let joined = RefreshAgreement::joined(
        world.setting.parameters.clone(),
        agreement.epoch().clone(),
        &header,
    );
    assert_eq!(joined.voting(), agreement.voting());
}

#[test]
fn an_epoch_begins_with_the_voting_keys_that_were_registered() {
    let world = finished();
    let registered = world.history.iter().filter_map(|(_, entry)| match &entry.body {
        LogEntryBody::SessionKey { voting, .. } => Some((entry.author, voting.key)),
        _ => None,
    });
    let registered: BTreeMap<_, _> = registered.collect();
    let header = world.agreement.run().unwrap().next_epoch().unwrap();
    let servers = world.setting.new.combination().servers();
    assert!(servers.map(|it| registered.get(&it).copied()).eq(header.voting.iter().copied()));
    let (before, entry) = first(&world, |body| matches!(body, LogEntryBody::SessionKey { .. }));
    let LogEntryBody::SessionKey { run, key, .. } = entry.body.clone() else { unreachable!() };
    let other = (entry.author.0 + 1) % 4;
    let voting = VotingSecret::from_bytes(Zeroizing::new([3; 32]));
    let voting = Box::new(VotingKey::new(&voting, run, ServerIndex(other)));
    let unproven = resigned(&entry, LogEntryBody::SessionKey { run, key, voting });
    assert_eq!(apply(&before, &unproven), Err(LogEntryRefusal::VotingKey));
    // The Computed of a server that has not registered any does not count.
    let (_, computed) = first(&world, |body| matches!(body, LogEntryBody::Computed { .. }));
    let mut agreement = world.history[0].0.clone();
    for (_, entry) in &world.history {
        let is_own = entry.author == computed.author;
        let is_left_out = match entry.body {
            LogEntryBody::SessionKey { .. } => is_own,
            LogEntryBody::Computed { .. } => true,
            _ => false,
        };
        if !is_left_out {
            agreement.apply(entry).unwrap();
        }
    }
    assert_eq!(apply(&agreement, &computed), Err(LogEntryRefusal::NoSessionKey));
}

#[test]
fn proved_has_labels_of_its_dealer_and_a_quorum_of_confirmations() {
    let world = finished();
    let (agreement, entry) = first(&world, |body| matches!(body, LogEntryBody::Proved { .. }));
    let LogEntryBody::Proved { manifest, confirmations } = entry.body.clone() else {
        unreachable!()
    };
    let with = |manifest: &DealingManifest, confirmations: &[_]| {
        let (manifest, confirmations) = (manifest.clone(), confirmations.to_vec());
        apply(&agreement, &resigned(&entry, LogEntryBody::Proved { manifest, confirmations }))
    };
    assert_eq!(with(&manifest, &confirmations), Ok(LogEntryEffect::Counted));
    let mut changed = manifest.clone();
    changed.dealer = ServerIndex((manifest.dealer.0 + 1) % 4);
    assert_eq!(with(&changed, &confirmations), Err(LogEntryRefusal::Labels));
    let lacked = world.setting.old.combination();
    let lacked = lacked.labels().find(|&label| !lacked.holds(manifest.dealer, label)).unwrap();
    for rows in [vec![], vec![(lacked, OTHER)], vec![(Label(500), OTHER)]] {
        let changed = DealingManifest { rows, ..manifest.clone() };
        assert_eq!(with(&changed, &confirmations), Err(LogEntryRefusal::Labels));
    }
    // Confirmations are of this manifest, in all its parts.
    let mut changed = manifest.clone();
    changed.rows[0].1 = OTHER;
    assert_eq!(
        with(&changed, &confirmations),
        faulty(RefreshRole::Old, entry.author, LogEntryRefusal::Confirmations)
    );
    let [a, b, c] = confirmations[..] else { panic!("2f+1 = 3") };
    let message = DealingManifest::confirmation(manifest.digest());
    let all: Vec<_> = (0..4).map(|i| (ServerIndex(i), identity(100 + i).sign(&message))).collect();
    let fourth = *all.iter().find(|it| !confirmations.contains(it)).unwrap();
    let of_another = (fourth.0, identity(1 + fourth.0.0).sign(&message));
    for wrong in [
        vec![],
        vec![a, b],
        vec![a, b, b],
        vec![a, b, c, c],
        vec![a, b, c, fourth],
        vec![a, b, (fourth.0, c.1)],
        vec![a, b, of_another],
        vec![a, b, (ServerIndex(4), c.1)],
        vec![a, b, (c.0, [0; 64])],
    ] {
        assert_eq!(
            with(&manifest, &wrong),
            faulty(RefreshRole::Old, entry.author, LogEntryRefusal::Confirmations)
        );
    }
    assert_eq!(with(&manifest, &[fourth, c, a]), Ok(LogEntryEffect::Counted));
}

#[test]
fn computed_comes_after_the_choice_with_a_proof_for_its_witnesses_and_server() {
    let world = finished();
    let (agreement, entry) = first(&world, |body| matches!(body, LogEntryBody::Computed { .. }));
    let (_, session) = first(&world, |body| matches!(body, LogEntryBody::SessionKey { .. }));
    let LogEntryBody::Computed { run, witnesses, possession, time } = entry.body.clone() else {
        unreachable!()
    };
    let with = |agreement: &RefreshAgreement, author: u8, witnesses: &[u8], possession: &[u8]| {
        let (witnesses, possession) = (witnesses.to_vec(), possession.to_vec());
        let body = LogEntryBody::Computed { run, witnesses, possession, time };
        apply(agreement, &LogEntry::new(ServerIndex(author), body, &identity(100 + author)))
    };
    let own = entry.author.0;
    let wrong = |author| faulty(RefreshRole::New, ServerIndex(author), LogEntryRefusal::Possession);
    assert_eq!(with(&agreement, own, &witnesses, &possession), Ok(LogEntryEffect::Counted));
    let another = (own + 1) % 4;
    assert_eq!(with(&agreement, another, &witnesses, &possession), wrong(another));
    let mut swapped = witnesses.clone();
    swapped.rotate_left(32);
    for witnesses in [&swapped[..], &witnesses[32..], &[], &[0; 128], &[0xff; 128]] {
        assert_eq!(with(&agreement, own, witnesses, &possession), wrong(own));
    }
    for at in [0, 31, 32, possession.len() - 1] {
        let mut changed = possession.clone();
        changed[at] ^= 1;
        assert_eq!(with(&agreement, own, &witnesses, &changed), wrong(own));
        assert_eq!(with(&agreement, own, &witnesses, &changed[..at]), wrong(own));
    }
    let before = world.history.iter().find(|(_, it)| *it == session).unwrap().0.clone();
    assert_eq!(with(&before, own, &witnesses, &possession), Err(LogEntryRefusal::NotChosen));
}

/// A agreement on which all new servers have session keys, and dealings to the first of them.
pub(super) fn dealt() -> (World, Vec<Dealing>) {
    let mut world = World::new(1, 1, 6);
    let mut dealings = Vec::new();
    let first = (RefreshRole::New, ServerIndex(0));
    while dealings.len() < 4 {
        for address in world.addresses() {
            world.poll(address);
        }
        let Some((from, to, bytes)) = world.links.pop_front() else { continue };
        match RefreshMessage::parse(&bytes) {
            // Nothing is confirmed.
            Ok(RefreshMessage::Dealing(dealing)) if to == first => dealings.push(dealing),
            Ok(RefreshMessage::Dealing(_)) => {}
            _ => world.deliver(from, to, &bytes),
        }
    }
    (world, dealings)
}

fn session(world: &World) -> SessionSecret {
    let saved = &world.saved[&(RefreshRole::New, ServerIndex(0))][&RunItemName::SessionKey];
    SessionSecret::from_bytes(&FieldReader::new(saved).take().unwrap()).unwrap()
}

/// Signs a dealing to the first new server again.
pub(super) fn sign(dealing: &mut Dealing) {
    let mut delivery = (*dealing.delivery).clone();
    let manifest = &dealing.proofs.manifest;
    let digest = dealing.proofs.digest;
    let message = DealingManifest::delivery(digest, ServerIndex(0), &delivery.digests());
    delivery.signature = identity(1 + manifest.dealer.0).sign(&message);
    dealing.delivery = Arc::new(delivery);
}

#[test]
fn unfounded_complaint_with_any_change_proves_its_author_faulty() {
    let (mut world, dealings) = dealt();
    let (dealing, session) = (&dealings[0], session(&world));
    let me = ServerIndex(0);
    let label = dealing.proofs.manifest.rows[0].0;
    let run = world.agreement.run().unwrap().id();
    let new = world.setting.new.combination().clone();
    let held = new.labels_of(me).next().unwrap();
    let lacked = new.labels().find(|&it| !new.holds(me, it)).unwrap();
    let other = SessionSecret::random(&mut world.generator).unwrap();
    let ephemeral = dealing.proofs.manifest.ephemeral;
    let wrong_k = *other.agree(&ephemeral);
    let context = Complaint::context(dealing.proofs.digest, me);
    let wrong_proof = other.prove(&ephemeral, &wrong_k, &context, &mut world.generator).unwrap();
    let mut complain = |it: &dyn Fn(&mut Complaint), author: u8| {
        let generator = &mut world.generator;
        let about = (label, held);
        let mut complaint = new_server::complaint(dealing, about, me, &session, generator).unwrap();
        it(&mut complaint);
        let body = LogEntryBody::Complaint { run, complaint: Box::new(complaint) };
        apply(&world.agreement, &LogEntry::new(ServerIndex(author), body, &identity(100 + author)))
    };
    let changes: [&dyn Fn(&mut Complaint); 15] = [
        &|_| {},
        &|it| it.subshare = lacked,
        &|it| it.subshare = Label(700),
        &|it| it.label = Label(700),
        &|it| it.proofs[0] ^= 1,
        &|it| it.ciphertext[0] ^= 1,
        &|it| it.ciphertexts[0] = OTHER,
        &|it| it.ciphertexts.push(OTHER),
        &|it| it.ciphertexts.clear(),
        &|it| it.delivery[5] ^= 1,
        &|it| it.agreed = wrong_k,
        &|it| (it.agreed, it.proof) = (wrong_k, wrong_proof),
        &|it| it.proof = wrong_proof,
        &|it| it.manifest.run = OTHER,
        &|it| it.manifest.dealer = ServerIndex(3 - it.manifest.dealer.0),
    ];
    for (i, change) in changes.iter().enumerate() {
        let expected = Ok(LogEntryEffect::FalseComplaint { complainant: me });
        assert_eq!(complain(*change, 0), expected, "change {i}");
    }
    // Data that was sent to another server is not evidence.
    let expected = Ok(LogEntryEffect::FalseComplaint { complainant: ServerIndex(2) });
    assert_eq!(complain(&|_| {}, 2), expected);
}

#[test]
fn a_complaint_about_a_wrong_dealing_excludes_the_dealer_once() {
    let (mut world, mut dealings) = dealt();
    let session = session(&world);
    let me = ServerIndex(0);
    let held = world.setting.new.combination().labels_of(me).next().unwrap();
    let run = world.agreement.run().unwrap().id();
    let dealing = &mut dealings[0];
    let mut delivery = (*dealing.delivery).clone();
    delivery.ciphertexts[0][0] ^= 1;
    dealing.delivery = Arc::new(delivery);
    sign(dealing);
    let dealer = dealing.proofs.manifest.dealer;
    let about = (dealing.proofs.manifest.rows[0].0, held);
    let mut complaint = |dealing: &Dealing, about| {
        let generator = &mut world.generator;
        let complaint = new_server::complaint(dealing, about, me, &session, generator).unwrap();
        LogEntry::new(
            me,
            LogEntryBody::Complaint { run, complaint: Box::new(complaint) },
            &identity(100),
        )
    };
    let entry = complaint(&dealings[0], about);
    let right = dealings[1].proofs.manifest.rows[0].0;
    let false_complaint = complaint(&dealings[1], (right, held));
    let mut agreement = world.agreement.clone();
    assert_eq!(agreement.apply(&entry), Ok(LogEntryEffect::DealerExcluded { dealer, by: me }));
    assert_eq!(agreement.apply(&entry), Err(LogEntryRefusal::Repeated));
    // Entries of an excluded dealer are rejected.
    let empty = DealingManifest { rows: vec![], ..dealings[0].proofs.manifest.clone() };
    let proved = LogEntryBody::Proved { manifest: empty, confirmations: vec![] };
    let proved = LogEntry::new(dealer, proved, &identity(1 + dealer.0));
    assert_eq!(agreement.apply(&proved), Err(LogEntryRefusal::Faulty));
    // So are entries of a new server whose complaint was unfounded.
    let expected = Ok(LogEntryEffect::FalseComplaint { complainant: me });
    assert_eq!(agreement.apply(&false_complaint), expected);
    let voting = VotingSecret::random(&mut world.generator).unwrap();
    let voting = Box::new(VotingKey::new(&voting, run, ServerIndex(0)));
    let key = LogEntryBody::SessionKey { run, key: session.public(), voting };
    assert_eq!(
        agreement.apply(&LogEntry::new(me, key, &identity(100))),
        Err(LogEntryRefusal::Faulty)
    );
}

#[test]
fn complaint_before_the_session_key_is_rejected_without_blame() {
    let (mut world, dealings) = dealt();
    let session = session(&world);
    let (me, run) = (ServerIndex(0), world.agreement.run().unwrap().id());
    let held = world.setting.new.combination().labels_of(me).next().unwrap();
    let about = (dealings[0].proofs.manifest.rows[0].0, held);
    let generator = &mut world.generator;
    let complaint = new_server::complaint(&dealings[0], about, me, &session, generator).unwrap();
    let body = LogEntryBody::Complaint { run, complaint: Box::new(complaint) };
    let entry = LogEntry::new(me, body, &identity(100));
    let (mut agreement, _) = first(&world, |body| matches!(body, LogEntryBody::SessionKey { .. }));
    assert_eq!(agreement.apply(&entry), Err(LogEntryRefusal::NoSessionKey));
    assert!(agreement.run().unwrap().faulty().is_empty());
}

#[test]
fn evidence_depends_on_the_dealing_only() {
    // Whether a complaint holds does not depend on the verifier.
    let (mut world, dealings) = dealt();
    let session = session(&world);
    let me = ServerIndex(0);
    let run = world.agreement.run().unwrap();
    let held = world.setting.new.combination().labels_of(me).next().unwrap();
    for (i, mut dealing) in dealings.into_iter().enumerate() {
        if i % 2 == 0 {
            let mut delivery = (*dealing.delivery).clone();
            delivery.ciphertexts[0][7] ^= 0x10;
            dealing.delivery = Arc::new(delivery);
            sign(&mut dealing);
        }
        let about = (dealing.proofs.manifest.rows[0].0, held);
        let generator = &mut world.generator;
        let evidence = new_server::complaint(&dealing, about, me, &session, generator).unwrap();
        let key = session.public();
        let by = complaint::Complainant {
            run: run.id(),
            index: me,
            key: &key,
            new: run.group().combination(),
        };
        let holds = complaint::holds(&evidence, &by, &world.setting.old, &world.setting.parameters);
        assert_eq!(holds, i % 2 == 0);
    }
}
