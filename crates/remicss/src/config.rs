//! What an end of a tunnel is told, read from TOML and checked in full.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use ipnet::IpNet;
use model::Objective;
use serde::{Deserialize, Deserializer, de};
use sharing::Rng;
use thiserror::Error;

use crate::MAX_CHANNELS;

/// How the threshold and the channels of each symbol are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// By the model's best schedule at full rate (IV-D, IV-E).
    #[default]
    Planned,
    /// The first m channels that are ready (V).
    Dynamic,
}

/// What the schedule is to make best, at kappa, mu and full rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// The least risk.
    #[default]
    Privacy,
    /// The least loss.
    Loss,
    /// The least delay.
    Delay,
}

impl From<Goal> for Objective {
    fn from(goal: Goal) -> Self {
        match goal {
            Goal::Privacy => Self::Risk,
            Goal::Loss => Self::Loss,
            Goal::Delay => Self::Delay,
        }
    }
}

/// Whether packets wait for those of their flow that were sent before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// As long as the channels' delays differ.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// One channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// The local address. At a client port 0, and an unspecified address where none was given.
    pub local: SocketAddr,
    /// The peer's address. At a client the server's; at a server the client's, where it is fixed, with
    /// port 0.
    pub peer: Option<SocketAddr>,
    /// The network device to use.
    pub device: Option<String>,
    /// The probability that somebody listens: z.
    pub risk: f64,
    /// What it carries of IP packets, in bit/s: r. Measured where it is not given.
    pub rate_bps: Option<u64>,
}

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end that starts.
    Client,
    /// The end that is found at known addresses.
    Server,
}

/// What an end is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Which end it is.
    pub end: End,
    /// The channels, 1 to [`MAX_CHANNELS`], in the same order at both ends.
    pub channels: Vec<Channel>,
    /// The mean threshold.
    pub kappa: f64,
    /// The mean multiplicity.
    pub mu: f64,
    /// What the schedule makes best.
    pub objective: Goal,
    /// How symbols' thresholds are chosen.
    pub scheduler: Choice,
    /// The privacy floor: no symbol has a lower threshold.
    pub min_threshold: u8,
    /// How many channels must work, at least, for the tunnel to begin.
    pub min_channels: u8,
    /// Whether symbols have a tag.
    pub tamper_code: bool,
    /// Where random shares come from.
    pub rng: Rng,
    /// Whether packets wait for those before them.
    pub order: Order,
    /// How much memory shares wait in for others of their symbol, for each channel, in bytes.
    pub reassembly_bytes: usize,
    /// The file with the key that is shared with the peer.
    pub key: Option<PathBuf>,
    /// At a server: whether the client's addresses may change while the tunnel runs.
    pub roaming: bool,
    /// The name of the tunnel's device.
    pub device: String,
    /// The device's own addresses.
    pub addresses: Vec<IpNet>,
    /// What is reached through the tunnel, besides its own networks.
    pub routes: Vec<IpNet>,
    /// What the peer's packets may have as their source.
    pub allowed: Vec<IpNet>,
    /// The device's MTU. Found where it is not given.
    pub mtu: Option<u16>,
}

/// Why a configuration is none.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// It is not TOML, or lacks a key, or has one that is unknown or of the wrong type.
    #[error("{}", said(.0))]
    Toml(#[from] toml::de::Error),
    /// No channels, or too many.
    #[error("{found} channels: give 1 to {MAX_CHANNELS}")]
    Channels {
        /// How many there are.
        found: usize,
    },
    /// It is not clear which end this is.
    #[error(
        "channel {number} has {found}: give every channel `server` (at the end that connects) or every channel `listen` (at the other)"
    )]
    End {
        /// The channel, counted from 1.
        number: usize,
        /// What it has.
        found: &'static str,
    },
    /// Keys that do not go together.
    #[error("{0}")]
    Conflict(String),
    /// A number is out of its range.
    #[error("{key} = {found}: give {range}")]
    Range {
        /// The key.
        key: &'static str,
        /// Its value.
        found: f64,
        /// What is possible.
        range: String,
    },
}

/// What the file has.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    kappa: f64,
    mu: f64,
    #[serde(default)]
    objective: Goal,
    #[serde(default)]
    scheduler: Choice,
    min_threshold: Option<i64>,
    min_channels: Option<i64>,
    #[serde(default = "yes")]
    tamper_code: bool,
    #[serde(default)]
    rng: Rng,
    #[serde(default)]
    order: Order,
    reassembly_mib: Option<i64>,
    key: Option<PathBuf>,
    #[serde(default)]
    roaming: bool,
    device: Option<String>,
    #[serde(deserialize_with = "networks")]
    addresses: Vec<IpNet>,
    #[serde(default, deserialize_with = "routes")]
    routes: Vec<IpNet>,
    #[serde(default, deserialize_with = "some_routes")]
    allowed: Option<Vec<IpNet>>,
    mtu: Option<i64>,
    channel: Vec<RawChannel>,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawChannel {
    #[serde(default, deserialize_with = "socket")]
    server: Option<SocketAddr>,
    #[serde(default, deserialize_with = "address")]
    source: Option<IpAddr>,
    #[serde(default, deserialize_with = "socket")]
    listen: Option<SocketAddr>,
    #[serde(default, deserialize_with = "address")]
    client: Option<IpAddr>,
    device: Option<String>,
    #[serde(default)]
    risk: f64,
    rate_mbit: Option<f64>,
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// When it is not one: what is wrong, and what is possible.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let raw: Raw = toml::from_str(text)?;
        let n = raw.channel.len();
        if !(1..=MAX_CHANNELS).contains(&n) {
            return Err(ConfigError::Channels { found: n });
        }
        let end = end(&raw.channel)?;
        let channels =
            raw.channel.into_iter().map(RawChannel::checked).collect::<Result<Vec<_>, _>>()?;
        distinct(end, &channels)?;
        let most = channels.iter().map(|_| 1.0).sum();
        dial("kappa", raw.kappa, 1.0, most)?;
        dial("mu", raw.mu, raw.kappa, most)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 16")]
        let whole_kappa = raw.kappa as u8;
        let floor = raw.min_threshold.unwrap_or(whole_kappa.into());
        let min_threshold = whole("min_threshold", floor, 1, whole_kappa)?;
        let all = u8::try_from(n).unwrap_or(u8::MAX);
        let min_channels = raw.min_channels.unwrap_or(all.into());
        let min_channels = whole("min_channels", min_channels, min_threshold, all)?;
        let mtu = raw.mtu.map(|mtu| whole("mtu", mtu, 576, 65_000)).transpose()?;
        let reassembly_mib =
            whole("reassembly_mib", raw.reassembly_mib.unwrap_or(16), 1_u16, 1024)?;
        let device = raw.device.unwrap_or_else(|| "sunder0".into());
        if device.is_empty() || device.len() > 15 || device.contains(['/', ' ']) {
            let name =
                format!("device = \"{device}\" is no name of a device: give 1 to 15 letters");
            return Err(ConfigError::Conflict(name));
        }
        known_client(&channels, raw.key.is_some())?;
        may_roam(raw.roaming, end, &channels)?;
        let allowed = raw.allowed.unwrap_or_else(|| {
            let own = raw.addresses.iter().map(IpNet::trunc);
            own.chain(raw.routes.iter().copied()).collect()
        });
        Ok(Self {
            end,
            channels,
            kappa: raw.kappa,
            mu: raw.mu,
            objective: raw.objective,
            scheduler: raw.scheduler,
            min_threshold,
            min_channels,
            tamper_code: raw.tamper_code,
            rng: raw.rng,
            order: raw.order,
            reassembly_bytes: usize::from(reassembly_mib) << 20,
            key: raw.key,
            roaming: raw.roaming,
            device,
            addresses: raw.addresses,
            routes: raw.routes,
            allowed,
            mtu,
        })
    }
}

/// Which end the channels make it.
fn end(channels: &[RawChannel]) -> Result<End, ConfigError> {
    let server = channels[0].listen.is_some();
    for (i, channel) in channels.iter().enumerate() {
        let found = match (channel.server, channel.listen) {
            (Some(_), None) if !server => continue,
            (None, Some(_)) if server => continue,
            (Some(_), Some(_)) => "both `server` and `listen`",
            (Some(_), None) => "`server`, where others have `listen`",
            (None, Some(_)) => "`listen`, where others have `server`",
            (None, None) => "neither `server` nor `listen`",
        };
        return Err(ConfigError::End { number: i + 1, found });
    }
    Ok(if server { End::Server } else { End::Client })
}

/// Refuses channels that the system would not tell apart.
fn distinct(end: End, channels: &[Channel]) -> Result<(), ConfigError> {
    // 0.0.0.0 is every IPv4 address, and [::] every address.
    let covers = |any: SocketAddr, other: SocketAddr| {
        any.ip().is_unspecified() && (any.is_ipv6() || other.is_ipv4())
    };
    let is_same = |one: &Channel, other: &Channel| {
        let (own, its) = (one.local, other.local);
        let has_own_device =
            one.device.is_some() && other.device.is_some() && one.device != other.device;
        let has_same_ip = own.ip() == its.ip() || covers(own, its) || covers(its, own);
        has_same_ip && own.port() == its.port() && own.port() != 0 && !has_own_device
    };
    for (second, channel) in channels.iter().enumerate().filter(|_| end == End::Server) {
        if let Some(first) = channels[..second].iter().position(|first| is_same(first, channel)) {
            return Err(ConfigError::Conflict(format!(
                "channels {} and {} have the same address: let each `listen` at its own",
                first + 1,
                second + 1
            )));
        }
    }
    Ok(())
}

/// Refuses a server that anyone could be the client of, or that looks as if it knew addresses and does
/// not look at them.
fn known_client(channels: &[Channel], has_key: bool) -> Result<(), ConfigError> {
    let known = channels.iter().filter(|channel| channel.peer.is_some()).count();
    let conflict = match known {
        0 if !has_key => {
            "no channel has a `client` address, so anyone could be the client: give each one, or the \
             file of a shared `key`"
        }
        known if (1..channels.len()).contains(&known) => {
            "some channels have a `client` address and others none: give one to each, or to none and \
             the file of a shared `key`"
        }
        _ => return Ok(()),
    };
    Err(ConfigError::Conflict(conflict.into()))
}

/// Refuses a client that roams where its addresses are given, and a server that does.
fn may_roam(roaming: bool, end: End, channels: &[Channel]) -> Result<(), ConfigError> {
    let conflict = match end {
        End::Client if roaming => {
            "`roaming` goes with `listen`, at the other end: it says that the client's addresses may change"
        }
        End::Server if roaming && channels.iter().any(|channel| channel.peer.is_some()) => {
            "`roaming` says that the client's addresses may change, and `client` says what they are: leave \
             out one of them"
        }
        _ => return Ok(()),
    };
    Err(ConfigError::Conflict(conflict.into()))
}

impl RawChannel {
    fn checked(self) -> Result<Channel, ConfigError> {
        within("risk", self.risk, 0.0, 1.0)?;
        if let Some(rate) = self.rate_mbit {
            within("rate_mbit", rate, 0.001, 1e6)?;
        }
        let conflict = |what: &str| Err(ConfigError::Conflict(what.into()));
        let local = match (self.listen, self.server) {
            (Some(_), _) if self.source.is_some() => {
                return conflict(
                    "`source` goes with `server`; at the end that listens, `listen` says it",
                );
            }
            (Some(listen), _) => listen,
            (None, _) if self.client.is_some() => {
                return conflict("`client` goes with `listen`, at the other end");
            }
            (None, Some(server)) => {
                let any = match server.ip() {
                    IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
                    IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
                };
                SocketAddr::new(self.source.unwrap_or(any), 0)
            }
            (None, None) => unreachable!("the end is known"),
        };
        // A client has any port.
        let peer = self.server.or(self.client.map(|client| SocketAddr::new(client, 0)));
        if peer.is_some_and(|peer| peer.is_ipv4() != local.is_ipv4()) {
            return conflict("a channel's two addresses must both be IPv4, or both IPv6");
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "up to 1e12")]
        let rate_bps = self.rate_mbit.map(|rate| (rate * 1e6).round() as u64);
        Ok(Channel { local, peer, device: self.device, risk: self.risk, rate_bps })
    }
}

fn within(key: &'static str, found: f64, least: f64, most: f64) -> Result<(), ConfigError> {
    if (least..=most).contains(&found) {
        return Ok(());
    }
    Err(ConfigError::Range { key, found, range: format!("{least} to {most}") })
}

/// A mean of thresholds or of channels.
fn dial(key: &'static str, found: f64, least: f64, most: f64) -> Result<(), ConfigError> {
    let more = if found > most { ", or more channels" } else { "" };
    within(key, found, least, most).map_err(|_| {
        let range = format!("{least} to {most}{more}");
        ConfigError::Range { key, found, range }
    })
}

/// A whole number within its range.
fn whole<T: Copy + Into<f64> + TryFrom<i64>>(
    key: &'static str,
    found: i64,
    least: T,
    most: T,
) -> Result<T, ConfigError> {
    #[expect(clippy::cast_precision_loss, reason = "what is not exact is out of range")]
    within(key, found as f64, least.into(), most.into())?;
    Ok(T::try_from(found).unwrap_or(most))
}

/// TOML's message in one line, and in words for people.
fn said(error: &toml::de::Error) -> String {
    let mut message = error.message().replace('\n', " ");
    if message.starts_with("unknown field") && message.contains("expected one of `server`") {
        message += "; settings of the whole tunnel stand above the first [[channel]]";
    }
    if message == "invalid type: map, expected a sequence" {
        return "write [[channel]], with two brackets".into();
    }
    let words =
        [("expected f64", "expected a number"), ("expected i64", "expected a whole number")];
    words.iter().fold(message, |message, (from, to)| message.replace(from, to))
}

/// An address from its text.
fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IpAddr>, D::Error> {
    parsed(
        deserializer,
        "give an address, as in 192.0.2.20 or 2001:db8::2; names are not looked up",
    )
}

/// An address and a port from their text.
fn socket<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    parsed(
        deserializer,
        "give ADDRESS:PORT, as in 192.0.2.10:6521 or [2001:db8::1]:6521; names are not looked up",
    )
}

fn parsed<'de, T: FromStr, D: Deserializer<'de>>(
    deserializer: D,
    advice: &str,
) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let refuse = |_| de::Error::custom(format!("\"{text}\": {advice}"));
    text.parse().map(Some).map_err(refuse)
}

/// A list of texts.
#[derive(Deserialize)]
#[serde(untagged, expecting = "give a list, as in [\"10.9.0.2/24\"]")]
enum Texts {
    List(Vec<String>),
}

/// Networks from their texts.
fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let Texts::List(texts) = Texts::deserialize(deserializer)?;
    let network = |text: String| {
        let expected = "give an address and the length of its network's prefix, as in 10.9.0.1/24";
        text.parse().map_err(|_| de::Error::custom(format!("\"{text}\": {expected}")))
    };
    texts.into_iter().map(network).collect()
}

/// Networks, and no addresses in them.
fn routes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let networks = networks(deserializer)?;
    match networks.iter().find(|route| route.trunc() != **route) {
        None => Ok(networks),
        Some(route) => {
            let whole = route.trunc();
            Err(de::Error::custom(format!("{route} has host bits: write {whole}")))
        }
    }
}

fn some_routes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<IpNet>>, D::Error> {
    routes(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = r#"
        kappa = 1.5
        mu = 2
        addresses = ["10.9.0.2/24", "fd00::2/64"]
        routes = ["10.8.0.0/16"]
        [[channel]]
        server = "192.0.2.1:6521"
        source = "192.0.2.7"
        risk = 0.1
        rate_mbit = 100
        [[channel]]
        server = "[2001:db8::1]:6521"
        device = "wwan0"
    "#;

    const SERVER: &str = r#"
        kappa = 2
        mu = 2
        key = "tunnel.key"
        addresses = []
        [[channel]]
        listen = "192.0.2.1:6521"
        client = "192.0.2.2"
        [[channel]]
        listen = "198.51.100.1:6521"
        client = "198.51.100.2"
    "#;

    #[test]
    fn a_tunnel_begins_with_as_many_channels_as_the_floor_or_more() {
        let with = |least: &str| {
            let settings = format!("kappa = 1.5\nmin_channels = {least}");
            Config::from_toml(&CLIENT.replace("kappa = 1.5", &settings))
        };
        for least in [1, 2] {
            assert_eq!(with(&least.to_string()).unwrap().min_channels, least);
        }
        for least in ["0", "3", "-1"] {
            let said = with(least).unwrap_err().to_string();
            assert_eq!(said, format!("min_channels = {least}: give 1 to 2"));
        }
        let floor = SERVER.replace("kappa = 2", "kappa = 2\nmin_channels = 1");
        let said = Config::from_toml(&floor).unwrap_err().to_string();
        assert_eq!(said, "min_channels = 1: give 2 to 2");
    }

    #[test]
    fn either_end_is_read() {
        let client = Config::from_toml(CLIENT).unwrap();
        assert_eq!(
            (client.end, client.min_threshold, client.device.as_str()),
            (End::Client, 1, "sunder0")
        );
        assert_eq!(client.channels[0].local, "192.0.2.7:0".parse().unwrap());
        assert_eq!(client.channels[0].rate_bps, Some(100_000_000));
        assert_eq!(client.channels[1].local, "[::]:0".parse().unwrap());
        assert_eq!(client.addresses[1], "fd00::2/64".parse().unwrap());
        let networks = ["10.9.0.0/24", "fd00::/64", "10.8.0.0/16"];
        assert_eq!(client.allowed, networks.map(|network| network.parse().unwrap()));
        let narrow = CLIENT.replacen("[[channel]]", "allowed = [\"10.9.0.1/32\"]\n[[channel]]", 1);
        let allowed = Config::from_toml(&narrow).unwrap().allowed;
        assert_eq!(allowed, ["10.9.0.1/32".parse().unwrap()]);
        let server = Config::from_toml(SERVER).unwrap();
        assert_eq!((server.end, server.min_threshold), (End::Server, 2));
        assert_eq!((client.min_channels, server.min_channels), (2, 2), "all");
        assert_eq!(server.channels[1].peer, Some("198.51.100.2:0".parse().unwrap()));
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_way_out() {
        let cases = [
            (CLIENT, "kappa = 1.5", "kappa = 0.5", "kappa = 0.5: give 1 to 2"),
            (CLIENT, "kappa = 1.5", "kappa = nan", "kappa = NaN: give 1 to 2"),
            (CLIENT, "mu = 2", "mu = 1.4", "mu = 1.4: give 1.5 to 2"),
            (CLIENT, "mu = 2", "mu = 2\nmin_threshold = 2", "min_threshold = 2: give 1 to 1"),
            (CLIENT, "risk = 0.1", "risk = 1.1", "risk = 1.1: give 0 to 1"),
            (CLIENT, "rate_mbit = 100", "rate_mbit = 0", "rate_mbit = 0: give 0.001 to 1000000"),
            (CLIENT, "/24", "/33", "\"10.9.0.2/33\": give an address"),
            (CLIENT, "mu = 2", "mu = 2\ndevice = \"a/b\"", "is no name of a device"),
            (CLIENT, "source = \"192.0.2.7\"", "source = \"::1\"", "must both be IPv4"),
            (CLIENT, "source = \"192.0.2.7\"", "client = \"192.0.2.7\"", "at the other end"),
            (CLIENT, "source =", "sauce =", "unknown field `sauce`"),
            (
                SERVER,
                "client = \"198.51.100.2\"",
                "server = \"198.51.100.2:1\"",
                "channel 2 has both",
            ),
            (SERVER, "listen = \"198", "server = \"198", "channel 2 has `server`, where others"),
            (SERVER, "kappa = 2", "kappa = 2\nmtu = 100", "mtu = 100: give 576 to 65000"),
            (SERVER, "kappa = 2", "kappa = 2\nmtu = 70000", "mtu = 70000: give 576 to 65000"),
            (SERVER, "kappa = 2", "kappa = 2\nmtu = 1400.5", "expected a whole number"),
            (SERVER, "kappa = 2", "kappa = 2\nmin_threshold = -1", "-1: give 1 to 2"),
            (SERVER, "kappa = 2", "kappa = \"2\"", "expected a number"),
            (SERVER, "kappa = 2", "kappa = 3", "kappa = 3: give 1 to 2, or more channels"),
            (SERVER, "addresses = []", "addresses = 5", "give a list, as in [\"10.9.0.2/24\"]"),
            (SERVER, "client = \"192.0.2.2\"", "", "some channels have a `client` address"),
            (SERVER, "kappa = 2", "kappa = 2\nroaming = true", "`client` says what they are"),
            (CLIENT, "mu = 2", "mu = 2\nroaming = true", "`roaming` goes with `listen`"),
            (
                SERVER,
                "[[channel]]",
                "[[channel]]\nmin_threshold = 1",
                "above the first [[channel]]",
            ),
            (CLIENT, "192.0.2.1:6521", "a.example:1", "give ADDRESS:PORT, as in 192.0.2.10:6521"),
            (CLIENT, "192.0.2.1:6521", "192.0.2.1", "give ADDRESS:PORT"),
            (CLIENT, "192.0.2.7", "a.example", "\"a.example\": give an address, as in 192.0.2.20"),
            (CLIENT, "10.8.0.0/16", "10.8.0.1/16", "10.8.0.1/16 has host bits: write 10.8.0.0/16"),
        ];
        for (text, from, to, expected) in cases {
            assert!(text.contains(from), "{from}");
            let error = Config::from_toml(&text.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        }
        let table = "kappa = 1\nmu = 1\naddresses = []\n[channel]\nlisten = \"127.0.0.1:1\"";
        let said = Config::from_toml(table).unwrap_err().to_string();
        assert_eq!(said, "write [[channel]], with two brackets");
        let none =
            Config::from_toml("kappa = 1\nmu = 1\naddresses = []\nchannel = []").unwrap_err();
        assert_eq!(none.to_string(), "0 channels: give 1 to 16");
    }

    #[test]
    fn a_server_knows_its_client_and_tells_channels_apart() {
        let server = |channels: &[&str]| {
            let channel = |text: &&str| format!("[[channel]]\n{text}\n");
            let channels: String = channels.iter().map(channel).collect();
            let text = format!("kappa = 1\nmu = 1\naddresses = []\nkey = \"key\"\n{channels}");
            Config::from_toml(&text).map_err(|error| error.to_string())
        };
        for same in [
            ["listen = \"192.0.2.1:1\"", "listen = \"192.0.2.1:1\""],
            ["listen = \"0.0.0.0:1\"", "listen = \"192.0.2.1:1\""],
            ["listen = \"192.0.2.1:1\"", "listen = \"[::]:1\""],
            ["listen = \"0.0.0.0:1\"\ndevice = \"a\"", "listen = \"0.0.0.0:1\"\ndevice = \"a\""],
        ] {
            let said = server(&same).unwrap_err();
            assert!(said.starts_with("channels 1 and 2 have the same address"), "{said}");
        }
        for different in [
            ["listen = \"192.0.2.1:1\"", "listen = \"192.0.2.1:2\""],
            ["listen = \"0.0.0.0:1\"", "listen = \"[2001:db8::1]:1\""],
            ["listen = \"0.0.0.0:1\"\ndevice = \"a\"", "listen = \"0.0.0.0:1\"\ndevice = \"b\""],
        ] {
            assert!(server(&different).is_ok(), "{different:?}");
        }
        assert!(server(&["listen = \"192.0.2.1:1\""]).is_ok(), "one channel is allowed");
        let open = SERVER.replace("key =", "#").replace("client =", "#");
        let said = Config::from_toml(&open).unwrap_err().to_string();
        assert!(said.contains("anyone could be the client"), "{said}");
    }
}
