//! Closes this host for the networks that only the tunnel may reach (`fail_closed`).
//!
//! The rules are one nftables table. They refuse each packet to these networks that would leave by
//! another device than the tunnel's, from this host or through it. The table exists apart from the
//! tunnel: it can be installed before there is any network, and it stays when the tunnel stops or
//! is killed. Only [`open`] removes it.
//!
//! Routing rules (`ip rule ... unreachable`) are not enough: an IPv4 socket that is bound to a
//! device (`SO_BINDTODEVICE`, for which a process needs no privilege) ignores them, because the
//! kernel then assumes that the destination is on the device's own network.

use std::fmt::Write;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use nftables::{InstalledNftTables, apply, list_table, list_tables, removal};
use tracing::{error, warn};

use crate::config::{TunnelChannelConfig, TunnelConfig, TunnelEnd};

/// The names of the tables begin with this, and end with the name of the tunnel's device.
const TABLE_PREFIX: &str = "sunder_closed_";

/// What stands before the time in the comment of a rule.
const SINCE: &str = "closed since ";

/// The rules by which this host is closed for a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostClosure {
    /// The tunnel's device.
    pub device: String,
    /// Since when.
    pub since: SystemTime,
}

impl HostClosure {
    /// How long this host has been closed. Zero if the clock was set back.
    pub fn duration(&self) -> Duration {
        self.since.elapsed().unwrap_or_default()
    }
}

/// Closes this host for the networks of a tunnel, in one transaction, which replaces the rules that
/// exist for this tunnel. The time since when it is closed stays.
///
/// # Errors
/// If `nft` is missing, or the kernel refuses the rules. Then nothing has changed.
pub fn close(config: &TunnelConfig) -> io::Result<HostClosure> {
    let (closed, rules) = replacement(config);
    apply(&rules)?;
    Ok(closed)
}

/// Checks whether the rules could be installed. It changes nothing.
///
/// # Errors
/// If `nft` is missing, or the kernel would refuse the rules.
pub fn check(config: &TunnelConfig) -> io::Result<()> {
    nftables::check(&replacement(config).1)
}

/// Removes the rules for the tunnel with this device. Returns whether there were any.
///
/// # Errors
/// If `nft` is missing, or the kernel refuses.
pub fn open(device: &str) -> io::Result<bool> {
    let was_closed = list_tables().contains(&table(device));
    apply(&removal(&table(device)))?;
    Ok(was_closed)
}

/// All tunnels for which this host is closed. Empty if the rules cannot be listed, as without
/// `CAP_NET_ADMIN`.
pub fn closed() -> Vec<HostClosure> {
    let tables = list_tables();
    let devices = tables.iter().filter_map(|table| table.strip_prefix(TABLE_PREFIX));
    devices.filter_map(closed_for).collect()
}

/// The rules for the tunnel with this device, if there are any.
pub fn closed_for(device: &str) -> Option<HostClosure> {
    let rules = list_table(&table(device)).ok()?;
    Some(HostClosure { device: device.to_owned(), since: since(&rules).unwrap_or(UNIX_EPOCH) })
}

/// The rules for a tunnel, as input of `nft`.
pub fn rules(config: &TunnelConfig, since: SystemTime) -> String {
    let own_device = ["lo", &config.device].map(quoted).join(", ");
    let own_device = format!("oifname {{ {own_device} }} accept");
    let mut leaving = vec![own_device.clone()];
    leaving.extend(config.channels.iter().map(|channel| of_channel(config.end, channel)));
    leaving.extend(OF_THE_LINK.map(str::to_owned));
    let mut closed = destinations(&config.direct, "accept");
    let seconds = since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let refused =
        format!("counter reject with icmpx admin-prohibited comment \"{SINCE}{seconds}\"");
    let networks: Vec<IpNet> = config.networks().collect();
    closed.extend(destinations(&networks, REFUSED_CONNECTION));
    closed.extend(destinations(&networks, &refused));
    let mut dropped = destinations(&config.direct, "accept");
    dropped.extend(destinations(&networks, "counter drop"));
    let chain = |name: &str, hook: &str, rules: &[&[String]]| {
        let hook = format!("\t\ttype filter hook {hook} priority filter; policy accept;\n");
        let rules: String = rules.iter().copied().flatten().fold(hook, |mut text, rule| {
            let _ = writeln!(text, "\t\t{rule}");
            text
        });
        format!("\tchain {name} {{\n{rules}\t}}\n")
    };
    // Other tables may give a packet another destination or another route when it has passed the
    // first chain. What such a packet was before cannot be answered any more, so it is dropped.
    let rerouted = chain("rerouted", "postrouting", &[&leaving, &dropped]);
    // A packet that this host passes on for another is no channel's, and stays on no link.
    let leaving = chain("leaving", "output", &[&leaving, &closed]);
    let passing = chain("passing", "forward", &[&[own_device], &closed]);
    format!("table inet {} {{\n{leaving}\n{passing}\n{rerouted}}}\n", table(&config.device))
}

/// Refuses a new TCP connection by a reset, because the kernel limits the rate of ICMP messages. A
/// connection that is open gets ICMP messages, so that it lasts until the tunnel is back.
const REFUSED_CONNECTION: &str = "tcp flags & (fin | syn | rst | ack) == syn reject with tcp reset";

/// Packets that never leave the link, or without which the link would not stay usable: neighbour
/// discovery, the local groups, broadcast, and DHCP.
const OF_THE_LINK: [&str; 5] = [
    "icmpv6 type { nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert } ip6 hoplimit 255 \
     accept",
    "ip daddr { 224.0.0.0/24, 255.255.255.255 } accept",
    "ip6 daddr { fe80::/10, ff02::/16 } accept",
    "udp sport 68 udp dport 67 accept",
    "udp sport 546 udp dport 547 accept",
];

/// Accepts the datagrams of a channel: those to the server's port or, at a server, those from its
/// own port, because a client may have any address.
fn of_channel(end: TunnelEnd, channel: &TunnelChannelConfig) -> String {
    let device = channel.device.as_ref();
    let device = device.map(|name| format!("oifname {} ", quoted(name))).unwrap_or_default();
    let address = |direction: &str, address: IpAddr| {
        let family = if address.is_ipv4() { "ip" } else { "ip6" };
        let is_any = address.is_unspecified();
        if is_any { String::new() } else { format!("{family} {direction} {address} ") }
    };
    let peer = channel.peer.map(|peer| address("daddr", peer.ip())).unwrap_or_default();
    let own = address("saddr", channel.local.ip());
    let port = match (end, channel.peer) {
        (TunnelEnd::Client, Some(server)) => format!("udp dport {}", server.port()),
        (TunnelEnd::Client, None) | (TunnelEnd::Server, _) => {
            format!("udp sport {}", channel.local.port())
        }
    };
    format!("{device}{own}{peer}{port} accept")
}

/// A rule for each family for packets to these networks.
fn destinations(networks: &[IpNet], verdict: &str) -> Vec<String> {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for network in networks {
        match network {
            IpNet::V4(network) => v4.push(*network),
            IpNet::V6(network) => v6.push(*network),
        }
    }
    let v4 = Ipv4Net::aggregate(&v4).into_iter().map(IpNet::V4).collect::<Vec<_>>();
    let v6 = Ipv6Net::aggregate(&v6).into_iter().map(IpNet::V6).collect::<Vec<_>>();
    let rule = |(family, number, networks): (&str, &str, Vec<IpNet>)| match &networks[..] {
        [] => None,
        // A set cannot have an element that is everything.
        [all] if all.prefix_len() == 0 => Some(format!("meta nfproto {number} {verdict}")),
        networks => {
            let list: Vec<String> = networks.iter().map(IpNet::to_string).collect();
            Some(format!("{family} daddr {{ {} }} {verdict}", list.join(", ")))
        }
    };
    [("ip", "ipv4", v4), ("ip6", "ipv6", v6)].into_iter().filter_map(rule).collect()
}

fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

fn table(device: &str) -> String {
    format!("{TABLE_PREFIX}{device}")
}

/// The state after the rules are replaced, and the input of `nft` that does so.
fn replacement(config: &TunnelConfig) -> (HostClosure, String) {
    let now = || HostClosure { device: config.device.clone(), since: SystemTime::now() };
    let closed = closed_for(&config.device).unwrap_or_else(now);
    let text = format!("{}{}", removal(&table(&config.device)), rules(config, closed.since));
    (closed, text)
}

/// The time in the comment of listed rules.
fn since(rules: &str) -> Option<SystemTime> {
    let (_, rest) = rules.split_once(SINCE)?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(digits.parse().ok()?))
}

/// Keeps the rules of a running tunnel in force.
pub struct HostClosureGuard {
    tables: InstalledNftTables,
    config: TunnelConfig,
    closed: HostClosure,
}

impl HostClosureGuard {
    /// Closes this host as [`close`] does, and notices from now on when another program changes the
    /// rules.
    ///
    /// # Errors
    /// As [`close`].
    pub fn close(config: &TunnelConfig) -> io::Result<Self> {
        let tables = InstalledNftTables::new()?;
        let (closed, rules) = replacement(config);
        tables.install(&table(&config.device), &rules)?;
        Ok(Self { tables, config: config.clone(), closed })
    }

    /// Since when this host is closed.
    pub fn closed(&self) -> &HostClosure {
        &self.closed
    }

    /// Waits until another program may have changed or removed the rules.
    pub async fn changed(&self) {
        self.tables.changed().await;
    }

    /// Restores the rules, and logs it. Returns whether they are in force.
    pub fn restore(&self) -> bool {
        let table = table(&self.config.device);
        let rules = format!("{}{}", removal(&table), rules(&self.config, self.closed.since));
        match self.tables.install(&table, &rules) {
            Ok(()) => {
                warn!(
                    table,
                    "another program has removed or changed the rules of fail_closed, which are \
                     restored: packets may have gone out IN THE CLEAR meanwhile"
                );
                true
            }
            Err(error) => {
                error!(
                    table, %error,
                    "another program has removed or changed the rules of fail_closed, and they \
                     cannot be restored: packets go out IN THE CLEAR"
                );
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: &str = r#"
        kappa = 2
        mu = 2
        addresses = ["10.9.0.2/24"]
        routes = ["0.0.0.0/1", "128.0.0.0/1", "2001:db8::/32"]
        fail_closed = true
        direct = ["192.168.1.0/24"]
        [[channel]]
        server = "192.0.2.1:6521"
        device = "eth0"
        [[channel]]
        server = "[2001:db8::1]:6522"
        source = "2001:db8::7"
    "#;

    const SERVER: &str = r#"
        kappa = 2
        mu = 2
        key = "key"
        addresses = ["10.9.0.1/24"]
        fail_closed = true
        [[channel]]
        listen = "192.0.2.1:6521"
        device = "eth0"
        [[channel]]
        listen = "[::]:6522"
    "#;

    fn rules_of(text: &str) -> String {
        rules(&TunnelConfig::from_toml(text).unwrap(), UNIX_EPOCH + Duration::from_secs(1234))
    }

    #[test]
    fn the_rules_name_what_may_leave_and_what_may_not() {
        let client = rules_of(CLIENT);
        for expected in [
            "table inet sunder_closed_sunder0 {",
            "oifname { \"lo\", \"sunder0\" } accept",
            "oifname \"eth0\" ip daddr 192.0.2.1 udp dport 6521 accept",
            "ip6 saddr 2001:db8::7 ip6 daddr 2001:db8::1 udp dport 6522 accept",
            "ip daddr { 192.168.1.0/24 } accept",
            "meta nfproto ipv4 counter reject",
            "ip6 daddr { 2001:db8::/32 } counter reject",
        ] {
            assert!(client.contains(expected), "{expected}\n{client}");
        }
        let server = rules_of(SERVER);
        for expected in [
            "oifname \"eth0\" ip saddr 192.0.2.1 udp sport 6521 accept",
            "\t\tudp sport 6522 accept",
            "ip daddr { 10.9.0.0/24 } counter reject",
        ] {
            assert!(server.contains(expected), "{expected}\n{server}");
        }
    }

    #[test]
    fn what_this_host_passes_on_is_no_channels() {
        let rules = rules_of(CLIENT);
        let (_, passing) = rules.split_once("chain passing").unwrap();
        let (passing, rerouted) = passing.split_once("chain rerouted").unwrap();
        assert!(rerouted.contains("udp") && rerouted.contains("counter drop"), "{rerouted}");
        assert!(!passing.contains("udp") && passing.contains("reject"), "{passing}");
    }

    #[test]
    fn the_time_is_read_from_the_rules() {
        assert_eq!(since(&rules_of(CLIENT)), Some(UNIX_EPOCH + Duration::from_secs(1234)));
        for other in ["", "closed since ", "closed since x", "closed since 99999999999999999999999"]
        {
            assert_eq!(since(other), None, "{other}");
        }
    }
}
