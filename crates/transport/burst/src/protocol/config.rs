//! Settings and errors of a connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use keys::IdentityPublicKey;

/// Whether a client with this key may connect.
pub type ClientKeyFilter = Arc<dyn Fn(&IdentityPublicKey) -> bool + Send + Sync>;

/// The settings of a connection.
#[derive(Clone, Copy, Debug)]
pub struct BurstConfig {
    /// The size of the send buffer: written bytes that are not yet acknowledged.
    pub send_buffer: usize,
    /// The size of the receive buffer: bytes that have arrived and are not yet read.
    pub receive_buffer: usize,
    /// The number of datagrams that a client sends to measure the path's rate: 0 to 128. One or two
    /// are too few for a measurement.
    pub train: u8,
    /// The initial rate in bytes/s, with IP and UDP headers, if it is known. It is capped at twice
    /// the rate that the train measures.
    pub start_rate: Option<f64>,
    /// Whether the listener learns of the connection only when the client writes (even zero bytes)
    /// or finishes. If the client closes before that, the listener's program never sees the
    /// connection.
    pub is_deferred: bool,
    /// How long a client waits for the answer to its hello.
    pub connect_timeout: Duration,
    /// How long the peer may be silent before the connection fails.
    pub silence_timeout: Duration,
    /// How long the peer may read nothing, while there is data to send, before the connection
    /// fails.
    pub stall_timeout: Duration,
}

impl Default for BurstConfig {
    fn default() -> Self {
        Self {
            // Two and a half times what a path of 1 Gbit/s and 300 ms has in flight: a lost packet
            // keeps data in the buffers for that long.
            send_buffer: 96 << 20,
            receive_buffer: 96 << 20,
            train: 64,
            start_rate: None,
            is_deferred: false,
            connect_timeout: Duration::from_secs(10),
            silence_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(300),
        }
    }
}

/// Why a connection failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No answer arrived in time.
    #[error("no answer: is a listener of burst there, and does a firewall let UDP through?")]
    NoAnswer,
    /// The listener cannot read the first packet: it has another key than the expected one, or the
    /// packet was changed.
    #[error(
        "the listener there has another key than the expected one, or bytes were changed on the way"
    )]
    OtherKey,
    /// The listener does not accept this client's key.
    #[error("the listener there does not expect a connection from this client's key")]
    UnknownKey,
    /// Only one end uses encryption.
    #[error("one end encrypts, and the other does not")]
    OtherMode,
    /// The listener has another protocol version.
    #[error("the listener there has another version of the protocol")]
    OtherVersion,
    /// The listener has too many connections.
    #[error("the listener there has too many connections at the moment")]
    Busy,
    /// Nothing was received from the peer for too long.
    #[error("the peer has been silent for {} s; {waiting}", .silence.as_secs())]
    Silent {
        /// The time since the peer's last packet.
        silence: Duration,
        /// What the connection is waiting for.
        waiting: BurstWaitReason,
    },
    /// The peer's program does not read.
    #[error("the peer has read nothing for {} s, and {unsent} bytes wait to be sent", .time.as_secs())]
    NotReading {
        /// How long the peer has read nothing.
        time: Duration,
        /// How many bytes are still to be sent.
        unsent: u64,
    },
    /// The peer closed the connection before everything was sent.
    #[error("the peer has closed the connection")]
    Closed,
    /// The peer reports that this end violates the protocol.
    #[error("the peer says that this end does not keep to the protocol")]
    ReportedViolation,
    /// The peer violates the protocol.
    #[error("the peer does not keep to the protocol: {0}")]
    Violation(&'static str),
}

/// What a connection is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BurstWaitReason {
    /// The peer's first packet.
    #[error("its first packet was waited for")]
    FirstPacket,
    /// Acknowledgements of this number of bytes.
    #[error("acknowledgements of {0} bytes were waited for")]
    Acknowledgements(u64),
    /// Data, or the end of the stream.
    #[error("data or the stream's end was waited for")]
    Data,
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::NoAnswer | Error::Silent { .. } | Error::NotReading { .. } => {
                io::ErrorKind::TimedOut
            }
            Error::OtherKey | Error::UnknownKey => io::ErrorKind::PermissionDenied,
            Error::OtherMode | Error::OtherVersion | Error::Busy => {
                io::ErrorKind::ConnectionRefused
            }
            Error::Closed => io::ErrorKind::BrokenPipe,
            Error::ReportedViolation | Error::Violation(_) => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}
