//! A handover that records each entry, right and wrong ones.

use std::collections::BTreeMap;

use sim::SeededRng;

use super::super::epochs::hand_over;
use super::super::world::KeyGroup;
use super::super::{id, size};
use super::HandoverTranscript;
use crate::sharing::{KeyShare, RowRepair};
use crate::tests::HandoverAgreement;
use crate::tests::HandoverDealer;
use crate::tests::HandoverDealing;
use crate::tests::HandoverEntry;
use crate::tests::HandoverEntryBody;
use crate::tests::HandoverReceiver;
use crate::tests::HandoverTerms;
use ::handover::HandoverPurpose;
use ::handover::participant::{GroupSize, ParticipantId, ParticipantSet};
use ::handover::proof::LogarithmProof;
use ::handover::session_key::SessionScalar;

pub(super) fn set(servers: impl IntoIterator<Item = u8>) -> ParticipantSet {
    servers.into_iter().map(id).collect()
}

/// A group all of whose servers have their shares.
pub(super) fn group(faulty: u8, rng: &mut SeededRng) -> KeyGroup {
    let mut group = hand_over(None, size(faulty), rng);
    let sharing = group.any().sharing().clone();
    for server in sharing.size().participants() {
        let mut repair = RowRepair::new(server);
        let mut values = group.shares.iter().map(|(from, it)| (*from, it.common_value(server)));
        let row = values.find_map(|(from, it)| repair.handle_value(&sharing, from, &it));
        let share = KeyShare::new(server, row.unwrap(), sharing.clone()).unwrap();
        group.shares.insert(server, share);
    }
    group
}

pub(crate) struct HandoverRecorder {
    pub(super) log: HandoverAgreement,
    pub(super) dealers: BTreeMap<ParticipantId, HandoverDealer>,
    pub(super) receivers: BTreeMap<ParticipantId, HandoverReceiver>,
    dealer_seeds: BTreeMap<ParticipantId, [u8; 32]>,
    transcript: HandoverTranscript,
}

impl HandoverRecorder {
    /// A resharing of a group that tolerates `old` faulty servers, or a key generation.
    pub(crate) fn new(old: Option<u8>, new: u8, seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let old = old.map(|faulty| group(faulty, &mut rng));
        let sharing = old.as_ref().map(|old| old.any().sharing().clone());
        let terms = HandoverTerms { run: rng.bytes(), old: sharing, new: size(new) };
        let mut seeds = |size: GroupSize| -> BTreeMap<_, [u8; 32]> {
            size.participants().map(|server| (server, rng.bytes())).collect()
        };
        let (dealer_seeds, receiver_seeds) = (seeds(terms.dealers()), seeds(terms.new));
        let dealer = |(server, seed): (&ParticipantId, &[u8; 32])| {
            let share = old.as_ref().map(|old| &old.shares[server]);
            (*server, HandoverDealer::new(&terms, *server, share, seed).unwrap())
        };
        let receiver = |(server, seed): (&ParticipantId, &[u8; 32])| {
            (*server, HandoverReceiver::new(&terms, *server, seed).unwrap())
        };
        Self {
            log: HandoverAgreement::new(terms.clone()),
            dealers: dealer_seeds.iter().map(dealer).collect(),
            receivers: receiver_seeds.iter().map(receiver).collect(),
            dealer_seeds,
            transcript: HandoverTranscript { terms, entries: Vec::new(), seeds: receiver_seeds },
        }
    }

    pub(crate) fn terms(&self) -> &HandoverTerms {
        &self.transcript.terms
    }

    pub(crate) fn into_transcript(self) -> HandoverTranscript {
        self.transcript
    }

    pub(crate) fn bytes(&mut self, author: u8, bytes: Vec<u8>) {
        let author = id(author);
        super::apply_bytes(&mut self.log, author, &bytes);
        self.transcript.entries.push((author, bytes));
    }

    pub(crate) fn entry(&mut self, author: u8, entry: &HandoverEntry) {
        self.bytes(author, entry.to_bytes());
    }

    pub(crate) fn submit(&mut self, author: u8, body: HandoverEntryBody) {
        let run = self.terms().run;
        self.entry(author, &HandoverEntry { run, body });
    }

    pub(crate) fn hold(&mut self, author: u8, dealers: impl IntoIterator<Item = u8>) {
        self.submit(author, HandoverEntryBody::Hold(set(dealers)));
    }

    pub(crate) fn deal_wrongly(&mut self, author: u8, dealing: HandoverDealing) {
        self.submit(author, HandoverEntryBody::Deal(Box::new(dealing)));
    }

    /// The right dealing.
    pub(crate) fn dealing(&self, dealer: u8) -> HandoverDealing {
        let entry = self.dealers[&id(dealer)].wanted_entry(&self.log);
        match entry.expect("the dealer may deal").body {
            HandoverEntryBody::Deal(dealing) => *dealing,
            _ => unreachable!("a dealer deals"),
        }
    }

    /// These dealers submit right dealings.
    pub(crate) fn deal(&mut self, dealers: impl IntoIterator<Item = u8>) {
        for dealer in dealers {
            let dealing = self.dealing(dealer);
            self.deal_wrongly(dealer, dealing);
        }
    }

    /// The entries that a receiver wants committed now.
    pub(crate) fn wanted(&mut self, receiver: u8) -> Vec<HandoverEntry> {
        let receiver = self.receivers.get_mut(&id(receiver)).unwrap();
        receiver.handle_log(&self.log);
        receiver.wanted_entries(&self.log)
    }

    /// These receivers submit what they want committed, one after the other.
    pub(crate) fn receive(&mut self, receivers: impl IntoIterator<Item = u8>) {
        for receiver in receivers {
            for entry in self.wanted(receiver) {
                self.entry(receiver, &entry);
            }
        }
    }

    /// A receiver obtains the rows that it lacks from those that hold the dealings.
    pub(crate) fn repair(&mut self, receiver: u8) {
        let server = id(receiver);
        for (dealer, holders) in self.receivers[&server].wanted_values(&self.log) {
            for from in holders.iter() {
                self.receivers.get_mut(&from).unwrap().handle_log(&self.log);
                let value = self.receivers[&from].common_value(dealer, server);
                let it = self.receivers.get_mut(&server).unwrap();
                if let Some(value) = value {
                    it.handle_value(&self.log, from, dealer, &value);
                }
            }
        }
    }

    pub(crate) fn ephemeral(&self, dealer: u8) -> SessionScalar {
        SessionScalar::new(&self.dealer_seeds[&id(dealer)], b"dealer")
    }

    pub(crate) fn session(&self, receiver: u8) -> SessionScalar {
        SessionScalar::new(&self.transcript.seeds[&id(receiver)], b"receiver")
    }

    /// A complaint with the right K, whether or not the ciphertext is wrong.
    pub(crate) fn complaint(&self, receiver: u8, dealer: u8) -> HandoverEntryBody {
        let dealer = id(dealer);
        let context = [dealer, id(receiver)];
        let context = self.terms().context(HandoverPurpose::Complaint, &context);
        let ephemeral = &self.log.dealings()[&dealer].ephemeral;
        let session = self.session(receiver);
        let agreed = *session.agree(ephemeral);
        let proof = session.prove_agreed(ephemeral, &agreed, &context);
        HandoverEntryBody::Complain { dealer, agreed, proof }
    }

    /// The proof of a session key, for the context of `of`.
    pub(crate) fn session_proof(&self, receiver: u8, of: u8) -> LogarithmProof {
        let context = self.terms().context(HandoverPurpose::SessionKey, &[id(of)]);
        self.session(receiver).prove(&context)
    }
}
