//! The agreement log of a group's servers by CometBFT, which an operator runs beside each server.
//! CometBFT calls the application here through a Unix socket, has its votes signed here, and is
//! woken through the socket of its RPC. Entries go to the other servers over [`QuorumLinks`].

mod abci;
mod driver;
mod framing;
mod home;
mod rpc;
mod signer;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use keys::IdentityPublicKey;
use random::{RandomError, RandomGenerator};
use tokio::sync::watch;
use tracing::{debug, error};

use self::driver::CometbftDriver;
pub use self::home::{CometbftHome, CometbftHomeError};
use self::store::CometbftStore;
use crate::log::{
    AgreementLog, CommittedEntries, EntryCheck, Height, LogFailed, LogIncarnation, LogProgress,
    OperatedEngine, ServerSet, SubmitError, check_length,
};
use crate::net::consensus::LogStoreError;
use crate::net::links::{LinkLane, LinkTopic, QuorumLinks, TopicInbox};
use crate::protocol::cometbft::application::{ChainError, CometbftApplication};
use crate::protocol::cometbft::genesis::chain_id;
use crate::protocol::cometbft::vote_guard::VoteGuard;
use crate::protocol::consensus::context::ValidatorAddress;
use crate::protocol::consensus::pool::EntryPoolRefusal;
use crate::protocol::voting::VotingSecret;
use crate::protocol::wire::{MalformedEncoding, Sha256Digest};

/// The settings of a server's log by CometBFT.
#[derive(Debug)]
pub struct CometbftSettings {
    /// The server's identity key.
    pub identity: IdentityPublicKey,
    /// The SHA-256 of the group's public key, from which the chain has its name.
    pub key: Sha256Digest,
    /// The servers of the first epoch, with their voting keys.
    pub first: ServerSet,
    /// The links. Their creator also sets the peers: all servers of the old and the new group.
    pub links: Arc<QuorumLinks>,
    /// The inbox of [`LinkTopic::Log`].
    pub inbox: TopicInbox,
    /// The file of the votes and of the chain's state, in an existing directory that no other user
    /// can change. Never restore it from a backup: the server could vote twice. If it is lost, the
    /// server needs another voting key.
    pub store: PathBuf,
    /// The directory of CometBFT at this server.
    pub home: CometbftHome,
    /// The height that the service has applied.
    pub applied: Height,
}

/// Why the log does not start, or has stopped.
#[derive(Debug, thiserror::Error)]
pub enum CometbftError {
    /// The storage has failed.
    #[error("the log's storage: {0}")]
    Store(#[from] LogStoreError),
    /// The directory of CometBFT cannot be used.
    #[error(transparent)]
    Home(#[from] CometbftHomeError),
    /// The chain is not that of this group, or more than f servers are faulty.
    #[error("{0}")]
    Chain(String),
    /// The operating system cannot start a thread or open the socket.
    #[error("cannot serve CometBFT: {0}")]
    System(#[from] std::io::Error),
    /// The operating system provides no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// The thread has panicked.
    #[error("the thread of the agreement has panicked; this is a bug, and the log has more")]
    Panicked,
}

impl From<ChainError> for CometbftError {
    fn from(error: ChainError) -> Self {
        Self::Chain(error.to_string())
    }
}

/// The agreement log at a server, which CometBFT runs. It stops when it is dropped. Then CometBFT
/// stops too, and must be started again.
#[derive(Debug)]
pub struct CometbftLog {
    shared: Arc<SharedCometbft>,
    life: LogIncarnation,
    thread: Option<JoinHandle<TopicInbox>>,
}

/// The state that the service and the thread share.
#[derive(Debug)]
struct SharedCometbft {
    state: Mutex<CometbftState>,
    /// Notifies all tasks of the thread of a change.
    changed: watch::Sender<()>,
    links: Arc<QuorumLinks>,
    home: CometbftHome,
    start: Instant,
}

struct CometbftState {
    application: CometbftApplication,
    store: CometbftStore,
    guard: VoteGuard,
    /// This server's voting key.
    key: Option<Arc<VotingSecret>>,
    /// The servers with a link.
    linked: BTreeSet<ValidatorAddress>,
    /// Where the CometBFT nodes of the other servers are.
    announced: BTreeMap<ValidatorAddress, NodeAnnouncement>,
    /// Where this server's CometBFT node is, once it runs.
    own: Option<NodeAnnouncement>,
    /// The number of connections from CometBFT, and since when there is one or none.
    connections: usize,
    since: Instant,
    /// The number of CometBFT nodes to which this server's has a connection.
    peers: usize,
    stop: bool,
    waker: Option<Waker>,
    failed: Option<LogFailed>,
}

impl std::fmt::Debug for CometbftState {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("CometbftState(..)")
    }
}

/// A server's CometBFT node: its ID, from its key, and the port on which it listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NodeAnnouncement {
    id: [u8; 20],
    port: u16,
}

/// A message of this log between servers. The link identifies the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CometbftMessage {
    /// An entry that should be committed.
    Entry(Bytes),
    /// Where the sender's CometBFT node is.
    Node(NodeAnnouncement),
    /// The sender does not know where the receiver's node is.
    Ask,
}

impl CometbftMessage {
    fn to_bytes(&self) -> Bytes {
        match self {
            Self::Entry(entry) => [&[1], &entry[..]].concat().into(),
            Self::Node(NodeAnnouncement { id, port }) => {
                [&[9], &id[..], &port.to_be_bytes()].concat().into()
            }
            Self::Ask => Bytes::from_static(&[10]),
        }
    }

    fn parse(bytes: &Bytes) -> Result<Self, MalformedEncoding> {
        match bytes.first() {
            Some(1) => {
                let entry = bytes.slice(1..);
                check_length(&entry).map_err(|_| MalformedEncoding("the length of an entry"))?;
                Ok(Self::Entry(entry))
            }
            Some(9) => {
                let malformed = MalformedEncoding("not the address of a CometBFT node");
                let (id, port) = bytes[1..].split_first_chunk().ok_or(malformed)?;
                let port = u16::from_be_bytes(port.try_into().map_err(|_| malformed)?);
                Ok(Self::Node(NodeAnnouncement { id: *id, port }))
            }
            Some(10) if bytes.len() == 1 => Ok(Self::Ask),
            Some(2..=8) => Err(MalformedEncoding("a message of another engine of the log")),
            _ => Err(MalformedEncoding("unknown kind of message")),
        }
    }
}

impl SharedCometbft {
    fn lock(&self) -> MutexGuard<'_, CometbftState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Changes the state, and wakes everything that may wait for this.
    fn change<T>(&self, change: impl FnOnce(&mut CometbftState) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        self.changed.send_replace(());
        result
    }

    /// The log has failed.
    fn fail(&self, error: impl Into<CometbftError>) {
        let error = error.into();
        error!(%error, "the agreement log has failed");
        self.change(|state| {
            state.stop = true;
            state.failed.get_or_insert(LogFailed(Arc::new(error)));
        });
    }

    /// Waits until the state gives a result. Dropping the future loses nothing.
    async fn when<T>(&self, mut result: impl FnMut(&mut CometbftState) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        loop {
            if let Some(result) = result(&mut self.lock()) {
                return result;
            }
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Sends a message to all servers with a link.
    fn broadcast(&self, message: &CometbftMessage) {
        let linked: Vec<_> = self.lock().linked.iter().copied().collect();
        let bytes = message.to_bytes();
        for server in linked {
            self.send(server, bytes.clone());
        }
    }

    fn send(&self, server: ValidatorAddress, bytes: Bytes) {
        let Some(key) = server.key() else { return };
        if let Err(error) = self.links.send(&key, LinkTopic::Log, LinkLane::Urgent, bytes) {
            debug!(server = %key, %error, "not sent");
        }
    }
}

impl CometbftLog {
    /// Opens the log. It waits for CometBFT, which may be started before or after it.
    ///
    /// # Errors
    /// If a file or the socket cannot be opened, or the thread cannot start.
    pub fn start(settings: CometbftSettings) -> Result<Self, CometbftError> {
        let CometbftSettings { identity, key, first, links, inbox, store, home, applied } =
            settings;
        let mut store = CometbftStore::open(&store)?;
        if !home.has_blocks() {
            store.forget_blocks()?;
        }
        let life = store.life();
        let token = RandomGenerator::seeded()?.array()?;
        let application = CometbftApplication::new(&identity, first, applied, token);
        let guard = VoteGuard::new(chain_id(key), store.last_signed()?);
        let state = CometbftState {
            application,
            store,
            guard,
            key: None,
            linked: BTreeSet::new(),
            announced: BTreeMap::new(),
            own: None,
            connections: 0,
            since: Instant::now(),
            peers: 0,
            stop: false,
            waker: None,
            failed: None,
        };
        let shared = Arc::new(SharedCometbft {
            state: Mutex::new(state),
            changed: watch::Sender::new(()),
            links,
            home,
            start: Instant::now(),
        });
        let (driver, runtime) =
            CometbftDriver::new(identity, chain_id(key), inbox, Arc::clone(&shared))?;
        let thread = std::thread::Builder::new().name("cometbft".into());
        let thread = thread.spawn(move || driver.run(runtime))?;
        Ok(Self { shared, life, thread: Some(thread) })
    }

    /// Stops the log, and returns the inbox, with which another log can start. The inbox first
    /// replays which links are up. `None` if the thread has panicked.
    pub fn stop(mut self) -> Option<TopicInbox> {
        self.end()
    }

    fn end(&mut self) -> Option<TopicInbox> {
        self.shared.change(|state| state.stop = true);
        self.thread.take().and_then(|thread| thread.join().ok())
    }
}

impl Drop for CometbftLog {
    fn drop(&mut self) {
        self.end();
    }
}

impl AgreementLog for CometbftLog {
    fn submit(&mut self, entry: Bytes) -> Result<(), SubmitError> {
        check_length(&entry)?;
        let now = self.shared.now();
        let submitted = self.shared.change(|state| {
            if state.failed.is_some() {
                return Err(SubmitError::Failed);
            }
            match state.application.submit(entry.clone(), now) {
                Ok(is_new) => Ok(is_new),
                Err(EntryPoolRefusal::Full) => Err(SubmitError::Full),
                Err(EntryPoolRefusal::Refused) => {
                    debug!("an entry that may not be committed is dropped");
                    Ok(false)
                }
            }
        });
        if submitted? {
            self.shared.broadcast(&CometbftMessage::Entry(entry));
        }
        Ok(())
    }

    fn poll_committed(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<CommittedEntries, LogFailed>> {
        let mut state = self.shared.lock();
        if let Some(failed) = &state.failed {
            return Poll::Ready(Err(failed.clone()));
        }
        if let Some(committed) = state.application.poll_committed() {
            return Poll::Ready(Ok(committed));
        }
        state.waker = Some(context.waker().clone());
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
        let now = self.shared.now();
        let applied = self.shared.change(|state| {
            state.key = key;
            state.application.applied(height, next, check, now)
        });
        if let Err(error) = applied {
            self.shared.fail(error);
        }
    }

    /// Nothing: CometBFT keeps all blocks, because servers of later groups begin with the first
    /// one.
    fn prune(&mut self, _through: Height) {}

    fn progress(&self) -> LogProgress {
        let state = self.shared.lock();
        let oldest = state.application.oldest();
        let engine = OperatedEngine {
            is_connected: state.connections > 0,
            since: state.since.elapsed(),
            peers: state.peers,
        };
        LogProgress {
            committed: state.application.chain().height,
            waiting: state.application.waiting(),
            oldest: oldest.map(|since| self.shared.now().saturating_sub(since)),
            engine: Some(engine),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_parsed_as_they_were_written() {
        let node = NodeAnnouncement { id: [7; 20], port: 26_656 };
        let entry = CometbftMessage::Entry(Bytes::from_static(b"e"));
        for message in [entry, CometbftMessage::Node(node), CometbftMessage::Ask] {
            let bytes = message.to_bytes();
            assert!(CometbftMessage::parse(&bytes.slice(..bytes.len() - 1)).is_err());
            assert_eq!(CometbftMessage::parse(&bytes), Ok(message));
        }
        for wrong in [&b""[..], &[0], &[2], &[8, 0], &[10, 0], &[11], &[9; 22], &[9; 24]] {
            assert!(CometbftMessage::parse(&Bytes::copy_from_slice(wrong)).is_err(), "{wrong:?}");
        }
    }
}
