//! Passes a new configuration to a running task.

use std::io;
use std::net::SocketAddr;

use tokio::sync::{mpsc, oneshot};

/// A request to put a configuration in force.
#[derive(Debug)]
pub struct ReloadRequest<C> {
    /// The configuration.
    pub config: C,
    /// Takes the task's listening addresses once the configuration is in force. The receiver may be
    /// gone.
    pub answer: oneshot::Sender<io::Result<Vec<SocketAddr>>>,
}

/// Sends new configurations to a task. A clone sends to the same task.
#[derive(Debug)]
pub struct Reloader<C>(mpsc::Sender<ReloadRequest<C>>);

/// The two ends: the sender, and the receiver for the task.
pub fn reloads<C>() -> (Reloader<C>, mpsc::Receiver<ReloadRequest<C>>) {
    let (sender, receiver) = mpsc::channel(1);
    (Reloader(sender), receiver)
}

impl<C> Reloader<C> {
    /// Sends the configuration and waits until it is in force. Returns the task's listening
    /// addresses.
    ///
    /// # Errors
    /// If the task rejects it, or has stopped.
    pub async fn reload(&self, config: C) -> io::Result<Vec<SocketAddr>> {
        let stopped = || io::Error::other("it has stopped");
        let (answer, answered) = oneshot::channel();
        self.0.send(ReloadRequest { config, answer }).await.map_err(|_| stopped())?;
        answered.await.unwrap_or_else(|_| Err(stopped()))
    }
}

impl<C> Clone for Reloader<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
