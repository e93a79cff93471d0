//! A refresh with one thread per server. Jobs of all servers share one thread per processor.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use keys::IdentitySecretKey;
use random::{RandomError, RandomGenerator};

use super::processor_time::measured;
use super::workers::{self, WorkerJob, WorkerJobResult};
use super::{GroupKeyParameters, InProcessGroup, SentVolume, members};
use crate::protocol::combination::{CombinatorialSharing, ServerIndex};
use crate::protocol::group::{GroupHeader, QuorumGroup};
use crate::protocol::refresh::output::RefreshTask;
use crate::protocol::refresh::{
    LabeledShares, LogEntry, NewServer, OldServer, RefreshAgreement, RefreshDelays,
    RefreshJobResult, RefreshMessage, RefreshOutput, RefreshRole, ShareWitnesses, answer,
};
use crate::protocol::unix_seconds::UnixSeconds;

/// The cost of a refresh.
#[derive(Clone, Debug)]
pub struct RefreshReport {
    /// The reports of the old servers, in the order of their indices.
    pub old: Vec<ServerRefreshReport>,
    /// The reports of the new servers, in the order of their indices.
    pub new: Vec<ServerRefreshReport>,
}

/// A server's work in a refresh.
#[derive(Clone, Debug, Default)]
pub struct ServerRefreshReport {
    /// The time from the opening of the run until the server had finished: an old server when it
    /// had wiped its shares, a new one when it had its own.
    pub done_after: Duration,
    /// The messages that it sent to others.
    pub messages: SentVolume,
    /// The entries that it submitted to the log.
    pub entries: SentVolume,
    /// The processor time that it used.
    pub work: RefreshProcessorTime,
}

/// The processor time of a server, by purpose.
#[derive(Clone, Copy, Debug, Default)]
pub struct RefreshProcessorTime {
    /// Proofs of subshares (old node, step 2).
    pub proving: Duration,
    /// Encryption of subshares (old node, step 3).
    pub sealing: Duration,
    /// Decryption and checks of subshares (new node, steps 4 and 5).
    pub verifying: Duration,
    /// New shares and witnesses, and the proof of possession (new node, steps 7 and 8).
    pub computing: Duration,
    /// Encoding and parsing of messages, and checks of the log's entries.
    pub exchanging: Duration,
}

/// The field in which the processor time of a job is counted.
type ProcessorTimeField = fn(&mut RefreshProcessorTime) -> &mut Duration;

type RefreshAddress = (RefreshRole, ServerIndex);

impl RefreshReport {
    /// The time from the opening of the run until the last server had finished.
    pub fn took(&self) -> Duration {
        let all = self.old.iter().chain(&self.new);
        all.map(|server| server.done_after).max().unwrap_or_default()
    }
}

impl RefreshProcessorTime {
    /// The sum.
    pub fn total(&self) -> Duration {
        let Self { proving, sealing, verifying, computing, exchanging } = *self;
        proving + sealing + verifying + computing + exchanging
    }

    fn account(task: &RefreshTask) -> ProcessorTimeField {
        match task {
            RefreshTask::ProveRow { .. } => |work| &mut work.proving,
            RefreshTask::Deliver { .. } => |work| &mut work.sealing,
            RefreshTask::Verify { .. } => |work| &mut work.verifying,
            _ => |work| &mut work.computing,
        }
    }
}

impl InProcessGroup {
    /// Moves the key to a new group. All servers are correct, so the servers of this group wipe
    /// their shares. The signatures of the two headers are not included.
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    #[expect(clippy::missing_panics_doc, reason = "correct servers finish")]
    pub fn refresh(
        self,
        setting: &GroupKeyParameters,
        to: &CombinatorialSharing,
        generator: &mut RandomGenerator,
    ) -> Result<(Self, RefreshReport), RandomError> {
        let (group, identities) = members(to, generator)?;
        let (agreement, begin) = (self.open(setting, &group), Instant::now());
        let delays = delays(self.combination(), to);
        let old = self.combination().servers().map(|it| (RefreshRole::Old, it));
        let new = to.servers().map(|it| (RefreshRole::New, it));
        let (mut inboxes, mut receivers) = (BTreeMap::new(), Vec::new());
        for address in old.chain(new) {
            let (sender, receiver) = mpsc::channel();
            inboxes.insert(address, sender);
            receivers.push((address, receiver));
        }
        let network = InProcessNetwork { inboxes, log: Arc::default() };
        let (orders, jobs) = mpsc::channel();
        let jobs = Mutex::new(jobs);
        let (finished, ends) = mpsc::channel();
        let servers = thread::scope(|scope| {
            workers::start(scope, &jobs);
            let start = |(address, inbox)| {
                let server = InProcessServer {
                    address,
                    machine: self.machine(address, &identities, &delays, &agreement),
                    agreement: agreement.clone(),
                    begin,
                    inbox,
                    network: network.clone(),
                    orders: orders.clone(),
                    finished: finished.clone(),
                    run: ServerRefreshReport::default(),
                    epoch: None,
                };
                scope.spawn(move || server.run())
            };
            let threads: Vec<_> = receivers.into_iter().map(start).collect();
            drop((orders, finished));
            if ends.iter().take(threads.len()).count() == threads.len() {
                network.stop();
            }
            let ends = threads.into_iter().map(|it| it.join().expect("a server ends"));
            ends.collect::<Result<Vec<_>, _>>()
        })?;
        let (old, new): (Vec<_>, Vec<_>) = servers.into_iter().partition(|(_, it)| it.is_none());
        let epochs: Vec<InProcessEpoch> =
            new.iter().filter_map(|(_, epoch)| epoch.clone()).collect();
        let InProcessEpoch { header, witnesses, .. } = epochs[0].clone();
        let shares = epochs.into_iter().map(|epoch| epoch.shares).collect();
        let [old, new] = [old, new].map(|side| side.into_iter().map(|(run, _)| run).collect());
        let group = Self { group, identities, shares, header, witnesses };
        Ok((group, RefreshReport { old, new }))
    }

    /// The state of a run that the operators of f+1 servers have approved.
    fn open(&self, setting: &GroupKeyParameters, to: &QuorumGroup) -> RefreshAgreement {
        let mut agreement = RefreshAgreement::new(setting.parameters.clone(), self.header.clone());
        let approving = self.combination().servers().take(self.combination().signer_count());
        for (server, identity) in approving.zip(&self.identities) {
            let approval = agreement.approval(server, to.clone(), identity);
            agreement.apply(&approval).expect("the approval is right");
        }
        agreement
    }

    fn machine(
        &self,
        (side, index): RefreshAddress,
        new: &[Arc<IdentitySecretKey>],
        delays: &RefreshDelays,
        agreement: &RefreshAgreement,
    ) -> RefreshServer {
        let (saved, at) = (BTreeMap::new(), usize::from(index.0));
        match side {
            RefreshRole::Old => {
                let (identity, shares) = (self.identities[at].clone(), self.shares[at].clone());
                let server = OldServer::new(index, identity, shares, delays, agreement, &saved);
                RefreshServer::Old(Box::new(server.expect("nothing was saved")))
            }
            RefreshRole::New => {
                let (identity, witnesses) = (new[at].clone(), self.witnesses.clone());
                let server = NewServer::new(index, identity, witnesses, delays, agreement, &saved);
                RefreshServer::New(Box::new(server.expect("nothing was saved")))
            }
        }
    }
}

/// Nothing is lost: every awaited message arrives, but large groups take longer.
fn delays(old: &CombinatorialSharing, new: &CombinatorialSharing) -> RefreshDelays {
    let subshares = u32::try_from(old.label_count() * new.label_count()).expect("it is small");
    let resend = Duration::from_secs(1) + subshares * Duration::from_millis(3);
    RefreshDelays { need: resend, grace: 10 * resend, resend }
}

enum InProcessInput {
    Message { from: RefreshAddress, bytes: Arc<Vec<u8>> },
    Entry(Arc<Vec<u8>>),
    Done(WorkerJobResult<ProcessorTimeField>),
    Stop,
}

impl From<WorkerJobResult<ProcessorTimeField>> for InProcessInput {
    fn from(done: WorkerJobResult<ProcessorTimeField>) -> Self {
        Self::Done(done)
    }
}

/// The links and the log.
#[derive(Clone)]
struct InProcessNetwork {
    inboxes: BTreeMap<RefreshAddress, Sender<InProcessInput>>,
    /// Locked while an entry is sent to all servers, so that all receive entries in the same order.
    log: Arc<Mutex<()>>,
}

impl InProcessNetwork {
    fn send(&self, from: RefreshAddress, to: RefreshAddress, bytes: Vec<u8>) {
        // A server that has ended receives nothing.
        let _ = self.inboxes[&to].send(InProcessInput::Message { from, bytes: Arc::new(bytes) });
    }

    fn submit(&self, entry: Vec<u8>) {
        let entry = Arc::new(entry);
        let order = self.log.lock();
        for inbox in self.inboxes.values() {
            let _ = inbox.send(InProcessInput::Entry(entry.clone()));
        }
        drop(order);
    }

    fn stop(&self) {
        for inbox in self.inboxes.values() {
            let _ = inbox.send(InProcessInput::Stop);
        }
    }
}

enum RefreshServer {
    Old(Box<OldServer>),
    New(Box<NewServer>),
}

/// The state with which a new server begins its epoch.
#[derive(Clone)]
struct InProcessEpoch {
    header: GroupHeader,
    witnesses: Arc<ShareWitnesses>,
    shares: Arc<LabeledShares>,
}

struct InProcessServer {
    address: RefreshAddress,
    machine: RefreshServer,
    agreement: RefreshAgreement,
    begin: Instant,
    inbox: Receiver<InProcessInput>,
    network: InProcessNetwork,
    orders: Sender<WorkerJob<InProcessInput, ProcessorTimeField>>,
    finished: Sender<()>,
    run: ServerRefreshReport,
    epoch: Option<InProcessEpoch>,
}

/// However a server ends, the others do not wait for it.
impl Drop for InProcessServer {
    fn drop(&mut self) {
        self.network.stop();
    }
}

impl InProcessServer {
    /// Runs the server until all servers are done.
    fn run(mut self) -> Result<(ServerRefreshReport, Option<InProcessEpoch>), RandomError> {
        let (result, took) = measured(|| self.serve());
        self.run.work.exchanging = took;
        result.map(|()| (self.run.clone(), self.epoch.clone()))
    }

    fn serve(&mut self) -> Result<(), RandomError> {
        let mut generator = RandomGenerator::seeded()?;
        loop {
            self.poll(&mut generator)?;
            let deadline = match &self.machine {
                RefreshServer::Old(server) => server.deadline(),
                RefreshServer::New(server) => server.deadline(),
            };
            let wait = deadline.map(|at| at.saturating_sub(self.begin.elapsed()));
            let input = match wait {
                Some(wait) => self.inbox.recv_timeout(wait),
                None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match input {
                Ok(InProcessInput::Message { from, bytes }) => self.handle_message(from, &bytes),
                Ok(InProcessInput::Entry(bytes)) => {
                    let entry = LogEntry::parse(&bytes).expect("servers are correct");
                    // It is rejected if it is too late.
                    let _ = self.agreement.apply(&entry);
                }
                Ok(InProcessInput::Done(WorkerJobResult { result, kind, took })) => {
                    *kind(&mut self.run.work) += took;
                    self.handle_job(result?);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(InProcessInput::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    fn handle_message(&mut self, from: RefreshAddress, bytes: &[u8]) {
        let message = RefreshMessage::parse(bytes).expect("servers are correct");
        // A server of the new epoch answers from its shares.
        if let (RefreshMessage::Ask { epoch, witnesses }, Some(own)) = (&message, &self.epoch) {
            let witnesses = witnesses.then_some(&*own.witnesses);
            let group = own.header.group.combination();
            let message = answer(*epoch, witnesses, &own.shares, from.1, group);
            self.send(from, &message);
            return;
        }
        match &mut self.machine {
            RefreshServer::Old(server) => server.handle_message(from.1, &message, &self.agreement),
            RefreshServer::New(server) => server.handle_message(from, message, &self.agreement),
        }
    }

    fn handle_job(&mut self, result: RefreshJobResult) {
        match &mut self.machine {
            RefreshServer::Old(server) => server.handle_job(result),
            RefreshServer::New(server) => {
                server.handle_job(result, UnixSeconds::from_system(SystemTime::now()));
            }
        }
    }

    fn is_over(&self) -> bool {
        match &self.machine {
            RefreshServer::Old(server) => server.is_over(),
            RefreshServer::New(server) => server.is_over(),
        }
    }

    fn send(&mut self, to: RefreshAddress, message: &RefreshMessage) {
        let bytes = message.to_bytes().to_vec();
        self.run.messages.add(bytes.len());
        self.network.send(self.address, to, bytes);
    }

    /// Runs the state machine as far as possible.
    fn poll(&mut self, generator: &mut RandomGenerator) -> Result<(), RandomError> {
        loop {
            let now = self.begin.elapsed();
            let output = match &mut self.machine {
                RefreshServer::Old(server) => {
                    server.poll_output(now, &self.agreement, generator)?
                }
                RefreshServer::New(server) => {
                    server.poll_output(now, &self.agreement, generator)?
                }
            };
            match output {
                None => return Ok(()),
                Some(RefreshOutput::Send { to, message }) => self.send(to, &message),
                Some(RefreshOutput::Submit(entry)) => {
                    let bytes = entry.to_bytes();
                    self.run.entries.add(bytes.len());
                    self.network.submit(bytes);
                }
                Some(RefreshOutput::Job(job)) => {
                    let kind = RefreshProcessorTime::account(&job.task);
                    let reply = self.network.inboxes[&self.address].clone();
                    let _ = self.orders.send(WorkerJob { job, kind, reply });
                }
                Some(RefreshOutput::Begin { header, witnesses, shares }) => {
                    self.epoch = Some(InProcessEpoch { header, witnesses, shares });
                }
                Some(RefreshOutput::Erase) if self.is_over() => {
                    self.run.done_after = self.begin.elapsed();
                    let _ = self.finished.send(());
                }
                // No server restarts, so nothing needs to be saved or erased.
                Some(RefreshOutput::Save { .. } | RefreshOutput::Erase) => {}
            }
        }
    }
}
