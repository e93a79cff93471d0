//! A server of a quorum. It drives a [`server::QuorumServer`](crate::server::QuorumServer) with
//! links, store, log and threads, and answers local users.
//!
//! The server runs on its own thread, which the store may block. Expensive computations run on
//! other threads.

mod answers;
mod config;
mod core;
mod event;
mod health;
mod incoming;
mod local;
mod open;
mod problem_tracker;
mod registering;
mod registrations;
mod review;
mod status;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use random::RandomError;
use tokio::runtime::Handle as Runtime;
use tokio::sync::{mpsc, oneshot};

use self::core::NodeEventLoop;
use crate::log::{AgreementLog, Height, LogFailed, ServerSet};
use crate::net::links::{QuorumLinks, QuorumPeer, TopicInbox};
use crate::net::store::{QuorumStore, QuorumStoreError};
use crate::protocol::group::GroupKeyKind;
use crate::protocol::server::{QuorumServerSettings, SavedStateError};
use crate::protocol::wire::Sha256Digest;
use local::{MAX_COMMANDS, NodeCommand};
use status::PublishedNodeState;

pub use config::{ConfiguredSocket, KEYS, MasterKeySource, QuorumNodeConfig};
pub use open::{NodeOpenError, OpenedNode, back_up, open, restore, start, write_cometbft_home};
pub use status::{NodeServiceStatus, QuorumNodeStatus};

/// Why a node does not start, or has stopped.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The saved state is not the state of this server.
    #[error(transparent)]
    Saved(#[from] SavedStateError),
    /// Its store cannot be read or written.
    #[error("the store: {0}")]
    Store(#[from] QuorumStoreError),
    /// The agreement log has failed.
    #[error(transparent)]
    Log(#[from] LogFailed),
    /// The operating system provides no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// The operating system cannot start a thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// A thread of the server has panicked, which is a bug of this program.
    #[error("a thread of the server has panicked")]
    Panicked,
}

impl NodeError {
    /// Adds the path of the store's database to errors of it.
    fn in_database(self, path: &Path) -> Self {
        match self {
            Self::Store(error) => Self::Store(error.in_database(path)),
            error => error,
        }
    }
}

/// Where a log starts.
#[derive(Debug)]
pub struct LogStart<L> {
    /// The name of the group, which votes are for.
    pub name: Sha256Digest,
    /// The last height that was applied.
    pub applied: Height,
    /// The servers of the first epoch, with their voting keys.
    pub first: ServerSet,
    /// The source of the other servers' messages for the log.
    pub inbox_source: LogInboxSource<L>,
}

/// The source of other servers' messages for a log that is to start.
#[derive(Debug)]
pub enum LogInboxSource<L> {
    /// The inbox of the messages.
    Inbox(TopicInbox),
    /// A log that has run at another height, and must be stopped first.
    Log(L),
}

/// The links of a node, with their inboxes.
pub struct NodeNetwork {
    /// The links.
    pub links: Arc<QuorumLinks>,
    /// For the log, signing, and refreshes.
    pub inboxes: [TopicInbox; 3],
    /// The servers of the configuration.
    pub peers: Vec<QuorumPeer>,
    /// The servers of a bundle, to connect with until a group is known.
    pub bundled: Vec<QuorumPeer>,
    /// How long a registration lasts.
    pub registration_expires: Duration,
}

/// A running node. Local users access it through its [`NodeHandle`]. It stops when this is dropped.
#[derive(Debug)]
pub struct QuorumNode {
    handle: NodeHandle,
    ended: oneshot::Receiver<Result<(), NodeError>>,
    stop: oneshot::Sender<()>,
}

/// A handle of a node. A clone is a handle of the same node.
#[derive(Clone, Debug)]
pub struct NodeHandle {
    commands: mpsc::Sender<NodeCommand>,
    shared: Arc<Mutex<PublishedNodeState>>,
    links: Arc<QuorumLinks>,
    start: Instant,
    /// The kind of the group's key, which is known before the key.
    key: GroupKeyKind,
}

impl QuorumNode {
    /// Starts a node from its store. Calls `start_log` when the node follows a log, and again when
    /// others have invited it to follow from another height. Must be called in a runtime.
    ///
    /// # Errors
    /// If the store's content does not belong to this server, or cannot be read.
    pub fn start<L: AgreementLog + Send + 'static>(
        settings: QuorumServerSettings,
        store: QuorumStore,
        network: NodeNetwork,
        start_log: impl FnMut(LogStart<L>) -> Result<L, LogFailed> + Send + 'static,
    ) -> Result<Self, NodeError> {
        let (commands, received) = mpsc::channel(MAX_COMMANDS);
        let (shared, start) = (Arc::default(), Instant::now());
        let (links, key) = (Arc::clone(&network.links), settings.anchor.kind());
        let database = store.database_file();
        let core =
            NodeEventLoop::new(settings, store, network, start_log, Arc::clone(&shared), start)
                .map_err(|error| error.in_database(&database))?;
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let runtime = Runtime::current();
        let run = move || {
            let result = runtime.block_on(core.run(received, stopped));
            let result = result.map_err(|error| error.in_database(&database));
            // Nothing receives it if the node was dropped.
            let _ = end.send(result);
        };
        thread::Builder::new().name("quorum".into()).spawn(run).map_err(NodeError::Thread)?;
        let handle = NodeHandle { commands, shared, links, start, key };
        Ok(Self { handle, ended, stop })
    }

    /// A handle of this node.
    pub fn handle(&self) -> NodeHandle {
        self.handle.clone()
    }

    /// Waits until the node fails.
    ///
    /// # Errors
    /// The reason.
    pub async fn failed(&mut self) -> Result<(), NodeError> {
        (&mut self.ended).await.unwrap_or(Err(NodeError::Panicked))
    }

    /// Stops it, and waits until its store is closed.
    ///
    /// # Errors
    /// If the node has failed before.
    pub async fn stop(self) -> Result<(), NodeError> {
        drop(self.stop);
        self.ended.await.unwrap_or(Err(NodeError::Panicked))
    }
}

fn lock(shared: &Mutex<PublishedNodeState>) -> MutexGuard<'_, PublishedNodeState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
