//! Checks of what servers send, save and keep when a key is shared by a polynomial, for fuzz
//! targets.

use std::fmt::Debug;

use handover::{
    GroupSize, HandoverAgreement, HandoverDealer, HandoverEntry, HandoverReceiver, HandoverScheme,
    HandoverTerms, ParticipantId,
};
use keys::rsa::RsaEncoding;
use random::RandomGenerator;
use rsa_arithmetic::fixture;
use schnorr::{SchnorrScheme, SharingCommitment, SignatureAnswer, SigningSession};
use threshold_rsa::{PartialRsaSignature, ThresholdRsaScheme, ThresholdRsaShare};

use super::part::{PartQuery, WrongPartEvidence};
use super::share_evidence::WrongShareEvidence;
use crate::protocol::key_sharing::{KeySharing, largest_group};
use crate::protocol::refresh::RefreshMessage;

/// The epoch of a [`PartQuery`] here.
const EPOCH: u64 = 1;

/// Shares of an RSA key among four servers, and examples of what is parsed.
pub struct PolynomialExamples {
    shares: Vec<ThresholdRsaShare>,
    /// Entries of handovers, requests, answers, evidence and sharings, as bytes.
    pub bytes: Vec<Vec<u8>>,
}

impl PolynomialExamples {
    /// Examples of each kind.
    ///
    /// # Panics
    /// If the system provides no random bytes.
    pub fn new() -> Self {
        let mut generator = RandomGenerator::seeded().expect("random bytes");
        let (size, key) = (four(), fixture::short_key());
        let shares = threshold_rsa::deal(&key, size, largest_group(), &mut generator);
        let shares = shares.expect("random bytes");
        let sharing = shares[0].sharing().clone();
        let message = b"message".to_vec();
        let encoding = RsaEncoding::Pkcs1;
        let query = |with_proof| PartQuery {
            epoch: EPOCH,
            with_proof,
            encoding,
            message: message.clone().into(),
        };
        let identity = keys::IdentitySecretKey::new(&[1; 32]);
        let answers = [false, true].map(|it| query(it).answer(&shares[0], &identity));
        let answers = answers.map(|answer| answer.expect("the key is long enough"));
        let counted = |parts: &[&[u8]]| -> Vec<u8> {
            let counted = parts.iter().map(|part| {
                let len = u32::try_from(part.len()).expect("it is short");
                [&len.to_be_bytes()[..], part].concat()
            });
            counted.collect::<Vec<_>>().concat()
        };
        let encoded = KeySharing::Rsa(sharing.clone().into()).to_bytes();
        let signed = [&[1][..], &message].concat();
        let wrong = counted(&[&encoded, &signed, &answers[0]]);
        let proven = [&[1][..], &counted(&[&answers[1]])].concat();
        let terms = HandoverTerms { run: [7; 32], old: Some(sharing), new: size };
        let of_rsa = shares.iter().map(Some).collect::<Vec<_>>();
        let mut bytes = steps::<ThresholdRsaScheme>(&terms, &of_rsa);
        let terms = HandoverTerms { run: [7; 32], old: None, new: size };
        bytes.extend(steps::<SchnorrScheme>(&terms, &[None; 4]));
        bytes.extend(answers.map(|answer| answer[..answer.len() - 64].to_vec()));
        bytes.extend([query(false).to_bytes(), query(true).to_bytes()]);
        bytes.extend([[&wrong[..], &proven].concat(), wrong, encoded]);
        for kind in 10..=12 {
            bytes.push([&[kind][..], &[8; 32], &[3; 40]].concat());
        }
        Self { shares, bytes }
    }

    /// Checks that each of these has only one encoding.
    ///
    /// # Panics
    /// If one has another encoding.
    pub fn round_trip(&self, bytes: &[u8]) {
        let sharing = self.shares[0].sharing();
        let is = |parsed: Option<Vec<u8>>| assert!(parsed.is_none_or(|it| it == bytes));
        is(ok(HandoverEntry::<ThresholdRsaScheme>::from_bytes(bytes)).map(|it| it.to_bytes()));
        is(ok(HandoverEntry::<SchnorrScheme>::from_bytes(bytes)).map(|it| it.to_bytes()));
        is(ok(RefreshMessage::parse(bytes)).map(|it| it.to_bytes().to_vec()));
        is(ok(SharingCommitment::from_bytes(bytes)).map(|it| it.to_bytes()));
        is(ok(SigningSession::from_bytes(bytes)).map(|it| it.to_bytes()));
        is(ok(SignatureAnswer::from_bytes(bytes)).map(|it| it.to_bytes()));
        is(ok(PartialRsaSignature::from_bytes(sharing, bytes)).map(|it| it.to_bytes()));
        is(PartQuery::parse(EPOCH, bytes).map(|it| it.to_bytes()));
        is(WrongPartEvidence::parse(bytes).map(|it| it.to_bytes()));
        is(WrongShareEvidence::parse(bytes).map(|it| it.to_bytes()));
        let public = sharing.key().group().public();
        is(KeySharing::parse_rsa(public, bytes).map(|it| it.to_bytes()));
    }

    /// Checks that a handover among four servers does not panic on these entries, and that entries
    /// that are committed twice change nothing the second time. The author of each has a number
    /// from 0.
    ///
    /// # Panics
    /// If it does.
    pub fn apply(&self, entries: &[(u8, Vec<u8>)]) {
        let old = Some(self.shares[0].sharing().clone());
        apply(HandoverAgreement::<ThresholdRsaScheme>::new(terms(old)), entries);
        apply(HandoverAgreement::<SchnorrScheme>::new(terms(None)), entries);
    }
}

impl Default for PolynomialExamples {
    fn default() -> Self {
        Self::new()
    }
}

fn four() -> GroupSize {
    GroupSize::of_faulty(1).expect("four servers")
}

fn terms<S: HandoverScheme>(old: Option<S::Sharing>) -> HandoverTerms<S> {
    HandoverTerms { run: [7; 32], old, new: four() }
}

fn ok<T, E: Debug>(parsed: Result<T, E>) -> Option<T> {
    parsed.ok()
}

fn apply<S: HandoverScheme>(mut log: HandoverAgreement<S>, entries: &[(u8, Vec<u8>)]) {
    for (author, bytes) in entries {
        let Ok(entry) = HandoverEntry::from_bytes(bytes) else { continue };
        let author = ParticipantId::new(1 + author % 4).expect("a server");
        let _ = log.apply(author, &entry);
        let before = log.clone();
        assert!(log.apply(author, &entry).is_err() && log == before, "it says nothing new");
    }
}

/// The entries of a handover, or of a key generation, in which all servers are correct.
fn steps<S: HandoverScheme>(
    terms: &HandoverTerms<S>,
    shares: &[Option<&S::Share>],
) -> Vec<Vec<u8>> {
    let mut log = HandoverAgreement::new(terms.clone());
    let mut steps = Vec::new();
    let mut servers: Vec<_> = terms
        .new
        .participants()
        .zip(shares)
        .map(|(server, share)| {
            let seed = [server.number(); 32];
            let receiver = HandoverReceiver::new(terms, server, &seed).expect("a server");
            let dealer = HandoverDealer::new(terms, server, *share, &seed).expect("its share");
            (server, receiver, dealer)
        })
        .collect();
    while !log.is_final() {
        let mut wanted = Vec::new();
        for (server, receiver, dealer) in &mut servers {
            receiver.handle_log(&log);
            let entries = receiver.wanted_entries(&log).into_iter();
            wanted.extend(entries.chain(dealer.wanted_entry(&log)).map(|it| (*server, it)));
        }
        for (server, entry) in wanted {
            if log.apply(server, &entry).is_ok() {
                steps.push(entry.to_bytes());
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use sim::SeededRng;

    use super::*;
    use crate::fuzzing::changed;

    #[test]
    fn changed_entries_requests_answers_and_evidence_have_one_encoding() {
        let examples = PolynomialExamples::new();
        examples.bytes.iter().for_each(|bytes| examples.round_trip(bytes));
        sim::run_seeds(200, |seed| {
            let mut random = SeededRng::new(seed);
            let entries: Vec<_> = examples
                .bytes
                .iter()
                .map(|bytes| {
                    let changed = changed(bytes, &mut random);
                    examples.round_trip(&changed);
                    (random.next_u64().to_le_bytes()[0], changed)
                })
                .collect();
            examples.apply(&entries);
        });
    }
}
