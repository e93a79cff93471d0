//! A process that is a server of the old group, of the new group, or of both, with the state that
//! survives a crash and the state that does not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use keys::{IdentityPublicKey, IdentitySecretKey};
use random::RandomGenerator;
use zeroize::Zeroizing;

use super::super::output::{RefreshJob, RefreshJobResult};
use super::super::{
    LabeledShares, LogEntry, LogEntryEffect, LogEntryRefusal, NewServer, OldServer,
    RefreshAgreement, RefreshDelays, RefreshMessage, RefreshOutput, RefreshRole, RefreshRun,
    RunItemName, ShareWitnesses, answer,
};
use crate::log::memory::{MemoryLog, MemoryLogServer};
use crate::log::{AgreementLog as _, EntryCheck, Height, ServerSet};
use crate::protocol::combination::ServerIndex;
use crate::protocol::group::{GroupHeader, QuorumGroup};
use crate::protocol::unix_seconds::UnixSeconds;
use crate::protocol::wire::Sha256Digest;

pub(super) const DELAYS: RefreshDelays = RefreshDelays {
    need: Duration::from_secs(5),
    grace: Duration::from_secs(20),
    resend: Duration::from_secs(1),
};

/// The items that a server saved in one run.
type SimulatedRunItems = BTreeMap<RunItemName, Zeroizing<Vec<u8>>>;

/// A process.
pub(super) struct SimulatedProcess {
    pub(super) secret: Arc<IdentitySecretKey>,
    pub(super) public: IdentityPublicKey,
    /// Whether its log uses the check of entries.
    pub(super) is_log_checked: bool,
    pub(super) disk: SimulatedDisk,
    /// `None` while it is down.
    pub(super) memory: Option<SimulatedMemory>,
    /// When it starts again.
    pub(super) restarts_at: Duration,
}

/// What survives a crash.
pub(super) struct SimulatedDisk {
    /// The state at the start of the log, for a server that applies the whole log again.
    pub(super) first_board: RefreshAgreement,
    agreement: RefreshAgreement,
    applied: Height,
    pub(super) shares: Option<Arc<LabeledShares>>,
    pub(super) old_witnesses: Arc<ShareWitnesses>,
    pub(super) saved: BTreeMap<(Sha256Digest, RefreshRole), SimulatedRunItems>,
    pub(super) begun: Option<SimulatedEpoch>,
}

/// The new epoch at a server.
pub(super) struct SimulatedEpoch {
    pub(super) header: GroupHeader,
    pub(super) witnesses: Arc<ShareWitnesses>,
    pub(super) shares: Arc<LabeledShares>,
}

/// The state that a crash destroys.
pub(super) struct SimulatedMemory {
    pub(super) log: MemoryLogServer,
    pub(super) agreement: RefreshAgreement,
    applied: Height,
    old: Option<SimulatedServer<OldServer>>,
    new: Option<SimulatedServer<NewServer>>,
    jobs: Vec<(Duration, RefreshRole, RefreshJob)>,
    /// Whether an input has arrived since the last poll.
    is_dirty: bool,
}

/// An action of a process that affects others.
pub(super) enum ProcessAction {
    Send { from: RefreshRole, to: (RefreshRole, ServerIndex), bytes: Vec<u8> },
    Submit(Vec<u8>),
}

/// The result of polling a process.
pub(super) enum ProcessStep {
    Nothing,
    /// A write to its disk, or a job.
    Internal,
    Act(ProcessAction),
}

struct SimulatedServer<T> {
    run: Sha256Digest,
    server: Box<T>,
}

impl SimulatedProcess {
    pub(super) fn new(
        secret: IdentitySecretKey,
        is_log_checked: bool,
        agreement: RefreshAgreement,
        shares: Option<Arc<LabeledShares>>,
        old_witnesses: Arc<ShareWitnesses>,
    ) -> Self {
        let disk = SimulatedDisk {
            first_board: agreement.clone(),
            agreement,
            applied: Height(0),
            shares,
            old_witnesses,
            saved: BTreeMap::new(),
            begun: None,
        };
        Self {
            public: secret.public(),
            secret: Arc::new(secret),
            is_log_checked,
            disk,
            memory: None,
            restarts_at: Duration::ZERO,
        }
    }

    /// Starts from the disk. If `from_first`, applies the log from its beginning.
    pub(super) fn start(&mut self, log: &MemoryLog, from_first: bool) {
        let (agreement, applied) = if from_first {
            (self.disk.first_board.clone(), Height(0))
        } else {
            (self.disk.agreement.clone(), self.disk.applied)
        };
        let mut log = log.open(self.public, applied);
        log.applied(applied, &set_of(&agreement), check_of(&agreement, self.is_log_checked), None);
        self.memory = Some(SimulatedMemory {
            log,
            agreement,
            applied,
            old: None,
            new: None,
            jobs: Vec::new(),
            is_dirty: true,
        });
    }

    pub(super) fn crash(&mut self, restarts_at: Duration) {
        if let Some(memory) = self.memory.take()
            && memory.applied >= self.disk.applied
        {
            (self.disk.agreement, self.disk.applied) = (memory.agreement, memory.applied);
        }
        self.restarts_at = restarts_at;
    }

    pub(super) fn agreement(&self) -> &RefreshAgreement {
        self.memory.as_ref().map_or(&self.disk.agreement, |memory| &memory.agreement)
    }

    /// Its index in one of the groups.
    pub(super) fn index(&self, side: RefreshRole) -> Option<ServerIndex> {
        group_of(self.agreement(), side)?.index_of(&self.public)
    }

    /// Applies the next height of the log, if it is there. Returns what its entries did.
    pub(super) fn follow(&mut self) -> Option<Vec<Result<LogEntryEffect, LogEntryRefusal>>> {
        let memory = self.memory.as_mut()?;
        let context = &mut Context::from_waker(Waker::noop());
        let Poll::Ready(committed) = memory.log.poll_committed(context) else { return None };
        let committed = committed.expect("this log does not fail");
        let entries = committed.entries.iter().filter_map(|bytes| LogEntry::parse(bytes).ok());
        let done = entries.map(|entry| apply(&mut memory.agreement, &entry)).collect();
        let set = set_of(&memory.agreement);
        let check = check_of(&memory.agreement, self.is_log_checked);
        memory.log.applied(committed.height, &set, check, None);
        memory.applied = committed.height;
        memory.is_dirty = true;
        Some(done)
    }

    /// Starts the roles in an open run.
    fn start_machines(&mut self) {
        let Some(memory) = &mut self.memory else { return };
        // Items of a run that ended while the process was down, or before it began the epoch.
        if memory.applied >= self.disk.applied {
            let current = memory.agreement.run().map(RefreshRun::id);
            let has_begun = self.disk.begun.is_some();
            let is_open = |(run, side): &(Sha256Digest, RefreshRole)| {
                Some(*run) == current && !(has_begun && *side == RefreshRole::New)
            };
            self.disk.saved.retain(|of, _| is_open(of));
        }
        let Some(run) = memory.agreement.run() else { return };
        let (id, public) = (run.id(), self.public);
        let empty = SimulatedRunItems::new();
        let saved = |side| self.disk.saved.get(&(id, side)).unwrap_or(&empty);
        if let Some(index) = memory.agreement.epoch().group.index_of(&public)
            && memory.old.is_none()
            && let Some(shares) = &self.disk.shares
        {
            let (identity, shares) = (self.secret.clone(), shares.clone());
            let saved = saved(RefreshRole::Old);
            let server =
                OldServer::new(index, identity, shares, &DELAYS, &memory.agreement, saved).unwrap();
            memory.old = Some(SimulatedServer { run: id, server: Box::new(server) });
        }
        if let Some(index) = run.group().index_of(&public)
            && memory.new.is_none()
            && self.disk.begun.is_none()
        {
            let (identity, witnesses) = (self.secret.clone(), self.disk.old_witnesses.clone());
            let saved = saved(RefreshRole::New);
            let server =
                NewServer::new(index, identity, witnesses, &DELAYS, &memory.agreement, saved)
                    .unwrap();
            memory.new = Some(SimulatedServer { run: id, server: Box::new(server) });
        }
    }

    /// Polls the process for one step.
    pub(super) fn poll(
        &mut self,
        now: Duration,
        generator: &mut RandomGenerator,
        mut job_time: impl FnMut() -> Duration,
    ) -> ProcessStep {
        self.finish_jobs(now, generator);
        let is_dirty = self.memory.as_ref().is_some_and(|memory| memory.is_dirty);
        if !is_dirty && self.deadline().is_none_or(|at| at > now) {
            return ProcessStep::Nothing;
        }
        self.start_machines();
        let Some(memory) = &mut self.memory else { return ProcessStep::Nothing };
        let (mut done, agreement) = (None, &memory.agreement);
        if let Some(machine) = &mut memory.old {
            let output = machine.server.poll_output(now, agreement, generator).unwrap();
            done = output.map(|output| (machine.run, RefreshRole::Old, output));
            if done.is_none() && machine.server.is_over() {
                memory.old = None;
            }
        }
        if done.is_none()
            && let Some(machine) = &mut memory.new
        {
            let output = machine.server.poll_output(now, agreement, generator).unwrap();
            done = output.map(|output| (machine.run, RefreshRole::New, output));
            if done.is_none() && machine.server.is_over() {
                memory.new = None;
            }
        }
        memory.is_dirty = done.is_some();
        let Some((run, side, output)) = done else { return ProcessStep::Nothing };
        match output {
            RefreshOutput::Send { to, message } => {
                let bytes = message.to_bytes().to_vec();
                return ProcessStep::Act(ProcessAction::Send { from: side, to, bytes });
            }
            RefreshOutput::Submit(entry) => {
                let bytes = entry.to_bytes();
                assert_eq!(LogEntry::parse(&bytes).as_ref(), Ok(&entry));
                return ProcessStep::Act(ProcessAction::Submit(bytes));
            }
            RefreshOutput::Save { item, bytes } => {
                self.disk.saved.entry((run, side)).or_default().insert(item, bytes);
            }
            RefreshOutput::Job(job) => memory.jobs.push((now + job_time(), side, job)),
            RefreshOutput::Begin { header, witnesses, shares } => {
                self.disk.begun = Some(SimulatedEpoch { header, witnesses, shares });
            }
            RefreshOutput::Erase => {
                self.disk.saved.remove(&(run, side));
                if side == RefreshRole::Old
                    && memory.agreement.run().is_some_and(|it| it.next_epoch().is_some())
                {
                    self.disk.shares = None;
                }
            }
        }
        ProcessStep::Internal
    }

    fn finish_jobs(&mut self, now: Duration, generator: &mut RandomGenerator) {
        let Some(memory) = &mut self.memory else { return };
        while let Some(at) = memory.jobs.iter().position(|(ends, ..)| *ends <= now) {
            let (_, side, job) = memory.jobs.remove(at);
            let result: RefreshJobResult = job.run(generator).unwrap();
            match side {
                RefreshRole::Old => {
                    if let Some(machine) = &mut memory.old {
                        machine.server.handle_job(result);
                    }
                }
                RefreshRole::New => {
                    if let Some(machine) = &mut memory.new {
                        machine.server.handle_job(result, UnixSeconds(now.as_secs()));
                    }
                }
            }
            memory.is_dirty = true;
        }
    }

    /// Handles a message from the process with a key, to one of its roles. Returns the answer of a
    /// server that has begun the epoch.
    pub(super) fn handle(
        &mut self,
        (from_side, from): (RefreshRole, &IdentityPublicKey),
        to: RefreshRole,
        message: RefreshMessage,
    ) -> Option<RefreshMessage> {
        let memory = self.memory.as_mut()?;
        let from = group_of(&memory.agreement, from_side)?.index_of(from)?;
        memory.is_dirty = true;
        match to {
            RefreshRole::Old => {
                if let Some(machine) = &mut memory.old {
                    machine.server.handle_message(from, &message, &memory.agreement);
                }
            }
            RefreshRole::New => {
                if let (RefreshMessage::Ask { epoch, witnesses }, Some(begun)) =
                    (&message, &self.disk.begun)
                {
                    let witnesses = witnesses.then_some(&*begun.witnesses);
                    let group = begun.header.group.combination();
                    let is_asked = *epoch == begun.header.epoch && from_side == RefreshRole::New;
                    let answer = || answer(*epoch, witnesses, &begun.shares, from, group);
                    return is_asked.then(answer);
                }
                if let Some(machine) = &mut memory.new {
                    machine.server.handle_message((from_side, from), message, &memory.agreement);
                }
            }
        }
        None
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        let Some(memory) = &self.memory else { return Some(self.restarts_at) };
        let old = memory.old.as_ref().and_then(|machine| machine.server.deadline());
        let new = memory.new.as_ref().and_then(|machine| machine.server.deadline());
        let jobs = memory.jobs.iter().map(|(ends, ..)| *ends);
        jobs.chain(old).chain(new).min()
    }

    /// Whether nothing of the ended run is left.
    pub(super) fn is_idle(&self) -> bool {
        let is_idle =
            |it: &SimulatedMemory| it.old.is_none() && it.new.is_none() && it.jobs.is_empty();
        self.memory.as_ref().is_some_and(is_idle) && self.disk.saved.is_empty()
    }
}

/// The servers that agree on the next height.
fn set_of(agreement: &RefreshAgreement) -> ServerSet {
    match agreement.run().and_then(RefreshRun::next_epoch) {
        Some(next) => next.group.voters(&next.voting),
        None => agreement.epoch().group.voters(agreement.voting()),
    }
}

/// The check of a log. In half of the worlds, it is the servers' check. The others show that the
/// agreement does not depend on it.
fn check_of(agreement: &RefreshAgreement, is_checked: bool) -> EntryCheck {
    if is_checked { agreement.entry_check() } else { EntryCheck::anything() }
}

/// Applies an entry. Every entry that passes the check changes the agreement, once.
fn apply(
    agreement: &mut RefreshAgreement,
    entry: &LogEntry,
) -> Result<LogEntryEffect, LogEntryRefusal> {
    let checked = agreement.check(entry);
    let applied = agreement.apply(entry);
    assert_eq!(checked.err(), applied.clone().err(), "the check decides");
    assert!(applied.is_err() || agreement.check(entry).is_err(), "the slot is still free");
    applied
}

/// The group of one side, if a run is open.
pub(super) fn group_of(agreement: &RefreshAgreement, side: RefreshRole) -> Option<&QuorumGroup> {
    match side {
        RefreshRole::Old => Some(&agreement.epoch().group),
        RefreshRole::New => agreement.run().map(RefreshRun::group),
    }
}
