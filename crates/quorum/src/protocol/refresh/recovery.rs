//! How a server gets its shares from others of its group, if it missed the refresh that made them;
//! and, during a refresh, what a dealing adds to them, if the dealer has not sent it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

use super::entry::Side;
use super::message::{Answer, EncodedShares, Message, Sum};
use super::output::{Delays, Job, JobResult, Outcome, Output, Shares, Task};
use super::parameters::Parameters;
use super::possession::Witnesses;
use super::retries::Retries;
use crate::protocol::combination::{Combination, ServerIndex};
use crate::protocol::wire::Digest;

/// A server that asks the others for its shares of an epoch.
pub struct Recovery {
    index: ServerIndex,
    source: Source,
    group: Combination,
    parameters: Arc<Parameters>,
    /// The digest of the witnesses, if it is known from the log or a header.
    expected: Option<Digest>,
    witnesses: Option<Arc<Witnesses>>,
    /// The witnesses that servers sent, until f+1 are equal.
    copies: BTreeMap<ServerIndex, Vec<u8>>,
    /// Answers that wait for a check: one of each server.
    waiting: BTreeMap<ServerIndex, Shares>,
    is_checking: bool,
    /// Servers that sent something wrong.
    faulty: BTreeSet<ServerIndex>,
    shares: Shares,
    retries: Retries<ServerIndex>,
    outputs: VecDeque<Output>,
}

/// What shares are of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Epoch(u64),
    Dealing(Digest),
}

impl Recovery {
    /// Begins. `expected` is the digest of the witnesses, if it is known; without it, the witnesses
    /// that f+1 servers send are right.
    pub fn new(
        index: ServerIndex,
        epoch: u64,
        group: Combination,
        parameters: Arc<Parameters>,
        expected: Option<Digest>,
        delays: &Delays,
    ) -> Self {
        Self {
            index,
            source: Source::Epoch(epoch),
            group,
            parameters,
            expected,
            witnesses: None,
            copies: BTreeMap::new(),
            waiting: BTreeMap::new(),
            is_checking: false,
            faulty: BTreeSet::new(),
            shares: Shares::new(),
            retries: Retries::new(delays.resend),
            outputs: VecDeque::new(),
        }
    }

    /// One that knows the witnesses.
    pub(crate) fn with_witnesses(mut self, witnesses: Arc<Witnesses>) -> Self {
        self.witnesses = Some(witnesses);
        self
    }

    /// One that asks for what a dealing adds to the shares. The witnesses are of that.
    pub(crate) fn of_dealing(mut self, dealing: Digest) -> Self {
        self.source = Source::Dealing(dealing);
        self
    }

    /// The witnesses and this server's shares, once it has all. Empties the machine.
    pub fn take(&mut self) -> Option<(Arc<Witnesses>, Shares)> {
        let witnesses = self.witnesses.as_ref()?;
        let is_complete = self.shares.len() == self.group.labels_of(self.index).count();
        is_complete.then(|| (witnesses.clone(), std::mem::take(&mut self.shares)))
    }

    /// Handles the answer of another server of the group.
    pub fn handle_answer(&mut self, from: ServerIndex, answer: &Answer) {
        let is_awaited = self.source == Source::Epoch(answer.epoch) && self.is_trusted(from);
        if is_awaited {
            self.handle_witnesses(from, &answer.witnesses);
            self.handle_shares(from, &answer.shares);
        }
    }

    /// Handles another server's answer about a dealing.
    pub(crate) fn handle_sum(&mut self, from: ServerIndex, sum: &Sum) {
        if self.source == Source::Dealing(sum.dealing) && self.is_trusted(from) {
            self.handle_shares(from, &sum.shares);
        }
    }

    /// Whether a job is of this recovery.
    pub(crate) fn is_about(&self, job: Digest) -> bool {
        self.witnesses.as_ref().is_some_and(|witnesses| witnesses.digest() == job)
    }

    fn is_trusted(&self, from: ServerIndex) -> bool {
        let is_member = usize::from(from.0) < self.group.server_count() && from != self.index;
        is_member && !self.faulty.contains(&from)
    }

    fn handle_shares(&mut self, from: ServerIndex, encoded: &EncodedShares) {
        let mut shares = Shares::new();
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
            Witnesses::digest_of(bytes) == expected
        } else {
            self.copies.insert(from, bytes.to_vec());
            let equal = self.copies.values().filter(|copy| *copy == bytes).count();
            equal >= self.group.signer_count()
        };
        if is_right {
            let parsed = Witnesses::parse(bytes, count, &self.parameters.modulus);
            self.witnesses = parsed.map(Arc::new);
            self.copies.clear();
        }
    }

    /// Takes the result of a job of this machine.
    pub fn handle_job(&mut self, result: JobResult) {
        if !self.is_about(result.of) {
            return;
        }
        if let Outcome::Checked { from, right, all_right } = result.outcome {
            self.is_checking = false;
            self.shares.extend(right);
            if !all_right {
                self.faulty.insert(from);
            }
        }
    }

    /// What to do next, as for the other machines.
    pub fn poll_output(&mut self, now: Duration) -> Option<Output> {
        if self.outputs.is_empty() {
            self.retries.begin_pass();
            self.step(now);
        }
        self.outputs.pop_front()
    }

    /// The time at which to ask again.
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
                self.outputs.push_back(Output::Job(Job {
                    of: witnesses.digest(),
                    task: Task::Check {
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
            // The others of a group differ in which shares they can send: all are asked.
            if self.retries.is_due(server, now) {
                let message = match self.source {
                    Source::Epoch(epoch) => {
                        Message::Ask { epoch, witnesses: self.witnesses.is_none() }
                    }
                    Source::Dealing(dealing) => Message::AskSum { dealing },
                };
                self.outputs.push_back(Output::Send { to: (Side::New, server), message });
            }
        }
    }
}

/// The answer to another server of the group: the shares that both should hold.
pub fn answer(
    epoch: u64,
    witnesses: Option<&Witnesses>,
    shares: &Shares,
    to: ServerIndex,
    group: &Combination,
) -> Message {
    let witnesses = witnesses.map(Witnesses::to_bytes).unwrap_or_default();
    Message::Shares(Answer { epoch, witnesses, shares: common(shares, to, group) })
}

/// The answer to another server about a dealing.
pub(crate) fn answer_sum(
    dealing: Digest,
    sum: &Shares,
    to: ServerIndex,
    group: &Combination,
) -> Message {
    Message::Sum(Sum { dealing, shares: common(sum, to, group) })
}

/// The shares that another server should hold, too.
fn common(shares: &Shares, to: ServerIndex, group: &Combination) -> EncodedShares {
    let common = shares.iter().filter(|(label, _)| group.holds(to, **label));
    common.map(|(&label, share)| (label, share.to_be_bytes())).collect()
}

/// Encodes shares with their witnesses, for the store.
pub(crate) fn save(witnesses: &Witnesses, shares: &Shares) -> Zeroizing<Vec<u8>> {
    let shares = shares.iter().map(|(&label, share)| (label, share.to_be_bytes())).collect();
    Message::Shares(Answer { epoch: 0, witnesses: witnesses.to_bytes(), shares }).to_bytes()
}
