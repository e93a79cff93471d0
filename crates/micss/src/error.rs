//! Why a stream failed.

use std::io;
use std::net::SocketAddr;

use association::ClientAbort;
use sharing::RandomError;

use crate::protocol::record::{Kind, RecordError};
use crate::protocol::stream::Failure;
use crate::protocol::target::Refusal;
use directory::DirectoryError;

/// Why a stream failed. The application's connection is always reset then, never closed as if the
/// stream had ended.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The configuration has no channels to the target.
    #[error(
        "no channels lead there: add a [[peer]] with this address, or a [[channel]] for all else"
    )]
    NoChannels,
    /// The directory does not know the channels to the target.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// All addresses of the peer in the directory are of one host, where one eavesdropper would
    /// read all shares.
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
        /// The error of the system.
        source: io::Error,
    },
    /// The host at a channel's address does not send a cookie of this protocol.
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
    /// The peer sent a record of a kind that it may not send now.
    #[error("the peer sent an unexpected record: {0:?}")]
    Unexpected(Kind),
    /// The peer aborted: its application did, or the stream failed there.
    #[error("the peer aborted the stream: its application did, or its log says why")]
    PeerAborted,
    /// A record did not arrive in time.
    #[error("a channel is stuck: the rest of a record did not arrive in time")]
    Stalled,
    /// A channel broke.
    #[error("channel {}: {source}", .channel + 1)]
    Channel {
        /// The channel's index.
        channel: usize,
        /// The error of the system.
        source: io::Error,
    },
    /// A channel that the stream needs does not answer any more.
    #[error("{name} is lost: {why} for {for_s:.0} s")]
    Lost {
        /// The channel's index.
        channel: usize,
        /// The channel's configuration.
        name: String,
        /// The cause.
        why: String,
        /// The duration, in seconds.
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
    /// configured, and `source` is the error of the system, if there is one.
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

    /// The index of the channel that broke, ended before the stream, or carried wrong bytes, if one
    /// did.
    pub(crate) fn channel_mut(&mut self) -> Option<&mut usize> {
        match self {
            Self::Channel { channel, .. } | Self::Record(RecordError::Unfinished { channel }) => {
                Some(channel)
            }
            Self::Association(reason) => reason.channel_mut(),
            _ => None,
        }
    }

    /// Whether bytes of a channel were changed, rather than something failed.
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
