//! The page that `sunder status` shows for a server of a quorum.

use quorum::api::{Refresh, RefreshStep};
use quorum::links::LinkStatus;
use quorum::node::Status;

use crate::commands::status::UNKNOWN;
use crate::table::{Side, aligned};

/// The page of a server.
pub(super) fn page(now: &Status, _before: Option<&Status>) -> String {
    let place = match now.index {
        Some(index) => format!("server {index} of {}", now.servers),
        None => "in no group".into(),
    };
    let epoch = now.health.epoch.map_or(String::new(), |epoch| format!(", epoch {epoch}"));
    let (name, height) = (&now.name, now.health.height);
    let head =
        format!("{name}  {place}{epoch}, height {height}, running for {:.0} s", now.uptime_s);
    let problem = match &now.health.problem[..] {
        "" => String::new(),
        problem => format!("wrong: {problem}\n"),
    };
    let signed = format!("signed {}, refused {}\n", now.signed, now.refused);
    let refresh = now.refresh.as_ref().map_or(String::new(), refresh);
    format!("{head}\n{problem}{signed}{refresh}\n{}", aligned(&SIDES, &links(&now.links)))
}

/// One line about a refresh.
fn refresh(refresh: &Refresh) -> String {
    let Refresh { epoch, done, of, .. } = refresh;
    match doing(refresh.step) {
        Some(step) => format!("refresh to epoch {epoch}: {step}, {done} of {of}\n"),
        None => format!("refresh to epoch {epoch}: done\n"),
    }
}

/// What is being done in a step; `None` after the last.
pub(super) fn doing(step: RefreshStep) -> Option<&'static str> {
    match step {
        RefreshStep::Approving => Some("waiting for approvals"),
        RefreshStep::SessionKeys => Some("session keys of new servers"),
        RefreshStep::Dealing => Some("shares dealt and confirmed"),
        RefreshStep::Computing => Some("new servers with their shares"),
        RefreshStep::Done => None,
    }
}

const SIDES: [Side; 5] = [Side::Left, Side::Left, Side::Left, Side::Right, Side::Right];

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
        [link.address.to_string(), server, state, round_trip, link.queued_bytes.to_string()]
    };
    std::iter::once(head).chain(links.iter().map(row)).collect()
}
