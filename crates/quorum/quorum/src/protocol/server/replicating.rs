//! The replicated service of a server: its clients' requests, their answers, and the state that a
//! new server needs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use encoding::{FieldReader, FieldWrite as _};
use keys::IdentityPublicKey;

use super::QuorumServer;
use super::change::SavedStateChange;
use super::output::{
    LocalRequestId, QuorumServerEvent, QuorumServerOutput, ReplicatedServiceStatus, SignRefusal,
};
use super::refreshing::{STATE, STATE_ASK};
use super::signing::SignRequestPurpose;
use crate::protocol::group::QuorumGroup;
use crate::protocol::link::LinkTopic;
use crate::protocol::log_types::Height;
use crate::protocol::refresh::{LogEntry, LogEntryBody, MAX_COMMAND_BYTES, RefreshRun};
use crate::protocol::replication::replica::{ServiceReplica, StatementTruth};
use crate::protocol::replication::{
    MAX_BATCH_LEN, MAX_BATCH_REQUESTS, MAX_STATE_LEN, ReplicatedService, is_request, request_digest,
};
use crate::protocol::wire::{MalformedEncoding, Sha256Digest};

/// The largest number of clients' requests that wait, at most 4 MiB.
const MAX_QUEUED_COMMANDS: usize = 256;

/// The largest number of requests that are in the log or whose answers are being signed: fewer than
/// the answers that other servers keep for this one.
const MAX_UNDER_WAY: usize = 192;

/// How long a server waits for the state before it asks another one, at first and at most.
const MIN_ASK_DELAY: Duration = Duration::from_millis(200);
const MAX_ASK_DELAY: Duration = Duration::from_secs(10);

/// A service, and its requests under way.
pub(super) struct ServiceState {
    pub(super) replica: ServiceReplica,
    queue: VecDeque<QueuedCommand>,
    /// The batch that was submitted and is not committed yet.
    batch: Option<CommandBatch>,
    submit_at: Duration,
    ask_at: Duration,
    ask_delay: Duration,
    /// The number of servers that were asked.
    asked: usize,
    checkpoints: BTreeMap<Height, SignedCheckpoint>,
    /// The entry by which this server can begin an epoch. It waits for the state.
    held: Option<LogEntry>,
}

/// A client's request that is not committed yet.
struct QueuedCommand {
    id: LocalRequestId,
    request: Vec<u8>,
    deadline: Duration,
}

struct CommandBatch {
    entry: LogEntry,
    commands: Vec<QueuedCommand>,
}

/// The checkpoint of a snapshot that others have asked for.
#[derive(Default)]
struct SignedCheckpoint {
    signature: Option<Vec<u8>>,
    /// When its signature may be requested again.
    request_at: Duration,
    /// The servers that wait for it.
    askers: BTreeSet<[u8; 32]>,
}

impl ServiceState {
    pub(super) fn new(service: ReplicatedService, now: Duration) -> Self {
        Self {
            replica: ServiceReplica::new(service),
            queue: VecDeque::new(),
            batch: None,
            submit_at: now,
            ask_at: now,
            ask_delay: MIN_ASK_DELAY,
            asked: 0,
            checkpoints: BTreeMap::new(),
            held: None,
        }
    }

    /// Whether this server is to have the state, and does not have it.
    pub(super) fn lacks_state(&self) -> bool {
        !self.replica.has_state()
    }

    /// Holds back the entry by which this server says that it can begin an epoch, until it has the
    /// state. Returns whether it does.
    pub(super) fn holds_back(&mut self, entry: &LogEntry) -> bool {
        let begins = matches!(
            entry.body,
            LogEntryBody::Computed { .. } | LogEntryBody::Handover { time: Some(_), .. }
        );
        let is_held = self.lacks_state() && begins;
        if is_held {
            self.held = Some(entry.clone());
        }
        is_held
    }

    /// Another height is the base of the state.
    fn restart(&mut self, now: Duration) {
        (self.ask_at, self.ask_delay) = (now, MIN_ASK_DELAY);
        self.checkpoints.clear();
        self.held = None;
    }

    /// The commands of the batch wait again, because it can no longer be committed.
    fn requeue_batch(&mut self) {
        for command in self.batch.take().into_iter().flat_map(|it| it.commands).rev() {
            self.queue.push_front(command);
        }
    }
}

impl QuorumServer {
    /// Whether this server has the state of its replicated service.
    pub fn has_service_state(&self) -> bool {
        self.service.as_ref().is_some_and(|service| service.replica.has_state())
    }

    /// The status of its replicated service, if it runs one.
    pub(super) fn service_status(&self) -> Option<ReplicatedServiceStatus> {
        let service = self.service.as_ref()?;
        let epoch = self.epoch.as_ref();
        let used = epoch.and_then(|epoch| Some(epoch.agreement.command_bytes(epoch.index?)));
        let submitted = service.batch.as_ref().map_or(0, |batch| batch.commands.len());
        Some(ReplicatedServiceStatus {
            name: service.replica.name().to_owned(),
            has_state: service.replica.has_state(),
            waiting: service.queue.len() + submitted + self.answers_under_way(),
            log_bytes: used.unwrap_or(0),
            max_log_bytes: MAX_COMMAND_BYTES,
            snapshot_bytes: service.replica.snapshot_len(),
        })
    }

    /// Submits a client's request to the replicated service. The result is a
    /// [`QuorumServerOutput::Reply`] with a
    /// [`SignedServiceAnswer`](crate::replication::SignedServiceAnswer).
    pub fn command(&mut self, now: Duration, id: LocalRequestId, request: Vec<u8>) {
        if let Err(refusal) = self.queue_command(now, id, request) {
            self.push(QuorumServerOutput::Reply { id, result: Err(refusal) });
        }
    }

    fn queue_command(
        &mut self,
        now: Duration,
        id: LocalRequestId,
        request: Vec<u8>,
    ) -> Result<(), SignRefusal> {
        let is_member = self.epoch.as_ref().is_some_and(|epoch| epoch.index.is_some());
        let service = self.service.as_mut().ok_or(SignRefusal::NoService)?;
        if !is_request(&request) {
            return Err(SignRefusal::CommandLength);
        }
        if !is_member || self.newer.is_some() {
            return Err(SignRefusal::NoMember);
        }
        if service.lacks_state() {
            return Err(SignRefusal::NoState);
        }
        if service.queue.len() >= MAX_QUEUED_COMMANDS {
            return Err(SignRefusal::Busy);
        }
        let deadline = now + self.settings.timeouts.sign;
        service.queue.push_back(QueuedCommand { id, request, deadline });
        Ok(())
    }

    /// The server follows a log from its start on, with a snapshot that it has saved.
    pub(super) fn start_service(&mut self, now: Duration, saved: Option<(Height, Bytes)>) {
        let Some(epoch) = &self.epoch else { return };
        let base = epoch.start.height;
        let Some(service) = &mut self.service else { return };
        service.replica.start(base, saved.filter(|(height, _)| *height == base).map(|it| it.1));
        service.restart(now);
    }

    /// Applies a committed batch. If it is this server's, requests signatures of the answers.
    pub(super) fn apply_commands(&mut self, now: Duration, height: Height, entry: LogEntry) {
        let (Some(epoch), Some(service)) = (&self.epoch, &mut self.service) else { return };
        let author = epoch.header.group.member(entry.author).map(|member| member.identity);
        let Some(author) = author else { return };
        let own = service.batch.take_if(|batch| batch.entry == entry);
        let LogEntryBody::Command { requests, .. } = entry.body else { return };
        service.replica.apply(height, epoch.header.epoch, author, requests);
        let name = service.replica.name().to_owned();
        for command in own.into_iter().flat_map(|batch| batch.commands) {
            let digest = request_digest(&name, &command.request);
            let answer = self.service.as_ref().map(|it| &it.replica);
            let answer = answer.and_then(|it| it.answer(&author, height, digest));
            if let Some(statement) = answer {
                let deadline = now + self.settings.timeouts.sign;
                let purpose = SignRequestPurpose::Answer(command.id);
                self.queue_signing(purpose, statement.into(), self.own_encoding(), deadline);
            } else {
                let result = Err(SignRefusal::NotCommitted);
                self.push(QuorumServerOutput::Reply { id: command.id, result });
            }
        }
    }

    /// A run was opened at this height: its new servers need the state.
    pub(super) fn keep_snapshot(&mut self, height: Height) {
        if let Some(service) = &mut self.service {
            service.replica.keep_snapshot(height);
        }
    }

    /// The run was cancelled.
    pub(super) fn drop_run_snapshots(&mut self) {
        if let Some(service) = &mut self.service {
            service.replica.drop_run_snapshots();
            let base = service.replica.base();
            service.checkpoints.retain(|height, _| *height == base);
        }
    }

    /// An epoch has begun after this height. The snapshot is saved together with the start.
    pub(super) fn begin_service_epoch(&mut self, now: Duration, height: Height) {
        let (Some(epoch), Some(service)) = (&self.epoch, &mut self.service) else { return };
        let groups = epoch.start.group_before().into_iter().chain([&epoch.header.group]);
        let servers =
            groups.flat_map(QuorumGroup::members).map(|it| it.identity.to_bytes()).collect();
        let snapshot = service.replica.begin_epoch(height, &servers);
        service.restart(now);
        if let Some(bytes) = snapshot {
            self.changes.push(SavedStateChange::Snapshot { height, bytes });
        }
        self.end_commands();
    }

    /// Refuses the requests that wait, if this server is not a member any more.
    pub(super) fn end_commands(&mut self) {
        let is_member = self.epoch.as_ref().is_some_and(|epoch| epoch.index.is_some());
        let Some(service) = &mut self.service else { return };
        service.requeue_batch();
        if is_member && self.newer.is_none() && !service.lacks_state() {
            return;
        }
        // A server that is behind does not know whether its last batch was committed.
        let refusal =
            if self.newer.is_some() { SignRefusal::NotCommitted } else { SignRefusal::EpochEnded };
        for command in std::mem::take(&mut service.queue) {
            let result = Err(refusal);
            self.push(QuorumServerOutput::Reply { id: command.id, result });
        }
    }

    /// Submits the next batch, or the last one again, and asks for the state if it is missing.
    pub(super) fn step_service(&mut self, now: Duration) {
        if self.service.is_none() {
            return;
        }
        self.ask_for_state(now);
        self.end_late_commands(now);
        self.submit_commands(now);
    }

    fn end_late_commands(&mut self, now: Duration) {
        let Some(service) = &mut self.service else { return };
        let mut late: Vec<QueuedCommand> = Vec::new();
        while service.queue.front().is_some_and(|it| it.deadline <= now) {
            late.extend(service.queue.pop_front());
        }
        if let Some(batch) = &mut service.batch {
            // The batch itself stays in the log's pool.
            late.extend(batch.commands.extract_if(.., |it| it.deadline <= now));
        }
        for command in late {
            let result = Err(SignRefusal::NotCommitted);
            self.push(QuorumServerOutput::Reply { id: command.id, result });
        }
    }

    fn submit_commands(&mut self, now: Duration) {
        let under_way = self.answers_under_way();
        let (Some(epoch), Some(service)) = (&self.epoch, &mut self.service) else { return };
        let Some(index) = epoch.index.filter(|_| self.newer.is_none()) else { return };
        let is_next = |batch: &CommandBatch| epoch.agreement.is_next_command(&batch.entry);
        if !service.batch.as_ref().is_some_and(is_next) {
            service.requeue_batch();
            let commands = next_batch(&mut service.queue, MAX_UNDER_WAY.saturating_sub(under_way));
            if commands.is_empty() {
                return;
            }
            let requests = commands.iter().map(|it| it.request.clone()).collect();
            let identity = &self.settings.identity;
            let Some(entry) = epoch.agreement.command_entry(index, requests, identity) else {
                for command in commands {
                    let result = Err(SignRefusal::CommandsFull);
                    self.push(QuorumServerOutput::Reply { id: command.id, result });
                }
                return;
            };
            service.batch = Some(CommandBatch { entry, commands });
            service.submit_at = now;
        }
        if service.submit_at <= now
            && let Some(batch) = &service.batch
        {
            service.submit_at = now + self.settings.timeouts.retry;
            let entry = batch.entry.clone();
            self.submit(&entry);
        }
    }

    /// Asks one server for the snapshot of the base, the servers of the epoch first.
    fn ask_for_state(&mut self, now: Duration) {
        let (Some(epoch), Some(service)) = (&self.epoch, &mut self.service) else { return };
        if !service.lacks_state() || service.ask_at > now {
            return;
        }
        let own = self.settings.identity.public();
        let members = epoch.header.group.members().iter().map(|it| it.identity);
        let mut servers: Vec<IdentityPublicKey> = Vec::new();
        for server in members.chain(self.peers.iter().map(|it| it.identity)) {
            if server != own && !servers.contains(&server) {
                servers.push(server);
            }
        }
        service.ask_at = now + service.ask_delay;
        service.ask_delay = (2 * service.ask_delay).min(MAX_ASK_DELAY);
        let Some(&server) = servers.get(service.asked % servers.len().max(1)) else { return };
        service.asked = service.asked.wrapping_add(1);
        let mut bytes = vec![STATE_ASK];
        bytes.put_u64(service.replica.base().0);
        self.send(server, LinkTopic::Refresh, bytes);
    }

    /// Sends the snapshot of a height to a server of this group or of the open run's new group,
    /// once the group has signed its checkpoint.
    pub(super) fn handle_state_ask(
        &mut self,
        now: Duration,
        from: &IdentityPublicKey,
        bytes: &[u8],
    ) -> Result<(), MalformedEncoding> {
        let mut reader = FieldReader::new(bytes);
        let height = Height(reader.u64()?);
        reader.finish()?;
        let (Some(epoch), Some(service)) = (&self.epoch, &mut self.service) else { return Ok(()) };
        let new = epoch.agreement.run().map(RefreshRun::group);
        let is_in = |group: &QuorumGroup| group.index_of(from).is_some();
        if !is_in(&epoch.header.group) && !new.is_some_and(is_in) {
            return Err(MalformedEncoding("a question for the state from another server"));
        }
        let is_short = |len: usize| len <= MAX_STATE_LEN;
        if service.replica.snapshot(height).is_none_or(|it| !is_short(it.bytes.len())) {
            return Ok(());
        }
        service.checkpoints.entry(height).or_default().askers.insert(from.to_bytes());
        self.request_checkpoint(now, height);
        self.send_states(height);
        Ok(())
    }

    /// Requests the group's signature of a checkpoint, unless it has one.
    fn request_checkpoint(&mut self, now: Duration, height: Height) {
        let Some(service) = &mut self.service else { return };
        let Some(snapshot) = service.replica.snapshot(height) else { return };
        let statement = service.replica.checkpoint(height, snapshot.digest);
        let signed = service.checkpoints.entry(height).or_default();
        if signed.signature.is_some() || signed.request_at > now {
            return;
        }
        let deadline = now + self.settings.timeouts.sign;
        signed.request_at = deadline;
        let purpose = SignRequestPurpose::Checkpoint(height);
        self.queue_signing(purpose, statement.into(), self.own_encoding(), deadline);
    }

    /// The group has signed a checkpoint.
    pub(super) fn checkpoint_signed(&mut self, height: Height, signature: Vec<u8>) {
        if let Some(service) = &mut self.service
            && let Some(snapshot) = service.replica.snapshot(height)
        {
            let statement = service.replica.checkpoint(height, snapshot.digest);
            if self.settings.anchor.verify(&statement, &signature) {
                service.checkpoints.entry(height).or_default().signature = Some(signature);
                self.send_states(height);
            }
        }
    }

    fn send_states(&mut self, height: Height) {
        let Some(service) = &mut self.service else { return };
        let snapshot = service.replica.snapshot(height);
        let checkpoint = service.checkpoints.get_mut(&height);
        let Some((snapshot, checkpoint)) = snapshot.zip(checkpoint) else { return };
        let Some(signature) = &checkpoint.signature else { return };
        let mut bytes = vec![STATE];
        bytes.put_counted(signature);
        bytes.extend_from_slice(&snapshot.bytes);
        let bytes = Bytes::from(bytes);
        for asker in std::mem::take(&mut checkpoint.askers) {
            if let Ok(asker) = IdentityPublicKey::from_bytes(&asker) {
                self.send(asker, LinkTopic::Refresh, bytes.clone());
            }
        }
    }

    /// Uses the state that another server has sent, if the group has signed its checkpoint.
    pub(super) fn handle_state(&mut self, bytes: &[u8]) -> Result<(), MalformedEncoding> {
        // Otherwise it is not needed any more.
        let service = self.service.as_mut().filter(|service| service.lacks_state());
        let Some(service) = service.filter(|_| self.epoch.is_some()) else { return Ok(()) };
        let mut reader = FieldReader::new(bytes);
        let signature = reader.counted()?;
        let snapshot = reader.rest_up_to(MAX_STATE_LEN)?;
        let height = service.replica.base();
        let statement = service.replica.checkpoint(height, Sha256Digest::of(&[snapshot]));
        if !self.settings.anchor.verify(&statement, signature) {
            return Err(MalformedEncoding("a state that the group has not signed"));
        }
        let bytes = Bytes::copy_from_slice(snapshot);
        if !service.replica.receive(bytes.clone()) {
            return Err(MalformedEncoding("a state that this server's service does not accept"));
        }
        let held = service.held.take();
        self.changes.push(SavedStateChange::Snapshot { height, bytes });
        // After the save.
        if let Some(entry) = held {
            self.submit(&entry);
        }
        self.push(QuorumServerOutput::Event(QuorumServerEvent::HasServiceState { height }));
        Ok(())
    }

    /// Whether a statement about the service may be signed.
    pub(super) fn judge_statement(&self, statement: &[u8]) -> StatementTruth {
        let truth = self.service.as_ref().map(|it| it.replica.judge(statement, self.height));
        truth.unwrap_or(StatementTruth::False)
    }

    /// The digest of the service's state.
    #[cfg(test)]
    pub(super) fn service_digest(&self) -> Option<Sha256Digest> {
        self.service_snapshot().map(|bytes| Sha256Digest::of(&[&bytes]))
    }

    /// The service's state.
    #[cfg(test)]
    pub(super) fn service_snapshot(&self) -> Option<Vec<u8>> {
        self.service.as_ref()?.replica.current()
    }

    pub(super) fn service_deadline(&self) -> Option<Duration> {
        let service = self.service.as_ref().filter(|_| self.epoch.is_some())?;
        let ask = service.lacks_state().then_some(service.ask_at);
        let batch = service.batch.as_ref().filter(|_| self.newer.is_none());
        let submit = batch.map(|_| service.submit_at);
        let late = batch.into_iter().flat_map(|it| &it.commands).chain(&service.queue);
        ask.into_iter().chain(submit).chain(late.map(|it| it.deadline)).min()
    }
}

/// Takes the first commands that fit a batch.
fn next_batch(queue: &mut VecDeque<QueuedCommand>, max: usize) -> Vec<QueuedCommand> {
    let mut left = MAX_BATCH_LEN;
    let mut taken = Vec::new();
    while taken.len() < max.min(MAX_BATCH_REQUESTS)
        && queue.front().is_some_and(|it| it.request.len() + 4 <= left)
        && let Some(command) = queue.pop_front()
    {
        left -= command.request.len() + 4;
        taken.push(command);
    }
    taken
}
