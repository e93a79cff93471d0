//! A receiver: a server of the new group.

use std::collections::BTreeMap;

use encoding::{FieldReader, FieldWrite as _};
use random::wipe_stack;
use zeroize::Zeroizing;

use crate::agreement::HandoverAgreement;
use crate::element::MalformedHandoverMessage;
use crate::entry::{HandoverEntry, HandoverEntryBody};
use crate::participant::{ParticipantId, ParticipantSet};
use crate::scheme::{HandoverPurpose, HandoverScheme, HandoverTerms};
use crate::session_key::SessionScalar;

/// The chosen dealers, each with its commitment and a server's row.
type ChosenRows<'a, S> =
    Vec<(ParticipantId, &'a <S as HandoverScheme>::Commitment, &'a <S as HandoverScheme>::Row)>;

/// A new server in one handover. Its secrets are wiped when it is dropped, as it must be when the
/// handover ends, or is cancelled. What was saved must be destroyed then, too.
///
/// Its state changes only in [`Self::handle_log`] and [`Self::handle_value`]. Save
/// [`Self::to_bytes`] after each before the wanted entries are sent: others rely on rows that it
/// says it has.
pub struct HandoverReceiver<S: HandoverScheme> {
    server: ParticipantId,
    terms: HandoverTerms<S>,
    /// On the heap, so that no copy remains where the receiver is moved.
    seed: Zeroizing<Vec<u8>>,
    session: SessionScalar,
    rows: BTreeMap<ParticipantId, S::Row>,
    /// The dealers whose ciphertext for this server is wrong.
    wronged_by: ParticipantSet,
    repairs: BTreeMap<ParticipantId, S::Repair>,
    share: Option<S::Share>,
    /// The proof that it has its share. It is costly to compute, and stays the same.
    possession: Option<S::Possession>,
}

impl<S: HandoverScheme> HandoverReceiver<S> {
    /// The receiver whose secrets follow from a seed, which must be random and used for one
    /// handover only. `None` if the new group has no such server.
    pub fn new(terms: &HandoverTerms<S>, server: ParticipantId, seed: &[u8; 32]) -> Option<Self> {
        terms.new.contains(server).then(|| Self {
            server,
            terms: terms.clone(),
            session: SessionScalar::new(seed, b"receiver"),
            seed: Zeroizing::new(seed.to_vec()),
            rows: BTreeMap::new(),
            wronged_by: ParticipantSet::default(),
            repairs: BTreeMap::new(),
            share: None,
            possession: None,
        })
    }

    /// The share, when it has been computed.
    pub fn share(&self) -> Option<&S::Share> {
        self.share.as_ref()
    }

    /// The dealers whose dealings give it its rows, which [`Self::to_bytes`] contains.
    pub fn held(&self) -> ParticipantSet {
        self.rows.keys().copied().collect()
    }

    /// Ends the handover, with the share if the server has computed it. Otherwise it obtains its
    /// row from the other servers of its group.
    pub fn into_share(self) -> Option<S::Share> {
        self.share
    }

    /// Decrypts new dealings, and computes the share when it has all chosen rows. Call it after
    /// entries were applied. It takes long if [`Self::has_work`].
    pub fn handle_log(&mut self, agreement: &HandoverAgreement<S>) {
        let unopened: Vec<_> = self.unopened(agreement).collect();
        if !unopened.is_empty() && !self.has_lost_key(agreement) {
            for dealer in unopened {
                let dealing = &agreement.dealings()[&dealer];
                let agreed = self.session.agree(&dealing.ephemeral);
                match dealing.open_row(agreement.terms(), dealer, self.server, &agreed) {
                    Some(row) => {
                        self.rows.insert(dealer, row);
                    }
                    None => {
                        self.wronged_by.insert(dealer);
                    }
                }
            }
        }
        self.compute(agreement);
        wipe_stack();
    }

    /// Whether there are dealings to decrypt, or rows from which the share follows.
    pub fn has_work(&self, agreement: &HandoverAgreement<S>) -> bool {
        let has_unopened = self.unopened(agreement).next().is_some();
        self.chosen_rows(agreement).is_some() || has_unopened && !self.has_lost_key(agreement)
    }

    /// The dealers whose dealings have an own ciphertext that was not decrypted and is of use.
    fn unopened(&self, agreement: &HandoverAgreement<S>) -> impl Iterator<Item = ParticipantId> {
        let dealings = agreement.dealings().iter();
        let has_own = dealings.filter(|(_, it)| it.ciphertexts.contains_key(&self.server));
        has_own.map(|(dealer, _)| *dealer).filter(|dealer| {
            let is_new = !self.rows.contains_key(dealer) && !self.wronged_by.contains(*dealer);
            is_new && (agreement.sharing().is_none() || agreement.chosen().contains(*dealer))
        })
    }

    /// Whether the secret of the session key that the log has is lost, as in a store that was
    /// restored. Then this server cannot decrypt, and must not complain.
    fn has_lost_key(&self, agreement: &HandoverAgreement<S>) -> bool {
        let own = self.session.public();
        agreement.session_keys().get(&self.server).is_some_and(|key| *key != own)
    }

    /// The commitments and the rows of the chosen dealings, if it has all and no share yet.
    fn chosen_rows<'a>(&'a self, agreement: &'a HandoverAgreement<S>) -> Option<ChosenRows<'a, S>> {
        let has_choice = self.share.is_none() && agreement.sharing().is_some();
        let chosen = has_choice.then(|| agreement.chosen())?;
        let rows = chosen.iter().map(|dealer| {
            let dealing = &agreement.dealings()[&dealer];
            Some((dealer, &dealing.sharing, self.rows.get(&dealer)?))
        });
        rows.collect()
    }

    fn compute(&mut self, agreement: &HandoverAgreement<S>) {
        let (Some(sharing), Some(chosen)) = (agreement.sharing(), self.chosen_rows(agreement))
        else {
            return;
        };
        let terms = agreement.terms();
        let share = S::combine_rows(terms, self.server, &chosen, sharing);
        let context = terms.context(HandoverPurpose::Possession, &[self.server]);
        self.possession = share.as_ref().map(|share| S::prove_possession(share, &context));
        self.share = share;
    }

    /// The entries that the server wants committed now. They stay the same until the log or its
    /// rows change: send them again until they are committed.
    pub fn wanted_entries(&self, agreement: &HandoverAgreement<S>) -> Vec<HandoverEntry<S>> {
        let terms = agreement.terms();
        let entry = |body| HandoverEntry { run: terms.run, body };
        if agreement.is_final() || agreement.faulty_receivers().contains(self.server) {
            return Vec::new();
        }
        if !agreement.session_keys().contains_key(&self.server) {
            let context = terms.context(HandoverPurpose::SessionKey, &[self.server]);
            let (key, proof) = (self.session.public(), self.session.prove(&context));
            return vec![entry(HandoverEntryBody::Key { key, proof })];
        }
        let mut entries: Vec<_> = self
            .wronged_by
            .without(agreement.faulty_dealers())
            .iter()
            .map(|dealer| entry(self.complaint(agreement, dealer)))
            .collect();
        let is_counted = |dealer: &ParticipantId| agreement.holders(*dealer).contains(self.server);
        let uncounted = self.rows.iter().filter(|(dealer, _)| !is_counted(dealer));
        let held: ParticipantSet =
            uncounted.filter(|(_, row)| S::may_hold(terms, row)).map(|(it, _)| *it).collect();
        if !held.is_empty() && agreement.sharing().is_none() {
            entries.push(entry(HandoverEntryBody::Hold(held)));
        }
        if let Some(proof) = &self.possession
            && !agreement.has_confirmed(self.server)
        {
            entries.push(entry(HandoverEntryBody::Confirm(proof.clone())));
        }
        entries
    }

    fn complaint(
        &self,
        agreement: &HandoverAgreement<S>,
        dealer: ParticipantId,
    ) -> HandoverEntryBody<S> {
        let ephemeral = &agreement.dealings()[&dealer].ephemeral;
        let agreed = self.session.agree(ephemeral);
        let context = agreement.terms().context(HandoverPurpose::Complaint, &[dealer, self.server]);
        let proof = self.session.prove_agreed(ephemeral, &agreed, &context);
        HandoverEntryBody::Complain { dealer, agreed: *agreed, proof }
    }

    /// The dealers of whose dealings the server lacks its row, each with the other servers that
    /// have theirs: ask these for their common values.
    pub fn wanted_values(
        &self,
        agreement: &HandoverAgreement<S>,
    ) -> Vec<(ParticipantId, ParticipantSet)> {
        let own: ParticipantSet = [self.server].into_iter().collect();
        let chosen = agreement.sharing().map(|_| agreement.chosen());
        let is_wanted = |dealer: ParticipantId| match chosen {
            Some(chosen) => chosen.contains(dealer),
            None => !agreement.faulty_dealers().contains(dealer),
        };
        let dealers = agreement.dealings().keys().copied();
        let lacking = dealers.filter(|it| !self.rows.contains_key(it) && is_wanted(*it));
        let asked = lacking.map(|dealer| (dealer, agreement.holders(dealer).without(own)));
        asked.filter(|(_, holders)| !holders.is_empty()).collect()
    }

    /// The answer to another new server that asks for the common value of a dealing. Secret: send
    /// it to that server only, over a link with forward secrecy. `None` if this server lacks its
    /// own row.
    pub fn common_value(
        &self,
        dealer: ParticipantId,
        other: ParticipantId,
    ) -> Option<Zeroizing<S::Value>> {
        let row = self.rows.get(&dealer).filter(|_| self.terms.new.contains(other))?;
        let value = S::common_value(row, other);
        wipe_stack();
        Some(value)
    }

    /// Takes a common value of a dealing from another new server.
    pub fn handle_value(
        &mut self,
        agreement: &HandoverAgreement<S>,
        from: ParticipantId,
        dealer: ParticipantId,
        value: &S::Value,
    ) {
        let Some(dealing) = agreement.dealings().get(&dealer) else { return };
        if self.rows.contains_key(&dealer) {
            return;
        }
        let repair = self.repairs.entry(dealer).or_insert_with(|| S::new_repair(self.server));
        let row = S::repair(agreement.terms(), &dealing.sharing, repair, from, value);
        if let Some(row) = row {
            self.repairs.remove(&dealer);
            self.rows.insert(dealer, row);
            self.compute(agreement);
        }
        wipe_stack();
    }

    /// The state for the store: the seed, and the rows. Secret.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let len = 36 + self.rows.len() * (1 + S::row_len(&self.terms));
        let mut bytes = Zeroizing::new(Vec::with_capacity(len));
        bytes.extend_from_slice(&self.seed);
        bytes.put_count(self.rows.len());
        for (dealer, row) in &self.rows {
            bytes.push(dealer.number());
            bytes.extend(&*S::encode_row(row));
        }
        bytes
    }

    /// Decodes the output of [`Self::to_bytes`], for the same server. Call [`Self::handle_log`]
    /// with the state of the log then.
    ///
    /// # Errors
    /// If the bytes are no such state.
    pub fn from_bytes(
        terms: &HandoverTerms<S>,
        server: ParticipantId,
        bytes: &[u8],
    ) -> Result<Self, MalformedHandoverMessage> {
        let mut reader = FieldReader::new(bytes);
        let seed = Zeroizing::new(reader.take()?);
        let receiver = Self::new(terms, server, &seed);
        let mut receiver =
            receiver.ok_or(MalformedHandoverMessage("no server of the new group"))?;
        for _ in 0..reader.u32()? {
            let dealer = ParticipantId::read(&mut reader)?;
            receiver.rows.insert(dealer, S::read_row(terms, &mut reader)?);
        }
        reader.finish()?;
        Ok(receiver)
    }
}
