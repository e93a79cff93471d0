//! Attacks: each succeeds without the check that refuses it.

use std::collections::BTreeMap;

use handover::entry::HandoverEntryBody;
use handover::participant::{ParticipantId, ParticipantSet};
use handover::scheme::{DealingFault, HandoverPurpose, HandoverScheme as _};
use handover::session_key::{SessionScalar, TAG_LEN, seal};
use handover::{HandoverEffect, HandoverFault, HandoverRefusal};
use num_bigint::BigInt;
use rsa_arithmetic::SecretInteger;
use rsa_arithmetic::fixture::tiny_key;
use sim::SeededRng;

use super::bounds::encode_row;
use super::epochs::{first_group, hand_over};
use super::{RsaGroup, id, integer, reconstruct, size};
use crate::lagrange::{from_bytes, to_bytes, weights};
use crate::proof::ExponentProof;
use crate::scheme::{DealtIntegers, IntegerDealing, NoConstantProof, ThresholdRsaScheme};
use crate::sharing::{IntegerCommitment, IntegerRowRepair, ThresholdRsaSharing};

type HandoverAgreement = handover::HandoverAgreement<ThresholdRsaScheme>;
type HandoverDealing = handover::HandoverDealing<ThresholdRsaScheme>;
type HandoverEntry = handover::HandoverEntry<ThresholdRsaScheme>;
type HandoverReceiver = handover::HandoverReceiver<ThresholdRsaScheme>;
type HandoverTerms = handover::HandoverTerms<ThresholdRsaScheme>;

/// A handover of a group of four to another, in which all new servers have registered.
pub(super) struct Attack {
    pub(super) old: RsaGroup,
    pub(super) log: HandoverAgreement,
    pub(super) receivers: BTreeMap<ParticipantId, HandoverReceiver>,
    seeds: BTreeMap<ParticipantId, [u8; 32]>,
    ephemeral: SessionScalar,
    rng: SeededRng,
}

impl Attack {
    pub(super) fn new() -> Self {
        let mut rng = SeededRng::new(9);
        let old = first_group(&tiny_key(), 1, 2);
        let sharing = Some(old.sharing().clone());
        let terms = HandoverTerms { run: rng.bytes(), old: sharing, new: size(1) };
        let mut log = HandoverAgreement::new(terms.clone());
        let (mut receivers, mut seeds) = (BTreeMap::new(), BTreeMap::new());
        for server in terms.new.participants() {
            let seed = rng.bytes();
            let receiver = HandoverReceiver::new(&terms, server, &seed).unwrap();
            for entry in receiver.wanted_entries(&log) {
                assert_eq!(log.apply(server, &entry), Ok(HandoverEffect::Counted));
            }
            seeds.insert(server, seed);
            receivers.insert(server, receiver);
        }
        let ephemeral = SessionScalar::new(&[5; 32], b"dealer");
        Self { old, log, receivers, seeds, ephemeral, rng }
    }

    pub(super) fn sharing(&self) -> &ThresholdRsaSharing {
        self.old.sharing()
    }

    /// The polynomial of a correct dealer.
    pub(super) fn polynomial(&mut self, dealer: u8) -> IntegerDealing {
        let share = Some(&self.old.shares[&id(dealer)]);
        let seed = self.rng.bytes();
        ThresholdRsaScheme::polynomial(self.log.terms(), id(dealer), share, &seed).unwrap()
    }

    /// A dealing of this polynomial.
    fn dealing(&self, dealer: u8, polynomial: &IntegerDealing) -> HandoverDealing {
        self.dealing_to(dealer, polynomial, self.log.terms().new.participants())
    }

    /// A dealing of this polynomial to some of the receivers.
    pub(super) fn dealing_to(
        &self,
        dealer: u8,
        polynomial: &IntegerDealing,
        receivers: impl Iterator<Item = ParticipantId>,
    ) -> HandoverDealing {
        let terms = self.log.terms();
        let ciphertexts = receivers.map(|receiver| {
            let key = self.log.session_keys()[&receiver];
            let context = terms.context(HandoverPurpose::Encryption, &[id(dealer), receiver]);
            let row = encode_row(self.sharing().key(), polynomial, receiver);
            (receiver, seal(&self.ephemeral.agree(&key), &context, row))
        });
        let context = terms.context(HandoverPurpose::EphemeralKey, &[id(dealer)]);
        HandoverDealing {
            constant_proof: NoConstantProof,
            sharing: ThresholdRsaScheme::commitment(terms, id(dealer), polynomial),
            ephemeral: self.ephemeral.public(),
            ephemeral_proof: self.ephemeral.prove(&context),
            ciphertexts: ciphertexts.collect(),
        }
    }

    pub(super) fn right_dealing(&mut self, dealer: u8) -> HandoverDealing {
        let polynomial = self.polynomial(dealer);
        self.dealing(dealer, &polynomial)
    }

    pub(super) fn apply(
        &mut self,
        author: u8,
        body: HandoverEntryBody<ThresholdRsaScheme>,
    ) -> Result<HandoverEffect, HandoverRefusal> {
        let entry = HandoverEntry { run: self.log.terms().run, body };
        let bytes = entry.to_bytes();
        self.log.apply(id(author), &HandoverEntry::from_bytes(&bytes).unwrap())
    }

    pub(super) fn deal(
        &mut self,
        dealer: u8,
        dealing: &HandoverDealing,
    ) -> Result<HandoverEffect, HandoverRefusal> {
        self.apply(dealer, HandoverEntryBody::Deal(Box::new(dealing.clone())))
    }

    /// The entries that a receiver wants after it has read the log.
    pub(super) fn wanted(&mut self, receiver: u8) -> Vec<HandoverEntry> {
        let receiver = self.receivers.get_mut(&id(receiver)).unwrap();
        receiver.handle_log(&self.log);
        receiver.wanted_entries(&self.log)
    }

    /// The shares that follow from these two dealings, in which all rows are right for their
    /// receivers.
    fn combine(&self, dealers: [(u8, &IntegerDealing); 2]) -> BigInt {
        let key = self.sharing().key();
        let scale = BigInt::from(key.scale().clone());
        let weights = weights(key.scale(), &dealers.map(|(dealer, _)| id(dealer)));
        // L times the new constant.
        let parts = dealers.iter().zip(&weights).map(|((_, dealing), weight)| {
            let bits = key.correction_bits(self.old.size());
            let correction = from_bytes(bits, &dealing.correction).unwrap();
            let constant = &dealing.polynomial.coefficients[0];
            let constant = BigInt::from_signed_bytes_be(&constant.to_be_bytes());
            weight * (constant * &scale - correction)
        });
        parts.sum()
    }
}

fn dealing_fault(why: DealingFault) -> HandoverEffect {
    HandoverEffect::AuthorFaulty { why: HandoverFault::Dealing(why) }
}

pub(super) fn set(servers: &[u8]) -> ParticipantSet {
    servers.iter().map(|number| id(*number)).collect()
}

/// If a dealer could share another number than its share, the new group would have another key.
#[test]
fn a_dealer_of_another_secret_would_change_the_key() {
    let mut attack = Attack::new();
    let (right, mut wrong) = (attack.polynomial(1), attack.polynomial(2));
    let secret = reconstruct(attack.old.shares.values());
    assert_eq!(attack.combine([(1, &right), (2, &wrong)]), secret, "L M d without the attack");

    let bits = attack.sharing().key().correction_bits(size(1));
    let correction = from_bytes(bits, &wrong.correction).unwrap() + 1;
    wrong.correction = to_bytes(bits, &correction).unwrap();
    assert_ne!(attack.combine([(1, &right), (2, &wrong)]), secret, "the attack");
    let dealing = attack.dealing(2, &wrong);
    assert_eq!(attack.deal(2, &dealing), Ok(dealing_fault(DealingFault::Secret)));

    let mut wrong = attack.polynomial(3);
    wrong.polynomial.coefficients[0].add(&SecretInteger::from_unsigned(8, &[1]));
    assert_ne!(attack.combine([(1, &right), (3, &wrong)]), secret, "the attack");
    let dealing = attack.dealing(3, &wrong);
    assert_eq!(attack.deal(3, &dealing), Ok(dealing_fault(DealingFault::Secret)));
    assert_eq!(attack.log.faulty_dealers(), set(&[2, 3]));
}

/// With a polynomial of a higher degree, f'+1 servers could not sign.
#[test]
fn a_dealer_of_another_degree_is_faulty() {
    let mut attack = Attack::new();
    let mut terms = attack.log.terms().clone();
    terms.new = size(2);
    let share = Some(&attack.old.shares[&id(1)]);
    let polynomial = ThresholdRsaScheme::polynomial(&terms, id(1), share, &[1; 32]).unwrap();
    let key = attack.sharing().key().clone();
    let at = |server: u8| {
        let row = polynomial.polynomial.row(id(server), key.dealt_row_bits(size(2)));
        BigInt::from_signed_bytes_be(&row.share().to_be_bytes())
    };
    let constant = |servers: &[u8]| -> BigInt {
        let ids: Vec<_> = servers.iter().map(|it| id(*it)).collect();
        weights(key.scale(), &ids).into_iter().zip(servers).map(|(it, j)| it * at(*j)).sum()
    };
    assert_ne!(constant(&[1, 2]), constant(&[2, 3]), "the attack: pairs have different secrets");
    assert_eq!(constant(&[1, 2, 3]), constant(&[2, 3, 4]));

    let mut dealing = attack.right_dealing(1);
    dealing.sharing = ThresholdRsaScheme::commitment(&terms, id(1), &polynomial);
    let len = usize::from(dealing.sharing.row_len) + TAG_LEN;
    for ciphertext in dealing.ciphertexts.values_mut() {
        ciphertext.resize(len, 0);
    }
    assert_eq!(attack.deal(1, &dealing), Ok(dealing_fault(DealingFault::Degree)));
}

/// Without bounds, a faulty dealer could make the shares of all epochs long.
#[test]
fn integers_out_of_their_range_are_refused() {
    let attack = Attack::new();
    let right = attack.sharing().key().clone();
    let faults = |change: &dyn Fn(&mut DealtIntegers)| {
        let mut attack = Attack::new();
        let mut dealing = attack.right_dealing(1);
        change(&mut dealing.sharing);
        let len = usize::from(dealing.sharing.row_len) + TAG_LEN;
        for ciphertext in dealing.ciphertexts.values_mut() {
            ciphertext.resize(len, 0);
        }
        attack.deal(1, &dealing)
    };
    let range = Ok(dealing_fault(DealingFault::Range));
    let modulus = right.group().modulus();
    assert_eq!(faults(&|it| it.correction.insert(0, 0)), range);
    assert_eq!(faults(&|it| it.correction.clear()), range);
    assert_eq!(faults(&|it| it.row_len += 1), range);
    assert_eq!(faults(&|it| it.elements.truncate(modulus.byte_len())), range);
    assert_eq!(faults(&|it| it.elements[..32].fill(0xff)), range, "not below N");
    assert_eq!(faults(&|it| it.elements[..32].fill(0)), range, "zero");

    // A row that fits, but is too long: a coefficient has a multiple of the order of squares more.
    let mut attack = Attack::new();
    let mut polynomial = attack.polynomial(1);
    let honest = attack.dealing(1, &polynomial);
    let held = right.held_row_bits(size(1));
    for coefficient in &mut polynomial.polynomial.coefficients[1..] {
        let mut long = SecretInteger::zero(held + 400);
        long.add(coefficient);
        let power = [&[1][..], &vec![0; held as usize / 8 + 1]].concat();
        long.add(&SecretInteger::from_unsigned(held + 24, &power));
        *coefficient = long;
    }
    let commitment = IntegerCommitment::new(size(1), polynomial.polynomial.commit(&right));
    let row = polynomial.polynomial.row(id(2), held + 420);
    assert!(commitment.fits_row(&right, id(2), &row), "the attack: it fits");
    let dealt = DealtIntegers { elements: commitment.to_bytes(), ..honest.sharing.clone() };
    let bytes = row.to_bytes(0);
    let terms = attack.log.terms();
    assert!(ThresholdRsaScheme::decode_dealt_row(terms, &dealt, id(2), &bytes).is_none());
}

/// Without complaints a wrong ciphertext would leave a server without a share, unnoticed.
#[test]
fn a_wrong_ciphertext_proves_its_dealer_faulty_and_only_it() {
    let mut attack = Attack::new();
    let right = attack.right_dealing(1);
    let (one, another) = (attack.polynomial(2), attack.polynomial(2));
    let mut wrong = attack.dealing(2, &one);
    wrong.ciphertexts = attack.dealing(2, &another).ciphertexts;
    assert_eq!(attack.deal(1, &right), Ok(HandoverEffect::Counted));
    assert_eq!(attack.deal(2, &wrong), Ok(HandoverEffect::Counted), "it looks right");
    let complaint = attack.wanted(2).remove(0);
    let dealer = id(2);
    assert_eq!(attack.log.apply(id(2), &complaint), Ok(HandoverEffect::DealerFaulty { dealer }));
    assert_eq!(attack.log.faulty_dealers(), set(&[2]));

    // A complaint with the right key about a right ciphertext.
    let session = SessionScalar::new(&attack.seeds[&id(3)], b"receiver");
    let agreed = session.agree(&right.ephemeral);
    let context = attack.log.terms().context(HandoverPurpose::Complaint, &[id(1), id(3)]);
    let proof = session.prove_agreed(&right.ephemeral, &agreed, &context);
    let body = HandoverEntryBody::Complain { dealer: id(1), agreed: *agreed, proof };
    let unfounded = Ok(HandoverEffect::AuthorFaulty { why: HandoverFault::Complaint });
    assert_eq!(attack.apply(3, body), unfounded);
    assert_eq!(attack.log.faulty_dealers(), set(&[2]));
    assert_eq!(attack.log.faulty_receivers(), set(&[3]));
}

/// A dealer that takes over the commitment of another, or its negative, would cancel the random
/// numbers of correct dealers, and the corrections would reveal the key. It has no rows for it.
#[test]
fn a_repeated_commitment_is_not_held() {
    let mut attack = Attack::new();
    let honest = attack.right_dealing(1);
    let mut copied = attack.right_dealing(2);
    // The check of the constant: the copier cannot know the difference of the two shares. Give it.
    let bits = attack.sharing().key().correction_bits(size(1));
    let difference = integer(&attack.old.shares[&id(1)]) - integer(&attack.old.shares[&id(2)]);
    let correction = from_bytes(bits, &honest.sharing.correction).unwrap() + difference;
    copied.sharing = honest.sharing.clone();
    assert_eq!(attack.deal(2, &copied), Ok(dealing_fault(DealingFault::Secret)));

    let mut attack = Attack::new();
    let honest = attack.right_dealing(1);
    let correction_of_attack = from_bytes(bits, &honest.sharing.correction).unwrap()
        + integer(&attack.old.shares[&id(1)])
        - integer(&attack.old.shares[&id(2)]);
    assert_ne!(correction, correction_of_attack, "other random numbers");
    let mut copied = attack.right_dealing(2);
    copied.sharing = DealtIntegers {
        correction: to_bytes(bits, &correction_of_attack).unwrap(),
        ..honest.sharing.clone()
    };
    assert_eq!(attack.deal(1, &honest), Ok(HandoverEffect::Counted));
    assert_eq!(attack.deal(2, &copied), Ok(HandoverEffect::Counted), "the attack");
    for receiver in [1, 2, 3] {
        for entry in attack.wanted(receiver) {
            let _repeated = attack.log.apply(id(receiver), &entry);
        }
    }
    assert!(attack.log.chosen() == set(&[1]) && attack.log.faulty_dealers() == set(&[2]));
}

/// A faulty dealer repeats the ephemeral key of a correct one, with a wrong ciphertext. The
/// complaint about it would publish the key of the correct dealer's ciphertext.
#[test]
fn a_copied_ephemeral_key_would_make_complaints_reveal_rows() {
    let mut attack = Attack::new();
    let honest = attack.right_dealing(1);
    let mut wrong = attack.right_dealing(2);
    (wrong.ephemeral, wrong.ephemeral_proof) = (honest.ephemeral, honest.ephemeral_proof);
    let session = SessionScalar::new(&attack.seeds[&id(2)], b"receiver");
    let published = session.agree(&wrong.ephemeral);
    let row = honest.open_row(attack.log.terms(), id(1), id(2), &published);
    assert!(row.is_some(), "the attack: anyone decrypts the correct dealer's row");
    assert_eq!(attack.deal(2, &wrong), Ok(dealing_fault(DealingFault::Knowledge)));
}

/// If the random constant of a dealing were short, the correction would reveal the dealer's share.
#[test]
fn the_constant_hides_the_share_in_the_correction() {
    let mut attack = Attack::new();
    let key = attack.sharing().key().clone();
    let share = &attack.old.shares[&id(1)];
    let share = integer(share);
    let scale = BigInt::from(key.scale().clone());
    let short = &scale * BigInt::from(5) - &share;
    assert_eq!(&scale * BigInt::from(5) - short, share, "the attack: a few tries give the share");
    // It is as long as what it hides and 168 bits longer, in each of many dealings.
    let shifts = u64::from(key.group().modulus().bits()) + 3 * key.scale().bits();
    let lengths = (0..200).map(|_| {
        let constant = &attack.polynomial(1).polynomial.coefficients[0];
        BigInt::from_signed_bytes_be(&constant.to_be_bytes()).bits()
    });
    let lengths: Vec<u64> = lengths.collect();
    assert!(lengths.iter().all(|bits| *bits > shifts + 128));
    let longest = lengths.iter().filter(|bits| **bits == key.drawn_bits().into()).count();
    assert!((60..140).contains(&longest), "half of them have the highest bit: {longest}");
}

/// A faulty helper could make a server compute a wrong row.
#[test]
fn a_wrong_common_value_is_not_used() {
    let mut rng = SeededRng::new(5);
    let first = first_group(&tiny_key(), 1, 1);
    for group in [hand_over(&first, size(1), &mut rng), first] {
        let sharing = group.sharing();
        let helpers: Vec<_> = group.shares.values().take(3).collect();
        let lacking = size(1).participants().find(|it| helpers.iter().all(|h| h.server() != *it));
        let lacking = lacking.unwrap();
        let [first, second, third] = helpers[..] else { panic!("three of four have shares") };
        let [first_value, second_value, third_value] =
            [first, second, third].map(|helper| helper.common_value(lacking));
        // Another's value, one for another server, and no integer of this width.
        let for_another = second.common_value(third.server());
        for value in
            [&first_value[..], &for_another, &vec![0x7f; first_value.len()], &first_value[1..]]
        {
            let mut repair = IntegerRowRepair::new(lacking);
            let mut handle = |from: ParticipantId, value: &[u8]| {
                repair.handle_value(sharing, from, value).map(|share| share.to_bytes())
            };
            assert!(handle(first.server(), &first_value).is_none());
            assert!(handle(first.server(), &first_value).is_none(), "a repeated one");
            assert!(handle(second.server(), value).is_none());
            assert!(handle(second.server(), &second_value).is_none(), "no more of it is used");
            let share = handle(third.server(), &third_value).unwrap();
            if let Some(own) = group.shares.get(&lacking) {
                assert_eq!(share, own.to_bytes());
            }
        }
    }
}

/// A new server that confirmed without a share would let the old group wipe the last shares.
#[test]
fn a_server_confirms_only_with_its_share() {
    let mut attack = Attack::new();
    for dealer in [1, 2] {
        let dealing = attack.right_dealing(dealer);
        assert_eq!(attack.deal(dealer, &dealing), Ok(HandoverEffect::Counted));
    }
    for server in [1, 2, 3] {
        attack.apply(server, HandoverEntryBody::Hold(set(&[1, 2]))).unwrap();
    }
    let confirmation = attack.wanted(2).pop().unwrap();
    let HandoverEntryBody::Confirm(proof) = confirmation.body.clone() else {
        panic!("it has its share")
    };
    let wrong = Ok(HandoverEffect::AuthorFaulty { why: HandoverFault::Knowledge });
    assert_eq!(attack.apply(1, HandoverEntryBody::Confirm(proof)), wrong, "another's proof");
    let old = &attack.old.shares[&id(3)];
    let powers = [(old.sharing().key().group().g().square(), {
        old.sharing().verification_share(id(3)).square()
    })];
    let context = attack.log.terms().context(HandoverPurpose::Possession, &[id(3)]);
    let key = old.sharing().key();
    let proof = ExponentProof::new(key, old.secret(), &powers, &context);
    assert!(proof.verify(key, old.secret().bits(), &powers, &context), "of the old share");
    assert_eq!(attack.apply(3, HandoverEntryBody::Confirm(proof)), wrong, "the old share");
    assert_eq!(attack.log.apply(id(2), &confirmation), Ok(HandoverEffect::Counted));
    assert_eq!(attack.log.apply(id(2), &confirmation), Err(HandoverRefusal::Repeated));
    assert!(!attack.log.is_final());
}

/// -1 has the same square as 1: a factor of -1 in a commitment changes no share and no signature.
#[test]
fn factors_of_order_two_change_nothing() {
    let mut attack = Attack::new();
    let key = attack.sharing().key().clone();
    let modulus = key.group().modulus();
    let mut minus_1 = modulus.to_be_bytes();
    *minus_1.last_mut().unwrap() -= 1;
    let minus_1 = modulus.element(&minus_1).unwrap();
    let mut dealing = attack.right_dealing(1);
    for element in dealing.sharing.elements.chunks_mut(modulus.byte_len()) {
        let changed = modulus.element(element).unwrap().times(&minus_1);
        element.copy_from_slice(&changed.to_be_bytes());
    }
    let other = attack.right_dealing(2);
    assert_eq!(attack.deal(1, &dealing), Ok(HandoverEffect::Counted));
    assert_eq!(attack.deal(2, &other), Ok(HandoverEffect::Counted));
    for _ in 0..4 {
        for receiver in [1, 2, 3] {
            for entry in attack.wanted(receiver) {
                let _repeated = attack.log.apply(id(receiver), &entry);
            }
        }
    }
    assert!(attack.log.is_final() && attack.log.chosen() == set(&[1, 2]));
    let shares = attack.receivers.into_values().filter_map(HandoverReceiver::into_share);
    let group = RsaGroup::new(shares);
    assert_eq!(reconstruct(group.shares.values()), reconstruct(attack.old.shares.values()));
    let again = ThresholdRsaSharing::from_bytes(&key, &group.sharing().to_bytes());
    assert_eq!(again.as_ref(), Ok(group.sharing()));
    let other = first_group(&tiny_key(), 1, 2);
    assert!(
        ThresholdRsaSharing::from_bytes(&key, &other.sharing().to_bytes()).is_err(),
        "another g_0"
    );
}
