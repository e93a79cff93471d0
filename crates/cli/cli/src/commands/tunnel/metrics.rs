//! The metrics of a tunnel.

use std::fmt::Display;

use remicss::status::{TunnelChannelStatus, TunnelClientStatus};
use service::metrics::{MetricSamples, PrometheusMetric, counter, gauge};

use super::TunnelServiceStatus;

/// The metrics.
pub(super) const METRICS: &[PrometheusMetric<TunnelServiceStatus>] = &[
    gauge("sunder_tunnel_associated", "Whether there is a peer.", |status, samples| {
        samples.add(&[], u8::from(status.0.associated));
    }),
    gauge(
        "sunder_tunnel_closed",
        "With fail_closed: whether only the tunnel may reach its networks.",
        |status, samples| {
            samples.add_known(&[], status.0.closed.map(|closed| u8::from(closed.in_force)));
        },
    ),
    counter(
        "sunder_tunnel_symbols_total",
        "Symbols: a packet, or several packets of one connection.",
        |status, samples| {
            let achieved = &status.0.achieved;
            both_ways(samples, achieved.sent_symbols, achieved.received_symbols);
        },
    ),
    counter("sunder_tunnel_bytes_total", "The bytes of packets.", |status, samples| {
        let achieved = &status.0.achieved;
        both_ways(samples, achieved.sent_bytes, achieved.received_bytes);
    }),
    gauge("sunder_tunnel_kappa", "The mean threshold.", |status, samples| {
        let predicted = status.0.predicted.map(|predicted| predicted.kappa);
        modelled(samples, status.0.achieved.kappa, predicted);
    }),
    gauge("sunder_tunnel_mu", "The mean multiplicity.", |status, samples| {
        let predicted = status.0.predicted.map(|predicted| predicted.mu);
        modelled(samples, status.0.achieved.mu, predicted);
    }),
    gauge(
        "sunder_tunnel_risk",
        "The proportion of packets that an adversary learns.",
        |status, samples| {
            let predicted = status.0.predicted.and_then(|predicted| predicted.risk);
            modelled(samples, status.0.achieved.risk, predicted);
        },
    ),
    counter(
        "sunder_tunnel_dropped_total",
        "Dropped packets, datagrams and shares, by reason.",
        |status, samples| {
            let dropped = &status.0.dropped;
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
                ("between_clients", dropped.between_clients),
                ("for_no_client", dropped.for_no_client),
                ("unrecognised", dropped.unrecognised),
                ("unchecked", dropped.unchecked),
            ] {
                samples.add(&[("reason", &reason)], count);
            }
        },
    ),
    gauge("sunder_tunnel_channel_up", "Whether the channel is used.", |status, samples| {
        for (number, channel) in numbered(status) {
            for (direction, state) in [("out", &channel.state_out), ("in", &channel.state_in)] {
                let labels: [(_, &dyn Display); 2] =
                    [("channel", &number), ("direction", &direction)];
                samples.add(&labels, u8::from(state.as_deref() == Some("up")));
            }
        }
    }),
    gauge(
        "sunder_tunnel_channel_missing_seconds",
        "How long the channel has been missing from the association; 0 if it belongs to it.",
        |status, samples| {
            // Without a peer, no channel has a state.
            let missing = |channel: &TunnelChannelStatus| {
                channel.state_in.as_ref().map(|_| channel.missing_s.unwrap_or_default())
            };
            of_channels(status, samples, missing);
        },
    ),
    gauge(
        "sunder_tunnel_channel_spare_seconds",
        "How long no packet has waited for the channel, because waiting would cost much rate; 0 if \
         packets wait.",
        |status, samples| {
            let spare = |channel: &TunnelChannelStatus| {
                channel.state_in.as_ref().map(|_| channel.spare_s.unwrap_or_default())
            };
            of_channels(status, samples, spare);
        },
    ),
    gauge(
        "sunder_tunnel_channel_reserve_seconds",
        "How long the channel has been in reserve because of its priority; 0 if it is not. Absent \
         if all channels have the same priority.",
        |status, samples| {
            let reserve = |channel: &TunnelChannelStatus| {
                channel.priority.map(|_| channel.reserve_s.unwrap_or_default())
            };
            of_channels(status, samples, reserve);
        },
    ),
    gauge(
        "sunder_tunnel_channel_quota_bytes",
        "The channel's quota of a day or month.",
        |status, samples| of_channels(status, samples, |channel| Some(channel.quota?.bytes)),
    ),
    gauge(
        "sunder_tunnel_channel_quota_used_bytes",
        "What is used of the channel's quota.",
        |status, samples| of_channels(status, samples, |channel| Some(channel.quota?.used_bytes)),
    ),
    gauge(
        "sunder_tunnel_channel_quota_used_up_seconds",
        "How long the channel's quota has been used up; 0 if it is not.",
        |status, samples| {
            of_channels(status, samples, |channel| {
                Some(channel.quota?.used_up_s.unwrap_or_default())
            });
        },
    ),
    gauge(
        "sunder_tunnel_cost_per_gb",
        "The price of a GB of packets, if channels have prices.",
        |status, samples| {
            let predicted = status.0.predicted.and_then(|predicted| predicted.cost_per_gb);
            modelled(samples, status.0.achieved.cost_per_gb, predicted);
        },
    ),
    gauge("sunder_tunnel_mtu_bytes", "The MTU of the device.", |status, samples| {
        samples.add(&[], status.0.mtu);
    }),
    gauge(
        "sunder_tunnel_channel_mtu_bytes",
        "The MTU of the channel's path to the peer.",
        |status, samples| of_channels(status, samples, |channel| channel.mtu),
    ),
    gauge(
        "sunder_tunnel_channel_black_hole_seconds",
        "How long the path has lost packets of a length that arrived before; 0 if it does not.",
        |status, samples| {
            let since = |channel: &TunnelChannelStatus| {
                channel.mtu.map(|_| channel.black_hole_s.unwrap_or_default())
            };
            of_channels(status, samples, since);
        },
    ),
    counter(
        "sunder_tunnel_channel_sent_bytes_total",
        "Bytes that were sent.",
        |status, samples| of_channels(status, samples, |channel| Some(channel.sent_bytes)),
    ),
    counter(
        "sunder_tunnel_channel_received_bytes_total",
        "Bytes that were received.",
        |status, samples| of_channels(status, samples, |channel| Some(channel.received_bytes)),
    ),
    counter(
        "sunder_tunnel_channel_tampered_total",
        "How often changed bytes were found on the channel.",
        |status, samples| of_channels(status, samples, |channel| Some(channel.wrong)),
    ),
    counter(
        "sunder_tunnel_channel_wrong_source_total",
        "Datagrams from other addresses than the peer's.",
        |status, samples| of_channels(status, samples, |channel| Some(channel.wrong_source)),
    ),
    counter(
        "sunder_tunnel_channel_wrong_token_total",
        "Datagrams with wrong tokens.",
        |status, samples| of_channels(status, samples, |channel| Some(channel.wrong_token)),
    ),
    gauge("sunder_tunnel_channel_rate_bits_per_second", "The rate in bit/s.", |status, samples| {
        of_channels(status, samples, |channel| channel.rate_mbit.map(|rate| rate * 1e6));
    }),
    gauge(
        "sunder_tunnel_channel_loss",
        "The proportion lost in the outbound direction.",
        |status, samples| of_channels(status, samples, |channel| channel.loss_out),
    ),
    gauge("sunder_tunnel_channel_delay_seconds", "The delay.", |status, samples| {
        of_channels(status, samples, |channel| channel.delay_ms.map(|ms| ms / 1e3));
    }),
    gauge(
        "sunder_tunnel_client_associated",
        "Of each client of a server: whether it is associated.",
        |status, samples| {
            of_clients(status, samples, |client| u8::from(client.associated_s.is_some()).into());
        },
    ),
    counter(
        "sunder_tunnel_client_bytes_total",
        "Of each client of a server: the bytes of packets.",
        |status, samples| {
            for client in &status.0.clients {
                let achieved = &client.achieved;
                for (direction, bytes) in
                    [("out", achieved.sent_bytes), ("in", achieved.received_bytes)]
                {
                    let labels: [(_, &dyn Display); 2] =
                        [("client", &client.name), ("direction", &direction)];
                    samples.add(&labels, bytes);
                }
            }
        },
    ),
    gauge(
        "sunder_tunnel_client_channels_up",
        "Of each client of a server: the number of channels that are up in both directions.",
        |status, samples| {
            of_clients(status, samples, |client| {
                let is_up = |channel: &&TunnelChannelStatus| {
                    [&channel.state_out, &channel.state_in]
                        .iter()
                        .all(|state| state.as_deref() == Some("up"))
                };
                client.channels.iter().filter(is_up).count() as u64
            });
        },
    ),
    counter(
        "sunder_tunnel_client_dropped_total",
        "Of each client of a server: packets that were dropped because of their addresses, or in its queue.",
        |status, samples| {
            for client in &status.0.clients {
                for (reason, count) in [
                    ("queued", client.dropped.queued),
                    ("not_allowed", client.dropped.not_allowed),
                    ("between_clients", client.dropped.between_clients),
                ] {
                    let labels: [(_, &dyn Display); 2] =
                        [("client", &client.name), ("reason", &reason)];
                    samples.add(&labels, count);
                }
            }
        },
    ),
    gauge(
        "sunder_tunnel_client_risk",
        "Of each client of a server: the proportion of packets to it that an adversary learns.",
        |status, samples| {
            for client in &status.0.clients {
                samples.add_known(&[("client", &client.name)], client.achieved.risk);
            }
        },
    ),
];

/// A sample for each client.
fn of_clients(
    status: &TunnelServiceStatus,
    samples: &mut MetricSamples<'_>,
    value: fn(&TunnelClientStatus) -> u64,
) {
    for client in &status.0.clients {
        samples.add(&[("client", &client.name)], value(client));
    }
}

fn both_ways(samples: &mut MetricSamples<'_>, out: u64, r#in: u64) {
    samples.add(&[("direction", &"out")], out);
    samples.add(&[("direction", &"in")], r#in);
}

fn modelled(samples: &mut MetricSamples<'_>, achieved: Option<f64>, predicted: Option<f64>) {
    samples.add_known(&[("from", &"achieved")], achieved);
    samples.add_known(&[("from", &"predicted")], predicted);
}

fn numbered(status: &TunnelServiceStatus) -> impl Iterator<Item = (usize, &TunnelChannelStatus)> {
    status.0.channels.iter().enumerate().map(|(index, channel)| (index + 1, channel))
}

/// A sample for each channel whose value is known.
fn of_channels<T: Display>(
    status: &TunnelServiceStatus,
    samples: &mut MetricSamples<'_>,
    value: fn(&TunnelChannelStatus) -> Option<T>,
) {
    for (number, channel) in numbered(status) {
        samples.add_known(&[("channel", &number)], value(channel));
    }
}
