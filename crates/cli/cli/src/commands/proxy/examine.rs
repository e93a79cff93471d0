//! Tests a proxy's configuration on this host.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::ptr;

use console::CommandFailure;
use micss::config::{MicssClientConfig, RemoteServerConfig, StreamChannelConfig};

use super::{most_channels, risks, within_limits};
use crate::checks::finding::{CheckFinding, FindingSeverity};
use crate::checks::greeting::{GreetingOutcome, probe_channels};
use crate::checks::listeners::OwnListeners;
use crate::checks::uplinks::{ChannelUplink, route};
use crate::checks::{files, host, links, listeners};

/// The findings.
///
/// # Errors
/// When the system refuses to start threads.
pub(crate) fn findings(
    config: &MicssClientConfig,
    own: &OwnListeners,
) -> Result<Vec<CheckFinding>, CommandFailure> {
    let mut findings = risks(config, route);
    findings.extend(entrances(config, own));
    findings.extend(channels(config)?);
    findings.extend(directory(config));
    let possible = within_limits(config.clone()).max_streams;
    findings.push(host::open_files(config.max_streams, possible, most_channels(config)));
    findings.push(host::random());
    Ok(findings)
}

/// The listeners for applications.
fn entrances(config: &MicssClientConfig, own: &OwnListeners) -> Vec<CheckFinding> {
    let socks = config.socks.map(|address| ("socks".to_owned(), address));
    let forwards = config.forwards.iter().enumerate();
    let forwards =
        forwards.map(|(index, forward)| (format!("forward {}", index + 1), forward.listen));
    let listener = |(subject, address): (String, _)| {
        listeners::tcp(&subject, address, || own.address_in_use(&subject, address, "proxy"))
    };
    let mut findings: Vec<CheckFinding> = socks.into_iter().chain(forwards).map(listener).collect();
    findings.extend(host::leftover_rules());
    if let Some(intercept) = &config.intercept {
        let rights = host::ProcessCapabilities::of_this_process();
        findings.push(host::interception(intercept, rights, FindingSeverity::Error));
        findings.push(listener(("intercept_port".into(), any(intercept.port()))));
        if intercept.intercepts_udp() {
            let (subject, address) = ("intercept_port, UDP", any(intercept.port()));
            findings.push(listeners::udp(subject, address, || {
                own.address_in_use(subject, address, "proxy")
            }));
        }
        let interfaces = intercept.interfaces();
        findings.extend(interfaces.filter_map(|name| links::device("intercept_from", name)));
        if intercept.intercepts_forwarded() {
            let why = "connections of other hosts that are not intercepted do not pass";
            findings.extend(links::forwarding("intercept_from", why));
        }
    }
    findings
}

/// The unspecified address, of IPv6 if this host has it, so that it covers both families.
fn any(port: u16) -> SocketAddr {
    let v6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    let has_v6 = TcpListener::bind(v6).is_ok();
    if has_v6 { (Ipv6Addr::UNSPECIFIED, port).into() } else { (Ipv4Addr::UNSPECIFIED, port).into() }
}

/// Whether each channel can be used here, and whether its server answers.
fn channels(config: &MicssClientConfig) -> Result<Vec<CheckFinding>, CommandFailure> {
    let mut findings = Vec::new();
    let (mut tried, mut usable) = (Vec::new(), Vec::new());
    for (subject, remote, channel) in named(config) {
        let StreamChannelConfig { server, source, device, .. } = channel;
        let own = device.as_ref().and_then(|name| links::device(&subject, name));
        let own: Vec<CheckFinding> =
            own.into_iter().chain(source.and_then(|own| links::source(&subject, own))).collect();
        // A channel that cannot be used is not tried.
        if own.iter().all(|finding| finding.level != FindingSeverity::Error) {
            let uplink = ChannelUplink {
                to: server.known().map(|known| known.ip()),
                source: *source,
                device: device.as_deref(),
            };
            findings.extend(links::reply_filtering(&subject, &uplink, route));
            tried.push((subject, remote));
            usable.push(channel.clone());
        }
        findings.extend(own);
    }
    let runtime = service::runtime()?;
    let answers = runtime.block_on(probe_channels(usable.clone()));
    runtime.shutdown_background();
    let goes_on = |remote: &RemoteServerConfig| {
        let own = tried.iter().zip(&answers).filter(|((_, other), _)| ptr::eq(*other, remote));
        let alive = own.filter(|(_, answer)| matches!(answer, GreetingOutcome::Greeted(_)));
        alive.count() >= remote.threshold.into()
    };
    for (((subject, remote), channel), answer) in tried.iter().zip(usable).zip(&answers) {
        let mut finding = answer.finding(subject, &channel.server);
        if finding.level == FindingSeverity::Error && goes_on(remote) {
            finding.level = FindingSeverity::Warning;
            finding.message.push_str("; streams continue without it");
        }
        findings.push(finding);
    }
    Ok(findings)
}

/// The database and the uplinks for peers whose addresses come from the directory.
fn directory(config: &MicssClientConfig) -> Vec<CheckFinding> {
    let file = config.directory.iter().map(|directory| {
        files::database("directory, file", &config.config_dir.join(&directory.file))
    });
    let uplinks = config.uplinks.iter().enumerate().flat_map(|(index, uplink)| {
        let subject = format!("uplink {}", index + 1);
        let device = uplink.device.as_ref().and_then(|name| links::device(&subject, name));
        let source = uplink.source.and_then(|own| links::source(&subject, own));
        device.into_iter().chain(source)
    });
    file.chain(uplinks).collect()
}

/// All channels, each with its name for the user and its server.
fn named(
    config: &MicssClientConfig,
) -> impl Iterator<Item = (String, &RemoteServerConfig, &StreamChannelConfig)> {
    let first = config.first_server.iter().map(|remote| (String::new(), remote));
    let peers = config.peers.iter();
    let peers = peers.map(|peer| (format!("peer {}, ", peer.addresses[0]), &peer.remote));
    let backups = config.backups.iter().enumerate();
    let backups = backups.map(|(index, remote)| (format!("backup_server {}, ", index + 1), remote));
    first.chain(backups).chain(peers).flat_map(|(whose, remote)| {
        let channels = remote.channels.iter().enumerate();
        channels
            .map(move |(index, channel)| (format!("{whose}channel {}", index + 1), remote, channel))
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread;

    use association::{AssociationMessage, COOKIE_LEN, ConnectionCookie};

    use super::*;

    #[test]
    fn channels_that_cannot_be_used_are_not_tried() {
        // Nothing listens there any more.
        let server = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let text = format!(
            "socks = \"0.0.0.0:0\"\n[[channel]]\nserver = \"{server}\"\n[[channel]]\nserver = \"{server}\"\n\
             source = \"192.0.2.77\"\n[[channel]]\nserver = \"{server}\"\ndevice = \"none0\"\n"
        );
        let config = MicssClientConfig::from_toml(&text).unwrap();
        let found = findings(&config, &OwnListeners::default()).unwrap();
        let of = |subject: &str| -> Vec<&CheckFinding> {
            found.iter().filter(|finding| finding.subject == subject).collect()
        };
        for (subject, message) in [
            ("channel 1", "refuses the connection"),
            ("channel 2", "does not have the address 192.0.2.77"),
            ("channel 3", "there is no device none0"),
        ] {
            let [one] = of(subject)[..] else { panic!("{found:#?}") };
            assert!(
                one.level == FindingSeverity::Error && one.message.contains(message),
                "{one:?}"
            );
        }
        let levels: Vec<FindingSeverity> =
            of("socks").iter().map(|finding| finding.level).collect();
        assert_eq!(
            levels,
            [FindingSeverity::Warning, FindingSeverity::Ok],
            "reachable by anyone, and free"
        );
    }

    /// A dead channel is no error only while enough others answer.
    #[test]
    fn a_dead_channel_that_streams_do_without_is_a_warning() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let alive = server.local_addr().unwrap();
        let greeting = AssociationMessage::Cookie(ConnectionCookie::new([7; COOKIE_LEN])).encode();
        thread::spawn(move || {
            for stream in server.incoming() {
                stream.unwrap().write_all(&greeting).unwrap();
            }
        });
        let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for (threshold, expected) in [(1, FindingSeverity::Warning), (2, FindingSeverity::Error)] {
            let text = format!(
                "socks = \"127.0.0.1:0\"\nthreshold = {threshold}\n[[channel]]\nserver = \"{alive}\"\n\
                 [[channel]]\nserver = \"{dead}\"\n"
            );
            let config = MicssClientConfig::from_toml(&text).unwrap();
            let found = findings(&config, &OwnListeners::default()).unwrap();
            let of = |subject| found.iter().find(|finding| finding.subject == subject).unwrap();
            let levels = [of("channel 1").level, of("channel 2").level];
            assert_eq!(levels, [FindingSeverity::Ok, expected], "{found:#?}");
        }
    }

    #[test]
    fn every_risk_has_a_fix() {
        let channel = "[[channel]]\nserver = \"127.0.0.1:9\"\n";
        let text =
            |settings: &str, channels: usize| format!("{settings}{}", channel.repeat(channels));
        let [open, local] = ["socks = \"0.0.0.0:0\"\n", "socks = \"127.0.0.1:0\"\nthreshold = 1\n"];
        for (text, expected) in
            [(text(open, 1), ["channels", "socks"]), (text(local, 2), ["threshold", "channels"])]
        {
            let config = MicssClientConfig::from_toml(&text).unwrap();
            let risks = risks(&config, |_| None);
            let subjects: Vec<&str> = risks.iter().map(|risk| risk.subject.as_str()).collect();
            assert_eq!(subjects, expected, "{risks:?}");
            assert!(risks.iter().all(|risk| risk.fix.is_some()), "{risks:?}");
        }
    }
}
