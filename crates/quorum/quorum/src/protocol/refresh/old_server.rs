//! A server of the old group in a refresh (thesis, 3.3).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use encoding::{FieldReader, FieldWrite as _};
use keys::IdentitySecretKey;
use random::{RandomError, RandomGenerator, wipe_stack};
use zeroize::Zeroizing;

use super::agreement::{RefreshAgreement, RefreshRun};
use super::dealing::{Dealing, DealingDelivery, DealingProofs, DealingSeed};
use super::entry::{LogEntry, LogEntryBody, RefreshRole};
use super::manifest::{DealingManifest, DealingRound, MAX_ROUNDS};
use super::message::{MAX_MESSAGE_LEN, RefreshMessage};
use super::output::{
    LabeledShares, RefreshDelays, RefreshJob, RefreshJobResult, RefreshOutcome, RefreshOutput,
    RefreshTask, RunItemName,
};
use super::retries::RetrySchedule;
use crate::protocol::combination::{Label, ServerIndex};
use crate::protocol::wire::{MalformedEncoding, QuorumFields as _, Sha256Digest};

/// An old server in one run, from when the run is open.
pub struct OldServer {
    index: ServerIndex,
    identity: Arc<IdentitySecretKey>,
    run: Sha256Digest,
    /// `None` once the epoch has ended.
    shares: Option<Arc<LabeledShares>>,
    dealings: BTreeMap<DealingRound, OwnDealing>,
    /// The new servers that need dealings of all labels.
    needs: BTreeSet<ServerIndex>,
    retries: RetrySchedule<OldServerRetry>,
    outputs: VecDeque<RefreshOutput>,
    is_over: bool,
}

/// A dealing of this server.
struct OwnDealing {
    labels: Vec<Label>,
    seed: Arc<DealingSeed>,
    /// The proofs of the rows that have been computed.
    rows: BTreeMap<Label, Vec<u8>>,
    proofs: Option<Arc<DealingProofs>>,
    deliveries: BTreeMap<ServerIndex, DealingDeliveryState>,
    confirmations: BTreeMap<ServerIndex, [u8; 64]>,
}

enum DealingDeliveryState {
    InWork,
    Ready(Arc<DealingDelivery>),
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum OldServerRetry {
    Deliver(DealingRound, ServerIndex),
    WriteProof(DealingRound),
}

impl OldServer {
    /// A server of the old group with its `shares`, in the open run of `agreement`. `saved` are the
    /// items that it saved in this run before a restart.
    ///
    /// # Errors
    /// If a saved item is malformed.
    ///
    /// # Panics
    /// If no run is open.
    pub fn new(
        index: ServerIndex,
        identity: Arc<IdentitySecretKey>,
        shares: Arc<LabeledShares>,
        delays: &RefreshDelays,
        agreement: &RefreshAgreement,
        saved: &BTreeMap<RunItemName, Zeroizing<Vec<u8>>>,
    ) -> Result<Self, MalformedEncoding> {
        let run = agreement.run().expect("a run is open");
        let mut server = Self {
            index,
            identity,
            run: run.id(),
            shares: Some(shares),
            dealings: BTreeMap::new(),
            needs: BTreeSet::new(),
            retries: RetrySchedule::new(delays.resend),
            outputs: VecDeque::new(),
            is_over: false,
        };
        for (item, bytes) in saved {
            if let RunItemName::Seed(round) = item {
                let mut reader = FieldReader::new(bytes);
                let seed = DealingSeed::from_bytes(&Zeroizing::new(reader.take()?));
                let mut labels = Vec::new();
                for _ in 0..reader.u16()? {
                    let label = reader.label()?;
                    let holds = agreement.epoch().group.combination().holds(index, label);
                    labels
                        .push(holds.then_some(label).ok_or(MalformedEncoding("label of another"))?);
                }
                reader.finish()?;
                server.begin_dealing(*round, labels, seed, agreement, run);
            }
        }
        // The reader has copied seeds.
        wipe_stack();
        Ok(server)
    }

    /// Whether the run is over for this server. Then this can be dropped.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Handles a message from a server of the new group.
    pub fn handle_message(
        &mut self,
        from: ServerIndex,
        message: &RefreshMessage,
        agreement: &RefreshAgreement,
    ) {
        let Some(run) = agreement.run().filter(|run| run.id() == self.run) else { return };
        match message {
            // Old node, step 4 (3.3.1): the dealer collects the confirmations.
            RefreshMessage::Confirmation { digest, signature } => {
                let mut dealings = self.dealings.values_mut();
                let is_meant = |it: &&mut OwnDealing| it.digest() == Some(*digest);
                let Some(dealing) = dealings.find(is_meant) else { return };
                let confirmation = DealingManifest::confirmation(*digest);
                if run.group().verify(from, &confirmation, signature) {
                    dealing.confirmations.insert(from, *signature);
                    // It has confirmed the dealing, so the ciphertexts are not sent again.
                    dealing.deliveries.remove(&from);
                }
            }
            RefreshMessage::Need { run } if *run == self.run => {
                self.needs.insert(from);
            }
            _ => {}
        }
    }

    /// Handles the result of one of its jobs.
    pub fn handle_job(&mut self, result: RefreshJobResult) {
        if result.scope_digest != self.run {
            return;
        }
        match result.outcome {
            RefreshOutcome::Row { round, label, row } => {
                if let Some(dealing) = self.dealings.get_mut(&round) {
                    dealing.rows.insert(label, row);
                }
            }
            RefreshOutcome::Delivery { round, to, delivery } => {
                if let Some(dealing) = self.dealings.get_mut(&round)
                    && !dealing.confirmations.contains_key(&to)
                {
                    dealing.deliveries.insert(to, DealingDeliveryState::Ready(delivery));
                }
            }
            _ => {}
        }
    }

    /// The next output. Call this until it returns nothing, and again after each input, each entry
    /// of the log, and at [`Self::deadline`].
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    pub fn poll_output(
        &mut self,
        now: Duration,
        agreement: &RefreshAgreement,
        generator: &mut RandomGenerator,
    ) -> Result<Option<RefreshOutput>, RandomError> {
        if self.outputs.is_empty() && !self.is_over {
            self.retries.begin_pass();
            let stepped = self.step(now, agreement, generator);
            // Also after what was done since the last call: a seed was drawn, or saved.
            wipe_stack();
            stepped?;
        }
        Ok(self.outputs.pop_front())
    }

    /// When to call [`Self::poll_output`] again.
    pub fn deadline(&self) -> Option<Duration> {
        if self.is_over { None } else { self.retries.deadline() }
    }

    fn step(
        &mut self,
        now: Duration,
        agreement: &RefreshAgreement,
        generator: &mut RandomGenerator,
    ) -> Result<(), RandomError> {
        // Old node, step 5: 2f'+1 new servers have computed their shares, or the run was cancelled.
        let run = agreement.run().filter(|run| run.id() == self.run && run.next_epoch().is_none());
        let Some(run) = run else {
            self.end();
            return Ok(());
        };
        let old = agreement.epoch().group.combination();
        // Old node, step 2, for the labels of which this server is the designated dealer (3.3.1).
        if !self.dealings.contains_key(&DealingRound::DESIGNATED) {
            let is_own = |label: &Label| old.designated_dealer(*label) == self.index;
            let labels: Vec<_> = old.labels_of(self.index).filter(is_own).collect();
            self.deal(DealingRound::DESIGNATED, labels, agreement, run, generator)?;
        }
        // Old node, step 2, for all other labels if they are needed (3.3.1).
        if self.needs.len() >= run.group().combination().quorum() {
            let is_dealt =
                |label: Label| self.dealings.values().any(|it| it.labels.contains(&label));
            let labels = old.labels_of(self.index).filter(|label| !is_dealt(*label));
            let labels: Vec<_> = labels.filter(|&label| run.chosen(label).is_none()).collect();
            // This keeps a dealing shorter than the largest message.
            let row =
                run.group().combination().label_count() * agreement.parameters().element_len();
            let chunks = labels.chunks((MAX_MESSAGE_LEN / 2 / row).max(1));
            let (last, _) = self.dealings.last_key_value().expect("there is the designated one");
            for (round, labels) in (last.0 + 1..MAX_ROUNDS).zip(chunks) {
                self.deal(DealingRound(round), labels.to_vec(), agreement, run, generator)?;
            }
        }
        let rounds: Vec<_> = self.dealings.keys().copied().collect();
        for round in rounds {
            self.send_dealing(round, now, agreement, run);
        }
        Ok(())
    }

    /// Draws the seed of a dealing.
    fn deal(
        &mut self,
        round: DealingRound,
        labels: Vec<Label>,
        agreement: &RefreshAgreement,
        run: &RefreshRun,
        generator: &mut RandomGenerator,
    ) -> Result<(), RandomError> {
        let seed = DealingSeed::random(generator)?;
        let mut bytes = Zeroizing::new(Vec::with_capacity(34 + 2 * labels.len()));
        bytes.extend(seed.as_bytes());
        bytes.put_u16(u16::try_from(labels.len()).expect("there are at most 715 labels"));
        bytes.extend(labels.iter().flat_map(|label| label.0.to_be_bytes()));
        self.outputs.push_back(RefreshOutput::Save { item: RunItemName::Seed(round), bytes });
        self.begin_dealing(round, labels, seed, agreement, run);
        Ok(())
    }

    /// Computes the proofs of a dealing.
    fn begin_dealing(
        &mut self,
        round: DealingRound,
        labels: Vec<Label>,
        seed: DealingSeed,
        agreement: &RefreshAgreement,
        run: &RefreshRun,
    ) {
        let (Some(shares), seed) = (&self.shares, Arc::new(seed)) else { return };
        for &label in &labels {
            self.outputs.push_back(RefreshOutput::Job(RefreshJob {
                scope_digest: self.run,
                task: RefreshTask::ProveRow {
                    round,
                    label,
                    seed: seed.clone(),
                    shares: shares.clone(),
                    new: run.group().combination().clone(),
                    parameters: agreement.parameters().clone(),
                },
            }));
        }
        let dealing = OwnDealing {
            labels,
            seed,
            rows: BTreeMap::new(),
            proofs: None,
            deliveries: BTreeMap::new(),
            confirmations: BTreeMap::new(),
        };
        self.dealings.insert(round, dealing);
    }

    fn send_dealing(
        &mut self,
        round: DealingRound,
        now: Duration,
        agreement: &RefreshAgreement,
        run: &RefreshRun,
    ) {
        let (Some(shares), Some(dealing)) = (&self.shares, self.dealings.get_mut(&round)) else {
            return;
        };
        if dealing.proofs.is_none() && dealing.rows.len() == dealing.labels.len() {
            let rows = std::mem::take(&mut dealing.rows).into_iter().collect();
            let ephemeral = dealing.seed.ephemeral().public();
            let proofs = DealingProofs::new(self.run, self.index, round, ephemeral, rows);
            dealing.proofs = Some(Arc::new(proofs));
        }
        let Some(proofs) = &dealing.proofs else { return };
        // Old node, step 3: to each new server that has a session key.
        for (&to, &key) in run.session_keys() {
            if dealing.confirmations.contains_key(&to) {
                continue;
            }
            match dealing.deliveries.get(&to) {
                None => {
                    dealing.deliveries.insert(to, DealingDeliveryState::InWork);
                    self.outputs.push_back(RefreshOutput::Job(RefreshJob {
                        scope_digest: self.run,
                        task: RefreshTask::Deliver {
                            round,
                            proofs: proofs.clone(),
                            seed: dealing.seed.clone(),
                            shares: shares.clone(),
                            to: (to, key),
                            new: run.group().combination().clone(),
                            parameters: agreement.parameters().clone(),
                            identity: self.identity.clone(),
                        },
                    }));
                }
                Some(DealingDeliveryState::InWork) => {}
                Some(DealingDeliveryState::Ready(delivery)) => {
                    if self.retries.is_due(OldServerRetry::Deliver(round, to), now) {
                        let (proofs, delivery) = (proofs.clone(), delivery.clone());
                        let message = RefreshMessage::Dealing(Dealing { proofs, delivery });
                        self.outputs
                            .push_back(RefreshOutput::Send { to: (RefreshRole::New, to), message });
                    }
                }
            }
        }
        // Old node, step 4: with 2f'+1 confirmations.
        let quorum = run.group().combination().quorum();
        let is_written = run.read_proof(self.index, round).is_some();
        if dealing.confirmations.len() >= quorum
            && !is_written
            && self.retries.is_due(OldServerRetry::WriteProof(round), now)
        {
            let confirmations = dealing.confirmations.iter().take(quorum);
            let confirmations = confirmations.map(|(&server, &it)| (server, it)).collect();
            let body = LogEntryBody::Proved { manifest: proofs.manifest.clone(), confirmations };
            self.outputs.push_back(RefreshOutput::Submit(LogEntry::new(
                self.index,
                body,
                &self.identity,
            )));
        }
    }

    /// Wipes all secrets.
    fn end(&mut self) {
        self.shares = None;
        self.dealings.clear();
        self.outputs.clear();
        self.outputs.push_back(RefreshOutput::Erase);
        self.is_over = true;
    }
}

impl OwnDealing {
    fn digest(&self) -> Option<Sha256Digest> {
        self.proofs.as_ref().map(|proofs| proofs.digest)
    }
}
