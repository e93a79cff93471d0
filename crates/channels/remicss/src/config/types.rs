//! The settings of one end.

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use model::ScheduleObjective;
use random::RandomSource;
use service::remote_address::RemoteAddress;

pub use crate::protocol::control::quota::{ChannelQuota, QuotaPeriod};
pub use crate::protocol::send::bounds::PlanBounds;
use crate::protocol::send::spare::PlanPreference;

/// How the threshold and the channels of each symbol are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedulerKind {
    /// By the model's best schedule at full rate (IV-D, IV-E).
    #[default]
    Planned,
    /// The first m channels that are ready (V).
    Dynamic,
}

/// What the schedule minimises, at kappa, mu and, except for the price, full rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanObjective {
    /// The risk.
    #[default]
    Privacy,
    /// The loss.
    Loss,
    /// The delay.
    Delay,
    /// The price, at any rate within the bounds.
    Cost,
}

impl From<PlanObjective> for ScheduleObjective {
    fn from(goal: PlanObjective) -> Self {
        match goal {
            PlanObjective::Privacy => Self::Risk,
            PlanObjective::Loss => Self::Loss,
            PlanObjective::Delay => Self::Delay,
            PlanObjective::Cost => Self::Cost,
        }
    }
}

/// Whether packets are delivered in the order in which they were sent, within their flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketOrder {
    /// In order, with equal delays, and a reorder window that follows the spread of the channels'
    /// delays.
    #[default]
    Auto,
    /// Not in order.
    Off,
}

/// The configuration of one channel.
#[derive(Clone, Debug, PartialEq)]
pub struct TunnelChannelConfig {
    /// The local address. At a client the port is 0, and the address is unspecified if none is
    /// configured.
    pub local: SocketAddr,
    /// The peer's address. At a client: the server's, unless it has a name. At a server: the
    /// client's, with port 0, if it is configured.
    pub peer: Option<SocketAddr>,
    /// At a client: the server's address, or the name that has it.
    pub server: Option<RemoteAddress>,
    /// The network device to bind to.
    pub device: Option<String>,
    /// The probability z that an adversary reads the channel, 0 to 1.
    pub risk: f64,
    /// The rate r in bit/s of IP packets. It is measured if it is not configured.
    pub rate_bps: Option<u64>,
    /// The expected loss l, for plans without a tunnel. The tunnel measures it.
    pub expected_loss: Option<f64>,
    /// The expected delay d in ms, for plans without a tunnel. The tunnel measures it.
    pub expected_delay_ms: Option<f64>,
    /// The name of the fate that it shares with all channels of this name.
    pub shared_fate: Option<String>,
    /// The price of a GB, in any currency.
    pub cost_per_gb: f64,
    /// Its priority, from 1. A channel of a higher number is in reserve.
    pub priority: u8,
    /// What it may carry, if that is limited.
    pub quota: Option<ChannelQuota>,
}

/// A client of a server with several clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelClientConfig {
    /// Its name in the status and the log.
    pub name: String,
    /// The file with the key that is shared with it.
    pub key: PathBuf,
    /// The networks from which it may send, and whose packets are for it. They do not overlap those
    /// of other clients, and do not contain an address of this end.
    pub networks: Vec<IpNet>,
}

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelEnd {
    /// The end that connects.
    Client,
    /// The end that listens.
    Server,
}

/// The configuration of one end.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub struct TunnelConfig {
    /// Which end it is.
    pub end: TunnelEnd,
    /// The channels, 1 to [`MAX_CHANNELS`](crate::MAX_CHANNELS), in the same order at both ends.
    pub channels: Vec<TunnelChannelConfig>,
    /// The mean threshold, 1 to the number of channels.
    pub kappa: f64,
    /// The mean multiplicity, kappa to the number of channels.
    pub mu: f64,
    /// What the schedule minimises, the most important first.
    pub objectives: Vec<PlanObjective>,
    /// What is sacrificed if redundancy costs much rate.
    pub prefer: PlanPreference,
    /// The bounds of schedules.
    pub bounds: PlanBounds,
    /// How symbols' thresholds are chosen.
    pub scheduler: SchedulerKind,
    /// The privacy floor f: no symbol is sent with a lower threshold.
    pub min_threshold: u8,
    /// The number of channels that must work for the tunnel to start.
    pub min_channels: u8,
    /// Whether symbols have a tag.
    pub tamper_code: bool,
    /// The source of random shares.
    pub rng: RandomSource,
    /// Whether packets are kept in order.
    pub order: PacketOrder,
    /// The memory for shares that wait for others of their symbol, in bytes for each channel.
    pub reassembly_bytes: usize,
    /// The file that keeps what is used of quotas.
    pub quota_file: Option<PathBuf>,
    /// The file with the key that is shared with the peer.
    pub key: Option<PathBuf>,
    /// At a server: whether the client's addresses may change while the tunnel runs.
    pub roaming: bool,
    /// The name of the tunnel's device.
    pub device: String,
    /// The device's own addresses.
    pub addresses: Vec<IpNet>,
    /// The networks that are reached through the tunnel, besides those of its addresses.
    pub routes: Vec<IpNet>,
    /// Whether the networks of `addresses` and `routes` are reached through the tunnel only, even
    /// while it does not run.
    pub fail_closed: bool,
    /// With `fail_closed`: the networks in `routes` that are reached without the tunnel.
    pub direct: Vec<IpNet>,
    /// The networks that the peer may use as source addresses. Not used if there are `clients`.
    pub allowed: Vec<IpNet>,
    /// At a server with several clients: the clients. Empty if there is one peer.
    pub clients: Vec<TunnelClientConfig>,
    /// Whether clients may send packets to each other.
    pub between_clients: bool,
    /// The device's MTU in bytes. It is discovered if it is not configured.
    pub mtu: Option<u16>,
}

impl TunnelChannelConfig {
    /// The name of the server, if one is configured.
    pub fn server_name(&self) -> Option<&str> {
        self.server.as_ref().and_then(RemoteAddress::name)
    }
}

impl TunnelConfig {
    /// The networks that are reached through the tunnel: those of its addresses and clients, and
    /// `routes`.
    pub fn networks(&self) -> impl Iterator<Item = IpNet> {
        let own = self.addresses.iter().map(IpNet::trunc).chain(self.routes.iter().copied());
        own.chain(self.clients.iter().flat_map(|client| client.networks.iter().copied()))
    }
}
