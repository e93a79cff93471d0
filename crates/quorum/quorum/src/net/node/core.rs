//! The event loop, which passes inputs to a server and executes its outputs.

use std::collections::{HashMap, HashSet};
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use random::RandomGenerator;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, sleep_until};
use tracing::{debug, warn};

use super::answers::{AnswerAuditRecord, AnswerCounter};
use super::config::QuorumNodeConfig;
use super::incoming::NodeInboxes;
use super::local::{NodeCommand, PendingSignRequest};
use super::registrations::{NodeRegistrations, is_review};
use super::status::PublishedNodeState;
use super::{LogInboxSource, LogStart, NodeError, NodeNetwork, lock};
use crate::log::{AgreementLog, CommittedEntries, LogFailed, SubmitError};
use crate::net::api::ApiCaller;
use crate::net::links::{LinkLane, LinkTopic, QuorumLinks, QuorumPeer, TopicInbox};
use crate::net::store::QuorumStore;
use crate::net::store::audit;
use crate::protocol::group::QuorumMember;
use crate::protocol::policy::MessageDigest;
use crate::protocol::replication::SignedServiceAnswer;
use crate::protocol::server::{
    ApprovedGroup, GroupStart, LocalRequestId, QuorumServer, QuorumServerEvent, QuorumServerJob,
    QuorumServerJobResult, QuorumServerOutput, QuorumServerSettings, SignRefusal,
};
use crate::protocol::unix_seconds::UnixSeconds;

/// The longest interval between two publications of the state and checks of the health.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);

/// The largest number of messages that are handled before other events.
const MAX_BATCH: usize = 16;

/// A node's server, with everything that it uses.
pub(super) struct NodeEventLoop<L, F> {
    pub(super) server: QuorumServer,
    pub(super) store: QuorumStore,
    generator: RandomGenerator,
    pub(super) links: Arc<QuorumLinks>,
    pub(super) registrations: NodeRegistrations,
    /// The registered messages that were not signed for a user of this server yet.
    pub(super) unused: HashSet<MessageDigest>,
    /// The members of the groups.
    members: Vec<QuorumMember>,
    configured_peers: Vec<QuorumPeer>,
    /// The servers of a bundle, until a group is known.
    bundled_peers: Vec<QuorumPeer>,
    incoming: NodeInboxes,
    log: Option<L>,
    start_log: F,
    /// The inbox of the log, until it starts.
    for_log: Option<TopicInbox>,
    jobs: NodeJobRunner,
    done: mpsc::UnboundedReceiver<Result<QuorumServerJobResult, NodeError>>,
    requests: HashMap<LocalRequestId, PendingSignRequest>,
    /// The local user who has withdrawn the approval, until the log has the withdrawal.
    withdrawing: Option<ApiCaller>,
    next_request: u64,
    answers: AnswerCounter,
    pub(super) shared: Arc<Mutex<PublishedNodeState>>,
    start: Instant,
}

/// Runs jobs on other threads.
struct NodeJobRunner {
    done: mpsc::UnboundedSender<Result<QuorumServerJobResult, NodeError>>,
    /// Jobs of a refresh use at most all processors. Answers to requests for signatures and heights
    /// of the log do not wait for them. The server bounds their number.
    refresh_job_permits: Arc<Semaphore>,
}

impl NodeJobRunner {
    fn run(&self, job: QuorumServerJob) {
        let (done, places) = (self.done.clone(), Arc::clone(&self.refresh_job_permits));
        let is_urgent = job.is_urgent();
        let run = move || {
            let run =
                || RandomGenerator::seeded().and_then(|mut generator| job.run(&mut generator));
            // The server would wait for the result for ever.
            let result = catch_unwind(AssertUnwindSafe(run)).map_err(|_| NodeError::Panicked);
            // Nothing receives it if the node has stopped.
            let _ = done.send(result.and_then(|result| result.map_err(NodeError::from)));
        };
        if is_urgent {
            tokio::task::spawn_blocking(run);
            return;
        }
        tokio::spawn(async move {
            let Ok(place) = places.acquire_owned().await else { return };
            // It fails only if the process ends.
            let _ = tokio::task::spawn_blocking(run).await;
            drop(place);
        });
    }
}

impl<L, F> NodeEventLoop<L, F>
where
    L: AgreementLog + Send,
    F: FnMut(LogStart<L>) -> Result<L, LogFailed>,
{
    pub(super) fn new(
        settings: QuorumServerSettings,
        mut store: QuorumStore,
        network: NodeNetwork,
        start_log: F,
        shared: Arc<Mutex<PublishedNodeState>>,
        start: Instant,
    ) -> Result<Self, NodeError> {
        let now = UnixSeconds::from_system(SystemTime::now());
        let lifetime = network.registration_expires;
        store.shorten_registrations(UnixSeconds(now.0.saturating_add(lifetime.as_secs())))?;
        for digest in store.expire(now)? {
            let event = audit::AuditEvent::Expired { digest: digest.to_string() };
            store.record(&event, SystemTime::now())?;
        }
        let (saved, registered) = (store.saved()?, store.registered()?);
        let unused = store.unused()?;
        let registrations = NodeRegistrations::new(&store, lifetime, now)?;
        let has_begun = saved.start.is_some();
        let server = QuorumServer::new(settings, saved, registered, start.elapsed())?;
        let NodeNetwork { links, inboxes: [for_log, signing, refresh], peers, bundled, .. } =
            network;
        let (sender, done) = mpsc::unbounded_channel();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let jobs = NodeJobRunner {
            done: sender,
            refresh_job_permits: Arc::new(Semaphore::new(processors)),
        };
        let core = Self {
            server,
            store,
            generator: RandomGenerator::seeded()?,
            links,
            registrations,
            unused,
            members: Vec::new(),
            configured_peers: peers,
            bundled_peers: bundled,
            incoming: NodeInboxes::new(signing, refresh),
            log: None,
            start_log,
            for_log: Some(for_log),
            jobs,
            done,
            requests: HashMap::new(),
            withdrawing: None,
            next_request: 0,
            answers: AnswerCounter::default(),
            shared,
            start,
        };
        // A server that has begun knows the servers of its groups, and outputs them first.
        if !has_begun {
            core.connect();
        }
        core.publish_start();
        Ok(core)
    }

    /// Runs until a failure, or until `stopped` ends.
    pub(super) async fn run(
        mut self,
        mut commands: mpsc::Receiver<NodeCommand>,
        mut stopped: oneshot::Receiver<()>,
    ) -> Result<(), NodeError> {
        let mut ticks = interval(PUBLISH_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.server.set_time(UnixSeconds::from_system(SystemTime::now()));
            self.do_outputs()?;
            self.receive()?;
            self.publish();
            let deadlines = self.server.deadline().into_iter().chain(self.incoming.ready());
            let deadline = deadlines.min().map(|at| self.start + at);
            let wait = async {
                match deadline {
                    Some(at) => sleep_until(at.into()).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                _ = &mut stopped => return Ok(()),
                Some(command) = commands.recv() => self.command(command)?,
                first = self.incoming.next() => {
                    let now = self.now();
                    for server in self.incoming.take(first) {
                        self.server.handle_link_up(now, &server);
                        self.registrations.handle_link_up(&server, now);
                    }
                }
                Some(done) = self.done.recv() => {
                    let now = self.now();
                    self.server.handle_job(now, done?);
                }
                committed = next_of(&mut self.log) => {
                    let now = self.now();
                    self.server.handle_committed(now, &committed?, &mut self.generator)?;
                }
                () = wait => {}
                // The log runs independently, so its progress is read again.
                _ = ticks.tick() => {
                    self.watch();
                    self.expire_registrations()?;
                    self.ask_for_registrations()?;
                    while let Some(repeated) = self.answers.poll(Instant::now()) {
                        self.record_answers(repeated)?;
                    }
                }
            }
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Handles messages of other servers.
    fn receive(&mut self) -> Result<(), NodeError> {
        for _ in 0..MAX_BATCH {
            let now = self.now();
            let Some((topic, message)) = self.incoming.pop(now) else { return Ok(()) };
            if is_review(topic, &message.bytes) {
                self.handle_review(message.from(), &message.bytes)?;
                continue;
            }
            let queued = self.links.queued(message.from(), LinkLane::Urgent);
            self.server.handle_message(now, message.from(), topic, &message.bytes, queued);
            self.do_outputs()?;
        }
        Ok(())
    }

    fn command(&mut self, command: NodeCommand) -> Result<(), NodeError> {
        match command {
            // The callers may be gone.
            NodeCommand::Register(message, by, reply) => {
                let registered = self.register(&message, by)?;
                let _ = reply.send(registered);
            }
            NodeCommand::Withdraw(digest, by, reply) => {
                let was_registered = self.withdraw(digest, by)?;
                let _ = reply.send(was_registered);
            }
            NodeCommand::Show(digest, reply) => {
                let _ = reply.send(self.store.registered_message(digest)?);
            }
            NodeCommand::Pending(reply) => {
                self.publish_registrations()?;
                let _ = reply.send(self.store.unused_registrations(usize::MAX)?);
            }
            NodeCommand::Sign(message, encoding, by, reply) => {
                let id = LocalRequestId(self.next_request);
                self.next_request += 1;
                let digest = Some(MessageDigest::of(&message));
                self.requests.insert(id, PendingSignRequest { digest, by, reply });
                let encoding = match encoding {
                    Some(encoding) => encoding.with_salt(&mut self.generator)?,
                    None => self.server.own_encoding(),
                };
                let now = self.now();
                self.server.sign(now, id, message, encoding);
            }
            NodeCommand::Command(request, by, reply) => {
                let id = LocalRequestId(self.next_request);
                self.next_request += 1;
                self.requests.insert(id, PendingSignRequest { digest: None, by, reply });
                let now = self.now();
                self.server.command(now, id, request.into());
            }
            NodeCommand::StartRefresh(group, by, reply) => {
                let (now, digest) = (self.now(), group.digest());
                let started = self.server.start_refresh(group, now);
                if started.is_ok() {
                    let (epoch, group) = (self.epoch() + 1, digest.to_string());
                    self.record(&audit::AuditEvent::RefreshApproved { epoch, group, by })?;
                }
                // The caller reads the state next.
                self.publish();
                let _ = reply.send(started);
            }
            NodeCommand::CancelRefresh(by, reply) => {
                let (now, group) = (self.now(), self.proposed_group());
                let cancelled = self.server.cancel_refresh(now);
                if cancelled.is_ok() {
                    let epoch = self.epoch() + 1;
                    self.record(&audit::AuditEvent::RefreshCancelled { epoch, group, by })?;
                }
                self.publish();
                let _ = reply.send(cancelled);
            }
            NodeCommand::WithdrawApproval(by, reply) => {
                let submitted = self.server.withdraw_approval(self.now());
                if submitted.is_ok() {
                    // It is recorded when the log has it.
                    self.withdrawing = Some(by);
                }
                let _ = reply.send(submitted);
            }
            NodeCommand::Record(event) => self.record(&event)?,
            NodeCommand::Reload(config, reply) => {
                let QuorumNodeConfig { rules, delays, timeouts, refresh_every, peers, .. } =
                    (*config).clone();
                let expires = config.proposal_expires;
                self.registrations.lifetime = config.registration_expires;
                self.server.reconfigure(rules, delays, timeouts, refresh_every, expires);
                self.configured_peers = peers;
                self.connect();
                let _ = reply.send(());
            }
        }
        Ok(())
    }

    fn epoch(&self) -> u64 {
        self.server.status().epoch.map_or(0, |epoch| epoch.epoch)
    }

    /// The digest of the group of the open refresh, or of the one that this server has approved.
    fn proposed_group(&self) -> Option<String> {
        let epoch = self.server.status().epoch?;
        let open = epoch.run.map(|run| run.group);
        let is_own = |it: &&ApprovedGroup| epoch.index.is_some_and(|own| it.servers.contains(&own));
        let approved = epoch.approvals.iter().find(is_own).map(|it| it.group.clone());
        open.or(approved).map(|group| group.digest().to_string())
    }

    pub(super) fn record(&mut self, event: &audit::AuditEvent) -> Result<(), NodeError> {
        if let audit::AuditEvent::Refused { request, reason, count: occurrences, .. } = event {
            warn!(request, reason, occurrences, "a local user's request was refused");
        }
        Ok(self.store.record(event, SystemTime::now())?)
    }

    fn do_outputs(&mut self) -> Result<(), NodeError> {
        loop {
            let now = self.now();
            let Some(output) = self.server.poll_output(now, &mut self.generator)? else {
                return Ok(());
            };
            self.do_output(output)?;
        }
    }

    fn do_output(&mut self, output: QuorumServerOutput) -> Result<(), NodeError> {
        match output {
            QuorumServerOutput::Send { to, topic, lane, bytes } => {
                if topic == LinkTopic::Refresh {
                    let now = self.now();
                    self.incoming.charge(&to, bytes.len(), now);
                }
                if let Err(error) = self.links.send(&to, topic, lane, bytes) {
                    debug!(server = %to, %error, "not sent");
                }
            }
            QuorumServerOutput::Submit(entry) => self.submit(entry)?,
            QuorumServerOutput::Save(changes) => {
                self.store.save(&changes, &mut self.generator, SystemTime::now())?;
                if changes.iter().any(|change| change.start().is_some()) {
                    self.publish_start();
                }
            }
            QuorumServerOutput::PruneLog { through } => {
                if let Some(log) = &mut self.log {
                    log.prune(through);
                }
            }
            QuorumServerOutput::Job(job) => self.jobs.run(job),
            QuorumServerOutput::Reply { id, result } => self.reply(id, result)?,
            QuorumServerOutput::Peers(members) => {
                self.members = members;
                self.registrations.set_peers(self.members.iter().map(|it| it.identity));
                self.connect();
            }
            QuorumServerOutput::Log { name, applied } => {
                let before = self.log.take().map(LogInboxSource::Log);
                let inbox = self.for_log.take().map(LogInboxSource::Inbox);
                let first = self.server.start().and_then(GroupStart::first_servers);
                if let (Some(inbox_source), Some(first)) = (before.or(inbox), first) {
                    let log = (self.start_log)(LogStart { name, applied, first, inbox_source })?;
                    self.server.handle_log_opened(log.incarnation());
                    self.log = Some(log);
                }
            }
            QuorumServerOutput::Applied { height, set, check, key } => {
                if let Some(log) = &mut self.log {
                    log.applied(height, &set, check, key);
                }
            }
            QuorumServerOutput::Event(event) => {
                self.keep(&event)?;
                self.event(&event);
            }
        }
        Ok(())
    }

    fn submit(&mut self, entry: Bytes) -> Result<(), NodeError> {
        let Some(log) = &mut self.log else { return Ok(()) };
        match log.submit(entry) {
            Err(SubmitError::Failed) => Err(LogFailed(Arc::new(SubmitError::Failed)).into()),
            Err(error) => {
                warn!(%error, "an entry was not submitted");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn reply(
        &mut self,
        id: LocalRequestId,
        result: Result<Vec<u8>, SignRefusal>,
    ) -> Result<(), NodeError> {
        let Some(PendingSignRequest { digest, by, reply }) = self.requests.remove(&id) else {
            return Ok(());
        };
        // A command has no digest of its own.
        let is_command = digest.is_none();
        if let (Ok(_), Some(digest)) = (&result, digest) {
            self.note_used(digest)?;
        }
        if is_command {
            lock(&self.shared).count_command(result.is_ok());
        } else {
            lock(&self.shared).count(result.is_ok());
        }
        // For a service, the group has signed the statement in the reply.
        let signed = |reply: &Vec<u8>| {
            SignedServiceAnswer::parse(reply).map(|it| MessageDigest::of(&it.statement)).ok()
        };
        let digest = digest.or_else(|| result.as_ref().ok().and_then(signed));
        let event = match &result {
            Ok(_) => {
                let digest = digest.map(|digest| digest.to_string()).unwrap_or_default();
                Some(audit::AuditEvent::Signed { digest, epoch: self.epoch(), by })
            }
            Err(refusal) => {
                let (what, reason) =
                    (if is_command { "command" } else { "sign" }, refusal.to_string());
                lock(&self.shared).refusals.refused(what, &reason, digest, by)
            }
        };
        event.iter().try_for_each(|event| self.record(event))?;
        // The caller may be gone.
        let _ = reply.send(result);
        Ok(())
    }

    /// Sets the links: with the servers of the groups, and with those of the configuration.
    /// Addresses in the configuration take precedence over addresses that the groups have signed.
    fn connect(&self) {
        let peer = |member: &QuorumMember| QuorumPeer {
            key: member.identity,
            address: member.address.into(),
        };
        let signed = self.members.iter().map(peer);
        let configured = self.configured_peers.iter().cloned();
        let bundled = self.bundled_peers.iter().filter(|_| self.members.is_empty()).cloned();
        self.links.set_peers(&configured.chain(signed).chain(bundled).collect::<Vec<_>>());
    }

    /// Writes the event to the store if it must be kept.
    fn keep(&mut self, event: &QuorumServerEvent) -> Result<(), NodeError> {
        match event {
            // The registration is still shown: what a faulty server asks for must not disappear
            // from review.
            QuorumServerEvent::Answered { to, message } => {
                match self.answers.answered(Instant::now(), *to, *message) {
                    Some(first) => self.record_answers(first),
                    None => Ok(()),
                }
            }
            QuorumServerEvent::RefreshDue { epoch, group } => {
                let (epoch, group) = (*epoch, group.to_string());
                self.record(&audit::AuditEvent::RefreshDue { epoch, group })
            }
            QuorumServerEvent::ApprovalWithdrawn { epoch, group } => {
                let (epoch, group) = (*epoch, group.map(|group| group.to_string()));
                let by = self.withdrawing.take().unwrap_or_default();
                self.record(&audit::AuditEvent::ApprovalWithdrawn { epoch, group, by })
            }
            QuorumServerEvent::ApprovalExpired { epoch, group } => {
                let (epoch, group) = (*epoch, group.to_string());
                self.record(&audit::AuditEvent::ApprovalExpired { epoch, group })
            }
            QuorumServerEvent::WrongAnswer { server, evidence } => {
                let (epoch, evidence) = (self.epoch(), evidence.to_bytes());
                Ok(self.store.keep_evidence(epoch, *server, &evidence, SystemTime::now())?)
            }
            _ => Ok(()),
        }
    }

    fn record_answers(&mut self, answers: AnswerAuditRecord) -> Result<(), NodeError> {
        let AnswerAuditRecord { to, message, count } = answers;
        let (digest, epoch) = (message.to_string(), self.epoch());
        self.record(&audit::AuditEvent::Answered { digest, epoch, to: to.to_string(), count })
    }

    /// Publishes the start from which others can follow the group. It is long and rarely changes.
    fn publish_start(&self) {
        lock(&self.shared).set_start(self.server.start(), self.server.public());
    }

    /// Checks for problems that cause no event.
    fn watch(&self) {
        let (links, store) = (self.links.status(), self.store.problem());
        lock(&self.shared).watch(&links, store);
    }

    fn publish(&self) {
        let progress = self.log.as_ref().map(AgreementLog::progress);
        lock(&self.shared).update(self.server.status(), progress, Instant::now());
    }
}

/// The next height of a log, if there is a log.
async fn next_of<L: AgreementLog + Send>(
    log: &mut Option<L>,
) -> Result<CommittedEntries, LogFailed> {
    match log {
        Some(log) => log.committed().await,
        None => pending().await,
    }
}
