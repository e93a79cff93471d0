//! The agreed state of the model beside the one of this crate, which gets the same entries.

use curve25519_dalek::scalar::Scalar;
use sim::{SeededRng, run_seeds};

use super::super::id;
use super::super::transcripts::{HandoverRecorder, apply_bytes, share_another_secret};
use super::agreement::{
    DealingFlaw, ModelledAgreement, ModelledEntry, ModelledVerdict, SERVERS, ServerMask,
};
use super::rules::HandoverRules;
use crate::sharing::ShareRow;
use crate::tests::HandoverAgreement;
use crate::tests::HandoverDealing;
use crate::tests::HandoverEntry;
use crate::tests::HandoverEntryBody;
use ::handover::HandoverPurpose;
use ::handover::element::PrimeOrderPoint;
use ::handover::participant::{ParticipantId, ParticipantSet};
use ::handover::proof::{LogarithmProof, of_base};

/// A server of the model in this crate.
fn server(number: u8) -> ParticipantId {
    id(number + 1)
}

fn mask(servers: impl IntoIterator<Item = ParticipantId>) -> ServerMask {
    servers.into_iter().map(|it| it.number() - 1).collect()
}

/// Makes real entries of modelled ones.
struct EntryMaker {
    /// All receivers have registered in it.
    recorder: HandoverRecorder,
    dealings: Vec<HandoverDealing>,
    /// For each dealer the receivers whose ciphertext is wrong.
    wrong: Vec<ServerMask>,
}

impl EntryMaker {
    fn new(seed: u64, rng: &mut SeededRng) -> Self {
        let mut recorder = HandoverRecorder::new(Some(1), 1, seed);
        recorder.receive(1..=4);
        let dealings = (1..=4).map(|dealer| recorder.dealing(dealer)).collect();
        let mut wrong = |_| (0..SERVERS).filter(|_| rng.chance(20)).collect();
        Self { recorder, dealings, wrong: (0..SERVERS).map(&mut wrong).collect() }
    }

    fn entry(&self, log: &HandoverAgreement, author: u8, entry: ModelledEntry) -> HandoverEntry {
        let body = match entry {
            ModelledEntry::Key { is_proven } => {
                let of = if is_proven { author } else { (author + 1) % SERVERS };
                let key = self.recorder.session(author + 1).public();
                let proof = self.recorder.session_proof(author + 1, of + 1);
                HandoverEntryBody::Key { key, proof }
            }
            ModelledEntry::Deal { receivers, flaw } => {
                HandoverEntryBody::Deal(Box::new(self.dealing(author, receivers, flaw)))
            }
            ModelledEntry::Hold { dealer } => {
                HandoverEntryBody::Hold([server(dealer)].into_iter().collect())
            }
            ModelledEntry::Complain { dealer, is_right } => {
                self.complaint(author, dealer, is_right)
            }
            ModelledEntry::Confirm { is_proven } => self.confirmation(log, author, is_proven),
        };
        HandoverEntry { run: self.recorder.terms().run, body }
    }

    fn dealing(&self, dealer: u8, receivers: ServerMask, flaw: DealingFlaw) -> HandoverDealing {
        let mut dealing = self.dealings[usize::from(dealer)].clone();
        match flaw {
            DealingFlaw::None => {}
            DealingFlaw::OtherSecret => {
                dealing = share_another_secret(&self.recorder, dealer + 1, &Scalar::from(5_u8));
            }
            DealingFlaw::CopiedKey(of) => {
                let of = &self.dealings[usize::from(of)];
                (dealing.ephemeral, dealing.ephemeral_proof) = (of.ephemeral, of.ephemeral_proof);
            }
        }
        dealing.ciphertexts.retain(|receiver, _| receivers.has(receiver.number() - 1));
        for receiver in self.wrong[usize::from(dealer)].iter() {
            if let Some(ciphertext) = dealing.ciphertexts.get_mut(&server(receiver)) {
                ciphertext[0] ^= 1;
            }
        }
        dealing
    }

    /// With a wrong K if the complaint is to be unfounded and the ciphertext is wrong.
    fn complaint(&self, author: u8, dealer: u8, is_right: bool) -> HandoverEntryBody {
        let context = [server(dealer), server(author)];
        let context = self.recorder.terms().context(HandoverPurpose::Complaint, &context);
        let ephemeral = &self.dealings[usize::from(dealer)].ephemeral;
        let session = self.recorder.session(author + 1);
        let mut agreed = *session.agree(ephemeral);
        let proof = session.prove_agreed(ephemeral, &agreed, &context);
        if !is_right && self.wrong[usize::from(dealer)].has(author) {
            agreed = PrimeOrderPoint::base(&Scalar::from(5_u8));
        }
        HandoverEntryBody::Complain { dealer: server(dealer), agreed, proof }
    }

    fn confirmation(
        &self,
        log: &HandoverAgreement,
        author: u8,
        is_proven: bool,
    ) -> HandoverEntryBody {
        let terms = self.recorder.terms();
        let context = terms.context(HandoverPurpose::Possession, &[server(author)]);
        if !is_proven || log.sharing().is_none() {
            return HandoverEntryBody::Confirm(self.recorder.session(author + 1).prove(&context));
        }
        let session = self.recorder.session(author + 1);
        let rows =
            crate::handover::weights(terms, log.chosen()).into_iter().map(|(dealer, weight)| {
                let dealing = &self.dealings[usize::from(dealer.number() - 1)];
                let agreed = session.agree(&dealing.ephemeral);
                let row = dealing.open_row(terms, dealer, server(author), &agreed);
                (weight, row.expect("it is right here"))
            });
        let rows: Vec<_> = rows.collect();
        let row = ShareRow::combine(terms.new, rows.iter().map(|(weight, row)| (*weight, row)));
        let statement = [of_base(PrimeOrderPoint::base(row.share()))];
        HandoverEntryBody::Confirm(LogarithmProof::new(row.share(), &statement, &context))
    }

    fn random_entry(&self, author: u8, rng: &mut SeededRng) -> ModelledEntry {
        let dealer = (0..SERVERS).nth(rng.index(usize::from(SERVERS))).expect("it has so many");
        let is_proven = rng.chance(90);
        match rng.below(10) {
            0 | 1 => ModelledEntry::Key { is_proven },
            2 | 3 => {
                let receivers = (0..SERVERS).filter(|_| rng.chance(85)).collect();
                let flaw = match rng.below(20) {
                    0 => DealingFlaw::OtherSecret,
                    1 if dealer != author => DealingFlaw::CopiedKey(dealer),
                    _ => DealingFlaw::None,
                };
                ModelledEntry::Deal { receivers, flaw }
            }
            4..=6 => ModelledEntry::Hold { dealer },
            7 => {
                let is_wrong = self.wrong[usize::from(dealer)].has(author);
                ModelledEntry::Complain { dealer, is_right: is_wrong && rng.chance(80) }
            }
            _ => ModelledEntry::Confirm { is_proven },
        }
    }
}

/// Applies random entries to both, and returns whether they were final.
fn compare(seed: u64) -> bool {
    let mut rng = SeededRng::new(seed);
    let maker = EntryMaker::new(seed, &mut rng);
    let rules = HandoverRules::default();
    let mut log = HandoverAgreement::new(maker.recorder.terms().clone());
    let mut modelled = ModelledAgreement::default();
    for _ in 0..120 {
        let author = (0..SERVERS).nth(rng.index(usize::from(SERVERS))).expect("it has so many");
        let entry = maker.random_entry(author, &mut rng);
        let bytes = maker.entry(&log, author, entry).to_bytes();
        let expected = match apply_bytes(&mut log, server(author), &bytes).1 {
            "unchanged" => ModelledVerdict::Unchanged,
            "faulty" => ModelledVerdict::AuthorFaulty,
            _ => ModelledVerdict::Counted,
        };
        assert_eq!(modelled.apply(&rules, author, entry), expected, "{author}: {entry:?}");
        compare_states(&modelled, &log);
    }
    assert_eq!(modelled.is_final(&rules), log.is_final());
    log.is_final()
}

fn compare_states(modelled: &ModelledAgreement, log: &HandoverAgreement) {
    let set = |it: ParticipantSet| mask(it.iter());
    assert_eq!(modelled.chosen, set(log.chosen()));
    assert_eq!(modelled.is_chosen, log.sharing().is_some());
    assert_eq!(modelled.faulty_dealers, set(log.faulty_dealers()));
    assert_eq!(modelled.faulty_receivers, set(log.faulty_receivers()));
    assert_eq!(modelled.registered, mask(log.session_keys().keys().copied()));
    let has_confirmed = |it: &u8| log.has_confirmed(server(*it));
    assert_eq!(modelled.confirmed, (0..SERVERS).filter(has_confirmed).collect());
    for dealer in 0..SERVERS {
        let real = log
            .dealings()
            .get(&server(dealer))
            .map(|dealing| (set(dealing.receivers()), set(log.holders(server(dealer)))));
        assert_eq!(modelled.dealing(dealer).map(|it| (it.receivers, it.holders)), real);
    }
}

#[test]
fn the_model_agrees_with_the_handover_on_random_entries() {
    let finals = run_seeds(100, compare);
    assert!(finals.iter().any(|it| *it), "none is final");
    assert!(finals.iter().any(|it| !*it), "all are final");
}
