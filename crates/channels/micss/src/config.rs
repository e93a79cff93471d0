//! The configurations of a client and of a server, read from TOML and checked in full.

pub(crate) mod intercept;
mod parse;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use directory::config::{DirectoryClientConfig, DirectoryServerConfig};
use random::RandomSource;
use service::remote_address::RemoteAddress;

use crate::MAX_CHANNELS;
use crate::protocol::allow::AllowedService;
use crate::protocol::bypass::BypassRule;
use crate::protocol::on_lost_channel::LostChannelAction;
use crate::protocol::target::ServiceTarget;
use intercept::InterceptConfig;

pub use parse::{CLIENT_KEYS, SERVER_KEYS};

/// The largest number of streams at a time, unless configured.
pub(crate) const MAX_STREAMS: usize = 4096;

/// How long an earlier server must work before it is used again, unless configured.
pub(crate) const SWITCH_BACK_AFTER: Duration = Duration::from_secs(60);

/// The largest number of servers that take the first server's place.
pub(crate) const MAX_BACKUP_SERVERS: usize = 8;

/// How long streams wait for a lost channel that they need, unless configured.
pub(crate) const LOST_CHANNEL_TIMEOUT: Duration = Duration::from_secs(90);

/// Whether changes on the channels are detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Integrity {
    /// Every record carries the tamper code.
    #[default]
    TamperCode,
    /// No tamper code, as in the paper: an attacker who changes one channel changes the stream
    /// unnoticed.
    None,
}

/// One channel, as a client's configuration has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StreamChannelConfig {
    /// The server's address on this channel, or a name that has it.
    pub server: RemoteAddress,
    /// The local address to use, which selects the network on many hosts.
    pub source: Option<IpAddr>,
    /// The network device to use.
    pub device: Option<String>,
    /// The bytes that the client sends before the handshake, if the server's port serves several
    /// protocols ([`MicssListener::hand_over`](crate::MicssListener::hand_over)). Empty if read
    /// from a file.
    pub preamble: &'static [u8],
    /// The maximum TCP segment size, in bytes. `None`, as from a file, is the system's. It is for
    /// paths that drop longer packets without reporting it.
    pub max_segment: Option<u32>,
}

/// A server, as a client's configuration has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RemoteServerConfig {
    /// Its channels: 1 to [`MAX_CHANNELS`].
    pub channels: Vec<StreamChannelConfig>,
    /// The threshold k: the number of channels that a stream needs. An eavesdropper on that many
    /// channels learns everything. If it is the number of channels, sharing is by XOR. Otherwise it
    /// is by Shamir's scheme, and a stream continues while k channels are left.
    pub threshold: u8,
}

/// A peer with channels of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// The addresses to which applications connect, at least one.
    pub addresses: Vec<IpAddr>,
    /// Its channels.
    pub remote: RemoteServerConfig,
}

/// An uplink of this host, for channels to peers whose addresses come from the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UplinkConfig {
    /// The local address to use.
    pub source: Option<IpAddr>,
    /// The network device to use.
    pub device: Option<String>,
}

/// A local port that is connected to one service behind the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortForward {
    /// The local address for applications.
    pub listen: SocketAddr,
    /// The service.
    pub target: ServiceTarget,
}

/// A client's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MicssClientConfig {
    /// The server for all destinations except peers' addresses, if there is one.
    pub first_server: Option<RemoteServerConfig>,
    /// The servers that take the first server's place while it is gone, in order of preference.
    pub backups: Vec<RemoteServerConfig>,
    /// How long an earlier server must work before new streams use it again.
    pub switch_back_after: Duration,
    /// The peers with channels of their own. No address belongs to two of them.
    pub peers: Vec<PeerConfig>,
    /// The directory, which stores or learns the channels to other peers.
    pub directory: Option<DirectoryClientConfig>,
    /// The uplinks of the channels to peers in the directory: the first channel uses the first
    /// uplink, and so on. Further channels use the route to their address.
    pub uplinks: Vec<UplinkConfig>,
    /// The directory of the configuration. File names are relative to it.
    pub config_dir: PathBuf,
    /// The address of the SOCKS5 listener.
    pub socks: Option<SocketAddr>,
    /// Fixed forwards.
    pub forwards: Vec<PortForward>,
    /// The connections that are intercepted.
    pub intercept: Option<InterceptConfig>,
    /// Whether changes are detected.
    pub integrity: Integrity,
    /// Whether applications may send datagrams: UDP ASSOCIATE of SOCKS5.
    pub socks_udp: bool,
    /// The destinations to which applications are connected directly, not over channels.
    pub bypass: Vec<BypassRule>,
    /// Whether the server is told the address of each application's connection.
    pub send_client_address: bool,
    /// The source of random bytes for shares.
    pub rng: RandomSource,
    /// The largest number of streams at a time.
    pub max_streams: usize,
    /// The connections that are kept ready for new streams.
    pub pool: ConnectionPoolConfig,
    /// What happens to streams when a channel is lost.
    pub lost_channel: LostChannelPolicy,
}

/// The connections that a client keeps ready for new streams: sets of one connection for each
/// channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionPoolConfig {
    /// The number of sets that are connected in advance.
    pub size: usize,
    /// The largest number of sets that are kept, including those of finished streams.
    pub keep: usize,
    /// How long an idle set is kept.
    pub idle: Duration,
}

/// What happens to streams that need a lost channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostChannelPolicy {
    /// New streams.
    pub new_streams: LostChannelAction,
    /// How long running streams wait for the channel to come back, and new ones if they wait.
    pub timeout: Duration,
}

/// A server's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MicssServerConfig {
    /// The addresses to listen on, one for each channel.
    pub listen: Vec<SocketAddr>,
    /// The services that clients may ask for.
    pub allow: Vec<AllowedService>,
    /// The services that clients may reach by UDP.
    pub allow_udp: Vec<AllowedService>,
    /// Those services of `allow` that get a header of the PROXY protocol, with the address of the
    /// client.
    pub proxy_protocol: Vec<AllowedService>,
    /// The minimum integrity that clients must use: with `None`, they may leave out the tamper
    /// code.
    pub integrity: Integrity,
    /// The source of random bytes for shares.
    pub rng: RandomSource,
    /// The smallest threshold of a stream that is accepted.
    pub min_channels: u8,
    /// The largest number of streams at a time.
    pub max_streams: usize,
    /// The largest number of channels of a stream.
    pub max_channels: u8,
    /// How long streams wait for a lost channel that they need.
    pub lost_channel_timeout: Duration,
    /// The largest number of connections without an open stream.
    pub max_waiting: usize,
    /// The largest memory for the records of open streams, in bytes.
    pub max_memory: u64,
    /// The directory's answer about this server's addresses.
    pub directory: Option<DirectoryServerConfig>,
    /// The directory of the configuration. File names are relative to it.
    pub config_dir: PathBuf,
}

impl StreamChannelConfig {
    /// The channel to this address, by the system's routes.
    pub fn to(server: SocketAddr) -> Self {
        Self { server: server.into(), source: None, device: None, preamble: b"", max_segment: None }
    }
}

impl MicssServerConfig {
    /// A server that listens on these addresses and allows no service, with the defaults of a
    /// file.
    pub fn new(listen: Vec<SocketAddr>) -> Self {
        Self {
            listen,
            allow: Vec::new(),
            allow_udp: Vec::new(),
            proxy_protocol: Vec::new(),
            integrity: Integrity::default(),
            rng: RandomSource::default(),
            min_channels: 2,
            max_streams: MAX_STREAMS,
            max_channels: MAX_CHANNELS,
            lost_channel_timeout: LOST_CHANNEL_TIMEOUT,
            max_waiting: 8192,
            max_memory: 512 << 20,
            directory: None,
            config_dir: PathBuf::new(),
        }
    }
}

impl MicssClientConfig {
    /// Whether datagrams of applications are carried: by SOCKS5, or by interception.
    pub fn carries_udp(&self) -> bool {
        self.socks_udp || self.intercept.as_ref().is_some_and(InterceptConfig::intercepts_udp)
    }

    /// All servers in the configuration: the first one, its backups, and the peers.
    pub fn remotes(&self) -> impl Iterator<Item = &RemoteServerConfig> {
        let peers = self.peers.iter().map(|peer| &peer.remote);
        self.first_server.iter().chain(&self.backups).chain(peers)
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
                MicssServerConfig::from_toml(&format!("listen = [{listen}]\nallow = []\n{more}"));
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
