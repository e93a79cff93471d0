//! The reasons for which a client aborts a handshake.

use thiserror::Error;

use crate::message::{AssociationMessageError, AssociationMessageKind, CookieListError};

/// Why a client aborted the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClientHandshakeAbort {
    /// The bytes on a channel are not a message.
    #[error("channel {}: {source}", .channel + 1)]
    Message {
        /// The channel's index.
        channel: usize,
        /// The parse error.
        source: AssociationMessageError,
    },
    /// A message that is not allowed in this state.
    #[error("channel {}: unexpected {kind:?}", .channel + 1)]
    Unexpected {
        /// The channel's index.
        channel: usize,
        /// The message's kind.
        kind: AssociationMessageKind,
    },
    /// Bytes after a channel's cookie, before the list was sent.
    #[error("channel {}: bytes after the cookie and before the list", .channel + 1)]
    ExtraBytes {
        /// The channel's index.
        channel: usize,
    },
    /// A channel's cookie changed between two datagrams.
    #[error("channel {}: a second, different cookie", .channel + 1)]
    ChangedCookie {
        /// The channel's index.
        channel: usize,
    },
    /// Two channels have the same cookie.
    #[error(transparent)]
    Cookies(#[from] CookieListError),
    /// The server confirmed something other than the list sent.
    #[error("channel {}: the confirmed list is not the one sent", .channel + 1)]
    DifferentConfirm {
        /// The channel's index.
        channel: usize,
    },
    /// A channel closed before all were confirmed.
    #[error("channel {} closed during the handshake", .channel + 1)]
    Closed {
        /// The channel's index.
        channel: usize,
    },
    /// The deadline passed.
    #[error("the handshake took too long")]
    TimedOut,
    /// The caller named a channel that the terms do not have.
    #[error("there is no channel {}", .channel + 1)]
    NoSuchChannel {
        /// The index it named.
        channel: usize,
    },
}

impl ClientHandshakeAbort {
    /// The index of the channel that it names, if it names one.
    pub fn channel_mut(&mut self) -> Option<&mut usize> {
        match self {
            Self::Message { channel, .. }
            | Self::Unexpected { channel, .. }
            | Self::ExtraBytes { channel }
            | Self::ChangedCookie { channel }
            | Self::DifferentConfirm { channel }
            | Self::Closed { channel }
            | Self::NoSuchChannel { channel } => Some(channel),
            Self::Cookies(_) | Self::TimedOut => None,
        }
    }
}
