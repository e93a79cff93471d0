//! The page that `sunder status` shows for a server with several clients.

use console::table::{ColumnAlignment, aligned};
use remicss::status::{DropCounts, TunnelChannelStatus, TunnelClientStatus, TunnelStatus};
use service::status::ServiceProblem;

use super::limits;
use super::page::{channel_problems, closed_problem};
use crate::commands::status::{UNKNOWN, format_number, rate as rate_of};

/// The columns.
const COLUMNS: [(&str, ColumnAlignment); 6] = [
    ("client", ColumnAlignment::Left),
    ("associated", ColumnAlignment::Right),
    ("up", ColumnAlignment::Right),
    ("Mbit/s out", ColumnAlignment::Right),
    ("Mbit/s in", ColumnAlignment::Right),
    ("risk", ColumnAlignment::Right),
];

/// The page, with the rates since `before`. No line is longer than 80 characters.
pub(super) fn page(now: &TunnelStatus, before: Option<&TunnelStatus>) -> String {
    let associated = now.clients.iter().filter(|client| client.associated_s.is_some()).count();
    let closed = now.closed.map(|closed| format!(", closed for {:.0} s", closed.closed_s));
    let running = format!(
        "{}  {associated} of {} clients associated, running for {:.0} s{}",
        now.device,
        now.clients.len(),
        now.uptime_s,
        closed.unwrap_or_default()
    );
    let rows = now.clients.iter().map(|client| row(client, now, before));
    let rows: Vec<[String; 6]> =
        [COLUMNS.map(|(name, _)| name.to_owned())].into_iter().chain(rows).collect();
    let table = aligned(&COLUMNS.map(|(_, side)| side), &rows);
    let limits = limits::lines(&now.channels);
    format!("{running}\n\n{table}{limits}{}", dropped(&now.dropped))
}

/// What is wrong with the server and its clients, and what to do.
pub(super) fn problems(now: &TunnelStatus) -> Vec<ServiceProblem> {
    let associated = now.clients.iter().filter(|client| client.associated_s.is_some());
    let of_client = |client: &TunnelClientStatus| {
        let remedy = "change the bound, kappa or mu; sunder plan --channels shows what is possible";
        let unmet = client.unmet_bound.clone();
        let unmet = unmet.map(|unmet| ServiceProblem::new(unmet, None, remedy));
        let channels = client.channels.iter().enumerate().flat_map(channel_problems);
        let named = unmet.into_iter().chain(channels).map(|problem| {
            let text = format!("{}: {}", client.name, problem.text);
            ServiceProblem { text, ..problem }
        });
        named.collect::<Vec<_>>()
    };
    let of_all = closed_problem(now).into_iter().chain(limits::quota_problems(&now.channels));
    of_all.chain(associated.flat_map(of_client)).collect()
}

fn row(
    client: &TunnelClientStatus,
    now: &TunnelStatus,
    before: Option<&TunnelStatus>,
) -> [String; 6] {
    let is_up = |channel: &&TunnelChannelStatus| {
        [&channel.state_out, &channel.state_in].iter().all(|it| it.as_deref() == Some("up"))
    };
    let up = client.channels.iter().filter(is_up).count();
    let rate = |bytes: fn(&TunnelClientStatus) -> u64| {
        let before = before.filter(|_| client.associated_s.is_some())?;
        let earlier = before.clients.iter().find(|it| it.name == client.name)?;
        rate_of((now.uptime_s, bytes(client)), Some((before.uptime_s, bytes(earlier))))
    };
    let risk = client.achieved.risk.map(|risk| 100.0 * risk);
    [
        client.name.clone(),
        client.associated_s.map_or_else(|| UNKNOWN.to_owned(), duration),
        format!("{up}/{}", client.channels.len()),
        format_number(rate(|client| client.achieved.sent_bytes), 1, ""),
        format_number(rate(|client| client.achieved.received_bytes), 1, ""),
        format_number(risk, 2, " %"),
    ]
}

/// A duration in the largest unit of which it has two.
fn duration(seconds: f64) -> String {
    let units = [("d", 86_400.0), ("h", 3600.0), ("min", 60.0)];
    let unit = units.into_iter().find(|(_, length)| seconds >= 2.0 * length);
    let (name, length) = unit.unwrap_or(("s", 1.0));
    format!("{:.0} {name}", (seconds / length).floor())
}

/// The dropped packets and datagrams, one reason in a line; empty if there are none.
fn dropped(dropped: &DropCounts) -> String {
    let reasons = [
        (dropped.queued, "packets: a client's channels were too slow"),
        (dropped.below_floor, "packets: too few channels were up"),
        (dropped.unconnected, "packets: their client was not associated"),
        (dropped.for_no_client, "packets: no client has their destination"),
        (dropped.too_long, "packets: too long"),
        (dropped.not_allowed, "packets of a client: not from its networks"),
        (dropped.between_clients, "packets of a client for another client"),
        (dropped.undelivered, "packets: the device did not accept them"),
        (dropped.tampered, "symbols: changed on the path"),
        (dropped.unrecognised, "datagrams: of no client"),
        (dropped.unchecked, "datagrams: too many were of no client"),
        (dropped.wrong_source, "datagrams: from other addresses than their client's"),
        (dropped.wrong_token, "datagrams: wrong tokens"),
        (dropped.malformed, "malformed"),
        (dropped.duplicate, "came twice"),
        (dropped.unjoined, "shares that were not joined: too many joins had failed"),
    ];
    let rows: Vec<[String; 2]> = reasons
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, why)| [count.to_string(), (*why).to_owned()])
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let table = aligned(&[ColumnAlignment::Right, ColumnAlignment::Left], &rows);
    format!("\ndropped:\n{table}")
}

#[cfg(test)]
mod tests {
    use remicss::status::{MeasuredProperties, ReorderStatus};

    use super::*;

    fn client(name: &str, associated_s: Option<f64>, sent_bytes: u64) -> TunnelClientStatus {
        TunnelClientStatus {
            name: name.into(),
            networks: vec!["10.9.0.2/32".into()],
            associated_s,
            achieved: MeasuredProperties {
                risk: Some(0.0123),
                sent_bytes,
                ..MeasuredProperties::default()
            },
            predicted: None,
            unmet_bound: None,
            channels: Vec::new(),
            waited: ReorderStatus::default(),
            dropped: DropCounts::default(),
        }
    }

    fn server(uptime_s: f64, clients: Vec<TunnelClientStatus>) -> TunnelStatus {
        TunnelStatus {
            device: "sunder0".into(),
            uptime_s,
            listen: Vec::new(),
            associated: true,
            closed: None,
            achieved: MeasuredProperties::default(),
            predicted: None,
            unmet_bound: None,
            mtu: 1451,
            channels: Vec::new(),
            waited: ReorderStatus::default(),
            dropped: DropCounts {
                between_clients: u64::MAX,
                unrecognised: 7,
                ..DropCounts::default()
            },
            clients,
        }
    }

    #[test]
    fn clients_are_rows_of_at_most_80_characters() {
        let longest = "a-name-of-24-characters.";
        let of = |bytes| vec![client(longest, Some(7300.0), bytes), client("b", None, 0)];
        let shown = page(&server(20.0, of(10_000_000)), Some(&server(10.0, of(0))));
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        let rows: Vec<Vec<&str>> =
            shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            shown.lines().next(),
            Some("sunder0  1 of 2 clients associated, running for 20 s")
        );
        assert_eq!(rows[3], [longest, "2", "h", "0/0", "8.0", "0.0", "1.23", "%"], "{shown}");
        assert_eq!(rows[4][..4], ["b", "–", "0/0", "–"], "{shown}");
        assert!(
            shown.contains("dropped:") && shown.contains("7  datagrams: of no client"),
            "{shown}"
        );
    }

    #[test]
    fn durations_have_the_largest_unit() {
        for (seconds, expected) in
            [(0.4, "0 s"), (119.9, "119 s"), (120.0, "2 min"), (7199.0, "119 min"), (1e6, "11 d")]
        {
            assert_eq!(duration(seconds), expected);
        }
    }
}
