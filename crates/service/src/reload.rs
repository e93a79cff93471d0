//! Hands a new configuration to a task that runs.

use std::io;
use std::net::SocketAddr;

use tokio::sync::{mpsc, oneshot};

/// A configuration that is to be in force.
#[derive(Debug)]
pub struct Reload<C> {
    /// The configuration.
    pub config: C,
    /// Takes the addresses where the task listens once it is in force. The receiver may be gone.
    pub answer: oneshot::Sender<io::Result<Vec<SocketAddr>>>,
}

/// Asks one task to take another configuration. A clone asks the same task.
#[derive(Debug)]
pub struct Reloader<C>(mpsc::Sender<Reload<C>>);

/// The two ends: one asks, and the task waits at the other.
pub fn reloads<C>() -> (Reloader<C>, mpsc::Receiver<Reload<C>>) {
    let (sender, receiver) = mpsc::channel(1);
    (Reloader(sender), receiver)
}

impl<C> Reloader<C> {
    /// Asks, and waits until the configuration is in force. Returns where the task listens then.
    ///
    /// # Errors
    /// When the task does not take it, or has stopped.
    pub async fn reload(&self, config: C) -> io::Result<Vec<SocketAddr>> {
        let stopped = || io::Error::other("it has stopped");
        let (answer, answered) = oneshot::channel();
        self.0.send(Reload { config, answer }).await.map_err(|_| stopped())?;
        answered.await.unwrap_or_else(|_| Err(stopped()))
    }
}

impl<C> Clone for Reloader<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
