//! What can go wrong, and in which step.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::protocol::handshake::{HandshakeRefusal, TransportHandshakeError};

/// Why there is no connection, or why it has ended. Each is one line that names the step, and says
/// what to do where that is known.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be understood.
    #[error("{address}: {reason}")]
    Address {
        /// As it was given.
        address: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The name has no address.
    #[error("{address}: the name has no address that is known here: {source}")]
    Resolve {
        /// As it was given.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// There is no such transport.
    #[error("there is no transport {name}; choose auto or one of {known}")]
    UnknownTransport {
        /// As it was given.
        name: String,
        /// All names.
        known: String,
    },
    /// An end that connects must know whom it connects to.
    #[error("{peer}: the key of the other end is missing; it prints it when it starts")]
    NoKey {
        /// The other end.
        peer: String,
    },
    /// The system refuses, or the connection has broken.
    #[error("{peer}: {step}: {}", explain(*step, source))]
    Io {
        /// What was being done.
        step: ConnectionStep,
        /// The other end, or the address where this one listens.
        peer: String,
        /// The system's error.
        source: io::Error,
    },
    /// A step took too long.
    #[error("{peer}: {step}: nothing for {} s{}", .after.as_secs_f64(), advice(*step))]
    TimedOut {
        /// What was waited for.
        step: ConnectionStep,
        /// The other end.
        peer: String,
        /// For how long.
        after: Duration,
    },
    /// The handshake has failed, or what arrives was changed.
    #[error("{peer}: {source}")]
    Security {
        /// The other end.
        peer: String,
        /// Why.
        source: TransportHandshakeError,
    },
    /// A record was not sent by the peer.
    #[error("{peer}: what arrives was changed on the way, or is not of this connection")]
    Changed {
        /// The other end.
        peer: String,
    },
    /// The stream has ended before its end.
    #[error("{peer}: the connection was cut before its end")]
    Truncated {
        /// The other end.
        peer: String,
    },
    /// A message is longer than the receiver takes.
    #[error("a message of {length} bytes is longer than the {max} that are taken")]
    TooLong {
        /// Of the message.
        length: u64,
        /// What [`Messages::receive`](crate::MessageStream::receive) was told.
        max: usize,
    },
    /// The listener is closed.
    #[error("the listener is closed")]
    Closed,
    /// The system gives no random bytes.
    #[error("the system gives no random bytes: {0}")]
    Random(getrandom::Error),
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

    /// Whether the other end has no room for another connection at the moment.
    pub fn is_busy(&self) -> bool {
        let busy = TransportHandshakeError::Refused(HandshakeRefusal::Busy);
        matches!(self, Self::Security { source, .. } if *source == busy)
    }

    /// The error of [`connect`](crate::connect) or of a connection that an [`io::Error`] has
    /// inside.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref().and_then(|inner| inner.downcast_ref())
    }

    /// The error of a connection to `peer`, out of the [`io::Error`] that has it inside.
    pub(crate) fn from_io(peer: &str, error: io::Error) -> Self {
        match error.downcast() {
            Ok(error) => error,
            Err(error) => Self::at(ConnectionStep::Read, peer, error, None),
        }
    }

    /// What a step on the connection to `peer` has failed with.
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

/// An error of the system in words that say what to do.
fn explain(step: ConnectionStep, source: &io::Error) -> String {
    let is_connecting = matches!(step, ConnectionStep::Connect(_) | ConnectionStep::Relay);
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
        io::ErrorKind::ConnectionReset => {
            "the other end has broken off, or something on the path has"
        }
        io::ErrorKind::BrokenPipe => "the other end has closed the connection",
        _ => return source.to_string(),
    };
    words.to_owned()
}

/// What to do when nothing has come.
fn advice(step: ConnectionStep) -> &'static str {
    match step {
        ConnectionStep::Connect(_) | ConnectionStep::Relay => {
            ": is its host up, and does a firewall let it through?"
        }
        ConnectionStep::Answer => ": is it a listener of Sunder, and this its port?",
        _ => "",
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}

/// What a connection was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionStep {
    /// Opening the socket at which it listens.
    Listen,
    /// The transport's own set-up.
    Connect(&'static str),
    /// A relay is to find the other end.
    Relay,
    /// The first message of the handshake is being sent.
    Hello,
    /// The end that has connected waits for the answer.
    Answer,
    /// The end that was connected to waits for the first message.
    Request,
    /// The end that was connected to has answered, and waits for the proof that the first message
    /// was not a replay.
    Confirm,
    /// Reading.
    Read,
    /// Writing: the peer does not take more.
    Write,
    /// Waiting until all that was written has arrived.
    Finish,
}

impl fmt::Display for ConnectionStep {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Listen => "cannot listen",
            Self::Connect(transport) => return write!(out, "connecting by {transport}"),
            Self::Relay => "connecting through the relay",
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
