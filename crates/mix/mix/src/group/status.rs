//! What a group tells the log, and those who ask how it does.

use std::fmt;
use std::time::Duration;

use keys::IdentityPublicKey;

use crate::wire::{MembershipStatus, ProxyRefusal};

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MixGroupEvent {
    /// A client has connected.
    Connected {
        /// Its key.
        key: IdentityPublicKey,
        /// What it is in the group.
        standing: MembershipStatus,
    },
    /// A client has gone.
    Disconnected {
        /// Its key.
        key: IdentityPublicKey,
    },
    /// The connection of a client was ended.
    Refused {
        /// Its key.
        key: IdentityPublicKey,
        /// Why.
        refusal: ProxyRefusal,
    },
    /// A request to join waits for the administrator.
    JoinWaits {
        /// The key of the client.
        key: IdentityPublicKey,
    },
    /// An epoch has begun.
    EpochBegan {
        /// Its number.
        epoch: u32,
        /// How many members it has.
        members: usize,
    },
    /// A round has been closed.
    RoundClosed {
        /// Its number.
        round: u64,
        /// How many members took part: the anonymity set.
        participants: usize,
        /// How many were told of it, and were not done in time.
        late: usize,
        /// How long it was open.
        took: Duration,
    },
    /// A member that was in time before was not done when the round was closed.
    Late {
        /// Its key.
        key: IdentityPublicKey,
        /// The round.
        round: u64,
    },
    /// A member that was late takes part again.
    InTimeAgain {
        /// Its key.
        key: IdentityPublicKey,
        /// For how long it was late.
        after: Duration,
    },
    /// An update was audited, and is right.
    AuditPassed {
        /// The key of its member.
        key: IdentityPublicKey,
        /// The round.
        round: u64,
    },
    /// An update was audited, and is wrong by two auditors.
    AuditFailed {
        /// The key of its member.
        key: IdentityPublicKey,
        /// The round.
        round: u64,
        /// The keys of the auditors.
        auditors: [IdentityPublicKey; 2],
        /// Whether the member is left out until the next epoch.
        is_left_out: bool,
    },
    /// An update was audited, and is wrong by one auditor, which no second one has confirmed.
    AuditDisputed {
        /// The key of its member.
        key: IdentityPublicKey,
        /// The round.
        round: u64,
        /// The key of the auditor.
        accuser: IdentityPublicKey,
    },
    /// A member was asked to audit an update, and has not answered in time.
    AuditorSilent {
        /// Its key.
        key: IdentityPublicKey,
        /// The round of the update.
        round: u64,
    },
    /// An update was to be audited, and no auditor has answered.
    AuditAbandoned {
        /// The round.
        round: u64,
    },
}

impl fmt::Display for MixGroupEvent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { key, standing } => {
                let standing = match standing {
                    MembershipStatus::Unknown => "a client that is no member",
                    MembershipStatus::Waiting => "a client that waits to join",
                    MembershipStatus::Member => "a member",
                    MembershipStatus::Administrator => "the administrator",
                };
                write!(out, "{standing} has connected: {key}")
            }
            Self::Disconnected { key } => write!(out, "a client has disconnected: {key}"),
            Self::Refused { key, refusal } => write!(out, "ended a connection of {key}: {refusal}"),
            Self::JoinWaits { key } => write!(out, "a client asks to join: {key}"),
            Self::EpochBegan { epoch, members } => {
                write!(out, "epoch {epoch} begins with {members} members")
            }
            Self::RoundClosed { round, participants, late, took } => {
                let took = took.as_millis();
                write!(out, "round {round}: {participants} participants, {late} late, {took} ms")
            }
            Self::Late { key, round } => write!(out, "a member was late in round {round}: {key}"),
            Self::InTimeAgain { key, after } => {
                write!(out, "a member is in time again after {} ms: {key}", after.as_millis())
            }
            Self::AuditPassed { key, round } => {
                write!(out, "the update of round {round} is right, of {key}")
            }
            Self::AuditFailed { key, round, auditors: [one, other], is_left_out } => {
                let is_out =
                    if *is_left_out { "; it is left out until the next epoch" } else { "" };
                write!(
                    out,
                    "a member has written into slots of others in round {round}, as {one} and \
                     {other} have found: {key}{is_out}; its administrator should remove it"
                )
            }
            Self::AuditDisputed { key, round, accuser } => write!(
                out,
                "{accuser} says that a member has written into slots of others in round {round}, \
                 and no second auditor: {key}. One of the two deviates"
            ),
            Self::AuditorSilent { key, round } => {
                write!(out, "a member has not answered in the audit of round {round}: {key}")
            }
            Self::AuditAbandoned { round } => {
                write!(out, "the audit of round {round} is abandoned: no auditor has answered")
            }
        }
    }
}

/// How a group does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MixGroupStatus {
    /// The number of the epoch; 0 before the first one.
    pub epoch: u32,
    /// How many members it has.
    pub members: usize,
    /// How many of them are connected.
    pub connected: usize,
    /// How many requests to join wait for the administrator.
    pub joins_waiting: usize,
    /// The number of the last round that was opened; 0 if none.
    pub round: u64,
    /// Connected members that were not done in time in their last exchange.
    pub late_members: Vec<LateMember>,
    /// Members of the epoch that two auditors have found to write into slots of others.
    pub found: Vec<AuditFailedMember>,
    /// What has been counted since the proxy was started.
    pub counters: GroupCounters,
}

/// A member that is late, or silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateMember {
    /// Its key.
    pub key: IdentityPublicKey,
    /// How long ago it was told of the first round that it was late in.
    pub since: Duration,
}

/// A member whose update was found to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditFailedMember {
    /// Its key.
    pub key: IdentityPublicKey,
    /// The round.
    pub round: u64,
    /// Whether it is left out of rounds until the next epoch. The administrator is not.
    pub is_left_out: bool,
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounters {
    /// Rounds that have been closed.
    pub rounds: u64,
    /// Exchanges that were done in time.
    pub exchanges: u64,
    /// Exchanges that were not.
    pub late: u64,
    /// How many members took part in the last round.
    pub last_participants: usize,
    /// How long the last round was open.
    pub last_round: Duration,
    /// Bytes of messages that members have sent.
    pub bytes_received: u64,
    /// Bytes of messages that the proxy has sent.
    pub bytes_sent: u64,
    /// Audits in which an update was right.
    pub audits_passed: u64,
    /// Those in which two auditors have found it wrong.
    pub audits_failed: u64,
    /// Those in which one auditor has, and no second one.
    pub audits_disputed: u64,
    /// Those in which no auditor has answered.
    pub audits_abandoned: u64,
}

impl GroupCounters {
    pub(super) fn count_round(&mut self, participants: usize, late: usize, took: Duration) {
        self.rounds += 1;
        self.exchanges += participants as u64;
        self.late += late as u64;
        (self.last_participants, self.last_round) = (participants, took);
    }
}
