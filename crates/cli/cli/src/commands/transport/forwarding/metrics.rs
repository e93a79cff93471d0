//! The metrics of either end of a forward.

use service::metrics::{PrometheusMetric, counter, gauge};

use super::PortForwardServiceStatus;

/// The metrics.
pub(super) const METRICS: &[PrometheusMetric<PortForwardServiceStatus>] = &[
    gauge("sunder_forward_open", "Open connections.", |forward, samples| {
        samples.add(&[], forward.status.open);
    }),
    gauge("sunder_forward_max_open", "The most open connections.", |forward, samples| {
        samples.add(&[], forward.status.max_open);
    }),
    counter("sunder_forward_total", "Connections that were forwarded.", |forward, samples| {
        samples.add(&[], forward.status.forwarded);
    }),
    counter("sunder_forward_bytes_total", "Bytes forwarded.", |forward, samples| {
        samples.add(&[("direction", &"from_clients")], forward.status.from_clients_bytes);
        samples.add(&[("direction", &"to_clients")], forward.status.to_clients_bytes);
    }),
    counter("sunder_forward_failed_total", "Connections that have failed.", |forward, samples| {
        let failed = &forward.status.failed;
        for (reason, count) in [
            ("unreachable", failed.unreachable),
            ("target", failed.target),
            ("too_many", failed.too_many),
            ("broken", failed.broken),
            ("reset", failed.reset),
            ("malformed", failed.malformed),
        ] {
            samples.add(&[("reason", &reason)], count);
        }
    }),
];
