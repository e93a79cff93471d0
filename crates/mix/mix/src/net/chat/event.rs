//! The events of a chat session.

use std::time::Duration;

use super::contacts::{ChatContactList, ContactTrust};
use crate::protocol::client::{CancelledChatMessages, MemberListDifference, MixClientStatus};
use crate::protocol::event::MixClientEvent;
use crate::protocol::membership::MemberName;

/// A message that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedMessage {
    /// Its number.
    pub id: u64,
    /// The member that receives it.
    pub to: String,
}

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
        /// The receiver, as it was entered: a member, a named group, or `all`.
        to: String,
        /// The message to each member.
        messages: Vec<QueuedMessage>,
        /// The text.
        text: String,
    },
    /// A message was not accepted.
    NotSent {
        /// The receiver, as it was entered.
        to: String,
        /// The text; empty if it was a file.
        text: String,
        /// Why.
        why: String,
        /// Whether it can be sent once there are exchanges.
        is_early: bool,
    },
    /// A message has arrived, in place of [`MixClientEvent::Message`].
    Message {
        /// The sender: its current name if it is a member, otherwise the one that it had.
        from: String,
        /// The trust in the sender's key now.
        trust: ContactTrust,
        /// The text.
        text: String,
    },
    /// Another event of the client: of a message of this member, or a note for the user.
    Client(MixClientEvent),
    /// Messages were dropped at the user's request.
    Cancelled(CancelledChatMessages),
    /// The number that the user compares with that of a member.
    SafetyNumber {
        /// The member.
        name: String,
        /// The number, in groups.
        number: String,
        /// Whether the member is verified.
        is_verified: bool,
    },
    /// The contacts have changed.
    Contacts(ChatContactList),
    /// A member has sent a file, which waits for [`super::ChatCommand::Accept`] or
    /// [`super::ChatCommand::Decline`].
    FileOffered {
        /// Its number.
        number: u32,
        /// The sender.
        from: String,
        /// The trust in the sender's key now.
        trust: ContactTrust,
        /// The name, which is safe for a file.
        name: String,
        /// The length in bytes.
        len: usize,
    },
    /// The proxy has sent nothing for this time, although it should have.
    ProxySilent {
        /// The time.
        since: Duration,
    },
    /// The proxy sends again.
    ProxyAnswers,
    /// An invitation for a person.
    Invitation {
        /// The person's name.
        name: MemberName,
        /// The text of the invitation. Secret.
        code: String,
    },
    /// The newest list of members, for [`super::ChatCommand::Import`]. It is not secret, but shows
    /// the members' keys.
    Exported(Vec<u8>),
    /// How an exported list of another branch of the group differs from the list of this chat.
    ListCompared(MemberListDifference),
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
            Self::Invitation { .. } | Self::Done(_) | Self::Cancelled(_) => {
                Self::NotDone(why.to_owned())
            }
            Self::Note(text) => Self::Warning(format!("{text} only until the chat ends: {why}")),
            other => other,
        }
    }
}
