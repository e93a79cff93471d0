//! The errors and status that a client reports to its user.

use std::time::Duration;

use keys::IdentityPublicKey;

use super::agreed_rounds::TermsChangeError;
use crate::protocol::engine::MixEngineError;
use crate::protocol::epoch::MemberEpochError;
use crate::protocol::event::ChatMessageId;
use crate::protocol::exchange::MixExchangeKind;
use crate::protocol::member::{MemberSendError, MixMemberError};
use crate::protocol::membership::{
    ChangeAdministratorsError, EpochAnnouncementError, InviteMemberError, JoinRefusal,
    OpenAnnouncementError, RemoveMemberError,
};
use crate::protocol::wire::{MixWireError, ProxyRefusal};

/// Why a connection of a client ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MixClientError {
    /// The proxy has refused something.
    #[error("{}", refusal_text(*.0))]
    Refused(ProxyRefusal),
    /// The proxy at one of several addresses has refused something.
    #[error("the proxy says: {0}; another address of the proxy is tried")]
    RefusedHere(ProxyRefusal),
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
    /// This client was removed from the group, or the proxy only says so.
    #[error(
        "no longer a member of this group, or the proxy only says so: ask the administrators over \
         another channel, and for a new invitation if it is true"
    )]
    Removed,
    /// The proxy has an epoch that is over.
    #[error(
        "the proxy is at epoch {announced} of the group, which ended when epoch {known} began: its \
         operator has restored an old state, or the proxy keeps newer epochs back; if this \
         continues, ask the administrators over another channel: they ask the operator, or choose \
         another proxy"
    )]
    OldEpoch {
        /// The proxy's.
        announced: u32,
        /// The client's.
        known: u32,
    },
    /// The administrators of an announcement do not come from those that are known.
    #[error(
        "the proxy has another list of members than this chat, made by an administrator who did \
         not know of it or was removed: ask the administrators which list is valid; if it is not \
         yours, import theirs with sunder chat import --replace"
    )]
    Fork,
    /// The administrators of an announcement do not come from those of the invitation.
    #[error(
        "the proxy has a list of members that does not come from the one in your invitation: ask \
         who has invited you which proxy and which invitation is valid"
    )]
    NotAsInvited,
    /// The proxy offers another kind of exchange than this client has agreed to.
    #[error(
        "the proxy offers exchanges by {offered}, but this chat has agreed to {agreed}: with \
         {offered}, a proxy that deviates, or that a member helps, could learn who writes to whom. \
         Nothing is sent. If the administrators have told you of it, set engine = \"{offered}\" in \
         the configuration"
    )]
    OtherExchange {
        /// The proxy's.
        offered: MixExchangeKind,
        /// The client's.
        agreed: MixExchangeKind,
    },
    /// The proxy's terms cost more than the user accepts.
    #[error(
        "with what the proxy offers, this chat would send and receive up to {mb_per_day} MB a day, \
         and at most {max_mb_per_day} MB are accepted. Nothing is sent. If you accept that, set \
         max_mb_per_day = {mb_per_day} in the configuration"
    )]
    TooCostly {
        /// Millions of bytes, rounded up.
        mb_per_day: u64,
        /// Those that are accepted.
        max_mb_per_day: u64,
    },
    /// The proxy's rounds differ too much from those that were agreed to.
    #[error("{0}")]
    TermsChange(#[from] TermsChangeError),
    /// More bytes were sent and received today than the user accepts.
    #[error(
        "this chat has sent and received more than {max_mb_per_day} MB today: the proxy makes more \
         rounds than it says, or has sent very many of the past. Nothing is sent until tomorrow \
         (UTC), unless you set a greater max_mb_per_day in the configuration"
    )]
    TooMuchToday {
        /// Millions of bytes that are accepted.
        max_mb_per_day: u64,
    },
    /// The administrators have announced that the proxy has moved.
    #[error("the proxy has moved to {0}")]
    Moved(String),
    /// The proxy sent a malformed message.
    #[error("the proxy sent what this version does not understand: {0}")]
    Wire(#[from] MixWireError),
    /// The proxy sent a message at the wrong time.
    #[error("the proxy sent a message out of turn: {0}")]
    OutOfTurn(&'static str),
    /// The proxy does not have the group of which this client is a member.
    #[error(
        "the proxy does not have the group any more, or says so: its operator may be moving the \
         group; if this continues, ask the administrators over another channel"
    )]
    GroupGone,
    /// An announcement is not that of an administrator.
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
    /// A round does not follow the protocol.
    #[error(
        "{0}: the proxy's operator has restored an old state, or the proxy deviates from the \
         protocol; if this continues, ask the administrators over another channel: they ask the \
         operator, or choose another proxy"
    )]
    Round(#[from] MixMemberError),
    /// An exchange has failed.
    #[error("an exchange with the proxy failed: {0}")]
    Engine(#[from] MixEngineError),
}

/// The text of a refusal for the user. After some the program ends, and the proxy can say them
/// without a reason.
fn refusal_text(refusal: ProxyRefusal) -> String {
    let advice = match refusal {
        ProxyRefusal::Version => {
            "update this program if it is not the newest. Otherwise ask the administrators over \
             another channel which version the proxy has"
        }
        ProxyRefusal::GroupFull => {
            "ask the administrators over another channel if that is true, and start again when \
             there is room"
        }
        ProxyRefusal::Removed => {
            "ask the administrators over another channel. If it is true, you need a new \
             invitation. If not, start the chat again: nothing is lost"
        }
        _ => return refusal.to_string(),
    };
    format!("the proxy says: {refusal}; {advice}")
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
    /// The bytes are malformed.
    #[error("the stored state is damaged: restore it from a backup")]
    Malformed,
    /// The bytes are of another version of the program.
    #[error(
        "the stored state is of another version of Sunder: continue with that version, or join \
         again with another state"
    )]
    Version,
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

/// Only an administrator can do this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("only the group's administrators can do this")]
pub struct NotAdministrator;

/// Why an action of the administrator failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdministratorError {
    /// This client is no administrator.
    #[error("{0}")]
    NotAdministrator(#[from] NotAdministrator),
    /// The invitation was not made.
    #[error("{0}")]
    Invite(#[from] InviteMemberError),
    /// The member was not removed.
    #[error("{0}")]
    Remove(#[from] RemoveMemberError),
    /// The administrators were not changed.
    #[error("{0}")]
    Change(#[from] ChangeAdministratorsError),
}

/// Why an exported list of members is not imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// It is not one of this group.
    #[error("{0}: export the members in a chat of this group")]
    Announcement(#[from] EpochAnnouncementError),
    /// This client knows it, or a newer one.
    #[error("not newer than epoch {0}, which this chat knows: nothing is imported")]
    NotNewer(u32),
    /// Its administrators do not come from those that this client knows.
    #[error(
        "it is another list than that of this chat, made by an administrator who did not know of \
         this one or was removed: to see the difference and follow it, add --replace"
    )]
    Fork,
    /// It is to replace the list of this client, and continues it.
    #[error("it continues the list of this chat: import it without --replace")]
    NoFork,
    /// It is older than what this client knew when it left this branch of the group.
    #[error("older than what this chat knew of this list before: nothing is imported")]
    LeftBefore,
    /// It is to replace the list of this client, which does not know its signer.
    #[error(
        "it is signed by {0}, who is no administrator in the list of this chat: ask for an \
         invitation and join anew with another state, or for an export after another administrator \
         has announced an epoch"
    )]
    UnknownSigner(Box<IdentityPublicKey>),
    /// This client is not a member in it.
    #[error("this chat is no member in it: ask its administrators for an invitation")]
    NotListed,
    /// Its administrators do not come from those of the invitation.
    #[error("its administrators are not those of the invitation: ask for an export of the others")]
    NotAsInvited,
    /// It cannot be opened.
    #[error("it cannot be opened: export the members in another chat")]
    Damaged,
    /// This client has left too many branches.
    #[error("this chat has followed too many other lists: join anew with another state")]
    TooOften,
}

/// Why a client does not leave its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaveGroupError {
    /// This client is the only administrator.
    #[error("the only administrator cannot leave the group: make somebody else one first")]
    Administrator,
    /// This client is not a member.
    #[error("not a member of the group yet: end the chat, and nothing is left of it")]
    NotAMember,
}

/// The bytes of messages in a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DayBytes {
    /// The day, in days since 1970.
    day: u64,
    /// Bytes that were sent.
    pub sent: u64,
    /// Bytes that were received.
    pub received: u64,
}

impl DayBytes {
    /// Counts bytes at a time since 1970.
    pub(super) fn count(&mut self, since_1970: Duration, sent: usize, received: usize) {
        let day = since_1970.as_secs() / 86_400;
        if day != self.day {
            *self = Self { day, ..Self::default() };
        }
        self.sent += sent as u64;
        self.received += received as u64;
    }
}

/// The effect of [`super::MixClient::cancel`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CancelledChatMessages {
    /// The messages that are not sent any more. Nothing of them has left.
    pub dropped: Vec<ChatMessageId>,
    /// The messages of which a part may have left, with their receivers. They are sent on.
    pub left: Vec<(ChatMessageId, String)>,
}

/// The state of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MixClientStatus {
    /// The own name.
    pub name: String,
    /// The names of the other members.
    pub others: Vec<String>,
    /// The names of the administrators.
    pub administrators: Vec<String>,
    /// Whether messages about the membership wait to be sent, such as this member's prekey for the
    /// next epoch. A member that leaves before cannot read the rounds of the next epochs.
    pub has_notices_waiting: bool,
    /// Whether this member wishes to leave the group, and has not seen that it was removed.
    pub is_leaving: bool,
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
    /// See [`super::MixClientSettings::least_participants`].
    pub least_participants: usize,
    /// Whether messages can be sent: enough members take part, or may read later.
    pub can_send: bool,
    /// The number of messages that were sent but not delivered yet.
    pub undelivered: usize,
    /// Why there are no exchanges now, if there are none.
    pub waiting_for: Option<&'static str>,
    /// The round since which the mailboxes have not been those of their rounds.
    pub not_of_round_since: Option<u64>,
    /// The bytes of messages that were sent and received today (UTC), since the start.
    pub bytes_today: DayBytes,
    /// The number of updates of other members that this client has audited since its start.
    pub audits: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::event::MixClientEvent;

    /// If the proxy or its operator deviates, a report to the operator only warns the attacker.
    #[test]
    fn what_the_proxy_may_have_done_is_to_be_said_to_others_than_its_operator() {
        let errors = [
            MixClientError::OldEpoch { announced: 1, known: 2 },
            MixClientError::GroupGone,
            MixClientError::Round(MixMemberError::Read { round: 2, read: 1 }),
            MixClientError::Removed,
        ];
        let events = [
            MixClientEvent::NotOfThisRound { round: 2, since: 1 },
            MixClientEvent::ChangedByProxy { round: 2 },
            MixClientEvent::LeftOut { round: 2 },
        ];
        let errors = errors.iter().map(ToString::to_string);
        for text in errors.chain(events.iter().map(ToString::to_string)) {
            assert!(text.contains("over another channel"), "{text}");
            assert!(!text.contains("tell"), "{text}");
        }
    }

    /// Nothing shows whether it is true.
    #[test]
    fn a_refusal_that_ends_the_chat_is_what_the_proxy_says() {
        for refusal in [ProxyRefusal::Version, ProxyRefusal::GroupFull, ProxyRefusal::Removed] {
            let error = MixClientError::Refused(refusal);
            let text = error.to_string();
            assert!(error.is_final() && text.starts_with("the proxy says: "), "{text}");
            assert!(text.contains("over another channel"), "{text}");
        }
    }
}
