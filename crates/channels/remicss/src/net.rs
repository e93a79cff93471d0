//! One end of a tunnel: a TUN device, a UDP socket for each channel, and three threads, for one
//! peer or, at a server, several clients. If servers have names, another thread looks them up.
//!
//! ```text
//! device ─▶ sending ─▶ channels          channels ─▶ receiving ─▶ device
//!              ▲ orders                                │ what the channels are like
//!              └───────────────── planning ◀───────────┘
//! ```
//!
//! This is the driver of [`endpoint`](crate::protocol::endpoint): it moves bytes and makes no
//! protocol decision.

mod allowed_sources;
mod client_networks;
mod device_checks;
mod error;
pub mod fail_closed;
mod new_peer;
mod peer_label;
mod planning;
mod probe;
mod quota;
mod received_packets;
mod receiving;
mod receiving_peer;
mod reload;
mod sending;
mod sending_peer;
mod server_names;
mod shared;
mod status_of_clients;
mod status_source;
mod waker;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Instant;

use ipnet::IpNet;
use sharing::keyed::TAG_LEN;
use tun::TunDevice;
use tun::interface::InterfaceSettings;

use crate::config::{PacketOrder, TunnelChannelConfig, TunnelConfig, fates};
use crate::protocol::control::handshake::SharedKey;
use crate::protocol::endpoint::client_demultiplexer::{ClientDemultiplexer, TunnelPeerId};
use crate::protocol::endpoint::outbound::SymbolSenderConfig;
use crate::protocol::send::plan::PlanGoal;
use crate::protocol::wire::datagram::HEADER_LEN;
pub use error::TunnelError;
use new_peer::{KeyedPeer, NewTunnelPeer, PeerFactory};
use planning::{PlanningCommand, PlanningThread};
pub use probe::measure_channels;
use quota::{OpenedQuotaFile, QuotaThread};
use receiving::ReceivingThread;
use receiving_peer::ReceivingContext;
pub use reload::{TunnelReloadError, TunnelReloader};
use sending::{SendingCommand, SendingThread};
use server_names::ServerNamesThread;
use shared::TunnelClock;
use status_source::PeerStatusSource;
pub use status_source::TunnelStatusSource;
use udp::{MAX_MTU, MIN_MTU, SocketBinding, UdpBatchSocket};
use waker::ThreadWaker;

/// The length of the device's queue, in packets or superpackets.
const DEVICE_QUEUE: u32 = 500;

/// One end of a tunnel, ready to run.
pub struct IpTunnel {
    device: Arc<TunDevice>,
    sending: SendingThread,
    receiving: ReceivingThread,
    planning: PlanningThread,
    /// If quotas are kept.
    quota: Option<QuotaThread>,
    names: Option<ServerNamesThread>,
    status_source: TunnelStatusSource,
    stopper: TunnelStopper,
    reloader: TunnelReloader,
}

/// Stops a tunnel that runs.
#[derive(Clone)]
pub struct TunnelStopper {
    stops: Arc<AtomicBool>,
    receiving_waker: ThreadWaker,
    sending_waker: ThreadWaker,
    sending: mpsc::Sender<SendingCommand>,
}

impl IpTunnel {
    /// Creates the device and binds the channels. Nothing is sent before [`Self::run`].
    ///
    /// `keys` has the key that is shared with the peer, if there is one; with clients in the
    /// configuration, the key of each, in their order.
    ///
    /// # Errors
    /// If an address or the device cannot be used, the number of keys is wrong, two clients have
    /// the same key, or the random source fails.
    pub fn open(config: &TunnelConfig, keys: Vec<SharedKey>) -> Result<Self, TunnelError> {
        let clock = TunnelClock(Instant::now());
        let config = &server_names::look_up_servers(config);
        let clients = new_peer::keyed_clients(config, keys)?;
        let quota_file = config.quota_file.as_deref().map(OpenedQuotaFile::open).transpose()?;
        let channels = bind(config)?;
        let sender_config = sender_config(config);
        let overhead = HEADER_LEN + 1 + if config.tamper_code { TAG_LEN } else { 0 };
        let mtu = device_mtu(config, &sender_config, overhead);
        let (opened, highest_id) = (Arc::new(config.clone()), Arc::default());
        let factory = PeerFactory { config: opened, clock, mtu, highest_id };
        let has_clients = !config.clients.is_empty();
        let clients = clients.into_iter().map(|client| (factory.next_id(), client));
        let ids: Vec<(TunnelPeerId, KeyedPeer)> = clients.collect();
        let networks = Arc::new(reload::networks_of(&ids));
        let mut new_peers = Vec::new();
        for (id, peer) in &ids {
            new_peers.push(factory.peer(*id, peer, &networks)?);
        }
        let device = Arc::new(make_device(config, mtu)?);

        let waker = || ThreadWaker::new().map_err(TunnelError::Waker);
        let (sending_waker, receiving_waker) = (waker()?, waker()?);
        let (to_sending, sending_commands) = mpsc::channel();
        let (to_receiving, receiving_commands) = mpsc::channel();
        let (to_planning, requests) = mpsc::channel();
        let risks = config.channels.iter().map(|channel| channel.risk).collect();
        let risks: Arc<Mutex<Vec<f64>>> = Arc::new(Mutex::new(risks));
        let configured = Arc::new(Mutex::new(config.channels.clone()));
        let mut sending = SendingThread {
            device: Arc::clone(&device),
            channels: channels.clone(),
            commands: sending_commands,
            waker: sending_waker.clone(),
            clock,
            peers: BTreeMap::new(),
            networks: has_clients.then(|| Arc::clone(&networks)),
            for_no_client: Arc::default(),
        };
        let to_sender = (to_sending.clone(), sending_waker.clone());
        let mut planning = PlanningThread::new(config, requests, to_sender, clock);
        let context = ReceivingContext {
            device: Arc::clone(&device),
            channels,
            sending: to_sending.clone(),
            sending_waker: sending_waker.clone(),
            planning: to_planning.clone(),
            mtu_range: least_mtu(config).min(mtu)..=mtu,
            follows_paths: !has_clients,
            overhead,
            risks: Arc::clone(&risks),
        };
        let demultiplexer = has_clients.then(|| ClientDemultiplexer::new(config.channels.len()));
        let (commands, waker) = (receiving_commands, receiving_waker.clone());
        let mut receiving = ReceivingThread::new(context, demultiplexer, commands, waker, clock);
        let first = new_peers.first().map(|peer| Arc::clone(&peer.status.shared));
        let names = first.and_then(|shared| {
            ServerNamesThread::new(config, shared, to_receiving.clone(), receiving_waker.clone())
        });
        let sources = add_peers(new_peers, &mut receiving, &mut sending, &mut planning);
        let status_source = TunnelStatusSource {
            device: device.name().to_owned(),
            clock,
            risks: Arc::clone(&risks),
            configured: Arc::clone(&configured),
            quotas: Arc::default(),
            peers: Arc::new(Mutex::new(sources)),
            written: Arc::clone(&receiving.counts),
            unrecognised: Arc::clone(&receiving.unrecognised),
            for_no_client: Arc::clone(&sending.for_no_client),
        };
        let quota = quota_file.map(|file| file.watch(&configured, &status_source, &to_planning));
        let stopper = TunnelStopper {
            stops: Arc::clone(&receiving.stops),
            receiving_waker: receiving_waker.clone(),
            sending_waker: sending_waker.clone(),
            sending: to_sending.clone(),
        };
        let reloader = TunnelReloader {
            factory,
            device: device.name().to_owned(),
            risks,
            configured,
            planning: to_planning,
            sending: to_sending,
            sending_waker,
            receiving: to_receiving,
            receiving_waker,
            sources: Arc::clone(&status_source.peers),
            clients: Arc::new(Mutex::new(ids)),
        };
        Ok(Self {
            device,
            sending,
            receiving,
            planning,
            quota,
            names,
            status_source,
            stopper,
            reloader,
        })
    }

    /// The device's name.
    pub fn device(&self) -> &str {
        self.device.name()
    }

    /// The source of its status.
    pub fn status_source(&self) -> TunnelStatusSource {
        self.status_source.clone()
    }

    /// The handle that stops it.
    pub fn stopper(&self) -> TunnelStopper {
        self.stopper.clone()
    }

    /// The handle that changes its settings.
    pub fn reloader(&self) -> TunnelReloader {
        self.reloader.clone()
    }

    /// Carries packets until it is stopped.
    ///
    /// # Errors
    /// If the device fails or is deleted.
    ///
    /// # Panics
    /// If a thread cannot be started, or has panicked.
    pub fn run(self) -> Result<(), TunnelError> {
        let Self { sending, receiving, planning, quota, names, stopper, reloader, .. } = self;

        let start = |name: &str| thread::Builder::new().name(name.into());
        let planner = start("planning").spawn(move || planning.run()).expect("a thread");
        let receiver = start("receiving").spawn(move || receiving.run()).expect("a thread");
        let (stop_quota, stops) = mpsc::channel();
        let quota =
            quota.map(|quota| start("quota").spawn(move || quota.run(&stops)).expect("a thread"));
        let (names_stopper, stop) = mpsc::channel();
        if let Some(names) = names {
            // Nothing waits for it, because a look-up may last long.
            start("names").spawn(move || names.run(&stop)).expect("a thread");
        }
        let result = sending.run();
        drop(names_stopper);
        stopper.stop();
        drop(stop_quota);
        if let Some(quota) = quota {
            quota.join().expect("the quota thread");
        }
        receiver.join().expect("the receiving thread");
        // If it does not receive, it has ended.
        let _ = reloader.planning.send(PlanningCommand::Stop);
        planner.join().expect("the planning thread");
        result
    }
}

impl TunnelStopper {
    /// Stops the tunnel.
    pub fn stop(&self) {
        self.stops.store(true, Ordering::Relaxed);
        self.receiving_waker.wake();
        // If nobody receives, it has ended.
        let _ = self.sending.send(SendingCommand::Stop);
        self.sending_waker.wake();
    }
}

/// Adds peers to the threads. Returns the sources of their status.
fn add_peers(
    peers: Vec<NewTunnelPeer>,
    receiving_thread: &mut ReceivingThread,
    sending_thread: &mut SendingThread,
    planning_thread: &mut PlanningThread,
) -> Vec<PeerStatusSource> {
    let mut sources = Vec::new();
    for NewTunnelPeer { id, receiving, sending, planning, status } in peers {
        if let Some(clients) = &mut receiving_thread.clients {
            clients.add(id);
        }
        receiving_thread.peers.insert(id, receiving);
        sending_thread.peers.insert(id, sending);
        planning_thread.peers.insert(id, planning);
        sources.push(status);
    }
    sources
}

/// The highest MTU of the device: packets of this length fit one datagram of the highest MTU of a
/// channel.
fn device_mtu(config: &TunnelConfig, sender_config: &SymbolSenderConfig, overhead: usize) -> usize {
    let lengths =
        sender_config.mtus.iter().zip(&sender_config.headers).map(|(mtu, headers)| mtu - headers);
    let found = lengths.min().unwrap_or(0) - overhead;
    config.mtu.map_or(found, |mtu| usize::from(mtu).min(found))
}

fn bind(config: &TunnelConfig) -> Result<Vec<UdpBatchSocket>, TunnelError> {
    let bind = |(index, channel): (usize, &TunnelChannelConfig)| {
        let address = SocketBinding { local: channel.local, device: channel.device.as_deref() };
        UdpBatchSocket::bind(&address).map_err(|source| {
            let (local, device) = (channel.local, channel.device.clone());
            TunnelError::Bind { number: index + 1, local, device, source }
        })
    };
    config.channels.iter().enumerate().map(bind).collect()
}

fn goal(config: &TunnelConfig) -> PlanGoal {
    PlanGoal {
        kappa: config.kappa,
        mu: config.mu,
        objective: config.objectives.first().copied().unwrap_or_default().into(),
        second_objective: config.objectives.get(1).copied().map(Into::into),
        floor: config.min_threshold,
        keeps_order: config.order == PacketOrder::Auto,
        prefer: config.prefer,
        bounds: config.bounds,
        fates: fates(&config.channels),
    }
}

fn sender_config(config: &TunnelConfig) -> SymbolSenderConfig {
    let headers = |channel: &TunnelChannelConfig| if channel.local.is_ipv4() { 28 } else { 48 };
    SymbolSenderConfig {
        rates_bps: config.channels.iter().map(|channel| channel.rate_bps).collect(),
        mtus: vec![usize::from(MAX_MTU); config.channels.len()],
        headers: config.channels.iter().map(headers).collect(),
    }
}

/// The minimum MTU of the device. The kernel removes IPv6 from a device with a smaller MTU than
/// IPv6 requires; longer packets than a datagram are sent in two.
fn least_mtu(config: &TunnelConfig) -> usize {
    let networks = config.addresses.iter().chain(&config.routes);
    if networks.into_iter().any(|network| network.addr().is_ipv6()) { MIN_MTU.into() } else { 0 }
}

/// The routes through the device. A default route becomes two halves, which take precedence over
/// the default routes of the uplinks, whatever their metric.
///
/// Without an address of its own, packets of a family would be sent from an address of an uplink,
/// from which the peer accepts none. If this host is closed for them, they are refused at once
/// instead.
fn device_routes(config: &TunnelConfig) -> Vec<IpNet> {
    let has_address = |route: &&IpNet| {
        let is_v4 = route.addr().is_ipv4();
        config.addresses.iter().any(|own| own.addr().is_ipv4() == is_v4)
    };
    let halves = |route: &IpNet| {
        let halves = route.subnets(1).ok().filter(|_| route.prefix_len() == 0);
        halves.map_or_else(|| vec![*route], Iterator::collect)
    };
    let of_clients = reload::client_routes(config);
    let routes = config.routes.iter().chain(&of_clients);
    let routes = routes.filter(|route| !config.fail_closed || has_address(route));
    routes.flat_map(halves).collect()
}

fn make_device(config: &TunnelConfig, mtu: usize) -> Result<TunDevice, TunnelError> {
    let name = config.device.clone();
    let device = TunDevice::new(&name)
        .map_err(|source| TunnelError::Device { name: name.clone(), source })?;
    let interface = InterfaceSettings {
        name: device.name(),
        mtu: u32::try_from(mtu).unwrap_or(u32::MAX),
        queue: DEVICE_QUEUE,
        addresses: &config.addresses,
        routes: &device_routes(config),
        congestion: None,
    };
    interface.set_up().map_err(|source| TunnelError::Interface { name, source })?;
    Ok(device)
}
