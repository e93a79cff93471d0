//! Watches the connections of a direction that has ended, which are neither read nor written any
//! more: if one breaks, the other direction may never notice.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{Interest, Ready};
use tokio::net::TcpStream;

/// A connection of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    Application,
    /// A channel, by its index.
    Channel(usize),
}

/// The connections that are watched.
pub(super) struct Breaks<'a>(Vec<Watched<'a>>);

struct Watched<'a> {
    which: Broken,
    connection: &'a TcpStream,
    breaks: Pin<Box<dyn Future<Output = io::Result<Ready>> + Send + 'a>>,
}

impl<'a> Breaks<'a> {
    pub(super) fn new(connections: impl Iterator<Item = (Broken, &'a TcpStream)>) -> Self {
        let watched = |(which, connection): (Broken, &'a TcpStream)| Watched {
            which,
            connection,
            breaks: Box::pin(connection.ready(Interest::ERROR)),
        };
        Self(connections.map(watched).collect())
    }

    /// Waits until one breaks, which is not watched any more then. Also returns the error of the
    /// system.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<(Broken, io::Error)> {
        let place =
            self.0.iter_mut().position(|watched| watched.breaks.as_mut().poll(context).is_ready());
        let Some(place) = place else { return Poll::Pending };
        let Watched { which, connection, .. } = self.0.swap_remove(place);
        let known = connection.take_error().ok().flatten();
        Poll::Ready((which, known.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into())))
    }
}
