//! One end of a tunnel at work: a TUN device, a UDP socket a channel, and three threads.
//!
//! ```text
//! device ─▶ sending ─▶ channels          channels ─▶ receiving ─▶ device
//!              ▲ orders                                │ what the channels are like
//!              └───────────────── planning ◀───────────┘
//! ```
//!
//! The shell of the protocol's rooms: it moves bytes and decides nothing that they could.

mod planning;
mod receiving;
mod sending;
mod shared;
mod sources;
mod telling;
mod udp;
mod wake;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use ipnet::IpNet;
use sharing::keyed::TAG_LEN;
use tun::Device;
use tun::interface::Interface;

use crate::config::{Config, End, Order};
use crate::control::handshake::{Peer, SharedKey};
use crate::control::probe::MOST_MTU;
use crate::endpoint::inbound::Inbound;
use crate::endpoint::outbound::Means;
use crate::endpoint::settings::{KeyLimits, Role, Settings};
use crate::recv::receiver::Limits;
use crate::send::plan::Aim;
use crate::tunnel::sources::Sources;
use crate::tunnel::udp::{Channel, Place};
use crate::wire::datagram::HEADER_LEN;
use crate::wire::terms::Terms;
use planning::Planning;
use receiving::Receiving;
use sending::{Command, Sending};
use shared::Clock;
pub use telling::Teller;
use wake::Wake;

/// How many packets or superpackets the device keeps for the sending thread.
const DEVICE_QUEUE: u32 = 500;

/// One end of a tunnel, set up.
pub struct Tunnel {
    device: Arc<Device>,
    sending: Sending,
    receiving: Receiving,
    planning: Planning,
    teller: Teller,
    stopper: Stopper,
}

/// Stops a tunnel.
#[derive(Clone)]
pub struct Stopper {
    stops: Arc<AtomicBool>,
    wake_receiving: Wake,
    wake_sending: Wake,
    sending: mpsc::Sender<Command>,
}

impl Tunnel {
    /// Makes the device and binds the channels. Nothing is sent before [`Self::run`].
    ///
    /// # Errors
    /// One line: what cannot be had, and what to do.
    pub fn open(config: &Config, key: Option<SharedKey>) -> Result<Self, String> {
        let clock = Clock(Instant::now());
        let channels = bind(config)?;
        let means = means(config);
        let overhead = HEADER_LEN + 1 + if config.tamper_code { TAG_LEN } else { 0 };
        let room = means.mtus.iter().zip(&means.headers).map(|(mtu, headers)| mtu - headers);
        let found = room.min().unwrap_or(0) - overhead;
        let mtu = config.mtu.map_or(found, |mtu| usize::from(mtu).min(found));
        let inbound = inbound(config, key, &means, clock)?;
        let device = Arc::new(make_device(config, mtu)?);

        let wake = || Wake::new().map_err(|error| error.to_string());
        let (wake_sending, wake_receiving) = (wake()?, wake()?);
        let (to_sending, commands) = mpsc::channel();
        let (to_planning, requests) = mpsc::channel();
        let stopper = Stopper {
            stops: Arc::default(),
            wake_receiving: wake_receiving.clone(),
            wake_sending: wake_sending.clone(),
            sending: to_sending.clone(),
        };
        let sending = Sending {
            device: Arc::clone(&device),
            channels: channels.clone(),
            commands,
            wake: wake_sending.clone(),
            clock,
            common: Arc::default(),
            counts: Arc::default(),
            mtu,
        };
        let planning = Planning {
            aim: aim(config),
            choice: config.scheduler,
            rng: config.rng,
            means,
            requests,
            sending: to_sending.clone(),
            wake_sending: wake_sending.clone(),
            predicted: Arc::default(),
        };
        let receiving = Receiving {
            device: Arc::clone(&device),
            channels,
            inbound,
            wake: wake_receiving,
            clock,
            common: Arc::clone(&sending.common),
            counts: Arc::default(),
            sending: to_sending,
            wake_sending,
            planning: to_planning,
            mtu,
            overhead,
            risks: config.channels.iter().map(|channel| channel.risk).collect(),
            sources: Sources::new(&config.allowed, config.addresses.iter().map(IpNet::addr)),
            stops: Arc::clone(&stopper.stops),
        };
        let teller = Teller {
            device: device.name().to_owned(),
            clock,
            risks: receiving.risks.clone(),
            common: Arc::clone(&sending.common),
            sending: Arc::clone(&sending.counts),
            receiving: Arc::clone(&receiving.counts),
            predicted: Arc::clone(&planning.predicted),
        };
        Ok(Self { device, sending, receiving, planning, teller, stopper })
    }

    /// The device's name.
    pub fn device(&self) -> &str {
        self.device.name()
    }

    /// What tells how it is.
    pub fn teller(&self) -> Teller {
        self.teller.clone()
    }

    /// What stops it.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Carries packets until it is stopped.
    ///
    /// # Errors
    /// One line, when the device fails.
    ///
    /// # Panics
    /// When a thread cannot be started, or has panicked.
    pub fn run(self) -> Result<(), String> {
        let Self { sending, receiving, planning, stopper, teller: _, device: _ } = self;
        let start = |name: &str| thread::Builder::new().name(name.into());
        let planner = start("planning").spawn(move || planning.run()).expect("a thread");
        let receiver = start("receiving").spawn(move || receiving.run()).expect("a thread");
        let result = sending.run();
        stopper.stop();
        receiver.join().expect("the receiving thread");
        planner.join().expect("the planning thread");
        result
    }
}

impl Stopper {
    /// Ends the tunnel that runs.
    pub fn stop(&self) {
        self.stops.store(true, Ordering::Relaxed);
        self.wake_receiving.wake();
        // It has ended if it does not listen.
        let _ = self.sending.send(Command::Stop);
        self.wake_sending.wake();
    }
}

fn bind(config: &Config) -> Result<Vec<Channel>, String> {
    let bind = |(index, channel): (usize, &crate::config::Channel)| {
        let place = Place { local: channel.local, device: channel.device.as_deref() };
        Channel::bind(&place).map_err(|error| {
            let device =
                channel.device.as_ref().map(|name| format!(" on {name}")).unwrap_or_default();
            format!("channel {}: cannot use {}{device}: {error}", index + 1, channel.local)
        })
    };
    config.channels.iter().enumerate().map(bind).collect()
}

fn inbound(
    config: &Config,
    key: Option<SharedKey>,
    means: &Means,
    clock: Clock,
) -> Result<Inbound, String> {
    let n = u8::try_from(config.channels.len()).unwrap_or(u8::MAX);
    let terms = Terms::new(n, config.min_threshold, config.tamper_code)
        .and_then(|terms| terms.with_least(config.min_channels))
        .map_err(|error| error.to_string())?;
    let settings = Settings {
        terms,
        limits: Limits { share_bytes: config.reassembly_bytes, ..Limits::default() },
        rates_bps: means.rates_bps.clone(),
        headers: means.headers.iter().map(|len| u16::try_from(*len).unwrap_or(48)).collect(),
        key_limits: KeyLimits::default(),
        keeps_order: config.order == Order::Auto,
        is_roaming: config.roaming,
    };
    let generator = config.rng.generator().map_err(|error| error.to_string())?;
    let role = role(config, key)?;
    Inbound::new(role, settings, generator, clock.now()).map_err(|error| error.to_string())
}

fn aim(config: &Config) -> Aim {
    Aim {
        kappa: config.kappa,
        mu: config.mu,
        objective: config.objective.into(),
        floor: config.min_threshold,
        keeps_order: config.order == Order::Auto,
    }
}

fn means(config: &Config) -> Means {
    let headers = |channel: &crate::config::Channel| if channel.local.is_ipv4() { 28 } else { 48 };
    Means {
        rates_bps: config.channels.iter().map(|channel| channel.rate_bps).collect(),
        mtus: vec![usize::from(MOST_MTU); config.channels.len()],
        headers: config.channels.iter().map(headers).collect(),
    }
}

fn make_device(config: &Config, mtu: usize) -> Result<Device, String> {
    let name = &config.device;
    let device = Device::new(name).map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::PermissionDenied => "; run as root, or with CAP_NET_ADMIN",
            io::ErrorKind::ResourceBusy => "; stop what uses it, or name another device",
            io::ErrorKind::NotFound => " (/dev/net/tun); load the kernel's module: modprobe tun",
            _ => "",
        };
        format!("cannot make the device {name}: {error}{advice}")
    })?;
    let interface = Interface {
        name: device.name(),
        mtu: u32::try_from(mtu).unwrap_or(u32::MAX),
        queue: DEVICE_QUEUE,
        addresses: &config.addresses,
        routes: &config.routes,
        congestion: None,
    };
    interface.set_up().map_err(|error| format!("{name}: {error}"))?;
    Ok(device)
}

fn role(config: &Config, key: Option<SharedKey>) -> Result<Role, String> {
    let peers: Option<Vec<SocketAddr>> =
        config.channels.iter().map(|channel| channel.peer).collect();
    match (config.end, peers, key) {
        (End::Client, Some(servers), key) => Ok(Role::Client { servers, key }),
        (End::Server, Some(clients), None) => Ok(Role::Server(Peer::Addresses(clients))),
        (End::Server, Some(clients), Some(key)) => Ok(Role::Server(Peer::Both(clients, key))),
        (End::Server, None, Some(key)) => Ok(Role::Server(Peer::Key(key))),
        (End::Client, None, _) | (End::Server, None, None) => {
            Err("neither the peer's addresses nor a shared key are given".into())
        }
    }
}
