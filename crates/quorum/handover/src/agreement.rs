//! The agreed state of a handover, which follows from the entries of the log and is the same at
//! every server.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::dealing::HandoverDealing;
use crate::element::PrimeOrderPoint;
use crate::entry::{
    HandoverEntry, HandoverEntryBody, HandoverEntryHeader, HandoverEntryKind, HandoverRole,
};
use crate::participant::{ParticipantId, ParticipantSet};
use crate::proof::{LogarithmProof, of_base};
use crate::scheme::{DealingFault, HandoverPurpose, HandoverScheme, HandoverTerms};

/// The agreed state of a handover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoverAgreement<S: HandoverScheme> {
    terms: HandoverTerms<S>,
    session_keys: BTreeMap<ParticipantId, PrimeOrderPoint>,
    /// Shared, because they are large, and servers keep copies of the state.
    dealings: BTreeMap<ParticipantId, Arc<HandoverDealing<S>>>,
    /// The new servers that have their row of each dealing.
    holders: BTreeMap<ParticipantId, ParticipantSet>,
    /// The unaccused dealers whose dealing has 2f'+1 holders, until f+1 are chosen.
    chosen: ParticipantSet,
    /// The new group's sharing, when all dealers are chosen.
    sharing: Option<S::Sharing>,
    confirmed: ParticipantSet,
    faulty_dealers: ParticipantSet,
    faulty_receivers: ParticipantSet,
}

/// Why an entry changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandoverRefusal {
    /// The handover is over.
    #[error("the handover is over")]
    Ended,
    /// The entry belongs to another handover.
    #[error("for another handover")]
    OtherRun,
    /// The author is not a server of the group that may send this entry.
    #[error("the author is not a server of this group")]
    Author,
    /// The author is known to be faulty.
    #[error("the author is faulty")]
    Faulty,
    /// There is such an entry of the author, or it says nothing new.
    #[error("there is one already")]
    Repeated,
    /// The author has no session key yet, a receiver or a dealing that the entry names is not
    /// there yet, or not all dealers are chosen yet.
    #[error("too early")]
    Early,
}

/// The effect of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandoverEffect {
    /// It was counted.
    Counted,
    /// It was counted, and completes the choice of the dealers.
    Chosen,
    /// It was counted, and ends the handover: the old group wipes its shares.
    Final,
    /// A complaint has proven a dealer faulty.
    DealerFaulty {
        /// The dealer.
        dealer: ParticipantId,
    },
    /// The entry proves its author faulty.
    AuthorFaulty {
        /// What is wrong with it.
        why: HandoverFault,
    },
}

/// Why an entry proves its author faulty. A correct server never signs such an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandoverFault {
    /// A dealing is wrong.
    #[error(transparent)]
    Dealing(#[from] DealingFault),
    /// The proof that the author knows the secret session key, or its share, is wrong.
    #[error("a proof of knowledge is wrong")]
    Knowledge,
    /// A complaint is about a right ciphertext, or has a wrong key.
    #[error("the complaint is unfounded")]
    Complaint,
}

impl<S: HandoverScheme> HandoverAgreement<S> {
    /// The state at the beginning.
    pub fn new(terms: HandoverTerms<S>) -> Self {
        Self {
            terms,
            session_keys: BTreeMap::new(),
            dealings: BTreeMap::new(),
            holders: BTreeMap::new(),
            chosen: ParticipantSet::default(),
            sharing: None,
            confirmed: ParticipantSet::default(),
            faulty_dealers: ParticipantSet::default(),
            faulty_receivers: ParticipantSet::default(),
        }
    }

    /// The terms.
    pub fn terms(&self) -> &HandoverTerms<S> {
        &self.terms
    }

    /// The new group's sharing, when the dealers are chosen.
    pub fn sharing(&self) -> Option<&S::Sharing> {
        self.sharing.as_ref()
    }

    /// The dealers whose dealings make up the new sharing, in a key generation and in a resharing
    /// f+1 of them. Fewer while the choice is not complete.
    pub fn chosen(&self) -> ParticipantSet {
        self.chosen
    }

    /// Whether 2f'+1 new servers have confirmed that they have their shares.
    pub fn is_final(&self) -> bool {
        self.confirmed.len() >= self.terms.new.quorum()
    }

    /// The dealers that are proven faulty.
    pub fn faulty_dealers(&self) -> ParticipantSet {
        self.faulty_dealers
    }

    /// The new servers that are proven faulty.
    pub fn faulty_receivers(&self) -> ParticipantSet {
        self.faulty_receivers
    }

    /// The dealers whose dealings are in the log.
    pub fn dealt(&self) -> ParticipantSet {
        self.dealings.keys().copied().collect()
    }

    /// The session keys of the new servers that have registered.
    pub fn session_keys(&self) -> &BTreeMap<ParticipantId, PrimeOrderPoint> {
        &self.session_keys
    }

    /// The dealings, by dealer.
    pub fn dealings(&self) -> &BTreeMap<ParticipantId, Arc<HandoverDealing<S>>> {
        &self.dealings
    }

    /// The new servers that have their row of a dealing.
    pub fn holders(&self, dealer: ParticipantId) -> ParticipantSet {
        self.holders.get(&dealer).copied().unwrap_or_default()
    }

    /// Whether a new server has confirmed that it has its share.
    pub fn has_confirmed(&self, server: ParticipantId) -> bool {
        self.confirmed.contains(server)
    }

    /// Checks an entry without changing anything: what is cheap to check.
    ///
    /// # Errors
    /// Why [`Self::apply`] would refuse it.
    pub fn check(
        &self,
        author: ParticipantId,
        entry: &HandoverEntry<S>,
    ) -> Result<(), HandoverRefusal> {
        self.check_author(author, entry.run, entry.role())?;
        let (is_repeated, is_early) = self.progress(author, entry.kind());
        match &entry.body {
            HandoverEntryBody::Deal(dealing) => {
                let mut receivers = dealing.ciphertexts.keys();
                let known = receivers.all(|it| self.session_keys.contains_key(it));
                refuse(is_repeated, is_early || !known)
            }
            HandoverEntryBody::Hold(dealers) => {
                let counted = |dealer| self.holders(dealer).contains(author);
                let known = dealers.iter().all(|it| self.dealings.contains_key(&it));
                refuse(is_repeated || dealers.iter().all(counted), is_early || !known)
            }
            HandoverEntryBody::Key { .. }
            | HandoverEntryBody::Complain { .. }
            | HandoverEntryBody::Confirm(_) => refuse(is_repeated, is_early),
        }
    }

    /// Checks what the beginning of an encoded entry says. A server calls this, and verifies the
    /// author's signature, before it decodes the entry, because its points are costly to decode.
    ///
    /// # Errors
    /// Why [`Self::apply`] would refuse it.
    pub fn check_header(
        &self,
        author: ParticipantId,
        header: &HandoverEntryHeader,
    ) -> Result<(), HandoverRefusal> {
        self.check_author(author, header.run, header.kind.role())?;
        let (is_repeated, is_early) = self.progress(author, header.kind);
        refuse(is_repeated, is_early)
    }

    fn check_author(
        &self,
        author: ParticipantId,
        run: [u8; 32],
        role: HandoverRole,
    ) -> Result<(), HandoverRefusal> {
        let (group, faulty) = match role {
            HandoverRole::Dealer => (self.terms.dealers(), self.faulty_dealers),
            HandoverRole::Receiver => (self.terms.new, self.faulty_receivers),
        };
        if run != self.terms.run {
            return Err(HandoverRefusal::OtherRun);
        }
        if self.is_final() {
            return Err(HandoverRefusal::Ended);
        }
        if !group.contains(author) {
            return Err(HandoverRefusal::Author);
        }
        if faulty.contains(author) {
            return Err(HandoverRefusal::Faulty);
        }
        Ok(())
    }

    /// Whether an entry of an author is repeated, and whether it is too early, as far as its kind
    /// tells.
    fn progress(&self, author: ParticipantId, kind: HandoverEntryKind) -> (bool, bool) {
        let is_registered = self.session_keys.contains_key(&author);
        match kind {
            HandoverEntryKind::Key => (is_registered, false),
            HandoverEntryKind::Deal => (self.dealings.contains_key(&author), false),
            HandoverEntryKind::Hold => (false, !is_registered),
            HandoverEntryKind::Complain { dealer } => {
                let dealing = self.dealings.get(&dealer);
                let has_ciphertext = dealing.is_some_and(|it| it.ciphertexts.contains_key(&author));
                (self.faulty_dealers.contains(dealer), !has_ciphertext)
            }
            HandoverEntryKind::Confirm => {
                (self.confirmed.contains(author), self.sharing.is_none() || !is_registered)
            }
        }
    }

    /// Applies an entry whose author has signed it. Checks everything before it changes anything.
    ///
    /// # Errors
    /// Why the entry changes nothing: as [`Self::check`].
    pub fn apply(
        &mut self,
        author: ParticipantId,
        entry: &HandoverEntry<S>,
    ) -> Result<HandoverEffect, HandoverRefusal> {
        self.check(author, entry)?;
        let applied = match &entry.body {
            HandoverEntryBody::Key { key, proof } => self.register(author, key, proof),
            HandoverEntryBody::Deal(dealing) => self.deal(author, dealing),
            HandoverEntryBody::Hold(dealers) => Ok(self.hold(author, *dealers)),
            HandoverEntryBody::Complain { dealer, agreed, proof } => {
                self.complain(author, *dealer, agreed, proof)
            }
            HandoverEntryBody::Confirm(proof) => self.confirm(author, proof),
        };
        Ok(applied.unwrap_or_else(|why| {
            match entry.role() {
                HandoverRole::Dealer => self.accuse_dealer(author),
                HandoverRole::Receiver => {
                    self.faulty_receivers.insert(author);
                }
            }
            HandoverEffect::AuthorFaulty { why }
        }))
    }

    fn register(
        &mut self,
        author: ParticipantId,
        key: &PrimeOrderPoint,
        proof: &LogarithmProof,
    ) -> Result<HandoverEffect, HandoverFault> {
        let context = self.terms.context(HandoverPurpose::SessionKey, &[author]);
        if !proof.verify(&[of_base(*key)], &context) {
            return Err(HandoverFault::Knowledge);
        }
        self.session_keys.insert(author, *key);
        Ok(HandoverEffect::Counted)
    }

    fn deal(
        &mut self,
        author: ParticipantId,
        dealing: &HandoverDealing<S>,
    ) -> Result<HandoverEffect, HandoverFault> {
        dealing.check(author, &self.terms)?;
        self.dealings.insert(author, Arc::new(dealing.clone()));
        Ok(HandoverEffect::Counted)
    }

    fn hold(&mut self, author: ParticipantId, dealers: ParticipantSet) -> HandoverEffect {
        for dealer in dealers.iter() {
            self.holders.entry(dealer).or_default().insert(author);
        }
        if self.sharing.is_some() {
            return HandoverEffect::Counted;
        }
        for dealer in dealers.iter() {
            let is_held = self.holders(dealer).len() >= self.terms.new.quorum();
            if is_held && !self.faulty_dealers.contains(dealer) {
                self.chosen.insert(dealer);
            }
            if self.chosen.len() == self.terms.dealers().signer_count() {
                self.sharing = Some(self.combine());
                return HandoverEffect::Chosen;
            }
        }
        HandoverEffect::Counted
    }

    fn combine(&self) -> S::Sharing {
        let chosen = self.chosen.iter().map(|it| (it, &self.dealings[&it].sharing));
        S::combine(&self.terms, &chosen.collect::<Vec<_>>())
    }

    fn complain(
        &mut self,
        author: ParticipantId,
        dealer: ParticipantId,
        agreed: &PrimeOrderPoint,
        proof: &LogarithmProof,
    ) -> Result<HandoverEffect, HandoverFault> {
        let (key, dealing) = (self.session_keys[&author], &self.dealings[&dealer]);
        let context = self.terms.context(HandoverPurpose::Complaint, &[dealer, author]);
        let powers = [of_base(key), (dealing.ephemeral, *agreed)];
        if !proof.verify(&powers, &context)
            || dealing.open_row(&self.terms, dealer, author, agreed).is_some()
        {
            return Err(HandoverFault::Complaint);
        }
        self.accuse_dealer(dealer);
        Ok(HandoverEffect::DealerFaulty { dealer })
    }

    /// The dealer has signed an entry that cannot be applied, as every server sees. It is proven
    /// faulty.
    pub fn exclude_dealer(&mut self, dealer: ParticipantId) {
        self.accuse_dealer(dealer);
    }

    /// A dealer that was chosen with others before it was accused stays chosen: at least f'+1
    /// correct servers have their rows of its dealing, and help the others.
    fn accuse_dealer(&mut self, dealer: ParticipantId) {
        self.faulty_dealers.insert(dealer);
        if self.sharing.is_none() {
            self.chosen = self.chosen.without([dealer].into_iter().collect());
        }
    }

    fn confirm(
        &mut self,
        author: ParticipantId,
        proof: &S::Possession,
    ) -> Result<HandoverEffect, HandoverFault> {
        let sharing = self.sharing.as_ref().ok_or(HandoverFault::Knowledge)?;
        let context = self.terms.context(HandoverPurpose::Possession, &[author]);
        if !S::verify_possession(sharing, author, proof, &context) {
            return Err(HandoverFault::Knowledge);
        }
        self.confirmed.insert(author);
        let is_final = self.is_final();
        Ok(if is_final { HandoverEffect::Final } else { HandoverEffect::Counted })
    }
}

/// An entry that is both too early and repeated is refused as too early.
fn refuse(is_repeated: bool, is_early: bool) -> Result<(), HandoverRefusal> {
    match (is_early, is_repeated) {
        (true, _) => Err(HandoverRefusal::Early),
        (_, true) => Err(HandoverRefusal::Repeated),
        _ => Ok(()),
    }
}
