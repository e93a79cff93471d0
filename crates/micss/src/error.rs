//! Why a stream did not come about, or did not end well.

use std::io;
use std::net::SocketAddr;

use association::ClientAbort;
use sharing::RandomError;

use crate::protocol::record::{Kind, RecordError};
use crate::protocol::stream::Failure;
use crate::protocol::target::Refusal;
use directory::DirectoryError;

/// Why a stream did not come about, or did not end well. In every case the application's
/// connection is reset, never closed as if all had been said.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The configuration has no channels to where an application wants to go.
    #[error(
        "no channels lead there: add a [[peer]] with this address, or a [[channel]] for all else"
    )]
    NoChannels,
    /// The directory does not know the channels to where an application wants to go.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The directory knows addresses of one host of the peer, so whoever listens there would read
    /// everything.
    #[error(
        "the directory has addresses of one host only of this peer: it takes two for two channels"
    )]
    OneChannel,
    /// A channel's server cannot be reached.
    #[error("channel {}: no connection to {server}: {source}", .channel + 1)]
    Connect {
        /// The channel's index.
        channel: usize,
        /// The server's address on it.
        server: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// What greeted the client on a channel is no server of this protocol.
    #[error("channel {}: no greeting; see that it is sunder serve that listens there", .channel + 1)]
    NotGreeted {
        /// The channel's index.
        channel: usize,
    },
    /// Not all channels were connected, or associated and answered, in time.
    #[error("not all channels answered in time; see whether packets get through on each")]
    NotOpened,
    /// The two ends did not agree on which connections belong together.
    #[error(
        "the channels were not associated: {0}; if that goes on, see whether threshold, number of channels and \
         integrity fit min_channels, max_channels and integrity of the server"
    )]
    Association(#[from] ClientAbort),
    /// The server does not connect to the service.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// What arrived on the channels does not make a stream.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The peer sent a record that has no place here.
    #[error("the peer sent an unexpected record: {0:?}")]
    Unexpected(Kind),
    /// The peer's application broke off.
    #[error("the peer's application broke off")]
    PeerAborted,
    /// A record did not arrive in time.
    #[error("a channel is stuck: the rest of a record did not arrive in time")]
    Stalled,
    /// A channel broke.
    #[error("channel {}: {source}", .channel + 1)]
    Channel {
        /// The channel's index.
        channel: usize,
        /// What the system says.
        source: io::Error,
    },
    /// A channel that the stream needs does not answer any more.
    #[error("{name} is lost: {why} for {for_s:.0} s")]
    Lost {
        /// The channel's index.
        channel: usize,
        /// The channel as it is configured.
        name: String,
        /// What was seen.
        why: String,
        /// For how long, in seconds.
        for_s: f64,
    },
    /// The application's own connection broke.
    #[error("the application's connection: {0}")]
    Application(io::Error),
    /// There were no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
}

impl StreamError {
    /// The error of a stream that breaks. `place` gives the index under which a stream's channel is
    /// configured, and `source` is what the system says, if it does.
    pub(crate) fn of(
        failure: Failure,
        place: impl Fn(usize) -> usize,
        source: Option<io::Error>,
    ) -> Self {
        let mut error = match failure {
            Failure::Association(reason) => Self::Association(reason),
            Failure::NotOpened => Self::NotOpened,
            Failure::Refused(refusal) => Self::Refused(refusal),
            Failure::Record(error) => Self::Record(error),
            Failure::Unexpected(kind) => Self::Unexpected(kind),
            Failure::PeerAborted => Self::PeerAborted,
            Failure::Stalled => Self::Stalled,
            Failure::Channel { channel, kind } => {
                Self::Channel { channel, source: source.unwrap_or_else(|| kind.into()) }
            }
            Failure::Lost(channel) => {
                Self::Channel { channel, source: io::ErrorKind::TimedOut.into() }
            }
            Failure::Application => {
                Self::Application(source.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into()))
            }
            Failure::Random(error) => Self::Random(error),
        };
        if let Some(channel) = error.channel_mut() {
            *channel = place(*channel);
        }
        error
    }

    /// The index of the channel that broke, ended before the stream, or said what it must not, if
    /// it was one.
    pub(crate) fn channel_mut(&mut self) -> Option<&mut usize> {
        match self {
            Self::Channel { channel, .. } | Self::Record(RecordError::Unfinished { channel }) => {
                Some(channel)
            }
            Self::Association(reason) => reason.channel_mut(),
            _ => None,
        }
    }

    /// Whether somebody on a channel must have changed something, rather than something failed.
    pub fn is_tampering(&self) -> bool {
        matches!(self, Self::Record(RecordError::Tampered | RecordError::Uneven))
            || matches!(self, Self::Directory(error) if error.is_tampering())
            || matches!(
                self,
                Self::Association(
                    ClientAbort::Message { .. }
                        | ClientAbort::Unexpected { .. }
                        | ClientAbort::ExtraBytes { .. }
                        | ClientAbort::Cookies(_)
                        | ClientAbort::DifferentConfirm { .. }
                )
            )
    }
}
