//! What the status of a tunnel shows of quotas, reserves and shared fates.

use model::channels_by_name;
use remicss::status::{QuotaStatus, TunnelChannelStatus};
use service::status::{ServiceProblem, format_age};

use crate::checks::finding::{CheckFinding, FindingSeverity};

/// Why a channel that is up is not used as others are, in a word. `None` if it is, or is not up.
pub(super) fn use_of(channel: &TunnelChannelStatus) -> Option<&'static str> {
    let is_up = channel.state_out.as_deref().is_none_or(|state| state == "up");
    if !is_up {
        None
    } else if channel.quota.is_some_and(|quota| quota.used_up_s.is_some()) {
        Some("quota")
    } else if channel.reserve_s.is_some() {
        Some("reserve")
    } else {
        channel.spare_s.map(|_| "spare")
    }
}

/// Lines on quotas and shared fates, after an empty line; empty if there are none.
pub(super) fn lines(channels: &[TunnelChannelStatus]) -> String {
    let quotas = channels.iter().enumerate().filter_map(|(index, channel)| {
        let quota = channel.quota?;
        let since = quota.used_up_s.map(|since| format!(", used up for {}", format_age(since)));
        let since = since.unwrap_or_default();
        Some(format!("channel {}: {} used{since}\n", index + 1, of_quota(&quota)))
    });
    let names = channels.iter().map(|channel| channel.shared_fate.as_deref());
    let fates = channels_by_name(names).into_iter().map(|(name, members)| {
        let numbers: Vec<String> = members.iter().map(|index| (index + 1).to_string()).collect();
        format!("channels {} share the fate {name}\n", numbers.join(" and "))
    });
    let lines: String = quotas.chain(fates).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

/// How much of a quota is used.
#[expect(clippy::cast_precision_loss, reason = "the bytes in GB")]
fn of_quota(quota: &QuotaStatus) -> String {
    let gb = |bytes: u64| bytes as f64 / 1e9;
    let (used, all) = (gb(quota.used_bytes), gb(quota.bytes));
    format!("{used:.1} of {all} GB this {}", quota.period.name())
}

/// Quotas that are used up, and those of which 80 % is used.
pub(super) fn quota_problems(channels: &[TunnelChannelStatus]) -> Vec<ServiceProblem> {
    let problem = |(index, channel): (usize, &TunnelChannelStatus)| {
        let quota = channel.quota.filter(QuotaStatus::is_nearly_used_up)?;
        let (number, used) = (index + 1, of_quota(&quota));
        let period = quota.period.name();
        Some(if quota.used_up_s.is_some() {
            let remedy = format!(
                "it is not used before the {period} ends (UTC); if there is more, raise quota_gb \
                 and reload"
            );
            let text = format!("channel {number} has used up its quota: {used}");
            ServiceProblem::new(text, quota.used_up_s, remedy)
        } else {
            let remedy = "once it is used up, the channel is left out";
            ServiceProblem::new(format!("channel {number} has used {used}"), None, remedy)
        })
    };
    channels.iter().enumerate().filter_map(problem).collect()
}

/// Channels of a higher priority number that are used.
pub(super) fn used_backups(channels: &[TunnelChannelStatus]) -> Vec<ServiceProblem> {
    let first = channels.iter().filter_map(|channel| channel.priority).min();
    let problem = |(index, channel): (usize, &TunnelChannelStatus)| {
        let priority = channel.priority.filter(|priority| Some(*priority) > first)?;
        let is_used = channel.state_out.as_deref() == Some("up")
            && use_of(channel).is_none_or(|why| why == "spare");
        let remedy = "channels of lower priority numbers are too few or cannot keep the bounds: \
                      see the other problems";
        let text = format!("channel {} of priority {priority} is used", index + 1);
        is_used.then(|| ServiceProblem::new(text, None, remedy))
    };
    channels.iter().enumerate().filter_map(problem).collect()
}

/// The quotas of the running tunnel, for `sunder doctor`.
pub(super) fn findings(channels: &[TunnelChannelStatus]) -> Vec<CheckFinding> {
    let problems = quota_problems(channels).into_iter();
    let finding = |problem: ServiceProblem| {
        CheckFinding::new(FindingSeverity::Warning, "quota_gb", problem.text, problem.remedy)
    };
    problems.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use remicss::status::QuotaPeriod;

    use super::*;

    fn channel(more: &str) -> TunnelChannelStatus {
        let text = format!(
            r#"{{"state_out":"up","state_in":"up","sent":0,"sent_bytes":0,"refused":0,"received":0,
            "received_bytes":0,"wrong":0,"wrong_source":0,"wrong_token":0{more}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn with_quota(used_bytes: u64, used_up_s: Option<f64>) -> TunnelChannelStatus {
        let quota = QuotaStatus {
            bytes: 50_000_000_000,
            period: QuotaPeriod::Month,
            used_bytes,
            used_up_s,
        };
        TunnelChannelStatus { quota: Some(quota), ..channel("") }
    }

    #[test]
    fn quotas_are_shown_and_named_when_little_is_left() {
        let channels = [
            with_quota(39_000_000_000, None),
            with_quota(41_200_000_000, None),
            with_quota(50_100_000_000, Some(7200.0)),
        ];
        let shown = "\nchannel 1: 39.0 of 50 GB this month used\n\
                     channel 2: 41.2 of 50 GB this month used\n\
                     channel 3: 50.1 of 50 GB this month used, used up for 2 h\n";
        assert_eq!(lines(&channels), shown);
        assert_eq!(channels.each_ref().map(use_of), [None, None, Some("quota")]);
        let problems = quota_problems(&channels);
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "channel 2 has used 41.2 of 50 GB this month: once it is used up, the channel is \
                 left out",
                "channel 3 has used up its quota: 50.1 of 50 GB this month (for 2 h): it is not \
                 used before the month ends (UTC); if there is more, raise quota_gb and reload",
            ]
        );
        assert_eq!(findings(&channels).len(), 2);
    }

    #[test]
    fn a_backup_that_is_used_is_a_problem() {
        let first = channel(r#","priority":1"#);
        let (reserve, used) =
            (channel(r#","priority":2,"reserve_s":5.0"#), channel(r#","priority":2"#));
        assert_eq!(use_of(&reserve), Some("reserve"));
        assert_eq!(used_backups(&[first.clone(), reserve]), []);
        let problems = used_backups(&[first, used]);
        assert_eq!(problems[0].text, "channel 2 of priority 2 is used");
    }

    #[test]
    fn shared_fates_are_shown() {
        let of = |name: &str| channel(&format!(r#","shared_fate":"{name}""#));
        let channels = [of("north"), channel(""), of("north")];
        assert_eq!(lines(&channels), "\nchannels 1 and 3 share the fate north\n");
        assert_eq!(lines(&[channel("")]), "");
    }
}
