//! The metrics of a proxy of mix-in-place.

use std::fmt::Display;

use mix::proxy::{ProxyGroupStatus, ROUND_DELAY_BOUNDS_MS};
use service::metrics::{MetricSamples, PrometheusMetric, counter, gauge, histogram};

use super::MixServiceStatus;

/// The metrics.
pub(super) const METRICS: &[PrometheusMetric<MixServiceStatus>] = &[
    gauge("sunder_mix_members", "Members of the epoch.", |proxy, samples| {
        of_groups(proxy, samples, |group| Some(group.members));
    }),
    gauge("sunder_mix_connected", "Members that are connected.", |proxy, samples| {
        of_groups(proxy, samples, |group| Some(group.connected));
    }),
    gauge("sunder_mix_participants", "Members that took part in a round.", |proxy, samples| {
        of_groups(proxy, samples, |group| Some(group.participants));
    }),
    gauge("sunder_mix_round_seconds", "How long the last round was open.", |proxy, samples| {
        of_groups(proxy, samples, |group| Some(group.round_ms / 1e3));
    }),
    histogram(
        "sunder_mix_round_delay_seconds",
        "From when a round was over until a member's message of the next one was written.",
        |proxy, samples| {
            for group in &proxy.0.groups {
                let bounds = ROUND_DELAY_BOUNDS_MS.map(|ms| f64::from(ms) / 1e3);
                let (counts, sum_s) = (&group.delays.counts, group.delays.sum_s);
                samples.add_histogram(&[("group", &group.name)], bounds, counts, sum_s);
            }
        },
    ),
    gauge(
        "sunder_mix_joins_waiting",
        "Requests to join that wait for the administrator.",
        |proxy, samples| {
            of_groups(proxy, samples, |group| Some(group.joins_waiting));
        },
    ),
    counter("sunder_mix_rounds_total", "Rounds that were closed.", |proxy, samples| {
        of_groups(proxy, samples, |group| Some(group.rounds));
    }),
    counter("sunder_mix_exchanges_total", "Exchanges of members, by result.", |proxy, samples| {
        for group in &proxy.0.groups {
            samples.add(&[("group", &group.name), ("result", &"done")], group.exchanges);
            samples.add(&[("group", &group.name), ("result", &"late")], group.late);
        }
    }),
    counter("sunder_mix_audits_total", "Audits of updates, by result.", |proxy, samples| {
        for group in &proxy.0.groups {
            for (result, audits) in [
                ("passed", group.audits_passed),
                ("failed", group.audits_failed),
                ("disputed", group.audits_disputed),
                ("abandoned", group.audits_abandoned),
            ] {
                samples.add(&[("group", &group.name), ("result", &result)], audits);
            }
        }
    }),
    counter("sunder_mix_bytes_total", "Bytes of messages.", |proxy, samples| {
        for group in &proxy.0.groups {
            for (direction, bytes) in
                [("received", group.received_bytes), ("sent", group.sent_bytes)]
            {
                samples.add(&[("group", &group.name), ("direction", &direction)], bytes);
            }
        }
    }),
    gauge("sunder_mix_kept_rounds", "Rounds kept for members that are away.", |proxy, samples| {
        of_groups(proxy, samples, |group| group.kept.as_ref().map(|it| it.rounds));
    }),
    gauge("sunder_mix_kept_bytes", "Bytes of these rounds.", |proxy, samples| {
        of_groups(proxy, samples, |group| group.kept.as_ref().map(|it| it.bytes));
    }),
    gauge("sunder_mix_kept_failed", "1 if rounds cannot be kept.", |proxy, samples| {
        of_groups(proxy, samples, |group| {
            group.kept.as_ref().map(|it| u64::from(it.unwritten.is_some()))
        });
    }),
    gauge(
        "sunder_mix_connections",
        "Open connections, including those of clients that are not members.",
        |proxy, samples| {
            of_groups(proxy, samples, |group| Some(group.connections));
        },
    ),
    counter(
        "sunder_mix_slow_connections_total",
        "Connections that were closed because they did not read in time.",
        |proxy, samples| {
            of_groups(proxy, samples, |group| Some(group.slow));
        },
    ),
    counter(
        "sunder_mix_refused_connections_total",
        "Connections that were closed before they named a group.",
        |proxy, samples| samples.add(&[], proxy.0.refused_connections),
    ),
    counter(
        "sunder_mix_processor_seconds_total",
        "Processor time of the proxy's process.",
        |proxy, samples| samples.add(&[], proxy.0.load.processor_s),
    ),
    gauge("sunder_mix_processors", "Processors that the proxy can use.", |proxy, samples| {
        samples.add(&[], proxy.0.load.processors);
    }),
    gauge("sunder_mix_memory_bytes", "Memory of the proxy's process.", |proxy, samples| {
        samples.add_known(&[], proxy.0.load.memory_bytes);
    }),
];

/// A sample for each group whose value is known.
fn of_groups<T: Display>(
    proxy: &MixServiceStatus,
    samples: &mut MetricSamples<'_>,
    value: impl Fn(&ProxyGroupStatus) -> Option<T>,
) {
    for group in &proxy.0.groups {
        samples.add_known(&[("group", &group.name)], value(group));
    }
}
