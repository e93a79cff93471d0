//! Many epochs: the key and the length of shares stay the same.

use std::collections::BTreeMap;

use sim::SeededRng;

use super::world::KeyGroup;
use super::{reconstruct, size};
use crate::tests::HandoverAgreement;
use crate::tests::HandoverDealer;
use crate::tests::HandoverReceiver;
use crate::tests::HandoverTerms;
use ::handover::participant::GroupSize;

/// A handover in which f dealers and f' receivers are silent and the others are correct.
pub(super) fn hand_over(old: Option<&KeyGroup>, new: GroupSize, rng: &mut SeededRng) -> KeyGroup {
    let sharing = old.map(|old| old.any().sharing().clone());
    let terms = HandoverTerms { run: rng.bytes(), old: sharing, new };
    let mut log = HandoverAgreement::new(terms.clone());
    let dealers = terms.dealers();
    let dealers =
        dealers.participants().filter(|it| old.is_none_or(|old| old.shares.contains_key(it)));
    let dealers: Vec<_> = dealers
        .take(terms.dealers().quorum())
        .map(|server| {
            let share = old.map(|old| &old.shares[&server]);
            (server, HandoverDealer::new(&terms, server, share, &rng.bytes()).unwrap())
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
    let shares =
        receivers.into_iter().filter_map(|(it, receiver)| Some((it, receiver.into_share()?)));
    KeyGroup { shares: shares.collect() }
}

#[test]
fn a_hundred_epochs_leave_the_key_and_the_length_of_shares() {
    pass_through(100);
}

#[test]
#[ignore = "takes half a minute: make soak"]
fn a_thousand_epochs_leave_the_key_and_the_length_of_shares() {
    pass_through(1000);
}

/// Hands a key over for so many epochs.
fn pass_through(epochs: usize) {
    let mut rng = SeededRng::new(1);
    let first = hand_over(None, size(1), &mut rng);
    let key = *first.any().sharing().public_key();
    let secret = reconstruct(first.shares.values());
    let mut group = first;
    let mut last = [0; 32];
    for epoch in 0..epochs {
        let faulty = [1, 1, 1, 1, 2][epoch % 5];
        group = hand_over(Some(&group), size(faulty), &mut rng);
        assert_eq!(*group.any().sharing().public_key(), key);
        assert!(
            group.shares.values().all(|it| it.to_bytes().len() == 32 * (usize::from(faulty) + 1))
        );
        let share = group.any().secret().to_bytes();
        assert_ne!(share, last, "each epoch has other shares");
        last = share;
    }
    assert_eq!(reconstruct(group.shares.values()), secret);
}

#[test]
fn a_group_of_31_hands_over_to_one_of_13_and_back() {
    let mut rng = SeededRng::new(2);
    let first = hand_over(None, size(4), &mut rng);
    let second = hand_over(Some(&first), size(10), &mut rng);
    let third = hand_over(Some(&second), size(4), &mut rng);
    assert_eq!(first.any().sharing().public_key(), third.any().sharing().public_key());
    assert_eq!(reconstruct(first.shares.values()), reconstruct(third.shares.values()));
}
