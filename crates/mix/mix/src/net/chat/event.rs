//! The events of a chat session.

use std::time::Duration;

use crate::protocol::client::MixClientStatus;
use crate::protocol::event::MixClientEvent;

/// An event of a chat session.
#[derive(Clone, Debug, PartialEq)]
pub enum ChatEvent {
    /// The connection to the proxy is established.
    Connected,
    /// The connection has ended or failed.
    Disconnected {
        /// Why.
        why: String,
        /// The time until the next attempt.
        again_in: Duration,
    },
    /// The status has changed.
    Status(MixClientStatus),
    /// A message was accepted. It is sent until it is delivered.
    Queued {
        /// Its number.
        id: u64,
        /// The receiver.
        to: String,
        /// The text.
        text: String,
    },
    /// A message was not accepted.
    NotSent {
        /// The receiver.
        to: String,
        /// The text.
        text: String,
        /// Why.
        why: String,
        /// Whether it can be sent once there are exchanges.
        is_early: bool,
    },
    /// An event of the client: of a message, or a note for the user.
    Client(MixClientEvent),
    /// An invitation for a person. Secret.
    Invitation(String),
    /// A command was executed, or is being executed.
    Done(String),
    /// A command failed.
    NotDone(String),
    /// A note of the session for the user.
    Note(String),
    /// A warning: the user should act.
    Warning(String),
    /// The chat has ended. No other event follows.
    Ended {
        /// Why, unless it was ended by [`super::ChatCommand::Stop`] or
        /// [`super::ChatCommand::Finish`].
        why: Option<String>,
    },
}

impl ChatEvent {
    /// Whether it is the end of the chat.
    pub(super) fn is_end(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }

    /// The event to report instead if the state could not be stored, for the reason `why`.
    pub(super) fn not_stored(self, why: &str) -> Self {
        match self {
            Self::Queued { to, text, .. } => {
                Self::NotSent { to, text, why: why.to_owned(), is_early: false }
            }
            Self::Invitation(_) | Self::Done(_) => Self::NotDone(why.to_owned()),
            other => other,
        }
    }
}
