//! The state of a new peer in each thread.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ipnet::IpNet;

use super::allowed_sources::AllowedSources;
use super::client_networks::ClientNetworks;
use super::error::TunnelError;
use super::peer_label::PeerLabel;
use super::planning::PlanningPeer;
use super::received_packets::PeerPacketFilter;
use super::receiving_peer::{ReceivingCounts, ReceivingPeer};
use super::sender_config;
use super::sending_peer::{SendingCounts, SendingPeer};
use super::shared::TunnelClock;
use super::status_source::PeerStatusSource;
use crate::config::{PacketOrder, TunnelClientConfig, TunnelConfig, TunnelEnd};
use crate::protocol::control::handshake::{ClientIdentity, SharedKey};
use crate::protocol::endpoint::client_demultiplexer::TunnelPeerId;
use crate::protocol::endpoint::inbound::InboundEndpoint;
use crate::protocol::endpoint::settings::{EndpointRole, EndpointSettings, KeyRenewalLimits};
use crate::protocol::endpoint::shared_state::EndpointSharedState;
use crate::protocol::recv::receiver::SymbolReceiverLimits;
use crate::protocol::wire::terms::TunnelTerms;

/// The limits of the receiver of one of several clients, besides the memory for shares: 2^14
/// symbols are 160 ms at 100,000 a second.
const CLIENT_WINDOW: usize = 1 << 14;
const CLIENT_HELD_BYTES: usize = 1 << 20;

/// A peer and its key.
#[derive(Clone, Debug)]
pub(super) struct KeyedPeer {
    /// The client, if it is one of several.
    pub(super) client: Option<TunnelClientConfig>,
    pub(super) key: Option<SharedKey>,
}

/// The state of a peer in each thread.
pub(super) struct NewTunnelPeer {
    pub(super) id: TunnelPeerId,
    pub(super) receiving: ReceivingPeer,
    pub(super) sending: SendingPeer,
    pub(super) planning: PlanningPeer,
    pub(super) status: PeerStatusSource,
}

/// Makes peers of a tunnel.
#[derive(Clone)]
pub(super) struct PeerFactory {
    /// The configuration with which the tunnel was opened.
    pub(super) config: Arc<TunnelConfig>,
    pub(super) clock: TunnelClock,
    /// The MTU of the tunnel's device.
    pub(super) mtu: usize,
    /// The highest identifier of a peer so far, also of one that was closed.
    pub(super) highest_id: Arc<AtomicU32>,
}

impl KeyedPeer {
    /// The name of a client; empty for the only peer.
    pub(super) fn name(&self) -> &str {
        self.client.as_ref().map_or("", |client| &client.name)
    }
}

/// The only peer, or the clients, with their keys.
///
/// # Errors
/// If there is not a key for each client, or two have the same one.
pub(super) fn keyed_clients(
    config: &TunnelConfig,
    mut keys: Vec<SharedKey>,
) -> Result<Vec<KeyedPeer>, TunnelError> {
    if config.clients.is_empty() {
        return Ok(vec![KeyedPeer { client: None, key: keys.pop() }]);
    }
    if keys.len() != config.clients.len() {
        return Err(TunnelError::NoPeer);
    }
    for (index, key) in keys.iter().enumerate() {
        let is_same = |other: &SharedKey| other.fingerprint() == key.fingerprint();
        if let Some(first) = keys[..index].iter().position(is_same) {
            let [first, second] = [first, index].map(|at| config.clients[at].name.clone());
            return Err(TunnelError::SameKey { first, second });
        }
    }
    let clients = config.clients.iter().cloned().zip(keys);
    Ok(clients.map(|(client, key)| KeyedPeer { client: Some(client), key: Some(key) }).collect())
}

impl PeerFactory {
    /// An identifier that no peer has had.
    pub(super) fn next_id(&self) -> TunnelPeerId {
        TunnelPeerId(self.highest_id.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The same with another `between_clients`.
    pub(super) fn with_between_clients(&self, between_clients: bool) -> Self {
        let config = TunnelConfig { between_clients, ..(*self.config).clone() };
        Self { config: Arc::new(config), ..self.clone() }
    }

    /// The state of a peer. `networks` are those of all clients.
    ///
    /// # Errors
    /// If the random source fails.
    pub(super) fn peer(
        &self,
        id: TunnelPeerId,
        peer: &KeyedPeer,
        networks: &Arc<ClientNetworks>,
    ) -> Result<NewTunnelPeer, TunnelError> {
        let (config, mtu) = (&self.config, self.mtu);
        let label = peer.client.as_ref().map(|client| PeerLabel::of_client(&client.name));
        let label = label.unwrap_or_default();
        let shared: Arc<Mutex<EndpointSharedState>> = Arc::default();
        let sending: Arc<Mutex<SendingCounts>> = Arc::default();
        let received = ReceivingCounts { mtu, ..ReceivingCounts::default() };
        let received = Arc::new(Mutex::new(received));
        let (sources, separate) = if peer.client.is_none() {
            let own = config.addresses.iter().map(IpNet::addr);
            (AllowedSources::new(&config.allowed, own), None)
        } else {
            let separate = (!config.between_clients).then(|| Arc::clone(networks));
            (AllowedSources::new(networks.of(id), []), separate)
        };
        let planning = PlanningPeer::new(label.clone());
        let status = PeerStatusSource {
            id,
            client: peer.client.clone(),
            shared: Arc::clone(&shared),
            sending: Arc::clone(&sending),
            receiving: Arc::clone(&received),
            plan: Arc::clone(&planning.current),
        };
        let receiving = ReceivingPeer {
            id,
            label: label.clone(),
            inbound: self.inbound(peer)?,
            shared: Arc::clone(&shared),
            counts: received,
            filter: PeerPacketFilter::new(id, sources, separate),
            mtu,
            due: Duration::ZERO,
        };
        let sending = SendingPeer::new(label, config.channels.len(), shared, sending, mtu);
        Ok(NewTunnelPeer { id, receiving, sending, planning, status })
    }

    fn inbound(&self, peer: &KeyedPeer) -> Result<InboundEndpoint, TunnelError> {
        let config = &self.config;
        let n = u8::try_from(config.channels.len()).unwrap_or(u8::MAX);
        let terms = TunnelTerms::new(n, config.min_threshold, config.tamper_code)
            .and_then(|terms| terms.with_min_channels(config.min_channels))?;
        let mut limits = SymbolReceiverLimits {
            share_bytes: config.reassembly_bytes,
            ..SymbolReceiverLimits::default()
        };
        if peer.client.is_some() {
            (limits.window, limits.held_bytes) = (CLIENT_WINDOW, CLIENT_HELD_BYTES);
        }
        let sender_config = sender_config(config);
        let settings = EndpointSettings {
            terms,
            limits,
            rates_bps: sender_config.rates_bps,
            headers: sender_config
                .headers
                .iter()
                .map(|len| u16::try_from(*len).unwrap_or(48))
                .collect(),
            key_limits: KeyRenewalLimits::default(),
            keeps_order: config.order == PacketOrder::Auto,
            is_roaming: config.roaming,
        };
        let generator = config.rng.generator()?;
        let role = role(config, peer.key.clone())?;
        Ok(InboundEndpoint::new(role, settings, generator, self.clock.now())?)
    }
}

fn role(config: &TunnelConfig, key: Option<SharedKey>) -> Result<EndpointRole, TunnelError> {
    let peers: Option<Vec<SocketAddr>> =
        config.channels.iter().map(|channel| channel.peer).collect();
    match (config.end, peers, key) {
        (TunnelEnd::Client, Some(servers), key) => Ok(EndpointRole::Client { servers, key }),
        (TunnelEnd::Server, Some(clients), None) => {
            Ok(EndpointRole::Server(ClientIdentity::Addresses(clients)))
        }
        (TunnelEnd::Server, Some(clients), Some(key)) => {
            Ok(EndpointRole::Server(ClientIdentity::Both(clients, key)))
        }
        (TunnelEnd::Server, None, Some(key)) => Ok(EndpointRole::Server(ClientIdentity::Key(key))),
        (TunnelEnd::Client, None, _) | (TunnelEnd::Server, None, None) => Err(TunnelError::NoPeer),
    }
}
