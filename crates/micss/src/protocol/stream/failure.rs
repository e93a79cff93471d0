//! Why a stream breaks, and which channel caused it.

use std::io;

use association::ClientAbort;
use sharing::RandomError;

use crate::protocol::incoming::Loss;
use crate::protocol::record::{Kind, RecordError};
use crate::protocol::target::Refusal;

/// Why a stream is broken. Channels are given by their index in the association.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The server did not confirm the association correctly.
    #[error(
        "the channels were not associated: {0}; if that goes on, see whether threshold, number of \
         channels and integrity fit min_channels, max_channels and integrity of the server"
    )]
    Association(#[from] ClientAbort),
    /// The confirms, or the answer, did not arrive in time.
    #[error("not all channels answered in time; see whether packets get through on each")]
    NotOpened,
    /// The server does not connect to the service.
    #[error(transparent)]
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
    /// The rest of a record did not arrive in time.
    #[error("a channel is stuck: the rest of a record did not arrive in time")]
    Stalled,
    /// A channel that is needed broke.
    #[error("channel {}: {kind}", .channel + 1)]
    Channel {
        /// The channel's index.
        channel: usize,
        /// The error of the system. `TimedOut` if the peer has acknowledged nothing for as long as
        /// an answer may take.
        kind: io::ErrorKind,
    },
    /// The path of a channel that is needed has been lost for too long.
    #[error("channel {} is lost", .0 + 1)]
    Lost(usize),
    /// The application's connection broke.
    #[error("the application's connection broke")]
    Application,
    /// There were no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
}

impl Failure {
    /// The channel that broke, ended before the stream, or carried wrong bytes, if one did.
    pub(crate) fn channel(mut self) -> Option<usize> {
        match &mut self {
            Self::Channel { channel, .. }
            | Self::Lost(channel)
            | Self::Record(RecordError::Unfinished { channel }) => Some(*channel),
            Self::Association(reason) => reason.channel_mut().copied(),
            _ => None,
        }
    }

    /// The kind of [`channel`](Self::channel)'s loss.
    pub(crate) fn loss(self) -> Loss {
        match self {
            Self::Lost(_) | Self::Channel { kind: io::ErrorKind::TimedOut, .. } => Loss::Stalled,
            _ if self.is_tampering() => Loss::Tampered,
            _ => Loss::Broken,
        }
    }

    /// Whether bytes of a channel were changed, rather than something failed.
    pub(crate) fn is_tampering(self) -> bool {
        matches!(
            self,
            Self::Record(RecordError::Tampered | RecordError::Uneven)
                | Self::Association(
                    ClientAbort::Message { .. }
                        | ClientAbort::Unexpected { .. }
                        | ClientAbort::ExtraBytes { .. }
                        | ClientAbort::Cookies(_)
                        | ClientAbort::DifferentConfirm { .. }
                )
        )
    }

    /// Whether an unknown channel was silent for too long: it may be any.
    pub(crate) fn is_silence(self) -> bool {
        matches!(self, Self::NotOpened | Self::Stalled)
    }

    /// Whether the loss of any channel may be the cause: then the peer has closed the others.
    pub(crate) fn may_follow_loss(self) -> bool {
        self.is_silence()
            || matches!(self, Self::Channel { .. } | Self::Record(RecordError::Unfinished { .. }))
    }
}
