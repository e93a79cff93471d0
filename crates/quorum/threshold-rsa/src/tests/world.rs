//! A handover in which servers lag, crash and lose messages, and faulty ones do anything.

use std::collections::BTreeMap;

use handover::entry::HandoverEntryBody;
use handover::participant::{GroupSize, ParticipantId, ParticipantSet};
use handover::scheme::{HandoverPurpose, HandoverScheme as _};
use handover::session_key::{SessionScalar, seal};
use num_bigint::BigInt;
use sim::SeededRng;

use super::bounds::{encode_row, stretch};
use super::{RsaGroup, reconstruct};
use crate::proof::ExponentProof;
use crate::scheme::{NoConstantProof, ThresholdRsaScheme};
use crate::sharing::{IntegerRowRepair, ThresholdRsaShare};

type HandoverAgreement = handover::HandoverAgreement<ThresholdRsaScheme>;
type HandoverDealer = handover::HandoverDealer<ThresholdRsaScheme>;
type HandoverDealing = handover::HandoverDealing<ThresholdRsaScheme>;
type HandoverEntry = handover::HandoverEntry<ThresholdRsaScheme>;
type HandoverReceiver = handover::HandoverReceiver<ThresholdRsaScheme>;
type HandoverTerms = handover::HandoverTerms<ThresholdRsaScheme>;

/// A correct new server. It has applied a prefix of the log.
struct CorrectReceiver {
    receiver: HandoverReceiver,
    position: usize,
    saved: Vec<u8>,
}

pub(super) struct HandoverWorld<'a> {
    old: &'a RsaGroup,
    terms: HandoverTerms,
    rng: SeededRng,
    /// The agreed states after each entry of the log.
    states: Vec<HandoverAgreement>,
    log: Vec<(ParticipantId, Vec<u8>)>,
    /// Entries that were sent, and may be committed, also more than once.
    pool: Vec<(ParticipantId, Vec<u8>)>,
    /// The dealers with the positions that they have reached.
    dealers: BTreeMap<ParticipantId, (HandoverDealer, usize)>,
    receivers: BTreeMap<ParticipantId, CorrectReceiver>,
    faulty_dealers: ParticipantSet,
    faulty_receivers: BTreeMap<ParticipantId, HandoverReceiver>,
    /// The secrets of faulty receivers.
    faulty_seeds: BTreeMap<ParticipantId, [u8; 32]>,
}

/// f random servers.
fn random_servers(rng: &mut SeededRng, size: GroupSize) -> ParticipantSet {
    let mut servers: Vec<_> = size.participants().collect();
    rng.shuffle(&mut servers);
    servers.into_iter().take(size.faulty()).collect()
}

impl<'a> HandoverWorld<'a> {
    pub(super) fn new(old: &'a RsaGroup, new: GroupSize, rng: &mut SeededRng) -> Self {
        let terms = HandoverTerms { run: rng.bytes(), old: Some(old.sharing().clone()), new };
        let faulty_new = random_servers(rng, new);
        let faulty_dealers = random_servers(rng, old.size());
        let mut world = Self {
            old,
            rng: SeededRng::new(rng.next_u64()),
            states: vec![HandoverAgreement::new(terms.clone())],
            log: Vec::new(),
            pool: Vec::new(),
            dealers: BTreeMap::new(),
            receivers: BTreeMap::new(),
            faulty_dealers,
            faulty_receivers: BTreeMap::new(),
            faulty_seeds: BTreeMap::new(),
            terms,
        };
        for server in world.terms.dealers().participants() {
            if !faulty_dealers.contains(server) {
                let (share, seed) = (&old.shares[&server], world.rng.bytes());
                let dealer = HandoverDealer::new(&world.terms, server, Some(share), &seed);
                world.dealers.insert(server, (dealer.unwrap(), 0));
            }
        }
        for server in new.participants() {
            let seed = world.rng.bytes();
            let receiver = HandoverReceiver::new(&world.terms, server, &seed).unwrap();
            if faulty_new.contains(server) {
                world.faulty_receivers.insert(server, receiver);
                world.faulty_seeds.insert(server, seed);
            } else {
                let saved = receiver.to_bytes().to_vec();
                world.receivers.insert(server, CorrectReceiver { receiver, position: 0, saved });
            }
        }
        world
    }

    fn state(&self) -> &HandoverAgreement {
        self.states.last().expect("the first one")
    }

    /// Runs until the handover is final, and checks everything.
    pub(super) fn run(mut self) -> (RsaGroup, HandoverAgreement) {
        let mut steps = 0;
        while !self.state().is_final() {
            steps += 1;
            assert!(steps < 20_000, "the handover never ends: {:?}", self.state().chosen());
            match self.rng.below(8) {
                0 => self.dealer_acts(),
                1 | 2 => self.receiver_acts(),
                3 | 4 => self.commit(),
                5 => self.receiver_asks(),
                6 => self.faulty_dealer_acts(),
                _ => self.faulty_receiver_acts(),
            }
        }
        self.finish()
    }

    fn pick<T>(rng: &mut SeededRng, map: &BTreeMap<ParticipantId, T>) -> ParticipantId {
        *rng.pick(&map.keys().copied().collect::<Vec<_>>()).expect("a group has such servers")
    }

    fn dealer_acts(&mut self) {
        let server = Self::pick(&mut self.rng, &self.dealers);
        let (dealer, position) = self.dealers.get_mut(&server).unwrap();
        *position += self.rng.index(self.log.len() - *position + 1);
        if let Some(entry) = dealer.wanted_entry(&self.states[*position]) {
            self.pool.push((server, entry.to_bytes()));
        }
    }

    /// A correct receiver reads on in the log, crashes, or sends what it wants committed.
    fn receiver_acts(&mut self) {
        let server = Self::pick(&mut self.rng, &self.receivers);
        let it = self.receivers.get_mut(&server).unwrap();
        if self.rng.chance(10) {
            it.receiver = HandoverReceiver::from_bytes(&self.terms, server, &it.saved).unwrap();
            it.position = 0;
        }
        it.position += self.rng.index(self.log.len() - it.position + 1);
        it.receiver.handle_log(&self.states[it.position]);
        it.saved = it.receiver.to_bytes().to_vec();
        for entry in it.receiver.wanted_entries(&self.states[it.position]) {
            if self.rng.chance(70) {
                self.pool.push((server, entry.to_bytes()));
            }
        }
    }

    /// A correct receiver asks for a common value; a faulty server answers with anything.
    fn receiver_asks(&mut self) {
        let server = Self::pick(&mut self.rng, &self.receivers);
        let it = &self.receivers[&server];
        let state = &self.states[it.position];
        let wanted = it.receiver.wanted_values(state);
        let Some((dealer, holders)) = self.rng.pick(&wanted) else { return };
        let holders: Vec<_> = holders.iter().collect();
        let holder = *self.rng.pick(&holders).unwrap();
        let value = match self.receivers.get(&holder) {
            // What it has said on the log is on its disk.
            Some(other) => {
                let other = HandoverReceiver::from_bytes(&self.terms, holder, &other.saved);
                Some(other.unwrap().common_value(*dealer, server).expect("it said so"))
            }
            None if self.rng.chance(50) => Some(self.rng.bytes::<70>().to_vec().into()),
            None => self.faulty_receivers[&holder].common_value(*dealer, server),
        };
        let (dealer, state) = (*dealer, state.clone());
        if let Some(value) = value.filter(|_| self.rng.chance(80)) {
            let it = self.receivers.get_mut(&server).unwrap();
            it.receiver.handle_value(&state, holder, dealer, &value);
        }
    }

    fn commit(&mut self) {
        if self.pool.is_empty() {
            return;
        }
        let place = self.rng.index(self.pool.len());
        let (author, bytes) = if self.rng.chance(90) {
            self.pool.swap_remove(place)
        } else {
            self.pool[place].clone()
        };
        let Ok(entry) = HandoverEntry::from_bytes(&bytes) else { return };
        let mut state = self.state().clone();
        if state.apply(author, &entry).is_ok() {
            self.log.push((author, bytes));
            self.states.push(state);
        } else {
            assert_eq!(state, *self.state(), "a refused entry changes nothing");
        }
    }

    fn submit(&mut self, author: ParticipantId, body: HandoverEntryBody<ThresholdRsaScheme>) {
        let run = self.terms.run;
        self.pool.push((author, HandoverEntry { run, body }.to_bytes()));
    }

    /// A faulty dealer sends a dealing that is wrong in one way, or right.
    fn faulty_dealer_acts(&mut self) {
        let faulty: Vec<_> = self.faulty_dealers.iter().collect();
        let server = *self.rng.pick(&faulty).expect("there are faulty dealers");
        if self.state().session_keys().len() < self.terms.new.quorum() || self.rng.chance(80) {
            return;
        }
        let mut dealing = self.faulty_dealing(server);
        match self.rng.below(12) {
            0 => {
                let other = self.state().dealings().values().next();
                if let Some(other) = other.map(|it| it.ephemeral) {
                    dealing.ephemeral = other;
                }
            }
            1 => {
                let at = self.rng.index(dealing.sharing.correction.len());
                dealing.sharing.correction[at] ^= 1;
            }
            2 => {
                let at = self.rng.index(dealing.sharing.elements.len());
                dealing.sharing.elements[at] ^= 1;
            }
            3 => dealing.sharing.elements.fill(0xff),
            4 => dealing.sharing.elements.truncate(64),
            5 => {
                let other = self.state().dealings().values().next();
                if let Some(other) = other.map(|it| it.sharing.clone()) {
                    dealing.sharing = other;
                }
            }
            _ => {}
        }
        self.submit(server, HandoverEntryBody::Deal(Box::new(dealing)));
    }

    /// A dealing to some of the receivers, in which some ciphertexts are wrong.
    fn faulty_dealing(&mut self, server: ParticipantId) -> HandoverDealing {
        let (terms, mut rng) = (self.terms.clone(), SeededRng::new(self.rng.next_u64()));
        let share = Some(&self.old.shares[&server]);
        let mut polynomial =
            ThresholdRsaScheme::polynomial(&terms, server, share, &rng.bytes()).unwrap();
        let key = self.old.sharing().key();
        if rng.chance(30) {
            // Rows of some servers are as long as is permitted, or longer.
            let held = key.held_row_bits(terms.new);
            let by = (BigInt::from(rng.next_u64()) << (held - 66)) >> rng.below(16);
            let at: Vec<_> = terms.new.participants().collect();
            stretch(key, self.old.size(), &mut polynomial, *rng.pick(&at).unwrap(), &by);
        }
        let ephemeral = SessionScalar::new(&rng.bytes(), b"dealer");
        let mut receivers: Vec<_> = self.state().session_keys().iter().collect();
        rng.shuffle(&mut receivers);
        receivers.truncate(terms.new.quorum() + rng.index(terms.new.faulty() + 1));
        let wrong = if rng.chance(50) { 0 } else { rng.below(100) };
        let ciphertexts = receivers.into_iter().map(|(&receiver, session)| {
            let is_wrong = rng.chance(wrong);
            let of = if is_wrong && rng.chance(50) { server } else { receiver };
            let mut row = encode_row(key, &polynomial, of);
            if is_wrong && of == receiver {
                // Too large, or another row.
                let at = if rng.chance(50) { 0 } else { row.len() - 1 };
                row[at] ^= 0x40;
            }
            let context = terms.context(HandoverPurpose::Encryption, &[server, receiver]);
            (receiver, seal(&ephemeral.agree(session), &context, row))
        });
        let ciphertexts = ciphertexts.collect();
        let context = terms.context(HandoverPurpose::EphemeralKey, &[server]);
        HandoverDealing {
            ciphertexts,
            ephemeral: ephemeral.public(),
            ephemeral_proof: ephemeral.prove(&context),
            constant_proof: NoConstantProof,
            sharing: ThresholdRsaScheme::commitment(&terms, server, &polynomial),
        }
    }

    /// A faulty receiver does what a correct one does, claims to have rows, complains about right
    /// ciphertexts or with a wrong key, or confirms without its share.
    fn faulty_receiver_acts(&mut self) {
        let server = Self::pick(&mut self.rng, &self.faulty_receivers);
        let state = self.state().clone();
        let receiver = self.faulty_receivers.get_mut(&server).unwrap();
        receiver.handle_log(&state);
        let is_registered = state.session_keys().contains_key(&server);
        let dealers: Vec<_> = state.dealings().keys().copied().collect();
        let body = match self.rng.below(if is_registered { 40 } else { 2 }) {
            0 => {
                let (key, seed) = (self.faulty_seeds[&server], self.rng.bytes());
                let session = SessionScalar::new(&key, b"receiver");
                let wrong = SessionScalar::new(&seed, b"receiver");
                let context = self.terms.context(HandoverPurpose::SessionKey, &[server]);
                let prover = if self.rng.chance(20) { &wrong } else { &session };
                HandoverEntryBody::Key { key: session.public(), proof: prover.prove(&context) }
            }
            1..=9 => {
                for entry in receiver.wanted_entries(&state) {
                    self.pool.push((server, entry.to_bytes()));
                }
                return;
            }
            10..=19 => HandoverEntryBody::Hold(dealers.into_iter().collect()),
            20 => {
                let Some(&dealer) = self.rng.pick(&dealers) else { return };
                let session = SessionScalar::new(&self.faulty_seeds[&server], b"receiver");
                let ephemeral = state.dealings()[&dealer].ephemeral;
                let mut agreed = *session.agree(&ephemeral);
                let context = self.terms.context(HandoverPurpose::Complaint, &[dealer, server]);
                let proof = session.prove_agreed(&ephemeral, &agreed, &context);
                if self.rng.chance(50) {
                    agreed = ephemeral;
                }
                HandoverEntryBody::Complain { dealer, agreed, proof }
            }
            21 => {
                let context = self.terms.context(HandoverPurpose::Possession, &[server]);
                let other = self.old.shares.values().next().expect("a group has shares");
                let powers = [(other.sharing().key().group().g().square(), {
                    other.sharing().verification_share(other.server()).square()
                })];
                let key = other.sharing().key();
                let proof = ExponentProof::new(key, other.secret(), &powers, &context);
                HandoverEntryBody::Confirm(proof)
            }
            _ => return,
        };
        self.submit(server, body);
    }

    fn finish(self) -> (RsaGroup, HandoverAgreement) {
        let state = self.state().clone();
        // The log alone determines the state.
        let mut replayed = HandoverAgreement::new(self.terms.clone());
        for (author, bytes) in &self.log {
            replayed.apply(*author, &HandoverEntry::from_bytes(bytes).unwrap()).unwrap();
        }
        assert_eq!(replayed, state);
        let faulty = (state.faulty_dealers().iter(), state.faulty_receivers().iter());
        for (mut accused, correct) in [
            (faulty.0.collect::<Vec<_>>(), self.dealers.keys().copied().collect::<Vec<_>>()),
            (faulty.1.collect::<Vec<_>>(), self.receivers.keys().copied().collect::<Vec<_>>()),
        ] {
            accused.retain(|server| correct.contains(server));
            assert_eq!(accused, [], "a correct server is accused");
        }
        let sharing = state.sharing().expect("it is final").clone();
        // Those that have saved what they need have their shares. They help the others.
        let mut shares: BTreeMap<_, ThresholdRsaShare> = BTreeMap::new();
        let mut without = Vec::new();
        for (server, mut it) in self.receivers {
            it.receiver.handle_log(&state);
            match it.receiver.into_share() {
                Some(share) => drop(shares.insert(server, share)),
                None => without.push(server),
            }
        }
        let signers = sharing.size().signer_count();
        assert!(shares.len() >= signers, "f'+1 correct servers have confirmed");
        without.extend(self.faulty_receivers.keys());
        let helped: Vec<_> = without
            .into_iter()
            .map(|server| {
                let mut repair = IntegerRowRepair::new(server);
                let mut values = shares.iter().map(|(from, it)| (*from, it.common_value(server)));
                let share = values.find_map(|(from, it)| repair.handle_value(&sharing, from, &it));
                (server, share.unwrap())
            })
            .collect();
        shares.extend(helped);
        let len = sharing.key().share_len(sharing.size());
        assert!(shares.values().all(|it| it.to_bytes().len() == len), "shares do not grow");
        let secret = reconstruct(self.old.shares.values());
        assert_eq!(reconstruct(shares.values()), secret, "the key stays the same");
        assert_eq!(reconstruct(shares.values().skip(shares.len() - signers)), secret);
        (RsaGroup { shares }, state)
    }
}
