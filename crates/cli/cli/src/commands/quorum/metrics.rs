//! The metrics of a server of a quorum.

use service::metrics::{PrometheusMetric, counter, gauge};

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
        |status, samples| {
            for link in &status.0.links {
                samples.add(&[("server", &link.server)], link.refused_messages);
            }
        },
    ),
    counter(
        "sunder_quorum_refused_connections_total",
        "Connections whose other end has not proven the key of a server that may connect here.",
        |status, samples| samples.add(&[], status.0.refused_connections),
    ),
    gauge("sunder_quorum_link_up", "Whether there is a link with a server.", |status, samples| {
        for link in &status.0.links {
            samples.add(&[("server", &link.server)], u8::from(link.up));
        }
    }),
    gauge(
        "sunder_quorum_link_round_trip_seconds",
        "The time from a ping to its answer.",
        |status, samples| {
            for link in &status.0.links {
                let seconds = link.round_trip_ms.map(|milliseconds| milliseconds / 1e3);
                samples.add_known(&[("server", &link.server)], seconds);
            }
        },
    ),
];
