//! Why a connection could not be opened, or has failed.

use std::io;
use std::time::Duration;

use quinn_proto::{ConnectionError, TransportErrorCode};

/// The codes with which `quinn-proto` reports a TLS error: the start of the range plus the number
/// of the alert.
const CRYPTO_ERRORS: std::ops::Range<u64> = 0x100..0x200;

/// Why a connection could not be opened, or has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuicError {
    /// The handshake did not finish in time.
    #[error(
        "no answer within the {} s of the handshake: is a listener there, and does a firewall let \
         UDP through?", .0.as_secs()
    )]
    NoAnswer(Duration),
    /// The listener has too many connections.
    #[error("the listener refused the connection")]
    Refused,
    /// The listener cannot read the first packets: it has another key than the one with which they
    /// were encrypted, or they were changed.
    #[error(
        "the listener there has another key than the expected one, or bytes were changed on the way"
    )]
    OtherKey,
    /// The listener does not encrypt.
    #[error("the listener there does not encrypt")]
    Insecure,
    /// The peer's key is not an expected one, or its proof is invalid.
    #[error("the peer does not have the key that was expected: {0}")]
    Untrusted(String),
    /// The peer does not accept this end's key.
    #[error("the peer did not accept this end's key: {0}")]
    NotAccepted(String),
    /// Nothing was received from the peer for this long.
    #[error("the peer was silent for {} s", .0.as_secs())]
    Silent(Duration),
    /// The peer closed the connection before all of the stream had arrived.
    #[error("the peer closed the connection before all data had arrived")]
    Truncated,
    /// The peer closed the connection: written data does not arrive.
    #[error("the peer closed the connection")]
    Closed,
    /// The connection was closed or finished on this side.
    #[error("the connection was closed on this side")]
    ClosedHere,
    /// So much of the data in flight was lost that `quinn-proto` fails.
    #[error(
        "more than 1,024 parts of the stream were missing at a time, the limit of the QUIC \
         library: resume where it ended, or use another transport"
    )]
    TooManyGaps,
    /// Any other error.
    #[error("QUIC: {0}")]
    Protocol(String),
}

impl QuicError {
    /// The error for a lost connection, depending on whether its handshake was complete.
    pub(crate) fn of(
        lost: &ConnectionError,
        is_connected: bool,
        connect_timeout: Duration,
        silence: Duration,
    ) -> Self {
        let text = lost.to_string();
        if text.contains("too many gaps") {
            return Self::TooManyGaps;
        }
        match lost {
            ConnectionError::TimedOut if is_connected => Self::Silent(silence),
            ConnectionError::TimedOut => Self::NoAnswer(connect_timeout),
            ConnectionError::TransportError(error)
                if CRYPTO_ERRORS.contains(&u64::from(error.code)) =>
            {
                Self::Untrusted(error.reason.clone())
            }
            ConnectionError::ConnectionClosed(close)
                if CRYPTO_ERRORS.contains(&u64::from(close.error_code)) =>
            {
                Self::NotAccepted(String::from_utf8_lossy(&close.reason).into_owned())
            }
            ConnectionError::ConnectionClosed(close)
                if close.error_code == TransportErrorCode::CONNECTION_REFUSED =>
            {
                Self::Refused
            }
            ConnectionError::ApplicationClosed(_) => Self::Closed,
            ConnectionError::LocallyClosed => Self::ClosedHere,
            _ => Self::Protocol(text),
        }
    }
}

impl From<QuicError> for io::Error {
    fn from(error: QuicError) -> Self {
        let kind = match error {
            QuicError::NoAnswer(_) | QuicError::Silent(_) => io::ErrorKind::TimedOut,
            QuicError::Refused => io::ErrorKind::ConnectionRefused,
            QuicError::OtherKey
            | QuicError::Insecure
            | QuicError::Untrusted(_)
            | QuicError::NotAccepted(_) => io::ErrorKind::PermissionDenied,
            QuicError::Truncated => io::ErrorKind::UnexpectedEof,
            QuicError::Closed => io::ErrorKind::BrokenPipe,
            QuicError::ClosedHere => io::ErrorKind::NotConnected,
            QuicError::TooManyGaps => io::ErrorKind::ConnectionAborted,
            QuicError::Protocol(_) => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
