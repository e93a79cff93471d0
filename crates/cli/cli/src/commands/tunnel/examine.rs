//! Tests a tunnel's configuration on this host.

use std::path::Path;

use remicss::config::{TunnelChannelConfig, TunnelConfig, TunnelEnd};
use remicss::status::TunnelChannelStatus;
use tun::route::route_to;

use super::{closing, limits, risks};
use crate::checks::finding::{CheckFinding, FindingSeverity};
use crate::checks::listeners::OwnListeners;
use crate::checks::uplinks::{ChannelUplink, route};
use crate::checks::{host, links, listeners};
use crate::commands::{DaemonStatus, status};

/// The findings. No packet is sent.
pub(crate) fn findings(config: &TunnelConfig, own: &OwnListeners) -> Vec<CheckFinding> {
    let rights = host::ProcessCapabilities::of_this_process();
    let mut findings = vec![
        host::network_devices(rights, FindingSeverity::Error),
        host::tun_device(FindingSeverity::Error),
    ];
    findings.extend(risks(config, route));
    let running = status::running();
    let own_tunnel = running.iter().find_map(|daemon| match daemon {
        DaemonStatus::Tunnel(tunnel) if tunnel.0.device == config.device => Some(&tunnel.0),
        _ => None,
    });
    findings.extend(own_device(&config.device, own_tunnel.is_some()));
    findings.extend(closing::findings(config));
    if let Some(tunnel) = own_tunnel {
        findings.extend(tunnel.channels.iter().enumerate().filter_map(black_hole));
        findings.extend(limits::findings(&tunnel.channels));
    }
    for (index, channel) in config.channels.iter().enumerate() {
        let subject = format!("channel {}", index + 1);
        findings.extend(of_channel(&subject, config.end, channel, own));
    }
    findings.extend(config.quota_file.as_deref().and_then(unwritable));
    if !config.routes.is_empty() {
        let why = "hosts behind it do not reach the tunnel's `routes`";
        findings.extend(links::forwarding("routes", why));
    }
    if config.between_clients {
        let why = "packets between clients are dropped";
        findings.extend(links::forwarding("between_clients", why));
    }
    findings.push(host::random());
    findings
}

/// The tunnel's device must not exist yet, unless the tunnel runs.
fn own_device(name: &str, is_running: bool) -> Option<CheckFinding> {
    let path = Path::new("/sys/class/net").join(name);
    if path.join("tun_flags").exists() {
        if is_running {
            let what = format!("{name} is the device of this tunnel, which is running");
            return Some(CheckFinding::ok("device", what));
        }
        let what = format!(
            "the device {name} exists: it is this tunnel's, if the tunnel is \
                            running"
        );
        let fix = format!(
            "if it is not running: ip link delete {name}, or choose another \
                           `device`"
        );
        return Some(CheckFinding::new(FindingSeverity::Warning, "device", what, fix));
    }
    path.exists().then(|| {
        let what = format!("the device {name} exists, and is not a tunnel's");
        CheckFinding::new(
            FindingSeverity::Error,
            "device",
            what,
            "give the tunnel's `device` another name",
        )
    })
}

/// A file of quotas that cannot be written.
fn unwritable(file: &Path) -> Option<CheckFinding> {
    let directory = file.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let access = rustix::fs::access(directory, rustix::fs::Access::WRITE_OK);
    let error = access.err()?;
    let what = format!("{} cannot be written: {}: {error}", file.display(), directory.display());
    let fix = "give `quota_file` a path in a directory that the tunnel's user may write";
    Some(CheckFinding::new(FindingSeverity::Error, "quota_file", what, fix))
}

/// A channel of the running tunnel whose path loses packets that it carried before.
fn black_hole((index, channel): (usize, &TunnelChannelStatus)) -> Option<CheckFinding> {
    let (former, since) = (channel.former_mtu?, channel.black_hole_s?);
    let (mtu, peer) = (channel.mtu?, channel.peer.as_deref().unwrap_or("its peer"));
    let what = format!(
        "packets of {former} bytes to {peer} have not arrived for {since:.0} s, without ICMP; the \
         path's MTU is {mtu}"
    );
    let fix = format!(
        "none, if this is the path's MTU: the tunnel uses {mtu}. Otherwise find out what drops \
         longer packets: ping -M do -s {} over this channel's uplink",
        former.saturating_sub(28)
    );
    Some(CheckFinding::new(FindingSeverity::Warning, format!("channel {}", index + 1), what, fix))
}

fn of_channel(
    subject: &str,
    end: TunnelEnd,
    channel: &TunnelChannelConfig,
    own_listeners: &OwnListeners,
) -> Vec<CheckFinding> {
    let device = channel.device.as_ref();
    let mut findings: Vec<CheckFinding> =
        device.and_then(|name| links::device(subject, name)).into_iter().collect();
    let own = channel.local.ip();
    let source = (!own.is_unspecified()).then_some(own);
    match end {
        TunnelEnd::Server => findings.push(listeners::udp(subject, channel.local, || {
            own_listeners.address_in_use(subject, channel.local, "tunnel")
        })),
        TunnelEnd::Client => findings.extend(source.and_then(|own| links::source(subject, own))),
    }
    // Without a usable address and device there is no route to look up.
    if findings.iter().any(|finding| finding.level == FindingSeverity::Error) {
        return findings;
    }
    let mut to = channel.peer.map(|peer| peer.ip());
    if let Some(server) = channel.server.as_ref().filter(|it| it.name().is_some()) {
        match server.look_up_again(source.map(|own| own.is_ipv4())) {
            Ok(found) => to = Some(found.ip()),
            Err(error) => {
                let fix = "check the name and this host's resolver, or write the address";
                findings.push(CheckFinding::new(
                    FindingSeverity::Error,
                    subject,
                    error.to_string(),
                    fix,
                ));
            }
        }
    }
    let uplink = ChannelUplink { to, source, device: channel.device.as_deref() };
    if let Some(to) = uplink.to {
        findings.push(match route_to(to, uplink.source, uplink.device) {
            Ok(found) => {
                let router = found.gateway.map(|gateway| format!(", to {gateway}"));
                let router = router.unwrap_or_default();
                CheckFinding::ok(subject, format!("goes to {to} by {}{router}", found.interface))
            }
            Err(error) => {
                let fix = format!(
                    "add a route to it: ip route get {to} shows whether there is \
                                   one"
                );
                CheckFinding::new(
                    FindingSeverity::Error,
                    subject,
                    format!("no route to {to}: {error}"),
                    fix,
                )
            }
        });
    }
    findings.extend(links::reply_filtering(subject, &uplink, route));
    findings
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn channels_need_devices_addresses_and_ways() {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let local = taken.local_addr().unwrap();
        let server = format!(
            "kappa = 1\nmu = 1\naddresses = []\nkey = \"key\"\ndevice = \"lo\"\n[[channel]]\nlisten = \"{local}\"\n\
             [[channel]]\nlisten = \"192.0.2.77:9\"\n"
        );
        let client = "kappa = 1\nmu = 1\naddresses = []\n[[channel]]\nserver = \"127.0.0.1:9\"\n\
                      [[channel]]\nserver = \"127.0.0.1:9\"\ndevice = \"none0\"\n\
                      [[channel]]\nserver = \"127.0.0.1:9\"\nsource = \"192.0.2.77\"\n";
        let report = |text: &str| {
            let config = TunnelConfig::from_toml(text).unwrap();
            let found = findings(&config, &OwnListeners::default()).into_iter();
            let lines = found.map(|CheckFinding { level, subject, message, .. }| {
                format!("{level:?} {subject}: {message}")
            });
            lines.collect::<Vec<_>>().join("\n")
        };
        let (server, client) = (report(&server), report(client));
        for expected in [
            "Error device: the device lo exists, and is not a tunnel's",
            &format!("Warning channel 1: {local} is in use: by this tunnel"),
            "Error channel 2: this host does not have the address 192.0.2.77",
            "Warning min_threshold: min_threshold is 1",
        ] {
            assert!(server.contains(expected), "{expected}:\n{server}");
        }
        for expected in [
            "Ok channel 1: goes to 127.0.0.1 by lo",
            "Error channel 2: there is no device none0",
            "Error channel 3: this host does not have the address 192.0.2.77",
        ] {
            assert!(client.contains(expected), "{expected}:\n{client}");
        }
    }

    #[test]
    fn every_risk_has_a_fix() {
        let text = "kappa = 1\nmu = 2\ntamper_code = false\naddresses = []\n\
                    [[channel]]\nserver = \"127.0.0.1:9\"\n[[channel]]\nserver = \"127.0.0.1:9\"\n";
        let risks = risks(&TunnelConfig::from_toml(text).unwrap(), |_| None);
        assert_eq!(risks.len(), 4, "{risks:?}");
        let subjects: Vec<&str> = risks.iter().map(|risk| risk.subject.as_str()).collect();
        assert_eq!(subjects, ["min_threshold", "allowed", "channels", "tamper_code"]);
        assert!(risks.iter().all(|risk| risk.fix.is_some()), "{risks:?}");
    }
}
