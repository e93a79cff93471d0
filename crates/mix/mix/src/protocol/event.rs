//! What a member and its client report: what happens to messages, and notes for the user.

use std::fmt;

use keys::IdentityPublicKey;

use crate::protocol::membership::{JoinRefusal, MemberName, NoRosterError, ProxyAddress};

/// The number of a message that a member has sent. It counts all messages to all partners, and
/// continues after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChatMessageId(pub u64);

/// Why a message is not sent any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GivenUpReason {
    /// The receiver is no longer a member.
    #[error("no longer a member of the group")]
    Removed,
    /// The state was restored from an old copy, and the receiver can no longer tell whether it has
    /// already received this message.
    #[error("it may have arrived before your state was restored: ask, or say it again")]
    Uncertain,
}

/// Why rounds of the past cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissedReason {
    /// The proxy does not keep them, or no longer.
    NotKept,
    /// This member does not have the key of the epoch, because its state was restored.
    NoKey,
}

/// For the user, of [`MixClientEvent::RoundsKept`].
const ROUNDS_KEPT: &str = "the proxy now keeps rounds for members that are away: least_anonymity \
                           still counts those who take part. If the administrators have told you \
                           of it, set rounds_kept = true in the configuration, so that it counts \
                           all members";

/// An event of a client, or of its member. Its `Display` is one line for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MixClientEvent {
    /// A message has arrived. A sender's messages arrive in order.
    Message {
        /// The sender's key; `None` if the message was stored by a version that did not keep it.
        key: Option<IdentityPublicKey>,
        /// The sender's name in the epoch in which it has written. Another key may have it now.
        from: String,
        /// The text.
        text: String,
    },
    /// A message of this member was delivered.
    Delivered {
        /// Its number.
        id: ChatMessageId,
        /// The receiver's name.
        to: String,
    },
    /// The proxy keeps all of a message of this member: if it does what it promises, the receiver
    /// gets the message even if this member leaves now.
    Stored {
        /// Its number.
        id: ChatMessageId,
        /// The receiver's name.
        to: String,
    },
    /// A message of this member will not be sent any more.
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
    /// The members of the epoch that has begun, or in which this client was started. Not reported
    /// again while they are the same.
    MembersChanged {
        /// The names of the others.
        others: Vec<String>,
    },
    /// The mailbox is not that of this round and these participants: the proxy replayed or changed
    /// it, or a member wrote into another member's slot. Nothing of it is used.
    NotOfThisRound {
        /// The round.
        round: u64,
        /// The first such round after the last correct one.
        since: u64,
    },
    /// In an exchange by broadcast: the mailbox does not contain what this member has handed in.
    /// Only the proxy can have changed that. It is sent again.
    ChangedByProxy {
        /// The round.
        round: u64,
    },
    /// Rounds that this member has missed cannot be read. Their senders send again what was not
    /// acknowledged.
    Missed {
        /// The last such round.
        round: u64,
        /// Why.
        reason: MissedReason,
    },
    /// The proxy has not sent the last of the rounds that this member has missed. It reads nothing
    /// of live rounds until then.
    CatchingUp {
        /// The number of live rounds since it has begun to catch up.
        rounds: u64,
    },
    /// The proxy says that this member's last requests were too late, so nothing of it arrives.
    AlwaysLate {
        /// The number of requests in a row.
        rounds: u64,
    },
    /// The proxy answered this member in a round but does not list it as a participant. Only the
    /// proxy can be the cause.
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
        /// The name of the invitation that it has used.
        invited: MemberName,
        /// Its key.
        key: IdentityPublicKey,
    },
    /// To the administrator: a join request was refused.
    NotAdmitted {
        /// The name, if the request could be read.
        name: Option<MemberName>,
        /// The name of the invitation, if the request could be read.
        invited: Option<MemberName>,
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
    /// The proxy had lost the state of the group, or had an old one.
    ProxyRestored {
        /// The epoch that goes on.
        epoch: u32,
        /// Whether this client has given it to the proxy.
        is_own: bool,
    },
    /// The proxy keeps rounds since this client agreed to terms by which it keeps none. The least
    /// number of participants still counts participants.
    RoundsKept,
    /// The proxy's rounds are not those of when this client first connected, but do not differ by
    /// more than is accepted.
    TermsChanged {
        /// The first ones, for the user.
        from: String,
        /// The present ones.
        to: String,
    },
    /// The administrators have changed.
    AdministratorsChanged {
        /// Their names.
        names: Vec<String>,
    },
    /// The administrators have announced that the proxy has another address or key.
    ProxyMoved {
        /// Where it is.
        to: ProxyAddress,
    },
    /// To an administrator: its state was lost or old. It continues from the newest announcement.
    TakenOver {
        /// The epoch.
        epoch: u32,
        /// The number of members.
        members: usize,
    },
    /// To an administrator: decisions that were not announced are dropped, because others have
    /// announced epochs since.
    ChangesDropped {
        /// How many.
        count: usize,
    },
    /// To an administrator: people whom it had admitted are no members, because others have
    /// announced epochs since.
    AdmissionsDropped {
        /// Their names.
        names: Vec<MemberName>,
    },
    /// To an administrator: the newest announcement does not know of removals that were announced
    /// before. They are made again.
    RemovedAgain {
        /// The names of the members.
        names: Vec<MemberName>,
    },
    /// To an administrator: it cannot continue from the newest announcement.
    CannotTakeOver(NoRosterError),
    /// Reports of a kind that were held back, because the first one was less than a minute ago.
    Repeated {
        /// The last one.
        last: Box<Self>,
        /// Their number.
        count: u64,
    },
    /// To all: two administrators have announced the same epoch, and one of them was replaced; or
    /// the proxy has shown some members another announcement.
    EpochReplaced {
        /// The epoch.
        epoch: u32,
    },
}

impl MixClientEvent {
    /// Whether the event is stored until it was shown.
    pub(crate) fn is_stored(&self) -> bool {
        matches!(self, Self::Message { .. } | Self::Delivered { .. } | Self::GivenUp { .. })
    }
}

impl fmt::Display for MissedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotKept => "the proxy has not kept",
            Self::NoKey => "this state has no key for",
        })
    }
}

impl fmt::Display for MixClientEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message { from, text, .. } => write!(f, "{from}: {text}"),
            Self::Stored { to, .. } => write!(f, "kept for {to}"),
            Self::Missed { round, reason } => write!(
                f,
                "{reason} what was sent up to round {round}: the senders send again what you have \
                 not received, when they are here"
            ),
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
                 messages wait. If this continues, ask the administrators over another channel: \
                 they remove a member that an audit has found, or choose another proxy"
            ),
            Self::ChangedByProxy { round } => write!(
                f,
                "the proxy has changed what this member sent in round {round}: it is sent again. \
                 Nobody can read or forge messages in this way, but the proxy can keep them back. \
                 If this continues, agree with the other members on another proxy, over another \
                 channel"
            ),
            Self::LeftOut { round } => write!(
                f,
                "the proxy has left this member out of round {round}, in which it took part: what \
                 was written in it is sent again. Nobody can read or forge messages in this way, \
                 but the proxy can keep them back. If this continues, agree with the other members \
                 on another proxy, over another channel"
            ),
            Self::CatchingUp { rounds } => write_catching_up(f, *rounds),
            Self::AlwaysLate { rounds } => write_always_late(f, *rounds),
            Self::AuditFailed { name, round } => write!(
                f,
                "the proxy reports that two members have found in an audit that {name} wrote into \
                 slots of others in round {round}, which destroys messages: remove {name}, or find \
                 out whether these two deviate"
            ),
            Self::Admitted { name, invited, key } => {
                write!(f, "{name} has joined the group, with the invitation for {invited} ")?;
                write!(f, "and the key {key}")
            }
            Self::NotAdmitted { name, invited, reason, others } => {
                let names = (name.as_ref(), invited.as_ref());
                write_not_admitted(f, names, *reason, *others)
            }
            Self::Left { name } => write!(f, "{name} has left the group"),
            Self::ProxyRestored { epoch, is_own } => {
                let who = if *is_own { "this chat" } else { "a member" };
                write!(
                    f,
                    "the proxy had lost the group's state, or had an old one: {who} has given it \
                     the members of epoch {epoch}. Rounds that it had kept may be lost; your \
                     messages are sent again"
                )
            }
            Self::RoundsKept => f.write_str(ROUNDS_KEPT),
            Self::TermsChanged { from, to } => write_terms_changed(f, from, to),
            Self::AdministratorsChanged { names } => match &names[..] {
                [one] => write!(f, "the administrator of the group is now {one}"),
                _ => write!(f, "the administrators of the group are now {}", names.join(", ")),
            },
            Self::ProxyMoved { to } => write!(
                f,
                "the administrators say that the proxy is now at {} with the key {}: connecting \
                 there",
                to.address, to.key
            ),
            Self::TakenOver { epoch, members } => write!(
                f,
                "this administrator's state was lost or older than the group: it goes on from \
                 epoch {epoch}, with {members} members. Invitations that are not in the state are \
                 not valid any more"
            ),
            Self::ChangesDropped { count } => write!(
                f,
                "{count} of your changes of the group were not announced before other \
                 administrators announced newer epochs: look at /members, and make them again"
            ),
            Self::AdmissionsDropped { names } => write_admissions_dropped(f, names),
            Self::RemovedAgain { names } => write_removed_again(f, names),
            Self::CannotTakeOver(why) => write!(f, "{why}"),
            Self::Repeated { last, count } => write!(f, "{count} times, at last: {last}"),
            Self::EpochReplaced { epoch } => write!(
                f,
                "epoch {epoch} was announced twice: this chat goes on with the announcement that \
                 all choose"
            ),
        }
    }
}

fn write_not_admitted(
    f: &mut fmt::Formatter<'_>,
    (name, invited): (Option<&MemberName>, Option<&MemberName>),
    reason: JoinRefusal,
    others: u64,
) -> fmt::Result {
    match name {
        Some(name) => write!(f, "{name}")?,
        None => f.write_str("somebody")?,
    }
    if let Some(invited) = invited {
        write!(f, ", with the invitation for {invited},")?;
    }
    write!(f, " was not admitted: {reason}")?;
    match others {
        0 => Ok(()),
        others => write!(f, "; {others} other requests were refused before"),
    }
}

fn write_terms_changed(f: &mut fmt::Formatter<'_>, from: &str, to: &str) -> fmt::Result {
    write!(
        f,
        "the proxy now has rounds of {to}; when this chat first connected, they were of {from}. If \
         the administrators have not told you of it, ask them over another channel"
    )
}

fn write_catching_up(f: &mut fmt::Formatter<'_>, rounds: u64) -> fmt::Result {
    write!(
        f,
        "for {rounds} rounds, the proxy has sent rounds that this member missed, and not all of \
         them: what members send now is shown after them. If you have not missed much, the proxy \
         keeps messages back. If this continues, agree with the other members on another proxy, \
         over another channel"
    )
}

fn write_always_late(f: &mut fmt::Formatter<'_>, rounds: u64) -> fmt::Result {
    write!(
        f,
        "the proxy says that this member was too late in the last {rounds} rounds: nothing that \
         you write arrives. This computer or its connection is too slow for the group's rounds, or \
         the proxy keeps your messages back. If this continues, ask the other members over another \
         channel whether they are late, too"
    )
}

fn joined(names: &[MemberName]) -> String {
    names.iter().map(MemberName::as_str).collect::<Vec<_>>().join(", ")
}

fn write_admissions_dropped(f: &mut fmt::Formatter<'_>, names: &[MemberName]) -> fmt::Result {
    write!(
        f,
        "this chat had admitted {}, but other administrators have announced other epochs since. \
         Ask for another connection while this chat is open: it admits again with the same \
         invitation. If the name is taken now, make a new invitation",
        joined(names)
    )
}

fn write_removed_again(f: &mut fmt::Formatter<'_>, names: &[MemberName]) -> fmt::Result {
    write!(
        f,
        "an administrator who did not know that they were removed has announced as members: {}. \
         This chat removes them again. An old backup was restored, or the proxy keeps \
         announcements back",
        joined(names)
    )
}
