//! The events, errors and status that a client reports to its user.

use std::fmt;
use std::time::Duration;

use crate::protocol::engine::MixEngineError;
use crate::protocol::epoch::MemberEpochError;
use crate::protocol::member::{ChatMessageId, GivenUpReason, MemberSendError, MixMemberError};
use crate::protocol::membership::{
    EpochAnnouncementError, JoinRefusal, MemberName, OpenAnnouncementError,
};
use crate::protocol::wire::{MixWireError, ProxyRefusal};

/// An event of a client. Its `Display` is one line for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MixClientEvent {
    /// A message has arrived. A sender's messages arrive in order.
    Message {
        /// The sender's name.
        from: String,
        /// The text.
        text: String,
    },
    /// A message of this client was delivered.
    Delivered {
        /// Its number.
        id: ChatMessageId,
        /// The receiver's name.
        to: String,
    },
    /// A message of this client will not be sent any more.
    GivenUp {
        /// Its number.
        id: ChatMessageId,
        /// The receiver's name.
        to: String,
        /// Why.
        reason: GivenUpReason,
    },
    /// The administrator has admitted this client. It becomes a member with the next epoch.
    Joined,
    /// A new epoch has begun, with these members.
    MembersChanged {
        /// The names of the others.
        others: Vec<String>,
    },
    /// The mailbox was not that of the round. Nothing in it was used.
    NotOfThisRound {
        /// The round.
        round: u64,
        /// The first such round after the last correct one.
        since: u64,
    },
    /// The proxy answered this client in a round but does not list it as a participant.
    LeftOut {
        /// The round.
        round: u64,
    },
    /// To the administrator: according to the proxy, two auditors found that a member destroys
    /// other members' messages.
    AuditFailed {
        /// Its name.
        name: MemberName,
        /// The round.
        round: u64,
    },
    /// To the administrator: somebody has been admitted.
    Admitted {
        /// Its name.
        name: MemberName,
    },
    /// To the administrator: a join request was refused.
    NotAdmitted {
        /// The name, if the request could be read.
        name: Option<MemberName>,
        /// Why.
        reason: JoinRefusal,
        /// How many other requests were refused since the last such event.
        others: u64,
    },
    /// To the administrator: a member has left.
    Left {
        /// Its name.
        name: MemberName,
    },
}

impl MixClientEvent {
    /// Whether the event is stored until it was shown.
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
                 {since}: the proxy repeats an old one, or a member destroys messages; your \
                 messages wait. If this continues, tell the proxy's operator"
            ),
            Self::LeftOut { round } => write!(
                f,
                "the proxy has left this member out of round {round}, in which it took part: what \
                 was written in it is sent again. If this continues, tell the proxy's operator"
            ),
            Self::AuditFailed { name, round } => write!(
                f,
                "the proxy reports that two members have found in an audit that {name} wrote into \
                 slots of others in round {round}, which destroys messages: remove {name}, or find \
                 out whether these two deviate"
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
    /// Another connection of this member has replaced this one. Either the proxy read the greeting
    /// of an older connection late, or another host has this member's key. In the second case it
    /// happens again.
    #[error("another connection of this member has taken the place of this one: connecting again")]
    Displaced,
    /// The administrator does not admit this client.
    #[error("{0}")]
    Join(JoinRefusal),
    /// This client is not a member and has no invitation.
    #[error("not a member of this group: join with an invitation of its administrator")]
    NotAMember,
    /// This client was removed from the group.
    #[error("no longer a member of this group: ask its administrator for a new invitation")]
    Removed,
    /// The proxy has an epoch that is over.
    #[error(
        "the proxy is at epoch {announced} of the group, which ended when epoch {known} began: it \
         has lost its state, or repeats an old one; tell its operator if this continues"
    )]
    OldEpoch {
        /// The proxy's.
        announced: u32,
        /// The client's.
        known: u32,
    },
    /// The proxy sent a malformed message.
    #[error("the proxy sent what this version does not understand: {0}")]
    Wire(#[from] MixWireError),
    /// The proxy sent a message at the wrong time.
    #[error("the proxy sent a message out of turn: {0}")]
    OutOfTurn(&'static str),
    /// An announcement is not the administrator's.
    #[error("{0}")]
    Announcement(#[from] EpochAnnouncementError),
    /// An announcement cannot be opened.
    #[error("{0}")]
    Open(#[from] OpenAnnouncementError),
    /// The key of a new epoch is sealed for a used prekey.
    #[error("the key of the new epoch has not come: connecting again to ask for it")]
    NoKey,
    /// An epoch is not valid for the group.
    #[error("the proxy and the group's administrator do not agree: {0}")]
    Epoch(#[from] MemberEpochError),
    /// The proxy deviates from the protocol in a round.
    #[error("{0}; tell the proxy's operator if this continues")]
    Round(#[from] MixMemberError),
    /// An exchange has failed.
    #[error("an exchange with the proxy failed: {0}")]
    Engine(#[from] MixEngineError),
}

impl MixClientError {
    /// Whether reconnecting is useless until somebody intervenes.
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

/// Why a stored state is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientStateError {
    /// The bytes are malformed or of another version.
    #[error("the stored state is not one of this version")]
    Malformed,
    /// The state is of another group, proxy or identity.
    #[error(
        "the stored state is that of another group or identity: use another state for this one"
    )]
    OtherGroup,
}

/// A message that is not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MixClientSendError {
    /// There are no exchanges yet.
    #[error("not sent: {0}")]
    Waiting(&'static str),
    /// The member rejects the message.
    #[error("{0}")]
    Member(#[from] MemberSendError),
}

/// Only the administrator can do this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("only the group's administrator can do this")]
pub struct NotAdministrator;

/// Why a client does not leave its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaveGroupError {
    /// This client is the administrator.
    #[error("the administrator cannot leave the group, which would have no epochs without it")]
    Administrator,
    /// This client is not a member.
    #[error("not a member of the group yet: end the chat, and nothing is left of it")]
    NotAMember,
    /// There is no connection to the proxy.
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
    /// The mean time from request to answer in the last rounds of this connection.
    pub latency: Option<Duration>,
    /// The number of participants of the last round that was read.
    pub anonymity_set: usize,
    /// The least number of participants: with fewer, nothing is sent.
    pub least_participants: usize,
    /// The number of messages that were sent but not delivered yet.
    pub undelivered: usize,
    /// Why there are no exchanges now, if there are none.
    pub waiting_for: Option<&'static str>,
    /// The round since which the mailboxes have not been those of their rounds.
    pub not_of_round_since: Option<u64>,
    /// The number of updates of other members that this client has audited since its start.
    pub audits: u64,
}
