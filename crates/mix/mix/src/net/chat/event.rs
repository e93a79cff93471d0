//! What a session tells.

use std::time::Duration;

use crate::client::MixClientStatus;

/// What has happened.
#[derive(Clone, Debug, PartialEq)]
pub enum ChatEvent {
    /// There is a connection to the proxy.
    Connected,
    /// There is none; the next attempt is after this time.
    Disconnected {
        /// Why.
        why: String,
        /// When the next attempt is.
        again_in: Duration,
    },
    /// The status has changed.
    Status(MixClientStatus),
    /// A message was taken, and is sent until it is delivered.
    Queued {
        /// Its number.
        id: u64,
        /// The receiver.
        to: String,
        /// The text.
        text: String,
    },
    /// A message was not taken.
    NotSent {
        /// The receiver.
        to: String,
        /// The text.
        text: String,
        /// Why.
        why: String,
        /// Whether it can be sent when there are exchanges again.
        is_early: bool,
    },
    /// A message has arrived.
    Message {
        /// Its sender.
        from: String,
        /// The text.
        text: String,
    },
    /// A message has arrived at its receiver.
    Delivered {
        /// Its number.
        id: u64,
        /// The receiver.
        to: String,
    },
    /// A message that was taken is given up.
    GivenUp {
        /// Its number.
        id: u64,
        /// The receiver.
        to: String,
        /// Why.
        why: String,
    },
    /// An invitation for a person. Secret.
    Invitation(String),
    /// What was asked for is done, or is under way.
    Done(String),
    /// What was asked for was not done.
    NotDone(String),
    /// What else a person should know.
    Note(String),
    /// What else a person should do something about.
    Warning(String),
    /// The chat has ended: nothing else happens.
    Ended {
        /// Why, unless [`super::ChatCommand::Stop`] or [`super::ChatCommand::Finish`] has ended it.
        why: Option<String>,
    },
}

impl ChatEvent {
    /// Whether it is the end of the chat.
    pub(super) fn is_end(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }

    /// The answer in place of this one, if what it promises could not be stored, for this reason.
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
