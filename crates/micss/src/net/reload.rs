//! How an end that runs is asked to take another configuration.

use std::io;
use std::net::SocketAddr;

use tokio::sync::{mpsc, oneshot};

/// A configuration that is to be in force, and who wants to know whether it is.
pub(crate) struct Reload<C> {
    /// The configuration.
    pub(crate) config: C,
    /// Who wants to know. It may have gone.
    pub(crate) answer: oneshot::Sender<io::Result<Vec<SocketAddr>>>,
}

/// Asks one end. A clone asks the same.
pub(crate) struct Reloader<C>(mpsc::Sender<Reload<C>>);

/// What asks, and what the end that is asked waits for.
pub(crate) fn reloads<C>() -> (Reloader<C>, mpsc::Receiver<Reload<C>>) {
    let (sender, receiver) = mpsc::channel(1);
    (Reloader(sender), receiver)
}

impl<C> Reloader<C> {
    /// Asks, and waits until the configuration is in force. Returns where the end listens then.
    ///
    /// # Errors
    /// When the end does not take it, or has stopped.
    pub(crate) async fn reload(&self, config: C) -> io::Result<Vec<SocketAddr>> {
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
