//! A server of the new group in a refresh (thesis, 3.3).

mod dealings;
mod shares;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use encoding::FieldReader;
use keys::IdentitySecretKey;
use random::{RandomError, RandomGenerator};
use zeroize::Zeroizing;

use self::dealings::{ReceivedDealing, ReceivedDealingState};
use self::shares::SubshareSumState;
use super::agreement::{RefreshAgreement, RefreshRun};
use super::dealing::{Dealing, DealingProofs};
use super::entry::{LogEntry, LogEntryBody, RefreshRole};
use super::manifest::{DealingManifest, DealingRound};
use super::message::RefreshMessage;
use super::output::{
    DealingJobReceiver, LabeledShares, RefreshDelays, RefreshJob, RefreshJobResult, RefreshOutcome,
    RefreshOutput, RefreshTask, RunItemName,
};
use super::parameters::RefreshParameters;
use super::possession::ShareWitnesses;
use super::recovery::{self, ShareRecovery};
use super::retries::RetrySchedule;
use super::session::SessionSecret;
use crate::protocol::combination::{CombinatorialSharing, ServerIndex};
use crate::protocol::unix_seconds::UnixSeconds;
use crate::protocol::voting::{VotingKey, VotingSecret};
use crate::protocol::wire::{MalformedEncoding, Sha256Digest};

#[cfg(test)]
pub(super) use self::dealings::complaint;

/// A new server in one run. It starts when it has verified the refresh header (new node, step 1)
/// and follows the log (step 2).
pub struct NewServer {
    index: ServerIndex,
    identity: Arc<IdentitySecretKey>,
    run: Sha256Digest,
    epoch: u64,
    /// The distribution of shares in the new group.
    new: CombinatorialSharing,
    parameters: Arc<RefreshParameters>,
    old_witnesses: Arc<ShareWitnesses>,
    delays: RefreshDelays,
    /// `r_j`, or `None` once it is wiped.
    session: Option<Arc<SessionSecret>>,
    /// The voting key for the new epoch.
    voting: Option<Arc<VotingSecret>>,
    dealings: BTreeMap<(ServerIndex, DealingRound), ReceivedDealing>,
    /// Fetched proofs, by digest.
    fetched: BTreeMap<Sha256Digest, Arc<DealingProofs>>,
    complaints: BTreeMap<ServerIndex, LogEntry>,
    witnesses: OnceComputed<Arc<ShareWitnesses>>,
    /// The contribution of each chosen dealing to the shares.
    sums: BTreeMap<Sha256Digest, SubshareSumState>,
    /// For each dealing, the servers that lack it and have asked for its contribution.
    questions: BTreeMap<Sha256Digest, BTreeSet<ServerIndex>>,
    shares: Option<Arc<LabeledShares>>,
    computed: OnceComputed<LogEntry>,
    recovery: Option<ShareRecovery>,
    /// When 2f'+1 session keys had been registered.
    registered_at: Option<Duration>,
    /// When to abandon the run, which has ended (5.2.2).
    give_up_at: Option<Duration>,
    retries: RetrySchedule<NewServerRetry>,
    outputs: VecDeque<RefreshOutput>,
    is_over: bool,
}

/// A value that is computed once.
enum OnceComputed<T> {
    Missing,
    InWork,
    Done(T),
}

impl<T> OnceComputed<T> {
    fn done(&self) -> Option<&T> {
        if let Self::Done(value) = self { Some(value) } else { None }
    }

    fn is_missing(&self) -> bool {
        matches!(self, Self::Missing)
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum NewServerRetry {
    SessionKey,
    Complain(ServerIndex),
    Need,
    Fetch(Sha256Digest),
    AskSum(Sha256Digest),
    Computed,
    GiveUp,
}

impl NewServer {
    /// A server of the new group in the open run of `agreement`. `old_witnesses` are those that the
    /// refresh header names. `saved` are the items that it saved in this run before a restart.
    ///
    /// # Errors
    /// If a saved item is malformed.
    ///
    /// # Panics
    /// If no run is open.
    pub fn new(
        index: ServerIndex,
        identity: Arc<IdentitySecretKey>,
        old_witnesses: Arc<ShareWitnesses>,
        delays: &RefreshDelays,
        agreement: &RefreshAgreement,
        saved: &BTreeMap<RunItemName, Zeroizing<Vec<u8>>>,
    ) -> Result<Self, MalformedEncoding> {
        let run = agreement.run().expect("a run is open");
        let mut server = Self {
            index,
            identity,
            run: run.id(),
            epoch: run.header().epoch,
            new: run.group().combination().clone(),
            parameters: agreement.parameters().clone(),
            old_witnesses,
            delays: *delays,
            session: None,
            voting: None,
            dealings: BTreeMap::new(),
            fetched: BTreeMap::new(),
            complaints: BTreeMap::new(),
            witnesses: OnceComputed::Missing,
            sums: BTreeMap::new(),
            questions: BTreeMap::new(),
            shares: None,
            computed: OnceComputed::Missing,
            recovery: None,
            registered_at: None,
            give_up_at: None,
            retries: RetrySchedule::new(delays.resend),
            outputs: VecDeque::new(),
            is_over: false,
        };
        for (item, bytes) in saved {
            server.restore(*item, bytes)?;
        }
        Ok(server)
    }

    fn restore(&mut self, item: RunItemName, bytes: &[u8]) -> Result<(), MalformedEncoding> {
        let mut reader = FieldReader::new(bytes);
        match item {
            RunItemName::SessionKey => {
                let bytes = Zeroizing::new(reader.take()?);
                self.session = Some(Arc::new(SessionSecret::from_bytes(&bytes)?));
                let voting = Zeroizing::new(reader.take()?);
                self.voting = Some(Arc::new(VotingSecret::from_bytes(voting)));
            }
            RunItemName::Dealing(dealer, round) => {
                let dealing = Dealing::read(&mut reader)?;
                let state = ReceivedDealingState::Confirmed(self.confirm(dealing.proofs.digest));
                self.dealings.insert((dealer, round), ReceivedDealing::new(dealing, state));
            }
            RunItemName::Shares => {
                let RefreshMessage::Shares(answer) = RefreshMessage::parse(bytes)? else {
                    return Err(MalformedEncoding("not shares"));
                };
                let (parameters, new) = (&self.parameters, &self.new);
                let count = new.label_count();
                let witnesses =
                    ShareWitnesses::parse(&answer.witnesses, count, &parameters.modulus);
                let parse = |bytes: &[u8]| parameters.range.parse(bytes);
                let shares = answer.shares.iter().map(|(&label, it)| Some((label, parse(it)?)));
                let shares: Option<LabeledShares> = shares.collect();
                let is_own =
                    |shares: &LabeledShares| shares.keys().copied().eq(new.labels_of(self.index));
                let shares =
                    shares.filter(is_own).ok_or(MalformedEncoding("not this server's shares"))?;
                let witnesses = witnesses.ok_or(MalformedEncoding("not witnesses"))?;
                self.witnesses = OnceComputed::Done(Arc::new(witnesses));
                self.shares = Some(Arc::new(shares));
                return Ok(());
            }
            RunItemName::Seed(_) => return Ok(()),
        }
        reader.finish()?;
        Ok(())
    }

    /// Whether the run is over for this server. Then this can be dropped.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The voting key with which this server begins the epoch.
    pub(crate) fn voting(&self) -> Option<&Arc<VotingSecret>> {
        self.voting.as_ref()
    }

    /// Whether it has its shares.
    pub fn has_shares(&self) -> bool {
        self.shares.is_some()
    }

    /// The computed shares, if `witnesses` is the digest of their witnesses.
    pub fn computed(&self, witnesses: Sha256Digest) -> Option<Arc<LabeledShares>> {
        let own = self.witnesses.done().filter(|own| own.digest() == witnesses);
        own.and(self.shares.clone())
    }

    /// Handles a message from a server of the old or new group.
    pub fn handle_message(
        &mut self,
        (side, from): (RefreshRole, ServerIndex),
        message: RefreshMessage,
        agreement: &RefreshAgreement,
    ) {
        let Some(run) = agreement.run().filter(|run| run.id() == self.run) else { return };
        if self.is_over {
            return;
        }
        match (side, message) {
            // New node, step 3.
            (RefreshRole::Old, RefreshMessage::Dealing(dealing)) => {
                self.handle_dealing(from, dealing, agreement, run);
            }
            (RefreshRole::New, RefreshMessage::Fetch { digest }) => {
                if let Some(proofs) = self.proofs(digest) {
                    let message = RefreshMessage::Proofs(proofs.clone());
                    self.outputs
                        .push_back(RefreshOutput::Send { to: (RefreshRole::New, from), message });
                }
            }
            (RefreshRole::New, RefreshMessage::Proofs(proofs))
                if self.lacking(run, agreement).contains(&proofs.digest) =>
            {
                self.fetched.insert(proofs.digest, proofs);
            }
            (RefreshRole::New, RefreshMessage::Ask { epoch, witnesses: with_witnesses }) => {
                let (Some(witnesses), Some(shares)) = (self.witnesses.done(), &self.shares) else {
                    return;
                };
                if epoch == self.epoch && from != self.index {
                    let witnesses = with_witnesses.then_some(&**witnesses);
                    let message = recovery::answer(epoch, witnesses, shares, from, &self.new);
                    self.outputs
                        .push_back(RefreshOutput::Send { to: (RefreshRole::New, from), message });
                }
            }
            (RefreshRole::New, RefreshMessage::Shares(answer)) => {
                if let Some(recovery) = &mut self.recovery {
                    recovery.handle_answer(from, &answer);
                }
            }
            (RefreshRole::New, RefreshMessage::AskSum { dealing }) if from != self.index => {
                let chosen = run.read_chosen(agreement.epoch().group.combination());
                if chosen.is_some_and(|chosen| chosen.contains(&dealing)) {
                    self.questions.entry(dealing).or_default().insert(from);
                }
            }
            (RefreshRole::New, RefreshMessage::Sum(sum)) => {
                for recovery in self.sums.values_mut().filter_map(SubshareSumState::recovery_mut) {
                    recovery.handle_sum(from, &sum);
                }
            }
            _ => {}
        }
    }

    /// Handles the result of one of its jobs, at this time of the server's clock.
    pub fn handle_job(&mut self, result: RefreshJobResult, time: UnixSeconds) {
        if result.scope_digest != self.run {
            let sums = self.sums.values_mut().filter_map(SubshareSumState::recovery_mut);
            let mut recoveries = self.recovery.iter_mut().chain(sums);
            if let Some(recovery) = recoveries.find(|it| it.is_about(result.scope_digest)) {
                recovery.handle_job(result);
            }
            return;
        }
        match result.outcome {
            RefreshOutcome::Verified { dealer, round, digest, verdict } => {
                self.handle_verdict((dealer, round), digest, verdict);
            }
            RefreshOutcome::NewWitnesses { dealing: None, witnesses: Some(witnesses) } => {
                self.witnesses = OnceComputed::Done(Arc::new(witnesses));
            }
            RefreshOutcome::NewWitnesses { dealing: Some(dealing), witnesses: Some(witnesses) } => {
                self.ask_for_sum(dealing, Arc::new(witnesses));
            }
            RefreshOutcome::Sum { dealing, sum: Some(sum) } => {
                // If it has been wiped meanwhile, it stays so.
                if let Some(partial @ SubshareSumState::InWork) = self.sums.get_mut(&dealing) {
                    *partial = SubshareSumState::Done(sum);
                }
            }
            RefreshOutcome::Possession(possession) => {
                if let Some(witnesses) = self.witnesses.done() {
                    let witnesses = witnesses.to_bytes();
                    let (run, time) = (self.run, Some(time));
                    let body = LogEntryBody::Computed { run, witnesses, possession, time };
                    let entry = LogEntry::new(self.index, body, &self.identity);
                    self.computed = OnceComputed::Done(entry);
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
            self.step(now, agreement, generator)?;
        }
        Ok(self.outputs.pop_front())
    }

    /// When to call [`Self::poll_output`] again.
    pub fn deadline(&self) -> Option<Duration> {
        if self.is_over {
            return None;
        }
        let sums = self.sums.values().filter_map(SubshareSumState::recovery);
        let recoveries = self.recovery.iter().chain(sums).filter_map(ShareRecovery::deadline);
        recoveries.chain(self.retries.deadline()).min()
    }

    fn step(
        &mut self,
        now: Duration,
        agreement: &RefreshAgreement,
        generator: &mut RandomGenerator,
    ) -> Result<(), RandomError> {
        let Some(run) = agreement.run().filter(|run| run.id() == self.run) else {
            self.end();
            return Ok(());
        };
        if let Some(next) = run.next_epoch() {
            if self.begin_epoch(run) {
                return Ok(());
            }
            // The timer of 5.2.2.
            let give_up_at = *self.give_up_at.get_or_insert(now + self.delays.grace);
            let delay = give_up_at.saturating_sub(now);
            if self.session.is_some()
                && self.retries.is_due_after(NewServerRetry::GiveUp, now, delay)
            {
                self.forget();
            }
            debug_assert_eq!(next.epoch, self.epoch);
        } else {
            self.register_session_key(now, run, generator)?;
        }
        if self.session.is_some() {
            self.check_dealings(run);
            self.complain(now, run, generator)?;
            self.send_need(now, agreement, run);
            self.compute(now, agreement, run);
        }
        self.recover(now, run);
        self.submit_computed(now, run);
        Ok(())
    }

    /// Refresh, step 2 of the specification.
    fn register_session_key(
        &mut self,
        now: Duration,
        run: &RefreshRun,
        generator: &mut RandomGenerator,
    ) -> Result<(), RandomError> {
        let secret = if let Some(secret) = &self.session {
            secret.clone()
        } else {
            let secret = Arc::new(SessionSecret::random(generator)?);
            let voting = Arc::new(VotingSecret::random(generator)?);
            let mut bytes = Zeroizing::new(Vec::with_capacity(64));
            bytes.extend_from_slice(&*secret.to_bytes());
            bytes.extend_from_slice(voting.to_bytes());
            self.outputs.push_back(RefreshOutput::Save { item: RunItemName::SessionKey, bytes });
            (self.session, self.voting) = (Some(secret.clone()), Some(voting));
            secret
        };
        let is_registered = run.session_keys().contains_key(&self.index);
        if let Some(voting) = &self.voting
            && !is_registered
            && self.retries.is_due(NewServerRetry::SessionKey, now)
        {
            let voting = Box::new(VotingKey::new(voting, self.run, self.index));
            self.submit(LogEntryBody::SessionKey { run: self.run, key: secret.public(), voting });
        }
        Ok(())
    }

    /// Wipes the session key and everything that it decrypts, in memory and on disk.
    fn forget(&mut self) {
        self.session = None;
        self.voting = None;
        self.dealings.clear();
        self.fetched.clear();
        self.complaints.clear();
        self.sums.clear();
        self.questions.clear();
        self.outputs.push_back(RefreshOutput::Erase);
    }

    /// Wipes all secrets.
    fn end(&mut self) {
        self.forget();
        self.recovery = None;
        self.shares = None;
        self.is_over = true;
    }

    fn job(&mut self, task: RefreshTask) {
        self.outputs.push_back(RefreshOutput::Job(RefreshJob { scope_digest: self.run, task }));
    }

    fn owner(&self) -> Option<DealingJobReceiver> {
        Some(DealingJobReceiver {
            index: self.index,
            session: self.session.clone()?,
            new: self.new.clone(),
            parameters: self.parameters.clone(),
        })
    }

    /// The proofs with a digest, if this server has them.
    fn proofs(&self, digest: Sha256Digest) -> Option<&Arc<DealingProofs>> {
        let received = self.dealings.values().filter_map(|received| received.dealing.as_ref());
        let mut received = received.map(|dealing| &dealing.proofs);
        received.find(|proofs| proofs.digest == digest).or_else(|| self.fetched.get(&digest))
    }

    /// The digests of chosen dealings whose proofs this server lacks.
    fn lacking(&self, run: &RefreshRun, agreement: &RefreshAgreement) -> Vec<Sha256Digest> {
        let chosen = run.read_chosen(agreement.epoch().group.combination()).unwrap_or_default();
        let mut seen = BTreeSet::new();
        let is_lacking =
            |digest: &Sha256Digest| self.proofs(*digest).is_none() && seen.insert(*digest);
        chosen.into_iter().filter(is_lacking).collect()
    }

    fn confirm(&self, digest: Sha256Digest) -> [u8; 64] {
        self.identity.sign(&DealingManifest::confirmation(digest))
    }

    fn send_confirmation(&mut self, to: ServerIndex, digest: Sha256Digest, signature: [u8; 64]) {
        let message = RefreshMessage::Confirmation { digest, signature };
        self.outputs.push_back(RefreshOutput::Send { to: (RefreshRole::Old, to), message });
    }

    fn submit(&mut self, body: LogEntryBody) {
        self.outputs.push_back(RefreshOutput::Submit(LogEntry::new(
            self.index,
            body,
            &self.identity,
        )));
    }
}
