//! Encodings: what is read is what was written, and nothing else.

use handover::participant::ParticipantId;
use rsa_arithmetic::fixture::tiny_key;
use sim::{SeededRng, run_seeds};

use super::epochs::first_group;
use super::{RsaGroup, id, size};
use crate::ThresholdRsaScheme;
use crate::sharing::{IntegerRowRepair, ThresholdRsaShare, ThresholdRsaSharing};
use crate::signing::PartialRsaSignature;

type HandoverAgreement = handover::HandoverAgreement<ThresholdRsaScheme>;
type HandoverDealer = handover::HandoverDealer<ThresholdRsaScheme>;
type HandoverEntry = handover::HandoverEntry<ThresholdRsaScheme>;
type HandoverReceiver = handover::HandoverReceiver<ThresholdRsaScheme>;
type HandoverTerms = handover::HandoverTerms<ThresholdRsaScheme>;

/// The entries of a handover without faults, in an order in which they are committed.
fn entries(
    old: &RsaGroup,
    terms: &HandoverTerms,
    rng: &mut SeededRng,
) -> Vec<(ParticipantId, Vec<u8>)> {
    let mut log = HandoverAgreement::new(terms.clone());
    let dealers: Vec<_> = old
        .shares
        .iter()
        .take(old.size().signer_count())
        .map(|(it, share)| {
            (*it, HandoverDealer::new(terms, *it, Some(share), &rng.bytes()).unwrap())
        })
        .collect();
    let mut receivers: Vec<_> = terms
        .new
        .participants()
        .map(|it| (it, HandoverReceiver::new(terms, it, &rng.bytes()).unwrap()))
        .collect();
    let mut committed = Vec::new();
    while !log.is_final() {
        let mut wanted = Vec::new();
        for (server, dealer) in &dealers {
            wanted.extend(dealer.wanted_entry(&log).map(|entry| (*server, entry)));
        }
        for (server, receiver) in &mut receivers {
            receiver.handle_log(&log);
            wanted.extend(receiver.wanted_entries(&log).into_iter().map(|it| (*server, it)));
        }
        for (server, entry) in wanted {
            if log.apply(server, &entry).is_ok() {
                committed.push((server, entry.to_bytes()));
            }
        }
    }
    committed
}

/// Applies the entries of a handover, of which one has changed bytes.
fn apply_changed(seed: u64) {
    let mut rng = SeededRng::new(seed);
    let old = first_group(&tiny_key(), 1, 1);
    let sharing = Some(old.sharing().clone());
    let terms = HandoverTerms { run: rng.bytes(), old: sharing, new: size(1) };
    let mut log = HandoverAgreement::new(terms.clone());
    let mut entries = entries(&old, &terms, &mut rng);
    let place = rng.index(entries.len());
    let author = entries[place].0;
    for _ in 0..=rng.below(2) {
        let bytes = &mut entries[place].1;
        let at = rng.index(bytes.len());
        bytes[at] ^= 1 << rng.below(8);
    }
    for (author, bytes) in &entries {
        if let Ok(entry) = HandoverEntry::from_bytes(bytes) {
            assert_eq!(entry.to_bytes(), *bytes, "one encoding of each entry");
            let _refused = log.apply(*author, &entry);
        }
    }
    let accused = log.faulty_dealers().iter().chain(log.faulty_receivers().iter());
    // A changed ciphertext makes a complaint right, but nobody complains here.
    assert!(accused.into_iter().all(|it| it == author), "only the author of the changed entry");
}

#[test]
fn a_changed_entry_accuses_nobody_but_its_author() {
    run_seeds(20, apply_changed);
}

#[test]
fn bytes_of_any_kind_are_read_without_a_panic() {
    let mut rng = SeededRng::new(1);
    let group = first_group(&tiny_key(), 1, 1);
    let (server, share) = group.shares.first_key_value().unwrap();
    let sharing = share.sharing();
    let sharing_bytes = sharing.to_bytes();
    let terms = HandoverTerms { run: [0; 32], old: Some(sharing.clone()), new: size(1) };
    let dealing = entries(&group, &terms, &mut rng);
    let dealing = dealing.into_iter().map(|(_, bytes)| bytes).max_by_key(Vec::len).unwrap();
    let value = share.common_value(id(2)).to_vec();
    let right = [sharing_bytes, share.to_bytes().to_vec(), value, dealing];
    let read = ThresholdRsaSharing::from_bytes(sharing.key(), &right[0]);
    assert_eq!(read.as_ref(), Ok(sharing));
    assert!(ThresholdRsaShare::from_bytes(*server, &right[1], sharing.clone()).is_ok());
    assert!(ThresholdRsaShare::from_bytes(id(2), &right[1], sharing.clone()).is_err());
    for round in 0..3000 {
        let mut bytes = match round % 5 {
            4 => rng.bytes::<160>()[..rng.index(161)].to_vec(),
            kind => right[kind].clone(),
        };
        if !bytes.is_empty() {
            let at = rng.index(bytes.len());
            bytes[at] ^= 1 << rng.below(8);
            bytes.truncate(if rng.chance(20) { at } else { bytes.len() });
        }
        if let Ok(it) = ThresholdRsaSharing::from_bytes(sharing.key(), &bytes) {
            assert_eq!(it.to_bytes(), bytes);
        }
        if let Ok(it) = PartialRsaSignature::from_bytes(sharing, &bytes) {
            assert_eq!(it.to_bytes(), bytes);
        }
        if let Ok(it) = HandoverEntry::from_bytes(&bytes) {
            assert_eq!(it.to_bytes(), bytes);
            let _refused = HandoverAgreement::new(terms.clone()).apply(id(1), &it);
        }
        let wrong = ThresholdRsaShare::from_bytes(*server, &bytes, sharing.clone());
        assert!(wrong.is_err(), "a changed row");
        let _ = HandoverReceiver::from_bytes(&terms, id(1), &bytes);
        let mut repair = IntegerRowRepair::new(id(2));
        assert!(repair.handle_value(sharing, *server, &bytes).is_none());
    }
}
