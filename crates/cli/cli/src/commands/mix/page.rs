//! The page that `sunder status` shows for a proxy of mix-in-place.

use console::table::{ColumnAlignment, aligned};
use mix::proxy::{
    AuditFailedMemberStatus, MixProxyStatus, ProxyGroupStatus, ProxyLoadStatus,
    UnwrittenStateStatus,
};
use service::status::ServiceProblem;

use crate::commands::status::{format_number, rate};

const SIDES: [ColumnAlignment; 11] = [
    ColumnAlignment::Left,
    ColumnAlignment::Right,
    ColumnAlignment::Right,
    ColumnAlignment::Right,
    ColumnAlignment::Right,
    ColumnAlignment::Right,
    ColumnAlignment::Right,
    ColumnAlignment::Right,
    ColumnAlignment::Right,
    ColumnAlignment::Right,
    ColumnAlignment::Right,
];

/// The page, with the rates since `before`.
pub(super) fn page(now: &MixProxyStatus, before: Option<&MixProxyStatus>) -> String {
    let head = format!(
        "mix {}  {}, running for {:.0} s{}\nproxy_key {}\n",
        now.name,
        now.listen,
        now.uptime_s,
        load(now, before),
        now.key
    );
    let titles = [
        "group",
        "members",
        "connected",
        "took part",
        "joins",
        "round",
        "ms",
        "audits",
        "in",
        "out",
        "today",
    ];
    let mut rows = vec![titles.map(str::to_owned)];
    rows.extend(now.groups.iter().map(|group| row(group, now.uptime_s, before)));
    format!("{head}\n{}", aligned(&SIDES, &rows))
}

/// The part of the processors that the process has used since `before` or its start, and its
/// memory.
fn load(now: &MixProxyStatus, before: Option<&MixProxyStatus>) -> String {
    let ProxyLoadStatus { processor_s, processors, memory_bytes } = &now.load;
    let (since_s, used_s) = before.map_or((0.0, 0.0), |it| (it.uptime_s, it.load.processor_s));
    let available_s = (now.uptime_s - since_s) * f64::from(*processors);
    if available_s <= 0.0 {
        return String::new();
    }
    let share = 100.0 * (processor_s - used_s) / available_s;
    let memory = memory_bytes.map(|bytes| format!(", {} MiB", bytes >> 20)).unwrap_or_default();
    format!(", {share:.0} % of {processors} processors{memory}")
}

/// What is wrong with a proxy, and what to do.
pub(super) fn problems(now: &MixProxyStatus) -> Vec<ServiceProblem> {
    let unwritten = now.groups.iter().filter_map(|group| {
        let UnwrittenStateStatus { for_s, why } = group.unwritten.as_ref()?;
        let what = format!("group {} cannot write its state: {why}", group.name);
        let remedy = "free some space; do not restart before, or members have to wait";
        Some(ServiceProblem::new(what, Some(*for_s), remedy))
    });
    let found = now.groups.iter().flat_map(|group| {
        group.found.iter().map(|AuditFailedMemberStatus { key, round, is_left_out }| {
            let name = &group.name;
            let until = if *is_left_out { ", and is left out until the next epoch" } else { "" };
            let what = format!(
                "group {name}: the member {key} has written into slots of others in round \
                 {round}{until}"
            );
            ServiceProblem::new(what, None, "the administrator should remove this member")
        })
    });
    let not_kept = now.groups.iter().filter_map(|group| {
        let UnwrittenStateStatus { for_s, why } = group.kept.as_ref()?.unwritten.as_ref()?;
        let what = format!("group {} cannot keep rounds: {why}", group.name);
        let remedy = "free some space; members that are away miss messages until then";
        Some(ServiceProblem::new(what, Some(*for_s), remedy))
    });
    unwritten.chain(not_kept).chain(found).collect()
}

fn row(group: &ProxyGroupStatus, uptime_s: f64, before: Option<&MixProxyStatus>) -> [String; 11] {
    let earlier = before.and_then(|before| {
        let group = before.groups.iter().find(|other| other.name == group.name)?;
        Some((before.uptime_s, group))
    });
    let passed = |bytes: fn(&ProxyGroupStatus) -> u64| {
        let before = earlier.map(|(uptime_s, group)| (uptime_s, bytes(group)));
        format_number(rate((uptime_s, bytes(group)), before), 2, " Mbit/s")
    };
    [
        group.name.clone(),
        format!("{} of {}", group.members, group.max_members),
        group.connected.to_string(),
        group.participants.to_string(),
        group.joins_waiting.to_string(),
        group.round.to_string(),
        format!("{:.0}", group.round_ms),
        audits(group),
        passed(|group| group.received_bytes),
        passed(|group| group.sent_bytes),
        format!("{}.{} MB", group.today_bytes / 1_000_000, group.today_bytes / 100_000 % 10),
    ]
}

/// How many audits there were, and how many of them were not passed.
fn audits(group: &ProxyGroupStatus) -> String {
    let ProxyGroupStatus {
        audits_passed, audits_failed, audits_disputed, audits_abandoned, ..
    } = group;
    let others = audits_failed + audits_disputed + audits_abandoned;
    format!("{others} of {}", audits_passed + others)
}

#[cfg(test)]
mod tests {
    use mix::proxy::RoundDelayStatus;

    use super::*;

    #[test]
    fn a_page_has_a_row_for_each_group() {
        let group = ProxyGroupStatus {
            name: "friends".into(),
            engine: "ot".into(),
            epoch: 2,
            round: 70,
            members: 3,
            max_members: 16,
            connected: 2,
            connections: 3,
            participants: 2,
            joins_waiting: 1,
            late_members: 0,
            round_ms: 200.4,
            received_bytes: 1_500_000,
            sent_bytes: 0,
            today_bytes: 1_500_000,
            rounds: 69,
            exchanges: 138,
            late: 0,
            slow: 0,
            delays: RoundDelayStatus::default(),
            audits_passed: 7,
            audits_failed: 1,
            audits_disputed: 0,
            audits_abandoned: 2,
            found: vec![],
            kept: None,
            unwritten: None,
        };
        let earlier = ProxyGroupStatus { received_bytes: 1_000_000, ..group.clone() };
        let status = |uptime_s, group| MixProxyStatus {
            name: "office".into(),
            uptime_s,
            listen: "192.0.2.1:6700".into(),
            key: "0a".repeat(32),
            refused_connections: 0,
            load: ProxyLoadStatus {
                processor_s: uptime_s / 2.0,
                processors: 2,
                memory_bytes: Some(9 << 20),
            },
            groups: vec![group],
        };
        let shown = page(&status(12.0, group.clone()), Some(&status(10.0, earlier)));
        assert_eq!(shown.lines().count(), 5);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(
            lines[0],
            "mix office  192.0.2.1:6700, running for 12 s, 25 % of 2 processors, 9 MiB"
        );
        let words: Vec<&str> = lines[4].split_whitespace().collect();
        assert_eq!(words[..8], ["friends", "3", "of", "16", "2", "2", "1", "70"]);
        assert_eq!(words[8..12], ["200", "3", "of", "10"]);
        assert_eq!(words[12..], ["2.00", "Mbit/s", "0.00", "Mbit/s", "1.5", "MB"]);
        let why = "state /s/friends.group: no space".to_owned();
        let key = "0b".repeat(32);
        let found = vec![AuditFailedMemberStatus { key, round: 9, is_left_out: true }];
        let unwritten = Some(UnwrittenStateStatus { for_s: 9.6, why });
        let found = problems(&status(12.0, ProxyGroupStatus { found, unwritten, ..group }));
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        let expected =
            "group friends cannot write its state: state /s/friends.group: no space (for 10 s): ";
        assert!(texts[0].starts_with(expected), "{texts:?}");
        let expected = "has written into slots of others in round 9, and is left out until";
        assert!(texts[1].contains(expected), "{texts:?}");
    }
}
