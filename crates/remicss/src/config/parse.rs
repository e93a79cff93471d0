//! Parses and checks a configuration.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de};
use sharing::RandomSource;

use super::error::ConfigError;
use super::types::{ChannelConfig, Config, End, PacketOrder, PlanObjective, SchedulerKind};
use crate::wire::datagram::MAX_CHANNELS;

/// The file's keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    kappa: f64,
    mu: f64,
    #[serde(default)]
    objective: PlanObjective,
    #[serde(default)]
    scheduler: SchedulerKind,
    min_threshold: Option<i64>,
    min_channels: Option<i64>,
    #[serde(default = "yes")]
    tamper_code: bool,
    #[serde(default)]
    rng: RandomSource,
    #[serde(default)]
    order: PacketOrder,
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
    /// If the text is not a valid configuration. The message says what is wrong and what is
    /// possible.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        let raw: Raw = toml::from_str(text)?;
        let n = raw.channel.len();
        if !(1..=MAX_CHANNELS).contains(&n) {
            return Err(ConfigError::Channels { found: n });
        }
        let end = end(&raw.channel)?;
        let channels =
            raw.channel.into_iter().map(RawChannel::checked).collect::<Result<Vec<_>, _>>()?;
        check_addresses(end, &channels)?;
        let most = channels.iter().map(|_| 1.0).sum();
        mean("kappa", raw.kappa, 1.0, most)?;
        mean("mu", raw.mu, raw.kappa, most)?;
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
        check_client(&channels, raw.key.is_some())?;
        check_roaming(raw.roaming, end, &channels)?;
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

/// Which end the channels' keys say that this is.
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

/// Rejects channels that would receive each other's datagrams.
fn check_addresses(end: End, channels: &[ChannelConfig]) -> Result<(), ConfigError> {
    // 0.0.0.0 is every IPv4 address, and [::] every address.
    let covers = |any: SocketAddr, other: SocketAddr| {
        any.ip().is_unspecified() && (any.is_ipv6() || other.is_ipv4())
    };
    let is_same = |one: &ChannelConfig, other: &ChannelConfig| {
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

/// Rejects a server that would accept anyone as its client, and one that has the client's address
/// for some channels only.
fn check_client(channels: &[ChannelConfig], has_key: bool) -> Result<(), ConfigError> {
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

/// Rejects `roaming` at a client, and at a server that has its client's addresses.
fn check_roaming(roaming: bool, end: End, channels: &[ChannelConfig]) -> Result<(), ConfigError> {
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
    fn checked(self) -> Result<ChannelConfig, ConfigError> {
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
        // The client's port is not known.
        let peer = self.server.or(self.client.map(|client| SocketAddr::new(client, 0)));
        if peer.is_some_and(|peer| peer.is_ipv4() != local.is_ipv4()) {
            return conflict("a channel's two addresses must both be IPv4, or both IPv6");
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "up to 1e12")]
        let rate_bps = self.rate_mbit.map(|rate| (rate * 1e6).round() as u64);
        Ok(ChannelConfig { local, peer, device: self.device, risk: self.risk, rate_bps })
    }
}

fn within(key: &'static str, found: f64, least: f64, most: f64) -> Result<(), ConfigError> {
    if (least..=most).contains(&found) {
        return Ok(());
    }
    Err(ConfigError::Range { key, found, range: format!("{least} to {most}") })
}

/// Checks a mean of thresholds or of channels.
fn mean(key: &'static str, found: f64, least: f64, most: f64) -> Result<(), ConfigError> {
    let more = if found > most { ", or more channels" } else { "" };
    within(key, found, least, most).map_err(|_| {
        let range = format!("{least} to {most}{more}");
        ConfigError::Range { key, found, range }
    })
}

/// Checks an integer.
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

/// Parses an address.
fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IpAddr>, D::Error> {
    parsed(
        deserializer,
        "give an address, as in 192.0.2.20 or 2001:db8::2; names are not looked up",
    )
}

/// Parses an address and a port.
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

/// A list of strings.
#[derive(Deserialize)]
#[serde(untagged, expecting = "give a list, as in [\"10.9.0.2/24\"]")]
enum Texts {
    List(Vec<String>),
}

/// Parses networks, which may have host bits.
fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let Texts::List(texts) = Texts::deserialize(deserializer)?;
    let network = |text: String| {
        let expected = "give an address and the length of its network's prefix, as in 10.9.0.1/24";
        text.parse().map_err(|_| de::Error::custom(format!("\"{text}\": {expected}")))
    };
    texts.into_iter().map(network).collect()
}

/// Parses networks without host bits.
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
