//! The page that `sunder status` shows for a server of a quorum.

use std::fmt::Write as _;

use console::table::{ColumnAlignment, aligned};
use quorum::api::{
    AwaitedServer, ListChange, ListChangeKind, PendingReview, RefreshStatus, RefreshStep,
};
use quorum::links::LinkStatus;
use quorum::node::{NodeServiceStatus, QuorumNodeStatus};
use service::status::ServiceProblem;

use crate::commands::status::UNKNOWN;

/// The page of a server.
pub(super) fn page(now: &QuorumNodeStatus, _before: Option<&QuorumNodeStatus>) -> String {
    let place = match now.index {
        Some(index) => format!("server {index} of {}", now.servers),
        None => "in no group".into(),
    };
    let epoch = now.health.epoch.map_or(String::new(), |epoch| format!(", epoch {epoch}"));
    let began = now.epoch_began.as_ref().map(|it| format!("the epoch began at {it}"));
    let next = now.next_refresh.as_ref().map(|it| format!("the next refresh is due at {it}"));
    let times: Vec<String> = began.into_iter().chain(next).collect();
    let times = if times.is_empty() { String::new() } else { times.join("; ") + "\n" };
    let (name, height) = (&now.name, now.health.height);
    let head =
        format!("{name}  {place}{epoch}, height {height}, running for {:.0} s", now.uptime_s);
    let without_vote: Vec<String> = now.without_vote.iter().map(ToString::to_string).collect();
    let without_vote = match &without_vote[..] {
        [] => String::new(),
        servers => format!("without a vote in the log: {}\n", servers.join(", ")),
    };
    let signed = format!("signed {}, refused {}\n", now.signed, now.refused);
    let key = match &*now.key {
        "rsa-polynomial" => "the RSA key is shared by a polynomial: EXPERIMENTAL\n",
        _ => "",
    };
    let service = now.service.as_ref().map_or(String::new(), service);
    let refresh = now.refresh.as_ref().map_or(String::new(), refresh);
    let pending = pending(&now.pending);
    format!(
        "{head}\n{key}{times}{without_vote}{signed}{service}{refresh}{pending}\n{}",
        aligned(&SIDES, &links(&now.links))
    )
}

/// The replicated service, in one line.
fn service(service: &NodeServiceStatus) -> String {
    let NodeServiceStatus { name, answered, refused, waiting, log_bytes, max_log_bytes, .. } =
        service;
    let state = if service.has_state { "" } else { "; its state is not here yet" };
    let used = (log_bytes * 100).checked_div(*max_log_bytes).unwrap_or(0);
    format!(
        "service {name}: answered {answered}, refused {refused}, {waiting} wait; {used} % of this \
         server's part of the log is used{state}\n"
    )
}

/// What waits for review, in one line and a line for each change of a proposed list.
fn pending(review: &PendingReview) -> String {
    // Another server states its number, which can be any.
    let counts = review.servers.iter().map(|server| server.registrations);
    let count = counts.fold(0, u64::saturating_add);
    let registrations = match count {
        0 => String::new(),
        count => format!("{count} registrations wait: sunder quorum pending\n"),
    };
    registrations + &lists(review)
}

/// The proposed lists of servers.
pub(super) fn lists(review: &PendingReview) -> String {
    let mut page = String::new();
    for list in &review.lists {
        let approved: Vec<String> = list.approved_by.iter().map(u64::to_string).collect();
        let digest: String = list.group.chars().take(16).collect();
        let _ = write!(
            page,
            "list {digest} for epoch {}, approved by {} ({} of {})",
            list.epoch,
            approved.join(", "),
            approved.len(),
            list.needed
        );
        let _ = match (&list.until, list.begun) {
            (_, true) => writeln!(page, ", has begun:"),
            (Some(until), false) => writeln!(page, ", expires here at {until}:"),
            (None, false) => writeln!(page, ":"),
        };
        if list.changes.is_empty() {
            page += "  the same servers get new shares\n";
        }
        for change in &list.changes {
            page += &line(change);
        }
    }
    page
}

fn line(change: &ListChange) -> String {
    let ListChange { identity, address, before, .. } = change;
    match (change.change, before) {
        (ListChangeKind::Added, _) => format!("  + {identity} {address}\n"),
        (ListChangeKind::Removed, _) => format!("  - {identity} {address}\n"),
        (ListChangeKind::Moved, Some(before)) => {
            format!("  > {identity} from {before} to {address}\n")
        }
        (ListChangeKind::Moved, None) => format!("  > {identity} to {address}\n"),
    }
}

/// What is wrong with a server, and what to do.
#[expect(clippy::cast_precision_loss, reason = "times are far below 2^53 s")]
pub(super) fn problems(now: &QuorumNodeStatus) -> Vec<ServiceProblem> {
    let mut problems = Vec::new();
    if !now.health.problem.is_empty() {
        let since_s = now.health.problem_s.map(|seconds| seconds as f64);
        let (problem, remedy) = problem_and_remedy(&now.health.problem);
        problems.push(ServiceProblem::new(problem, since_s, remedy));
    }
    if !now.health.warning.is_empty() {
        // The warning is about the members of the group without a link.
        let down = now.links.iter().filter(|link| link.index.is_some() && !link.up);
        let since_s = down.map(|link| link.state_s).reduce(f64::max);
        let (warning, remedy) = problem_and_remedy(&now.health.warning);
        problems.push(ServiceProblem::new(warning, since_s, remedy));
    }
    if let Some(refresh) = now.refresh.as_ref().filter(|refresh| !refresh.problem.is_empty()) {
        problems.push(ServiceProblem::new(&refresh.problem, None, &refresh.remedy));
    }
    problems
}

/// What is wrong, and what to do: in the text of a server's health, a colon is between them.
pub(super) fn problem_and_remedy(text: &str) -> (&str, &str) {
    text.split_once(": ").unwrap_or((text, "see its log; sunder doctor tests the other servers"))
}

/// The progress of a refresh, in one line.
fn refresh(refresh: &RefreshStatus) -> String {
    format!("refresh to epoch {}: {}\n", refresh.epoch, progress(refresh))
}

/// How far a refresh is, and for whom it waits.
pub(super) fn progress(refresh: &RefreshStatus) -> String {
    let RefreshStatus { done, of, waiting_for, cancelled, cancelled_of, .. } = refresh;
    let step = match refresh.step {
        RefreshStep::Approving => "approvals of servers",
        RefreshStep::SessionKeys => "session keys of new servers",
        RefreshStep::Dealing => "shares dealt and confirmed",
        RefreshStep::Computing => "new servers with their shares",
        RefreshStep::Done => return "done".into(),
        RefreshStep::Cancelled => return format!("cancelled by {cancelled_of} servers"),
    };
    let awaited = |it: &AwaitedServer| {
        let link = if it.connected { "" } else { ", no link" };
        format!("{} ({}{link})", it.server, it.address)
    };
    let awaited: Vec<String> = waiting_for.iter().map(awaited).collect();
    let awaited = match &awaited[..] {
        [] => String::new(),
        awaited => format!("; not yet: {}", awaited.join(", ")),
    };
    let cancelled = match cancelled {
        0 => String::new(),
        cancelled => format!("; cancelled by {cancelled} of {cancelled_of}"),
    };
    format!("{step}, {done} of {of}{awaited}{cancelled}")
}

const SIDES: [ColumnAlignment; 5] = [
    ColumnAlignment::Left,
    ColumnAlignment::Left,
    ColumnAlignment::Left,
    ColumnAlignment::Right,
    ColumnAlignment::Right,
];

fn links(links: &[LinkStatus]) -> Vec<[String; 5]> {
    let head = ["address", "server", "state", "round trip", "queued"].map(str::to_owned);
    let row = |link: &LinkStatus| {
        let state = match (link.up, &link.why) {
            (true, _) => format!("up for {:.0} s", link.state_s),
            (false, Some(why)) => format!("down for {:.0} s: {why}", link.state_s),
            (false, None) => format!("down for {:.0} s", link.state_s),
        };
        let round_trip = link.round_trip_ms.map(|ms| format!("{ms:.1} ms"));
        let server = link.server.chars().take(8).collect();
        let round_trip = round_trip.unwrap_or_else(|| UNKNOWN.into());
        [link.address.clone(), server, state, round_trip, link.queued_bytes.to_string()]
    };
    std::iter::once(head).chain(links.iter().map(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_says_what_it_has_answered_and_whether_its_log_fills() {
        let mut status = NodeServiceStatus {
            name: "store".into(),
            has_state: true,
            answered: 7,
            refused: 1,
            waiting: 2,
            log_bytes: 13 << 20,
            max_log_bytes: 16 << 20,
            snapshot_bytes: 9,
        };
        let line = "service store: answered 7, refused 1, 2 wait; 81 % of this server's part of \
                    the log is used";
        assert_eq!(service(&status), format!("{line}\n"));
        status.has_state = false;
        assert_eq!(service(&status), format!("{line}; its state is not here yet\n"));
    }

    #[test]
    fn a_problem_of_a_server_ends_at_the_colon() {
        let (problem, remedy) = problem_and_remedy("2 votes, and the log needs 3: start a: b");
        assert_eq!((problem, remedy), ("2 votes, and the log needs 3", "start a: b"));
        assert!(problem_and_remedy("it stands still").1.contains("see its log"));
    }

    #[test]
    fn a_refresh_says_how_far_it_is_and_for_whom_it_waits() {
        let awaited = |server, connected| AwaitedServer {
            server,
            identity: "0a".repeat(32),
            address: "192.0.2.1:6530".parse().unwrap(),
            connected,
        };
        let mut state = RefreshStatus {
            epoch: 3,
            step: RefreshStep::Approving,
            done: 1,
            of: 2,
            waiting_for: vec![awaited(2, true), awaited(4, false)],
            cancelled: 0,
            cancelled_of: 2,
            problem: String::new(),
            remedy: String::new(),
        };
        assert_eq!(
            refresh(&state),
            "refresh to epoch 3: approvals of servers, 1 of 2; not yet: 2 (192.0.2.1:6530), \
             4 (192.0.2.1:6530, no link)\n"
        );
        state.waiting_for.clear();
        state.cancelled = 1;
        assert_eq!(
            refresh(&state),
            "refresh to epoch 3: approvals of servers, 1 of 2; cancelled by 1 of 2\n"
        );
        state.step = RefreshStep::Cancelled;
        assert_eq!(progress(&state), "cancelled by 2 servers");
    }
}
