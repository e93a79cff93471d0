//! Reads the configurations of a client and of a server, and checks them in full.

use std::collections::HashSet;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use directory::config::{DirectoryClientConfig, DirectoryServerConfig};
use random::RandomSource;
use service::config::{
    ConfigKey, ConfigKeys, ConfigProblem, ConfigProblems, ConfigTable, ConfigValue, key, read,
};
use service::remote_address::RemoteAddress;

use super::intercept::InterceptConfig;
use super::{
    ConnectionPoolConfig, Integrity, LOST_CHANNEL_TIMEOUT, LostChannelPolicy, MAX_BACKUP_SERVERS,
    MAX_STREAMS, MicssClientConfig, MicssServerConfig, PeerConfig, PortForward, RemoteServerConfig,
    SWITCH_BACK_AFTER, StreamChannelConfig, UplinkConfig,
};
use crate::MAX_CHANNELS;
use crate::protocol::allow::AllowedService;
use crate::protocol::bypass::BypassRule;
use crate::protocol::on_lost_channel::LostChannelAction;
use crate::protocol::target::ServiceTargetError;

/// The keys of a client's configuration.
pub const CLIENT_KEYS: ConfigKeys = ConfigKeys(&[CLIENT, directory::config::CLIENT_KEYS]);

/// The keys of a server's configuration.
pub const SERVER_KEYS: ConfigKeys = ConfigKeys(&[SERVER, directory::config::SERVER_KEYS]);

const CLIENT: &[ConfigKey] = &[
    key("", "socks", "\"127.0.0.1:1080\""),
    key("", "forward", "[{ listen = \"127.0.0.1:8080\", target = \"localhost:80\" }]"),
    key("forward", "listen", "\"127.0.0.1:8080\""),
    key("forward", "target", "\"localhost:80\""),
    key("", "intercept", "\"tcp dport { 80, 443 }\""),
    key("", "intercept_udp", "\"udp dport { 53, 443 }\""),
    key("", "intercept_port", "522"),
    key("", "intercept_from", "[\"eth0\"]"),
    key("", "intercept_refuse", "[\"quic\", \"dns\"]"),
    key("", "channel", "[{ server = \"192.0.2.10:7000\" }]"),
    key("channel", "server", "\"192.0.2.10:7000\""),
    key("channel", "source", "\"192.0.2.20\""),
    key("channel", "device", "\"wlan0\""),
    key("", "threshold", "2"),
    key("", "backup_server", "[{ channel = [{ server = \"198.51.100.1:7000\" }] }]"),
    key("backup_server", "channel", "[{ server = \"198.51.100.1:7000\" }]"),
    key("backup_server", "threshold", "2"),
    key("backup_server.channel", "server", "\"198.51.100.1:7000\""),
    key("backup_server.channel", "source", "\"192.0.2.20\""),
    key("backup_server.channel", "device", "\"wlan0\""),
    key("", "switch_back_after_s", "60"),
    key(
        "",
        "peer",
        "[{ addresses = [\"203.0.113.1\"], channel = [{ server = \"203.0.113.1:7000\" }] }]",
    ),
    key("peer", "addresses", "[\"203.0.113.1\"]"),
    key("peer", "channel", "[{ server = \"203.0.113.1:7000\" }]"),
    key("peer", "threshold", "2"),
    key("peer.channel", "server", "\"203.0.113.1:7000\""),
    key("peer.channel", "source", "\"192.0.2.20\""),
    key("peer.channel", "device", "\"wlan0\""),
    key("", "uplink", "[{ device = \"wlan0\" }]"),
    key("uplink", "source", "\"192.0.2.20\""),
    key("uplink", "device", "\"wlan0\""),
    key("", "integrity", "\"tamper-code\""),
    key("", "send_client_address", "true"),
    key("", "socks_udp", "true"),
    key("", "bypass", "[\"192.0.2.0/24\", \"*.example.org\"]"),
    key("", "rng", "\"seeded\""),
    key("", "max_streams", "4096"),
    key("", "on_lost_channel", "\"fail\""),
    key("", "lost_channel_timeout_s", "90"),
    key("", "pool", "{ size = 4 }"),
    key("pool", "size", "4"),
    key("pool", "keep", "64"),
    key("pool", "idle_s", "60"),
];

const SERVER: &[ConfigKey] = &[
    key("", "listen", "[\"192.0.2.10:7000\", \"198.51.100.10:7000\"]"),
    key("", "allow", "[\"localhost:80\"]"),
    key("", "allow_udp", "[\"192.0.2.53:53\"]"),
    key("", "proxy_protocol", "[\"localhost:80\"]"),
    key("", "min_channels", "2"),
    key("", "integrity", "\"tamper-code\""),
    key("", "rng", "\"seeded\""),
    key("", "max_streams", "4096"),
    key("", "lost_channel_timeout_s", "90"),
    key("", "max_channels", "3"),
    key("", "max_waiting", "8192"),
    key("", "max_memory_mib", "512"),
];

/// The default port of intercepted connections. The MICSS paper uses 6522 (III-B). But any user of
/// the host can listen on that port while the client is not running, and then the client cannot
/// start.
const INTERCEPT_PORT: u16 = 522;

impl MicssClientConfig {
    /// Reads a client's configuration. It must have at least one of `socks`, `forward` and
    /// `intercept`, and the channels of a server or of peers. [`CLIENT_KEYS`] has an example of
    /// each key; `docs/guides/micss.md` describes them.
    ///
    /// # Errors
    /// When the text is not a valid configuration: all its problems.
    pub fn from_toml(text: &str) -> Result<Self, ConfigProblems> {
        read(text, CLIENT_KEYS, client)
    }
}

impl MicssServerConfig {
    /// Reads a server's configuration. It must have `listen`, an address on each channel, and
    /// `allow`, the services that clients may request. [`SERVER_KEYS`] has an example of each key;
    /// `docs/guides/micss.md` describes them.
    ///
    /// # Errors
    /// When the text is not a valid configuration: all its problems.
    pub fn from_toml(text: &str) -> Result<Self, ConfigProblems> {
        read(text, SERVER_KEYS, server)
    }
}

fn client(table: &ConfigTable<'_>) -> Option<MicssClientConfig> {
    let integrity = integrity(table);
    let has_others = table.count("peer") > 0 || table.has("directory");
    let has_first_server = !has_others || table.count("channel") > 0 || table.has("threshold");
    let first_server = has_first_server.then(|| first_server(table, integrity));
    let directory = table.get("directory").map(|it| DirectoryClientConfig::read(&it.table()?));
    if !["socks", "forward", "intercept"].iter().any(|name| has_entrance(table, name)) {
        let fix = "set `socks` or `intercept`, or add a [[forward]]";
        table.refuse("nothing to listen on", fix);
    }
    Some(MicssClientConfig {
        backups: backups(table, integrity, has_first_server),
        switch_back_after: switch_back_after(table),
        peers: peers(table, integrity),
        uplinks: table.tables("uplink").iter().map(uplink).collect(),
        config_dir: PathBuf::new(),
        socks: table.get("socks").and_then(|socks| socks.parsed()),
        forwards: table.tables("forward").iter().filter_map(forward).collect(),
        intercept: intercept(table),
        integrity,
        send_client_address: flag(table, "send_client_address"),
        socks_udp: socks_udp(table),
        bypass: bypass(table),
        rng: rng(table),
        max_streams: max_streams(table),
        pool: pool(table),
        lost_channel: LostChannelPolicy {
            new_streams: table.choice(
                "on_lost_channel",
                &[("fail", LostChannelAction::Fail), ("wait", LostChannelAction::Wait)],
            ),
            timeout: lost_channel_timeout(table),
        },
        first_server: match first_server {
            Some(server) => Some(server?),
            None => None,
        },
        directory: match directory {
            Some(directory) => Some(directory?),
            None => None,
        },
    })
}

/// Whether a key is present and not an empty list.
fn has_entrance(table: &ConfigTable<'_>, name: &str) -> bool {
    table.has(name) && table.get(name).is_none_or(|value| value.count() != Some(0))
}

/// The server for all destinations except peers' addresses.
fn first_server(table: &ConfigTable<'_>, integrity: Integrity) -> Option<RemoteServerConfig> {
    let found = match table.get("channel") {
        Some(channels) => channels.count(),
        None => (!table.has("channel")).then_some(0),
    };
    remote(table, found, integrity)
}

/// The channels and the threshold in a table: the top-level one, or a peer's. `found` is the number
/// of channels, if it is known.
fn remote(
    table: &ConfigTable<'_>,
    found: Option<usize>,
    integrity: Integrity,
) -> Option<RemoteServerConfig> {
    let tables = table.tables("channel");
    let channels: Vec<Option<StreamChannelConfig>> = tables.iter().map(channel).collect();
    refuse_repeated_names(&tables, &channels);
    let channels: Vec<StreamChannelConfig> = channels.into_iter().flatten().collect();
    let all = found.and_then(|found| channel_count(table, found));
    let Some(value) = table.get("threshold") else {
        return Some(RemoteServerConfig { channels, threshold: all? });
    };
    let range = 1..=all.unwrap_or(MAX_CHANNELS).into();
    let threshold = value.integer_in_explained(range, "1 to the number of channels")?;
    // Without the tamper code, changed channels cannot be identified.
    if integrity == Integrity::None && all.is_some_and(|all| threshold < all) {
        let range = "the number of channels, or leave out integrity = \"none\"";
        value.out_of_range(threshold, range);
    }
    Some(RemoteServerConfig { channels, threshold })
}

/// The servers that take the first server's place while it is gone.
fn backups(
    table: &ConfigTable<'_>,
    integrity: Integrity,
    has_first_server: bool,
) -> Vec<RemoteServerConfig> {
    let tables = table.tables("backup_server");
    if !tables.is_empty() && !has_first_server {
        let fix = "add the [[channel]]s of the first server";
        table.refuse("a backup_server without a first server", fix);
    }
    if tables.len() > MAX_BACKUP_SERVERS {
        let what = format!("{} backup servers", tables.len());
        table.refuse(what, format!("give at most {MAX_BACKUP_SERVERS}"));
    }
    let backup = |table: &ConfigTable<'_>| {
        let found = table.require("channel").and_then(|channels| channels.count());
        remote(table, found, integrity)
    };
    tables.iter().filter_map(backup).collect()
}

fn switch_back_after(table: &ConfigTable<'_>) -> Duration {
    let name = "switch_back_after_s";
    if table.has(name) && table.count("backup_server") == 0 {
        table.report_key(
            name,
            ConfigProblem::new(
                format!("{name} without a [[backup_server]]"),
                "add one, or leave this out",
            ),
        );
    }
    Duration::from_secs(whole(table, name, 1..=86_400, SWITCH_BACK_AFTER.as_secs()))
}

/// Reports a name of a server that two channels have: all its addresses count as one channel.
fn refuse_repeated_names(tables: &[ConfigTable<'_>], channels: &[Option<StreamChannelConfig>]) {
    let names: Vec<Option<&str>> = channels
        .iter()
        .map(|channel| channel.as_ref().and_then(|channel| channel.server.name()))
        .collect();
    for (place, (table, name)) in tables.iter().zip(&names).enumerate() {
        if let Some(name) = name.filter(|_| names[..place].contains(name)) {
            let what = format!("another channel has the name {name} too");
            let fix = "give each channel a name or an address of its own";
            table.report_key("server", ConfigProblem::new(what, fix));
        }
    }
}

fn channel(table: &ConfigTable<'_>) -> Option<StreamChannelConfig> {
    let fix = "write HOST:PORT, with an IPv6 address in brackets";
    let server = table.require("server").and_then(|server| server.parsed_or::<RemoteAddress>(fix));
    let UplinkConfig { source, device } = uplink(table);
    Some(StreamChannelConfig { server: server?, source, device, preamble: b"", max_segment: None })
}

fn uplink(table: &ConfigTable<'_>) -> UplinkConfig {
    let source = table.get("source").and_then(|source| source.parsed());
    let device = table.get("device").and_then(|device| device.text());
    UplinkConfig { source, device: device.map(str::to_owned) }
}

fn peers(table: &ConfigTable<'_>, integrity: Integrity) -> Vec<PeerConfig> {
    let mut known = HashSet::new();
    let mut peer = |table: &ConfigTable<'_>| {
        let addresses = table.require("addresses").and_then(|list| addresses(&list, &mut known));
        let found = table.require("channel").and_then(|channels| channels.count());
        let remote = remote(table, found, integrity);
        Some(PeerConfig { addresses: addresses?, remote: remote? })
    };
    table.tables("peer").iter().filter_map(&mut peer).collect()
}

/// A peer's addresses. None of them may be among the `known` ones.
fn addresses(list: &ConfigValue<'_>, known: &mut HashSet<IpAddr>) -> Option<Vec<IpAddr>> {
    let values = list.list()?;
    if values.is_empty() {
        list.out_of_range(0, "1 or more");
    }
    let addresses: Vec<IpAddr> = values.iter().filter_map(ConfigValue::parsed).collect();
    for address in &addresses {
        if !known.insert(address.to_canonical()) {
            let what = format!("{address} is given twice");
            let fix = "name each address of a peer once";
            let summary = format!("addresses: {what}; {fix}");
            list.report(ConfigProblem::new(what, fix).summarized(summary));
        }
    }
    Some(addresses)
}

fn forward(table: &ConfigTable<'_>) -> Option<PortForward> {
    let listen = table.require("listen").and_then(|listen| listen.parsed());
    let target = table.require("target").and_then(|value| target(&value, "target"));
    Some(PortForward { listen: listen?, target: target? })
}

/// Whether applications may send datagrams.
fn socks_udp(table: &ConfigTable<'_>) -> bool {
    let is_wanted = flag(table, "socks_udp");
    if is_wanted && !table.has("socks") {
        let problem = ConfigProblem::new("socks_udp without socks", "set socks, or leave this out");
        table.report_key("socks_udp", problem);
    }
    is_wanted
}

/// The destinations to which applications are connected directly.
fn bypass(table: &ConfigTable<'_>) -> Vec<BypassRule> {
    let values = table.get("bypass").and_then(|it| it.list()).unwrap_or_default();
    values.iter().filter_map(|value| advised(value, "bypass:")).collect()
}

/// A service that clients may request, or the target of a forward.
fn target<T: FromStr<Err = ServiceTargetError>>(value: &ConfigValue<'_>, key: &str) -> Option<T> {
    let text = value.text()?;
    let refused = |error: ServiceTargetError| {
        let fix = match error {
            ServiceTargetError::BadNetwork => "write ADDRESS/PREFIX:PORT, as in 192.0.2.0/24:80",
            _ if key.starts_with("allow") => {
                "write HOST:PORT, or all addresses of a network, as in 192.0.2.0/24:80"
            }
            _ => "write HOST:PORT",
        };
        value.refuse(format!("{key} = \"{text}\": {error}"), fix);
    };
    text.parse().map_err(refused).ok()
}

fn intercept(table: &ConfigTable<'_>) -> Option<InterceptConfig> {
    let port = table.get("intercept_port").and_then(|port| port.integer_in(1..=65_535));
    let from = table.get("intercept_from").and_then(|from| from.list()).unwrap_or_default();
    let from = from.iter().filter_map(|name| advised(name, "intercept_from:")).collect();
    let refused = table.get("intercept_refuse").and_then(|refused| refused.list());
    let refused = refused.map(|list| {
        list.iter().filter_map(|name| advised(name, "intercept_refuse:")).collect::<Vec<_>>()
    });
    let by_udp = table.get("intercept_udp");
    if by_udp.is_some() && !table.has("intercept") {
        let what = "intercept_udp without intercept";
        let problem = ConfigProblem::new(what, "set intercept for TCP, or leave this out");
        table.report_key("intercept_udp", problem);
    }
    let by_udp = by_udp.and_then(|value| advised(&value, "intercept_udp ="));
    let matching = advised(&table.get("intercept")?, "intercept =")?;
    let intercept = InterceptConfig::new(matching, port.unwrap_or(INTERCEPT_PORT), from);
    let intercept = match by_udp {
        Some(by_udp) => intercept.with_udp(by_udp, bypass(table)),
        None => intercept,
    };
    Some(match refused {
        Some(refused) => intercept.with_refused(refused),
        None => intercept,
    })
}

/// Parses a value. The error states what to write instead.
fn advised<T: FromStr<Err: Display>>(value: &ConfigValue<'_>, key: &str) -> Option<T> {
    let text = value.text()?;
    let refused = |fix: T::Err| value.refuse(format!("{key} \"{text}\""), fix.to_string());
    text.parse().map_err(refused).ok()
}

fn pool(table: &ConfigTable<'_>) -> ConnectionPoolConfig {
    let pool = table.get("pool").and_then(|pool| pool.table());
    let whole = |name: &str, range, default: u16| {
        let value = pool.as_ref().and_then(|pool| pool.get(name));
        value.and_then(|value| value.integer_in(range)).unwrap_or(default)
    };
    let (size, keep) = (whole("size", 0..=10_000, 4), whole("keep", 0..=10_000, 64));
    // A server waits for 90 s.
    let idle = Duration::from_secs(whole("idle_s", 1..=80, 60).into());
    ConnectionPoolConfig { size: size.into(), keep: keep.max(size).into(), idle }
}

fn server(table: &ConfigTable<'_>) -> Option<MicssServerConfig> {
    let all = i64::from(MAX_CHANNELS);
    let listen = table.require("listen").and_then(|listen| listen.list());
    let listeners = listen.as_ref().and_then(|listen| channel_count(table, listen.len()));
    let listen: Option<Vec<Option<SocketAddr>>> = listen.map(|values| {
        let addresses: Vec<_> = values.iter().map(ConfigValue::parsed).collect();
        refuse_repeated(&values, &addresses);
        addresses
    });
    let listen: Option<Vec<SocketAddr>> = listen.and_then(|listen| listen.into_iter().collect());
    let min_channels: Option<u8> = match table.get("min_channels") {
        Some(value) => value.integer_in(1..=all),
        None => Some(2),
    };
    let max_channels = match (table.get("max_channels"), min_channels) {
        (Some(value), least) => {
            value.integer_in_explained(least.unwrap_or(1).into()..=all, "min_channels to 16")
        }
        // Several paths of a client may lead to one address of the server.
        (None, Some(least)) => listeners.map(|listeners| listeners.max(least)),
        (None, None) => None,
    };
    let allow = table.require("allow").and_then(|allow| allow.list()).unwrap_or_default();
    let allow: Vec<AllowedService> =
        allow.iter().filter_map(|service| target(service, "allow")).collect();
    let directory = table.get("directory");
    let directory =
        directory.map(|it| DirectoryServerConfig::read(&it.table()?, listen.as_deref()));
    let defaults = MicssServerConfig::new(Vec::new());
    let max_memory = table.get("max_memory_mib").and_then(|it| it.integer_in(16..=1_000_000));
    Some(MicssServerConfig {
        allow_udp: allow_udp(table),
        proxy_protocol: proxy_protocol(table, &allow),
        allow,
        integrity: integrity(table),
        rng: rng(table),
        max_streams: max_streams(table),
        lost_channel_timeout: lost_channel_timeout(table),
        max_waiting: whole(table, "max_waiting", 64..=1_000_000, defaults.max_waiting),
        max_memory: max_memory.map_or(defaults.max_memory, |mib: u32| u64::from(mib) << 20),
        min_channels: min_channels?,
        max_channels: max_channels?,
        directory: match directory {
            Some(directory) => Some(directory?),
            None => None,
        },
        listen: listen?,
        ..defaults
    })
}

/// The services that clients may reach by UDP.
fn allow_udp(table: &ConfigTable<'_>) -> Vec<AllowedService> {
    let values = table.get("allow_udp").and_then(|it| it.list()).unwrap_or_default();
    values.iter().filter_map(|value| target(value, "allow_udp")).collect()
}

/// The services that get a header of the PROXY protocol. Each of them must be an entry of `allow`,
/// so that an error in writing cannot leave a service without it.
fn proxy_protocol(table: &ConfigTable<'_>, allow: &[AllowedService]) -> Vec<AllowedService> {
    let values = table.get("proxy_protocol").and_then(|it| it.list()).unwrap_or_default();
    let service = |value: &ConfigValue<'_>| {
        let service: AllowedService = target(value, "proxy_protocol")?;
        if !allow.contains(&service) {
            let what = format!("proxy_protocol: {service} is not in allow");
            value.refuse(what, "write it as in allow, or add it there");
        }
        Some(service)
    };
    let services: Vec<AllowedService> = values.iter().filter_map(service).collect();
    // Without a header, the service would take the client's first bytes for one.
    let other = allow.iter().find(|other| {
        !services.contains(other) && services.iter().any(|service| service.may_meet(other))
    });
    if let (Some(other), Some(value)) = (other, values.first()) {
        let what = format!("{other} in allow may be a service of proxy_protocol");
        value.refuse(what, "add it to proxy_protocol too, or remove it from allow");
    }
    services
}

/// Reports an address that stands twice in `listen`. With port 0 they are different ones.
fn refuse_repeated(values: &[ConfigValue<'_>], addresses: &[Option<SocketAddr>]) {
    for (place, (value, address)) in values.iter().zip(addresses).enumerate() {
        let Some(address) = address.filter(|address: &SocketAddr| address.port() != 0) else {
            continue;
        };
        if addresses[..place].contains(&Some(address)) {
            value.refuse(format!("{address} stands here twice"), "leave one of them out");
        }
    }
}

fn integrity(table: &ConfigTable<'_>) -> Integrity {
    let choices = [("tamper-code", Integrity::TamperCode), ("none", Integrity::None)];
    table.choice("integrity", &choices)
}

/// A switch that is off unless configured.
fn flag(table: &ConfigTable<'_>, name: &str) -> bool {
    table.get(name).and_then(|value| value.flag()).unwrap_or_default()
}

fn rng(table: &ConfigTable<'_>) -> RandomSource {
    table.choice("rng", &[("seeded", RandomSource::Seeded), ("os", RandomSource::Os)])
}

fn max_streams(table: &ConfigTable<'_>) -> usize {
    whole(table, "max_streams", 1..=1_000_000, MAX_STREAMS)
}

/// At most 15 minutes: after that the kernel has closed the connections.
fn lost_channel_timeout(table: &ConfigTable<'_>) -> Duration {
    let default = LOST_CHANNEL_TIMEOUT.as_secs();
    Duration::from_secs(whole(table, "lost_channel_timeout_s", 1..=900, default))
}

/// A whole number in this range. If the value is wrong, it is reported and the default is returned.
fn whole<T: TryFrom<i64>>(
    table: &ConfigTable<'_>,
    name: &str,
    range: RangeInclusive<i64>,
    default: T,
) -> T {
    table.get(name).and_then(|value| value.integer_in(range)).unwrap_or(default)
}

/// The number of channels, if it is within the limits.
fn channel_count(table: &ConfigTable<'_>, found: usize) -> Option<u8> {
    let all = u8::try_from(found).ok().filter(|all| (1..=MAX_CHANNELS).contains(all));
    if all.is_none() {
        table.refuse(format!("{found} channels"), format!("give 1 to {MAX_CHANNELS}"));
    }
    all
}
