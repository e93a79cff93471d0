//! The status of a proxy, as JSON.

use serde::{Deserialize, Serialize};

use crate::protocol::group::AuditFailedMember;

/// The status of a proxy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MixProxyStatus {
    /// The name of its configuration.
    pub name: String,
    /// Its uptime.
    pub uptime_s: f64,
    /// The address on which it listens.
    pub listen: String,
    /// Its key.
    pub key: String,
    /// Connections that were closed before they had named a group.
    pub refused_connections: u64,
    /// What the process uses.
    #[serde(default)]
    pub load: ProxyLoadStatus,
    /// The groups, by name.
    pub groups: Vec<ProxyGroupStatus>,
}

/// What the process of a proxy uses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProxyLoadStatus {
    /// The processor time since its start, in seconds.
    pub processor_s: f64,
    /// The processors that it can use.
    pub processors: u32,
    /// Its memory; `None` if the system does not tell.
    pub memory_bytes: Option<u64>,
}

/// The status of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProxyGroupStatus {
    /// Its name.
    pub name: String,
    /// The engine.
    pub engine: String,
    /// The epoch; 0 before the first.
    pub epoch: u32,
    /// The last round that was opened.
    pub round: u64,
    /// The members of the epoch.
    pub members: usize,
    /// The maximum number of members.
    pub max_members: usize,
    /// The members that are connected.
    pub connected: usize,
    /// The connections, including those of clients that are not members.
    pub connections: usize,
    /// The members that took part in the last round that was closed.
    pub participants: usize,
    /// The join requests that wait for the administrator.
    pub joins_waiting: usize,
    /// The connected members whose last exchange was late.
    pub late_members: usize,
    /// How long the last round was open.
    pub round_ms: f64,
    /// The bytes of messages that were received.
    pub received_bytes: u64,
    /// The bytes of messages that were sent.
    pub sent_bytes: u64,
    /// The bytes of messages that were received and sent today (UTC), since the start.
    #[serde(default)]
    pub today_bytes: u64,
    /// The rounds that were closed.
    pub rounds: u64,
    /// The exchanges that were done in time.
    pub exchanges: u64,
    /// The exchanges that were late.
    pub late: u64,
    /// The connections that were closed because they did not read in time.
    pub slow: u64,
    /// How late rounds begin.
    #[serde(default)]
    pub delays: RoundDelayStatus,
    /// The audits that found an update valid.
    pub audits_passed: u64,
    /// The audits in which two auditors found an update invalid.
    pub audits_failed: u64,
    /// The audits in which only one auditor found an update invalid.
    pub audits_disputed: u64,
    /// The audits in which no auditor answered.
    pub audits_abandoned: u64,
    /// The members of the epoch for which two auditors have found that they write into slots of
    /// others.
    pub found: Vec<AuditFailedMemberStatus>,
    /// The rounds that are kept for members that are away, if any are.
    #[serde(default)]
    pub kept: Option<KeptRoundsStatus>,
    /// If the state cannot be written: since when. After a restart the group would have the state
    /// of that time.
    pub unwritten: Option<UnwrittenStateStatus>,
}

/// A histogram of delays, for exchanges by broadcast: from when a round was over, because its
/// shortest time had passed and the last request had come or was late, until a member's message
/// that begins the next round is written. It includes writing the round to the disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundDelayStatus {
    /// The number of messages with a delay up to each of
    /// [`ROUND_DELAY_BOUNDS_MS`](super::ROUND_DELAY_BOUNDS_MS) and above the bound before, and of
    /// those above the last one.
    pub counts: Vec<u64>,
    /// The sum of all delays in seconds.
    pub sum_s: f64,
}

/// The archive of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptRoundsStatus {
    /// The number of rounds.
    pub rounds: usize,
    /// Their bytes.
    pub bytes: u64,
    /// If rounds cannot be written: since when. Members that are away miss them.
    pub unwritten: Option<UnwrittenStateStatus>,
}

/// A member that destroys messages of others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditFailedMemberStatus {
    /// Its key.
    pub key: String,
    /// The round.
    pub round: u64,
    /// Whether it is left out of rounds. The administrator is not.
    pub is_left_out: bool,
}

impl From<&AuditFailedMember> for AuditFailedMemberStatus {
    fn from(found: &AuditFailedMember) -> Self {
        let AuditFailedMember { key, round, is_left_out } = found;
        Self { key: key.to_string(), round: *round, is_left_out: *is_left_out }
    }
}

/// A state that is not on the disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnwrittenStateStatus {
    /// For how long.
    pub for_s: f64,
    /// Why: the file, and the system's error.
    pub why: String,
}
