//! The interface of a transport: how it connects and accepts, and its connections, which are
//! reliable byte streams in each direction (Transputation, 4.3 and 5).

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use keys::IdentityPublicKey;

use crate::model::{ExchangeProfile, NetworkPath};
use crate::options::ConnectionOptions;

/// A transport. [`register`](crate::register) adds one of another crate.
pub trait Transport: Send + Sync {
    /// Its name, as in `--transport NAME`.
    fn name(&self) -> &'static str;

    /// Its purpose, in one line.
    fn about(&self) -> &'static str;

    /// Connects within [`ConnectionOptions::connect_timeout`].
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] after that time, [`io::ErrorKind::ConnectionRefused`] if nobody
    /// listens there, or another error.
    fn connect(
        &self,
        to: SocketAddr,
        options: &ConnectionOptions,
    ) -> io::Result<Arc<dyn ByteStream>>;

    /// Listens beside the TCP and UDP sockets of a listener, which have this address. `None`: its
    /// connections arrive at these sockets.
    ///
    /// # Errors
    /// If the system returns an error. Then nothing listens at the address.
    fn listen(
        &self,
        _at: SocketAddr,
        _options: &ConnectionOptions,
    ) -> io::Result<Option<Box<dyn TransportAcceptor>>> {
        Ok(None)
    }

    /// The latency function: how long an exchange is predicted to take over a path, with the
    /// connection's setup. It must be pure and take less than a millisecond. `None`: `auto` does
    /// not choose this transport on this path.
    fn latency(
        &self,
        _path: &NetworkPath,
        _exchange: ExchangeProfile,
        _is_secure: bool,
    ) -> Option<Duration> {
        None
    }

    /// Whether it must be told the path's rate and loss, as it does not measure them itself.
    fn needs_path(&self) -> bool {
        false
    }

    /// Whether it uses UDP: what blocks one such transport blocks them all, and `auto` uses TCP
    /// instead.
    fn is_over_udp(&self) -> bool {
        false
    }
}

/// Accepts connections of a transport that listens by itself.
pub trait TransportAcceptor: Send + Sync {
    /// Waits for a connection. It is handed over before a byte of it was read: the library performs
    /// the handshake, in another thread.
    ///
    /// # Errors
    /// After [`Self::close`], or if the system returns an error. After an error that is not due to
    /// `close`, the library tries again a moment later.
    fn accept(&self) -> io::Result<Arc<dyn ByteStream>>;

    /// Stops listening: [`Self::accept`] in another thread returns an error.
    fn close(&self);
}

/// A connection of a transport. Its reading and its writing half share it, in two threads.
pub trait ByteStream: Send + Sync {
    /// Waits for bytes. 0 is the end of the stream: the peer writes no more.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] after the limit of [`Self::set_timeout`]; another error if the
    /// connection has failed.
    fn read(&self, to: &mut [u8]) -> io::Result<usize>;

    /// Waits until the transport accepts some of the bytes. Returns how many.
    ///
    /// # Errors
    /// As for [`Self::read`].
    fn write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Ends the stream to the peer. Returns when everything written will arrive even if the process
    /// ends.
    ///
    /// # Errors
    /// If the connection fails before that.
    fn finish(&self) -> io::Result<()>;

    /// Closes the connection at once. Waiting reads and writes return an error.
    fn close(&self);

    /// Whether the connection depends on threads of this process, which a forked child does not
    /// have.
    fn has_threads(&self) -> bool {
        true
    }

    /// Sets the time limit of each later read or write.
    ///
    /// # Errors
    /// If the system returns an error.
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;

    /// The address of the other end.
    fn peer_addr(&self) -> SocketAddr;

    /// The transport's name.
    fn transport(&self) -> &'static str;

    /// Measurements of the path.
    fn statistics(&self) -> PathStatistics;

    /// How it reaches the other end.
    fn path(&self) -> ConnectionPath {
        ConnectionPath::Direct
    }

    /// The peer's key, if the transport has its own authenticated handshake and encryption. If
    /// `None`, the connection adds them.
    fn peer(&self) -> Option<IdentityPublicKey> {
        None
    }
}

/// How a connection reaches the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionPath {
    /// Without a relay.
    Direct,
    /// In datagrams that a relay forwards.
    RelayedDatagrams,
    /// By TCP to a relay, and from there by TCP.
    RelayedTcp,
}

impl fmt::Display for ConnectionPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Direct => "direct",
            Self::RelayedDatagrams => "relayed datagrams",
            Self::RelayedTcp => "relayed tcp",
        })
    }
}

/// What a transport has measured of its path. Unknown values are `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathStatistics {
    /// The smoothed round-trip time.
    pub round_trip: Option<Duration>,
    /// The min RTT.
    pub min_round_trip: Option<Duration>,
    /// The number of packets sent, with retransmissions.
    pub packets_sent: Option<u64>,
    /// The number of retransmitted packets.
    pub packets_sent_again: Option<u64>,
    /// The delivery rate of the path, in bytes/s.
    pub delivery_rate: Option<u64>,
    /// The rate at which packets that were sent back to back arrive, in bytes/s.
    pub link_rate: Option<u64>,
    /// The name of the congestion control.
    pub congestion: Option<String>,
    /// The size of the send buffer, in bytes.
    pub send_buffer: Option<usize>,
    /// The size of the receive buffer, in bytes.
    pub receive_buffer: Option<usize>,
}
