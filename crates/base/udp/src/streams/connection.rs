//! What the driver and a protocol know of each other.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// A datagram that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct ReceivedDatagram<'a> {
    /// Who sent it, or pretends to be.
    pub from: SocketAddr,
    /// Its payload.
    pub bytes: &'a [u8],
    /// When the kernel received it. Datagrams that it received together have the same time.
    pub arrived_at: Duration,
}

/// One end of a reliable stream in each direction, over datagrams.
///
/// It does no I/O: datagrams and the time since any epoch come in, datagrams and deadlines go out.
pub trait UdpStreamConnection: Send {
    /// Takes a datagram. The driver does not compare its sender with the peer's address.
    fn handle_datagram(&mut self, now: Duration, datagram: &ReceivedDatagram<'_>);

    /// Does what is due.
    fn handle_timeout(&mut self, now: Duration);

    /// The time of the next call of [`handle_timeout`](Self::handle_timeout) and
    /// [`poll_transmit`](Self::poll_transmit): not in the future if there is something to send now.
    /// `None` if the connection is over, and needs no more calls except of [`read`](Self::read).
    fn poll_timeout(&self) -> Option<Duration>;

    /// Writes the next datagram to be sent now into an empty buffer. Returns to whom.
    fn poll_transmit(&mut self, now: Duration, datagram: &mut Vec<u8>) -> Option<SocketAddr>;

    /// Moves bytes of the stream from the peer into a buffer that is not empty. Never
    /// [`Nothing`](UdpStreamRead::Nothing) if the connection is over.
    ///
    /// # Errors
    /// If the connection has failed, after all bytes that arrived before.
    fn read(&mut self, to: &mut [u8], now: Duration) -> io::Result<UdpStreamRead>;

    /// Takes bytes of the stream to the peer, as many as there is room for. Returns how many.
    ///
    /// # Errors
    /// If the connection has failed, or no more is to be written.
    fn write(&mut self, bytes: &[u8], now: Duration) -> io::Result<usize>;

    /// No more is written: when the peer has read all that was, its stream ends. A protocol without
    /// half-closed connections then ends the other direction, too.
    fn finish(&mut self, now: Duration);

    /// Whether the peer has acknowledged all that was written, and the end of the stream if there
    /// is one.
    fn is_flushed(&self) -> bool;

    /// Nobody reads or writes any more: ends, after what was written has arrived.
    fn close(&mut self, now: Duration);

    /// Ends at once. The peer does not take it for the end of the stream, if the protocol can tell
    /// it the difference.
    fn abort(&mut self, now: Duration) {
        self.close(now);
    }

    /// How far it is.
    fn state(&self) -> UdpStreamState;

    /// Why it has failed, if it has.
    fn error(&self) -> Option<io::Error>;

    /// The peer's address.
    fn peer_addr(&self) -> SocketAddr;

    /// The public key that the peer has proved to have, if the protocol has that.
    fn peer_key(&self) -> Option<[u8; 32]> {
        None
    }

    /// What it has done so far.
    fn statistics(&self) -> UdpStreamStatistics;
}

/// What a reader gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpStreamRead {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The peer has finished the stream: there is nothing more.
    End,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpStreamState {
    /// Whether it shakes hands, is open, or over.
    pub phase: UdpStreamPhase,
    /// Whether a reader that waits has something to do: there are bytes, the end or an error.
    pub is_readable: bool,
    /// Whether a writer that waits has something to do: there is room worth a wake-up or an error.
    /// Who waits until the connection is open or all has arrived is woken then, too.
    pub is_writable: bool,
}

/// The phases of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpStreamPhase {
    /// It shakes hands: nothing can be read.
    Connecting,
    /// It is open, in one direction at least.
    Open,
    /// It is over, as both ends wished or by an error. What has arrived can still be read.
    Over,
}

/// What a connection has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpStreamStatistics {
    /// Bytes of the stream that programs have written and read.
    pub bytes_written: u64,
    /// See `bytes_written`.
    pub bytes_read: u64,
    /// Bytes that were written and are not acknowledged, if the protocol counts them.
    pub bytes_unacknowledged: Option<u64>,
    /// Packets with bytes of the stream, sent for the first time.
    pub packets_sent: u64,
    /// Packets with bytes that were sent before, or that repair others.
    pub packets_repeated: u64,
    /// Packets with bytes of the stream that have arrived for the first time.
    pub packets_received: u64,
    /// Datagrams that were not from the peer or of no use.
    pub packets_refused: u64,
    /// The mean round-trip time, once it is known.
    pub round_trip: Option<Duration>,
    /// At what rate it sends if it has enough to send, in bytes/s, if it has one.
    pub rate_bytes_per_s: Option<u64>,
    /// At what rate packets arrive that were sent without gaps, in bytes/s, if that was measured.
    pub link_rate_bytes_per_s: Option<u64>,
    /// The name of its congestion control, if it has a choice of them or one that is known.
    pub congestion: Option<&'static str>,
}

/// Decides for datagrams of a socket to which connection they belong, and makes connections: the
/// listening side of a protocol, without I/O.
pub trait UdpStreamEndpoint: Send {
    /// The protocol's name.
    fn protocol(&self) -> &'static str;

    /// Takes a datagram.
    fn handle_datagram(
        &mut self,
        now: Duration,
        datagram: &ReceivedDatagram<'_>,
        load: ListenerLoad,
    ) -> DatagramRouting;

    /// A connection that it made is over.
    fn forget(&mut self, id: u64);

    /// A connection that it made has failed before it was open.
    fn failed(&mut self, _peer: SocketAddr, _error: &io::Error) {}
}

/// What becomes of a datagram.
pub enum DatagramRouting {
    /// It belongs to another protocol.
    NotMine,
    /// It belongs to a connection, which takes it.
    To(u64),
    /// This is to be sent back.
    Answer(Vec<u8>),
    /// Somebody asks for a connection and gets none.
    Refuse {
        /// This is to be sent back.
        answer: Vec<u8>,
        /// For a log: what is wrong with "it", who asks. Nothing of it is verified, nor where the
        /// datagram comes from.
        why: &'static str,
    },
    /// It has made a connection, which is accepted once it is open.
    Accept {
        /// Its number, which no other connection of this endpoint has.
        id: u64,
        /// The connection. It does not get this datagram from the driver.
        connection: Box<dyn UdpStreamConnection>,
    },
    /// Nothing is done.
    Nothing,
}

/// How much a listening socket has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListenerLoad {
    /// There is room for connections.
    Light,
    /// There is less room: who connects has to prove its address first.
    Heavy,
    /// There is no room for another connection.
    Full,
}
