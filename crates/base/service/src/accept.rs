//! The accept loop: it treats several listeners fairly, and pauses after an error of the system.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use crate::log::LogRateLimiter;

/// The pause after the system has failed to accept a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket that accepts connections.
pub trait AcceptingSocket {
    /// A connection.
    type Stream;
    /// The address of its other end.
    type Address;

    /// Accepts a connection if one is waiting.
    fn poll_accept(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<(Self::Stream, Self::Address)>>;
}

impl AcceptingSocket for TcpListener {
    type Stream = TcpStream;
    type Address = SocketAddr;

    fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        self.poll_accept(context)
    }
}

impl AcceptingSocket for UnixListener {
    type Stream = UnixStream;
    type Address = tokio::net::unix::SocketAddr;

    fn poll_accept(
        &self,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<(UnixStream, Self::Address)>> {
        self.poll_accept(context)
    }
}

/// Accepts connections from several listeners, fairly.
#[derive(Debug, Default)]
pub struct RoundRobinAcceptor {
    /// The listener after the one that accepted last.
    next: usize,
    /// Nothing is accepted before this time.
    pause: Option<Instant>,
    failures: LogRateLimiter,
}

impl RoundRobinAcceptor {
    /// Accepts a connection from any of the listeners; also returns the listener's index. The
    /// listener after the one that accepted last is polled first, so a flood at one listener does
    /// not starve the others. If the system returns an error, it is logged, and accepting continues
    /// after 100 ms. No connection is lost if the future is dropped.
    pub async fn accept<L: AcceptingSocket>(
        &mut self,
        listeners: &[L],
    ) -> (usize, L::Stream, L::Address) {
        loop {
            if let Some(pause) = self.pause {
                sleep_until(pause).await;
                self.pause = None;
            }
            let next = self.next;
            let accepted = poll_fn(|context| {
                for index in (next..next + listeners.len()).map(|i| i % listeners.len()) {
                    if let Poll::Ready(result) = listeners[index].poll_accept(context) {
                        return Poll::Ready(result.map(|(stream, peer)| (index, stream, peer)));
                    }
                }
                Poll::Pending
            });
            match accepted.await {
                Ok(accepted) => {
                    self.next = accepted.0 + 1;
                    return accepted;
                }
                Err(error) => {
                    // Usually too many files are open; an immediate retry would fail again.
                    self.pause = Some(Instant::now() + PAUSE);
                    if let Some(occurrences) = self.failures.count_event() {
                        warn!(%error, occurrences, "cannot accept connections for a moment");
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// A listener with waiting connections, or an error.
    struct Waiting {
        connections: Cell<usize>,
        error: RefCell<Option<io::Error>>,
    }

    impl Waiting {
        fn new(connections: usize) -> Self {
            Self { connections: Cell::new(connections), error: RefCell::new(None) }
        }
    }

    impl AcceptingSocket for Waiting {
        type Stream = ();
        type Address = ();

        fn poll_accept(&self, _: &mut Context<'_>) -> Poll<io::Result<((), ())>> {
            if let Some(error) = self.error.take() {
                return Poll::Ready(Err(error));
            }
            match self.connections.get() {
                0 => Poll::Pending,
                left => {
                    self.connections.set(left - 1);
                    Poll::Ready(Ok(((), ())))
                }
            }
        }
    }

    #[tokio::test]
    async fn a_flood_at_one_listener_does_not_starve_the_others() {
        let listeners = [Waiting::new(100), Waiting::new(2), Waiting::new(1)];
        let mut round_robin = RoundRobinAcceptor::default();
        let mut order = Vec::new();
        for _ in 0..6 {
            order.push(round_robin.accept(&listeners).await.0);
        }
        assert_eq!(order, [0, 1, 2, 0, 1, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_of_the_system_pauses() {
        let listener = Waiting::new(1);
        *listener.error.borrow_mut() = Some(io::Error::other("too many open files"));
        let start = Instant::now();
        let mut round_robin = RoundRobinAcceptor::default();
        assert_eq!(round_robin.accept(&[listener]).await.0, 0);
        assert!(start.elapsed() >= PAUSE);
    }
}
