//! Reads an end's configuration, and checks it in full.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use random::RandomSource;
use service::config::{
    ConfigKeys, ConfigProblem, ConfigProblems, ConfigTable, ConfigValue, key, read,
};
use service::remote_address::RemoteAddress;

use super::channel_use::{self, ChannelUse};
use super::clients::{clients, settings_of_one_client};
use super::networks::{networks, whole_network, whole_networks};
use super::numbers::{number_in, refuse_number};
use super::types::{
    PacketOrder, PlanBounds, PlanObjective, SchedulerKind, TunnelChannelConfig, TunnelConfig,
    TunnelEnd,
};
use crate::protocol::send::spare::PlanPreference;
use crate::protocol::wire::datagram::MAX_CHANNELS;

/// The keys of an end's configuration.
pub const KEYS: ConfigKeys = ConfigKeys(&[&[
    key("", "kappa", "2"),
    key("", "mu", "2.5"),
    key("", "addresses", "[\"10.9.0.2/24\"]"),
    key("", "routes", "[\"10.8.0.0/16\"]"),
    key("", "fail_closed", "true"),
    key("", "direct", "[\"192.168.1.0/24\"]"),
    key("", "allowed", "[\"10.9.0.0/24\"]"),
    key("", "key", "\"tunnel.key\""),
    key("", "quota_file", "\"tunnel.quota\""),
    key("", "objective", "\"privacy\""),
    key("", "prefer", "\"rate\""),
    key("", "max_risk", "0.02"),
    key("", "max_loss", "0.01"),
    key("", "max_delay_ms", "40"),
    key("", "min_rate_mbit", "20"),
    key("", "scheduler", "\"planned\""),
    key("", "min_threshold", "2"),
    key("", "min_channels", "2"),
    key("", "tamper_code", "true"),
    key("", "rng", "\"seeded\""),
    key("", "order", "\"auto\""),
    key("", "reassembly_mib", "16"),
    key("", "roaming", "true"),
    key("", "device", "\"sunder0\""),
    key("", "mtu", "1400"),
    key("", "between_clients", "true"),
    key("", "channel", "[{ server = \"192.0.2.10:6521\" }]"),
    key(
        "",
        "client",
        "[{ name = \"laptop\", key = \"laptop.key\", networks = [\"10.9.0.2/32\"] }]",
    ),
    key("client", "name", "\"laptop\""),
    key("client", "key", "\"laptop.key\""),
    key("client", "networks", "[\"10.9.0.2/32\"]"),
    key("channel", "server", "\"192.0.2.10:6521\""),
    key("channel", "source", "\"192.0.2.20\""),
    key("channel", "listen", "\"192.0.2.10:6521\""),
    key("channel", "client", "\"192.0.2.20\""),
    key("channel", "device", "\"wlan0\""),
    key("channel", "risk", "0.2"),
    key("channel", "rate_mbit", "50"),
    key("channel", "loss", "0.01"),
    key("channel", "delay_ms", "15"),
    key("channel", "shared_fate", "\"provider\""),
    key("channel", "cost_per_gb", "5"),
    key("channel", "priority", "2"),
    key("channel", "quota_gb", "50"),
    key("channel", "quota_period", "\"month\""),
]]);

/// What to write for an address.
const ADDRESS: &str = "give an address, as in 192.0.2.20 or 2001:db8::2; names are not looked up";

/// What to write for an address or a name, and a port.
const HOST: &str = "give ADDRESS:PORT or NAME:PORT, as in 192.0.2.10:6521, [2001:db8::1]:6521 or \
                    vpn.example.com:6521";

/// What to write for an address and a port.
const SOCKET: &str =
    "give ADDRESS:PORT, as in 192.0.2.10:6521 or [2001:db8::1]:6521; names are not looked up";

impl TunnelConfig {
    /// Reads a configuration.
    ///
    /// # Errors
    /// When the text is not a valid configuration: all its problems.
    pub fn from_toml(text: &str) -> Result<Self, ConfigProblems> {
        read(text, KEYS, config)
    }
}

fn config(table: &ConfigTable<'_>) -> Option<TunnelConfig> {
    let number = |name: &str| table.require(name).and_then(|value| value.number());
    let (kappa, mu) = (number("kappa"), number("mu"));
    let count = table.require("channel").and_then(|channels| channels.count());
    let count = count.and_then(|found| channel_count(table, found));
    let (end, channels) = channels(table);
    let kappa = kappa.zip(count).and_then(|(kappa, n)| dial(table, "kappa", kappa, 1.0, n.into()));
    let mu = mu.zip(count).zip(kappa);
    let mu = mu.and_then(|((mu, n), kappa)| dial(table, "mu", mu, kappa, n.into()));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 16")]
    let whole_kappa = kappa.map(|kappa| kappa as u8);
    let all = count.or(u8::try_from(MAX_CHANNELS).ok()).unwrap_or(u8::MAX);
    let min_threshold = match table.get("min_threshold") {
        Some(given) => given.integer_in(1..=whole_kappa.unwrap_or(all).into()),
        None => whole_kappa,
    };
    let min_channels = match table.get("min_channels") {
        Some(given) => given.integer_in(min_threshold.unwrap_or(1).into()..=all.into()),
        None => count,
    };
    let mtu = table.get("mtu").and_then(|mtu| mtu.integer_in(576..=65_000));
    let has_clients = table.has("client");
    let reassembly_mib: Option<usize> = match table.get("reassembly_mib") {
        Some(given) => given.integer_in(1..=1024),
        None if has_clients => Some(1),
        None => Some(16),
    };
    let key = table.get("key").and_then(|key| key.text());
    let roaming = flag(table, "roaming", false);
    if let Some(channels) = channels.as_ref().filter(|channels| !channels.is_empty())
        && !settings_of_one_client(table, channels)
        && end == TunnelEnd::Server
    {
        known_client(table, channels);
    }
    may_roam(table, roaming, end, channels.as_deref().unwrap_or_default());
    let addresses = table.require("addresses").map(|list| networks(&list)).unwrap_or_default();
    let clients = clients(table, end, &addresses);
    let between_clients = flag(table, "between_clients", false);
    let routes = table.get("routes").map(|list| whole_networks(&list)).unwrap_or_default();
    let networks: Vec<IpNet> =
        addresses.iter().map(IpNet::trunc).chain(routes.iter().copied()).collect();
    let fail_closed = flag(table, "fail_closed", false);
    let direct = direct(table, fail_closed, &networks);
    if fail_closed {
        plain_device_names(table);
        no_server_names(table, channels.as_deref().unwrap_or_default());
    }
    let allowed = table.get("allowed").map(|list| whole_networks(&list)).unwrap_or(networks);
    let schedulers = [("planned", SchedulerKind::Planned), ("dynamic", SchedulerKind::Dynamic)];
    let scheduler = table.choice("scheduler", &schedulers);
    let bounds = bounds(table, scheduler, channels.as_deref().unwrap_or_default());
    let objectives = objectives(table);
    let known = channels.as_deref().unwrap_or_default();
    channel_use::check(table, scheduler, &objectives, known);
    let quota_file = table.get("quota_file").and_then(|file| file.text());
    Some(TunnelConfig {
        bounds,
        objectives,
        prefer: table.choice(
            "prefer",
            &[("rate", PlanPreference::Rate), ("redundancy", PlanPreference::Redundancy)],
        ),
        scheduler,
        rng: table.choice("rng", &[("seeded", RandomSource::Seeded), ("os", RandomSource::Os)]),
        order: table.choice("order", &[("auto", PacketOrder::Auto), ("off", PacketOrder::Off)]),
        tamper_code: flag(table, "tamper_code", true),
        device: device(table, known)?,
        kappa: kappa?,
        mu: mu?,
        min_threshold: min_threshold?,
        min_channels: min_channels?,
        reassembly_bytes: reassembly_mib? << 20,
        key: key.map(PathBuf::from),
        quota_file: quota_file.map(PathBuf::from),
        channels: channels?,
        end,
        roaming,
        addresses,
        routes,
        fail_closed,
        direct,
        allowed,
        clients: clients?,
        between_clients,
        mtu,
    })
}

fn flag(table: &ConfigTable<'_>, name: &str, default: bool) -> bool {
    table.get(name).and_then(|value| value.flag()).unwrap_or(default)
}

/// The networks that are reached without the tunnel. Each is a part of one that `fail_closed`
/// closes.
fn direct(table: &ConfigTable<'_>, fail_closed: bool, closed: &[IpNet]) -> Vec<IpNet> {
    if fail_closed && closed.is_empty() {
        let what = "`fail_closed` closes nothing: `addresses` and `routes` are empty";
        let fix =
            "name the networks that only the tunnel may reach, as in routes = [\"0.0.0.0/0\"]";
        table.report_key("fail_closed", ConfigProblem::new(what, fix).summarized(what));
    }
    let Some(list) = table.get("direct").and_then(|list| list.list()) else { return Vec::new() };
    if !fail_closed {
        let what = "`direct` goes with `fail_closed = true`";
        let fix = "add it, or leave `direct` out: without it nothing is closed";
        table.report_key("direct", ConfigProblem::new(what, fix).summarized(what));
        return Vec::new();
    }
    let part = |text: &ConfigValue<'_>| {
        let network = whole_network(text)?;
        if closed.iter().any(|closed| network.contains(closed)) {
            let what = format!("{network} contains a whole network of `addresses` or `routes`");
            text.refuse(what, "give a part of it, or leave that network out of `routes`");
        } else if !closed.iter().any(|closed| closed.contains(&network)) {
            let what = format!("{network} is not in `routes`");
            text.refuse(what, "leave it out: the tunnel does not close it");
        }
        Some(network)
    };
    list.iter().filter_map(part).collect()
}

/// What the schedule minimises: one property, or a list of them.
fn objectives(table: &ConfigTable<'_>) -> Vec<PlanObjective> {
    let goals = [
        ("privacy", PlanObjective::Privacy),
        ("loss", PlanObjective::Loss),
        ("delay", PlanObjective::Delay),
        ("cost", PlanObjective::Cost),
    ];
    let Some(value) = table.get("objective") else { return vec![PlanObjective::default()] };
    let Some(values) = value.count().and_then(|_| value.list()) else {
        return value.choice(&goals).into_iter().collect();
    };
    let mut objectives = Vec::new();
    for value in &values {
        let Some(objective) = value.choice(&goals) else { continue };
        if objectives.contains(&objective) {
            value.refuse("this objective is given twice", "name each one once");
        }
        objectives.push(objective);
    }
    if values.is_empty() {
        value.refuse("no objective is given", "give one, or leave `objective` out");
    }
    objectives
}

/// The bounds of schedules.
fn bounds(
    table: &ConfigTable<'_>,
    scheduler: SchedulerKind,
    channels: &[TunnelChannelConfig],
) -> PlanBounds {
    let bound = |name, range| table.get(name).and_then(|value| number_in(&value, range));
    let bounds = PlanBounds {
        max_risk: bound("max_risk", 0.0..=1.0),
        max_loss: bound("max_loss", 0.0..=1.0),
        max_delay_ms: bound("max_delay_ms", 0.0..=1e6),
        min_rate_mbit: bound("min_rate_mbit", 0.0..=1e6),
    };
    if bounds != PlanBounds::default() && scheduler == SchedulerKind::Dynamic {
        let what = "the dynamic scheduler keeps no bounds";
        let fix = "leave `scheduler` out, or the bounds";
        table.report_key("scheduler", ConfigProblem::new(what, fix).summarized(what));
    }
    let knows_no_risk = channels.iter().all(|channel| channel.risk == 0.0);
    if bounds.max_risk.is_some() && !channels.is_empty() && knows_no_risk {
        let what = "`max_risk` needs the `risk` of the channels";
        let fix = "give each [[channel]] its risk, as in risk = 0.2";
        table.report_key("max_risk", ConfigProblem::new(what, fix).summarized(what));
    }
    bounds
}

/// Rejects names of devices that are not plain words in the rules of the packet filter.
fn plain_device_names(table: &ConfigTable<'_>) {
    let tables = table.tables("channel");
    let devices = tables.iter().chain([table]).filter_map(|table| table.get("device"));
    for device in devices {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if device.text().is_some_and(|name| !name.chars().all(is_plain)) {
            let what = "`fail_closed` needs devices whose names are plain words";
            device.refuse(what, "use only letters, digits, `-`, `_` and `.` in it");
        }
    }
}

/// Rejects names of servers where the rules of the packet filter let only fixed addresses pass, and
/// not the look-up of a name.
fn no_server_names(table: &ConfigTable<'_>, channels: &[TunnelChannelConfig]) {
    for (table, _) in
        table.tables("channel").iter().zip(channels).filter(|it| it.1.server_name().is_some())
    {
        let what = "`fail_closed` needs the addresses of servers, not names";
        let problem = ConfigProblem::new(what, "write the address").summarized(what);
        table.report_key("server", problem);
    }
}

/// The number of channels, if it is within the limits.
fn channel_count(table: &ConfigTable<'_>, found: usize) -> Option<u8> {
    if !(1..=MAX_CHANNELS).contains(&found) {
        // Reported for the whole table, because it concerns no single channel.
        table.refuse(format!("{found} channels"), format!("give 1 to {MAX_CHANNELS}"));
        return None;
    }
    u8::try_from(found).ok()
}

/// Which end it is, by the first channel, and the channels if all are valid.
fn channels(table: &ConfigTable<'_>) -> (TunnelEnd, Option<Vec<TunnelChannelConfig>>) {
    let tables = table.tables("channel");
    let is_server = tables.first().is_some_and(|channel| channel.get("listen").is_some());
    let end = if is_server { TunnelEnd::Server } else { TunnelEnd::Client };
    let channel = |(index, table): (usize, &ConfigTable<'_>)| channel(index + 1, table, end);
    let channels: Vec<Option<TunnelChannelConfig>> =
        tables.iter().enumerate().map(channel).collect();
    let is_distinct = distinct(end, &channels, &tables);
    (end, channels.into_iter().collect::<Option<Vec<_>>>().filter(|_| is_distinct))
}

fn channel(number: usize, table: &ConfigTable<'_>, end: TunnelEnd) -> Option<TunnelChannelConfig> {
    let address = |name: &str| table.get(name).map(|value| value.parsed_or::<IpAddr>(ADDRESS));
    let socket = |name: &str| table.get(name).map(|value| value.parsed_or::<SocketAddr>(SOCKET));
    let server = table.get("server").map(|value| value.parsed_or::<RemoteAddress>(HOST));
    let listen = socket("listen");
    let (source, client) = (address("source"), address("client"));
    let device = table.get("device").and_then(|device| device.text()).map(str::to_owned);
    let risk = table.get("risk").map(|risk| number_in(&risk, 0.0..=1.0));
    let rate = table.get("rate_mbit").map(|rate| number_in(&rate, 0.001..=1e6));
    let loss = table.get("loss").and_then(|loss| number_in(&loss, 0.0..=1.0));
    let delay = table.get("delay_ms").and_then(|delay| number_in(&delay, 0.0..=1e6));
    let ChannelUse { shared_fate, cost_per_gb, priority, quota } = ChannelUse::read(table);
    let found = match (end, server.is_some(), listen.is_some()) {
        (TunnelEnd::Client, true, false) | (TunnelEnd::Server, false, true) => None,
        (_, true, true) => Some("both `server` and `listen`"),
        (TunnelEnd::Server, true, false) => Some("`server`, where others have `listen`"),
        (TunnelEnd::Client, false, true) => Some("`listen`, where others have `server`"),
        (_, false, false) if table.has("server") || table.has("listen") => return None,
        (_, false, false) => Some("neither `server` nor `listen`"),
    };
    if let Some(found) = found {
        let fix = "give every channel `server` (at the end that connects) or every channel \
                   `listen` (at the other)";
        table.refuse(format!("channel {number} has {found}"), fix);
        return None;
    }
    if listen.is_some() && source.is_some() {
        let what = "`source` goes with `server`";
        let fix = "leave it out: at the end that listens, `listen` says it";
        let summary = format!("{what}; at the end that listens, `listen` says it");
        table.report_key("source", ConfigProblem::new(what, fix).summarized(summary));
        return None;
    }
    if server.is_some() && client.is_some() {
        let what = "`client` goes with `listen`, at the other end";
        let problem = ConfigProblem::new(what, "leave it out here").summarized(what);
        table.report_key("client", problem);
        return None;
    }
    let (server, listen) = (server.flatten(), listen.flatten());
    // A client may have any port.
    let peer = match &server {
        Some(server) => server.known(),
        None => client.flatten().map(|client| SocketAddr::new(client, 0)),
    };
    let local = match (listen, &server) {
        (Some(listen), _) => listen,
        (None, Some(_)) => {
            // The family of a name is known when it is looked up.
            let any = match peer {
                Some(SocketAddr::V6(_)) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
                Some(SocketAddr::V4(_)) | None => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            };
            SocketAddr::new(source.flatten().unwrap_or(any), 0)
        }
        // Its problem was already reported.
        (None, None) => return None,
    };
    if peer.is_some_and(|peer| peer.is_ipv4() != local.is_ipv4()) {
        let what = "a channel's two addresses must both be IPv4, or both IPv6";
        let problem = ConfigProblem::new(what, "give both of one family").summarized(what);
        table.report_key(if end == TunnelEnd::Client { "source" } else { "client" }, problem);
        return None;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "up to 1e12")]
    let rate_bps = rate.flatten().map(|rate| (rate * 1e6).round() as u64);
    Some(TunnelChannelConfig {
        local,
        peer,
        server,
        device,
        risk: risk.flatten().unwrap_or(0.0),
        rate_bps,
        expected_loss: loss,
        expected_delay_ms: delay,
        shared_fate,
        cost_per_gb,
        priority,
        quota,
    })
}

/// Rejects channels that the system could not distinguish.
fn distinct(
    end: TunnelEnd,
    channels: &[Option<TunnelChannelConfig>],
    tables: &[ConfigTable<'_>],
) -> bool {
    // 0.0.0.0 is every IPv4 address, and [::] every address.
    let covers = |any: SocketAddr, other: SocketAddr| {
        any.ip().is_unspecified() && (any.is_ipv6() || other.is_ipv4())
    };
    let is_same = |one: &TunnelChannelConfig, other: &TunnelChannelConfig| {
        let (own, its) = (one.local, other.local);
        let has_own_device =
            one.device.is_some() && other.device.is_some() && one.device != other.device;
        let has_same_ip = own.ip() == its.ip() || covers(own, its) || covers(its, own);
        has_same_ip && own.port() == its.port() && own.port() != 0 && !has_own_device
    };
    let mut is_distinct = true;
    for (second, table) in tables.iter().enumerate().filter(|_| end == TunnelEnd::Server) {
        let Some(channel) = &channels[second] else { continue };
        let mut before = channels[..second].iter();
        let is_first = |first: &Option<TunnelChannelConfig>| {
            first.as_ref().is_some_and(|first| is_same(first, channel))
        };
        if let Some(first) = before.position(is_first) {
            let (first, second) = (first + 1, second + 1);
            let what = format!("channels {first} and {second} have the same address");
            table.refuse(what, "give each its own address");
            is_distinct = false;
        }
    }
    is_distinct
}

/// Rejects a server that would accept anyone as its client, and one that has `client` addresses for
/// only some channels.
fn known_client(table: &ConfigTable<'_>, channels: &[TunnelChannelConfig]) {
    let known = channels.iter().filter(|channel| channel.peer.is_some()).count();
    match known {
        0 if !table.has("key") => table.refuse(
            "no channel has a `client` address, so anyone could be the client",
            "give each one, or the file of a shared `key`",
        ),
        known if (1..channels.len()).contains(&known) => table.refuse(
            "some channels have a `client` address and others none",
            "give one to each, or to none and the file of a shared `key`",
        ),
        _ => {}
    }
}

/// Rejects `roaming` at a client, and at a server that has the client's addresses.
fn may_roam(
    table: &ConfigTable<'_>,
    roaming: bool,
    end: TunnelEnd,
    channels: &[TunnelChannelConfig],
) {
    let (what, fix, summary) = match end {
        TunnelEnd::Client if roaming => (
            "`roaming` is for the end that has `listen`",
            "leave it out: it says that the client's addresses may change",
            "`roaming` is for the end that has `listen`: it says that the client's addresses \
             may change",
        ),
        TunnelEnd::Server if roaming && channels.iter().any(|channel| channel.peer.is_some()) => (
            "`roaming` says that the client's addresses may change, and `client` says what they are",
            "leave out one of them",
            "`roaming` says that the client's addresses may change, and `client` says what they \
             are: leave out one of them",
        ),
        _ => return,
    };
    table.report_key("roaming", ConfigProblem::new(what, fix).summarized(summary));
}

/// The name of the tunnel's own device, which is no channel's: `fail_closed` would leave that open.
fn device(table: &ConfigTable<'_>, channels: &[TunnelChannelConfig]) -> Option<String> {
    let Some(value) = table.get("device") else { return Some("sunder0".to_owned()) };
    let device = value.text()?;
    if device.is_empty() || device.len() > 15 || device.contains(['/', ' ']) {
        let what = format!("device = \"{device}\" is not the name of a device");
        value.refuse(what, "give 1 to 15 letters");
        return None;
    }
    let is_uplink = |channel: &TunnelChannelConfig| channel.device.as_deref() == Some(device);
    if let Some(index) = channels.iter().position(is_uplink) {
        let what = format!("device = \"{device}\" is the uplink of channel {}", index + 1);
        value.refuse(what, "leave it out here: above the channels it is the tunnel's own device");
        return None;
    }
    Some(device.to_owned())
}

/// A mean of thresholds or of channels.
fn dial(table: &ConfigTable<'_>, name: &str, found: f64, least: f64, most: f64) -> Option<f64> {
    if (least..=most).contains(&found) {
        return Some(found);
    }
    let more = if found > most { ", or more channels" } else { "" };
    refuse_number(&table.get(name)?, found, &format!("{least} to {most}{more}"))
}
