//! The interface of a transport: a reliable byte stream in each direction.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use keys::IdentityPublicKey;

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

    /// The peer's key, if the transport has its own authenticated handshake and encryption. If
    /// `None`, the connection adds them.
    fn peer(&self) -> Option<IdentityPublicKey> {
        None
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
