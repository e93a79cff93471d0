//! One end of a tunnel: a TUN device, a UDP socket for each channel, and three threads.
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
mod error;
pub mod fail_closed;
mod planning;
mod receiving;
mod reload;
mod sending;
mod shared;
mod status_source;
mod waker;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Instant;

use ipnet::IpNet;
use sharing::keyed::TAG_LEN;
use tun::TunDevice;
use tun::interface::InterfaceSettings;

use crate::config::{PacketOrder, TunnelChannelConfig, TunnelConfig, TunnelEnd};
use crate::net::allowed_sources::AllowedSources;
use crate::protocol::control::handshake::{ClientIdentity, SharedKey};
use crate::protocol::endpoint::inbound::InboundEndpoint;
use crate::protocol::endpoint::outbound::SymbolSenderConfig;
use crate::protocol::endpoint::settings::{EndpointRole, EndpointSettings, KeyRenewalLimits};
use crate::protocol::recv::receiver::SymbolReceiverLimits;
use crate::protocol::send::plan::PlanGoal;
use crate::protocol::wire::datagram::HEADER_LEN;
use crate::protocol::wire::terms::TunnelTerms;
pub use error::TunnelError;
use planning::{LiveSettings, PlanningCommand, PlanningThread};
use receiving::{ReceivingCounts, ReceivingThread};
pub use reload::{TunnelReloadError, TunnelReloader};
use sending::{SendingCommand, SendingThread};
use shared::TunnelClock;
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
    /// # Errors
    /// If an address or the device cannot be used, or the random source fails.
    pub fn open(config: &TunnelConfig, key: Option<SharedKey>) -> Result<Self, TunnelError> {
        let clock = TunnelClock(Instant::now());
        let channels = bind(config)?;
        let sender_config = sender_config(config);
        let overhead = HEADER_LEN + 1 + if config.tamper_code { TAG_LEN } else { 0 };
        let lengths = sender_config
            .mtus
            .iter()
            .zip(&sender_config.headers)
            .map(|(mtu, headers)| mtu - headers);
        let found = lengths.min().unwrap_or(0) - overhead;
        let mtu = config.mtu.map_or(found, |mtu| usize::from(mtu).min(found));
        let inbound = inbound(config, key, &sender_config, clock)?;
        let device = Arc::new(make_device(config, mtu)?);

        let waker = || ThreadWaker::new().map_err(TunnelError::Waker);
        let (sending_waker, receiving_waker) = (waker()?, waker()?);
        let (to_sending, commands) = mpsc::channel();
        let (to_planning, requests) = mpsc::channel();
        let risks = config.channels.iter().map(|channel| channel.risk).collect();
        let reloader = TunnelReloader {
            opened: Arc::new(config.clone()),
            risks: Arc::new(Mutex::new(risks)),
            planning: to_planning.clone(),
        };
        let stopper = TunnelStopper {
            stops: Arc::default(),
            receiving_waker: receiving_waker.clone(),
            sending_waker: sending_waker.clone(),
            sending: to_sending.clone(),
        };
        let sending = SendingThread {
            device: Arc::clone(&device),
            channels: channels.clone(),
            commands,
            waker: sending_waker.clone(),
            clock,
            shared: Arc::default(),
            counts: Arc::default(),
            clamped_mtu: mtu,
        };
        let planning = PlanningThread {
            settings: LiveSettings::of(config),
            rng: config.rng,
            sender_config,
            commands: requests,
            sending: to_sending.clone(),
            sending_waker: sending_waker.clone(),
            clock,
            current: Arc::default(),
        };
        let receiving = ReceivingThread {
            device: Arc::clone(&device),
            channels,
            inbound,
            waker: receiving_waker,
            clock,
            shared: Arc::clone(&sending.shared),
            counts: Arc::new(Mutex::new(ReceivingCounts { mtu, ..ReceivingCounts::default() })),
            sending: to_sending,
            sending_waker,
            planning: to_planning,
            mtu,
            mtu_range: least_mtu(config).min(mtu)..=mtu,
            overhead,
            risks: Arc::clone(&reloader.risks),
            sources: AllowedSources::new(&config.allowed, config.addresses.iter().map(IpNet::addr)),
            stops: Arc::clone(&stopper.stops),
        };
        let status_source = TunnelStatusSource {
            device: device.name().to_owned(),
            clock,
            risks: Arc::clone(&reloader.risks),
            shared: Arc::clone(&sending.shared),
            sending: Arc::clone(&sending.counts),
            receiving: Arc::clone(&receiving.counts),
            plan: Arc::clone(&planning.current),
        };
        Ok(Self { device, sending, receiving, planning, status_source, stopper, reloader })
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
        let Self { sending, receiving, planning, stopper, reloader, status_source: _, device: _ } =
            self;

        let start = |name: &str| thread::Builder::new().name(name.into());
        let planner = start("planning").spawn(move || planning.run()).expect("a thread");
        let receiver = start("receiving").spawn(move || receiving.run()).expect("a thread");
        let result = sending.run();
        stopper.stop();
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

fn inbound(
    config: &TunnelConfig,
    key: Option<SharedKey>,
    sender_config: &SymbolSenderConfig,
    clock: TunnelClock,
) -> Result<InboundEndpoint, TunnelError> {
    let n = u8::try_from(config.channels.len()).unwrap_or(u8::MAX);
    let terms = TunnelTerms::new(n, config.min_threshold, config.tamper_code)
        .and_then(|terms| terms.with_min_channels(config.min_channels))?;
    let settings = EndpointSettings {
        terms,
        limits: SymbolReceiverLimits {
            share_bytes: config.reassembly_bytes,
            ..SymbolReceiverLimits::default()
        },
        rates_bps: sender_config.rates_bps.clone(),
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
    let role = role(config, key)?;
    Ok(InboundEndpoint::new(role, settings, generator, clock.now())?)
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
    let routes = config.routes.iter().filter(|route| !config.fail_closed || has_address(route));
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
