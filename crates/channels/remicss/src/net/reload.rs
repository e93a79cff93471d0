//! Changes the settings of a tunnel that runs.

use std::collections::HashSet;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use ipnet::IpNet;
use keys::SharedKey;
use thiserror::Error;
use tracing::{info, warn};

use super::client_networks::ClientNetworks;
use super::new_peer::{KeyedPeer, NewTunnelPeer, PeerFactory, keyed_clients};
use super::planning::{LiveSettings, PlanningCommand};
use super::receiving::ReceivingCommand;
use super::sending::SendingCommand;
use super::shared::lock;
use super::status_source::PeerStatusSource;
use super::waker::ThreadWaker;
use super::{device_routes, goal};
use crate::config::{TunnelChannelConfig, TunnelConfig};
use crate::protocol::endpoint::client_demultiplexer::TunnelPeerId;

/// Why the settings of a tunnel that runs stay as they are. Each text is one line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TunnelReloadError {
    /// A setting has changed that is read at the start only.
    #[error("`{key}` has changed, which needs a restart of the tunnel")]
    NeedsRestart {
        /// Its key in the configuration.
        key: &'static str,
    },
    /// The privacy floor would be below the one on which the ends have agreed.
    #[error(
        "min_threshold = {found} is below {agreed}, which the ends agree on until a restart; without \
         `min_threshold` it is kappa rounded down"
    )]
    BelowFloor {
        /// The new floor.
        found: u8,
        /// The floor of the handshake.
        agreed: u8,
    },
    /// The clients cannot be used: the text of a [`TunnelError`](super::TunnelError).
    #[error("{0}")]
    Clients(String),
    /// The tunnel has ended.
    #[error("the tunnel has ended")]
    Ended,
}

/// Changes the settings of a tunnel that runs. Clones change those of the same tunnel.
#[derive(Clone)]
pub struct TunnelReloader {
    /// It has the configuration with which the tunnel was opened.
    pub(super) factory: PeerFactory,
    pub(super) device: String,
    pub(super) risks: Arc<Mutex<Vec<f64>>>,
    pub(super) configured: Arc<Mutex<Vec<TunnelChannelConfig>>>,
    pub(super) planning: Sender<PlanningCommand>,
    pub(super) sending: Sender<SendingCommand>,
    pub(super) sending_waker: ThreadWaker,
    pub(super) receiving: Sender<ReceivingCommand>,
    pub(super) receiving_waker: ThreadWaker,
    pub(super) sources: Arc<Mutex<Vec<PeerStatusSource>>>,
    /// The only peer, or the clients, in the order of the configuration.
    pub(super) clients: Arc<Mutex<Vec<(TunnelPeerId, KeyedPeer)>>>,
}

impl TunnelReloader {
    /// Applies the settings that can change while the tunnel runs: `kappa`, `mu`, `objective`,
    /// `prefer`, `scheduler`, the bounds, `min_threshold` (not below that of the start), and of
    /// each channel the risk, shared fate, price, priority and quota. They hold for packets that
    /// are sent from now on. At a server with several clients, also the clients and
    /// `between_clients`: a client that is new or has another key is added, and one that is
    /// missing is closed, without touching the others. With `fail_closed`, the networks of all
    /// clients together stay as they are. No packet is lost. `keys` is as for
    /// [`open`](super::IpTunnel::open).
    ///
    /// # Errors
    /// If another setting has changed too, or the clients' keys cannot be used. Then nothing
    /// changes.
    pub fn reload(
        &self,
        config: &TunnelConfig,
        keys: Vec<SharedKey>,
    ) -> Result<(), TunnelReloadError> {
        let opened = &self.factory.config;
        let agreed = opened.min_threshold;
        if let Some(key) = changed_key(opened, config) {
            return Err(TunnelReloadError::NeedsRestart { key });
        }
        if config.min_threshold < agreed {
            return Err(TunnelReloadError::BelowFloor { found: config.min_threshold, agreed });
        }
        if !config.clients.is_empty() {
            self.reload_clients(config, keys)?;
        }
        let settings = LiveSettings::of(config);
        let risks = settings.risks.clone();
        let sent = self.planning.send(PlanningCommand::Settings(settings));
        sent.map_err(|_| TunnelReloadError::Ended)?;
        *lock(&self.risks) = risks;
        lock(&self.configured).clone_from(&config.channels);
        Ok(())
    }

    /// Adds, closes and changes clients. The state of new ones is made first, so that nothing has
    /// changed if that fails.
    fn reload_clients(
        &self,
        config: &TunnelConfig,
        keys: Vec<SharedKey>,
    ) -> Result<(), TunnelReloadError> {
        let refused = |error: super::TunnelError| TunnelReloadError::Clients(error.to_string());
        let wanted = keyed_clients(config, keys).map_err(refused)?;
        let mut clients = lock(&self.clients);
        let mut kept = Vec::new();
        for peer in wanted {
            let same = clients.iter().find(|(_, known)| is_same_client(known, &peer));
            kept.push((same.map_or_else(|| self.factory.next_id(), |(id, _)| *id), peer));
        }
        let networks = Arc::new(networks_of(&kept));
        let factory = self.factory.with_between_clients(config.between_clients);
        let is_known = |id: TunnelPeerId| clients.iter().any(|(known, _)| *known == id);
        let added = kept.iter().filter(|(id, _)| !is_known(*id));
        let added = added.map(|(id, peer)| factory.peer(*id, peer, &networks));
        let added = added.collect::<Result<Vec<NewTunnelPeer>, _>>().map_err(refused)?;

        let before = lock(&self.sources).clone();
        let removed: Vec<TunnelPeerId> = clients
            .iter()
            .map(|(id, _)| *id)
            .filter(|id| !kept.iter().any(|(kept, _)| kept == id))
            .collect();
        let mut sources: Vec<PeerStatusSource> = Vec::new();
        for (id, peer) in &kept {
            let new = added.iter().map(|new| &new.status);
            let known = before.iter().chain(new).find(|source| source.id == *id).cloned();
            sources.extend(known.map(|mut known| {
                known.client.clone_from(&peer.client);
                known
            }));
        }
        self.change_routes(config, &clients);
        for id in removed {
            let name = clients.iter().find(|(known, _)| *known == id).map(|(_, peer)| peer.name());
            let name = name.unwrap_or_default();
            info!("{name}: closed, because it is no longer among the clients");
            // If nobody receives, the tunnel has ended.
            let _ = self.receiving.send(ReceivingCommand::Remove(id));
            let _ = self.planning.send(PlanningCommand::Remove(id));
            let _ = self.sending.send(SendingCommand::Remove(id));
        }
        for NewTunnelPeer { id, receiving, sending, planning, status } in added {
            let name = status.client.as_ref().map(|client| client.name.clone());
            info!("{}: added to the clients", name.unwrap_or_default());
            // The receiving thread last, because the others must know what it reports.
            let _ = self.planning.send(PlanningCommand::Add(id, Box::new(planning)));
            let _ = self.sending.send(SendingCommand::Add(id, Box::new(sending)));
            let _ = self.receiving.send(ReceivingCommand::Add(Box::new(receiving)));
        }
        let between_clients = config.between_clients;
        let _ = self.sending.send(SendingCommand::Networks(Arc::clone(&networks)));
        let _ = self.receiving.send(ReceivingCommand::Networks { networks, between_clients });
        self.sending_waker.wake();
        self.receiving_waker.wake();
        *lock(&self.sources) = sources;
        *clients = kept;
        Ok(())
    }

    /// Adds the routes to networks of new clients, and removes those of closed ones. A route that
    /// the kernel refuses is logged.
    fn change_routes(&self, config: &TunnelConfig, before: &[(TunnelPeerId, KeyedPeer)]) {
        let clients = before.iter().filter_map(|(_, peer)| peer.client.clone()).collect();
        let before = TunnelConfig { clients, ..(*self.factory.config).clone() };
        let RouteChanges { added, removed } = route_changes(&before, config);
        let log = |changed: Result<(), tun::NetlinkError>| {
            if let Err(error) = changed {
                warn!("{}: {error}", self.device);
            }
        };
        // First, so that a network always has a route if it has one before and after.
        for network in added {
            log(tun::interface::add_route(&self.device, network));
        }
        for network in removed {
            log(tun::interface::remove_route(&self.device, network));
        }
    }
}

/// The routes through the device that a reload adds and removes.
#[derive(Debug, PartialEq, Eq)]
struct RouteChanges {
    added: Vec<IpNet>,
    removed: Vec<IpNet>,
}

fn route_changes(before: &TunnelConfig, after: &TunnelConfig) -> RouteChanges {
    let [old, new] = [before, after].map(device_routes);
    let without = |routes: &[IpNet], others: &[IpNet]| {
        let others: HashSet<&IpNet> = others.iter().collect();
        routes.iter().filter(|route| !others.contains(route)).copied().collect()
    };
    RouteChanges { added: without(&new, &old), removed: without(&old, &new) }
}

/// The networks of these peers.
pub(super) fn networks_of(peers: &[(TunnelPeerId, KeyedPeer)]) -> ClientNetworks {
    let networks = |(id, peer): &(TunnelPeerId, KeyedPeer)| {
        Some((*id, peer.client.as_ref()?.networks.clone()))
    };
    ClientNetworks::new(peers.iter().filter_map(networks).collect())
}

/// The networks of clients to which there is no other route through the device.
pub(super) fn client_routes(config: &TunnelConfig) -> Vec<IpNet> {
    let own: Vec<IpNet> =
        config.addresses.iter().map(IpNet::trunc).chain(config.routes.iter().copied()).collect();
    let networks = config.clients.iter().flat_map(|client| client.networks.iter().copied());
    networks.filter(|network| !own.iter().any(|own| own.contains(network))).collect()
}

/// Whether a client is the same as before, at most with other networks.
fn is_same_client(one: &KeyedPeer, other: &KeyedPeer) -> bool {
    let key = |peer: &KeyedPeer| peer.key.as_ref().map(SharedKey::fingerprint);
    one.name() == other.name() && key(one) == key(other)
}

impl LiveSettings {
    /// Those of a configuration.
    pub(super) fn of(config: &TunnelConfig) -> Self {
        Self {
            goal: goal(config),
            scheduler_kind: config.scheduler,
            risks: config.channels.iter().map(|channel| channel.risk).collect(),
            costs: config.channels.iter().map(|channel| channel.cost_per_gb).collect(),
            priorities: config.channels.iter().map(|channel| channel.priority).collect(),
        }
    }
}

/// Whether two channels have the same addresses at both ends. Those of a name are not compared:
/// they are known for the running tunnel only.
fn have_same_addresses(one: &TunnelChannelConfig, other: &TunnelChannelConfig) -> bool {
    let own = |channel: &TunnelChannelConfig| match channel.server_name() {
        Some(_) if channel.local.ip().is_unspecified() => None,
        _ => Some(channel.local),
    };
    let is_same_server = match one.server_name() {
        Some(_) => one.server == other.server,
        None => one.peer == other.peer && other.server_name().is_none(),
    };
    is_same_server && own(one) == own(other)
}

/// The first setting that differs, of those that are read at the start only.
fn changed_key(opened: &TunnelConfig, new: &TunnelConfig) -> Option<&'static str> {
    let channels = opened.channels.iter().zip(&new.channels);
    let differ = |same: fn(&TunnelChannelConfig, &TunnelChannelConfig) -> bool| {
        channels.clone().any(|(one, other)| !same(one, other))
    };
    let fixed = [
        ("channel", opened.channels.len() != new.channels.len() || opened.end != new.end),
        ("channel", differ(have_same_addresses)),
        ("device", differ(|one, other| one.device == other.device)),
        ("rate_mbit", differ(|one, other| one.rate_bps == other.rate_bps)),
        ("min_channels", opened.min_channels != new.min_channels),
        ("tamper_code", opened.tamper_code != new.tamper_code),
        ("rng", opened.rng != new.rng),
        ("order", opened.order != new.order),
        ("reassembly_mib", opened.reassembly_bytes != new.reassembly_bytes),
        ("key", opened.key != new.key),
        ("quota_file", opened.quota_file != new.quota_file),
        ("client", opened.clients.is_empty() != new.clients.is_empty()),
        ("roaming", opened.roaming != new.roaming),
        ("device", opened.device != new.device),
        ("addresses", opened.addresses != new.addresses),
        ("routes", opened.routes != new.routes),
        ("fail_closed", opened.fail_closed != new.fail_closed),
        ("direct", opened.direct != new.direct),
        ("allowed", opened.allowed != new.allowed),
        ("mtu", opened.mtu != new.mtu),
        // The rules that close this host are made at the start.
        ("networks", new.fail_closed && closed_networks(opened) != closed_networks(new)),
    ];
    fixed.into_iter().find_map(|(key, is_changed)| is_changed.then_some(key))
}

fn closed_networks(config: &TunnelConfig) -> HashSet<IpNet> {
    config.networks().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;
    use crate::net::shared::TunnelClock;

    const CONFIG: &str = r#"
        kappa = 2
        mu = 2.5
        addresses = ["10.9.0.2/24"]
        [[channel]]
        server = "192.0.2.1:6521"
        risk = 0.1
        [[channel]]
        server = "192.0.2.2:6521"
        [[channel]]
        server = "192.0.2.3:6521"
    "#;

    fn config(from: &str, to: &str) -> TunnelConfig {
        assert!(CONFIG.contains(from), "{from}");
        TunnelConfig::from_toml(&CONFIG.replacen(from, to, 1)).unwrap()
    }

    /// The addresses of names are not compared: they change while the tunnel runs.
    #[test]
    fn a_name_stays_the_same_whatever_its_address_is() {
        let mut opened = config("192.0.2.1:", "vpn.example.com:");
        (opened.channels[0].peer, opened.channels[0].local) =
            (Some("[2001:db8::1]:6521".parse().unwrap()), "[::]:0".parse().unwrap());
        let changed = |to: &str| changed_key(&opened, &config("192.0.2.1:", to));
        assert_eq!(changed("vpn.example.com:"), None);
        assert_eq!(changed("VPN.example.com:"), None);
        for other in ["vpn.example.org:", "192.0.2.1:", "[2001:db8::1]:"] {
            assert_eq!(changed(other), Some("channel"), "{other}");
        }
        let addressed = config("kappa", "kappa");
        assert_eq!(changed_key(&addressed, &opened), Some("channel"));
    }

    #[test]
    fn only_the_settings_of_what_is_sent_change_while_it_runs() {
        let (planning, commands) = mpsc::channel();
        let factory = PeerFactory {
            config: Arc::new(config("kappa", "kappa")),
            clock: TunnelClock(Instant::now()),
            mtu: 1400,
            highest_id: Arc::default(),
        };
        let reloader = TunnelReloader {
            factory,
            device: "sunder0".into(),
            risks: Arc::default(),
            configured: Arc::default(),
            planning,
            sending: mpsc::channel().0,
            sending_waker: ThreadWaker::new().unwrap(),
            receiving: mpsc::channel().0,
            receiving_waker: ThreadWaker::new().unwrap(),
            sources: Arc::default(),
            clients: Arc::default(),
        };
        for (from, to) in [
            ("kappa = 2", "kappa = 3\nobjective = \"loss\"\nprefer = \"redundancy\""),
            ("mu = 2.5", "mu = 3\nscheduler = \"dynamic\""),
            ("risk = 0.1", "risk = 0.3"),
            ("risk = 0.1", "risk = 0.3\npriority = 2\ncost_per_gb = 5"),
        ] {
            let text = if from == "kappa = 2" { ("mu = 2.5", "mu = 3") } else { ("mu", "mu") };
            let new = CONFIG.replacen(text.0, text.1, 1).replacen(from, to, 1);
            let new = TunnelConfig::from_toml(&new).unwrap();
            assert_eq!(reloader.reload(&new, Vec::new()), Ok(()), "{to}");
            let Ok(PlanningCommand::Settings(settings)) = commands.try_recv() else { panic!() };
            assert_eq!((settings.goal.kappa, settings.goal.mu), (new.kappa, new.mu));
            assert_eq!(*lock(&reloader.risks), settings.risks);
            assert_eq!(*lock(&reloader.configured), new.channels);
        }
        for (from, to, key) in [
            ("10.9.0.2/24", "10.9.0.3/24", "addresses"),
            ("192.0.2.3:6521", "192.0.2.3:6522", "channel"),
            ("mu = 2.5", "mu = 2.5\ntamper_code = false", "tamper_code"),
            ("mu = 2.5", "mu = 2.5\nroutes = [\"10.8.0.0/16\"]", "routes"),
            ("risk = 0.1", "rate_mbit = 5", "rate_mbit"),
            ("risk = 0.1", "device = \"eth0\"", "device"),
            ("mu = 2.5", "mu = 2.5\nquota_file = \"other\"", "quota_file"),
        ] {
            let refused = Err(TunnelReloadError::NeedsRestart { key });
            assert_eq!(reloader.reload(&config(from, to), Vec::new()), refused, "{to}");
        }
        let below = Err(TunnelReloadError::BelowFloor { found: 1, agreed: 2 });
        assert_eq!(reloader.reload(&config("kappa = 2", "kappa = 1.5"), Vec::new()), below);
        assert!(commands.try_recv().is_err(), "nothing has changed");
        drop(commands);
        assert_eq!(
            reloader.reload(&config("kappa", "kappa"), Vec::new()),
            Err(TunnelReloadError::Ended)
        );
    }

    /// A server with a client that has these networks.
    fn server(settings: &str, networks: &str) -> TunnelConfig {
        let text = format!(
            r#"
            kappa = 2
            mu = 2
            addresses = ["10.9.0.1/24"]
            {settings}
            [[channel]]
            listen = "192.0.2.1:6521"
            [[channel]]
            listen = "192.0.2.2:6521"
            [[client]]
            name = "north"
            key = "north.key"
            networks = [{networks}]
            "#
        );
        TunnelConfig::from_toml(&text).unwrap()
    }

    fn routes(networks: &[&str]) -> Vec<IpNet> {
        networks.iter().map(|network| network.parse().unwrap()).collect()
    }

    #[test]
    fn routes_at_a_reload_are_those_of_the_start() {
        let before = server("", r#""10.9.0.2/32", "10.20.0.0/16""#);
        let after = server("", r#""10.9.0.2/32", "::/0""#);
        let halves = routes(&["::/1", "8000::/1"]);
        let one = routes(&["10.20.0.0/16"]);
        assert_eq!(
            route_changes(&before, &after),
            RouteChanges { added: halves.clone(), removed: one.clone() }
        );
        assert_eq!(route_changes(&after, &before), RouteChanges { added: one, removed: halves });
        // Without an IPv6 address of the tunnel, closed IPv6 networks have no routes.
        let v6 = r#""10.9.0.2/32", "2001:db8::/32""#;
        let closed = server("fail_closed = true", v6);
        let [none, one] = [Vec::new(), routes(&["10.20.0.0/16"])];
        assert_eq!(route_changes(&before, &closed), RouteChanges { added: none, removed: one });
    }

    #[test]
    fn closed_networks_need_a_restart() {
        let [one, more] = [r#""10.9.0.2/32""#, r#""10.9.0.2/32", "10.20.0.0/16""#];
        for (before, after) in [(one, more), (more, one)] {
            let changed =
                |settings| changed_key(&server(settings, before), &server(settings, after));
            assert_eq!(changed("fail_closed = true"), Some("networks"));
            assert_eq!(changed(""), None);
        }
        let [one, other] = [more, r#""10.20.0.0/16", "10.9.0.2/32""#]
            .map(|networks| server("fail_closed = true", networks));
        assert_eq!(changed_key(&one, &other), None);
    }
}
