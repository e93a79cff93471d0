//! Encodings: what is read is what was written, and nothing else.

use sim::{SeededRng, run_seeds};

use super::epochs::hand_over;
use super::world::KeyGroup;
use super::{id, size};
use crate::frost::{NonceCommitments, SigningSession};
use crate::sharing::{KeyShare, SharingCommitment};
use crate::signer::SignatureAnswer;
use crate::tests::HandoverAgreement;
use crate::tests::HandoverDealer;
use crate::tests::HandoverEntry;
use crate::tests::HandoverReceiver;
use crate::tests::HandoverTerms;
use ::handover::participant::ParticipantId;

/// The entries of a key generation without faults, in an order in which they are committed.
fn entries(terms: &HandoverTerms, rng: &mut SeededRng) -> Vec<(ParticipantId, Vec<u8>)> {
    let mut log = HandoverAgreement::new(terms.clone());
    let mut servers: Vec<_> = terms
        .new
        .participants()
        .map(|server| {
            let dealer = HandoverDealer::new(terms, server, None, &rng.bytes()).unwrap();
            (server, dealer, HandoverReceiver::new(terms, server, &rng.bytes()).unwrap())
        })
        .collect();
    let mut committed = Vec::new();
    while !log.is_final() {
        for (server, dealer, receiver) in &mut servers {
            receiver.handle_log(&log);
            let wanted = receiver.wanted_entries(&log).into_iter();
            for entry in wanted.chain(dealer.wanted_entry(&log)) {
                if log.apply(*server, &entry).is_ok() {
                    committed.push((*server, entry.to_bytes()));
                }
            }
        }
    }
    committed
}

/// Applies the entries of a handover, of which one has changed bytes.
fn apply_changed(seed: u64) {
    let mut rng = SeededRng::new(seed);
    let terms = HandoverTerms { run: rng.bytes(), old: None, new: size(1) };
    let mut log = HandoverAgreement::new(terms.clone());
    let mut entries = entries(&terms, &mut rng);
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
    run_seeds(40, apply_changed);
}

#[test]
fn bytes_of_any_kind_are_read_without_a_panic() {
    let mut rng = SeededRng::new(1);
    let KeyGroup { shares } = hand_over(None, size(1), &mut rng);
    let (server, share) = shares.first_key_value().unwrap();
    let sharing = share.sharing();
    let terms = HandoverTerms { run: [0; 32], old: None, new: size(1) };
    let right = [
        sharing.to_bytes(),
        share.to_bytes().to_vec(),
        SigningSession::new(b"m".to_vec(), [].into()).to_bytes(),
    ];
    assert_eq!(SharingCommitment::from_bytes(&right[0]).as_ref(), Ok(sharing));
    assert!(KeyShare::from_bytes(*server, &right[1], sharing.clone()).is_ok());
    let other = if *server == id(1) { id(2) } else { id(1) };
    assert!(KeyShare::from_bytes(other, &right[1], sharing.clone()).is_err(), "another's row");
    for round in 0..20_000 {
        let mut bytes = match round % 4 {
            3 => rng.bytes::<160>()[..rng.index(161)].to_vec(),
            kind => right[kind].clone(),
        };
        if !bytes.is_empty() {
            let at = rng.index(bytes.len());
            bytes[at] ^= 1 << rng.below(8);
            bytes.truncate(if rng.chance(20) { at } else { bytes.len() });
        }
        if let Ok(it) = SharingCommitment::from_bytes(&bytes) {
            assert_eq!(it.to_bytes(), bytes);
        }
        if let Ok(it) = SigningSession::from_bytes(&bytes) {
            assert_eq!(it.to_bytes(), bytes);
        }
        if let Ok(it) = SignatureAnswer::from_bytes(&bytes) {
            assert_eq!(it.to_bytes(), bytes);
        }
        assert!(KeyShare::from_bytes(*server, &bytes, sharing.clone()).is_err(), "a changed row");
        let _ = HandoverReceiver::from_bytes(&terms, id(1), &bytes);
        let _ = HandoverEntry::from_bytes(&bytes);
        if let Some(Ok(it)) = bytes.first_chunk().map(NonceCommitments::from_bytes) {
            assert_eq!(it.to_bytes(), bytes[..64]);
        }
    }
}
