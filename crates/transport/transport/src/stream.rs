//! What a transport gives: a reliable stream of bytes each way.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use keys::IdentityPublicKey;

/// A connection of a transport. Both of its halves share it, from two threads.
pub trait ByteStream: Send + Sync {
    /// Waits for bytes. 0 is the end: the peer writes no more.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] after [`Self::set_timeout`], and if the connection has failed.
    fn read(&self, to: &mut [u8]) -> io::Result<usize>;

    /// Waits until the transport takes some of the bytes. Returns how many.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn write(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Says that no more is written. Returns when what was written will arrive even if the process
    /// ends.
    ///
    /// # Errors
    /// If the connection fails before.
    fn finish(&self) -> io::Result<()>;

    /// Ends it at once. Whoever reads or writes gets an error.
    fn close(&self);

    /// Whether threads of this process work for it, which do not exist in one that was forked.
    fn has_threads(&self) -> bool {
        true
    }

    /// Limits how long each read or write waits from now on.
    ///
    /// # Errors
    /// When the system refuses.
    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()>;

    /// The other end.
    fn peer_addr(&self) -> SocketAddr;

    /// The transport's name.
    fn transport(&self) -> &'static str;

    /// What is known of the path.
    fn statistics(&self) -> PathStatistics;

    /// The peer's key, if the transport has a handshake of its own and encrypts. Otherwise the
    /// connection does it.
    fn peer(&self) -> Option<IdentityPublicKey> {
        None
    }
}

/// What a transport knows of its path. What it does not know is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PathStatistics {
    /// The mean round-trip time.
    pub round_trip: Option<Duration>,
    /// The least round-trip time.
    pub min_round_trip: Option<Duration>,
    /// Packets that were sent, those sent again included.
    pub packets_sent: Option<u64>,
    /// Packets that were sent again.
    pub packets_sent_again: Option<u64>,
    /// The rate at which the path has delivered, in bytes per second.
    pub delivery_rate: Option<u64>,
    /// The rate at which packets arrive that were sent without gaps, in bytes per second.
    pub link_rate: Option<u64>,
    /// The name of the congestion control.
    pub congestion: Option<String>,
    /// The size of the buffer to send from, in bytes.
    pub send_buffer: Option<usize>,
    /// The size of the buffer to receive into, in bytes.
    pub receive_buffer: Option<usize>,
}
