//! The metrics of a proxy or a server of streams.

use std::fmt::Display;

use micss::status::{
    InterceptionStatus, StreamChannelState, StreamChannelStatus, StreamServerStatus,
};
use service::metrics::{MetricSamples, PrometheusMetric, counter, gauge};

use super::StreamServiceStatus;

/// Samples a field of a part of the status that may be missing, or of each channel.
macro_rules! of {
    (udp.$field:ident) => {
        |named, samples| samples.add_known(&[], named.status.udp.map(|udp| udp.$field))
    };
    (bypass.$field:ident) => {
        |named, samples| samples.add_known(&[], named.status.bypass.map(|bypass| bypass.$field))
    };
    (limits.$field:ident) => {
        |named, samples| samples.add_known(&[], named.status.limits.map(|limits| limits.$field))
    };
    (channel.$field:ident) => {
        |named, samples| of_channels(named, samples, |channel| Some(channel.$field))
    };
}

/// The metrics.
pub(super) const METRICS: &[PrometheusMetric<StreamServiceStatus>] = &[
    gauge("sunder_streams", "Open streams.", |named, samples| {
        samples.add(&[], named.status.streams.under_way);
    }),
    gauge("sunder_streams_waiting", "Open streams that wait for a channel.", |named, samples| {
        samples.add(&[], named.status.redundancy.waiting);
    }),
    gauge(
        "sunder_streams_spare",
        "Open streams, by how many channels they can lose.",
        |named, samples| {
            for (channels, streams) in named.status.redundancy.spare.iter().enumerate() {
                samples.add(&[("channels", &channels)], streams);
            }
        },
    ),
    counter("sunder_streams_total", "Ended streams.", |named, samples| {
        let streams = &named.status.streams;
        for (end, count) in [
            ("finished", streams.finished),
            ("refused", streams.refused),
            ("broken", streams.broken),
            ("tampered", streams.tampered),
            ("over_limit", streams.over_limit),
        ] {
            samples.add(&[("end", &end)], count);
        }
    }),
    gauge("sunder_waiting_connections", "Connections without an open stream.", of!(limits.waiting)),
    gauge(
        "sunder_waiting_connections_max",
        "The limit of connections without an open stream: max_waiting.",
        of!(limits.max_waiting),
    ),
    gauge("sunder_streams_max", "The limit of open streams: max_streams.", of!(limits.max_streams)),
    gauge(
        "sunder_record_memory_bytes",
        "Memory reserved for records of open streams.",
        of!(limits.memory_bytes),
    ),
    gauge(
        "sunder_record_memory_max_bytes",
        "The limit of memory for records: max_memory_mib.",
        of!(limits.max_memory_bytes),
    ),
    counter(
        "sunder_waiting_evicted_total",
        "Connections closed to make room for others without an open stream.",
        of!(limits.waiting_evicted),
    ),
    counter(
        "sunder_unopened_evicted_total",
        "Of these, streams whose request was not verified yet.",
        of!(limits.unopened_evicted),
    ),
    counter(
        "sunder_turned_away_total",
        "Connections rejected because of the terms that the client requested.",
        of!(limits.turned_away),
    ),
    counter(
        "sunder_streams_evicted_total",
        "Open streams that were ended to make room for those of other sources.",
        of!(limits.streams_evicted),
    ),
    counter(
        "sunder_record_memory_denied_total",
        "How often there was no memory for a stream or its long records.",
        of!(limits.out_of_memory),
    ),
    gauge(
        "sunder_interception_in_force",
        "Whether the rules of interception are in force.",
        |named, samples| of_interception(named, samples, |it| u64::from(it.in_force)),
    ),
    counter(
        "sunder_interception_restored_total",
        "How often another program removed or changed the rules of interception.",
        |named, samples| of_interception(named, samples, |it| it.restored),
    ),
    gauge("sunder_udp_associations", "Open associations for UDP.", of!(udp.associations)),
    counter("sunder_udp_associations_total", "Associations for UDP.", of!(udp.opened)),
    gauge(
        "sunder_udp_intercepted",
        "Open associations for UDP that are intercepted flows.",
        of!(udp.intercepted),
    ),
    counter(
        "sunder_udp_evicted_total",
        "Intercepted flows of UDP that were ended to make room for others.",
        of!(udp.evicted),
    ),
    counter(
        "sunder_datagrams_to_channels_total",
        "Datagrams that were sent over the channels.",
        of!(udp.to_channels),
    ),
    counter(
        "sunder_datagrams_from_channels_total",
        "Datagrams that came over the channels and were sent on.",
        of!(udp.from_channels),
    ),
    counter(
        "sunder_datagrams_dropped_total",
        "Datagrams that were invalid, not allowed, or of a sender that nobody had asked.",
        of!(udp.dropped),
    ),
    gauge("sunder_bypass_open", "Open connections that leave directly.", of!(bypass.open)),
    counter("sunder_bypass_total", "Connections that left directly.", of!(bypass.opened)),
    counter(
        "sunder_bypass_failures_total",
        "Connections that should leave directly and failed.",
        of!(bypass.failed),
    ),
    gauge(
        "sunder_server_used",
        "Whether new streams use this one of several servers.",
        |named, samples| of_servers(named, samples, |server| server.is_used),
    ),
    gauge(
        "sunder_server_works",
        "Whether new streams can use this one of several servers.",
        |named, samples| of_servers(named, samples, |server| server.gone.is_none()),
    ),
    counter(
        "sunder_server_switches_total",
        "How often another server was chosen for new streams.",
        |named, samples| {
            let has_several = !named.status.servers.is_empty();
            samples.add_known(&[], has_several.then_some(named.status.server_switches));
        },
    ),
    gauge(
        "sunder_channel_up",
        "Whether the other end answers; at a server, whether any client with streams answers.",
        |named, samples| {
            let up = |channel: &StreamChannelStatus| match channel.state {
                StreamChannelState::Unknown => None,
                state => Some(u8::from(state == StreamChannelState::Up)),
            };
            of_channels(named, samples, up);
        },
    ),
    gauge(
        "sunder_channel_state_seconds",
        "How long the channel has been up or down.",
        |named, samples| of_channels(named, samples, |channel| channel.state_s),
    ),
    gauge(
        "sunder_channel_peers",
        "Client addresses with streams on the channel.",
        |named, samples| of_servers_channels(named, samples, |channel| channel.peers),
    ),
    gauge(
        "sunder_channel_peers_down",
        "Client addresses with streams on the channel that do not \
                                        answer.",
        |named, samples| {
            of_servers_channels(named, samples, |channel| channel.peers_down);
        },
    ),
    gauge("sunder_channel_ready", "Connections that wait for a stream.", of!(channel.ready)),
    counter(
        "sunder_channel_connections_total",
        "Connections that were established.",
        of!(channel.connected),
    ),
    counter(
        "sunder_channel_connect_failures_total",
        "Connections that could not be established.",
        of!(channel.unconnected),
    ),
    counter("sunder_channel_sent_bytes_total", "Bytes that were sent.", of!(channel.sent_bytes)),
    counter(
        "sunder_channel_received_bytes_total",
        "Bytes that were received.",
        of!(channel.received_bytes),
    ),
    counter(
        "sunder_channel_waited_seconds_total",
        "How long streams have waited for the channel while another had delivered more.",
        of!(channel.waited_s),
    ),
    counter("sunder_channel_broken_total", "Streams that lost the channel.", of!(channel.broken)),
    counter(
        "sunder_channel_rejoined_total",
        "Connections that replaced another one in an open stream.",
        of!(channel.rejoined),
    ),
    counter(
        "sunder_channel_tampered_total",
        "How often changed bytes were found on the channel.",
        of!(channel.tampered),
    ),
    gauge("sunder_channel_round_trip_seconds", "The round-trip time.", |named, samples| {
        of_channels(named, samples, |channel| channel.rtt_ms.map(|ms| ms / 1e3));
    }),
];

/// A sample of a client's interception.
fn of_interception(
    named: &StreamServiceStatus,
    samples: &mut MetricSamples<'_>,
    value: fn(&InterceptionStatus) -> u64,
) {
    samples.add_known(&[], named.status.interception.as_ref().map(value));
}

/// A sample for each of a client's servers, if there are several.
fn of_servers(
    named: &StreamServiceStatus,
    samples: &mut MetricSamples<'_>,
    value: fn(&StreamServerStatus) -> bool,
) {
    for (index, server) in named.status.servers.iter().enumerate() {
        samples.add(&[("server", &(index + 1))], u8::from(value(server)));
    }
}

/// A sample for each channel whose value is known.
fn of_channels<T: Display>(
    named: &StreamServiceStatus,
    samples: &mut MetricSamples<'_>,
    value: impl Fn(&StreamChannelStatus) -> Option<T>,
) {
    for (index, channel) in named.status.channels.iter().enumerate() {
        let labels: [(_, &dyn Display); 2] =
            [("channel", &(index + 1)), ("server", &channel.server)];
        samples.add_known(&labels, value(channel));
    }
}

/// A sample for each channel of a server, which is recognised by its limits.
fn of_servers_channels(
    named: &StreamServiceStatus,
    samples: &mut MetricSamples<'_>,
    value: fn(&StreamChannelStatus) -> u64,
) {
    if named.status.limits.is_some() {
        of_channels(named, samples, |channel| Some(value(channel)));
    }
}

#[cfg(test)]
mod tests {
    use micss::status::{MicssStatus, ServerLimitStatus, StreamCounts, StreamRedundancy};
    use service::metrics::Exposition;
    use service::status::ServiceStatus;

    use super::*;
    use crate::commands::streams::tests::channel;

    #[test]
    fn samples_of_a_metric_stand_together() {
        let channel = StreamChannelStatus {
            server: "[fd00::1]:6522".into(),
            state: StreamChannelState::Down,
            state_s: Some(2.5),
            why: Some("no answer".into()),
            sent_bytes: 12_345_678_901,
            rtt_ms: Some(12.5),
            waited_s: 0.25,
            ..channel()
        };
        let (streams, channels) = (StreamCounts::default(), vec![channel]);
        let limits =
            Some(ServerLimitStatus { waiting_evicted: 17, ..ServerLimitStatus::default() });
        let redundancy = StreamRedundancy { waiting: 0, spare: vec![2, 3] };
        let interception = None;
        let status = MicssStatus {
            uptime_s: 1.5,
            listen: Vec::new(),
            streams,
            redundancy,
            limits,
            interception,
            bypass: None,
            udp: None,
            servers: Vec::new(),
            server_switches: 0,
            channels,
        };
        let one = StreamServiceStatus { name: "a \"b\"".into(), status };
        let mut exposition = Exposition::default();
        one.expose("proxy", &mut exposition);
        one.expose("serve", &mut exposition);
        let text = exposition.text();
        let expected = "# HELP sunder_uptime_seconds How long it has run.\n\
             # TYPE sunder_uptime_seconds gauge\n\
             sunder_uptime_seconds{service=\"proxy\",name=\"a \\\"b\\\"\"} 1.5\n\
             sunder_uptime_seconds{service=\"serve\",name=\"a \\\"b\\\"\"} 1.5\n";
        assert!(text.starts_with(expected), "{text}");
        let line = "sunder_channel_sent_bytes_total{service=\"proxy\",name=\"a \\\"b\\\"\",\
             channel=\"1\",server=\"[fd00::1]:6522\"} 12345678901\n";
        assert!(text.contains(line), "{text}");
        let line = "sunder_waiting_evicted_total{service=\"serve\",name=\"a \\\"b\\\"\"} 17\n";
        assert!(text.contains(line), "{text}");
        for (metric, value) in [("up", "0"), ("state_seconds", "2.5")] {
            let line = format!(
                "\nsunder_channel_{metric}{{service=\"serve\",name=\"a \\\"b\\\"\",channel=\"1\",\
                 server=\"[fd00::1]:6522\"}} {value}\n"
            );
            assert!(text.contains(&line), "{text}");
        }
        for line in text.lines().filter(|line| line.starts_with("# TYPE")) {
            assert_eq!(text.matches(line).count(), 1, "{line}");
        }
    }
}
