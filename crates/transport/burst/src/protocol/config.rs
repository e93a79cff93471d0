//! Settings, and why a connection fails.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use keys::IdentityPublicKey;

/// Whether a client with this key may connect.
pub type ClientKeyFilter = Arc<dyn Fn(&IdentityPublicKey) -> bool + Send + Sync>;

/// The settings of a connection.
#[derive(Clone, Copy, Debug)]
pub struct BurstConfig {
    /// The bytes that are written and not acknowledged, at most.
    pub send_buffer: usize,
    /// The bytes that have arrived and are not read, at most.
    pub receive_buffer: usize,
    /// The number of datagrams by which a client lets the path's rate be measured: 0 to 128. One
    /// or two are no measurement.
    pub train: u8,
    /// The rate at which to start, in bytes/s with IP and UDP headers, if it is known. It is at
    /// most twice what the train measures.
    pub start_rate: Option<f64>,
    /// Whether the listener hears of the client's connection only when the client writes, if only
    /// nothing, or finishes. Closed before that, it leaves nothing behind: the listener's program
    /// never has it.
    pub is_deferred: bool,
    /// How long a client waits for an answer.
    pub connect_timeout: Duration,
    /// How long a peer may be silent.
    pub silence_timeout: Duration,
    /// How long a peer may read nothing while there is something to send.
    pub stall_timeout: Duration,
}

impl Default for BurstConfig {
    fn default() -> Self {
        Self {
            // What a path of 1 Gbit/s and 300 ms has in flight, two and a half times: a lost packet
            // is in the buffers for that long.
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

/// Why a connection fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No answer has come in time.
    #[error("no answer: is a listener of burst there, and does a firewall let UDP through?")]
    NoAnswer,
    /// The listener says that it has another key than the expected one.
    #[error("the listener there has another key than the expected one")]
    OtherKey,
    /// The listener does not expect this client.
    #[error("the listener there does not expect a connection from this client's key")]
    UnknownKey,
    /// One end is without encryption.
    #[error("one end encrypts, and the other does not")]
    OtherMode,
    /// The listener has another version.
    #[error("the listener there has another version of the protocol")]
    OtherVersion,
    /// The listener has no room.
    #[error("the listener there has too many connections at the moment")]
    Busy,
    /// Nothing has come from the peer for too long.
    #[error("the peer has been silent for {} s; {waiting}", .silence.as_secs())]
    Silent {
        /// For how long.
        silence: Duration,
        /// What was waited for.
        waiting: BurstWaitReason,
    },
    /// The peer's program does not read.
    #[error("the peer has read nothing for {} s, and {unsent} bytes wait to be sent", .time.as_secs())]
    NotReading {
        /// For how long.
        time: Duration,
        /// How much there is to send.
        unsent: u64,
    },
    /// The peer has closed the connection before all was sent.
    #[error("the peer has closed the connection")]
    Closed,
    /// The peer says that this end does not keep to the protocol.
    #[error("the peer says that this end does not keep to the protocol")]
    ReportedViolation,
    /// The peer does not keep to the protocol.
    #[error("the peer does not keep to the protocol: {0}")]
    Violation(&'static str),
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BurstWaitReason {
    /// The peer's first packet.
    #[error("its first packet was waited for")]
    FirstPacket,
    /// Acknowledgements of so many bytes.
    #[error("acknowledgements of {0} bytes were waited for")]
    Acknowledgements(u64),
    /// Data, or the stream's end.
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
