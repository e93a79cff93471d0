//! The places where a client or a server listens. They outlive a change of the configuration, so that no
//! connection is refused during one.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use crate::net::rarely::Rarely;
use crate::net::socket;

/// How long nothing is accepted when the system has refused to.
const PAUSE: Duration = Duration::from_millis(100);

/// One place. A clone is the same.
#[derive(Clone, Debug)]
pub(crate) struct Listening {
    /// As in the configuration, where the port may be 0: any.
    configured: SocketAddr,
    listener: Arc<TcpListener>,
}

impl Listening {
    /// A listener that is there already. Its connections are readied as it is.
    pub(crate) fn new(configured: SocketAddr, listener: TcpListener) -> Self {
        socket::prepare(&listener);
        Self { configured, listener: Arc::new(listener) }
    }

    /// Where it is.
    ///
    /// # Errors
    /// When the system does not say.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Listens at these addresses, in their order. Those that are in `before` are taken from there.
///
/// # Errors
/// When one cannot be listened on; it is in the error's text.
pub(crate) async fn listen(
    addresses: impl IntoIterator<Item = SocketAddr>,
    before: &[Listening],
) -> io::Result<Vec<Listening>> {
    let mut before: Vec<&Listening> = before.iter().collect();
    let mut listening = Vec::new();
    for configured in addresses {
        let known = before.iter().position(|known| known.configured == configured);
        listening.push(match known {
            Some(known) => before.remove(known).clone(),
            None => Listening::new(configured, bind(configured).await?),
        });
    }
    Ok(listening)
}

async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
    })
}

/// Whose turn it is, and how accepting has gone.
#[derive(Default)]
pub(crate) struct Turn {
    /// The place after the last one.
    next: usize,
    /// Nothing is accepted before this.
    pause: Option<Instant>,
    failures: Rarely,
}

/// Accepts at any of the places; returns also which. The one whose turn it is comes first, so that a flood
/// at one does not starve the others.
pub(crate) async fn accept(
    places: &[Listening],
    turn: &mut Turn,
) -> (usize, TcpStream, SocketAddr) {
    loop {
        if let Some(pause) = turn.pause {
            sleep_until(pause).await;
            turn.pause = None;
        }
        let next = turn.next;
        let accepted = poll_fn(|context| {
            for index in (next..next + places.len()).map(|i| i % places.len()) {
                if let Poll::Ready(result) = places[index].listener.poll_accept(context) {
                    return Poll::Ready(result.map(|(stream, peer)| (index, stream, peer)));
                }
            }
            Poll::Pending
        });
        match accepted.await {
            Ok(accepted) => {
                turn.next = accepted.0 + 1;
                return accepted;
            }
            Err(error) => {
                // Usually there are too many open files; asking at once again would only spin.
                turn.pause = Some(Instant::now() + PAUSE);
                if let Some(so_often) = turn.failures.happened() {
                    warn!(%error, so_often, "cannot accept connections for a moment");
                }
            }
        }
    }
}
