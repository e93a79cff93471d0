//! What a client and a server are told, read from TOML and checked in full.

pub(crate) mod intercept;

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use sharing::RandomSource;

use self::intercept::{Intercept, InterfaceError, MatchingError};
use crate::MAX_CHANNELS;
use crate::protocol::allow::Allowed;
use crate::protocol::on_lost_channel::OnLostChannel;
use crate::protocol::target::Target;
use directory::config::{ClientDirectory, RawClientDirectory, RawServerDirectory, ServerDirectory};

/// Whether changes on the channels are detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Integrity {
    /// Every record carries the tamper code.
    #[default]
    TamperCode,
    /// None, as in the paper: whoever changes one channel changes the stream unnoticed.
    None,
}

/// One channel, as the client sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Channel {
    /// The server's address on this channel.
    pub server: SocketAddr,
    /// The local address to use, which picks the network on many hosts.
    pub source: Option<IpAddr>,
    /// The network device to use.
    pub device: Option<String>,
}

/// A server as its clients know it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// The channels that lead to it, 1 to [`MAX_CHANNELS`] of them.
    pub channels: Vec<Channel>,
    /// How many channels are needed, and give everything away: k. If that is all of them, sharing is by
    /// XOR, else by Shamir's scheme, and a stream goes on as long as so many are left.
    pub threshold: u8,
}

/// Somebody who has channels of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The addresses that applications connect to, at least one.
    pub addresses: Vec<IpAddr>,
    /// What leads to it.
    pub remote: Remote,
}

/// A way out of this host, for channels to peers whose addresses come from the directory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Uplink {
    /// The local address to use.
    pub source: Option<IpAddr>,
    /// The network device to use.
    pub device: Option<String>,
}

/// A local port that leads to one service behind the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Where applications connect to.
    pub listen: SocketAddr,
    /// What they reach.
    pub target: Target,
}

/// What a client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// The server for all that is no peer's, if there is one.
    pub gateway: Option<Remote>,
    /// Those who have channels of their own. No address is in two of them.
    pub peers: Vec<Peer>,
    /// Where the addresses of others may be known, or learnt.
    pub directory: Option<ClientDirectory>,
    /// How the channels to these leave: the first by the first, and so on. Where there are none left, by the
    /// route to the address.
    pub uplinks: Vec<Uplink>,
    /// The directory of the configuration, where files are that it names.
    pub config_dir: PathBuf,
    /// Where to listen for SOCKS5.
    pub socks: Option<SocketAddr>,
    /// Fixed forwards.
    pub forwards: Vec<Forward>,
    /// Connections that are taken from the kernel.
    pub intercept: Option<Intercept>,
    /// Whether changes are detected.
    pub integrity: Integrity,
    /// Where random shares come from.
    pub rng: RandomSource,
    /// The most streams at a time.
    pub max_streams: usize,
    /// The connections that are kept ready.
    pub pool: PoolConfig,
    /// What becomes of streams when a channel is lost.
    pub lost_channel: LostChannel,
}

/// The connections that a client keeps ready for streams to come: sets of one connection a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// How many sets are made in advance.
    pub size: usize,
    /// How many are kept at most, those of finished streams included.
    pub keep: usize,
    /// How long a set is kept.
    pub idle: Duration,
}

/// What becomes of streams that need a channel which is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostChannel {
    /// Those that come.
    pub new_streams: OnLostChannel,
    /// How long those under way wait for it to come back, and new ones if they wait.
    pub timeout: Duration,
}

/// What a server is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Where to listen: an address on each channel.
    pub listen: Vec<SocketAddr>,
    /// The services that clients may ask for.
    pub allow: Vec<Allowed>,
    /// The least that is accepted: with `None`, clients may leave the tamper code out.
    pub integrity: Integrity,
    /// Where random shares come from.
    pub rng: RandomSource,
    /// The fewest channels that a stream may need, and that give everything away.
    pub min_channels: u8,
    /// The most streams at a time.
    pub max_streams: usize,
    /// The most channels that a stream may have.
    pub max_channels: u8,
    /// How long streams wait for a channel that they need and that is lost.
    pub lost_channel_timeout: Duration,
    /// The most connections without an open stream.
    pub max_waiting: usize,
    /// The most memory for the records of open streams, in bytes.
    pub max_memory: u64,
    /// What clients are told about this server's addresses.
    pub directory: Option<ServerDirectory>,
    /// The directory of the configuration, where files are that it names.
    pub config_dir: PathBuf,
}

/// Why a configuration is none.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is not TOML, or lacks a key, or has one that is unknown or of the wrong type.
    #[error("{}", one_line(.0))]
    Toml(#[from] toml::de::Error),
    /// A target is not `HOST:PORT`.
    #[error("{key} = \"{text}\": {source}")]
    Target {
        /// The key.
        key: &'static str,
        /// Its value.
        text: String,
        /// What is wrong with it.
        source: crate::protocol::target::TargetError,
    },
    /// No channels, or too many.
    #[error("{found} channels: give 1 to {MAX_CHANNELS}")]
    Channels {
        /// How many there are.
        found: usize,
    },
    /// A client without a place to listen does nothing.
    #[error("nothing to listen on: set `socks` or `intercept`, or add a [[forward]]")]
    NothingToDo,
    /// An address is two peers'.
    #[error("addresses: {text} is given twice; name each address of a peer once")]
    Twice {
        /// The address.
        text: String,
    },
    /// What connections are compared with is something else.
    #[error("intercept = \"{text}\": {source}")]
    Matching {
        /// The value.
        text: String,
        /// What is wrong with it.
        source: MatchingError,
    },
    /// What connections of other hosts come in by is no interface.
    #[error("intercept_from: \"{text}\": {source}")]
    Interface {
        /// The name.
        text: String,
        /// What is wrong with it.
        source: InterfaceError,
    },
    /// The `[directory]` is none.
    #[error(transparent)]
    Directory(#[from] directory::config::ConfigError),
    /// A number is out of its range.
    #[error("{key} = {found}: give {range}")]
    Range {
        /// The key.
        key: &'static str,
        /// Its value.
        found: usize,
        /// What is possible.
        range: &'static str,
    },
}

/// TOML's own message and place, without the drawing of the line.
fn one_line(error: &toml::de::Error) -> String {
    error.message().replace('\n', " ")
}

/// Where intercepted connections come to. Paper 001 has 6522 (III-B), but there any user of the host may listen
/// when the client does not, which keeps it from starting.
const INTERCEPT_PORT: u16 = 522;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawClient {
    #[serde(default)]
    channel: Vec<Channel>,
    threshold: Option<u8>,
    #[serde(default)]
    peer: Vec<RawPeer>,
    directory: Option<RawClientDirectory>,
    #[serde(default)]
    uplink: Vec<Uplink>,
    socks: Option<SocketAddr>,
    #[serde(default)]
    forward: Vec<RawForward>,
    intercept: Option<String>,
    intercept_port: Option<NonZero<u16>>,
    #[serde(default)]
    intercept_from: Vec<String>,
    #[serde(default)]
    integrity: Integrity,
    #[serde(default)]
    rng: RandomSource,
    max_streams: Option<usize>,
    #[serde(default)]
    on_lost_channel: OnLostChannel,
    lost_channel_timeout_s: Option<u64>,
    #[serde(default)]
    pool: RawPool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPeer {
    addresses: Vec<IpAddr>,
    channel: Vec<Channel>,
    threshold: Option<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawPool {
    size: usize,
    keep: usize,
    idle_s: u64,
}

impl Default for RawPool {
    fn default() -> Self {
        Self { size: 4, keep: 64, idle_s: 60 }
    }
}

impl RawPool {
    fn check(self) -> Result<PoolConfig, ConfigError> {
        let Self { size, keep, idle_s } = self;
        let range = |key, found, range| Err(ConfigError::Range { key, found, range });
        match (size, keep, idle_s) {
            (10_001.., ..) => range("size", size, "0 to 10000"),
            (_, 10_001.., _) => range("keep", keep, "0 to 10000"),
            // A server waits for 90 s.
            (.., 0 | 81..) => {
                range("idle_s", usize::try_from(idle_s).unwrap_or(usize::MAX), "1 to 80")
            }
            _ => Ok(PoolConfig { size, keep: keep.max(size), idle: Duration::from_secs(idle_s) }),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawForward {
    listen: SocketAddr,
    target: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawServer {
    listen: Vec<SocketAddr>,
    allow: Vec<String>,
    #[serde(default)]
    integrity: Integrity,
    #[serde(default)]
    rng: RandomSource,
    min_channels: Option<u8>,
    max_channels: Option<u8>,
    max_streams: Option<usize>,
    lost_channel_timeout_s: Option<u64>,
    max_waiting: Option<usize>,
    max_memory_mib: Option<usize>,
    directory: Option<RawServerDirectory>,
}

impl ClientConfig {
    /// Reads a client's configuration.
    ///
    /// # Errors
    /// When it is not one.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let raw: RawClient = toml::from_str(text)?;
        let peers = check_peers(raw.peer)?;
        let others = !peers.is_empty() || raw.directory.is_some();
        let is_gateway = !others || !raw.channel.is_empty() || raw.threshold.is_some();
        let gateway = is_gateway.then(|| Remote::new(raw.channel, raw.threshold)).transpose()?;
        if raw.socks.is_none() && raw.forward.is_empty() && raw.intercept.is_none() {
            return Err(ConfigError::NothingToDo);
        }
        let port = raw.intercept_port.map_or(INTERCEPT_PORT, NonZero::get);
        let interface =
            |text: String| text.parse().map_err(|source| ConfigError::Interface { text, source });
        let from: Vec<_> =
            raw.intercept_from.into_iter().map(interface).collect::<Result<_, ConfigError>>()?;
        let intercept = |text: String| match text.parse() {
            Ok(matching) => Ok(Intercept::new(matching, port, from)),
            Err(source) => Err(ConfigError::Matching { text, source }),
        };
        let forward = |RawForward { listen, target: text }| match text.parse() {
            Ok(target) => Ok(Forward { listen, target }),
            Err(source) => Err(ConfigError::Target { key: "target", text, source }),
        };
        // Nobody could tell then which channels carry other bytes than were sent.
        let could_lose = |remote: &Remote| usize::from(remote.threshold) < remote.channels.len();
        let mut remotes = gateway.iter().chain(peers.iter().map(|peer| &peer.remote));
        if raw.integrity == Integrity::None
            && let Some(remote) = remotes.find(|remote| could_lose(remote))
        {
            let found = remote.threshold.into();
            let range = "as many as there are channels, or leave out integrity = \"none\"";
            return Err(ConfigError::Range { key: "threshold", found, range });
        }
        Ok(Self {
            gateway,
            peers,
            directory: raw.directory.map(RawClientDirectory::check).transpose()?,
            uplinks: raw.uplink,
            config_dir: PathBuf::new(),
            socks: raw.socks,
            forwards: raw.forward.into_iter().map(forward).collect::<Result<_, ConfigError>>()?,
            intercept: raw.intercept.map(intercept).transpose()?,
            integrity: raw.integrity,
            rng: raw.rng,
            max_streams: check_max_streams(raw.max_streams)?,
            pool: raw.pool.check()?,
            lost_channel: LostChannel {
                new_streams: raw.on_lost_channel,
                timeout: check_lost_channel_timeout(raw.lost_channel_timeout_s)?,
            },
        })
    }

    /// All servers that it knows, the gateway first.
    pub fn remotes(&self) -> impl Iterator<Item = &Remote> {
        self.gateway.iter().chain(self.peers.iter().map(|peer| &peer.remote))
    }
}

impl Remote {
    fn new(channels: Vec<Channel>, threshold: Option<u8>) -> Result<Self, ConfigError> {
        let all = check_channels(channels.len())?;
        let threshold = threshold.unwrap_or(all);
        if !(1..=all).contains(&threshold) {
            let found = usize::from(threshold);
            let range = "1 to as many as there are channels";
            return Err(ConfigError::Range { key: "threshold", found, range });
        }
        Ok(Self { channels, threshold })
    }
}

impl ServerConfig {
    /// Reads a server's configuration.
    ///
    /// # Errors
    /// When it is not one.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let raw: RawServer = toml::from_str(text)?;
        let listeners = check_channels(raw.listen.len())?;
        let min_channels = raw.min_channels.unwrap_or(2);
        if !(1..=MAX_CHANNELS).contains(&min_channels) {
            let found = usize::from(min_channels);
            return Err(ConfigError::Range { key: "min_channels", found, range: "1 to 16" });
        }
        // Clients of a server with one address may have several ways to it.
        let max_channels = raw.max_channels.unwrap_or(listeners.max(min_channels));
        if !(min_channels..=MAX_CHANNELS).contains(&max_channels) {
            let (key, found, range) = ("max_channels", max_channels.into(), "min_channels to 16");
            return Err(ConfigError::Range { key, found, range });
        }
        let allow = |text: String| {
            let key = "allow";
            text.parse().map_err(|source| ConfigError::Target { key, text, source })
        };
        let directory = raw.directory.map(|directory| directory.check(&raw.listen)).transpose()?;
        Ok(Self {
            directory,
            config_dir: PathBuf::new(),
            listen: raw.listen,
            allow: raw.allow.into_iter().map(allow).collect::<Result<_, ConfigError>>()?,
            integrity: raw.integrity,
            rng: raw.rng,
            min_channels,
            max_streams: check_max_streams(raw.max_streams)?,
            max_channels,
            lost_channel_timeout: check_lost_channel_timeout(raw.lost_channel_timeout_s)?,
            max_waiting: match raw.max_waiting.unwrap_or(8192) {
                found @ 64..=1_000_000 => found,
                found => {
                    let range = "64 to 1000000";
                    return Err(ConfigError::Range { key: "max_waiting", found, range });
                }
            },
            max_memory: match raw.max_memory_mib.unwrap_or(512) {
                found @ 16..=1_000_000 => (found as u64) << 20,
                found => {
                    let range = "16 to 1000000";
                    return Err(ConfigError::Range { key: "max_memory_mib", found, range });
                }
            },
        })
    }
}

fn check_peers(raw: Vec<RawPeer>) -> Result<Vec<Peer>, ConfigError> {
    let mut known = HashSet::new();
    let check = |RawPeer { addresses, channel, threshold }: RawPeer| {
        if addresses.is_empty() {
            return Err(ConfigError::Range { key: "addresses", found: 0, range: "1 or more" });
        }
        match addresses.iter().find(|address| !known.insert(address.to_canonical())) {
            Some(address) => Err(ConfigError::Twice { text: address.to_string() }),
            None => Ok(Peer { addresses, remote: Remote::new(channel, threshold)? }),
        }
    };
    raw.into_iter().map(check).collect()
}

/// How many channels there are.
fn check_channels(found: usize) -> Result<u8, ConfigError> {
    match u8::try_from(found) {
        Ok(all @ 1..=MAX_CHANNELS) => Ok(all),
        _ => Err(ConfigError::Channels { found }),
    }
}

fn check_max_streams(value: Option<usize>) -> Result<usize, ConfigError> {
    match value.unwrap_or(4096) {
        found @ 1..=1_000_000 => Ok(found),
        found => Err(ConfigError::Range { key: "max_streams", found, range: "1 to 1000000" }),
    }
}

fn check_lost_channel_timeout(value: Option<u64>) -> Result<Duration, ConfigError> {
    match value.unwrap_or(90) {
        // Longer, and the kernel gives connections up first.
        found @ 1..=900 => Ok(Duration::from_secs(found)),
        found => {
            let found = usize::try_from(found).unwrap_or(usize::MAX);
            Err(ConfigError::Range { key: "lost_channel_timeout_s", found, range: "1 to 900" })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_channels_are_allowed_as_there_are_listeners() {
        let parse = |listeners: usize, more: &str| {
            let listen = vec!["\"127.0.0.1:0\""; listeners].join(", ");
            let parsed =
                ServerConfig::from_toml(&format!("listen = [{listen}]\nallow = []\n{more}"));
            parsed.map(|config| config.max_channels).map_err(|error| error.to_string())
        };
        assert_eq!(parse(3, ""), Ok(3));
        assert_eq!(parse(1, ""), Ok(2), "as many as are needed");
        assert_eq!(parse(1, "max_channels = 5"), Ok(5));
        assert_eq!(parse(3, "min_channels = 4"), Ok(4));
        for wrong in ["max_channels = 1", "max_channels = 17", "min_channels = 3\nmax_channels = 2"]
        {
            assert!(parse(2, wrong).unwrap_err().starts_with("max_channels = "), "{wrong}");
        }
    }
}
