//! Reliable streams over datagrams: what is the same for every protocol that carries them.
//!
//! A protocol implements [`UdpStreamConnection`], and [`UdpStreamEndpoint`] for its listening side.
//! Both are pure. One thread for each socket drives them: it moves datagrams in batches, sleeps
//! until the next deadline, and lets programs wait. Programs use a [`UdpStream`].
//!
//! Several protocols can listen on one socket: the first [`UdpStreamEndpoint`] that does not say
//! that a datagram is not its own gets it.

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
pub use connect::connect;
pub use connection::{
    DatagramRouting, ListenerLoad, ReceivedDatagram, UdpStreamConnection, UdpStreamEndpoint,
    UdpStreamPhase, UdpStreamRead, UdpStreamState, UdpStreamStatistics,
};
pub use stream::UdpStream;

static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The time since an epoch that is the same for the whole process.
pub fn now() -> Duration {
    EPOCH.elapsed()
}

/// A time of [`now`] for libraries that want an [`Instant`].
pub fn instant(now: Duration) -> Instant {
    *EPOCH + now
}

#[cfg(test)]
mod tests;
