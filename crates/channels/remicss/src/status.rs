//! The status of one end of a tunnel: one JSON document, for people and scripts.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use crate::protocol::control::quota::QuotaPeriod;
use crate::protocol::control::quota::is_nearly_used_up;

/// The status of one end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunnelStatus {
    /// The tunnel's device.
    pub device: String,
    /// The time since the start, in seconds.
    pub uptime_s: f64,
    /// The addresses on which a server listens. Empty at a client.
    #[serde(default)]
    pub listen: Vec<SocketAddr>,
    /// Whether the ends are associated.
    pub associated: bool,
    /// Whether only the tunnel may reach its networks (`fail_closed`). Absent if not.
    pub closed: Option<ClosedStatus>,
    /// Measured means since the association began.
    pub achieved: MeasuredProperties,
    /// The model's values for the current plan; absent if there is none.
    pub predicted: Option<PredictedProperties>,
    /// The configured bound that no schedule keeps, and the best possible value. Absent if all are
    /// kept.
    pub unmet_bound: Option<String>,
    /// The MTU of the tunnel's device, in bytes.
    pub mtu: usize,
    /// The channels, in the configuration's order.
    pub channels: Vec<TunnelChannelStatus>,
    /// Symbols that waited in the reorder buffer.
    pub waited: ReorderStatus,
    /// Dropped packets and datagrams, by reason.
    pub dropped: DropCounts,
    /// At a server with several clients: the clients, in the configuration's order. Then the values
    /// above are of all clients together, and those of plans and estimates are absent. Empty if
    /// there is one peer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<TunnelClientStatus>,
}

/// The status of one client of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunnelClientStatus {
    /// Its name.
    pub name: String,
    /// Its networks.
    pub networks: Vec<String>,
    /// How long it has been associated, in seconds. Absent if it is not.
    pub associated_s: Option<f64>,
    /// Measured means since its association began.
    pub achieved: MeasuredProperties,
    /// The model's values for the current plan; absent if there is none.
    pub predicted: Option<PredictedProperties>,
    /// The configured bound that no schedule keeps. Absent if all are kept.
    pub unmet_bound: Option<String>,
    /// The channels, in the configuration's order.
    pub channels: Vec<TunnelChannelStatus>,
    /// Symbols that waited in the reorder buffer.
    pub waited: ReorderStatus,
    /// Dropped packets and datagrams, by reason.
    pub dropped: DropCounts,
}

/// The rules that keep packets for the tunnel from leaving another way.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClosedStatus {
    /// How long this host has been closed, in seconds, over restarts of the tunnel.
    pub closed_s: f64,
    /// Whether the rules are in force: another program may have removed them, and the kernel may
    /// refuse them since.
    pub in_force: bool,
}

/// Symbols that waited in the reorder buffer, by the reason for which they left it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReorderStatus {
    /// The current reorder window, in ms.
    pub window_ms: f64,
    /// Released when they had taken as long as symbols over the slowest channels in use.
    #[serde(default)]
    pub delayed: u64,
    /// Released after the symbol that they waited for.
    pub in_order: u64,
    /// Released because the symbol that they waited for was known to be lost.
    pub after_loss: u64,
    /// Released at the end of the window.
    pub after_time: u64,
    /// Released early to make room for others.
    pub for_room: u64,
}

/// Measured values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredProperties {
    /// The mean threshold of the symbols that were sent. Absent if none were.
    pub kappa: Option<f64>,
    /// Their mean multiplicity.
    pub mu: Option<f64>,
    /// The proportion of packets that an adversary learns: the model's value for the thresholds and
    /// channels that were used, with the current estimates of the channels. Absent if nothing was
    /// sent, or no risk is configured.
    pub risk: Option<f64>,
    /// The proportion of this end's packets that are lost, by the model as above.
    pub loss_out: Option<f64>,
    /// The mean delay of those that arrive, in ms, by the model as above.
    pub delay_ms: Option<f64>,
    /// The price of a GB of what this end sends, by the model as above. Absent if no channel has a
    /// price.
    #[serde(default)]
    pub cost_per_gb: Option<f64>,
    /// Symbols sent.
    pub sent_symbols: u64,
    /// The bytes of packets in them.
    pub sent_bytes: u64,
    /// Symbols received and verified.
    pub received_symbols: u64,
    /// The bytes of packets in them.
    pub received_bytes: u64,
    /// The proportion of the peer's symbols that did not arrive, as counted. Absent if none
    /// arrived.
    pub loss_in: Option<f64>,
}

/// The model's values for what this end sends by the current plan.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictedProperties {
    /// The mean threshold.
    pub kappa: f64,
    /// The mean multiplicity.
    pub mu: f64,
    /// The proportion of packets that an adversary learns. Absent if no risk is configured.
    pub risk: Option<f64>,
    /// The proportion of packets that are lost.
    pub loss_out: f64,
    /// The mean delay of the packets that arrive, in ms.
    pub delay_ms: f64,
    /// The highest rate, in Mbit/s of IP packets on the channels.
    pub rate_mbit: f64,
    /// The price of a GB. Absent if no channel has a price.
    #[serde(default)]
    pub cost_per_gb: Option<f64>,
}

/// What is used of a channel's quota.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuotaStatus {
    /// The quota: the bytes of IP packets in both directions.
    pub bytes: u64,
    /// Whether it is that of a `month` or of a `day`, in UTC.
    pub period: QuotaPeriod,
    /// The bytes that were used since the month or day began.
    pub used_bytes: u64,
    /// How long it has been used up, in seconds. Absent if it is not.
    pub used_up_s: Option<f64>,
}

impl QuotaStatus {
    /// Whether 80 % of it is used, or more.
    pub fn is_nearly_used_up(&self) -> bool {
        is_nearly_used_up(self.used_bytes, self.bytes)
    }
}

/// The status of one channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TunnelChannelStatus {
    /// The state for what this end sends, as the peer reports it: `up`, `down` or `quarantine`; or
    /// `missing` from the association. Absent without a peer.
    pub state_out: Option<String>,
    /// The state for what this end receives, as it sees it.
    pub state_in: Option<String>,
    /// How long it has been missing from the association, in seconds.
    pub missing_s: Option<f64>,
    /// How long it has been down or in quarantine in a direction, in seconds.
    pub not_up_s: Option<f64>,
    /// Since when no packet waits for it, because it would cost much rate, in seconds. It still
    /// gets a share of a packet if it is ready.
    pub spare_s: Option<f64>,
    /// Since when it is in reserve, because channels of a lower priority number are enough, in
    /// seconds.
    #[serde(default)]
    pub reserve_s: Option<f64>,
    /// The configured name of the fate that it shares with other channels.
    #[serde(default)]
    pub shared_fate: Option<String>,
    /// The configured priority. Absent if all channels have the same.
    #[serde(default)]
    pub priority: Option<u8>,
    /// The configured price of a GB. Absent if it has none.
    #[serde(default)]
    pub cost_per_gb: Option<f64>,
    /// What is used of its quota. Absent if it has none.
    #[serde(default)]
    pub quota: Option<QuotaStatus>,
    /// The configured risk. Absent if no channel has one.
    pub risk: Option<f64>,
    /// The estimated rate, in Mbit/s. Absent without a peer.
    pub rate_mbit: Option<f64>,
    /// The source of the rate: `set` in the configuration, `measured`, the initial `guess`, or `at
    /// least` if this rate was carried and no bottleneck is known.
    pub rate_from: Option<String>,
    /// The proportion of datagrams that are lost on the way to the peer. Absent until it was
    /// measured.
    pub loss_out: Option<f64>,
    /// The delay in ms: half the round trip over the fastest channels, plus this channel's delay
    /// behind the fastest. Absent until it was measured.
    pub delay_ms: Option<f64>,
    /// The MTU of its path to the peer, in bytes of IP packets. Absent until it was measured.
    pub mtu: Option<u16>,
    /// The MTU that the path had before packets of this length began to be lost. Absent if they
    /// arrive.
    pub former_mtu: Option<u16>,
    /// The time since such a packet last arrived, in seconds. Absent if they arrive.
    pub black_hole_s: Option<f64>,
    /// Datagrams sent.
    pub sent: u64,
    /// Their bytes, as IP packets.
    pub sent_bytes: u64,
    /// Datagrams that the kernel refused.
    pub refused: u64,
    /// Datagrams received.
    pub received: u64,
    /// Their bytes, as UDP payload.
    pub received_bytes: u64,
    /// Shares that were found to be wrong.
    pub wrong: u64,
    /// The peer's address. Absent without a peer.
    pub peer: Option<String>,
    /// Datagrams from other addresses, since the start.
    pub wrong_source: u64,
    /// Datagrams with wrong tokens, since the start.
    pub wrong_token: u64,
}

/// Dropped packets and datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropCounts {
    /// Packets while there was no association.
    pub unconnected: u64,
    /// Packets for which fewer channels were up than the privacy floor.
    pub below_floor: u64,
    /// Packets that exceed the MTU.
    pub too_long: u64,
    /// Packets or superpackets that the queue dropped, because the channels were too slow.
    pub queued: u64,
    /// Datagrams from other addresses than the peer's, on all channels.
    pub wrong_source: u64,
    /// Datagrams with wrong tokens, on all channels: not from the peer, or from an association that
    /// has ended.
    pub wrong_token: u64,
    /// Malformed datagrams and packets, and shares with a threshold below the floor.
    pub malformed: u64,
    /// Duplicate datagrams.
    pub duplicate: u64,
    /// Symbols whose tag did not match, and that could not be recovered from other shares.
    pub tampered: u64,
    /// Shares that were not joined, because too many joins had failed recently.
    pub unjoined: u64,
    /// Packets whose source address the peer may not use.
    pub not_allowed: u64,
    /// Packets that the tunnel's device refused.
    pub undelivered: u64,
    /// Packets of a client for another client.
    #[serde(default)]
    pub between_clients: u64,
    /// Packets from the device for no client.
    #[serde(default)]
    pub for_no_client: u64,
    /// Datagrams that no client recognised, on all channels.
    #[serde(default)]
    pub unrecognised: u64,
    /// Datagrams that were dropped because too many were of no client.
    #[serde(default)]
    pub unchecked: u64,
}
