//! Whether a node can sign and its log makes progress. If not, why and since when.

use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::problem_tracker::HealthLogLine;
use super::status::{PublishedNodeState, without_vote};
use crate::log::OperatedEngine;
use crate::net::api::NodeHealth;
use crate::net::links::LinkStatus;
use crate::protocol::combination::ServerIndex;
use crate::protocol::server::{EpochStatus, LAST_DUE_EPOCH, NewerEpochStatus};

/// The time after which waiting entries are a problem: entries that wait for the next height, or an
/// entry of this server that waits to be committed.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(10);

/// How long CometBFT may be away before that is a problem. It is started again at each start of the
/// server.
const ENGINE_DELAY: Duration = Duration::from_secs(3);

/// How long a link must be down before it is reported.
const LINK_DELAY_S: f64 = 3.0;

impl PublishedNodeState {
    /// The health of the server.
    pub(super) fn health(&self, links: &[LinkStatus], now: Instant) -> NodeHealth {
        let epoch = self.server.as_ref().and_then(|server| server.epoch.as_ref());
        let members = self.start().map(|start| start.header().group.members());
        let members: Vec<String> =
            members.into_iter().flatten().map(|member| member.identity.to_string()).collect();
        let index = |link: &LinkStatus| {
            let index = members.iter().position(|member| *member == link.server);
            index.and_then(|index| u8::try_from(index).ok()).map(ServerIndex)
        };
        let in_group = |link: &&LinkStatus| index(link).is_some();
        let (up, down): (Vec<_>, Vec<_>) = links.iter().filter(in_group).partition(|link| link.up);
        let connected: Vec<ServerIndex> = up.iter().filter_map(|link| index(link)).collect();
        let waiting = self.waiting(now);
        let behind = self.server.as_ref().and_then(|server| server.behind);
        let problem = if let Some(problem) = &self.watch.store {
            problem.clone()
        } else {
            let engine = engine_problem(epoch, self.engine());
            problem(epoch, behind, &connected, &down, waiting, engine)
        };
        let warning = if problem.is_empty() { warning(epoch, &down) } else { String::new() };
        let since = self.watch.since.filter(|_| !problem.is_empty());
        NodeHealth {
            ok: problem.is_empty(),
            problem_s: since.map(|since| now.saturating_duration_since(since).as_secs()),
            problem,
            warning,
            epoch: epoch.filter(|epoch| epoch.has_shares).map(|epoch| epoch.epoch),
            height: self.server.as_ref().map_or(0, |server| server.height.0),
            waiting_s: waiting.map(|waiting| waiting.as_secs()),
            connected: up.len() as u64,
            needed: epoch.map_or(0, |epoch| epoch.faulty) as u64,
        }
    }

    /// Logs when a problem begins and when it ends.
    pub(super) fn watch(&mut self, links: &[LinkStatus], store: Option<String>) {
        let now = Instant::now();
        self.watch.store = store;
        let problem = self.health(links, now).problem;
        match self.watch.note(&problem, now) {
            Some(HealthLogLine::Problem) => warn!(%problem, "this server is not healthy"),
            Some(HealthLogLine::Healthy { after }) => {
                info!(after_s = after.as_secs(), "this server is healthy again");
            }
            None => {}
        }
    }
}

/// The server's problem, or an empty text if it can sign and its log makes progress or is idle.
/// Details follow a colon.
fn problem(
    epoch: Option<&EpochStatus>,
    behind: Option<NewerEpochStatus>,
    connected: &[ServerIndex],
    down: &[&LinkStatus],
    waiting: Option<Duration>,
    engine: String,
) -> String {
    if let Some(NewerEpochStatus { epoch: newest, invites, needed, .. }) =
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
    if epoch.is_founding {
        let (connected, needed) = (connected.len() + 1, 2 * epoch.faulty + 1);
        return if connected < needed {
            format!(
                "the group has no key yet, and {connected} servers are connected of the {needed} that \
                 generate it: start {servers}"
            )
        } else {
            "the group is generating its key".into()
        };
    }
    if !epoch.has_shares {
        let (connected, needed) = (connected.len(), epoch.faulty + 1);
        return if connected < needed {
            format!(
                "it has no shares, and {connected} others are connected of the {needed} from which \
                 it recovers them: start {servers}"
            )
        } else {
            "it has no shares: it recovers them from others".into()
        };
    }
    if epoch.lacks_service_state {
        return "it does not have the state of its service: it gets it from others".into();
    }
    let has_vote = |server: &&ServerIndex| !epoch.without_vote.contains(server);
    let votes = epoch.index.iter().chain(connected).filter(has_vote).count();
    let needed = 2 * epoch.faulty + 1;
    if votes < needed {
        let without: Vec<String> =
            without_vote(Some(epoch)).iter().map(ToString::to_string).collect();
        let start = (!servers.is_empty()).then(|| format!("start {servers}"));
        let without =
            (!without.is_empty()).then(|| format!("without a vote: {}", without.join(", ")));
        let what: Vec<String> = start.into_iter().chain(without).collect();
        return format!(
            "{votes} servers with a vote are connected, and the log needs {needed}: {}",
            what.join("; ")
        );
    }
    if !engine.is_empty() {
        return engine;
    }
    if let Some(waiting) = waiting.filter(|waiting| *waiting >= PROGRESS_TIMEOUT) {
        let seconds = waiting.as_secs();
        return format!(
            "entries have waited for {seconds} s, with {votes} votes connected: see what the logs of \
             the other servers say"
        );
    }
    String::new()
}

/// The problem of an engine of the log that runs as a process of its own.
fn engine_problem(epoch: Option<&EpochStatus>, engine: Option<OperatedEngine>) -> String {
    let needed = epoch.map_or(0, |epoch| 2 * epoch.faulty);
    match engine.filter(|engine| engine.since >= ENGINE_DELAY) {
        Some(OperatedEngine { is_connected: false, since, .. }) => format!(
            "CometBFT has not run for {} s, so the log waits: start it, and see what it prints",
            since.as_secs()
        ),
        Some(OperatedEngine { peers, since, .. })
            if peers < needed && since >= PROGRESS_TIMEOUT =>
        {
            format!(
                "CometBFT is connected with {peers} other servers, and the log needs {needed}: is the \
                 address in its configuration reachable, at all servers?"
            )
        }
        _ => String::new(),
    }
}

/// Problems of other servers, or of the next refreshes, if this server can sign.
fn warning(epoch: Option<&EpochStatus>, down: &[&LinkStatus]) -> String {
    let Some(epoch) = epoch.filter(|epoch| epoch.index.is_some()) else { return String::new() };
    // Links need a moment after a start.
    let lasts = |link: &&&LinkStatus| link.state_s >= LINK_DELAY_S;
    let down: Vec<String> = down.iter().filter(lasts).map(|link| without_link(link)).collect();
    if down.is_empty() && epoch.epoch >= LAST_DUE_EPOCH {
        return format!(
            "the key is in epoch {}, so the group does not refresh itself any more: make a new group",
            epoch.epoch
        );
    }
    if down.is_empty() {
        return String::new();
    }
    let left = match epoch.faulty.saturating_sub(down.len()) {
        0 => "no other server may fail".into(),
        1 => "only 1 more server may fail".into(),
        left => format!("only {left} more servers may fail"),
    };
    format!(
        "the group signs, but {left}: start {}, or name its address as a [[peer]] if it has moved",
        down.join(", ")
    )
}

/// A server without a link, how long the link has been down, and why.
fn without_link(link: &LinkStatus) -> String {
    let why = link.why.as_deref().map_or(String::new(), |why| format!(": {why}"));
    format!("{} (down for {:.0} s{why})", link.address, link.state_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::group::GroupKeyKind;

    #[test]
    fn problems_name_missing_servers() {
        let epoch = EpochStatus {
            epoch: 1,
            key: GroupKeyKind::Rsa,
            is_founding: false,
            servers: 4,
            faulty: 1,
            index: Some(ServerIndex(0)),
            has_shares: true,
            lacks_service_state: false,
            is_header_signed: true,
            began: None,
            without_vote: vec![ServerIndex(3)],
            approvals: Vec::new(),
            cancelled: Vec::new(),
            run: None,
        };
        let link = LinkStatus {
            server: "0a".repeat(32),
            index: Some(2),
            address: "192.0.2.1:6530".parse().unwrap(),
            up: false,
            state_s: 12.3,
            why: Some("refused".into()),
            round_trip_ms: None,
            queued_bytes: 0,
            refused_messages: 0,
            asked_entries: 0,
        };
        let without_engine = |connected: &[ServerIndex], down: &[&LinkStatus]| {
            problem(Some(&epoch), None, connected, down, None, String::new())
        };
        let message = without_engine(&[ServerIndex(1)], &[&link, &link]);
        assert_eq!(
            message,
            "2 servers with a vote are connected, and the log needs 3: start 192.0.2.1:6530 (down \
             for 12 s: refused), 192.0.2.1:6530 (down for 12 s: refused); without a vote: 4"
        );
        assert_eq!(warning(Some(&epoch), &[&LinkStatus { state_s: 1.0, ..link.clone() }]), "");
        assert_eq!(
            warning(Some(&epoch), &[&link]),
            "the group signs, but no other server may fail: start 192.0.2.1:6530 (down for 12 s: \
             refused), or name its address as a [[peer]] if it has moved"
        );
        let old = EpochStatus { epoch: 9_000, ..epoch.clone() };
        assert!(warning(Some(&old), &[]).starts_with("the key is in epoch 9000, so"));
        assert!(warning(Some(&old), &[&link]).starts_with("the group signs, but"));
        let three = [ServerIndex(1), ServerIndex(2)];
        assert_eq!(without_engine(&three, &[&link]), "");
        let founding = EpochStatus { is_founding: true, has_shares: false, ..epoch.clone() };
        let message =
            problem(Some(&founding), None, &[ServerIndex(1)], &[&link], None, String::new());
        assert!(message.starts_with("the group has no key yet, and 2 servers are"), "{message}");
        let message = problem(Some(&founding), None, &three, &[], None, String::new());
        assert_eq!(message, "the group is generating its key");
        // A connected server without a vote does not help.
        let message = without_engine(&[ServerIndex(1), ServerIndex(3)], &[]);
        assert!(message.ends_with("the log needs 3: without a vote: 4"), "{message}");
        // An engine that is away for a moment is no problem yet.
        let engine = |is_connected, since, peers| {
            let since = Duration::from_secs(since);
            engine_problem(Some(&epoch), Some(OperatedEngine { is_connected, since, peers }))
        };
        assert_eq!(engine(false, 2, 0), "");
        assert!(engine(false, 3, 0).contains("not run for 3 s"));
        assert!(engine(true, 10, 1).contains("with 1 other servers, and the log needs 2"));
        assert_eq!((engine(true, 9, 1), engine(true, 99, 2)), (String::new(), String::new()));
        let message = problem(Some(&epoch), None, &three, &[], None, engine(false, 9, 0));
        assert!(message.starts_with("CometBFT"), "{message}");
    }
}
