//! The page that `sunder status` shows for a tunnel.

use console::table::{ColumnAlignment, aligned};
use remicss::status::{DropCounts, TunnelChannelStatus, TunnelStatus};
use service::status::ServiceProblem;

use super::limits;
use crate::commands::status::{UNKNOWN, format_number, rate as rate_of};

/// The page of a tunnel, with the rates since `before`.
pub(super) fn page(now: &TunnelStatus, before: Option<&TunnelStatus>) -> String {
    let state = if now.associated { "associated" } else { "not associated" };
    let closed = now.closed.map(|closed| format!(", closed for {:.0} s", closed.closed_s));
    let closed = closed.unwrap_or_default();
    let (device, missing, uptime_s) = (&now.device, missing(now), now.uptime_s);
    let running = format!("{device}  {state}{missing}, running for {uptime_s:.0} s{closed}");
    let mut first = [ColumnAlignment::Right; 3];
    first[0] = ColumnAlignment::Left;
    let second = COLUMNS.map(|(_, side)| side);
    let averages = aligned(&first, &averages(now, before));
    let channels = aligned(&second, &channels(now, before));
    let limits = limits::lines(&now.channels);
    let dropped = dropped(&now.dropped, &now.channels);
    format!("{running}\n\n{averages}\n{channels}{limits}{dropped}")
}

/// What is wrong with a tunnel, and what to do.
pub(super) fn problems(now: &TunnelStatus) -> Vec<ServiceProblem> {
    let mut problems: Vec<ServiceProblem> = closed_problem(now).into_iter().collect();
    if let Some(unmet) = &now.unmet_bound {
        let remedy = "change the bound, kappa or mu; sunder plan --channels shows what is possible";
        problems.push(ServiceProblem::new(unmet.clone(), None, remedy));
    }
    problems.extend(limits::quota_problems(&now.channels));
    if !now.associated {
        let remedy = "check that the other end runs, and both configurations with sunder doctor";
        problems.push(ServiceProblem::new("there is no peer", None, remedy));
        return problems;
    }
    problems.extend(now.channels.iter().enumerate().flat_map(channel_problems));
    problems.extend(limits::used_backups(&now.channels));
    problems
}

/// Rules of `fail_closed` that are not in force.
pub(super) fn closed_problem(now: &TunnelStatus) -> Option<ServiceProblem> {
    let what = "the rules of fail_closed are not in force: packets may leave in the clear";
    let remedy = "see the log for what removes them, and for why the kernel refuses them";
    let is_open = now.closed.is_some_and(|closed| !closed.in_force);
    is_open.then(|| ServiceProblem::new(what, None, remedy))
}

/// What is wrong with a channel.
pub(super) fn channel_problems(
    (index, channel): (usize, &TunnelChannelStatus),
) -> Vec<ServiceProblem> {
    let problem = |what: &str, since_s, remedy: &str| {
        ServiceProblem::new(format!("channel {} {what}", index + 1), since_s, remedy)
    };
    let is = |state| {
        [&channel.state_out, &channel.state_in].iter().any(|it| it.as_deref() == Some(state))
    };
    if channel.missing_s.is_some() {
        let remedy = "check its link and its addresses; sunder doctor tests them";
        return vec![problem("is missing from the association", channel.missing_s, remedy)];
    }
    if is("quarantine") {
        let what = "is in quarantine, because it delivered changed shares";
        let remedy = "someone on its path changes packets: if it happens again, use another path";
        return vec![problem(what, channel.not_up_s, remedy)];
    }
    if is("down") {
        return vec![problem("is down", channel.not_up_s, "check its link")];
    }
    let mut problems = Vec::new();
    if let (Some(former), Some(mtu)) = (channel.former_mtu, channel.mtu) {
        let what = format!("loses packets of {former} bytes without ICMP; its path's MTU is {mtu}");
        let remedy = "shorter packets are sent; ask who runs the path to let ICMP pass";
        problems.push(problem(&what, channel.black_hole_s, remedy));
    }
    if channel.spare_s.is_some() {
        let what = "carries too little or loses too much, so no packet waits for it";
        let remedy = "improve its path, or plan without it: sunder plan";
        problems.push(problem(what, channel.spare_s, remedy));
    }
    problems
}

/// The channels that are missing from the association, and for how long.
fn missing(now: &TunnelStatus) -> String {
    let channels = now.channels.iter().enumerate();
    let missing = channels.filter_map(|(index, channel)| {
        channel.missing_s.map(|since| format!("channel {} for {since:.0} s", index + 1))
    });
    let missing: Vec<String> = missing.collect();
    if missing.is_empty() { String::new() } else { format!(" without {}", missing.join(", ")) }
}

/// The dropped packets in one line; empty if there are none.
fn dropped(dropped: &DropCounts, channels: &[TunnelChannelStatus]) -> String {
    let on = |what: &str, counted: fn(&TunnelChannelStatus) -> u64| {
        let numbered = channels.iter().enumerate().filter(|(_, channel)| counted(channel) > 0);
        let numbers: Vec<String> = numbered.map(|(index, _)| (index + 1).to_string()).collect();
        let channels = if numbers.len() == 1 { "channel" } else { "channels" };
        format!("{what} on {channels} {}", numbers.join(" and "))
    };
    let elsewhere = on("from other addresses than the peer's", |channel| channel.wrong_source);
    let forged = on("wrong tokens", |channel| channel.wrong_token);
    let reasons = [
        (dropped.queued, "the channels were too slow"),
        (dropped.below_floor, "too few channels were up"),
        (dropped.unconnected, "there was no peer"),
        (dropped.too_long, "too long"),
        (dropped.tampered, "changed on the path"),
        (dropped.wrong_source, elsewhere.as_str()),
        (dropped.wrong_token, forged.as_str()),
        (dropped.malformed, "malformed"),
        (dropped.duplicate, "came twice"),
        (dropped.unjoined, "shares that were not joined: too many joins had failed"),
        (dropped.not_allowed, "their source is not in allowed"),
        (dropped.undelivered, "the device did not accept them"),
    ];
    let named = reasons.iter().filter(|(count, _)| *count > 0);
    let named: Vec<String> = named.map(|(count, why)| format!("{count} ({why})")).collect();
    if named.is_empty() { String::new() } else { format!("\ndropped: {}\n", named.join(", ")) }
}

fn percent(part: Option<f64>) -> String {
    format_number(part.map(|part| 100.0 * part), 2, " %")
}

fn averages(now: &TunnelStatus, before: Option<&TunnelStatus>) -> Vec<[String; 3]> {
    let (achieved, predicted) = (&now.achieved, now.predicted);
    let speed =
        |bytes: fn(&TunnelStatus) -> u64| format_number(rate(now, before, bytes), 1, " Mbit/s");
    let (mean, ms) =
        (|number| format_number(number, 3, ""), |number| format_number(number, 1, " ms"));
    let row =
        |name: &str, achieved: String, predicted: String| [name.to_owned(), achieved, predicted];
    let mut rows = vec![
        row("", "achieved".into(), "predicted".into()),
        row("kappa", mean(achieved.kappa), mean(predicted.map(|p| p.kappa))),
        row("mu", mean(achieved.mu), mean(predicted.map(|p| p.mu))),
        row("risk", percent(achieved.risk), percent(predicted.and_then(|p| p.risk))),
        row("loss out", percent(achieved.loss_out), percent(predicted.map(|p| p.loss_out))),
        row("loss in", percent(achieved.loss_in), UNKNOWN.into()),
        row("delay", ms(achieved.delay_ms), ms(predicted.map(|p| p.delay_ms))),
        row(
            "rate out",
            speed(|status| status.achieved.sent_bytes),
            format_number(predicted.map(|p| p.rate_mbit), 1, " Mbit/s"),
        ),
        row("rate in", speed(|status| status.achieved.received_bytes), UNKNOWN.into()),
    ];
    if let Some(cost) = predicted.and_then(|it| it.cost_per_gb) {
        let achieved = format_number(achieved.cost_per_gb, 2, "");
        rows.push(row("price of a GB", achieved, format_number(Some(cost), 2, "")));
    }
    rows
}

/// The columns of channels: the configuration, the outbound and the inbound direction.
const COLUMNS: [(&str, ColumnAlignment); 11] = [
    ("channel", ColumnAlignment::Left),
    ("risk", ColumnAlignment::Right),
    ("out", ColumnAlignment::Left),
    ("loss out", ColumnAlignment::Right),
    ("delay", ColumnAlignment::Right),
    ("Mbit/s", ColumnAlignment::Right),
    ("", ColumnAlignment::Left),
    ("now out", ColumnAlignment::Right),
    ("in", ColumnAlignment::Left),
    ("now in", ColumnAlignment::Right),
    ("wrong", ColumnAlignment::Right),
];

fn channels(now: &TunnelStatus, before: Option<&TunnelStatus>) -> Vec<[String; 11]> {
    let known = |word: &Option<String>| word.clone().unwrap_or_else(|| UNKNOWN.to_owned());
    let channel = |(index, channel): (usize, &TunnelChannelStatus)| {
        let speed = |bytes: fn(&TunnelChannelStatus) -> u64| {
            let total = |status: &TunnelStatus| status.channels.get(index).map_or(0, bytes);
            format_number(rate(now, before, total), 1, "")
        };
        let source = channel.rate_from.as_deref().filter(|source| *source != "measured");
        [
            (index + 1).to_string(),
            format_number(channel.risk, 2, ""),
            limits::use_of(channel).map_or_else(|| known(&channel.state_out), str::to_owned),
            percent(channel.loss_out),
            format_number(channel.delay_ms, 1, " ms"),
            format_number(channel.rate_mbit, 1, ""),
            source.unwrap_or_default().to_owned(),
            speed(|channel| channel.sent_bytes),
            known(&channel.state_in),
            speed(|channel| channel.received_bytes),
            channel.wrong.to_string(),
        ]
    };
    let rows = now.channels.iter().enumerate().map(channel);
    [COLUMNS.map(|(name, _)| name.to_owned())].into_iter().chain(rows).collect()
}

/// The rate of a byte counter in Mbit/s while there is a peer.
fn rate(
    now: &TunnelStatus,
    before: Option<&TunnelStatus>,
    bytes: impl Fn(&TunnelStatus) -> u64,
) -> Option<f64> {
    let before = before.filter(|_| now.associated)?;
    rate_of((now.uptime_s, bytes(now)), Some((before.uptime_s, bytes(before))))
}

#[cfg(test)]
mod tests {
    use remicss::status::{ClosedStatus, MeasuredProperties, PredictedProperties};

    use super::*;

    /// A tunnel with one channel and no peer yet.
    fn alone() -> TunnelStatus {
        let channel = TunnelChannelStatus {
            state_out: None,
            state_in: None,
            missing_s: None,
            not_up_s: None,
            spare_s: None,
            reserve_s: None,
            shared_fate: None,
            priority: None,
            cost_per_gb: None,
            quota: None,
            risk: None,
            rate_mbit: None,
            rate_from: None,
            loss_out: None,
            delay_ms: None,
            mtu: None,
            former_mtu: None,
            black_hole_s: None,
            sent: 0,
            sent_bytes: 0,
            refused: 0,
            received: 0,
            received_bytes: 0,
            wrong: 0,
            peer: None,
            wrong_source: 0,
            wrong_token: 0,
        };
        TunnelStatus {
            device: "sunder0".into(),
            uptime_s: 1.0,
            listen: Vec::new(),
            associated: false,
            closed: None,
            achieved: MeasuredProperties::default(),
            predicted: None,
            unmet_bound: None,
            mtu: 1451,
            channels: vec![channel],
            waited: remicss::status::ReorderStatus::default(),
            dropped: DropCounts::default(),
            clients: Vec::new(),
        }
    }

    /// The cells of the lines of a page, without the first line.
    fn words(page: &str) -> Vec<Vec<&str>> {
        let lines = page.lines().skip(1).filter(|line| !line.is_empty());
        lines
            .map(|line| line.split("  ").map(str::trim).filter(|w| !w.is_empty()).collect())
            .collect()
    }

    #[test]
    fn without_a_peer_nothing_is_known() {
        let now = TunnelStatus { uptime_s: 2.0, ..alone() };
        let page = page(&now, Some(&alone()));
        for line in &words(&page)[1..9] {
            assert_eq!(line[1..], ["–", "–"], "{page}");
        }
        let channel = ["1", "–", "–", "–", "–", "–", "–", "–", "–", "0"];
        assert_eq!(words(&page)[10], channel, "{page}");
    }

    #[test]
    fn black_holes_are_named_with_their_channels() {
        let mut now = TunnelStatus { associated: true, ..alone() };
        let quiet = now.channels[0].clone();
        let hole = (Some(1400), Some(1500), Some(12.3));
        let (mtu, former_mtu, black_hole_s) = hole;
        now.channels.push(TunnelChannelStatus { mtu, former_mtu, black_hole_s, ..quiet });
        let found = problems(&now);
        let line = "channel 2 loses packets of 1500 bytes without ICMP; its path's MTU is 1400 \
                    (for 12 s): shorter packets are sent; ask who runs the path to let ICMP pass";
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), [line]);
    }

    #[test]
    fn problems_name_the_channel_and_what_to_do() {
        assert_eq!(problems(&alone())[0].text, "there is no peer");
        let up =
            TunnelChannelStatus { state_out: Some("up".into()), ..alone().channels[0].clone() };
        let down = TunnelChannelStatus {
            state_out: Some("down".into()),
            not_up_s: Some(5.0),
            ..up.clone()
        };
        let missing = TunnelChannelStatus { missing_s: Some(7.0), ..up.clone() };
        let quarantine = TunnelChannelStatus { state_in: Some("quarantine".into()), ..up.clone() };
        let channels = vec![up, down, missing, quarantine];
        let found = problems(&TunnelStatus { associated: true, channels, ..alone() });
        let texts: Vec<&str> = found.iter().map(|it| it.text.as_str()).collect();
        assert_eq!(texts[..2], ["channel 2 is down", "channel 3 is missing from the association"]);
        assert!(texts[2].starts_with("channel 4 is in quarantine"));
        assert_eq!((found[0].since_s, found[1].since_s), (Some(5.0), Some(7.0)));
        assert!(found.iter().all(|it| !it.remedy.is_empty()));
    }

    #[test]
    fn spare_channels_are_named() {
        let mut now = TunnelStatus { associated: true, ..alone() };
        now.channels[0].spare_s = Some(12.3);
        let page = page(&now, None);
        let line = "channel 1 carries too little or loses too much, so no packet waits for it (for \
                    12 s): improve its path, or plan without it: sunder plan";
        let found = problems(&now);
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), [line]);
        assert_eq!(words(&page)[10][..3], ["1", "–", "spare"], "{page}");
    }

    #[test]
    fn strangers_are_named_with_their_channels() {
        let mut now = alone();
        let quiet = now.channels[0].clone();
        now.channels = vec![quiet.clone(), TunnelChannelStatus { wrong_token: 7, ..quiet.clone() }];
        now.channels.push(TunnelChannelStatus { wrong_source: 5, wrong_token: 1, ..quiet });
        (now.dropped.wrong_source, now.dropped.wrong_token) = (5, 8);
        let shown = page(&now, None);
        let expected = "dropped: 5 (from other addresses than the peer's on channel 3), \
                        8 (wrong tokens on channels 2 and 3)";
        assert_eq!(shown.lines().last(), Some(expected), "{shown}");
    }

    #[test]
    fn a_closed_host_is_shown() {
        let closed = Some(ClosedStatus { closed_s: 90.4, in_force: true });
        let mut now = TunnelStatus { associated: true, closed, ..alone() };
        let shown = page(&now, None);
        assert_eq!(
            shown.lines().next(),
            Some("sunder0  associated, running for 1 s, closed for 90 s")
        );
        assert_eq!(problems(&now), []);
        now.closed = Some(ClosedStatus { closed_s: 90.4, in_force: false });
        assert!(problems(&now)[0].text.contains("packets may leave in the clear"));
    }

    #[test]
    fn a_channel_that_is_missing_is_named() {
        let mut now = TunnelStatus { associated: true, uptime_s: 20.0, ..alone() };
        let missing = TunnelChannelStatus {
            state_out: Some("missing".into()),
            state_in: Some("missing".into()),
            missing_s: Some(12.3),
            ..now.channels[0].clone()
        };
        now.channels.push(missing);
        let page = page(&now, None);
        let line = page.lines().next().unwrap();
        let expected = "sunder0  associated without channel 2 for 12 s, running for 20 s";
        assert_eq!(line, expected, "{page}");
        assert_eq!(words(&page)[11][..3], ["2", "–", "missing"], "{page}");
    }

    #[test]
    fn both_directions_of_a_channel_are_shown() {
        let before = TunnelStatus { associated: true, ..alone() };
        let mut now = TunnelStatus { uptime_s: 2.0, ..before.clone() };
        now.achieved.loss_out = Some(0.01);
        now.achieved.loss_in = Some(0.02);
        now.predicted = Some(PredictedProperties {
            kappa: 2.0,
            mu: 3.0,
            risk: None,
            loss_out: 0.03,
            delay_ms: 4.0,
            rate_mbit: 50.0,
            cost_per_gb: None,
        });
        let channel = &mut now.channels[0];
        channel.state_out = Some("up".into());
        channel.state_in = Some("quarantine".into());
        channel.risk = Some(0.25);
        channel.rate_mbit = Some(9.7);
        channel.loss_out = Some(0.125);
        channel.delay_ms = Some(3.0);
        (channel.sent_bytes, channel.received_bytes, channel.wrong) = (1_000_000, 500_000, 17);
        let marks = [("guess", &["guess"][..]), ("set", &["set"]), ("at least", &["at least"])];
        for (source, mark) in marks.into_iter().chain([("measured", &[][..])]) {
            now.channels[0].rate_from = Some(source.into());
            let page = page(&now, Some(&before));
            let lines = words(&page);
            assert_eq!(lines[4], ["loss out", "1.00 %", "3.00 %"], "{page}");
            assert_eq!(lines[5], ["loss in", "2.00 %", "–"], "{page}");
            let known = ["1", "0.25", "up", "12.50 %", "3.0 ms", "9.7"];
            let rest = ["8.0", "quarantine", "4.0", "17"];
            assert_eq!(lines[10], [&known, mark, &rest].concat(), "{page}");
        }
    }
}
