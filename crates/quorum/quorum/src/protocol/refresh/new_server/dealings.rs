//! The dealings that a new server receives. It checks them, and confirms or complains.

use std::collections::BTreeSet;
use std::time::Duration;

use random::{RandomError, RandomGenerator};
use zeroize::Zeroizing;

use super::super::agreement::{RefreshAgreement, RefreshRun};
use super::super::dealing::{Dealing, DealingVerdict};
use super::super::entry::{Complaint, LogEntry, LogEntryBody, RefreshRole};
use super::super::manifest::{DealingManifest, DealingRound};
use super::super::message::RefreshMessage;
use super::super::output::{RefreshJob, RefreshOutput, RefreshTask, RunItemName};
use super::super::session::SessionSecret;
use super::{NewServer, NewServerRetry};
use crate::protocol::combination::{Label, ServerIndex};
use crate::protocol::wire::Sha256Digest;

/// The shortest time that a new server waits for the last f designated dealers.
const MIN_NEED_DELAY: Duration = Duration::from_millis(500);

/// A dealing that an old server has sent.
pub(super) struct ReceivedDealing {
    /// `None` once it is rejected. Only its labels are kept.
    pub(super) dealing: Option<Dealing>,
    labels: BTreeSet<Label>,
    pub(super) state: ReceivedDealingState,
}

pub(super) enum ReceivedDealingState {
    Waiting,
    InWork,
    Confirmed([u8; 64]),
    /// A ciphertext is invalid, and a complaint is due.
    Wrong {
        label: Label,
        subshare: Label,
    },
    Refused,
}

impl ReceivedDealing {
    pub(super) fn new(dealing: Dealing, state: ReceivedDealingState) -> Self {
        let labels = dealing.proofs.manifest.labels().collect();
        Self { dealing: Some(dealing), labels, state }
    }

    fn refuse(&mut self) {
        (self.dealing, self.state) = (None, ReceivedDealingState::Refused);
    }
}

impl NewServer {
    /// Keeps one dealing for each dealer and label. A correct dealer does not deal a label in two
    /// rounds, so this keeps at most one dealing of each label per dealer.
    pub(super) fn handle_dealing(
        &mut self,
        from: ServerIndex,
        dealing: Dealing,
        agreement: &RefreshAgreement,
        run: &RefreshRun,
    ) {
        let manifest = &dealing.proofs.manifest;
        let key = (from, manifest.round);
        if let Some(known) = self.dealings.get(&key) {
            // The dealer has not received the confirmation, or sends another dealing.
            if let (ReceivedDealingState::Confirmed(signature), Some(known)) =
                (&known.state, &known.dealing)
                && known.proofs.digest == dealing.proofs.digest
            {
                self.send_confirmation(from, dealing.proofs.digest, *signature);
            }
            return;
        }
        let mut others = self.dealings.iter().filter(|((dealer, _), _)| *dealer == from);
        if others.any(|(_, it)| manifest.labels().any(|label| it.labels.contains(&label))) {
            return;
        }
        let old = &agreement.epoch().group;
        let delivery = &dealing.delivery;
        let message =
            DealingManifest::delivery(dealing.proofs.digest, self.index, &delivery.digests());
        let is_dealers = manifest.dealer == from
            && manifest.fits(run.id(), old.combination())
            && dealing.has_lengths(self.index, &self.new, &self.parameters)
            && old.verify(from, &message, &delivery.signature);
        if is_dealers && self.session.is_some() && !run.excluded().contains(&from) {
            self.dealings.insert(key, ReceivedDealing::new(dealing, ReceivedDealingState::Waiting));
        }
    }

    /// The number of known dealings of a dealer, and of those whose bytes are kept.
    #[cfg(test)]
    pub(in super::super) fn kept_dealings(&self, of: ServerIndex) -> (usize, usize) {
        let known = self.dealings.iter().filter(|((dealer, _), _)| *dealer == of);
        let known: Vec<_> = known.map(|(_, received)| received).collect();
        (known.len(), known.iter().filter(|it| it.dealing.is_some()).count())
    }

    /// New node, steps 4 and 5.
    pub(super) fn check_dealings(&mut self, run: &RefreshRun) {
        let Some(owner) = self.owner() else { return };
        let mut waiting = self.dealings.values_mut();
        if !waiting.any(|received| matches!(received.state, ReceivedDealingState::Waiting)) {
            return;
        }
        // A correct dealer encrypts for the registered key. This server could not complain about a
        // ciphertext that was sent earlier, or for another key.
        if run.session_keys().get(&self.index) != Some(&owner.session.public()) {
            return;
        }
        for received in self.dealings.values_mut() {
            if let (ReceivedDealingState::Waiting, Some(dealing)) =
                (&received.state, &received.dealing)
            {
                let task = RefreshTask::Verify {
                    dealing: dealing.clone(),
                    witnesses: self.old_witnesses.clone(),
                    owner: owner.clone(),
                };
                received.state = ReceivedDealingState::InWork;
                self.outputs
                    .push_back(RefreshOutput::Job(RefreshJob { scope_digest: self.run, task }));
            }
        }
    }

    pub(super) fn handle_verdict(
        &mut self,
        dealing: (ServerIndex, DealingRound),
        digest: Sha256Digest,
        verdict: DealingVerdict,
    ) {
        let confirmation = self.confirm(digest);
        let Some(received) = self.dealings.get_mut(&dealing) else { return };
        match (verdict, &received.dealing) {
            // New node, step 6 (3.3.1): the confirmation goes to the dealer after the dealing is
            // stored, because others may need its proofs.
            (DealingVerdict::Right, Some(right)) => {
                let mut bytes = Zeroizing::new(Vec::new());
                right.write(&mut bytes);
                received.state = ReceivedDealingState::Confirmed(confirmation);
                let item = RunItemName::Dealing(dealing.0, dealing.1);
                self.outputs.push_back(RefreshOutput::Save { item, bytes });
                self.send_confirmation(dealing.0, digest, confirmation);
            }
            (DealingVerdict::WrongSubshare { label, subshare }, Some(_)) => {
                received.state = ReceivedDealingState::Wrong { label, subshare };
            }
            _ => received.refuse(),
        }
    }

    pub(super) fn complain(
        &mut self,
        now: Duration,
        run: &RefreshRun,
        generator: &mut RandomGenerator,
    ) -> Result<(), RandomError> {
        let Some(session) = &self.session else { return Ok(()) };
        for received in self.dealings.values_mut() {
            let ReceivedDealingState::Wrong { label, subshare } = received.state else { continue };
            let Some(dealing) = &received.dealing else { continue };
            let complaint = complaint(dealing, (label, subshare), self.index, session, generator)?;
            received.refuse();
            let dealer = complaint.manifest.dealer;
            let body = LogEntryBody::Complaint { run: self.run, complaint: Box::new(complaint) };
            self.complaints.insert(dealer, LogEntry::new(self.index, body, &self.identity));
        }
        for (&dealer, entry) in &self.complaints {
            if !run.excluded().contains(&dealer)
                && self.retries.is_due(NewServerRetry::Complain(dealer), now)
            {
                self.outputs.push_back(RefreshOutput::Submit(entry.clone()));
            }
        }
        Ok(())
    }

    /// The request for dealings of all labels (3.3.1). The dealings of 2f+1 servers always arrive.
    /// The other dealers get as much time again, so that the labels of a server that is slow, but
    /// not twice as slow, are not dealt twice.
    pub(super) fn send_need(
        &mut self,
        now: Duration,
        agreement: &RefreshAgreement,
        run: &RefreshRun,
    ) {
        let old = agreement.epoch().group.combination();
        // Before that, no dealing can be confirmed.
        let are_registered = run.session_keys().len() >= self.new.quorum();
        if !are_registered || run.next_epoch().is_some() || run.read_chosen(old).is_some() {
            return;
        }
        let since = *self.registered_at.get_or_insert(now);
        let lacking = old.labels().filter(|label| run.chosen(*label).is_none());
        let late: BTreeSet<_> = lacking.map(|label| old.designated_dealer(label)).collect();
        if late.len() > old.faulty() {
            return;
        }
        let delay = now.saturating_sub(since).max(MIN_NEED_DELAY).min(self.delays.need);
        if self.retries.is_due_after(NewServerRetry::Need, now, delay) {
            for server in old.servers() {
                let message = RefreshMessage::Need { run: self.run };
                self.outputs
                    .push_back(RefreshOutput::Send { to: (RefreshRole::Old, server), message });
            }
        }
    }
}

/// The evidence that a subshare (t, u) of a dealing is wrong.
pub(in super::super) fn complaint(
    dealing: &Dealing,
    (label, subshare): (Label, Label),
    index: ServerIndex,
    session: &SessionSecret,
    generator: &mut RandomGenerator,
) -> Result<Complaint, RandomError> {
    let Dealing { proofs, delivery } = dealing;
    let row = proofs.manifest.labels().position(|it| it == label).expect("the row was checked");
    // The complaint makes K public.
    let agreed = *session.agree(&proofs.manifest.ephemeral);
    let context = Complaint::context(proofs.digest, index);
    let proof = session.prove(&proofs.manifest.ephemeral, &agreed, &context, generator)?;
    Ok(Complaint {
        manifest: proofs.manifest.clone(),
        label,
        subshare,
        proofs: proofs.rows[row].clone(),
        ciphertexts: delivery.digests(),
        delivery: delivery.signature,
        ciphertext: delivery.ciphertexts[row].clone(),
        agreed,
        proof,
    })
}
