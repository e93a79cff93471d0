//! The metrics of a relay.

use service::metrics::{PrometheusMetric, counter, gauge};

use super::RelayServiceStatus;

/// The metrics.
pub(super) const METRICS: &[PrometheusMetric<RelayServiceStatus>] = &[
    gauge("sunder_relay_waiting", "Connections that wait for another end.", |relay, samples| {
        samples.add(&[], relay.status.waiting);
    }),
    gauge("sunder_relay_pairs", "Pairs of connections.", |relay, samples| {
        samples.add(&[], relay.status.pairs);
    }),
    counter("sunder_relay_waited_total", "Connections that have waited.", |relay, samples| {
        samples.add(&[], relay.status.waited);
    }),
    counter("sunder_relay_joined_total", "Pairs that were connected.", |relay, samples| {
        samples.add(&[], relay.status.joined);
    }),
    counter(
        "sunder_relay_bytes_total",
        "Bytes forwarded to and from ends that had waited.",
        |relay, samples| {
            samples.add(&[("direction", &"to_waiting")], relay.status.to_waiting_bytes);
            samples.add(&[("direction", &"from_waiting")], relay.status.from_waiting_bytes);
        },
    ),
    counter(
        "sunder_relay_datagram_bytes_total",
        "Bytes of forwarded datagrams.",
        |relay, samples| samples.add(&[], relay.status.datagram_bytes),
    ),
    counter("sunder_relay_dropped_datagrams_total", "Dropped datagrams.", |relay, samples| {
        samples.add(&[], relay.status.dropped_datagrams);
    }),
    counter(
        "sunder_relay_refused_total",
        "Connections that were refused or ended.",
        |relay, samples| {
            let refused = &relay.status.refused;
            for (reason, count) in [
                ("silent", refused.silent),
                ("malformed", refused.malformed),
                ("unknown_token", refused.unknown_token),
                ("too_many_pairs", refused.too_many_pairs),
                ("evicted_arriving", refused.evicted_arriving),
                ("evicted_waiting", refused.evicted_waiting),
            ] {
                samples.add(&[("reason", &reason)], count);
            }
        },
    ),
];
