//! How a server that missed a refresh gets its shares from others of its group. During a refresh,
//! the same is used for the contribution of a dealing that its dealer has not sent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

use super::entry::RefreshRole;
use super::message::{EncodedShareMap, RecoveryAnswer, RefreshMessage, SubshareSum};
use super::output::{
    LabeledShares, RefreshDelays, RefreshJob, RefreshJobResult, RefreshOutcome, RefreshOutput,
    RefreshTask,
};
use super::parameters::RefreshParameters;
use super::possession::ShareWitnesses;
use super::retries::RetrySchedule;
use crate::protocol::combination::{CombinatorialSharing, ServerIndex};
use crate::protocol::wire::Sha256Digest;

/// A server that asks others for its shares of an epoch.
pub struct ShareRecovery {
    index: ServerIndex,
    source: RecoverySource,
    group: CombinatorialSharing,
    parameters: Arc<RefreshParameters>,
    /// The digest of the witnesses, if the log or a header determines it.
    expected: Option<Sha256Digest>,
    witnesses: Option<Arc<ShareWitnesses>>,
    /// The received witnesses, until f+1 servers have sent the same.
    copies: BTreeMap<ServerIndex, Vec<u8>>,
    /// Answers to be checked, at most one per server.
    waiting: BTreeMap<ServerIndex, LabeledShares>,
    is_checking: bool,
    /// Servers that sent an invalid answer.
    faulty: BTreeSet<ServerIndex>,
    shares: LabeledShares,
    retries: RetrySchedule<ServerIndex>,
    outputs: VecDeque<RefreshOutput>,
}

/// What the shares belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RecoverySource {
    Epoch(u64),
    Dealing(Sha256Digest),
}

impl ShareRecovery {
    /// Starts a recovery. `expected` is the digest of the witnesses, if it is known. Otherwise,
    /// witnesses that f+1 servers send are accepted.
    pub fn new(
        index: ServerIndex,
        epoch: u64,
        group: CombinatorialSharing,
        parameters: Arc<RefreshParameters>,
        expected: Option<Sha256Digest>,
        delays: &RefreshDelays,
    ) -> Self {
        Self {
            index,
            source: RecoverySource::Epoch(epoch),
            group,
            parameters,
            expected,
            witnesses: None,
            copies: BTreeMap::new(),
            waiting: BTreeMap::new(),
            is_checking: false,
            faulty: BTreeSet::new(),
            shares: LabeledShares::new(),
            retries: RetrySchedule::new(delays.resend),
            outputs: VecDeque::new(),
        }
    }

    /// A recovery that knows the witnesses.
    pub(crate) fn with_witnesses(mut self, witnesses: Arc<ShareWitnesses>) -> Self {
        self.witnesses = Some(witnesses);
        self
    }

    /// A recovery of the contribution of a dealing, to which the witnesses belong.
    pub(crate) fn of_dealing(mut self, dealing: Sha256Digest) -> Self {
        self.source = RecoverySource::Dealing(dealing);
        self
    }

    /// The witnesses and this server's shares, once it has all of them. Afterwards this is empty.
    pub fn take(&mut self) -> Option<(Arc<ShareWitnesses>, LabeledShares)> {
        let witnesses = self.witnesses.as_ref()?;
        let is_complete = self.shares.len() == self.group.labels_of(self.index).count();
        is_complete.then(|| (witnesses.clone(), std::mem::take(&mut self.shares)))
    }

    /// Handles the answer of another server of the group.
    pub fn handle_answer(&mut self, from: ServerIndex, answer: &RecoveryAnswer) {
        let is_awaited =
            self.source == RecoverySource::Epoch(answer.epoch) && self.is_trusted(from);
        if is_awaited {
            self.handle_witnesses(from, &answer.witnesses);
            self.handle_shares(from, &answer.shares);
        }
    }

    /// Handles another server's answer for a dealing.
    pub(crate) fn handle_sum(&mut self, from: ServerIndex, sum: &SubshareSum) {
        if self.source == RecoverySource::Dealing(sum.dealing) && self.is_trusted(from) {
            self.handle_shares(from, &sum.shares);
        }
    }

    /// Whether a job belongs to this recovery.
    pub(crate) fn is_about(&self, job: Sha256Digest) -> bool {
        self.witnesses.as_ref().is_some_and(|witnesses| witnesses.digest() == job)
    }

    fn is_trusted(&self, from: ServerIndex) -> bool {
        let is_member = usize::from(from.0) < self.group.server_count() && from != self.index;
        is_member && !self.faulty.contains(&from)
    }

    fn handle_shares(&mut self, from: ServerIndex, encoded: &EncodedShareMap) {
        let mut shares = LabeledShares::new();
        for (&label, bytes) in encoded {
            if !self.group.holds(self.index, label) || !self.group.holds(from, label) {
                continue;
            }
            let Some(share) = self.parameters.range.parse(bytes) else {
                self.faulty.insert(from);
                return;
            };
            shares.insert(label, share);
        }
        self.waiting.insert(from, shares);
    }

    fn handle_witnesses(&mut self, from: ServerIndex, bytes: &[u8]) {
        let count = self.group.label_count();
        if self.witnesses.is_some() || bytes.len() != count * self.parameters.element_len() {
            return;
        }
        let is_right = if let Some(expected) = self.expected {
            ShareWitnesses::digest_of(bytes) == expected
        } else {
            self.copies.insert(from, bytes.to_vec());
            let equal = self.copies.values().filter(|copy| *copy == bytes).count();
            equal >= self.group.signer_count()
        };
        if is_right {
            let parsed = ShareWitnesses::parse(bytes, count, &self.parameters.modulus);
            self.witnesses = parsed.map(Arc::new);
            self.copies.clear();
        }
    }

    /// Handles the result of one of its jobs.
    pub fn handle_job(&mut self, result: RefreshJobResult) {
        if !self.is_about(result.scope_digest) {
            return;
        }
        if let RefreshOutcome::Checked { from, right, all_right } = result.outcome {
            self.is_checking = false;
            self.shares.extend(right);
            if !all_right {
                self.faulty.insert(from);
            }
        }
    }

    /// The next output, as for the other state machines.
    pub fn poll_output(&mut self, now: Duration) -> Option<RefreshOutput> {
        if self.outputs.is_empty() {
            self.retries.begin_pass();
            self.step(now);
        }
        self.outputs.pop_front()
    }

    /// When to call [`Self::poll_output`] again.
    pub fn deadline(&self) -> Option<Duration> {
        self.retries.deadline()
    }

    fn step(&mut self, now: Duration) {
        if let Some(witnesses) = &self.witnesses
            && !self.is_checking
            && let Some((from, mut shares)) = self.waiting.pop_first()
        {
            shares.retain(|label, _| !self.shares.contains_key(label));
            if !shares.is_empty() {
                self.is_checking = true;
                self.outputs.push_back(RefreshOutput::Job(RefreshJob {
                    scope_digest: witnesses.digest(),
                    task: RefreshTask::Check {
                        from,
                        shares,
                        witnesses: witnesses.clone(),
                        parameters: self.parameters.clone(),
                    },
                }));
            }
        }
        let has_all = self.shares.len() == self.group.labels_of(self.index).count();
        if has_all && self.witnesses.is_some() {
            return;
        }
        for server in self.group.servers().filter(|&server| server != self.index) {
            // Servers of a group differ in which shares they can send, so all are asked.
            if self.retries.is_due(server, now) {
                let message = match self.source {
                    RecoverySource::Epoch(epoch) => {
                        RefreshMessage::Ask { epoch, witnesses: self.witnesses.is_none() }
                    }
                    RecoverySource::Dealing(dealing) => RefreshMessage::AskSum { dealing },
                };
                self.outputs
                    .push_back(RefreshOutput::Send { to: (RefreshRole::New, server), message });
            }
        }
    }
}

/// The answer to another server of the group: the shares that both must hold.
pub fn answer(
    epoch: u64,
    witnesses: Option<&ShareWitnesses>,
    shares: &LabeledShares,
    to: ServerIndex,
    group: &CombinatorialSharing,
) -> RefreshMessage {
    let witnesses = witnesses.map(ShareWitnesses::to_bytes).unwrap_or_default();
    RefreshMessage::Shares(RecoveryAnswer { epoch, witnesses, shares: common(shares, to, group) })
}

/// The answer to another server for a dealing.
pub(crate) fn answer_sum(
    dealing: Sha256Digest,
    sum: &LabeledShares,
    to: ServerIndex,
    group: &CombinatorialSharing,
) -> RefreshMessage {
    RefreshMessage::Sum(SubshareSum { dealing, shares: common(sum, to, group) })
}

/// The shares that another server must hold, too.
fn common(
    shares: &LabeledShares,
    to: ServerIndex,
    group: &CombinatorialSharing,
) -> EncodedShareMap {
    let common = shares.iter().filter(|(label, _)| group.holds(to, **label));
    common.map(|(&label, share)| (label, share.to_be_bytes())).collect()
}

/// Encodes shares with their witnesses, for the store.
pub(crate) fn save(witnesses: &ShareWitnesses, shares: &LabeledShares) -> Zeroizing<Vec<u8>> {
    let shares = shares.iter().map(|(&label, share)| (label, share.to_be_bytes())).collect();
    RefreshMessage::Shares(RecoveryAnswer { epoch: 0, witnesses: witnesses.to_bytes(), shares })
        .to_bytes()
}
