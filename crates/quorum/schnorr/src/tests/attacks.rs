//! Attacks: each succeeds without the check that refuses it.

use std::collections::BTreeMap;

use curve25519_dalek::scalar::Scalar;
use sim::SeededRng;

use super::epochs::hand_over;
use super::world::KeyGroup;
use super::{id, size, verifies};
use crate::frost::SigningSession;
use crate::roast::{RoastCoordinator, RoastOutput};
use crate::sharing::{KeyShare, RowRepair, SharingCommitment, SharingPolynomial, lagrange_at_zero};
use crate::signer::{FrostSigner, SignatureAnswer};
use crate::tests::HandoverAgreement;
use crate::tests::HandoverDealer;
use crate::tests::HandoverDealing;
use crate::tests::HandoverEntry;
use crate::tests::HandoverEntryBody;
use crate::tests::HandoverReceiver;
use crate::tests::HandoverTerms;
use ::handover::DealingFault;
use ::handover::HandoverPurpose;
use ::handover::element::PrimeOrderPoint;
use ::handover::participant::{ParticipantId, ParticipantSet};
use ::handover::proof::{LogarithmProof, of_base};
use ::handover::session_key::{SessionScalar, seal};
use ::handover::{HandoverEffect, HandoverFault, HandoverRefusal};

/// A handover of a group of four to another, in which all new servers have registered.
struct Attack {
    old: KeyGroup,
    log: HandoverAgreement,
    receivers: BTreeMap<ParticipantId, HandoverReceiver>,
    seeds: BTreeMap<ParticipantId, [u8; 32]>,
    rng: SeededRng,
}

impl Attack {
    fn new() -> Self {
        let mut rng = SeededRng::new(9);
        let old = hand_over(None, size(1), &mut rng);
        let sharing = Some(old.any().sharing().clone());
        let terms = HandoverTerms { run: rng.bytes(), old: sharing, new: size(1) };
        Self::begin(old, &terms, rng)
    }

    fn begin(old: KeyGroup, terms: &HandoverTerms, mut rng: SeededRng) -> Self {
        let mut log = HandoverAgreement::new(terms.clone());
        let (mut receivers, mut seeds) = (BTreeMap::new(), BTreeMap::new());
        for server in terms.new.participants() {
            let seed = rng.bytes();
            let receiver = HandoverReceiver::new(terms, server, &seed).unwrap();
            for entry in receiver.wanted_entries(&log) {
                assert_eq!(log.apply(server, &entry), Ok(HandoverEffect::Counted));
            }
            seeds.insert(server, seed);
            receivers.insert(server, receiver);
        }
        Self { old, log, receivers, seeds, rng }
    }

    fn entry(&self, body: HandoverEntryBody) -> HandoverEntry {
        HandoverEntry { run: self.log.terms().run, body }
    }

    /// A right dealing of an old server.
    fn dealing(&mut self, dealer: ParticipantId) -> HandoverDealing {
        let terms = self.log.terms();
        let share = terms.old.as_ref().map(|_| &self.old.shares[&dealer]);
        let dealer = HandoverDealer::new(terms, dealer, share, &self.rng.bytes()).unwrap();
        match dealer.wanted_entry(&self.log).unwrap().body {
            HandoverEntryBody::Deal(dealing) => *dealing,
            _ => unreachable!("a dealer deals"),
        }
    }

    fn apply(
        &mut self,
        author: ParticipantId,
        body: HandoverEntryBody,
    ) -> Result<HandoverEffect, HandoverRefusal> {
        let entry = self.entry(body);
        self.log.apply(author, &HandoverEntry::from_bytes(&entry.to_bytes()).unwrap())
    }

    fn deal(
        &mut self,
        author: ParticipantId,
        dealing: &HandoverDealing,
    ) -> Result<HandoverEffect, HandoverRefusal> {
        self.apply(author, HandoverEntryBody::Deal(Box::new(dealing.clone())))
    }

    /// The old servers that have shares.
    fn dealers(&self) -> Vec<ParticipantId> {
        self.old.shares.keys().copied().collect()
    }
}

fn dealing_fault(why: DealingFault) -> HandoverEffect {
    HandoverEffect::AuthorFaulty { why: HandoverFault::Dealing(why) }
}

fn set(servers: &[ParticipantId]) -> ParticipantSet {
    servers.iter().copied().collect()
}

/// If a dealer could share another number than its share, the new group would have another key.
#[test]
fn a_dealer_of_another_secret_would_change_the_key() {
    let mut attack = Attack::new();
    let dealers = attack.dealers();
    let right = attack.dealing(dealers[0]);
    let mut wrong = attack.dealing(dealers[1]);
    let polynomial = SharingPolynomial::new(&Scalar::from(5_u8), size(1), &[1; 32]);
    wrong.sharing = polynomial.commitment();
    let constant = [of_base(*wrong.sharing.public_key())];
    let context = attack.log.terms().context(HandoverPurpose::Constant, &[dealers[1]]);
    wrong.constant_proof = LogarithmProof::new(&Scalar::from(5_u8), &constant, &context);

    let weights = crate::handover::weights(attack.log.terms(), set(&dealers[..2]));
    let parts = [(weights[0].1, &right.sharing), (weights[1].1, &wrong.sharing)];
    let sum = SharingCommitment::combine(size(1), &parts);
    assert_ne!(sum.public_key(), attack.old.any().sharing().public_key(), "the attack");

    assert_eq!(attack.deal(dealers[1], &wrong), Ok(dealing_fault(DealingFault::Secret)));
    assert!(attack.log.faulty_dealers().contains(dealers[1]));
}

/// With a sharing of a higher degree, f'+1 servers could not sign.
#[test]
fn a_dealer_of_another_degree_is_faulty() {
    let mut attack = Attack::new();
    let dealer = attack.dealers()[0];
    let secret = *attack.old.shares[&dealer].secret();
    let polynomial = SharingPolynomial::new(&secret, size(2), &[1; 32]);
    let mut points = [id(1), id(2)].map(|it| (it, *polynomial.row(it).share())).to_vec();
    let two: Scalar =
        points.iter().map(|(it, share)| lagrange_at_zero(*it, [id(1), id(2)]) * share).sum();
    assert_ne!(two, secret, "the attack: two servers have another secret");
    points.push((id(3), *polynomial.row(id(3)).share()));
    let three =
        points.iter().map(|(it, share)| lagrange_at_zero(*it, [id(1), id(2), id(3)]) * share);
    assert_eq!(three.sum::<Scalar>(), secret);

    let mut wrong = attack.dealing(dealer);
    wrong.sharing = polynomial.commitment();
    for ciphertext in wrong.ciphertexts.values_mut() {
        ciphertext.resize(32 * 3 + 16, 0);
    }
    assert_eq!(attack.deal(dealer, &wrong), Ok(dealing_fault(DealingFault::Degree)));
}

/// In a key generation, the last dealer could cancel the dealings of the others.
#[test]
fn a_dealer_that_subtracts_other_dealings_would_know_the_key() {
    let mut attack = Attack::new();
    let terms = HandoverTerms { run: [3; 32], old: None, new: size(1) };
    let rng = SeededRng::new(4);
    attack = Attack::begin(attack.old, &terms, rng);
    let honest = attack.dealing(id(1));
    let own = SharingPolynomial::new(&Scalar::from(5_u8), size(1), &[1; 32]).commitment();
    let minus_1 = Scalar::ZERO - Scalar::ONE;
    let rogue =
        SharingCommitment::combine(size(1), &[(minus_1, &honest.sharing), (Scalar::ONE, &own)]);
    let parts = [(Scalar::ONE, &honest.sharing), (Scalar::ONE, &rogue)];
    let sum = SharingCommitment::combine(size(1), &parts);
    let known = PrimeOrderPoint::base(&Scalar::from(5_u8));
    assert_eq!(*sum.public_key(), known, "the attack: the dealer knows the key");

    let mut wrong = attack.dealing(id(2));
    wrong.sharing = rogue;
    assert_eq!(attack.deal(id(2), &wrong), Ok(dealing_fault(DealingFault::Knowledge)));
    // Nor may it take the other's commitment with the other's proof.
    let mut copied = attack.dealing(id(3));
    (copied.sharing, copied.constant_proof) = (honest.sharing, honest.constant_proof);
    assert_eq!(attack.deal(id(3), &copied), Ok(dealing_fault(DealingFault::Knowledge)));
}

/// A faulty dealer repeats the ephemeral key of a correct one, with a wrong ciphertext. The
/// complaint about it would publish the key of the correct dealer's ciphertext.
#[test]
fn a_copied_ephemeral_key_would_make_complaints_reveal_rows() {
    let mut attack = Attack::new();
    let dealers = attack.dealers();
    let honest = attack.dealing(dealers[0]);
    assert_eq!(attack.deal(dealers[0], &honest), Ok(HandoverEffect::Counted));
    let mut wrong = attack.dealing(dealers[1]);
    (wrong.ephemeral, wrong.ephemeral_proof) = (honest.ephemeral, honest.ephemeral_proof);

    let victim = id(2);
    let session = SessionScalar::new(&attack.seeds[&victim], b"receiver");
    let published = session.agree(&wrong.ephemeral);
    let row = honest.open_row(attack.log.terms(), dealers[0], victim, &published);
    assert!(row.is_some(), "the attack: anyone decrypts the correct dealer's row");

    assert_eq!(attack.deal(dealers[1], &wrong), Ok(dealing_fault(DealingFault::Knowledge)));
}

/// Without complaints a wrong ciphertext would leave a server without a share, unnoticed.
#[test]
fn a_wrong_ciphertext_proves_its_dealer_faulty_and_only_it() {
    let mut attack = Attack::new();
    let dealers = attack.dealers();
    let right = attack.dealing(dealers[0]);
    let mut wrong = attack.dealing(dealers[1]);
    let terms = attack.log.terms().clone();
    // Authentic, but the row of another server.
    let ephemeral = SessionScalar::new(&[6; 32], b"dealer");
    let context = terms.context(HandoverPurpose::EphemeralKey, &[dealers[1]]);
    (wrong.ephemeral, wrong.ephemeral_proof) = (ephemeral.public(), ephemeral.prove(&context));
    let polynomial = SharingPolynomial::new(&Scalar::from(5_u8), size(1), &[1; 32]);
    for (&receiver, ciphertext) in &mut wrong.ciphertexts {
        let key = SessionScalar::new(&attack.seeds[&receiver], b"receiver").public();
        let context = terms.context(HandoverPurpose::Encryption, &[dealers[1], receiver]);
        let row = polynomial.row(receiver).to_bytes(16);
        *ciphertext = seal(&ephemeral.agree(&key), &context, row);
    }
    assert_eq!(attack.deal(dealers[0], &right), Ok(HandoverEffect::Counted));
    assert_eq!(attack.deal(dealers[1], &wrong), Ok(HandoverEffect::Counted), "it looks right");

    let receiver = attack.receivers.get_mut(&id(2)).unwrap();
    receiver.handle_log(&attack.log);
    let entries = receiver.wanted_entries(&attack.log);
    let dealer = dealers[1];
    assert_eq!(attack.log.apply(id(2), &entries[0]), Ok(HandoverEffect::DealerFaulty { dealer }));
    assert_eq!(attack.log.faulty_dealers(), set(&[dealer]));

    // A complaint with the right key about a right ciphertext, and one with a wrong key.
    let session = SessionScalar::new(&attack.seeds[&id(3)], b"receiver");
    let agreed = session.agree(&right.ephemeral);
    let context = terms.context(HandoverPurpose::Complaint, &[dealers[0], id(3)]);
    let proof = session.prove_agreed(&right.ephemeral, &agreed, &context);
    let unfounded = Ok(HandoverEffect::AuthorFaulty { why: HandoverFault::Complaint });
    let complaint =
        |agreed, proof| HandoverEntryBody::Complain { dealer: dealers[0], agreed, proof };
    assert_eq!(attack.apply(id(3), complaint(*agreed, proof)), unfounded);
    let wrong_key = PrimeOrderPoint::base(&Scalar::from(5_u8));
    let row = right.open_row(&terms, dealers[0], id(4), &wrong_key);
    assert!(row.is_none(), "the attack: with a wrong key the right ciphertext looks wrong");
    assert_eq!(attack.apply(id(4), complaint(wrong_key, proof)), unfounded);
    assert!(!attack.log.faulty_dealers().contains(dealers[0]));
    assert_eq!(attack.log.faulty_receivers(), set(&[id(3), id(4)]));
}

/// If 2f' servers could choose a dealing, f' of them faulty, too few correct ones would have rows.
#[test]
fn a_dealing_that_too_few_hold_could_not_be_repaired() {
    let mut attack = Attack::new();
    let dealers = attack.dealers();
    let dealing = attack.dealing(dealers[0]);
    let polynomial_of = dealing.sharing.clone();
    assert_eq!(attack.deal(dealers[0], &dealing), Ok(HandoverEffect::Counted));
    let mut few = attack.dealing(dealers[1]);
    few.ciphertexts.pop_first();
    few.ciphertexts.pop_first();
    assert_eq!(attack.deal(dealers[1], &few), Ok(dealing_fault(DealingFault::Receivers)));

    // Servers 1 and 2 say that they have rows. Server 1 is faulty and will not help.
    for server in [id(1), id(2)] {
        let hold = HandoverEntryBody::Hold(set(&dealers[..1]));
        assert_eq!(attack.apply(server, hold), Ok(HandoverEffect::Counted));
    }
    let helper = attack.receivers.get_mut(&id(2)).unwrap();
    helper.handle_log(&attack.log);
    let value = helper.common_value(dealers[0], id(3)).unwrap();
    let mut repair = RowRepair::new(id(3));
    let repaired = repair.handle_value(&polynomial_of, id(2), &value);
    assert!(repaired.is_none(), "the attack: one value is not enough");
    assert!(repair.handle_value(&polynomial_of, id(2), &value).is_none(), "nor the same again");
    assert!(attack.log.chosen().is_empty());
    let hold = HandoverEntryBody::Hold(set(&dealers[..1]));
    assert_eq!(attack.apply(id(4), hold), Ok(HandoverEffect::Counted));
    assert_eq!(attack.log.chosen(), set(&dealers[..1]), "three of four are enough");
}

/// A new server that confirmed without a share would let the old group wipe the last shares.
#[test]
fn a_server_confirms_only_with_its_share() {
    let mut attack = Attack::new();
    for dealer in attack.dealers() {
        let dealing = attack.dealing(dealer);
        assert_eq!(attack.deal(dealer, &dealing), Ok(HandoverEffect::Counted));
    }
    for server in [id(1), id(2), id(3)] {
        let held = HandoverEntryBody::Hold(attack.dealers().into_iter().collect());
        attack.apply(server, held).unwrap();
    }
    let receiver = attack.receivers.get_mut(&id(2)).unwrap();
    receiver.handle_log(&attack.log);
    let confirmation = receiver.wanted_entries(&attack.log).pop().unwrap();
    let HandoverEntryBody::Confirm(proof) = confirmation.body else { panic!("it has its share") };
    let wrong = Ok(HandoverEffect::AuthorFaulty { why: HandoverFault::Knowledge });
    assert_eq!(attack.apply(id(1), HandoverEntryBody::Confirm(proof)), wrong, "another's proof");
    assert_eq!(attack.log.apply(id(2), &confirmation), Ok(HandoverEffect::Counted));
    let repeated = attack.log.apply(id(2), &confirmation);
    assert_eq!(repeated, Err(HandoverRefusal::Repeated), "one server counts once");
    assert!(!attack.log.is_final());
}

#[test]
fn entries_of_other_handovers_and_of_strangers_are_refused() {
    let mut attack = Attack::new();
    let dealer = attack.dealers()[0];
    let dealing = attack.dealing(dealer);
    let mut entry = attack.entry(HandoverEntryBody::Deal(Box::new(dealing)));
    assert_eq!(attack.log.apply(id(5), &entry), Err(HandoverRefusal::Author));
    entry.run[0] ^= 1;
    assert_eq!(attack.log.apply(dealer, &entry), Err(HandoverRefusal::OtherRun));
    entry.run[0] ^= 1;
    assert_eq!(attack.log.apply(dealer, &entry), Ok(HandoverEffect::Counted));
    assert_eq!(
        attack.log.apply(dealer, &entry),
        Err(HandoverRefusal::Repeated),
        "no second dealing"
    );
    let bytes = entry.to_bytes();
    for len in 0..bytes.len() {
        assert!(HandoverEntry::from_bytes(&bytes[..len]).is_err());
    }
    assert!(HandoverEntry::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
}

/// An accused dealer's dealing may be wrong for servers that claim nothing.
#[test]
fn a_dealer_that_is_proven_faulty_before_the_choice_is_not_chosen() {
    for is_held_first in [false, true] {
        let mut attack = Attack::new();
        let dealers = attack.dealers();
        let mut wrong = attack.dealing(dealers[0]);
        wrong.ciphertexts.get_mut(&id(4)).unwrap()[0] ^= 1;
        assert_eq!(attack.deal(dealers[0], &wrong), Ok(HandoverEffect::Counted));
        let receiver = attack.receivers.get_mut(&id(4)).unwrap();
        receiver.handle_log(&attack.log);
        let complaint = receiver.wanted_entries(&attack.log).remove(0);
        let held = |attack: &mut Attack, dealers: &[ParticipantId]| {
            for server in [id(1), id(2), id(3)] {
                let hold = HandoverEntryBody::Hold(set(dealers));
                attack.apply(server, hold).unwrap();
            }
        };
        if is_held_first {
            held(&mut attack, &dealers[..1]);
            assert_eq!(attack.log.chosen(), set(&dealers[..1]));
        }
        let dealer = dealers[0];
        let accused = attack.log.apply(id(4), &complaint);
        assert_eq!(accused, Ok(HandoverEffect::DealerFaulty { dealer }));
        if !is_held_first {
            held(&mut attack, &dealers[..1]);
        }
        assert!(attack.log.chosen().is_empty());
        for &other in &dealers[1..] {
            let dealing = attack.dealing(other);
            assert_eq!(attack.deal(other, &dealing), Ok(HandoverEffect::Counted));
        }
        held(&mut attack, &dealers[1..]);
        assert_eq!(attack.log.chosen(), set(&dealers[1..3]));
        assert!(attack.log.sharing().is_some());
    }
}

/// A faulty server could register another's session key, or one derived from it.
#[test]
fn a_server_registers_only_a_session_key_whose_secret_it_knows() {
    let mut attack = Attack::new();
    let terms = attack.log.terms().clone();
    attack.log = HandoverAgreement::new(terms.clone());
    let session = SessionScalar::new(&attack.seeds[&id(1)], b"receiver");
    let key = session.public();
    let proof = session.prove(&terms.context(HandoverPurpose::SessionKey, &[id(1)]));
    let register = HandoverEntryBody::Key { key, proof };
    let wrong = Ok(HandoverEffect::AuthorFaulty { why: HandoverFault::Knowledge });
    assert_eq!(attack.apply(id(2), register.clone()), wrong, "another's key with its proof");
    assert_eq!(attack.apply(id(1), register.clone()), Ok(HandoverEffect::Counted));
    assert_eq!(attack.apply(id(1), register), Err(HandoverRefusal::Repeated));
    assert_eq!(attack.log.faulty_receivers(), set(&[id(2)]));
}

/// A faulty helper could make a server compute a wrong row.
#[test]
fn a_wrong_common_value_is_not_used() {
    let mut rng = SeededRng::new(5);
    let group = hand_over(None, size(1), &mut rng);
    let sharing = group.any().sharing();
    let lacking = size(1).participants().find(|it| !group.shares.contains_key(it)).unwrap();
    let helpers: Vec<_> = group.shares.values().collect();
    let [first, second, third] = helpers[..] else { panic!("three of four have shares") };
    let (first_value, second_value) = (first.common_value(lacking), second.common_value(lacking));
    let mut repair = RowRepair::new(lacking);
    assert!(repair.handle_value(sharing, first.server(), &first_value).is_none());
    // Another's value, one for another server, a repeated one, and no scalar.
    let for_another = second.common_value(third.server());
    for (from, value) in [
        (second.server(), &first_value),
        (second.server(), &for_another),
        (first.server(), &first_value),
        (second.server(), &[0xff; 32].into()),
    ] {
        assert!(repair.handle_value(sharing, from, value).is_none());
    }
    let row = repair.handle_value(sharing, second.server(), &second_value).unwrap();
    assert!(KeyShare::new(lacking, row, sharing.clone()).is_some());
}

fn signers(rng: &mut SeededRng) -> (SharingCommitment, Vec<FrostSigner>) {
    let group = hand_over(None, size(1), rng);
    let sharing = group.any().sharing().clone();
    (sharing, group.shares.into_values().map(FrostSigner::new).collect())
}

/// Without the digest in an answer, a coordinator could show the share of one session with another
/// session, and accuse a correct signer.
#[test]
fn an_answer_is_evidence_about_its_session_only() {
    let mut rng = SeededRng::new(2);
    let (sharing, mut signers) = signers(&mut rng);
    let coordinator = id(1);
    let commitments: BTreeMap<_, _> = signers[..2]
        .iter_mut()
        .map(|it| (it.share().server(), it.commit(coordinator, &rng.bytes())))
        .collect();
    let session = SigningSession::new(b"one".to_vec(), commitments.clone());
    let other = SigningSession::new(b"two".to_vec(), commitments);
    let answer = signers[0].sign(coordinator, &session.encoded(), &rng.bytes()).unwrap();
    let signer = signers[0].share().server();
    let values = other.values(sharing.public_key());
    let fits = other.verify_share(&values, &sharing, signer, answer.share);
    assert!(!fits, "the attack: the share is wrong in the other session");
    assert!(!answer.is_evidence(&sharing, &session, signer));
    assert!(!answer.is_evidence(&sharing, &other, signer));
    assert!(!answer.is_evidence(&sharing, &session, id(4)), "nor about another server");
}

/// Signers that answer wrongly, or refuse with new nonces, could spoil sessions for ever.
#[test]
fn a_signer_spoils_one_session_by_a_wrong_answer_and_two_by_refusals() {
    for refuses in [false, true] {
        let mut rng = SeededRng::new(2);
        let (sharing, mut signers) = signers(&mut rng);
        let bad = signers[0].share().server();
        let coordinator = id(1);
        let mut request = RoastCoordinator::new(sharing.clone(), b"m".to_vec(), BTreeMap::new());
        let (mut asked_bad, mut signature) = (0, None);
        while let Some(output) = request.poll_output() {
            let of = |signers: &[FrostSigner], to| {
                signers.iter().position(|it| it.share().server() == to)
            };
            match output {
                RoastOutput::AskCommitments { to } => {
                    let Some(place) = of(&signers, to) else { continue };
                    let commitments = signers[place].commit(coordinator, &rng.bytes());
                    request.handle_commitments(to, commitments);
                }
                RoastOutput::AskShare { to, session } => {
                    let session = SigningSession::from_bytes(&session).unwrap();
                    let place = of(&signers, to).unwrap();
                    let mut answer =
                        signers[place].sign(coordinator, &session.encoded(), &rng.bytes()).unwrap();
                    if to == bad {
                        asked_bad += 1;
                        if refuses {
                            request.handle_refusal(to, Some(answer.next));
                            continue;
                        }
                        // A scalar, but not the share.
                        let mut bytes = answer.to_bytes();
                        bytes[32..64].copy_from_slice(Scalar::from(3_u8).as_bytes());
                        answer = SignatureAnswer::from_bytes(&bytes).unwrap();
                        assert!(answer.is_evidence(&sharing, &session, bad));
                    }
                    request.handle_answer(to, &answer.to_bytes());
                }
                RoastOutput::Faulty { signer, .. } => assert_eq!(signer, bad),
                RoastOutput::Signed(it) => signature = Some(it),
            }
        }
        assert!(verifies(&sharing, b"m", &signature.unwrap()));
        assert_eq!(asked_bad, if refuses { 2 } else { 1 });
        assert_eq!(request.faulty().contains(bad), !refuses);
    }
}
