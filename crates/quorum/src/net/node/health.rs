//! Whether a node can sign and its log makes progress; if not, why and since when.

use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::status::Shared;
use super::watch::Line;
use crate::net::api::Health;
use crate::net::links::LinkStatus;
use crate::protocol::server::{Behind, EpochStatus};

/// How long entries may wait for the next height of a log that makes progress, and an entry of this
/// server until it is committed.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(10);

impl Shared {
    /// How the server is doing.
    pub(super) fn health(&self, links: &[LinkStatus], now: Instant) -> Health {
        let epoch = self.server.as_ref().and_then(|server| server.epoch.as_ref());
        let members = self.start().map(|start| start.header().group.members());
        let members: Vec<String> =
            members.into_iter().flatten().map(|member| member.identity.to_string()).collect();
        let in_group = |link: &&LinkStatus| members.contains(&link.server);
        let (up, down): (Vec<_>, Vec<_>) = links.iter().filter(in_group).partition(|link| link.up);
        let waiting = self.waiting(now);
        let behind = self.server.as_ref().and_then(|server| server.behind);
        let problem = match &self.watch.store {
            Some(problem) => problem.clone(),
            None => problem(epoch, behind, up.len(), &down, waiting),
        };
        let since = self.watch.since.filter(|_| !problem.is_empty());
        Health {
            ok: problem.is_empty(),
            problem_s: since.map(|since| now.saturating_duration_since(since).as_secs()),
            problem,
            epoch: epoch.filter(|epoch| epoch.has_shares).map(|epoch| epoch.epoch),
            height: self.server.as_ref().map_or(0, |server| server.height.0),
            waiting_s: waiting.map(|waiting| waiting.as_secs()),
            connected: up.len() as u64,
            needed: epoch.map_or(0, |epoch| epoch.faulty) as u64,
        }
    }

    /// Logs when something begins to be wrong, and when nothing is any more.
    pub(super) fn watch(&mut self, links: &[LinkStatus], store: Option<String>) {
        let now = Instant::now();
        self.watch.store = store;
        let problem = self.health(links, now).problem;
        match self.watch.note(&problem, now) {
            Some(Line::Problem) => warn!(%problem, "this server is not healthy"),
            Some(Line::Healthy { after }) => {
                info!(after_s = after.as_secs(), "this server is healthy again");
            }
            None => {}
        }
    }
}

/// What is wrong with a server; nothing if it can sign and the log makes progress, or has nothing
/// to do. Details follow a colon.
fn problem(
    epoch: Option<&EpochStatus>,
    behind: Option<Behind>,
    connected: usize,
    down: &[&LinkStatus],
    waiting: Option<Duration>,
) -> String {
    if let Some(Behind { epoch: newest, invites, needed, .. }) =
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
    let servers: Vec<String> = down.iter().map(|link| without_link(link)).collect();
    let servers = servers.join(", ");
    if !epoch.has_shares {
        let needed = epoch.faulty + 1;
        return if connected < needed {
            format!(
                "it has no shares, and {connected} others are connected of the {needed} from which \
                 it recovers them: start {servers}"
            )
        } else {
            "it has no shares: it recovers them from others".into()
        };
    }
    let needed = 2 * epoch.faulty;
    if connected < needed {
        return format!(
            "{connected} others are connected, and the log needs {needed}: start {servers}"
        );
    }
    if let Some(waiting) = waiting.filter(|waiting| *waiting >= PROGRESS_TIMEOUT) {
        let seconds = waiting.as_secs();
        return format!("entries have waited for {seconds} s: see which servers are down");
    }
    String::new()
}

/// A server without a link, since when, and why.
fn without_link(link: &LinkStatus) -> String {
    let why = link.why.as_deref().map_or(String::new(), |why| format!(": {why}"));
    format!("{} (down for {:.0} s{why})", link.address, link.state_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_missing_is_named() {
        let epoch = EpochStatus {
            epoch: 1,
            servers: 4,
            faulty: 1,
            index: Some(crate::protocol::combination::ServerIndex(0)),
            has_shares: true,
            is_header_signed: true,
            approvals: Vec::new(),
            cancelled: Vec::new(),
            run: None,
        };
        let link = LinkStatus {
            server: "0a".repeat(32),
            address: "192.0.2.1:6530".parse().unwrap(),
            up: false,
            state_s: 12.3,
            why: Some("refused".into()),
            round_trip_ms: None,
            queued_bytes: 0,
            refused_messages: 0,
        };
        let said = problem(Some(&epoch), None, 1, &[&link, &link], None);
        assert_eq!(
            said,
            "1 others are connected, and the log needs 2: start 192.0.2.1:6530 (down for 12 s: \
             refused), 192.0.2.1:6530 (down for 12 s: refused)"
        );
        assert_eq!(problem(Some(&epoch), None, 2, &[&link], None), "");
    }
}
