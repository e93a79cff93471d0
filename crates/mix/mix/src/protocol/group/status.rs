//! The events and the status of a group.

use std::fmt;
use std::time::Duration;

use keys::IdentityPublicKey;

use crate::protocol::wire::{MembershipStatus, ProxyRefusal};

/// An event of a group. Its `Display` is a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MixGroupEvent {
    /// A client has connected.
    Connected {
        /// Its key.
        key: IdentityPublicKey,
        /// Its membership.
        status: MembershipStatus,
    },
    /// A client has disconnected.
    Disconnected {
        /// Its key.
        key: IdentityPublicKey,
    },
    /// The proxy has ended the connection of a client.
    Refused {
        /// Its key.
        key: IdentityPublicKey,
        /// Why.
        refusal: ProxyRefusal,
    },
    /// A join request waits for the administrator.
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
    /// A member has given the proxy an epoch that it had lost.
    Restored {
        /// Its number.
        epoch: u32,
        /// The member's key.
        by: IdentityPublicKey,
    },
    /// A round has been closed.
    RoundClosed {
        /// Its number.
        round: u64,
        /// The number of members that took part: the anonymity set.
        participants: usize,
        /// The number of members that were told of it but did not complete their exchange in time.
        late: usize,
        /// How long it was open.
        took: Duration,
    },
    /// A member did not complete its exchange in time, after an earlier one in time.
    Late {
        /// Its key.
        key: IdentityPublicKey,
        /// The round.
        round: u64,
    },
    /// In some rounds of this epoch, others have waited for a member, which answered in time.
    Slow {
        /// Its key.
        key: IdentityPublicKey,
        /// The number of these rounds.
        rounds: u64,
    },
    /// A late member takes part again.
    InTimeAgain {
        /// Its key.
        key: IdentityPublicKey,
        /// For how long it was late.
        after: Duration,
    },
    /// An audit has found an update valid.
    AuditPassed {
        /// The key of its member.
        key: IdentityPublicKey,
        /// The round.
        round: u64,
    },
    /// Two auditors have found an update invalid.
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
    /// One auditor has found an update invalid, and no second auditor has confirmed it.
    AuditDisputed {
        /// The key of its member.
        key: IdentityPublicKey,
        /// The round.
        round: u64,
        /// The key of the auditor.
        accuser: IdentityPublicKey,
    },
    /// An auditor has not answered in time.
    AuditorSilent {
        /// Its key.
        key: IdentityPublicKey,
        /// The round of the update.
        round: u64,
    },
    /// No auditor has answered in an audit.
    AuditAbandoned {
        /// The round.
        round: u64,
    },
}

impl fmt::Display for MixGroupEvent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { key, status } => {
                let client = match status {
                    MembershipStatus::Unknown => "a client that is not a member",
                    MembershipStatus::Waiting => "a client that waits to join",
                    MembershipStatus::Member => "a member",
                    MembershipStatus::Administrator => "the administrator",
                };
                write!(out, "{client} has connected: {key}")
            }
            Self::Disconnected { key } => write!(out, "a client has disconnected: {key}"),
            Self::Refused { key, refusal } => write!(out, "ended a connection of {key}: {refusal}"),
            Self::JoinWaits { key } => write!(out, "a client asks to join: {key}"),
            Self::EpochBegan { epoch, members } => {
                write!(out, "epoch {epoch} begins with {members} members")
            }
            Self::Restored { epoch, by } => write!(
                out,
                "a member has restored epoch {epoch}, which this proxy did not have: {by}"
            ),
            Self::RoundClosed { round, participants, late, took } => {
                let took = took.as_millis();
                write!(out, "round {round}: {participants} participants, {late} late, {took} ms")
            }
            Self::Late { key, round } => write!(out, "a member was late in round {round}: {key}"),
            Self::Slow { key, rounds } => write!(
                out,
                "a member has answered in time, but long after others, in {rounds} rounds of this \
                 epoch: {key}"
            ),
            Self::InTimeAgain { key, after } => {
                write!(out, "a member is in time again after {} ms: {key}", after.as_millis())
            }
            Self::AuditPassed { key, round } => {
                write!(out, "an audit has found the update of {key} in round {round} valid")
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
                "{accuser} has found that a member has written into slots of others in round \
                 {round}, but no second auditor has confirmed it: {key}. One of the two deviates"
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

/// The status of a group.
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
    /// Connected members whose last exchange was late.
    pub late_members: Vec<LateMember>,
    /// Members of the epoch for which two auditors have found that they write into slots of others.
    pub found: Vec<AuditFailedMember>,
    /// Counters since the start of the proxy.
    pub counters: GroupCounters,
}

/// A member that is late or silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateMember {
    /// Its key.
    pub key: IdentityPublicKey,
    /// The time since it was told of the first round in which it was late.
    pub since: Duration,
}

/// A member whose update was found invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditFailedMember {
    /// Its key.
    pub key: IdentityPublicKey,
    /// The round.
    pub round: u64,
    /// Whether it is excluded from rounds until the next epoch. The administrator is not excluded.
    pub is_left_out: bool,
}

/// Counters of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounters {
    /// Rounds that have been closed.
    pub rounds: u64,
    /// Exchanges that were done in time.
    pub exchanges: u64,
    /// Exchanges that were late.
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
    /// Audits in which two auditors found an update invalid.
    pub audits_failed: u64,
    /// Audits in which only one auditor found an update invalid.
    pub audits_disputed: u64,
    /// Audits in which no auditor answered.
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
