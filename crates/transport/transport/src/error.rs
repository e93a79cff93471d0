//! The errors of this crate, with the step that failed.

use std::fmt;
use std::io;
use std::time::Duration;

use random::RandomError;

use crate::protocol::handshake::{HandshakeRefusal, TransportHandshakeError};

/// Why a connection could not be opened, or has failed. Each text is one line, which names the step
/// and, where possible, the remedy.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is invalid.
    #[error("{address}: {reason}")]
    Address {
        /// The address as given.
        address: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The name cannot be resolved.
    #[error("{address}: the name cannot be resolved: {source}")]
    Resolve {
        /// The address as given.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// There is no such transport.
    #[error("there is no transport {name}; choose auto or one of {known}")]
    UnknownTransport {
        /// The name as given.
        name: String,
        /// The names of all transports.
        known: String,
    },
    /// A connecting end needs the key of the other end.
    #[error("{peer}: the key of the other end is missing; it prints it when it starts")]
    NoKey {
        /// The other end.
        peer: String,
    },
    /// The system returned an error, or the connection has broken.
    #[error("{peer}: {step}: {}", explain(*step, source))]
    Io {
        /// The step that failed.
        step: ConnectionStep,
        /// The other end, or the address to listen on.
        peer: String,
        /// The system's error.
        source: io::Error,
    },
    /// A step took too long.
    #[error("{peer}: {step}: nothing for {} s{}", .after.as_secs_f64(), advice(*step))]
    TimedOut {
        /// The step that timed out.
        step: ConnectionStep,
        /// The other end.
        peer: String,
        /// The time limit.
        after: Duration,
    },
    /// The handshake has failed, or received data was changed on the path.
    #[error("{peer}: {source}")]
    Security {
        /// The other end.
        peer: String,
        /// The cause.
        source: TransportHandshakeError,
    },
    /// A received record was not sent by the peer.
    #[error("{peer}: received data was changed on the path, or is not of this connection")]
    Changed {
        /// The other end.
        peer: String,
    },
    /// The stream was cut before its end.
    #[error("{peer}: the connection was cut before its end")]
    Truncated {
        /// The other end.
        peer: String,
    },
    /// A message is longer than the receiver accepts.
    #[error("a message of {length} bytes is longer than the limit of {max}")]
    TooLong {
        /// The length of the message, in bytes.
        length: u64,
        /// The limit that was passed to [`Messages::receive`](crate::MessageStream::receive).
        max: usize,
    },
    /// The listener is closed.
    #[error("the listener is closed")]
    Closed,
    /// The system provides no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
}

impl Error {
    /// Whether it is a failed security check, and not a failure of the network.
    pub fn is_security(&self) -> bool {
        match self {
            Self::Changed { .. } => true,
            Self::Security { source, .. } => source.is_security(),
            _ => false,
        }
    }

    /// Whether the other end has too many connections at the moment.
    pub fn is_busy(&self) -> bool {
        let busy = TransportHandshakeError::Refused(HandshakeRefusal::Busy);
        matches!(self, Self::Security { source, .. } if *source == busy)
    }

    /// The [`Error`] of [`connect`](crate::connect) or of a connection that an [`io::Error`] wraps.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref().and_then(|inner| inner.downcast_ref())
    }

    /// The error of a connection to `peer` that an [`io::Error`] wraps.
    pub(crate) fn from_io(peer: &str, error: io::Error) -> Self {
        match error.downcast() {
            Ok(error) => error,
            Err(error) => Self::at(ConnectionStep::Read, peer, error, None),
        }
    }

    /// The error of a failed step on the connection to `peer`.
    pub(crate) fn at(
        step: ConnectionStep,
        peer: &str,
        source: io::Error,
        limit: Option<Duration>,
    ) -> Self {
        let peer = peer.to_owned();
        let source = match source.downcast::<TransportHandshakeError>() {
            Ok(source) => return Self::Security { peer, source },
            Err(source) => source,
        };
        match (source.kind(), limit) {
            (io::ErrorKind::TimedOut, Some(after)) if source.get_ref().is_none() => {
                Self::TimedOut { step, peer, after }
            }
            (io::ErrorKind::UnexpectedEof, _) if step == ConnectionStep::Read => {
                Self::Truncated { peer }
            }
            _ => Self::Io { step, peer, source },
        }
    }

    fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Io { source, .. } | Self::Resolve { source, .. } => source.kind(),
            Self::TimedOut { .. } => io::ErrorKind::TimedOut,
            Self::Truncated { .. } => io::ErrorKind::UnexpectedEof,
            Self::Changed { .. } | Self::Security { .. } | Self::TooLong { .. } => {
                io::ErrorKind::InvalidData
            }
            Self::Closed => io::ErrorKind::NotConnected,
            Self::Random(_) => io::ErrorKind::Other,
            Self::Address { .. } | Self::UnknownTransport { .. } | Self::NoKey { .. } => {
                io::ErrorKind::InvalidInput
            }
        }
    }
}

/// The text for a system error, with a remedy where there is one.
fn explain(step: ConnectionStep, source: &io::Error) -> String {
    let is_connecting =
        matches!(step, ConnectionStep::Connect(_) | ConnectionStep::Relay | ConnectionStep::Socks);
    let words = match source.kind() {
        _ if source.get_ref().is_some() => return source.to_string(),
        io::ErrorKind::ConnectionRefused if is_connecting => {
            "nobody listens there: check the address and the port, and that the other end runs"
        }
        io::ErrorKind::HostUnreachable => "its host does not answer, or a firewall refuses",
        io::ErrorKind::NetworkUnreachable => {
            "this host has no route there: check the address, and that the network is up"
        }
        io::ErrorKind::AddrInUse if step == ConnectionStep::Listen => {
            "another program listens there: choose another port"
        }
        io::ErrorKind::AddrNotAvailable if step == ConnectionStep::Listen => {
            "this host does not have the address"
        }
        io::ErrorKind::PermissionDenied if step == ConnectionStep::Listen => {
            "the system does not allow it: choose a port above 1023"
        }
        io::ErrorKind::UnexpectedEof if step == ConnectionStep::Answer => {
            "it has closed the connection without an answer: is it another program, or a load \
             balancer whose server is down?"
        }
        io::ErrorKind::ConnectionReset => {
            "the other end, or something on the path, has reset the connection"
        }
        io::ErrorKind::BrokenPipe => "the other end has closed the connection",
        _ => return source.to_string(),
    };
    words.to_owned()
}

/// What to check if nothing has arrived.
fn advice(step: ConnectionStep) -> &'static str {
    match step {
        ConnectionStep::Connect(_) | ConnectionStep::Relay | ConnectionStep::Socks => {
            ": is its host up, and does a firewall let it through?"
        }
        ConnectionStep::Answer => ": does Sunder listen on this port?",
        _ => "",
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}

/// A step of a connection, for error texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionStep {
    /// Opening the listening socket.
    Listen,
    /// The transport's own handshake.
    Connect(&'static str),
    /// Waiting for a relay to connect this end to the other.
    Relay,
    /// Waiting for a SOCKS proxy to connect this end to the other.
    Socks,
    /// Sending the first message of the handshake.
    Hello,
    /// The connecting end waits for the answer.
    Answer,
    /// The accepting end waits for the first message.
    Request,
    /// The accepting end has answered, and waits for the proof that the first message was not a
    /// replay.
    Confirm,
    /// Reading.
    Read,
    /// Writing: the peer does not accept more data.
    Write,
    /// Waiting until everything written has arrived.
    Finish,
}

impl fmt::Display for ConnectionStep {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Listen => "cannot listen",
            Self::Connect(transport) => return write!(out, "connecting by {transport}"),
            Self::Relay => "connecting through the relay",
            Self::Socks => "connecting through the SOCKS proxy",
            Self::Hello => "sending the handshake's first message",
            Self::Answer => "waiting for the handshake's answer",
            Self::Request => "waiting for the handshake's first message",
            Self::Confirm => "waiting for the handshake's confirmation",
            Self::Read => "waiting for data",
            Self::Write => "waiting until the other end takes more data",
            Self::Finish => "waiting until all data has arrived",
        })
    }
}
