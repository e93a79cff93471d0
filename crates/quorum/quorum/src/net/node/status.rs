//! The status of a node.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use keys::AnyPublicKey;
use serde::{Deserialize, Serialize};
use service::log::LogRateLimiter;

use super::local::{CommandParts, RefusalRateLimiter};
use super::problem_tracker::ProblemTracker;
use super::registrations::ServerRegistrations;
use super::{NodeHandle, lock};
use crate::log::{Height, LogProgress, OperatedEngine};
use crate::net::api::{AwaitedServer, NodeHealth, PendingReview, RefreshStatus, RefreshStep};
use crate::net::links::{LinkStatus, SentBytes};
use crate::protocol::combination::ServerIndex;
use crate::protocol::group::{QuorumGroup, QuorumMember};
use crate::protocol::server::{self, EpochStatus, GroupStart, QuorumServerEvent};

/// The largest number of registrations in a status.
const MAX_SHOWN: usize = 64;

/// The state that the server's thread publishes.
#[derive(Debug, Default)]
pub(super) struct PublishedNodeState {
    pub(super) server: Option<server::QuorumServerStatus>,
    start: Option<GroupStart>,
    /// The public key, if it is known.
    public: Option<AnyPublicKey>,
    progress: Option<LogProgress>,
    /// Since when entries have waited for the height after this one.
    waiting: Option<(Height, Instant)>,
    /// How long the oldest entry of this server had waited at a given time.
    oldest: Option<(Duration, Instant)>,
    refresh: Option<RefreshStatus>,
    signed: u64,
    refused: u64,
    /// The commands of the replicated service that were answered, and refused.
    commands: [u64; 2],
    pub(super) refused_messages: LogRateLimiter,
    pub(super) refusals: RefusalRateLimiter,
    pub(super) command_parts: CommandParts,
    wrong_answers: u64,
    pub(super) watch: ProblemTracker,
    /// The registrations that wait at each server, this one first.
    pub(super) registrations: Vec<ServerRegistrations>,
}

/// The status of a node, for people and scripts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuorumNodeStatus {
    /// The name of the configuration.
    pub name: String,
    /// How long it has been running, in seconds.
    pub uptime_s: f64,
    /// The addresses on which it listens.
    #[serde(default)]
    pub listen: Vec<SocketAddr>,
    /// Its health.
    pub health: NodeHealth,
    /// The number of servers of the group, or 0 if no group is known.
    pub servers: u64,
    /// The number f of faulty servers that the group tolerates.
    pub faulty: u64,
    /// The kind of the group's key: "rsa", "rsa-polynomial" (experimental) or "ed25519". Empty if
    /// no group is known.
    #[serde(default)]
    pub key: String,
    /// This server's number in the group, from 1; `null` if it is not a member.
    pub index: Option<u64>,
    /// Whether it has its shares.
    pub has_shares: bool,
    /// Whether the group has signed the epoch's header.
    pub header_signed: bool,
    /// When the epoch began (RFC 3339), if its header says so.
    #[serde(default)]
    pub epoch_began: Option<String>,
    /// When this server approves new shares for the group by itself (RFC 3339), if it is to.
    #[serde(default)]
    pub next_refresh: Option<String>,
    /// The numbers of the group's servers that have no vote in the log, from 1.
    #[serde(default)]
    pub without_vote: Vec<u64>,
    /// The open refresh, or the last one.
    pub refresh: Option<RefreshStatus>,
    /// The registrations and the proposed lists of servers that wait for review. Of the former, the
    /// first 64.
    #[serde(default)]
    pub pending: PendingReview,
    /// The messages that were signed for local users.
    pub signed: u64,
    /// The requests of local users that were refused.
    pub refused: u64,
    /// The replicated service, if this server runs one.
    #[serde(default)]
    pub service: Option<NodeServiceStatus>,
    /// How often a server was proven to have answered wrongly.
    pub wrong_answers: u64,
    /// The bytes of messages that were sent to other servers.
    pub sent_bytes: SentBytes,
    /// The connections whose other end did not prove a key that may connect here.
    #[serde(default)]
    pub refused_connections: u64,
    /// The links with other servers.
    pub links: Vec<LinkStatus>,
}

/// The status of a replicated service at one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeServiceStatus {
    /// The name of the service.
    pub name: String,
    /// Whether this server has the state.
    pub has_state: bool,
    /// The requests of local users that were answered.
    pub answered: u64,
    /// The requests of local users that were refused, or had no answer in time.
    pub refused: u64,
    /// The requests of local users that have no signed answer yet.
    pub waiting: u64,
    /// How many bytes of this server's part of the log its users' commands have used, since the
    /// epoch began or a refresh was opened.
    pub log_bytes: u64,
    /// The length of its part of the log, in bytes. When it is used up, commands are refused.
    pub max_log_bytes: u64,
    /// The length of the state, in bytes, when the epoch began. 0 without the state.
    pub snapshot_bytes: u64,
}

impl PublishedNodeState {
    pub(super) fn set_start(&mut self, start: Option<&GroupStart>, public: Option<AnyPublicKey>) {
        (self.start, self.public) = (start.cloned(), public);
    }

    /// The group's public key, if it is known.
    pub(super) fn public(&self) -> Option<&AnyPublicKey> {
        self.public.as_ref()
    }

    pub(super) fn start(&self) -> Option<&GroupStart> {
        self.start.as_ref()
    }

    /// The engine of the log, if it is a process of its own.
    pub(super) fn engine(&self) -> Option<OperatedEngine> {
        self.progress.and_then(|progress| progress.engine)
    }

    /// How long entries have waited: for the next height, or an entry of this server to be
    /// committed.
    pub(super) fn waiting(&self, now: Instant) -> Option<Duration> {
        let stalled = self.waiting.map(|(_, since)| now.saturating_duration_since(since));
        let own = self.oldest.map(|(age, at)| age + now.saturating_duration_since(at));
        stalled.max(own)
    }

    pub(super) fn count(&mut self, is_signed: bool) {
        let counter = if is_signed { &mut self.signed } else { &mut self.refused };
        *counter += 1;
    }

    pub(super) fn count_command(&mut self, is_answered: bool) {
        self.commands[usize::from(!is_answered)] += 1;
    }

    fn service(&self) -> Option<NodeServiceStatus> {
        let service = self.server.as_ref()?.service.as_ref()?;
        let [answered, refused] = self.commands;
        Some(NodeServiceStatus {
            name: service.name.clone(),
            has_state: service.has_state,
            answered,
            refused,
            waiting: service.waiting as u64,
            log_bytes: service.log_bytes as u64,
            max_log_bytes: service.max_log_bytes as u64,
            snapshot_bytes: service.snapshot_bytes as u64,
        })
    }

    pub(super) fn count_event(&mut self, event: &QuorumServerEvent) {
        match event {
            QuorumServerEvent::EpochBegun { epoch, .. } => {
                self.refresh = Some(over(*epoch, RefreshStep::Done));
            }
            QuorumServerEvent::RunCancelled => {
                let epoch = self.server.as_ref().and_then(|server| server.epoch.as_ref());
                let epoch = epoch.map_or(0, |epoch| epoch.epoch + 1);
                self.refresh = Some(over(epoch, RefreshStep::Cancelled));
            }
            QuorumServerEvent::WrongAnswer { .. } => self.wrong_answers += 1,
            _ => {}
        }
    }

    pub(super) fn update(
        &mut self,
        server: server::QuorumServerStatus,
        progress: Option<LogProgress>,
        now: Instant,
    ) {
        if let (Some(epoch), Some(start)) = (&server.epoch, &self.start) {
            let is_over = self.refresh.as_ref().is_none_or(|refresh| {
                matches!(refresh.step, RefreshStep::Done | RefreshStep::Cancelled)
            });
            match refresh(epoch, server.is_operator_request_pending, &start.header().group) {
                Some(now) => self.refresh = Some(now),
                // The refresh was cancelled before any approval was committed.
                None if !is_over => {
                    self.refresh = Some(over(epoch.epoch + 1, RefreshStep::Cancelled));
                }
                None => {}
            }
        }
        self.waiting = progress.filter(|it| it.waiting > 0).map(|progress| {
            let same = self.waiting.filter(|(height, _)| *height == progress.committed);
            same.unwrap_or((progress.committed, now))
        });
        self.oldest = progress.and_then(|it| Some((it.oldest?, now)));
        (self.server, self.progress) = (Some(server), progress);
    }
}

/// The numbers of the servers without a vote, from 1.
pub(super) fn without_vote(epoch: Option<&EpochStatus>) -> Vec<u64> {
    let servers = epoch.into_iter().flat_map(|epoch| &epoch.without_vote);
    servers.map(|server| u64::from(server.0) + 1).collect()
}

/// Adds to each link with a member of a group the member's number.
fn number_links(links: &mut [LinkStatus], members: &[QuorumMember]) {
    for (number, member) in (1..).zip(members) {
        let identity = member.identity.to_string();
        for link in links.iter_mut().filter(|link| link.server == identity) {
            link.index = Some(number);
        }
    }
}

/// The status of a refresh that has ended.
fn over(epoch: u64, step: RefreshStep) -> RefreshStatus {
    let (done, of, cancelled, cancelled_of) = match step {
        RefreshStep::Cancelled => (0, 1, 1, 1),
        _ => (1, 1, 0, 1),
    };
    RefreshStatus {
        epoch,
        step,
        done,
        of,
        waiting_for: Vec::new(),
        cancelled,
        cancelled_of,
        problem: String::new(),
        remedy: String::new(),
    }
}

/// The refresh that is approved or open in an epoch. `has_wish` is whether the operator's approval
/// or cancellation is pending.
fn refresh(epoch: &EpochStatus, has_wish: bool, current: &QuorumGroup) -> Option<RefreshStatus> {
    let needed = current.size().signer_count();
    let approvals = epoch.approvals.iter().map(|it| it.servers.len()).max().unwrap_or(0);
    let (step, done, of, missing, group) = match &epoch.run {
        None if approvals == 0 && epoch.cancelled.is_empty() && !has_wish => return None,
        None => {
            let approved: Vec<ServerIndex> =
                epoch.approvals.iter().flat_map(|it| it.servers.clone()).collect();
            let servers = current.servers();
            let missing = servers.filter(|server| !approved.contains(server)).collect();
            (RefreshStep::Approving, approvals, needed, missing, current)
        }
        Some(run) => {
            let servers = run.group.members().len();
            let (keys, shares) =
                (servers - run.without_session_key.len(), servers - run.without_shares.len());
            if keys < run.quorum {
                let missing = run.without_session_key.clone();
                (RefreshStep::SessionKeys, keys, run.quorum, missing, &run.group)
            } else if run.chosen < run.labels {
                let missing = run.late_dealers.clone();
                (RefreshStep::Dealing, run.chosen, run.labels, missing, current)
            } else {
                (RefreshStep::Computing, shares, run.quorum, run.without_shares.clone(), &run.group)
            }
        }
    };
    let awaited = |server: ServerIndex| {
        let member = group.member(server)?;
        let (identity, address) = (member.identity.to_string(), member.address);
        Some(AwaitedServer { server: u64::from(server.0) + 1, identity, address, connected: false })
    };
    let (problem, remedy) = refresh_problem(epoch).unwrap_or_default();
    Some(RefreshStatus {
        epoch: epoch.epoch + 1,
        step,
        done: done as u64,
        of: of as u64,
        waiting_for: missing.into_iter().filter_map(awaited).collect(),
        cancelled: epoch.cancelled.len() as u64,
        cancelled_of: needed as u64,
        problem,
        remedy: remedy.into(),
    })
}

/// Why a refresh does not continue without an operator, and what the operator must do.
fn refresh_problem(epoch: &EpochStatus) -> Option<(String, &'static str)> {
    let numbers = |servers: &[ServerIndex]| {
        let numbers: Vec<String> = servers.iter().map(ToString::to_string).collect();
        numbers.join(", ")
    };
    Some(match &epoch.run {
        None if epoch.approvals.len() > 1 => {
            let lists: Vec<String> =
                epoch.approvals.iter().map(|it| numbers(&it.servers)).collect();
            let problem =
                format!("different lists of servers are approved (by {})", lists.join("; by "));
            let remedy = "cancel the refresh at f+1 servers with `sunder quorum refresh --cancel`, \
                          and approve one list";
            (problem, remedy)
        }
        Some(run) if !run.excluded.is_empty() => {
            let problem = format!("of the current group, {} deal wrongly", numbers(&run.excluded));
            (problem, "examine them")
        }
        Some(run) if !run.faulty.is_empty() => {
            let faulty = numbers(&run.faulty);
            (format!("of the new group, {faulty} complain without reason"), "examine them")
        }
        _ => return None,
    })
}

impl NodeHandle {
    /// The open refresh, or the last one.
    pub(super) fn refresh_status(&self) -> Option<RefreshStatus> {
        let links = self.links.status();
        let own = self.links.own().to_string();
        let mut refresh = lock(&self.shared).refresh.clone()?;
        for awaited in &mut refresh.waiting_for {
            let is_up = |link: &LinkStatus| link.up && link.server == awaited.identity;
            awaited.connected = awaited.identity == own || links.iter().any(is_up);
        }
        Some(refresh)
    }

    /// The status, with the name of the configuration.
    pub fn status(&self, name: String) -> QuorumNodeStatus {
        let (mut links, refresh) = (self.links.status(), self.refresh_status());
        let shared = lock(&self.shared);
        let members = shared.start().map(|start| start.header().group.members());
        number_links(&mut links, members.unwrap_or_default());
        let epoch = shared.server.as_ref().and_then(|server| server.epoch.as_ref());
        let faulty = epoch.map_or(0, |epoch| epoch.faulty);
        let health = shared.health(&links, Instant::now());
        let mut pending = shared.pending_review(&self.links.own(), None, Instant::now());
        pending.registrations.truncate(MAX_SHOWN);
        QuorumNodeStatus {
            name,
            uptime_s: self.start.elapsed().as_secs_f64(),
            listen: self.links.listen(),
            health,
            servers: epoch.map_or(0, |epoch| epoch.servers as u64),
            faulty: faulty as u64,
            key: epoch.map_or("", |epoch| epoch.key.name()).into(),
            index: epoch.and_then(|epoch| epoch.index).map(|index| u64::from(index.0) + 1),
            has_shares: epoch.is_some_and(|epoch| epoch.has_shares),
            without_vote: without_vote(epoch),
            header_signed: epoch.is_some_and(|epoch| epoch.is_header_signed),
            epoch_began: epoch.and_then(|epoch| epoch.began).map(|it| it.to_string()),
            next_refresh: shared
                .server
                .as_ref()
                .and_then(|it| it.next_refresh)
                .map(|it| it.to_string()),
            refresh,
            pending,
            signed: shared.signed,
            refused: shared.refused,
            service: shared.service(),
            wrong_answers: shared.wrong_answers,
            sent_bytes: self.links.sent(),
            refused_connections: self.links.refused_connections(),
            links,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A faulty leader that commits entries of others but omits those of this server is detected.
    #[test]
    fn own_entry_that_waits_is_reported_while_others_are_committed() {
        let (begin, second) = (Instant::now(), Duration::from_secs);
        let status = || server::QuorumServerStatus {
            height: Height(0),
            epoch: None,
            behind: None,
            requests: 0,
            next_refresh: None,
            is_operator_request_pending: false,
            approval_expires: None,
            service: None,
        };
        let mut shared = PublishedNodeState::default();
        for height in 1..=20 {
            let oldest = Some(second(height));
            let progress =
                LogProgress { committed: Height(height), waiting: 1, oldest, engine: None };
            shared.update(status(), Some(progress), begin + second(height));
        }
        assert_eq!(shared.waiting(begin + second(21)), Some(second(21)));
        // Entries of others count only while no height is committed.
        let progress = |height| {
            let committed = Height(height);
            LogProgress { committed, waiting: 1, ..LogProgress::default() }
        };
        shared.update(status(), Some(progress(20)), begin + second(21));
        assert_eq!(shared.waiting(begin + second(25)), Some(second(5)));
        shared.update(status(), Some(progress(21)), begin + second(26));
        assert_eq!(shared.waiting(begin + second(26)), Some(second(0)));
        let none = LogProgress { committed: Height(21), ..LogProgress::default() };
        shared.update(status(), Some(none), begin + second(27));
        assert_eq!(shared.waiting(begin + second(99)), None);
    }
}
