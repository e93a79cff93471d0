//! A server of a quorum: drives [`server::Server`](crate::server::Server) with links, store, log
//! and threads, and answers local users.
//!
//! The server runs on a thread of its own, which the store may block. What takes long runs on other
//! threads.

mod answers;
mod config;
mod core;
mod health;
mod incoming;
mod local;
mod open;
mod status;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use keys::RsaPublicKey;
use sharing::RandomError;
use tokio::runtime::Handle as Runtime;
use tokio::sync::{mpsc, oneshot};

use self::core::Core;
use crate::log::{AgreementLog, Height, LogFailed};
use crate::net::links::{Inbox, Links, Peer};
use crate::net::store::{Store, StoreError};
use crate::protocol::server::{SavedError, Settings};
use local::{Command, MAX_COMMANDS};
use status::Shared;

pub use config::{Config, KEYS, MasterKeySource};
pub use open::{OpenError, Opened, back_up, open, restore};
pub use status::Status;

/// Why a node does not run, or has stopped.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// What it has kept is not the state of this server.
    #[error(transparent)]
    Saved(#[from] SavedError),
    /// Its store cannot be read or written.
    #[error("the store: {0}")]
    Store(#[from] StoreError),
    /// The agreement log has failed.
    #[error(transparent)]
    Log(#[from] LogFailed),
    /// There are no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// The system gives no thread.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// It has failed in a way that is an error of this program.
    #[error("the server's thread has panicked")]
    Panicked,
}

/// Where a log is to start.
#[derive(Debug)]
pub struct LogStart<L> {
    /// The last height that was applied.
    pub applied: Height,
    /// What has the messages of other servers for the log.
    pub before: LogBefore<L>,
}

/// What has the messages of other servers before a log starts.
#[derive(Debug)]
pub enum LogBefore<L> {
    /// Their inbox.
    Inbox(Inbox),
    /// The log that has run at another height, and is to end.
    Log(L),
}

/// The links of a node, with their inboxes.
pub struct Network {
    /// The links.
    pub links: Arc<Links>,
    /// For the log, signing, and refreshes.
    pub inboxes: [Inbox; 3],
    /// The servers of the configuration.
    pub peers: Vec<Peer>,
}

/// A node that runs. Local users are answered by its [`Handle`]. It stops when this is dropped.
#[derive(Debug)]
pub struct Node {
    handle: Handle,
    ended: oneshot::Receiver<Result<(), NodeError>>,
    stop: oneshot::Sender<()>,
}

/// Reaches a node. A clone reaches the same one.
#[derive(Clone, Debug)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
    shared: Arc<Mutex<Shared>>,
    links: Arc<Links>,
    public: RsaPublicKey,
    start: Instant,
}

impl Node {
    /// Starts a node with what its store has. It calls `start_log` when it follows a log, and again
    /// when others have invited it to follow from another height. Must be called in a runtime.
    ///
    /// # Errors
    /// When the store's content is not that of this server, or cannot be read.
    pub fn start<L: AgreementLog + Send + 'static>(
        settings: Settings,
        store: Store,
        network: Network,
        start_log: impl FnMut(LogStart<L>) -> Result<L, LogFailed> + Send + 'static,
    ) -> Result<Self, NodeError> {
        let (commands, received) = mpsc::channel(MAX_COMMANDS);
        let (shared, start) = (Arc::default(), Instant::now());
        let public = settings.public.clone();
        let links = Arc::clone(&network.links);
        let core = Core::new(settings, store, network, start_log, Arc::clone(&shared), start)?;
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let runtime = Runtime::current();
        let run = move || {
            let result = runtime.block_on(core.run(received, stopped));
            // Nobody waits for it if the node was dropped.
            let _ = end.send(result);
        };
        thread::Builder::new().name("quorum".into()).spawn(run).map_err(NodeError::Thread)?;
        let handle = Handle { commands, shared, links, public, start };
        Ok(Self { handle, ended, stop })
    }

    /// Reaches it.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Waits until it has failed.
    ///
    /// # Errors
    /// The reason.
    pub async fn failed(&mut self) -> Result<(), NodeError> {
        (&mut self.ended).await.unwrap_or(Err(NodeError::Panicked))
    }

    /// Stops it, and waits until its store is closed.
    ///
    /// # Errors
    /// When it failed before.
    pub async fn stop(self) -> Result<(), NodeError> {
        drop(self.stop);
        self.ended.await.unwrap_or(Err(NodeError::Panicked))
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
