//! The configurations of a client and of a server, read from TOML and checked in full.

pub(crate) mod intercept;
mod parse;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use directory::config::{ClientDirectory, ServerDirectory};
use sharing::RandomSource;

use crate::protocol::allow::Allowed;
use crate::protocol::on_lost_channel::OnLostChannel;
use crate::protocol::target::Target;
use intercept::Intercept;

pub use parse::{CLIENT_KEYS, SERVER_KEYS};

/// Whether changes on the channels are detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Integrity {
    /// Every record carries the tamper code.
    #[default]
    TamperCode,
    /// None, as in the paper: whoever changes one channel changes the stream unnoticed.
    None,
}

/// One channel, as the client sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    /// The channels that lead to it, 1 to [`MAX_CHANNELS`](crate::MAX_CHANNELS).
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
#[derive(Clone, Debug, PartialEq, Eq)]
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

impl ClientConfig {
    /// All servers that it knows, the gateway first.
    pub fn remotes(&self) -> impl Iterator<Item = &Remote> {
        self.gateway.iter().chain(self.peers.iter().map(|peer| &peer.remote))
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
