//! The interface between the driver and a protocol.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// A datagram that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedDatagram<'a> {
    /// Its sender's address, which may be forged.
    pub from: SocketAddr,
    /// Its payload.
    pub bytes: &'a [u8],
    /// When the kernel received it. Datagrams that were received together have the same time.
    pub arrived_at: Duration,
}

/// One end of a reliable stream in each direction, over datagrams.
///
/// It does no I/O: its input is datagrams and the time since any epoch, its output datagrams and
/// deadlines.
pub trait UdpStreamConnection: Send {
    /// Handles a datagram. The driver does not compare its sender with the peer's address.
    fn handle_datagram(&mut self, now: Duration, datagram: &ReceivedDatagram<'_>);

    /// Handles timers that are due.
    fn handle_timeout(&mut self, now: Duration);

    /// When to call [`handle_timeout`](Self::handle_timeout) and
    /// [`poll_transmit`](Self::poll_transmit) next: not in the future if there is something to send
    /// now. `None` if the connection is over; then only [`read`](Self::read) is called.
    fn poll_timeout(&self) -> Option<Duration>;

    /// Writes the next datagram that is to be sent now into an empty buffer. Returns its
    /// destination.
    fn poll_transmit(&mut self, now: Duration, datagram: &mut Vec<u8>) -> Option<SocketAddr>;

    /// Copies bytes of the peer's stream into a buffer, which must not be empty. If the connection
    /// is over, this never returns [`Nothing`](UdpStreamRead::Nothing).
    ///
    /// # Errors
    /// If the connection has failed, once all bytes that arrived before were read.
    fn read(&mut self, to: &mut [u8], now: Duration) -> io::Result<UdpStreamRead>;

    /// Copies as many bytes to the send buffer as there is room for. Returns their number.
    ///
    /// # Errors
    /// If the connection has failed, or the stream to the peer was finished.
    fn write(&mut self, bytes: &[u8], now: Duration) -> io::Result<usize>;

    /// Finishes the stream to the peer: it ends after everything that was written. If the protocol
    /// has no half-closed connections, this also ends the other direction.
    fn finish(&mut self, now: Duration);

    /// Whether the peer has acknowledged everything written, including the end of the stream if it
    /// was finished.
    fn is_flushed(&self) -> bool;

    /// Closes the connection after everything written has arrived. Afterwards it is neither read
    /// nor written.
    fn close(&mut self, now: Duration);

    /// Closes the connection at once. If the protocol can express it, the peer does not treat this
    /// as the end of the stream.
    fn abort(&mut self, now: Duration) {
        self.close(now);
    }

    /// The state of the connection.
    fn state(&self) -> UdpStreamState;

    /// The error with which it failed, if it has.
    fn error(&self) -> Option<io::Error>;

    /// The peer's address.
    fn peer_addr(&self) -> SocketAddr;

    /// The public key that the peer has proved, if the protocol supports that.
    fn peer_key(&self) -> Option<[u8; 32]> {
        None
    }

    /// The statistics of the connection.
    fn statistics(&self) -> UdpStreamStatistics;
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpStreamRead {
    /// The number of bytes read, at least one.
    Bytes(usize),
    /// Nothing has arrived yet.
    Nothing,
    /// The peer has finished the stream: no more data follows.
    End,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpStreamState {
    /// Whether it is in its handshake, open, or over.
    pub phase: UdpStreamPhase,
    /// Whether a waiting reader should be woken, for bytes, the end or an error.
    pub is_readable: bool,
    /// Whether a waiting writer should be woken, for enough free space or an error. Threads that
    /// wait until the connection is open, or until everything has arrived, are woken then, too.
    pub is_writable: bool,
}

/// The phases of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpStreamPhase {
    /// It is in its handshake: nothing can be read.
    Connecting,
    /// It is open in at least one direction.
    Open,
    /// It has ended, regularly or by an error. What has arrived can still be read.
    Over,
}

/// The statistics of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpStreamStatistics {
    /// The number of stream bytes that programs have written and read.
    pub bytes_written: u64,
    /// See `bytes_written`.
    pub bytes_read: u64,
    /// The number of bytes that were written and are not acknowledged, if the protocol counts them.
    pub bytes_unacknowledged: Option<u64>,
    /// Packets with stream bytes that were sent for the first time.
    pub packets_sent: u64,
    /// Packets with retransmitted bytes, or with repair data.
    pub packets_repeated: u64,
    /// Packets with stream bytes that arrived for the first time.
    pub packets_received: u64,
    /// Datagrams that were not from the peer, or of no use.
    pub packets_refused: u64,
    /// The smoothed round-trip time, once it is known.
    pub round_trip: Option<Duration>,
    /// The sending rate in bytes/s if there is enough to send, if the protocol has one.
    pub rate_bytes_per_s: Option<u64>,
    /// The rate at which packets that were sent back to back arrive, in bytes/s, if it was
    /// measured.
    pub link_rate_bytes_per_s: Option<u64>,
    /// The name of its congestion control, if the protocol offers several, or a well-known one.
    pub congestion: Option<&'static str>,
}

/// The listening side of a protocol, without I/O: assigns the datagrams of a socket to connections,
/// and creates connections.
pub trait UdpStreamEndpoint: Send {
    /// The protocol's name.
    fn protocol(&self) -> &'static str;

    /// Handles a datagram.
    fn handle_datagram(
        &mut self,
        now: Duration,
        datagram: &ReceivedDatagram<'_>,
        load: ListenerLoad,
    ) -> DatagramRouting;

    /// Removes a connection of this endpoint that is over.
    fn forget(&mut self, id: u64);

    /// Reports that a connection of this endpoint failed before it was open.
    fn failed(&mut self, _peer: SocketAddr, _error: &io::Error) {}
}

/// What to do with a datagram.
pub enum DatagramRouting {
    /// It belongs to another protocol.
    NotMine,
    /// It belongs to this connection, which handles it.
    To(u64),
    /// This datagram is to be sent back.
    Answer(Vec<u8>),
    /// It is a request for a connection, which is rejected.
    Refuse {
        /// This datagram is to be sent back.
        answer: Vec<u8>,
        /// The reason for a log, about "it", the client. Nothing of it is verified, not even the
        /// source of the datagram.
        why: &'static str,
    },
    /// It has created a connection, which is accepted once it is open.
    Accept {
        /// Its number, unique in this endpoint.
        id: u64,
        /// The connection. It does not get this datagram from the driver.
        connection: Box<dyn UdpStreamConnection>,
    },
    /// The datagram is dropped.
    Nothing,
}

/// The load of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListenerLoad {
    /// New connections are possible.
    Light,
    /// Connections are scarce: clients must prove their address first.
    Heavy,
    /// No further connection is possible.
    Full,
}
