//! What a node tells of itself.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use service::log::LogRateLimiter;

use super::local::Refusals;
use super::{Handle, lock};
use crate::log::{Height, Progress};
use crate::net::api::{Health, Refresh, RefreshStep};
use crate::net::links::{LinkStatus, SentBytes};
use crate::protocol::server::{self, Event, RunStatus, Start};

/// How long entries may wait for the next height of a log that makes progress, and an entry of this
/// server until it is committed.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(10);

/// What the server's thread publishes.
#[derive(Debug, Default)]
pub(super) struct Shared {
    server: Option<server::Status>,
    start: Option<Start>,
    progress: Option<Progress>,
    /// Since when entries have waited for the height after this one.
    waiting: Option<(Height, Instant)>,
    /// For how long the oldest entry of this server had waited at a time.
    oldest: Option<(Duration, Instant)>,
    refresh: Option<Refresh>,
    signed: u64,
    refused: u64,
    pub(super) refused_messages: LogRateLimiter,
    pub(super) refusals: Refusals,
    wrong_answers: u64,
}

/// The status of a node, for people and scripts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The name of the configuration.
    pub name: String,
    /// For how long it has run, in seconds.
    pub uptime_s: f64,
    /// How it is doing.
    pub health: Health,
    /// The number of servers of the group; 0 if it knows none.
    pub servers: u64,
    /// f of the group.
    pub faulty: u64,
    /// This server's number in the group, from 1; `null` if it is not a member.
    pub index: Option<u64>,
    /// Whether it has its shares.
    pub has_shares: bool,
    /// Whether the group has signed the epoch's header.
    pub header_signed: bool,
    /// The refresh that is under way, or the last one.
    pub refresh: Option<Refresh>,
    /// The messages that were signed for local users.
    pub signed: u64,
    /// Those that were not.
    pub refused: u64,
    /// How often a server has proven to sign wrongly.
    pub wrong_answers: u64,
    /// The bytes of messages that it has sent to other servers.
    pub sent_bytes: SentBytes,
    /// The connections whose other ends have not proven the key of a server that connects here.
    #[serde(default)]
    pub refused_connections: u64,
    /// The links with other servers.
    pub links: Vec<LinkStatus>,
}

impl Shared {
    pub(super) fn set_start(&mut self, start: Option<&Start>) {
        self.start = start.cloned();
    }

    pub(super) fn start(&self) -> Option<&Start> {
        self.start.as_ref()
    }

    pub(super) fn refresh(&self) -> Option<Refresh> {
        self.refresh.clone()
    }

    /// This server has approved a refresh.
    pub(super) fn approve(&mut self, epoch: u64) {
        let is_known = self.refresh.as_ref().is_some_and(|refresh| refresh.epoch == epoch);
        if !is_known {
            let of = self.needed_approvals();
            self.refresh = Some(Refresh { epoch, step: RefreshStep::Approving, done: 0, of });
        }
    }

    /// For how long entries have waited: all for the next height, or an own one to be committed.
    fn waiting(&self, now: Instant) -> Option<Duration> {
        let stalled = self.waiting.map(|(_, since)| now.saturating_duration_since(since));
        let own = self.oldest.map(|(age, at)| age + now.saturating_duration_since(at));
        stalled.max(own)
    }

    fn needed_approvals(&self) -> u64 {
        let epoch = self.server.as_ref().and_then(|server| server.epoch.as_ref());
        epoch.map_or(0, |epoch| epoch.faulty as u64 + 1)
    }

    pub(super) fn count(&mut self, is_signed: bool) {
        let counter = if is_signed { &mut self.signed } else { &mut self.refused };
        *counter += 1;
    }

    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::EpochBegun { epoch, .. } => {
                let (epoch, step) = (*epoch, RefreshStep::Done);
                self.refresh = Some(Refresh { epoch, step, done: 1, of: 1 });
            }
            Event::RunCancelled => self.refresh = None,
            Event::WrongAnswer { .. } => self.wrong_answers += 1,
            _ => {}
        }
    }

    pub(super) fn update(
        &mut self,
        server: server::Status,
        progress: Option<Progress>,
        now: Instant,
    ) {
        if let Some(epoch) = &server.epoch
            && let Some(run) = &epoch.run
        {
            self.refresh = Some(refresh(epoch.epoch + 1, run));
        }
        self.waiting = progress.filter(|it| it.waiting > 0).map(|progress| {
            let same = self.waiting.filter(|(height, _)| *height == progress.committed);
            same.unwrap_or((progress.committed, now))
        });
        self.oldest = progress.and_then(|it| Some((it.oldest?, now)));
        (self.server, self.progress) = (Some(server), progress);
    }
}

fn refresh(epoch: u64, run: &RunStatus) -> Refresh {
    let (step, done, of) = if run.session_keys < run.quorum {
        (RefreshStep::SessionKeys, run.session_keys, run.servers)
    } else if run.chosen < run.labels {
        (RefreshStep::Dealing, run.chosen, run.labels)
    } else {
        (RefreshStep::Computing, run.computed, run.quorum)
    };
    Refresh { epoch, step, done: done as u64, of: of as u64 }
}

impl Handle {
    /// The status, with the name of the configuration.
    pub fn status(&self, name: String) -> Status {
        let links = self.links.status();
        let shared = lock(&self.shared);
        let epoch = shared.server.as_ref().and_then(|server| server.epoch.as_ref());
        let members = shared.start.as_ref().map(|start| start.header().group.members());
        let identities: Vec<String> =
            members.into_iter().flatten().map(|member| member.identity.to_string()).collect();
        let connected = links.iter().filter(|link| link.up && identities.contains(&link.server));
        let connected = connected.count();
        let waiting = shared.waiting(Instant::now());
        let faulty = epoch.map_or(0, |epoch| epoch.faulty);
        let behind = shared.server.as_ref().and_then(|server| server.behind);
        let problem = problem(epoch, behind, connected, waiting);
        let health = Health {
            ok: problem.is_empty(),
            problem,
            epoch: epoch.filter(|epoch| epoch.has_shares).map(|epoch| epoch.epoch),
            height: shared.server.as_ref().map_or(0, |server| server.height.0),
            waiting_s: waiting.map(|waiting| waiting.as_secs()),
            connected: connected as u64,
            needed: faulty as u64,
        };
        Status {
            name,
            uptime_s: self.start.elapsed().as_secs_f64(),
            health,
            servers: epoch.map_or(0, |epoch| epoch.servers as u64),
            faulty: faulty as u64,
            index: epoch.and_then(|epoch| epoch.index).map(|index| u64::from(index.0) + 1),
            has_shares: epoch.is_some_and(|epoch| epoch.has_shares),
            header_signed: epoch.is_some_and(|epoch| epoch.is_header_signed),
            refresh: shared.refresh.clone(),
            signed: shared.signed,
            refused: shared.refused,
            wrong_answers: shared.wrong_answers,
            sent_bytes: self.links.sent(),
            refused_connections: self.links.refused_connections(),
            links,
        }
    }
}

/// What is wrong with a server; nothing if it can sign and the log makes progress, or has nothing
/// to do.
fn problem(
    epoch: Option<&server::EpochStatus>,
    behind: Option<server::Behind>,
    connected: usize,
    waiting: Option<Duration>,
) -> String {
    if let Some(server::Behind { epoch: newest, invites, needed, .. }) =
        behind.filter(|behind| behind.is_member)
    {
        return format!(
            "epoch {newest} has begun without it: {invites} of its servers have invited it, and \
             {needed} must: connect it with more of them"
        );
    }
    let Some(epoch) = epoch else {
        return "it waits to be invited by a group: approve a refresh to it at f+1 servers".into();
    };
    if epoch.index.is_none() || behind.is_some() {
        return "it is not in the group that has the key: nothing here is needed any more".into();
    }
    if !epoch.has_shares {
        return "it has no shares: it recovers them when f+1 others are connected".into();
    }
    let needed = 2 * epoch.faulty;
    if connected < needed {
        return format!("{connected} others are connected, and the log needs {needed}");
    }
    if let Some(waiting) = waiting.filter(|waiting| *waiting >= PROGRESS_TIMEOUT) {
        let seconds = waiting.as_secs();
        return format!("entries have waited for {seconds} s: see which servers are down");
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A faulty leader that commits the entries of others and leaves out this server's is noticed.
    #[test]
    fn an_own_entry_that_waits_is_noticed_while_others_are_committed() {
        let (begin, second) = (Instant::now(), Duration::from_secs);
        let status =
            || server::Status { height: Height(0), epoch: None, behind: None, requests: 0 };
        let mut shared = Shared::default();
        for height in 1..=20 {
            let oldest = Some(second(height));
            let progress = Progress { committed: Height(height), waiting: 1, oldest };
            shared.update(status(), Some(progress), begin + second(height));
        }
        assert_eq!(shared.waiting(begin + second(21)), Some(second(21)));
        // Those of others wait for the height only.
        let progress = |height| Progress { committed: Height(height), waiting: 1, oldest: None };
        shared.update(status(), Some(progress(20)), begin + second(21));
        assert_eq!(shared.waiting(begin + second(25)), Some(second(5)));
        shared.update(status(), Some(progress(21)), begin + second(26));
        assert_eq!(shared.waiting(begin + second(26)), Some(second(0)));
        let none = Progress { committed: Height(21), ..Progress::default() };
        shared.update(status(), Some(none), begin + second(27));
        assert_eq!(shared.waiting(begin + second(99)), None);
    }
}
