//! The thread of the log, which connects the engine with the links and the disk.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use keys::IdentityPublicKey;
use service::log::LogRateLimiter;
use tokio::runtime::{Builder, Runtime};
use tokio::time::sleep_until;
use tracing::{debug, error, info, warn};

use super::store::LogStore;
use super::{AppliedHeight, ConsensusError, ConsensusStatus, SharedConsensus};
use crate::log::{CommittedEntries, Height};
use crate::net::links::{
    LinkEvent, LinkLane, LinkMessage as Received, LinkTopic, QuorumLinks, TopicInbox,
};
use crate::protocol::consensus::codec::{ConsensusMessage, DecidedValue};
use crate::protocol::consensus::context::ValidatorAddress;
use crate::protocol::consensus::engine::{
    ConsensusEngine, ConsensusEngineError, ConsensusOutput, EntryPoolRefusal, LogResumePoint,
    VoteSigner,
};
use crate::protocol::consensus::fair_queue::FairLinkQueue;

/// The largest number of messages that are handled before their results are written and sent, with
/// one write to the disk for all of them.
const MAX_BATCH: usize = 64;

pub(super) struct ConsensusDriver {
    /// The signer, until the service has applied everything that is stored.
    signer: Option<VoteSigner>,
    engine: Option<ConsensusEngine>,
    links: Arc<QuorumLinks>,
    inbox: TopicInbox,
    inflow: FairLinkQueue<Received>,
    store: LogStore,
    shared: Arc<SharedConsensus>,
    runtime: Runtime,
    start: Instant,
    applied: Height,
    /// The servers with a link. To compute a key from an address takes as long as a signature.
    linked_servers: BTreeMap<ValidatorAddress, IdentityPublicKey>,
    /// Records on which no message depends yet.
    unwritten: Vec<Vec<u8>>,
    refusals: LogRateLimiter,
    questions: LogRateLimiter,
    equivocations: u64,
}

impl From<ConsensusEngineError> for ConsensusError {
    fn from(error: ConsensusEngineError) -> Self {
        Self::Engine(error.to_string())
    }
}

/// Reports that the log has failed if the thread panics.
struct ConsensusPanicGuard(Arc<SharedConsensus>);

impl Drop for ConsensusPanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(ConsensusError::Panicked);
        }
    }
}

impl ConsensusDriver {
    pub(super) fn new(
        signer: VoteSigner,
        links: Arc<QuorumLinks>,
        inbox: TopicInbox,
        store: LogStore,
        shared: Arc<SharedConsensus>,
    ) -> Result<Self, ConsensusError> {
        Ok(Self {
            signer: Some(signer),
            engine: None,
            links,
            inbox,
            inflow: FairLinkQueue::default(),
            store,
            shared,
            runtime: Builder::new_current_thread().enable_time().build()?,
            start: Instant::now(),
            applied: Height(0),
            linked_servers: BTreeMap::new(),
            unwritten: Vec::new(),
            refusals: LogRateLimiter::default(),
            questions: LogRateLimiter::default(),
            equivocations: 0,
        })
    }

    /// Runs until it is stopped or fails.
    pub(super) fn run(mut self) -> TopicInbox {
        let _watch = ConsensusPanicGuard(Arc::clone(&self.shared));
        loop {
            match self.run_once() {
                Ok(true) => self.wait(),
                Ok(false) => break,
                Err(error) => {
                    error!(%error, "the agreement log has failed");
                    self.shared.fail(error);
                    break;
                }
            }
        }
        // The next log must know these links. The messages that wait here were for this log.
        self.inbox.replay_link_up(self.linked_servers.values().copied());
        self.inbox
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Handles pending inputs. Returns whether to continue.
    fn run_once(&mut self) -> Result<bool, ConsensusError> {
        let (applied, prune, stop) = {
            let mut exchange = self.shared.lock();
            (exchange.applied.take(), exchange.prune.take(), exchange.stop)
        };
        if stop {
            return Ok(false);
        }
        if let Some(applied) = applied {
            self.handle_applied(applied)?;
        }
        if let Some(through) = prune {
            self.store.prune(through.min(self.applied))?;
        }
        self.submit()?;
        self.receive()?;
        let now = self.now();
        if let Some(engine) = &mut self.engine {
            engine.tick(now)?;
        }
        self.perform_outputs()?;
        self.report();
        Ok(true)
    }

    /// The service has applied a height. If the next one is stored, the service gets it. Otherwise
    /// the next height begins.
    fn handle_applied(&mut self, applied: AppliedHeight) -> Result<(), ConsensusError> {
        let AppliedHeight { height, set, check, key } = applied;
        self.applied = height;
        if height < self.store.last() {
            let next = self.store.decided(height.next())?;
            let next = next.ok_or_else(|| {
                let what = format!("height {} is missing", height.next());
                self.store.damaged(what)
            })?;
            self.deliver(&next);
            return Ok(());
        }
        let now = self.now();
        if let Some(engine) = &mut self.engine {
            engine.next((&set, key), check, now)?;
        } else if let Some(signer) = self.signer.take() {
            let last = self.store.last();
            let leader = self.store.decided(last)?.map(|decided| decided.value.leader());
            let records = self.store.records()?;
            let (height, count) = (last.next(), records.len());
            let opening = LogResumePoint { after: last, leader, records };
            let mut engine = ConsensusEngine::open(signer, &opening, (&set, key), check, now)?;
            let votes = engine.votes();
            info!(%height, records = count, votes, "agreement log opened");
            for &server in self.linked_servers.keys() {
                engine.handle_link_up(server);
            }
            self.engine = Some(engine);
        }
        Ok(())
    }

    /// Passes submitted entries to the engine.
    fn submit(&mut self) -> Result<(), ConsensusError> {
        let now = self.start.elapsed();
        let Some(engine) = &mut self.engine else { return Ok(()) };
        loop {
            let next = self.shared.lock().submitted.front().cloned();
            let Some(entry) = next else { return Ok(()) };
            let len = entry.len();
            match engine.submit(entry, now)? {
                Err(EntryPoolRefusal::Full) => return Ok(()),
                Err(EntryPoolRefusal::Refused) => {
                    debug!("an entry that may not be committed is dropped");
                }
                Ok(()) => {}
            }
            let mut exchange = self.shared.lock();
            exchange.submitted.pop_front();
            exchange.submitted_bytes -= len;
        }
    }

    /// Handles received messages.
    fn receive(&mut self) -> Result<(), ConsensusError> {
        while let Some(inbound) = self.inbox.try_next() {
            self.arrived(inbound);
        }
        for _ in 0..MAX_BATCH {
            let now = self.now();
            let Some(engine) = &mut self.engine else { return Ok(()) };
            let Some((from, received)) = self.inflow.pop(now) else { return Ok(()) };
            match ConsensusMessage::parse(&received.bytes) {
                Ok(message) => engine.receive(from, message, now)?,
                Err(error) => self.refused(received.from(), error.0),
            }
        }
        Ok(())
    }

    /// Counts and logs a rejected message of a server.
    fn refused(&mut self, from: &IdentityPublicKey, why: &str) {
        self.links.count_refused(from);
        if let Some(occurrences) = self.refusals.count_event_of(8) {
            warn!(server = %from, %why, occurrences, "a message of the log was refused");
        }
    }

    /// Counts and logs entries of its proposal for which a server is asked.
    fn count_asked(&mut self, proposer: ValidatorAddress, height: Height, entries: usize) {
        // Without a link, the question is not sent.
        let Some(key) = self.linked_servers.get(&proposer) else { return };
        self.links.count_asked_entries(key, entries);
        if let Some(occurrences) = self.questions.count_event() {
            debug!(server = %key, %height, entries, occurrences, "asked for entries of a proposal");
        }
    }

    fn arrived(&mut self, inbound: LinkEvent) {
        match inbound {
            LinkEvent::Up(key) => {
                let server = ValidatorAddress::of(&key);
                self.linked_servers.insert(server, key);
                if let Some(engine) = &mut self.engine {
                    engine.handle_link_up(server);
                }
            }
            LinkEvent::Down(key) => {
                let server = ValidatorAddress::of(&key);
                self.linked_servers.remove(&server);
                self.inflow.clear(server);
            }
            LinkEvent::Message(message) => {
                self.inflow.push(
                    ValidatorAddress::of(message.from()),
                    message.bytes.len(),
                    message,
                );
            }
        }
    }

    /// Executes the engine's outputs, in order.
    fn perform_outputs(&mut self) -> Result<(), ConsensusError> {
        loop {
            let outputs = self.engine.as_mut().map(ConsensusEngine::outputs).unwrap_or_default();
            if outputs.is_empty() {
                return Ok(());
            }
            for output in outputs {
                match output {
                    ConsensusOutput::Append(records) => self.unwritten.extend(records),
                    ConsensusOutput::Commit(decided) => {
                        self.unwritten.clear();
                        self.store.commit(&decided)?;
                        self.deliver(&decided);
                    }
                    ConsensusOutput::Broadcast(message) => {
                        self.write_before(&message)?;
                        let bytes = Bytes::from(message.to_bytes());
                        for server in self.linked_servers.keys() {
                            self.send(*server, bytes.clone());
                        }
                    }
                    ConsensusOutput::Send(server, message) => {
                        if let ConsensusMessage::AskEntries(height, _, missing) = &message {
                            self.count_asked(server, *height, missing.len());
                        }
                        self.write_before(&message)?;
                        self.send(server, message.to_bytes().into());
                    }
                    ConsensusOutput::Answer(server, message) => {
                        let bytes = Bytes::from(message.to_bytes());
                        self.inflow.charge(server, bytes.len(), self.now());
                        self.send(server, bytes);
                    }
                    ConsensusOutput::SendCommitted(server, height) => {
                        if let Some(value) = self.store.committed(height)? {
                            let message = ConsensusMessage::committed(&value);
                            self.inflow.charge(server, message.len(), self.now());
                            self.send(server, message.into());
                        }
                    }
                    ConsensusOutput::Charged(server, len) => {
                        self.inflow.charge(server, len, self.now());
                    }
                    ConsensusOutput::Refused(server, why) => {
                        if let Some(key) = server.key() {
                            self.refused(&key, why);
                        }
                    }
                    ConsensusOutput::Checked { server, entries, are_admitted } => {
                        let now = self.now();
                        (0..entries).for_each(|_| self.inflow.charge(server, 0, now));
                        if !are_admitted && let Some(key) = server.key() {
                            self.refused(&key, "a value that may not be committed: it is faulty");
                        }
                    }
                    ConsensusOutput::Equivocation(server) => {
                        self.equivocations += 1;
                        let server = server.key().map(|key| key.to_string());
                        warn!(?server, "a server has voted or proposed twice: it is faulty");
                    }
                }
            }
        }
    }

    /// Makes records durable before a message that may depend on them.
    fn write_before(&mut self, message: &ConsensusMessage) -> Result<(), ConsensusError> {
        if !self.unwritten.is_empty() && message.is_signed() {
            self.store.append(&self.unwritten)?;
            self.unwritten.clear();
        }
        Ok(())
    }

    fn send(&self, server: ValidatorAddress, bytes: Bytes) {
        // A server without a link will ask for what it has missed.
        let Some(key) = self.linked_servers.get(&server) else { return };
        if let Err(error) = self.links.send(key, LinkTopic::Log, LinkLane::Urgent, bytes) {
            // The receiver will ask for what it has missed.
            debug!(server = %key, %error, "not sent");
        }
    }

    fn deliver(&self, decided: &DecidedValue) {
        let (height, round) = (decided.height(), decided.certificate.round.as_i64());
        let committed = CommittedEntries { height, entries: decided.value.entries() };
        let (entries, len) = (committed.entries.len(), decided.value.encoded().len());
        debug!(%height, round, entries, len, "committed");
        let mut exchange = self.shared.lock();
        exchange.ready = Some(committed);
        exchange.wake_service();
    }

    /// Updates the status.
    fn report(&self) {
        let mut exchange = self.shared.lock();
        let committed = self.store.last().0;
        let mut status = ConsensusStatus {
            height: committed + 1,
            committed,
            applied: self.applied.0,
            equivocations: self.equivocations,
            ..ConsensusStatus::default()
        };
        if let Some(engine) = &self.engine {
            status.height = engine.height().0;
            status.round = engine.round();
            status.waiting = engine.waiting();
            status.voted = engine.voters().map(|voter| voter.key_text()).collect();
            status.proposer = Some(engine.proposer().key_text());
            status.votes = engine.votes();
        }
        let is_waiting = status.waiting > 0;
        if !is_waiting || status.committed != exchange.status.committed {
            exchange.waiting_since = None;
        }
        if is_waiting && exchange.waiting_since.is_none() {
            exchange.waiting_since = Some(Instant::now());
        }
        let oldest = self.engine.as_ref().and_then(ConsensusEngine::oldest);
        exchange.oldest_since = oldest.map(|since| self.start + since);
        exchange.status = status;
    }

    /// Waits for the next message, call or deadline.
    fn wait(&mut self) {
        let inflow = if self.engine.is_some() { self.inflow.ready() } else { None };
        let deadline = self.engine.as_ref().and_then(ConsensusEngine::deadline);
        let deadline = deadline.into_iter().chain(inflow).min().map(|at| self.start + at);
        let Self { runtime, inbox, shared, .. } = self;
        let inbound = runtime.block_on(async {
            tokio::select! {
                // Without links, this waits to be stopped.
                Some(inbound) = inbox.next() => Some(inbound),
                () = shared.wake.notified() => None,
                () = async {
                    match deadline {
                        Some(at) => sleep_until(at.into()).await,
                        None => pending().await,
                    }
                } => None,
            }
        });
        if let Some(inbound) = inbound {
            self.arrived(inbound);
        }
    }
}
