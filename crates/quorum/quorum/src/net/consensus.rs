//! The agreement log of a group's servers: Malachite's consensus over [`QuorumLinks`], with its log
//! on disk. It runs on its own thread, which writes to the disk.
//!
//! All servers with a link receive all messages: the servers of the set, which vote, and others,
//! which follow.

mod driver;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub(super) mod store;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use keys::IdentityPublicKey;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use self::driver::ConsensusDriver;
use self::store::LogStore;
pub use self::store::LogStoreError;
use super::links::{QuorumLinks, TopicInbox};
use crate::log::{
    AgreementLog, CommittedEntries, EntryCheck, Height, LogFailed, LogIncarnation, LogProgress,
    ServerSet, SubmitError, check_length,
};
use crate::protocol::consensus::engine::VoteSigner;
use crate::protocol::voting::VotingSecret;
use crate::protocol::wire::Sha256Digest;

/// The limit on submitted entries that the thread has not taken, and on their bytes. The engine's
/// limit is the same.
const MAX_SUBMITTED: usize = 256;
const MAX_SUBMITTED_BYTES: usize = 4 << 20;

/// The settings of a server's log.
#[derive(Debug)]
pub struct ConsensusSettings {
    /// The server's identity key.
    pub identity: IdentityPublicKey,
    /// The log's name in signed messages: the SHA-256 of the group's public key.
    pub log: Sha256Digest,
    /// The links. Their creator also sets the peers: all servers of the old and the new group.
    pub links: Arc<QuorumLinks>,
    /// The inbox of [`LinkTopic::Log`](super::links::LinkTopic::Log).
    pub inbox: TopicInbox,
    /// The file of the log, in an existing directory that no other user can change. Never restore
    /// it from a backup: the server could vote twice. If the file is lost, the server needs another
    /// voting key.
    pub store: PathBuf,
    /// The height that the service has applied.
    pub applied: Height,
}

/// Why the log does not start, or has stopped.
#[derive(Debug, thiserror::Error)]
pub enum ConsensusError {
    /// The storage has failed.
    #[error("the log's storage: {0}")]
    Store(#[from] LogStoreError),
    /// The consensus has failed. It stops so that the server does not vote twice.
    #[error("{0}")]
    Engine(String),
    /// The operating system cannot start a thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// The thread has panicked.
    #[error("the thread of the agreement has panicked; this is a bug, and the log has more")]
    Panicked,
}

/// The state of the log at a server, for people and scripts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConsensusStatus {
    /// The height that is being decided.
    pub height: u64,
    /// The round. In each earlier round, a proposer was silent, late or faulty.
    pub round: u32,
    /// The last height that was committed.
    pub committed: u64,
    /// The last height that the service has applied.
    pub applied: u64,
    /// The number of waiting entries that this server knows.
    pub waiting: usize,
    /// How many seconds entries have waited while no height was committed.
    #[serde(default)]
    pub waiting_s: Option<f64>,
    /// How many seconds the oldest entry that this server submitted has waited.
    #[serde(default)]
    pub oldest_s: Option<f64>,
    /// The identity keys of the other servers that have voted at this height.
    pub voted: Vec<String>,
    /// The identity key of the server that proposes in this round.
    #[serde(default)]
    pub proposer: Option<String>,
    /// Whether this server votes at this height. Otherwise it follows.
    pub votes: bool,
    /// How often a server was proven to have voted or proposed twice.
    pub equivocations: u64,
    /// Why the log has failed.
    #[serde(default)]
    pub failed: Option<String>,
}

/// The agreement log at a server. It stops when it is dropped.
#[derive(Debug)]
pub struct ConsensusLog {
    monitor: ConsensusMonitor,
    life: LogIncarnation,
    thread: Option<JoinHandle<TopicInbox>>,
}

/// Reads the state of a log from any thread.
#[derive(Clone, Debug)]
pub struct ConsensusMonitor(Arc<SharedConsensus>);

/// The state that the service and the thread share.
#[derive(Debug, Default)]
struct SharedConsensus {
    exchange: Mutex<SharedConsensusState>,
    /// Wakes the thread.
    wake: Notify,
}

/// A height that the service has applied, and the parameters of the next one.
#[derive(Debug)]
struct AppliedHeight {
    height: Height,
    set: ServerSet,
    check: EntryCheck,
    key: Option<Arc<VotingSecret>>,
}

#[derive(Debug, Default)]
struct SharedConsensusState {
    submitted: VecDeque<Bytes>,
    submitted_bytes: usize,
    applied: Option<AppliedHeight>,
    prune: Option<Height>,
    stop: bool,
    ready: Option<CommittedEntries>,
    waker: Option<Waker>,
    failed: Option<LogFailed>,
    status: ConsensusStatus,
    /// Since when entries have waited while no height was committed.
    waiting_since: Option<Instant>,
    /// Since when the oldest entry that this server submitted has waited.
    oldest_since: Option<Instant>,
}

impl SharedConsensus {
    fn lock(&self) -> MutexGuard<'_, SharedConsensusState> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, error: ConsensusError) {
        let mut exchange = self.lock();
        exchange.status.failed = Some(error.to_string());
        exchange.failed = Some(LogFailed(Arc::new(error)));
        exchange.wake_service();
    }
}

impl SharedConsensusState {
    fn wake_service(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl ConsensusLog {
    /// Opens the log. It takes part in the agreement once the service has reported the set of
    /// servers ([`AgreementLog::applied`]).
    ///
    /// # Errors
    /// If the log file cannot be opened, or the thread cannot start.
    pub fn start(settings: ConsensusSettings) -> Result<Self, ConsensusError> {
        let ConsensusSettings { identity, log, links, inbox, store, applied } = settings;
        let store = LogStore::open(&store, applied)?;
        let life = store.life();
        let shared = Arc::new(SharedConsensus::default());
        let signer = VoteSigner::new(&identity, log);
        let driver = ConsensusDriver::new(signer, links, inbox, store, Arc::clone(&shared))?;
        let thread = std::thread::Builder::new().name("consensus".into());
        let thread = thread.spawn(move || driver.run())?;
        Ok(Self { monitor: ConsensusMonitor(shared), life, thread: Some(thread) })
    }

    /// A monitor of the log's state.
    pub fn monitor(&self) -> ConsensusMonitor {
        self.monitor.clone()
    }

    /// Stops the log, and returns the inbox, with which another log can start. The inbox first
    /// replays which links are up. `None` if the thread has panicked. Waits for a write to the disk
    /// that is in progress.
    pub fn stop(mut self) -> Option<TopicInbox> {
        self.end()
    }

    fn end(&mut self) -> Option<TopicInbox> {
        self.monitor.0.lock().stop = true;
        self.monitor.0.wake.notify_one();
        self.thread.take().and_then(|thread| thread.join().ok())
    }
}

impl Drop for ConsensusLog {
    fn drop(&mut self) {
        self.end();
    }
}

impl ConsensusMonitor {
    /// The state of the log.
    pub fn status(&self) -> ConsensusStatus {
        let exchange = self.0.lock();
        let mut status = exchange.status.clone();
        status.waiting += exchange.submitted.len();
        status.waiting_s = exchange.waiting_since.map(|since| since.elapsed().as_secs_f64());
        status.oldest_s = exchange.oldest_since.map(|since| since.elapsed().as_secs_f64());
        status
    }
}

impl AgreementLog for ConsensusLog {
    fn submit(&mut self, entry: Bytes) -> Result<(), SubmitError> {
        check_length(&entry)?;
        let mut exchange = self.monitor.0.lock();
        if exchange.failed.is_some() {
            return Err(SubmitError::Failed);
        }
        let bytes = exchange.submitted_bytes + entry.len();
        if exchange.submitted.len() == MAX_SUBMITTED || bytes > MAX_SUBMITTED_BYTES {
            return Err(SubmitError::Full);
        }
        exchange.submitted_bytes = bytes;
        exchange.submitted.push_back(entry);
        drop(exchange);
        self.monitor.0.wake.notify_one();
        Ok(())
    }

    fn poll_committed(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<CommittedEntries, LogFailed>> {
        let mut exchange = self.monitor.0.lock();
        if let Some(failed) = &exchange.failed {
            return Poll::Ready(Err(failed.clone()));
        }
        if let Some(committed) = exchange.ready.take() {
            return Poll::Ready(Ok(committed));
        }
        exchange.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn incarnation(&self) -> LogIncarnation {
        self.life
    }

    fn applied(
        &mut self,
        height: Height,
        next: &ServerSet,
        check: EntryCheck,
        key: Option<Arc<VotingSecret>>,
    ) {
        let applied = AppliedHeight { height, set: next.clone(), check, key };
        self.monitor.0.lock().applied = Some(applied);
        self.monitor.0.wake.notify_one();
    }

    fn prune(&mut self, through: Height) {
        let mut exchange = self.monitor.0.lock();
        exchange.prune = exchange.prune.max(Some(through));
        drop(exchange);
        self.monitor.0.wake.notify_one();
    }

    fn progress(&self) -> LogProgress {
        let status = self.monitor.status();
        let oldest = status.oldest_s.map(Duration::from_secs_f64);
        let committed = Height(status.committed);
        LogProgress { committed, waiting: status.waiting, oldest, engine: None }
    }
}
