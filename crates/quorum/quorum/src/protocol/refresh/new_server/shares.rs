//! How a new server gets its shares: from the chosen dealings, and from the other new servers for
//! dealings that it lacks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::agreement::{RefreshAgreement, RefreshRun};
use super::super::dealing::DealingProofs;
use super::super::entry::RefreshRole;
use super::super::message::RefreshMessage;
use super::super::output::{LabeledShares, RefreshOutput, RefreshTask, RunItemName};
use super::super::possession::ShareWitnesses;
use super::super::recovery::{self, ShareRecovery};
use super::{NewServer, NewServerRetry, OnceComputed, ReceivedDealing, ReceivedDealingState};
use crate::protocol::combination::Label;
use crate::protocol::wire::Sha256Digest;

/// The contribution of a chosen dealing to this server's shares.
pub(super) enum SubshareSumState {
    InWork,
    /// The dealer has not sent valid subshares, so other servers are asked.
    Asked(Box<ShareRecovery>),
    Done(LabeledShares),
}

impl SubshareSumState {
    pub(super) fn recovery(&self) -> Option<&ShareRecovery> {
        if let Self::Asked(recovery) = self { Some(recovery) } else { None }
    }

    pub(super) fn recovery_mut(&mut self) -> Option<&mut ShareRecovery> {
        if let Self::Asked(recovery) = self { Some(recovery) } else { None }
    }
}

impl NewServer {
    /// New node, step 7.
    pub(super) fn compute(
        &mut self,
        now: Duration,
        agreement: &RefreshAgreement,
        run: &RefreshRun,
    ) {
        let old = agreement.epoch().group.combination();
        let Some(chosen) = run.read_chosen(old) else { return };
        self.compute_witnesses(now, agreement, run, &chosen);
        let mut labels = BTreeMap::<Sha256Digest, Vec<Label>>::new();
        for (label, &digest) in old.labels().zip(&chosen) {
            labels.entry(digest).or_default().push(label);
        }
        // In the order of labels.
        for digest in &chosen {
            if let Some(labels) = labels.remove(digest) {
                self.compute_sum(now, *digest, labels);
            }
        }
        self.answer_questions();
        let done = |digest: &Sha256Digest| match self.sums.get(digest) {
            Some(SubshareSumState::Done(sum)) => Some((*digest, sum)),
            _ => None,
        };
        let sums: Option<BTreeMap<_, _>> = chosen.iter().map(done).collect();
        if let (Some(sums), None) = (sums, &self.shares) {
            let range = self.parameters.range;
            let share = |label| (label, range.sum(sums.values().map(|sum| &sum[&label])));
            self.shares = Some(Arc::new(self.new.labels_of(self.index).map(share).collect()));
        }
    }

    /// Equation 3.6.
    fn compute_witnesses(
        &mut self,
        now: Duration,
        agreement: &RefreshAgreement,
        run: &RefreshRun,
        chosen: &[Sha256Digest],
    ) {
        if !self.witnesses.is_missing() {
            return;
        }
        let proofs = |(label, &digest)| Some((label, self.proofs(digest)?.clone()));
        let proofs: Option<Vec<_>> = (0..).map(Label).zip(chosen).map(proofs).collect();
        if let Some(chosen) = proofs {
            self.witnesses = OnceComputed::InWork;
            self.witnesses_job(None, chosen);
        }
        for digest in self.lacking(run, agreement) {
            // The dealing itself may still arrive.
            if self.retries.is_due_after(NewServerRetry::Fetch(digest), now, self.delays.resend) {
                for to in self.new.servers().filter(|&to| to != self.index) {
                    let message = RefreshMessage::Fetch { digest };
                    self.outputs
                        .push_back(RefreshOutput::Send { to: (RefreshRole::New, to), message });
                }
            }
        }
    }

    fn witnesses_job(
        &mut self,
        dealing: Option<Sha256Digest>,
        chosen: Vec<(Label, Arc<DealingProofs>)>,
    ) {
        let (new, parameters) = (self.new.clone(), self.parameters.clone());
        self.job(RefreshTask::NewWitnesses { chosen, dealing, new, parameters });
    }

    /// Computes the contribution of a dealing to the shares (equation 3.5), if it is needed.
    /// `labels` are those for which it is chosen.
    fn compute_sum(&mut self, now: Duration, digest: Sha256Digest, labels: Vec<Label>) {
        if let Some(SubshareSumState::Asked(recovery)) = self.sums.get_mut(&digest) {
            while let Some(output) = recovery.poll_output(now) {
                self.outputs.push_back(output);
            }
            if let Some((_, sum)) = recovery.take() {
                self.sums.insert(digest, SubshareSumState::Done(sum));
            }
        }
        let is_needed = self.shares.is_none() || self.questions.contains_key(&digest);
        if !is_needed || self.sums.contains_key(&digest) {
            return;
        }
        let is_confirmed =
            |it: &&ReceivedDealing| matches!(it.state, ReceivedDealingState::Confirmed(_));
        let confirmed = self.dealings.values().filter(is_confirmed);
        let mut confirmed = confirmed.filter_map(|it| it.dealing.as_ref());
        let confirmed = confirmed.find(|it| it.proofs.digest == digest).cloned();
        if let (Some(dealing), Some(owner)) = (confirmed, self.owner()) {
            self.sums.insert(digest, SubshareSumState::InWork);
            self.job(RefreshTask::Sum { dealing, labels, owner });
        } else if self.shares.is_none()
            // The dealing may still arrive.
            && self.retries.is_due_after(NewServerRetry::AskSum(digest), now, self.delays.resend)
            && let Some(proofs) = self.proofs(digest).cloned()
        {
            self.sums.insert(digest, SubshareSumState::InWork);
            let chosen = labels.into_iter().map(|label| (label, proofs.clone())).collect();
            self.witnesses_job(Some(digest), chosen);
        }
    }

    /// Asks the other servers for the contribution of a dealing to the shares. f'+1 correct servers
    /// have confirmed the dealing, and for each label at least one of them holds the share.
    pub(super) fn ask_for_sum(&mut self, dealing: Sha256Digest, witnesses: Arc<ShareWitnesses>) {
        // If it has been wiped meanwhile, it stays so.
        if let Some(partial @ SubshareSumState::InWork) = self.sums.get_mut(&dealing) {
            let (group, parameters) = (self.new.clone(), self.parameters.clone());
            let digest = Some(witnesses.digest());
            let recovery =
                ShareRecovery::new(self.index, self.epoch, group, parameters, digest, &self.delays)
                    .with_witnesses(witnesses)
                    .of_dealing(dealing);
            *partial = SubshareSumState::Asked(Box::new(recovery));
        }
    }

    fn answer_questions(&mut self) {
        for (digest, from) in std::mem::take(&mut self.questions) {
            if let Some(SubshareSumState::Done(sum)) = self.sums.get(&digest) {
                for to in from {
                    let message = recovery::answer_sum(digest, sum, to, &self.new);
                    self.outputs
                        .push_back(RefreshOutput::Send { to: (RefreshRole::New, to), message });
                }
            } else {
                self.questions.insert(digest, from);
            }
        }
    }

    /// Recovers the shares that were not computed before the new epoch.
    pub(super) fn recover(&mut self, now: Duration, run: &RefreshRun) {
        let witnesses = run.read_new_witnesses().filter(|_| self.shares.is_none());
        let Some(witnesses) = witnesses else {
            self.recovery = None;
            return;
        };
        let recovery = self.recovery.get_or_insert_with(|| {
            let (group, parameters) = (self.new.clone(), self.parameters.clone());
            let digest = Some(witnesses.digest());
            ShareRecovery::new(self.index, self.epoch, group, parameters, digest, &self.delays)
                .with_witnesses(witnesses.clone())
        });
        while let Some(output) = recovery.poll_output(now) {
            self.outputs.push_back(output);
        }
        if let Some((witnesses, shares)) = recovery.take() {
            self.witnesses = OnceComputed::Done(witnesses);
            self.shares = Some(Arc::new(shares));
            self.recovery = None;
        }
    }

    /// New node, step 8.
    pub(super) fn submit_computed(&mut self, now: Duration, run: &RefreshRun) {
        let (Some(witnesses), Some(shares)) = (self.witnesses.done(), &self.shares) else {
            return;
        };
        if run.next_epoch().is_some() {
            self.begin_epoch(run);
            return;
        }
        match &self.computed {
            OnceComputed::Missing => {
                let bytes = recovery::save(witnesses, shares);
                let task = RefreshTask::Possess {
                    run: self.run,
                    witnesses: witnesses.digest(),
                    shares: shares.clone(),
                    owner: self.index,
                    parameters: self.parameters.clone(),
                };
                self.outputs.push_back(RefreshOutput::Save { item: RunItemName::Shares, bytes });
                self.job(task);
                self.computed = OnceComputed::InWork;
            }
            OnceComputed::InWork => {}
            OnceComputed::Done(entry) => {
                if !run.has_computed(self.index)
                    && self.retries.is_due(NewServerRetry::Computed, now)
                {
                    self.outputs.push_back(RefreshOutput::Submit(entry.clone()));
                }
            }
        }
    }

    /// New node, step 9: 2f'+1 new servers have computed. Returns whether this server has its
    /// shares.
    pub(super) fn begin_epoch(&mut self, run: &RefreshRun) -> bool {
        let (Some(header), Some(witnesses), Some(shares)) =
            (run.next_epoch(), run.read_new_witnesses(), &self.shares)
        else {
            return false;
        };
        let (header, witnesses, shares) = (header.clone(), witnesses.clone(), shares.clone());
        self.outputs.push_back(RefreshOutput::Begin { header, witnesses, shares });
        self.end();
        true
    }
}
