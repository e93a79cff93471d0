//! The settings of one end.

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use model::Objective;
use serde::Deserialize;
use sharing::Rng;

/// How the threshold and the channels of each symbol are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// By the model's best schedule at full rate (IV-D, IV-E).
    #[default]
    Planned,
    /// The first m channels that are ready (V).
    Dynamic,
}

/// What the schedule is to make best, at kappa, mu and full rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// The least risk.
    #[default]
    Privacy,
    /// The least loss.
    Loss,
    /// The least delay.
    Delay,
}

impl From<Goal> for Objective {
    fn from(goal: Goal) -> Self {
        match goal {
            Goal::Privacy => Self::Risk,
            Goal::Loss => Self::Loss,
            Goal::Delay => Self::Delay,
        }
    }
}

/// Whether packets wait for those of their flow that were sent before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// As long as the channels' delays differ.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// One channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// The local address. At a client port 0, and an unspecified address where none was given.
    pub local: SocketAddr,
    /// The peer's address. At a client the server's; at a server the client's, where it is fixed, with
    /// port 0.
    pub peer: Option<SocketAddr>,
    /// The network device to use.
    pub device: Option<String>,
    /// The probability that somebody listens: z.
    pub risk: f64,
    /// What it carries of IP packets, in bit/s: r. Measured where it is not given.
    pub rate_bps: Option<u64>,
}

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end that starts.
    Client,
    /// The end that is found at known addresses.
    Server,
}

/// What an end is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Which end it is.
    pub end: End,
    /// The channels, 1 to [`MAX_CHANNELS`](crate::MAX_CHANNELS), in the same order at both ends.
    pub channels: Vec<Channel>,
    /// The mean threshold.
    pub kappa: f64,
    /// The mean multiplicity.
    pub mu: f64,
    /// What the schedule makes best.
    pub objective: Goal,
    /// How symbols' thresholds are chosen.
    pub scheduler: Choice,
    /// The privacy floor: no symbol has a lower threshold.
    pub min_threshold: u8,
    /// How many channels must work, at least, for the tunnel to begin.
    pub min_channels: u8,
    /// Whether symbols have a tag.
    pub tamper_code: bool,
    /// Where random shares come from.
    pub rng: Rng,
    /// Whether packets wait for those before them.
    pub order: Order,
    /// How much memory shares wait in for others of their symbol, for each channel, in bytes.
    pub reassembly_bytes: usize,
    /// The file with the key that is shared with the peer.
    pub key: Option<PathBuf>,
    /// At a server: whether the client's addresses may change while the tunnel runs.
    pub roaming: bool,
    /// The name of the tunnel's device.
    pub device: String,
    /// The device's own addresses.
    pub addresses: Vec<IpNet>,
    /// What is reached through the tunnel, besides its own networks.
    pub routes: Vec<IpNet>,
    /// What the peer's packets may have as their source.
    pub allowed: Vec<IpNet>,
    /// The device's MTU. Found where it is not given.
    pub mtu: Option<u16>,
}
