//! Why a stream failed.

use std::io;

use directory::DirectoryError;
use random::RandomError;

use crate::MAX_CHANNELS;
use crate::protocol::stream::{StreamFailure, StreamProtocolError};
use service::remote_address::RemoteAddress;

/// Why a stream failed. The application's connection is then always reset, never closed as if the
/// stream had ended.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The configuration has no channels to the target.
    #[error(
        "no channels to this target: add a [[peer]] with this address, or a [[channel]] for \
         all other targets"
    )]
    NoChannels,
    /// The directory does not know the channels to the target.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// All addresses of the peer in the directory are of one host, where one eavesdropper would
    /// read all shares.
    #[error(
        "the directory has addresses of only one host for this peer: two channels need two hosts"
    )]
    OneChannel,
    /// A program has not given 1 to [`MAX_CHANNELS`] channels, or not a threshold of 1 to their
    /// number.
    #[error("give 1 to {MAX_CHANNELS} channels, and a threshold of 1 to their number")]
    ChannelCount,
    /// The server of a channel cannot be reached.
    #[error("channel {}: no connection to {server}: {source}", .channel + 1)]
    Connect {
        /// The channel's index.
        channel: usize,
        /// The server's address on it.
        server: RemoteAddress,
        /// The error of the system.
        source: io::Error,
    },
    /// The host at a channel's address does not send a cookie of this protocol.
    #[error("channel {}: no cookie received; check that sunder serve listens there", .channel + 1)]
    NotGreeted {
        /// The channel's index.
        channel: usize,
    },
    /// The protocol between the two ends failed.
    #[error(transparent)]
    Protocol(#[from] StreamProtocolError),
    /// A channel broke.
    #[error("channel {}: {source}", .channel + 1)]
    Channel {
        /// The channel's index.
        channel: usize,
        /// The error of the system.
        source: io::Error,
    },
    /// A channel that the stream needs no longer answers.
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
    /// The error of a stream that breaks. `place` maps a stream's channel to its index in the
    /// configuration, and `source` is the system's error, if there is one.
    pub(crate) fn of(
        failure: StreamFailure,
        place: impl Fn(usize) -> usize,
        source: Option<io::Error>,
    ) -> Self {
        match failure {
            StreamFailure::Protocol(mut error) => {
                if let Some(channel) = error.channel_mut() {
                    *channel = place(*channel);
                }
                Self::Protocol(error)
            }
            StreamFailure::Channel { channel, kind } => Self::Channel {
                channel: place(channel),
                source: source.unwrap_or_else(|| kind.into()),
            },
            StreamFailure::Lost(channel) => {
                Self::Channel { channel: place(channel), source: io::ErrorKind::TimedOut.into() }
            }
            StreamFailure::Application => {
                Self::Application(source.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into()))
            }
            StreamFailure::Random(error) => Self::Random(error),
        }
    }

    /// Whether bytes of a channel were changed, as opposed to a failure.
    pub fn is_tampering(&self) -> bool {
        match self {
            Self::Protocol(error) => error.is_tampering(),
            Self::Directory(error) => error.is_tampering(),
            _ => false,
        }
    }
}
