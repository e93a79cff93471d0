//! The uplinks of this host, and whether replies on them are accepted.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;

use tun::route::KernelRoute;

use super::finding::{CheckFinding, FindingSeverity};
use super::read;
use super::uplinks::ChannelUplink;

/// Where the kernel lists the network interfaces.
const INTERFACES: &str = "/sys/class/net";

/// The loopback interface, which does not lead out of this host.
const LOOPBACK: &str = "lo";

/// The findings about the interfaces without a configuration.
pub(crate) fn findings() -> Vec<CheckFinding> {
    let links = links(
        &read("/proc/net/route"),
        &read("/proc/net/ipv6_route"),
        &read("/proc/net/if_inet6"),
        |name| Path::new(INTERFACES).join(name).join("tun_flags").exists(),
    );
    let strict: Vec<&str> =
        links.keys().map(String::as_str).filter(|name| is_strict_here(name)).collect();
    [uplink_count(&links)].into_iter().chain(reverse_path(&links, &strict)).collect()
}

/// The interfaces that lead out of this host, from the kernel's lists of routes and addresses, each
/// with whether it has a default route. A tunnel does not count: its packets leave by another
/// interface.
fn links(
    routes: &str,
    routes6: &str,
    addresses6: &str,
    is_tunnel: impl Fn(&str) -> bool,
) -> BTreeMap<String, bool> {
    const REJECT: u32 = 0x200;
    let refuses =
        |flags: &str| u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & REJECT != 0);
    let mut links = BTreeMap::new();
    let mut add = |name: &str, is_default: bool| {
        if name != LOOPBACK && !is_tunnel(name) {
            *links.entry(name.to_owned()).or_default() |= is_default;
        }
    };
    for line in routes.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let [name, destination, _, flags, _, _, _, mask, ..] = fields[..]
            && !refuses(flags)
        {
            add(name, destination == "00000000" && mask == "00000000");
        }
    }
    for line in addresses6.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // Addresses of scope 0 are global.
        if let [_, _, _, "00", _, name] = fields[..] {
            add(name, false);
        }
    }
    for line in routes6.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let [destination, "00", _, _, _, _, _, _, flags, name] = fields[..]
            && destination.chars().all(|digit| digit == '0')
            && !refuses(flags)
        {
            add(name, true);
        }
    }
    links
}

/// Whether this host has enough interfaces for several channels.
fn uplink_count(links: &BTreeMap<String, bool>) -> CheckFinding {
    let subject = "uplinks";
    let name = |(name, is_default): (&String, &bool)| {
        format!("{name}{}", if *is_default { " (default route)" } else { "" })
    };
    let names = links.iter().map(name).collect::<Vec<_>>().join(", ");
    let fix = "connect another network, unless the other end has several uplinks";
    match links.len() {
        0 => CheckFinding::new(FindingSeverity::Warning, subject, "this host has no network", fix),
        1 => {
            let what = format!(
                "there is only one, {names}: an eavesdropper on it sees all channels of this host"
            );
            CheckFinding::new(FindingSeverity::Warning, subject, what, fix)
        }
        _ => CheckFinding::ok(
            subject,
            format!("{names}; check that their paths do not meet further on"),
        ),
    }
}

/// Whether the reverse path filter drops replies that arrive on another interface than the route
/// back uses.
fn reverse_path(links: &BTreeMap<String, bool>, strict: &[&str]) -> Option<CheckFinding> {
    let filters = links.len() > 1 && !strict.is_empty();
    filters.then(|| {
        let names = strict.join(", ");
        let what = format!(
            "strict on {names}: packets that arrive on another interface than the route back uses \
             are dropped, such as those of a channel with `device`"
        );
        CheckFinding::new(
            FindingSeverity::Note,
            "reverse path filter",
            what,
            loose_filter_command(strict),
        )
    })
}

fn loose_filter_command(names: &[&str]) -> String {
    let set = |name: &&str| format!("net.ipv4.conf.{name}.rp_filter=2");
    format!("sysctl {}", names.iter().map(set).collect::<Vec<_>>().join(" "))
}

fn is_strict_here(name: &str) -> bool {
    let setting = |name: &str| read(&format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"));
    is_strict(&setting("all"), &setting(name))
}

/// The higher of the two settings applies: 1 is strict, 2 is loose.
fn is_strict(all: &str, own: &str) -> bool {
    let number = |text: &str| text.trim().parse().unwrap_or(0_u8);
    number(all).max(number(own)) == 1
}

/// Why replies on a channel with `device` are dropped, if they are.
pub(crate) fn reply_filtering(
    subject: &str,
    uplink: &ChannelUplink<'_>,
    route: impl Fn(&ChannelUplink<'_>) -> Option<KernelRoute>,
) -> Option<CheckFinding> {
    reply_filtering_with(subject, uplink, route, is_strict_here)
}

fn reply_filtering_with(
    subject: &str,
    uplink: &ChannelUplink<'_>,
    route: impl Fn(&ChannelUplink<'_>) -> Option<KernelRoute>,
    is_strict: impl Fn(&str) -> bool,
) -> Option<CheckFinding> {
    let device = uplink.device.filter(|device| is_strict(device))?;
    let to = uplink.to.filter(IpAddr::is_ipv4)?;
    let back = route(&ChannelUplink { device: None, ..*uplink })
        .filter(|back| back.interface != device)?;
    let what = format!(
        "packets from {to} arrive on {device} and are dropped, because the route back uses {} and \
         the reverse path filter is strict",
        back.interface
    );
    Some(CheckFinding::new(
        FindingSeverity::Warning,
        subject,
        what,
        loose_filter_command(&[device]),
    ))
}

/// The error of a device that a channel is to use, if it has one.
pub(crate) fn device(subject: &str, name: &str) -> Option<CheckFinding> {
    let Ok(entries) = fs::read_dir(INTERFACES) else { return None };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name != LOOPBACK).collect();
    names.sort();
    let state = read(&format!("{INTERFACES}/{name}/operstate"));
    device_among(subject, name, &names, state.trim())
}

fn device_among(subject: &str, name: &str, names: &[String], state: &str) -> Option<CheckFinding> {
    if !names.iter().any(|known| known == name) {
        let what = format!("there is no device {name}");
        let fix =
            format!("this host has {}; check that the device is plugged in", names.join(", "));
        return Some(CheckFinding::new(FindingSeverity::Error, subject, what, fix));
    }
    // A device that does not report its state counts as up.
    matches!(state, "down" | "lowerlayerdown" | "notpresent").then(|| {
        let fix = format!("ip link set {name} up; if it is up, check its cable or connection");
        CheckFinding::new(FindingSeverity::Warning, subject, format!("{name} is down"), fix)
    })
}

/// The error of a source address that a channel is to use, if it has one.
pub(crate) fn source(subject: &str, address: IpAddr) -> Option<CheckFinding> {
    let error = UdpSocket::bind((address, 0)).err()?;
    let what = match error.kind() {
        ErrorKind::AddrNotAvailable => format!("this host does not have the address {address}"),
        _ => format!("{address} cannot be used: {error}"),
    };
    Some(CheckFinding::new(
        FindingSeverity::Error,
        subject,
        what,
        "`ip address` lists the addresses of this host",
    ))
}

/// Whether this host forwards packets, where a configuration may need that.
pub(crate) fn forwarding(subject: &str, why: &str) -> Option<CheckFinding> {
    let passes_on = read("/proc/sys/net/ipv4/ip_forward").trim() == "1";
    (!passes_on).then(|| {
        let what = format!("this host does not forward packets: {why}");
        let fix = "sysctl net.ipv4.ip_forward=1, if this host is to serve other hosts";
        CheckFinding::new(FindingSeverity::Note, subject, what, fix)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
wlan0\t006433C6\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
sunder0\t0000090A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
*\t00000A0A\t00000000\t0200\t0\t0\t0\t0000FFFF\t0\t0\t0
";
    const ADDRESSES6: &str = "\
fd000000000000000000000000000002 04 40 00 82     wwan0
fe8000000000000000fc00fffe000001 05 40 20 80     eth9
00000000000000000000000000000001 01 80 10 80       lo
";
    const ROUTES6: &str = "\
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000003 00000000 00000003     wwan0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
fe800000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000002 00000000 00000001     eth9
";

    fn some() -> BTreeMap<String, bool> {
        links(ROUTES, ROUTES6, ADDRESSES6, |name| name == "sunder0")
    }

    #[test]
    fn uplinks_have_routes_or_addresses() {
        let expected = [("eth0", true), ("wlan0", false), ("wwan0", true)];
        let expected = expected.map(|(name, is_default)| (name.to_owned(), is_default));
        assert_eq!(some(), BTreeMap::from(expected));
        assert!(links("", "", "", |_| false).is_empty());
    }

    #[test]
    fn one_uplink_is_a_warning() {
        let fine = uplink_count(&some());
        assert_eq!(fine.level, FindingSeverity::Ok);
        assert!(fine.message.starts_with("eth0 (default route), wlan0, wwan0 (default route);"));
        let one = uplink_count(&BTreeMap::from([("eth0".to_owned(), true)]));
        assert!(
            one.level == FindingSeverity::Warning && one.message.contains("only one, eth0"),
            "{one:?}"
        );
        assert_eq!(uplink_count(&BTreeMap::new()).level, FindingSeverity::Warning);
    }

    #[test]
    fn the_higher_rp_filter_setting_applies() {
        for (all, own, expected) in [
            ("0", "0", false),
            ("0\n", "1\n", true),
            ("1", "0", true),
            ("1", "2", false),
            ("", "", false),
        ] {
            assert_eq!(is_strict(all, own), expected, "{all} {own}");
        }
        assert_eq!(reverse_path(&some(), &[]), None);
        let finding = reverse_path(&some(), &["eth0", "wlan0"]).unwrap();
        let fix = "sysctl net.ipv4.conf.eth0.rp_filter=2 net.ipv4.conf.wlan0.rp_filter=2";
        assert_eq!(finding.fix.as_deref(), Some(fix));
        assert_eq!(reverse_path(&BTreeMap::from([("eth0".to_owned(), true)]), &["eth0"]), None);
    }

    #[test]
    fn replies_on_another_interface_than_the_route_back_are_dropped() {
        let to = Some("192.0.2.1".parse().unwrap());
        let uplink = ChannelUplink { to, source: None, device: Some("wlan0") };
        let by = |interface: &str| Some(KernelRoute { interface: interface.into(), gateway: None });
        let filtering = |uplink: ChannelUplink<'_>, interface, is_strict| {
            reply_filtering_with("channel 1", &uplink, |_| by(interface), |_| is_strict)
        };
        let dropped = filtering(uplink, "eth0", true).unwrap();
        assert!(dropped.message.contains("arrive on wlan0 and are dropped"), "{dropped:?}");
        assert_eq!(filtering(uplink, "wlan0", true), None);
        assert_eq!(filtering(uplink, "eth0", false), None);
        assert_eq!(filtering(ChannelUplink { device: None, ..uplink }, "eth0", true), None);
        let v6 = Some("2001:db8::1".parse().unwrap());
        assert_eq!(
            filtering(ChannelUplink { to: v6, ..uplink }, "eth0", true),
            None,
            "only IPv4 is filtered"
        );
    }

    #[test]
    fn devices_exist_and_are_up() {
        let names = ["eth0".to_owned(), "wlan0".to_owned()];
        let device_finding = |name, state| device_among("channel 2", name, &names, state);
        assert_eq!(device_finding("eth0", "up"), None);
        assert_eq!(device_finding("eth0", "unknown"), None);
        assert_eq!(device_finding("wlan0", "down").unwrap().level, FindingSeverity::Warning);
        let missing = device_finding("wwan0", "").unwrap();
        assert_eq!(
            (missing.level, missing.message.as_str()),
            (FindingSeverity::Error, "there is no device wwan0")
        );
        assert!(missing.fix.unwrap().starts_with("this host has eth0, wlan0"));
    }

    #[test]
    fn an_address_is_this_hosts_or_not() {
        assert_eq!(source("channel 1", "127.0.0.1".parse().unwrap()), None);
        let foreign = source("channel 1", "192.0.2.77".parse().unwrap()).unwrap();
        assert_eq!(foreign.message, "this host does not have the address 192.0.2.77");
    }
}
