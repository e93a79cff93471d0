//! Reliable streams over datagrams: the common part of all protocols that carry them.
//!
//! A protocol implements [`UdpStreamConnection`], and [`UdpStreamEndpoint`] for its listening side,
//! both without I/O. For each socket, one thread drives them: it sends and receives datagrams in
//! batches, sleeps until the next deadline, and wakes waiting programs. Programs use a
//! [`UdpStream`].
//!
//! Several protocols can listen on one socket: a datagram belongs to the first
//! [`UdpStreamEndpoint`] that does not return [`DatagramRouting::NotMine`].

mod acceptor;
mod backlog;
mod connect;
mod connection;
mod driver;
mod slot;
mod stream;
mod wake;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

pub use acceptor::UdpStreamAcceptor;
pub use backlog::AcceptedUdpStream;
pub use connect::{connect, connect_to_reachable};
pub use connection::{
    DatagramRouting, ListenerLoad, ReceivedDatagram, UdpStreamConnection, UdpStreamEndpoint,
    UdpStreamPhase, UdpStreamRead, UdpStreamState, UdpStreamStatistics,
};
pub use stream::UdpStream;

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The time since an epoch that is the same in the whole process.
pub fn now() -> Duration {
    EPOCH.elapsed()
}

/// Converts a time of [`now`] for libraries that use [`Instant`].
pub fn instant(now: Duration) -> Instant {
    *EPOCH + now
}

#[cfg(test)]
mod tests;
