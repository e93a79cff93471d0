//! Selects the channels to a target: those of its own server, configured or from the directory, or
//! otherwise those of the server for all other targets.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::{JoinSet, spawn_blocking};
use tracing::warn;

use crate::StreamError;
use crate::config::{
    ConnectionPoolConfig, LostChannelPolicy, MicssClientConfig, RemoteServerConfig,
    StreamChannelConfig, UplinkConfig,
};
use crate::net::client::failover::FailoverServers;
use crate::net::client::pool::{ConnectionPool, ConnectionSet};
use crate::net::intercept::OWN_MARK;
use crate::protocol::target::{ServiceTarget, TargetHost};
use crate::status;
use directory::addresses::ChannelAddresses;
use directory::config::DirectoryClientConfig;
use directory::{Directory, DirectoryError};

/// The maximum number of directory peers with connections in a pool.
pub(crate) const MAX_DIRECTORY_PEERS: usize = 64;

/// How long the pool of a directory peer is filled after its last use.
const UNUSED_PEER_TIMEOUT: Duration = Duration::from_secs(600);

/// The servers that a client knows, and a pool of connections for each.
pub(crate) struct PeerPools {
    /// Those of `servers` first, if there are any.
    pools: Vec<Arc<ConnectionPool>>,
    /// The servers for all targets that are not peers' addresses.
    servers: Option<Arc<FailoverServers>>,
    by_address: HashMap<IpAddr, usize>,
    directory: Option<Directory>,
    uplinks: Vec<UplinkConfig>,
    mark: Option<u32>,
    pool: ConnectionPoolConfig,
    policy: LostChannelPolicy,
    /// The peers of the directory.
    known: Mutex<HashMap<RemoteServerConfig, DirectoryPeer>>,
}

/// A peer of the directory to which a stream was requested.
struct DirectoryPeer {
    pool: Arc<ConnectionPool>,
    /// Fills the pool until it is dropped.
    _filler: JoinSet<()>,
}

impl PeerPools {
    /// The peers of a configuration. Reuses the pools of `before` whose channels are configured the
    /// same.
    ///
    /// # Errors
    /// If the directory cannot be opened.
    pub(crate) async fn new(
        config: &MicssClientConfig,
        before: Option<&Self>,
    ) -> Result<Self, DirectoryError> {
        let directory = match config.directory.clone() {
            Some(directory) => Some(open(directory, config.config_dir.clone()).await?),
            None => None,
        };
        let mark = config.intercept.as_ref().map(|_| OWN_MARK);
        let pool = |remote: &RemoteServerConfig| {
            let known = before.into_iter().flat_map(|before| &before.pools);
            let mut known =
                known.filter(|pool| pool.matches(remote, mark, config.pool, config.lost_channel));
            let new = || {
                Arc::new(ConnectionPool::new(
                    remote.clone(),
                    mark,
                    config.pool,
                    config.lost_channel,
                ))
            };
            known.next().map_or_else(new, Arc::clone)
        };
        let pools: Vec<Arc<ConnectionPool>> = config.remotes().map(pool).collect();
        let server_pools = &pools[..pools.len() - config.peers.len()];
        let servers = (!server_pools.is_empty()).then(|| {
            let after = config.switch_back_after;
            let known = before.and_then(|before| before.servers.as_ref());
            let known = known.filter(|known| known.matches(server_pools, after));
            let new = || Arc::new(FailoverServers::new(server_pools.to_vec(), after));
            known.map_or_else(new, Arc::clone)
        });
        let first_peer = server_pools.len();
        let peers = config.peers.iter().enumerate();
        let addresses = peers.flat_map(|(index, peer)| {
            let place = index + first_peer;
            peer.addresses.iter().map(move |address| (address.to_canonical(), place))
        });
        Ok(Self {
            pools,
            servers,
            by_address: addresses.collect(),
            directory,
            uplinks: config.uplinks.clone(),
            mark,
            // There can be many such peers, so fewer connections are kept for each.
            pool: ConnectionPoolConfig { keep: config.pool.size, ..config.pool },
            policy: config.lost_channel,
            known: Mutex::default(),
        })
    }

    /// Connections for a stream to a target, and the pool to which they return. Configured channels
    /// take precedence over learnt ones.
    ///
    /// # Errors
    /// If there are no channels to the target, an exchange of the directory fails, or the channels
    /// cannot be used.
    pub(crate) async fn take_for(
        &self,
        target: &ServiceTarget,
    ) -> Result<(Arc<ConnectionPool>, ConnectionSet), StreamError> {
        match self.peer_for(target).await? {
            Some(pool) => {
                let set = pool.take().await?;
                Ok((pool, set))
            }
            None => self.take_at_server().await,
        }
    }

    /// Connections to the server for all targets that are not peers' addresses, and the pool to
    /// which they return.
    ///
    /// # Errors
    /// If there is none, or its channels cannot be used.
    pub(crate) async fn take_at_server(
        &self,
    ) -> Result<(Arc<ConnectionPool>, ConnectionSet), StreamError> {
        self.servers.as_ref().ok_or(StreamError::NoChannels)?.take().await
    }

    /// The pool of the peer that has the target's address, if there is one.
    async fn peer_for(
        &self,
        target: &ServiceTarget,
    ) -> Result<Option<Arc<ConnectionPool>>, StreamError> {
        if let TargetHost::Address(address) = target.host() {
            let address = address.to_canonical();
            if let Some(place) = self.by_address.get(&address) {
                return Ok(Some(Arc::clone(&self.pools[*place])));
            }
            if let Some(directory) = &self.directory
                && let Some(addresses) = directory.addresses_of(address, self.mark).await?
            {
                return self.pool_at(&addresses).map(Some);
            }
        }
        Ok(None)
    }

    /// The pool of connections to a peer of the directory.
    ///
    /// # Errors
    /// If all addresses are of one host, where one eavesdropper would read all shares.
    fn pool_at(&self, addresses: &ChannelAddresses) -> Result<Arc<ConnectionPool>, StreamError> {
        if !addresses.have_two_hosts() {
            return Err(StreamError::OneChannel);
        }
        let addresses = addresses.as_slice();
        let threshold = u8::try_from(addresses.len()).expect("a list has at most 16 addresses");
        let channel = |(place, &server): (usize, &SocketAddr)| {
            let uplink = self.uplinks.get(place);
            let source = uplink.and_then(|uplink| uplink.source);
            let device = uplink.and_then(|uplink| uplink.device.clone());
            StreamChannelConfig { source, device, ..StreamChannelConfig::to(server) }
        };
        let channels = addresses.iter().enumerate().map(channel).collect();
        let remote = RemoteServerConfig { channels, threshold };
        let mut known = self.known();
        if !known.contains_key(&remote) {
            evict_least_recently_used(&mut known);
            let uplinks = self.uplinks.len();
            if (1..addresses.len()).contains(&uplinks) {
                let first = addresses[0];
                let channels = addresses.len();
                warn!(%first, channels, uplinks, "fewer uplinks than channels: the rest uses the system's routes");
            }
        }
        let known = known.entry(remote.clone()).or_insert_with(|| {
            let pool = Arc::new(ConnectionPool::new(remote, self.mark, self.pool, self.policy));
            DirectoryPeer { _filler: spawn_filler(&pool, UNUSED_PEER_TIMEOUT), pool }
        });
        Ok(Arc::clone(&known.pool))
    }

    /// Fills the pools of the configured servers, and chooses the server for new streams, until the
    /// returned tasks are dropped.
    pub(crate) fn keep_filled(&self) -> Vec<JoinSet<()>> {
        let fillers = self.pools.iter().map(|pool| spawn_filler(pool, Duration::MAX));
        fillers.chain(self.servers.iter().map(FailoverServers::keep_chosen)).collect()
    }

    /// The servers of which one is used for new streams; none if there is only one.
    pub(crate) fn server_status(&self) -> Vec<status::StreamServerStatus> {
        self.servers.iter().flat_map(|servers| servers.status()).collect()
    }

    /// How often another server was chosen for new streams.
    pub(crate) fn server_switches(&self) -> u64 {
        self.servers.as_ref().map_or(0, |servers| servers.switches())
    }

    /// The status of all channels.
    pub(crate) fn status(&self) -> Vec<status::StreamChannelStatus> {
        let configured = self.pools.iter().flat_map(|pool| pool.status());
        let mut all: Vec<_> = configured.collect();
        let mut known: Vec<_> = self.known().values().map(|known| known.pool.status()).collect();
        known.sort_by(|one, other| one[0].server.cmp(&other[0].server));
        all.extend(known.into_iter().flatten());
        all
    }

    fn known(&self) -> MutexGuard<'_, HashMap<RemoteServerConfig, DirectoryPeer>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens a directory, on a thread that may block.
async fn open(
    directory: DirectoryClientConfig,
    config_dir: PathBuf,
) -> Result<Directory, DirectoryError> {
    let open = spawn_blocking(move || Directory::open(&directory, &config_dir));
    open.await.unwrap_or(Err(DirectoryError::Ending))
}

/// Fills the pool until the returned task is dropped, but not while its last use is longer ago than
/// `since_last_use`.
fn spawn_filler(pool: &Arc<ConnectionPool>, since_last_use: Duration) -> JoinSet<()> {
    let pool = Arc::clone(pool);
    [async move { pool.keep_full(since_last_use).await }].into_iter().collect()
}

/// Evicts the least recently used peer if there are too many.
#[expect(clippy::mutable_key_type, reason = "the hash is of what is configured, and never changes")]
fn evict_least_recently_used(known: &mut HashMap<RemoteServerConfig, DirectoryPeer>) {
    if known.len() >= MAX_DIRECTORY_PEERS {
        let oldest = known.iter().max_by_key(|(_, known)| known.pool.since_last_use());
        if let Some(oldest) = oldest.map(|(remote, _)| remote.clone()) {
            known.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The peers of a client with a directory and two uplinks, whose pools are empty.
    async fn peers() -> PeerPools {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("peers.sqlite");
        let text = format!(
            "socks = \"127.0.0.1:0\"\n[pool]\nsize = 0\nkeep = 0\n[directory]\nfile = \"{}\"\n\
             [[uplink]]\nsource = \"192.0.2.20\"\n[[uplink]]\ndevice = \"wlan0\"\n",
            file.display()
        );
        PeerPools::new(&MicssClientConfig::from_toml(&text).unwrap(), None).await.unwrap()
    }

    #[tokio::test]
    async fn channels_to_directory_peers_use_the_uplinks_in_order() {
        let peers = peers().await;
        let servers =
            ["192.0.2.1:7", "198.51.100.1:7", "203.0.113.1:7"].map(|s| s.parse().unwrap());
        let pool_at =
            |servers: &[_]| peers.pool_at(&ChannelAddresses::new(servers.to_vec()).unwrap());
        let pool = pool_at(&servers).unwrap();
        let channel = |server, source: Option<&str>, device: Option<&str>| StreamChannelConfig {
            source: source.map(|source| source.parse().unwrap()),
            device: device.map(str::to_owned),
            ..StreamChannelConfig::to(server)
        };
        let channels = vec![
            channel(servers[0], Some("192.0.2.20"), None),
            channel(servers[1], None, Some("wlan0")),
            channel(servers[2], None, None),
        ];
        assert!(pool.matches(
            &RemoteServerConfig { channels, threshold: 3 },
            None,
            peers.pool,
            peers.policy
        ));
        assert!(Arc::ptr_eq(&pool, &pool_at(&servers).unwrap()), "known by now");
        assert!(matches!(pool_at(&servers[..1]), Err(StreamError::OneChannel)));
    }

    #[tokio::test]
    async fn the_least_recently_used_peer_is_evicted() {
        let peers = peers().await;
        tokio::time::pause();
        let servers = |place: usize| {
            let place = u8::try_from(place).unwrap();
            [[192, 0, 2, place], [198, 51, 100, place]].map(|host| SocketAddr::from((host, 7)))
        };
        let pool_at =
            |place| peers.pool_at(&ChannelAddresses::new(servers(place).to_vec()).unwrap());
        let mut pools = Vec::new();
        for place in 0..MAX_DIRECTORY_PEERS {
            pools.push(pool_at(place).unwrap());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        // A use, even without success.
        let _ = tokio::time::timeout(Duration::ZERO, pools[0].take()).await;
        let is_known = |place: usize| {
            let servers: HashSet<_> = servers(place).into();
            let known = peers.known();
            known.keys().any(|remote| {
                remote
                    .channels
                    .iter()
                    .all(|c| c.server.known().is_some_and(|it| servers.contains(&it)))
            })
        };
        pool_at(MAX_DIRECTORY_PEERS).unwrap();
        assert_eq!(peers.known().len(), MAX_DIRECTORY_PEERS);
        assert!(is_known(0) && !is_known(1) && is_known(2) && is_known(MAX_DIRECTORY_PEERS));
    }
}
