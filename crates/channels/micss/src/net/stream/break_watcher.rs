//! Watches the connections of a direction that has ended, which are neither read nor written any
//! more. Without this, the other direction might never detect that one breaks.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;

/// A connection of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BrokenConnection {
    Application,
    /// A channel, by its index.
    Channel(usize),
}

/// The connections that are watched.
pub(super) struct BreakWatcher<'a>(Vec<WatchedConnection<'a>>);

struct WatchedConnection<'a> {
    which: BrokenConnection,
    connection: &'a TcpStream,
    breaks: Pin<Box<dyn Future<Output = io::Result<Ready>> + Send + 'a>>,
}

impl<'a> BreakWatcher<'a> {
    pub(super) fn new(
        connections: impl Iterator<Item = (BrokenConnection, &'a TcpStream)>,
    ) -> Self {
        let watched = |(which, connection): (BrokenConnection, &'a TcpStream)| WatchedConnection {
            which,
            connection,
            breaks: Box::pin(connection.ready(Interest::ERROR)),
        };
        Self(connections.map(watched).collect())
    }

    /// Waits until one breaks, and stops watching it. Also returns the system's error.
    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<(BrokenConnection, io::Error)> {
        let place =
            self.0.iter_mut().position(|watched| watched.breaks.as_mut().poll(context).is_ready());
        let Some(place) = place else { return Poll::Pending };
        let WatchedConnection { which, connection, .. } = self.0.swap_remove(place);
        let known = connection.take_error().ok().flatten();
        Poll::Ready((which, known.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into())))
    }
}
