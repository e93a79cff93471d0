//! What runs here, as Prometheus reads it.

use std::fmt::{Display, Write};

use micss::status::{ChannelState, Limits};

use crate::telling::{Named, Told};

/// What was told, in the text format.
pub(super) fn text(told: &[Told]) -> String {
    let mut metrics = Metrics::default();
    for told in told {
        let labels = format!("service=\"{}\",name=\"{}\"", told.kind(), escaped(told.name()));
        metrics.add(
            "sunder_uptime_seconds",
            GAUGE,
            "How long it has run.",
            &labels,
            told.uptime_s(),
        );
        match told {
            Told::Tunnel(status) => tunnel(&mut metrics, &labels, status),
            Told::Proxy(named) | Told::Serve(named) => streams(&mut metrics, &labels, told, named),
        }
    }
    metrics.text()
}

const GAUGE: &str = "gauge";
const COUNTER: &str = "counter";

/// The samples of each metric, which belong together, in the order of the first of each.
#[derive(Default)]
struct Metrics(Vec<Metric>);

struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: String,
}

impl Metrics {
    fn add(
        &mut self,
        name: &'static str,
        kind: &'static str,
        help: &'static str,
        labels: &str,
        value: impl Display,
    ) {
        let known = self.0.iter().position(|metric| metric.name == name);
        let place = known.unwrap_or_else(|| {
            self.0.push(Metric { name, kind, help, samples: String::new() });
            self.0.len() - 1
        });
        // Writing to a text does not fail.
        let _ = writeln!(self.0[place].samples, "{name}{{{labels}}} {value}");
    }

    fn text(&self) -> String {
        let metric = |Metric { name, kind, help, samples }: &Metric| {
            format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}")
        };
        self.0.iter().map(metric).collect()
    }
}

/// A label's value.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn streams(metrics: &mut Metrics, labels: &str, told: &Told, named: &Named) {
    let streams = &named.status.streams;
    let help = "Streams that have begun and are not over.";
    metrics.add("sunder_streams", GAUGE, help, labels, streams.under_way);
    for (end, count) in [
        ("finished", streams.finished),
        ("refused", streams.refused),
        ("broken", streams.broken),
        ("tampered", streams.tampered),
        ("over_limit", streams.over_limit),
    ] {
        let labels = format!("{labels},end=\"{end}\"");
        metrics.add("sunder_streams_total", COUNTER, "Streams that are over.", &labels, count);
    }
    if let Some(limits) = &named.status.limits {
        limited(metrics, labels, limits);
    }
    if let Some(interception) = &named.status.interception {
        let help = "Whether the rules of interception are in force.";
        let in_force = u8::from(interception.in_force);
        metrics.add("sunder_interception_in_force", GAUGE, help, labels, in_force);
        let help = "How often another program had removed or changed them.";
        let name = "sunder_interception_restored_total";
        metrics.add(name, COUNTER, help, labels, interception.restored);
    }
    for (index, channel) in named.status.channels.iter().enumerate() {
        let (number, server) = (index + 1, escaped(&channel.server));
        let labels = format!("{labels},channel=\"{number}\",server=\"{server}\"");
        let mut add = |name, kind, help, value: f64| metrics.add(name, kind, help, &labels, value);
        if channel.state != ChannelState::Unknown {
            let help = "Whether the other end answers; at a server, any that has streams.";
            let up = u8::from(channel.state == ChannelState::Up);
            add("sunder_channel_up", GAUGE, help, f64::from(up));
        }
        if let Some(seconds) = channel.state_s {
            let help = "For how long it has been up or down.";
            add("sunder_channel_state_seconds", GAUGE, help, seconds);
        }
        if matches!(told, Told::Serve(_)) {
            let help = "Clients' addresses that have streams on it.";
            add("sunder_channel_peers", GAUGE, help, count(channel.peers));
            let help = "Those of them that do not answer.";
            add("sunder_channel_peers_down", GAUGE, help, count(channel.peers_down));
        }
        let help = "Connections that wait for a stream.";
        add("sunder_channel_ready", GAUGE, help, count(channel.ready));
        let help = "Connections that were made.";
        add("sunder_channel_connections_total", COUNTER, help, count(channel.connected));
        let help = "Connections that could not be made.";
        add("sunder_channel_connect_failures_total", COUNTER, help, count(channel.unconnected));
        add("sunder_channel_sent_bytes_total", COUNTER, SENT, count(channel.sent_bytes));
        add(
            "sunder_channel_received_bytes_total",
            COUNTER,
            RECEIVED,
            count(channel.received_bytes),
        );
        let help = "How long streams have waited for this channel while another had brought more.";
        add("sunder_channel_waited_seconds_total", COUNTER, help, channel.waited_s);
        let help = "Streams that it broke off under.";
        add("sunder_channel_broken_total", COUNTER, help, count(channel.broken));
        add("sunder_channel_tampered_total", COUNTER, CHANGED, count(channel.tampered));
        if let Some(rtt_ms) = channel.rtt_ms {
            let help = "How long a round trip took.";
            add("sunder_channel_round_trip_seconds", GAUGE, help, rtt_ms / 1e3);
        }
    }
}

/// What a server's limits are, what there is, and how often they were reached.
fn limited(metrics: &mut Metrics, labels: &str, limits: &Limits) {
    for (name, help, value) in [
        ("sunder_waiting_connections", "Connections without an open stream.", limits.waiting),
        (
            "sunder_waiting_connections_max",
            "How many of these may be: max_waiting.",
            limits.max_waiting,
        ),
        ("sunder_streams_max", "How many streams may be open: max_streams.", limits.max_streams),
        (
            "sunder_record_memory_bytes",
            "What is set aside for records of open streams.",
            limits.memory_bytes,
        ),
        (
            "sunder_record_memory_max_bytes",
            "How much that may be: max_memory_mib.",
            limits.max_memory_bytes,
        ),
    ] {
        metrics.add(name, GAUGE, help, labels, value);
    }
    for (name, help, value) in [
        (
            "sunder_waiting_evicted_total",
            "Connections closed to make room for others without an open stream.",
            limits.waiting_evicted,
        ),
        (
            "sunder_unopened_evicted_total",
            "Streams among them whose request was not verified yet.",
            limits.unopened_evicted,
        ),
        (
            "sunder_turned_away_total",
            "Connections whose client asked for other terms than the server's.",
            limits.turned_away,
        ),
        (
            "sunder_streams_evicted_total",
            "Open streams that were ended to make room for those of other sources.",
            limits.streams_evicted,
        ),
        (
            "sunder_record_memory_denied_total",
            "How often there was no memory for a stream or its long records.",
            limits.out_of_memory,
        ),
    ] {
        metrics.add(name, COUNTER, help, labels, value);
    }
}

const SENT: &str = "Bytes that were sent.";
const RECEIVED: &str = "Bytes that were received.";
const CHANGED: &str = "How often it was found to carry other bytes than were sent.";

fn tunnel(metrics: &mut Metrics, labels: &str, status: &remicss::status::Status) {
    let associated = u8::from(status.associated);
    metrics.add("sunder_tunnel_associated", GAUGE, "Whether there is a peer.", labels, associated);
    let achieved = &status.achieved;
    for (direction, symbols, bytes) in [
        ("out", achieved.sent_symbols, achieved.sent_bytes),
        ("in", achieved.received_symbols, achieved.received_bytes),
    ] {
        let labels = format!("{labels},direction=\"{direction}\"");
        let help = "Packets, or several of one connection in one.";
        metrics.add("sunder_tunnel_symbols_total", COUNTER, help, &labels, symbols);
        let help = "The bytes of packets.";
        metrics.add("sunder_tunnel_bytes_total", COUNTER, help, &labels, bytes);
    }
    let predicted = status.predicted;
    for (from, kappa, mu, risk) in [
        ("achieved", achieved.kappa, achieved.mu, achieved.risk),
        (
            "predicted",
            predicted.map(|p| p.kappa),
            predicted.map(|p| p.mu),
            predicted.and_then(|p| p.risk),
        ),
    ] {
        let labels = format!("{labels},from=\"{from}\"");
        let mut add = |name, help, value: Option<f64>| {
            if let Some(value) = value {
                metrics.add(name, GAUGE, help, &labels, value);
            }
        };
        add("sunder_tunnel_kappa", "The mean threshold.", kappa);
        add("sunder_tunnel_mu", "The mean multiplicity.", mu);
        add("sunder_tunnel_risk", "The proportion of packets that an adversary learns.", risk);
    }
    let dropped = &status.dropped;
    for (reason, count) in [
        ("unconnected", dropped.unconnected),
        ("below_floor", dropped.below_floor),
        ("too_long", dropped.too_long),
        ("queued", dropped.queued),
        ("wrong_source", dropped.wrong_source),
        ("wrong_token", dropped.wrong_token),
        ("malformed", dropped.malformed),
        ("duplicate", dropped.duplicate),
        ("tampered", dropped.tampered),
        ("unjoined", dropped.unjoined),
        ("not_allowed", dropped.not_allowed),
        ("undelivered", dropped.undelivered),
    ] {
        let labels = format!("{labels},reason=\"{reason}\"");
        metrics.add(
            "sunder_tunnel_dropped_total",
            COUNTER,
            "What was not passed on.",
            &labels,
            count,
        );
    }
    for (index, channel) in status.channels.iter().enumerate() {
        tunnel_channel(metrics, &format!("{labels},channel=\"{}\"", index + 1), channel);
    }
}

fn tunnel_channel(metrics: &mut Metrics, labels: &str, channel: &remicss::status::Channel) {
    for (direction, state) in [("out", &channel.state_out), ("in", &channel.state_in)] {
        let labels = format!("{labels},direction=\"{direction}\"");
        let up = u8::from(state.as_deref() == Some("up"));
        metrics.add("sunder_tunnel_channel_up", GAUGE, "Whether it is used.", &labels, up);
    }
    // None without a peer.
    if channel.state_in.is_some() {
        let help = "How long it has been missing from the association; 0 if it is in.";
        let missing = channel.missing_s.unwrap_or_default();
        metrics.add("sunder_tunnel_channel_missing_seconds", GAUGE, help, labels, missing);
    }
    let mut add = |name, kind, help, value: f64| metrics.add(name, kind, help, labels, value);
    add("sunder_tunnel_channel_sent_bytes_total", COUNTER, SENT, count(channel.sent_bytes));
    let received = count(channel.received_bytes);
    add("sunder_tunnel_channel_received_bytes_total", COUNTER, RECEIVED, received);
    add("sunder_tunnel_channel_tampered_total", COUNTER, CHANGED, count(channel.wrong));
    let elsewhere = "Datagrams from other addresses than the peer's.";
    let source = count(channel.wrong_source);
    add("sunder_tunnel_channel_wrong_source_total", COUNTER, elsewhere, source);
    let forged = "Datagrams with wrong tokens.";
    add("sunder_tunnel_channel_wrong_token_total", COUNTER, forged, count(channel.wrong_token));
    for (name, help, value) in [
        (
            "sunder_tunnel_channel_rate_bits_per_second",
            "The rate in bit/s.",
            channel.rate_mbit.map(|r| r * 1e6),
        ),
        ("sunder_tunnel_channel_loss", "The proportion lost on the way out.", channel.loss_out),
        ("sunder_tunnel_channel_delay_seconds", "The delay.", channel.delay_ms.map(|ms| ms / 1e3)),
    ] {
        if let Some(value) = value {
            add(name, GAUGE, help, value);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn count(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use micss::status::{Channel, ChannelState, Status, Streams};

    use super::*;

    #[test]
    fn samples_of_a_metric_stand_together() {
        let channel = Channel {
            server: "[fd00::1]:6522".into(),
            state: ChannelState::Down,
            state_s: Some(2.5),
            why: Some("no answer".into()),
            peers: 0,
            peers_down: 0,
            lost: Vec::new(),
            ready: 4,
            connected: 10,
            unconnected: 1,
            sent_bytes: 12_345_678_901,
            received_bytes: 0,
            rtt_ms: Some(12.5),
            waited_s: 0.25,
            broken: 0,
            tampered: 0,
        };
        let (streams, channels) = (Streams::default(), vec![channel]);
        let limits = Some(Limits { waiting_evicted: 17, ..Limits::default() });
        let status = Status { uptime_s: 1.5, streams, limits, interception: None, channels };
        let one = Named { name: "a \"b\"".into(), status };
        let text = text(&[Told::Proxy(one.clone()), Told::Serve(one)]);
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
