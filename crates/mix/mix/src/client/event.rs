//! What a client tells the person who uses it.

use std::fmt;
use std::time::Duration;

use crate::engine::MixEngineError;
use crate::epoch::MemberEpochError;
use crate::member::{ChatMessageId, GivenUpReason, MemberSendError, MixMemberError};
use crate::membership::{EpochAnnouncementError, JoinRefusal, MemberName, OpenAnnouncementError};
use crate::wire::{MixWireError, ProxyRefusal};

/// Something that a client has learned. It displays as one line for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MixClientEvent {
    /// A message has come, the next one of its sender.
    Message {
        /// The sender's name.
        from: String,
        /// The text.
        text: String,
    },
    /// A message that was sent has arrived.
    Delivered {
        /// Its number.
        id: ChatMessageId,
        /// The receiver's name.
        to: String,
    },
    /// A message that was sent is given up.
    GivenUp {
        /// Its number.
        id: ChatMessageId,
        /// The receiver's name.
        to: String,
        /// Why.
        reason: GivenUpReason,
    },
    /// The administrator has admitted this client, which is a member when the next epoch begins.
    Joined,
    /// A new epoch has begun, with these members.
    MembersChanged {
        /// The names of the others.
        others: Vec<String>,
    },
    /// The mailbox of a round was not the one of the round. Nothing in it was used.
    NotOfThisRound {
        /// The round.
        round: u64,
        /// The first such round since the last one that was right.
        since: u64,
    },
    /// The proxy has answered this client in a round, and does not list it as a participant.
    LeftOut {
        /// The round.
        round: u64,
    },
    /// To the administrator: the proxy says that two auditors have found a member that destroys
    /// messages of others.
    AuditFailed {
        /// Its name.
        name: MemberName,
        /// The round.
        round: u64,
    },
    /// To the administrator: somebody has been admitted.
    Admitted {
        /// By this name.
        name: MemberName,
    },
    /// To the administrator: somebody was refused.
    NotAdmitted {
        /// The name, if the request could be read.
        name: Option<MemberName>,
        /// Why.
        reason: JoinRefusal,
        /// How many others were refused since the last one that was told.
        others: u64,
    },
    /// To the administrator: a member has left.
    Left {
        /// Its name.
        name: MemberName,
    },
}

impl MixClientEvent {
    /// Whether it is stored until it was shown.
    pub(super) fn is_stored(&self) -> bool {
        matches!(self, Self::Message { .. } | Self::Delivered { .. } | Self::GivenUp { .. })
    }
}

impl fmt::Display for MixClientEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message { from, text } => write!(f, "{from}: {text}"),
            Self::Delivered { to, .. } => write!(f, "delivered to {to}"),
            Self::GivenUp { to, reason, .. } => write!(f, "not delivered to {to}: {reason}"),
            Self::Joined => f.write_str("admitted to the group: wait for the next epoch"),
            Self::MembersChanged { others } if others.is_empty() => {
                f.write_str("the group has no other members: invite somebody")
            }
            Self::MembersChanged { others } => write!(f, "in the group: {}", others.join(", ")),
            Self::NotOfThisRound { round, since } => write!(
                f,
                "the mailbox of round {round} is not the one that the members filled, since round \
                 {since}: the proxy repeats an old one, or a member destroys messages; yours wait. \
                 If it goes on, tell the proxy's operator"
            ),
            Self::LeftOut { round } => write!(
                f,
                "the proxy has left this member out of round {round}, in which it took part: what \
                 was written in it is sent again. If it goes on, tell the proxy's operator"
            ),
            Self::AuditFailed { name, round } => write!(
                f,
                "by the proxy, two members have found in an audit that {name} wrote into slots of \
                 others in round {round}, which destroys messages: remove {name}, or find out \
                 whether these two deviate"
            ),
            Self::Admitted { name } => write!(f, "{name} has joined the group"),
            Self::NotAdmitted { name, reason, others } => {
                match name {
                    Some(name) => write!(f, "{name} was not admitted: {reason}")?,
                    None => write!(f, "somebody was not admitted: {reason}")?,
                }
                match others {
                    0 => Ok(()),
                    others => write!(f, "; {others} other requests were refused before"),
                }
            }
            Self::Left { name } => write!(f, "{name} has left the group"),
        }
    }
}

/// Why a connection of a client ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MixClientError {
    /// The proxy has refused something.
    #[error("{0}")]
    Refused(ProxyRefusal),
    /// The proxy has taken an older connection of this member for a newer one, or another host has
    /// this member's key: which of them shows when it happens again.
    #[error("another connection of this member has taken the place of this one: connecting again")]
    Displaced,
    /// The administrator does not admit this client.
    #[error("{0}")]
    Join(JoinRefusal),
    /// It is no member, and has no invitation.
    #[error("not a member of this group: join with an invitation of its administrator")]
    NotAMember,
    /// It was a member.
    #[error("no longer a member of this group: ask its administrator for a new invitation")]
    Removed,
    /// The proxy has an epoch that is over.
    #[error(
        "the proxy is at epoch {announced} of the group, which ended when epoch {known} began: it \
         has lost its state, or repeats an old one; tell its operator if it goes on"
    )]
    OldEpoch {
        /// The proxy's.
        announced: u32,
        /// The client's.
        known: u32,
    },
    /// The proxy has sent something that is no message.
    #[error("the proxy sent what this version does not understand: {0}")]
    Wire(#[from] MixWireError),
    /// The proxy has sent something that was not due.
    #[error("the proxy sent a message out of turn: {0}")]
    OutOfTurn(&'static str),
    /// An announcement is not the administrator's.
    #[error("{0}")]
    Announcement(#[from] EpochAnnouncementError),
    /// An announcement cannot be opened.
    #[error("{0}")]
    Open(#[from] OpenAnnouncementError),
    /// The key of a new epoch is sealed for a prekey that was used.
    #[error("the key of the new epoch has not come: connecting again to ask for it")]
    NoKey,
    /// An epoch does not fit the group.
    #[error("the proxy and the group's administrator do not agree: {0}")]
    Epoch(#[from] MemberEpochError),
    /// A round cannot be as the proxy says.
    #[error("{0}; tell the proxy's operator if it goes on")]
    Round(#[from] MixMemberError),
    /// An exchange has failed.
    #[error("an exchange with the proxy failed: {0}")]
    Engine(#[from] MixEngineError),
}

impl MixClientError {
    /// Whether it is of no use to connect again before somebody has done something.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Refused(refusal) => matches!(
                refusal,
                ProxyRefusal::Version
                    | ProxyRefusal::UnknownGroup
                    | ProxyRefusal::GroupFull
                    | ProxyRefusal::Replaced
                    | ProxyRefusal::Removed
            ),
            Self::Join(_) | Self::NotAMember | Self::Removed => true,
            _ => false,
        }
    }
}

/// Why stored bytes are no client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientStateError {
    /// They are something else, or of another version.
    #[error("the stored state is not one of this version")]
    Malformed,
    /// They are those of another group, proxy or identity.
    #[error(
        "the stored state is that of another group or identity: use another state for this one"
    )]
    OtherGroup,
}

/// A message that is not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MixClientSendError {
    /// There is no group to send it to yet.
    #[error("not sent: {0}")]
    Waiting(&'static str),
    /// It is not one that can be sent now.
    #[error("{0}")]
    Member(#[from] MemberSendError),
}

/// Something that only the administrator can do was asked of another member, or is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("only the group's administrator can do this")]
pub struct NotAdministrator;

/// Why a client does not leave its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaveGroupError {
    /// It is the administrator.
    #[error("the administrator cannot leave the group, which would have no epochs without it")]
    Administrator,
    /// It is no member.
    #[error("not a member of the group yet: end the chat, and nothing is left of it")]
    NotAMember,
    /// The proxy cannot be told.
    #[error("not left: there is no connection to the proxy; leave again when there is one")]
    NotConnected,
}

/// The state of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MixClientStatus {
    /// The own name.
    pub name: String,
    /// The names of the other members.
    pub others: Vec<String>,
    /// The epoch, or 0.
    pub epoch: u32,
    /// The last round that this client took part in, or 0.
    pub round: u64,
    /// See [`super::MixClient::exchanges`].
    pub exchanges: u64,
    /// From request to answer, the mean of the last rounds of this connection.
    pub latency: Option<Duration>,
    /// How many took part in the last round that was read.
    pub anonymity_set: usize,
    /// Below how many nothing is sent.
    pub least_participants: usize,
    /// Messages that were sent and have not arrived.
    pub undelivered: usize,
    /// Why there are no exchanges now, if there are none.
    pub waiting_for: Option<&'static str>,
    /// Since which round mailboxes have not been those of their rounds.
    pub not_of_round_since: Option<u64>,
    /// The updates of others that this client has audited since it was started.
    pub audits: u64,
}
