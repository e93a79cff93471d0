//! The handovers of the transcripts.

use std::ops::RangeInclusive;

use curve25519_dalek::constants::EIGHT_TORSION;
use curve25519_dalek::scalar::Scalar;
use zeroize::Zeroizing;

use super::super::{id, size};
use super::HandoverTranscript;
use super::recorder::{HandoverRecorder, set};
use crate::sharing::SharingPolynomial;
use crate::tests::HandoverDealing;
use crate::tests::HandoverEntry;
use crate::tests::HandoverEntryBody;
use ::handover::HandoverPurpose;
use ::handover::element::PrimeOrderPoint;
use ::handover::proof::{LogarithmProof, of_base};
use ::handover::session_key::{TAG_LEN, seal};

/// Each with the name of its file.
pub(super) fn all() -> Vec<(&'static str, HandoverTranscript)> {
    vec![
        ("key-generation-4", without_faults(None, 1, 1)),
        ("key-generation-7", without_faults(None, 2, 2)),
        ("resharing-4-to-4", without_faults(Some(1), 1, 3)),
        ("resharing-4-to-7", without_faults(Some(1), 2, 4)),
        ("resharing-7-to-4", without_faults(Some(2), 1, 5)),
        ("late-receiver", late_receiver()),
        ("wrong-rows", wrong_rows()),
        ("wrong-complaints", wrong_complaints()),
        ("wrong-dealings", wrong_dealings()),
        ("wrong-proofs-of-dealings", wrong_proofs_of_dealings()),
        ("wrong-dealing-in-a-key-generation", wrong_dealing_in_a_key_generation()),
        ("wrong-proofs-of-receivers", wrong_proofs_of_receivers()),
        ("early-and-repeated-entries", early_and_repeated_entries()),
        ("unreadable-entries", unreadable_entries()),
        ("order-of-the-choice", order_of_the_choice()),
        ("accused-before-the-choice", accused_before_the_choice()),
    ]
}

/// 3f+1.
fn servers(faulty: u8) -> RangeInclusive<u8> {
    1..=3 * faulty + 1
}

fn without_faults(old: Option<u8>, new: u8, seed: u64) -> HandoverTranscript {
    let mut it = HandoverRecorder::new(old, new, seed);
    it.receive(servers(new));
    it.deal(servers(old.unwrap_or(new)));
    it.receive(servers(new));
    it.receive(servers(new));
    assert!(it.log.is_final());
    it.into_transcript()
}

/// Receiver 4 registers after the dealings, so it obtains its rows from others.
fn late_receiver() -> HandoverTranscript {
    let mut it = HandoverRecorder::new(Some(1), 1, 6);
    it.receive(1..=3);
    it.deal([4, 2]);
    it.receive([4]);
    it.receive([1, 2, 3]);
    it.repair(4);
    it.receive([4, 1, 3]);
    assert!(it.log.is_final());
    it.into_transcript()
}

/// A dealing with another ciphertext for a receiver, of a plaintext that the dealer chooses.
fn reseal(it: &HandoverRecorder, dealer: u8, receiver: u8, plaintext: Vec<u8>) -> HandoverDealing {
    let mut dealing = it.dealing(dealer);
    let context = it.terms().context(HandoverPurpose::Encryption, &[id(dealer), id(receiver)]);
    let agreed = it.ephemeral(dealer).agree(&it.log.session_keys()[&id(receiver)]);
    let mut buffer = Zeroizing::new(plaintext);
    buffer.reserve(TAG_LEN);
    dealing.ciphertexts.insert(id(receiver), seal(&agreed, &context, buffer));
    dealing
}

/// Dealers 1 to 3 are accused in time. Dealer 4 is accused after the choice, and stays chosen.
fn wrong_rows() -> HandoverTranscript {
    let mut it = HandoverRecorder::new(Some(2), 1, 7);
    it.receive(1..=4);
    let mut not_authentic = it.dealing(1);
    not_authentic.ciphertexts.get_mut(&id(1)).unwrap()[40] ^= 1;
    it.deal_wrongly(1, not_authentic);
    let row = Scalar::from(5_u8).to_bytes().repeat(2);
    let other_row = reseal(&it, 2, 2, row);
    it.deal_wrongly(2, other_row);
    let no_scalars = reseal(&it, 3, 3, vec![0xff; 64]);
    it.deal_wrongly(3, no_scalars);
    let mut late = it.dealing(4);
    late.ciphertexts.get_mut(&id(4)).unwrap()[0] ^= 1;
    it.deal_wrongly(4, late);
    it.deal(5..=7);
    let accused_late = it.wanted(4);
    // Another complaint about an accused dealer says nothing new.
    let repeated = it.complaint(2, 1);
    it.receive(1..=3);
    it.submit(2, repeated);
    assert_eq!(it.log.chosen(), set([4, 5, 6]));
    for entry in accused_late {
        it.entry(4, &entry);
    }
    it.repair(4);
    it.receive([4, 2, 3]);
    assert!(it.log.is_final());
    assert_eq!(it.log.faulty_dealers(), set(1..=4));
    it.into_transcript()
}

/// Receivers 1 and 2 of seven accuse correct dealers. What they say later does not count.
fn wrong_complaints() -> HandoverTranscript {
    let mut it = HandoverRecorder::new(Some(1), 2, 8);
    it.receive(servers(2));
    it.deal([1, 2]);
    let right_ciphertext = it.complaint(1, 1);
    it.submit(1, right_ciphertext);
    let HandoverEntryBody::Complain { dealer, proof, .. } = it.complaint(2, 2) else {
        unreachable!("a complaint");
    };
    let agreed = PrimeOrderPoint::base(&Scalar::from(5_u8));
    it.submit(2, HandoverEntryBody::Complain { dealer, agreed, proof });
    it.hold(1, [1]);
    it.hold(2, [1, 2]);
    it.submit(3, HandoverEntryBody::Complain { dealer: id(3), agreed, proof });
    it.receive(3..=7);
    it.receive(3..=7);
    assert!(it.log.is_final());
    assert_eq!(it.log.faulty_receivers(), set([1, 2]));
    it.into_transcript()
}

/// The constant term's proof for another polynomial.
pub(crate) fn share_another_secret(
    it: &HandoverRecorder,
    dealer: u8,
    secret: &Scalar,
) -> HandoverDealing {
    let mut dealing = it.dealing(dealer);
    dealing.sharing = SharingPolynomial::new(secret, it.terms().new, &[1; 32]).commitment();
    let context = it.terms().context(HandoverPurpose::Constant, &[id(dealer)]);
    let constant = [of_base(*dealing.sharing.public_key())];
    dealing.constant_proof = LogarithmProof::new(secret, &constant, &context);
    dealing
}

/// Dealer 1 has another degree, dealer 2 another secret, dealer 3 too few receivers.
fn wrong_dealings() -> HandoverTranscript {
    let mut it = HandoverRecorder::new(Some(2), 1, 9);
    it.receive(servers(1));
    let mut degree = it.dealing(1);
    degree.sharing = SharingPolynomial::new(&Scalar::ONE, size(2), &[1; 32]).commitment();
    for ciphertext in degree.ciphertexts.values_mut() {
        ciphertext.resize(32 * 3 + TAG_LEN, 0);
    }
    it.deal_wrongly(1, degree);
    let secret = share_another_secret(&it, 2, &Scalar::from(5_u8));
    it.deal_wrongly(2, secret);
    let mut few = it.dealing(3);
    few.ciphertexts.pop_first();
    few.ciphertexts.pop_last();
    it.deal_wrongly(3, few);
    // The author is faulty, so a right dealing of it changes nothing.
    it.deal([3]);
    it.deal(4..=7);
    it.receive(servers(1));
    it.receive(servers(1));
    assert!(it.log.is_final());
    assert_eq!(it.log.faulty_dealers(), set(1..=3));
    it.into_transcript()
}

/// Dealer 1 does not prove that it knows e, nor dealer 2 its secret. Dealer 3 repeats the E of
/// dealer 4, with its proof.
fn wrong_proofs_of_dealings() -> HandoverTranscript {
    let mut it = HandoverRecorder::new(Some(2), 2, 10);
    it.receive(servers(2));
    let mut wrong = it.dealing(1);
    wrong.ephemeral_proof = wrong.constant_proof;
    it.deal_wrongly(1, wrong);
    let mut wrong = it.dealing(2);
    let context = it.terms().context(HandoverPurpose::EphemeralKey, &[id(2)]);
    wrong.constant_proof = it.ephemeral(2).prove(&context);
    it.deal_wrongly(2, wrong);
    it.deal([4]);
    let other = (*it.log.dealings()[&id(4)]).clone();
    let mut wrong = it.dealing(3);
    (wrong.ephemeral, wrong.ephemeral_proof) = (other.ephemeral, other.ephemeral_proof);
    it.deal_wrongly(3, wrong);
    it.deal(5..=7);
    it.receive(servers(2));
    it.receive(servers(2));
    assert!(it.log.is_final());
    assert_eq!(it.log.faulty_dealers(), set(1..=3));
    it.into_transcript()
}

/// A server that is faulty as a dealer still counts as a receiver.
fn wrong_dealing_in_a_key_generation() -> HandoverTranscript {
    let mut it = HandoverRecorder::new(None, 1, 11);
    it.receive(servers(1));
    it.deal([2]);
    let other = (*it.log.dealings()[&id(2)]).clone();
    let mut copied = it.dealing(1);
    (copied.sharing, copied.constant_proof) = (other.sharing, other.constant_proof);
    it.deal_wrongly(1, copied);
    it.deal([4]);
    it.receive([1, 2, 4]);
    it.receive([1, 3, 4]);
    assert!(it.log.is_final());
    assert_eq!(it.log.faulty_dealers(), set([1]));
    assert!(it.log.faulty_receivers().is_empty());
    it.into_transcript()
}

/// Receivers 1 and 2 of seven have wrong proofs of session keys. In the end receiver 3 confirms
/// with the proof of receiver 4.
fn wrong_proofs_of_receivers() -> HandoverTranscript {
    let mut it = HandoverRecorder::new(Some(1), 2, 12);
    let (key, proof) = (it.session(1).public(), it.session_proof(1, 2));
    it.submit(1, HandoverEntryBody::Key { key, proof });
    let (key, proof) = (it.session(3).public(), it.session_proof(3, 3));
    it.submit(2, HandoverEntryBody::Key { key, proof });
    it.receive(servers(2));
    it.deal(servers(1));
    it.receive(3..=7);
    let confirmation = it.wanted(4).remove(0);
    it.entry(3, &confirmation);
    it.entry(4, &confirmation);
    it.receive(5..=7);
    assert_eq!(it.log.faulty_receivers(), set(1..=3));
    assert!(!it.log.is_final(), "four of five");
    it.into_transcript()
}

/// Entries that come too early, say nothing new, are of strangers or another run, or are late.
fn early_and_repeated_entries() -> HandoverTranscript {
    let mut it = HandoverRecorder::new(Some(1), 1, 13);
    let mut other_run = it.wanted(1).remove(0);
    other_run.run[31] ^= 1;
    it.entry(1, &other_run);
    it.hold(1, [1]);
    it.receive(1..=3);
    let right = it.dealing(1);
    let mut early = right.clone();
    early.ciphertexts.insert(id(4), early.ciphertexts[&id(1)].clone());
    it.deal_wrongly(1, early);
    it.deal_wrongly(5, right.clone());
    it.deal_wrongly(1, right.clone());
    it.deal_wrongly(1, right);
    it.receive([4]);
    let (key, proof) = (it.session(2).public(), it.session_proof(1, 1));
    it.submit(2, HandoverEntryBody::Key { key, proof });
    it.deal([2, 3]);
    it.hold(2, []);
    it.hold(2, [1]);
    it.hold(2, [1]);
    it.hold(2, [1, 4]);
    it.hold(2, [1, 2]);
    it.hold(2, [1, 5]);
    it.hold(5, [1, 2]);
    it.submit(2, HandoverEntryBody::Confirm(proof));
    let late = it.complaint(4, 2);
    it.receive([1, 3]);
    assert_eq!(it.log.chosen(), set([1, 2]));
    it.hold(4, [3]);
    it.repair(4);
    it.receive([4]);
    let confirmation = it.wanted(3).remove(0);
    it.entry(3, &confirmation);
    it.entry(3, &confirmation);
    it.receive([1]);
    assert!(it.log.is_final());
    it.submit(4, late);
    it.hold(2, [3]);
    it.deal_wrongly(4, (*it.log.dealings()[&id(3)]).clone());
    assert!(it.log.faulty_receivers().is_empty() && it.log.faulty_dealers().is_empty());
    it.into_transcript()
}

/// Server 1 sends what is no entry. It could be the network's fault, so nobody is accused.
fn unreadable_entries() -> HandoverTranscript {
    let mut it = HandoverRecorder::new(Some(1), 1, 14);
    let key = it.wanted(1).remove(0).to_bytes();
    let run = it.terms().run;
    let with = |body: &[u8]| [&run[..], body].concat();
    // The point replaced: of small order, neutral, of mixed order, and no point.
    let mixed = *it.session(1).public().point() + EIGHT_TORSION[1];
    let other_one = [&[0xee][..], &[0xff; 30], &[0x7f]].concat();
    let points = [
        EIGHT_TORSION[1].compress().0.to_vec(),
        EIGHT_TORSION[0].compress().0.to_vec(),
        mixed.compress().0.to_vec(),
        other_one,
        [&[2][..], &[0; 31]].concat(),
    ];
    let with_point = |point: &Vec<u8>| [&key[..33], point, &key[65..]].concat();
    let mut unreadable: Vec<_> = points.iter().map(with_point).collect();
    unreadable.extend([
        Vec::new(),
        run[..31].to_vec(),
        with(&[]),
        with(&[0]),
        with(&[6]),
        key[..key.len() - 1].to_vec(),
        [&key[..], &[0]].concat(),
        // A challenge and a response that are not below q.
        [&key[..65], &[0xff; 32], &key[97..]].concat(),
        [&key[..97], &[0xff; 32]].concat(),
        // Server 101.
        with(&[&[3, 0, 0, 0, 16][..], &[0; 12]].concat()),
        with(&[&[4, 0][..], &key[33..]].concat()),
        with(&[&[4, 101][..], &key[33..]].concat()),
        // Commitments of groups that are too small and too large.
        with(&[2, 0]),
        with(&[2, 34]),
    ]);
    for bytes in unreadable {
        assert!(HandoverEntry::from_bytes(&bytes).is_err());
        it.bytes(1, bytes);
    }
    it.receive(servers(1));
    it.deal([1, 3]);
    let mut long = HandoverEntryBody::Deal(Box::new((*it.log.dealings()[&id(1)]).clone()));
    if let HandoverEntryBody::Deal(dealing) = &mut long {
        dealing.ciphertexts.get_mut(&id(4)).unwrap().push(0);
    }
    it.submit(2, long);
    it.receive(servers(1));
    it.receive(servers(1));
    assert!(it.log.is_final() && it.log.faulty_receivers().is_empty());
    it.into_transcript()
}

/// The first dealing that is held is chosen first. One Hold completes three others, of which the
/// lowest is chosen.
fn order_of_the_choice() -> HandoverTranscript {
    let mut it = HandoverRecorder::new(Some(1), 1, 15);
    it.receive(servers(1));
    it.deal([4, 3, 2, 1]);
    it.hold(1, [3]);
    it.hold(2, [1, 2, 3, 4]);
    it.hold(3, [1, 2, 3, 4]);
    it.hold(4, [1, 2, 4]);
    assert_eq!(it.log.chosen(), set([1, 3]));
    it.receive(servers(1));
    assert!(it.log.is_final());
    it.into_transcript()
}

/// Dealer 1 is held by three receivers when receiver 4 accuses it, so it is not chosen.
fn accused_before_the_choice() -> HandoverTranscript {
    let mut it = HandoverRecorder::new(Some(1), 1, 16);
    it.receive(servers(1));
    let mut wrong = it.dealing(1);
    wrong.ciphertexts.get_mut(&id(4)).unwrap()[0] ^= 1;
    it.deal_wrongly(1, wrong);
    it.receive(servers(1));
    it.deal([4, 3, 2]);
    it.hold(1, [4]);
    it.receive(2..=4);
    assert_eq!(it.log.chosen(), set([2, 4]));
    it.receive(servers(1));
    assert!(it.log.is_final());
    it.into_transcript()
}
