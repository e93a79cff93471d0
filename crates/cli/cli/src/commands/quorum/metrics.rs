//! The metrics of a server of a quorum.

use std::fmt::Display;

use quorum::links::LinkStatus;
use service::metrics::{MetricSamples, PrometheusMetric, counter, gauge};

use super::QuorumServiceStatus;

/// The metrics.
pub(super) const METRICS: &[PrometheusMetric<QuorumServiceStatus>] = &[
    gauge(
        "sunder_quorum_healthy",
        "Whether the server can sign and the agreement log makes progress.",
        |status, samples| samples.add(&[], u8::from(status.0.health.ok)),
    ),
    gauge(
        "sunder_quorum_unhealthy_seconds",
        "How long the server has been unhealthy.",
        |status, samples| samples.add(&[], status.0.health.problem_s.unwrap_or(0)),
    ),
    gauge("sunder_quorum_epoch", "The epoch whose shares it has.", |status, samples| {
        samples.add_known(&[], status.0.health.epoch);
    }),
    gauge("sunder_quorum_height", "The height of the agreement log.", |status, samples| {
        samples.add(&[], status.0.health.height);
    }),
    gauge(
        "sunder_quorum_servers_without_vote",
        "The servers of the group without a vote in the agreement log.",
        |status, samples| samples.add(&[], status.0.without_vote.len()),
    ),
    gauge(
        "sunder_quorum_waiting_seconds",
        "How long entries have waited to be committed.",
        |status, samples| samples.add(&[], status.0.health.waiting_s.unwrap_or(0)),
    ),
    counter(
        "sunder_quorum_requests_total",
        "Requests of local users for signatures.",
        |status, samples| {
            samples.add(&[("result", &"signed")], status.0.signed);
            samples.add(&[("result", &"refused")], status.0.refused);
        },
    ),
    gauge(
        "sunder_quorum_service_has_state",
        "Whether the server has the state of its replicated service.",
        |status, samples| {
            samples.add_known(&[], status.0.service.as_ref().map(|it| u8::from(it.has_state)));
        },
    ),
    counter(
        "sunder_quorum_service_requests_total",
        "Requests of local users to the replicated service.",
        |status, samples| {
            let service = status.0.service.as_ref();
            samples.add_known(&[("result", &"answered")], service.map(|it| it.answered));
            samples.add_known(&[("result", &"refused")], service.map(|it| it.refused));
        },
    ),
    gauge(
        "sunder_quorum_service_waiting_requests",
        "Requests of local users to the replicated service without a signed answer.",
        |status, samples| {
            samples.add_known(&[], status.0.service.as_ref().map(|it| it.waiting));
        },
    ),
    gauge(
        "sunder_quorum_service_log_bytes",
        "What commands have used of the server's part of the agreement log.",
        |status, samples| {
            samples.add_known(&[], status.0.service.as_ref().map(|it| it.log_bytes));
        },
    ),
    gauge(
        "sunder_quorum_service_log_limit_bytes",
        "The server's part of the agreement log. When it is used up, commands are refused.",
        |status, samples| {
            samples.add_known(&[], status.0.service.as_ref().map(|it| it.max_log_bytes));
        },
    ),
    gauge(
        "sunder_quorum_service_snapshot_bytes",
        "The length of the replicated service's state when the epoch began.",
        |status, samples| {
            samples.add_known(&[], status.0.service.as_ref().map(|it| it.snapshot_bytes));
        },
    ),
    counter(
        "sunder_quorum_wrong_answers_total",
        "How often it was proven that a server signed wrongly.",
        |status, samples| samples.add(&[], status.0.wrong_answers),
    ),
    counter(
        "sunder_quorum_sent_bytes_total",
        "Bytes of messages sent to other servers, without the overhead of encryption and TCP.",
        |status, samples| {
            let sent = status.0.sent_bytes;
            samples.add(&[("topic", &"log")], sent.log);
            samples.add(&[("topic", &"signing")], sent.signing);
            samples.add(&[("topic", &"refresh")], sent.refresh);
        },
    ),
    counter(
        "sunder_quorum_refused_messages_total",
        "Messages of a server that were malformed, forged, or not allowed.",
        |status, samples| of_links(status, samples, |link| Some(link.refused_messages)),
    ),
    counter(
        "sunder_quorum_asked_entries_total",
        "Entries of the agreement log for which a proposer was asked, because they were late.",
        |status, samples| of_links(status, samples, |link| Some(link.asked_entries)),
    ),
    counter(
        "sunder_quorum_refused_connections_total",
        "Connections whose other end has not proven the key of a server that may connect here.",
        |status, samples| samples.add(&[], status.0.refused_connections),
    ),
    gauge("sunder_quorum_link_up", "Whether there is a link with a server.", |status, samples| {
        of_links(status, samples, |link| Some(u8::from(link.up)));
    }),
    gauge(
        "sunder_quorum_link_round_trip_seconds",
        "The time from a ping to its answer.",
        |status, samples| {
            of_links(status, samples, |link| link.round_trip_ms.map(|ms| ms / 1e3));
        },
    ),
];

/// A sample for each link whose value is known.
fn of_links<T: Display>(
    status: &QuorumServiceStatus,
    samples: &mut MetricSamples<'_>,
    value: impl Fn(&LinkStatus) -> Option<T>,
) {
    for link in &status.0.links {
        samples.add_known(&[("server", &link.server)], value(link));
    }
}
