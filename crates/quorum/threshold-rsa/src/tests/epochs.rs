//! Many epochs: the key and the length of shares stay the same.

use std::collections::BTreeMap;

use handover::participant::GroupSize;
use handover::{HandoverAgreement, HandoverDealer, HandoverReceiver, HandoverTerms};
use keys::rsa::RsaEncoding;
use num_bigint::BigInt;
use random::RandomGenerator;
use rsa_arithmetic::fixture::{large_key, short_key, small_key, tiny_key};
use rsa_arithmetic::{DealerKey, SecretInteger};
use sim::SeededRng;

use super::{RsaGroup, assert_signs, reconstruct, size};
use crate::dealing::deal;
use crate::key::span;
use crate::{ThresholdRsaScheme, ThresholdRsaShare};

pub(super) fn first_group(key: &DealerKey, faulty: u8, largest: u8) -> RsaGroup {
    let mut generator = RandomGenerator::seeded().unwrap();
    RsaGroup::new(deal(key, size(faulty), size(largest), &mut generator).unwrap())
}

/// A handover in which f dealers and f' receivers are silent and the others are correct.
pub(super) fn hand_over(old: &RsaGroup, new: GroupSize, rng: &mut SeededRng) -> RsaGroup {
    let terms = HandoverTerms::<ThresholdRsaScheme> {
        run: rng.bytes(),
        old: Some(old.sharing().clone()),
        new,
    };
    let mut log = HandoverAgreement::new(terms.clone());
    let dealers: Vec<_> = old
        .shares
        .iter()
        .skip(rng.index(old.shares.len() - old.size().signer_count() + 1))
        .take(old.size().signer_count())
        .map(|(server, share)| {
            (*server, HandoverDealer::new(&terms, *server, Some(share), &rng.bytes()).unwrap())
        })
        .collect();
    let mut receivers: BTreeMap<_, _> = new
        .participants()
        .skip(rng.index(new.faulty() + 1))
        .take(new.quorum())
        .map(|server| (server, HandoverReceiver::new(&terms, server, &rng.bytes()).unwrap()))
        .collect();
    while !log.is_final() {
        let mut entries = Vec::new();
        for (server, dealer) in &dealers {
            entries.extend(dealer.wanted_entry(&log).map(|entry| (*server, entry)));
        }
        for (server, receiver) in &mut receivers {
            receiver.handle_log(&log);
            entries.extend(receiver.wanted_entries(&log).into_iter().map(|it| (*server, it)));
        }
        assert!(!entries.is_empty(), "the handover makes progress");
        for (author, entry) in entries {
            let _refused = log.apply(author, &entry);
        }
    }
    RsaGroup::new(receivers.into_values().filter_map(HandoverReceiver::into_share))
}

/// The bits of the longest integer of a share.
fn longest_coefficient(share: &ThresholdRsaShare) -> u64 {
    let bits = share.sharing().key().row_bits(share.sharing().size());
    let bytes = share.to_bytes();
    let integers = bytes.chunks(SecretInteger::encoded_len(bits));
    integers.map(|it| BigInt::from_signed_bytes_be(it).bits()).max().unwrap_or(0)
}

/// Hands a key over between groups of these sizes. Shares of groups of one size have one length.
fn run_epochs(key: &DealerKey, largest: u8, sizes: impl IntoIterator<Item = u8>) -> RsaGroup {
    let mut rng = SeededRng::new(1);
    let mut group = first_group(key, largest, largest);
    let secret = reconstruct(group.shares.values());
    for faulty in sizes {
        group = hand_over(&group, size(faulty), &mut rng);
        assert_eq!(reconstruct(group.shares.values()), secret, "the same integer in each epoch");
        let len = group.sharing().key().share_len(size(faulty));
        assert!(group.shares.values().all(|it| it.to_bytes().len() == len));
        // The encoding has a fixed length, so the integers themselves are compared with the bound
        // for correct dealers.
        let key = group.sharing().key();
        let bound = u64::from(key.row_bits(size(faulty)) - span(size(faulty)));
        let longest = group.shares.values().map(longest_coefficient).max();
        assert!(longest.is_some_and(|bits| bits <= bound), "{longest:?} of {bound} bits");
    }
    group
}

#[test]
fn a_key_is_dealt_handed_over_and_signs() {
    let mut rng = SeededRng::new(3);
    for key in [short_key(), small_key(), large_key()] {
        let first = first_group(&key, 1, 2);
        assert_signs(&first, RsaEncoding::Pkcs1, &mut rng);
        let second = hand_over(&first, size(2), &mut rng);
        let salt = rng.bytes();
        // The shortest modulus is too short for PSS.
        let is_long = key.group().modulus().bits() > 512;
        let encoding = if is_long { RsaEncoding::Pss { salt } } else { RsaEncoding::Pkcs1 };
        assert_signs(&second, encoding, &mut rng);
        let third = hand_over(&second, size(1), &mut rng);
        assert_signs(&third, RsaEncoding::Pkcs1, &mut rng);
        assert_eq!(reconstruct(first.shares.values()), reconstruct(third.shares.values()));
    }
}

/// Hands a short key over for so many epochs.
fn pass_through(epochs: usize) {
    run_epochs(&tiny_key(), 2, (0..epochs).map(|epoch| [1, 1, 1, 1, 2][epoch % 5]));
}

#[test]
fn two_hundred_epochs_leave_the_key_and_the_length_of_shares() {
    pass_through(200);
}

#[test]
#[ignore = "makes many entries: make soak"]
fn a_thousand_epochs_leave_the_key_and_the_length_of_shares() {
    pass_through(1000);
}

#[test]
fn a_group_of_31_hands_over_to_one_of_13_and_back() {
    run_epochs(&tiny_key(), 10, [4, 10]);
}

#[test]
#[ignore = "a minute: for make soak"]
fn a_hundred_epochs_with_2048_bits_leave_the_key_and_the_length_of_shares() {
    let group = run_epochs(&large_key(), 3, (0..100).map(|epoch| [1, 2, 3][epoch % 3]));
    assert_signs(&group, RsaEncoding::Pss { salt: [7; 32] }, &mut SeededRng::new(2));
}

#[test]
#[ignore = "a minute: for make soak"]
fn groups_of_31_with_2048_bits_hand_over_and_sign() {
    let group = run_epochs(&large_key(), 10, [10, 7, 10]);
    assert_signs(&group, RsaEncoding::Pkcs1, &mut SeededRng::new(2));
}

#[test]
fn lengths_of_entries_are_as_specified() {
    for (faulty, largest, len) in [(1, 1, 3519), (3, 3, 14_773), (1, 10, 3944), (3, 10, 16_306)] {
        let group = first_group(&large_key(), faulty, largest);
        let sharing = group.sharing().clone();
        let terms = HandoverTerms::<ThresholdRsaScheme> {
            run: [0; 32],
            old: Some(sharing),
            new: size(faulty),
        };
        let mut log = HandoverAgreement::new(terms.clone());
        for server in terms.new.participants() {
            let receiver = HandoverReceiver::new(&terms, server, &[server.number(); 32]).unwrap();
            log.apply(server, &receiver.wanted_entries(&log)[0]).unwrap();
        }
        let (server, share) = group.shares.first_key_value().unwrap();
        let dealer = HandoverDealer::new(&terms, *server, Some(share), &[7; 32]).unwrap();
        assert_eq!(dealer.wanted_entry(&log).unwrap().to_bytes().len(), len);
    }
}
