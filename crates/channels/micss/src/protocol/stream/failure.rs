//! Why a stream breaks, and which channel caused it.

use std::io;

use association::ClientHandshakeAbort;
use random::RandomError;

use crate::protocol::incoming::ChannelLossReason;
use crate::protocol::record::{MicssRecordError, MicssRecordKind};
use crate::protocol::target::ServiceRefusal;

/// Why a stream is broken. Channels are given by their index in the association.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StreamFailure {
    /// The protocol between the two ends failed.
    Protocol(StreamProtocolError),
    /// A channel that is needed broke.
    Channel {
        /// The channel's index.
        channel: usize,
        /// The error of the system. `TimedOut` if the peer has acknowledged nothing for as long as
        /// an answer may take.
        kind: io::ErrorKind,
    },
    /// The path of a channel that is needed has been lost for too long.
    Lost(usize),
    /// The application's connection broke.
    Application,
    /// There were no random bytes.
    Random(RandomError),
}

/// Why the protocol between the two ends of a stream failed: what arrived, or did not arrive in
/// time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum StreamProtocolError {
    /// The two ends did not agree on which connections belong together.
    #[error(
        "the channels were not associated: {0}; if this continues, check whether threshold, number of \
         channels and integrity fit min_channels, max_channels and integrity of the server"
    )]
    Association(#[from] ClientHandshakeAbort),
    /// Not all channels were connected, or associated and answered, in time.
    #[error("not all channels answered in time; check whether packets get through on each")]
    NotOpened,
    /// The server does not connect to the service.
    #[error(transparent)]
    Refused(#[from] ServiceRefusal),
    /// What arrived on the channels does not make a stream.
    #[error(transparent)]
    Record(#[from] MicssRecordError),
    /// The peer sent a record of a kind that it may not send now.
    #[error("the peer sent an unexpected record: {0:?}")]
    Unexpected(MicssRecordKind),
    /// The peer aborted: its application did, or the stream failed there.
    #[error("the peer aborted the stream: its application did, or see the peer's log")]
    PeerAborted,
    /// The rest of a record did not arrive in time.
    #[error("a channel is stuck: the rest of a record did not arrive in time")]
    Stalled,
}

impl From<StreamProtocolError> for StreamFailure {
    fn from(error: StreamProtocolError) -> Self {
        Self::Protocol(error)
    }
}

impl From<RandomError> for StreamFailure {
    fn from(error: RandomError) -> Self {
        Self::Random(error)
    }
}

impl StreamProtocolError {
    /// The index of the channel that ended before the stream, or carried wrong bytes, if one did.
    pub(crate) fn channel_mut(&mut self) -> Option<&mut usize> {
        match self {
            Self::Record(MicssRecordError::Unfinished { channel }) => Some(channel),
            Self::Association(reason) => reason.channel_mut(),
            _ => None,
        }
    }

    /// Whether bytes of a channel were changed, as opposed to a failure.
    pub fn is_tampering(&self) -> bool {
        matches!(
            self,
            Self::Record(MicssRecordError::Tampered | MicssRecordError::Uneven)
                | Self::Association(
                    ClientHandshakeAbort::Message { .. }
                        | ClientHandshakeAbort::Unexpected { .. }
                        | ClientHandshakeAbort::ExtraBytes { .. }
                        | ClientHandshakeAbort::Cookies(_)
                        | ClientHandshakeAbort::DifferentConfirm { .. }
                )
        )
    }
}

impl StreamFailure {
    /// The channel that broke, ended before the stream, or carried wrong bytes, if one did.
    pub(crate) fn channel(mut self) -> Option<usize> {
        match &mut self {
            Self::Channel { channel, .. } | Self::Lost(channel) => Some(*channel),
            Self::Protocol(error) => error.channel_mut().copied(),
            _ => None,
        }
    }

    /// The kind of [`channel`](Self::channel)'s loss.
    pub(crate) fn loss(self) -> ChannelLossReason {
        match self {
            Self::Lost(_) | Self::Channel { kind: io::ErrorKind::TimedOut, .. } => {
                ChannelLossReason::Stalled
            }
            Self::Protocol(error) if error.is_tampering() => ChannelLossReason::Tampered,
            _ => ChannelLossReason::Broken,
        }
    }

    /// Whether an unknown channel was silent for too long. It may be any.
    pub(crate) fn is_silence(self) -> bool {
        matches!(
            self,
            Self::Protocol(StreamProtocolError::NotOpened | StreamProtocolError::Stalled)
        )
    }

    /// Whether the loss of any channel may be the cause: then the peer has closed the others.
    pub(crate) fn may_follow_loss(self) -> bool {
        let is_end = matches!(
            self,
            Self::Channel { .. }
                | Self::Protocol(StreamProtocolError::Record(MicssRecordError::Unfinished { .. }))
        );
        is_end || self.is_silence()
    }
}
