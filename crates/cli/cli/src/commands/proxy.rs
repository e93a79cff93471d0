//! `sunder proxy`: the client's end of MICSS.

mod examine;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use console::CommandFailure;
use micss::client::MicssClient;
use micss::config::{
    CLIENT_KEYS, ConnectionPoolConfig, MicssClientConfig, RemoteServerConfig, StreamChannelConfig,
};
use micss::intercept::{self, InterceptConfig};
use service::config::{ConfigKeys, ConfigProblems};
use service::limits::OpenFileBudget;
use service::signals::{self, StopSignals};
use service::status::name_of;
use tokio::sync::oneshot;
use tracing::warn;
use tun::route::KernelRoute;

use crate::checks::files::warn_of_exposed_keys;
use crate::checks::finding::{CheckFinding, FindingSeverity};
use crate::checks::listeners::{OwnListeners, open_to_all};
use crate::checks::uplinks::{ChannelUplink, SHARED_FIX, route, shared_route_warnings};
use crate::commands::load_config;
use crate::commands::streams::{self, StreamServiceStatus};
use crate::daemon::{self, ConfiguredDaemon, Daemon};

/// A complete configuration, shown by `--help`.
const EXAMPLE: &str = include_str!("proxy.toml");

/// Carries connections of applications over several channels.
///
/// An eavesdropper on all channels but one learns nothing of their content. The other end is
/// `sunder serve`.
///
/// Stops on SIGINT or SIGTERM after the open streams have finished, or immediately on a second
/// signal. Reads its configuration again on SIGHUP; open streams are not affected. `sunder status`
/// shows its state; `RUST_LOG=debug` logs more.
#[derive(clap::Args)]
#[command(after_help = help())]
pub(crate) struct Arguments {
    /// The configuration, in TOML
    #[arg(long, value_name = "FILE")]
    config: PathBuf,

    /// Print the nftables rules for interception, after nft has checked them, and exit
    #[arg(long)]
    print_rules: bool,
}

/// The daemon.
pub(crate) struct Proxy;

impl Daemon for Proxy {
    const NAME: &'static str = "proxy";
    const LEGEND: &'static str = streams::LEGEND;
    type Status = StreamServiceStatus;

    fn page(now: &StreamServiceStatus, before: Option<&StreamServiceStatus>) -> String {
        streams::page(Self::NAME, now, before)
    }
}

impl ConfiguredDaemon for Proxy {
    const KEYS: ConfigKeys = CLIENT_KEYS;
    type Config = MicssClientConfig;

    fn parse(text: &str, config_dir: &Path) -> Result<MicssClientConfig, ConfigProblems> {
        Ok(MicssClientConfig {
            config_dir: config_dir.to_owned(),
            ..MicssClientConfig::from_toml(text)?
        })
    }

    fn examine(
        config: &MicssClientConfig,
        own: &OwnListeners,
    ) -> Result<Vec<CheckFinding>, CommandFailure> {
        examine::findings(config, own)
    }
}

fn help() -> String {
    format!(
        "Example: sunder proxy --config proxy.toml, with this in proxy.toml\n\n{EXAMPLE}\n\
         Then: curl --socks5-hostname 127.0.0.1:1080 http://localhost/\n\n\
         Further settings, above the first [[channel]]: threshold, integrity, rng,\n\
         intercept_udp, intercept_port, intercept_from, intercept_refuse, max_streams,\n\
         on_lost_channel, lost_channel_timeout_s, send_client_address, socks_udp,\n\
         bypass, switch_back_after_s; and below: [pool], [[backup_server]], [[peer]],\n\
         [directory], [[uplink]]. docs/guides/micss.md has a table of them."
    )
}

/// Carries streams until a signal arrives.
///
/// # Errors
/// If the configuration is wrong, an address is not available, or streams were interrupted.
pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let path = &arguments.config;
    if arguments.print_rules {
        return print_rules(&load_config::<Proxy>(path)?);
    }
    signals::catch_hangups()?;
    let config = load(path)?;
    daemon::run(carry(path.clone(), config))
}

fn print_rules(config: &MicssClientConfig) -> Result<(), CommandFailure> {
    let nothing = "no interception is configured: set intercept, as in intercept = \"tcp dport \
                   80\"";
    let intercept =
        config.intercept.as_ref().ok_or_else(|| CommandFailure::Usage(nothing.into()))?;
    match intercept.check() {
        Ok(()) => {}
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            console::warning(&format!("the rules are not checked: {error}"));
        }
        Err(error) => return Err(CommandFailure::Failed(error.to_string())),
    }
    console::print(intercept.rules().as_bytes())
}

async fn carry(path: PathBuf, config: MicssClientConfig) -> Result<(), CommandFailure> {
    let (signals, hangups) = (StopSignals::listen()?, signals::hangup_signals()?);
    let failed = |error: io::Error| CommandFailure::Failed(error.to_string());
    let config = within_limits(config);
    let purposes = listener_purposes(&config);
    let client = MicssClient::bind(config).await.map_err(failed)?;
    let (handle, name) = (client.handle(), name_of(&path));
    let status = move || StreamServiceStatus { name: name.clone(), status: handle.status() };
    let _socket = daemon::answer_status::<Proxy>(status);
    print_listening(&client.local_addresses().map_err(failed)?, &purposes)?;
    for table in intercept::leftover_tables() {
        warn!(
            "another proxy that was killed or could not start has left rules, and connections that \
             match them are refused: start it again, or nft delete table inet {table}"
        );
    }
    let handle = client.handle();
    let take = move |config| {
        let handle = handle.clone();
        async move {
            let config = within_limits(config);
            let entrances = listener_purposes(&config);
            let addresses = handle.reload(config).await?;
            // The client continues even if standard output is closed.
            let _ = print_listening(&addresses, &entrances);
            Ok(())
        }
    };
    signals::reload_on_hangup(hangups, move || load(&path), take);
    let (stop, stopped) = oneshot::channel::<()>();
    let carrying = client.run(async { _ = stopped.await });
    Ok(signals::until_stopped(signals, carrying, || drop(stop)).await?)
}

fn print_listening(addresses: &[SocketAddr], entrances: &[String]) -> Result<(), CommandFailure> {
    addresses.iter().zip(entrances).try_for_each(|(address, entrance)| {
        console::print_line(&format!("listening on {address}: {entrance}"))
    })
}

/// Reads the configuration and warns of settings that are rarely intended.
fn load(path: &Path) -> Result<MicssClientConfig, CommandFailure> {
    let config = load_config::<Proxy>(path)?;
    for risk in risks(&config, route) {
        console::warning(&risk.message);
    }
    if let Some(directory) = &config.directory {
        warn_of_exposed_keys(&directory.key_files(&config.config_dir));
    }
    Ok(config)
}

/// The typical number of channels of a peer.
const USUAL: usize = 3;

/// The maximum number of channels of a stream. For peers in the directory it is an estimate.
fn most_channels(config: &MicssClientConfig) -> usize {
    let found = config.directory.iter().map(|_| config.uplinks.len().max(USUAL));
    config.remotes().map(|remote| remote.channels.len()).chain(found).max().unwrap_or(1)
}

/// Lowers the limits to what the limit of file descriptors allows.
fn within_limits(config: MicssClientConfig) -> MicssClientConfig {
    let all = config.remotes().map(|remote| remote.channels.len()).sum::<usize>().max(1);
    // A stream of datagrams has both ends of a connection within this process. An association of
    // SOCKS5 also has a UDP socket and the application's connection.
    let others = match (config.socks_udp, config.carries_udp()) {
        (true, _) => 4,
        (false, true) => 2,
        (false, false) => 1,
    };
    let wanted = OpenFileBudget {
        streams: config.max_streams,
        files_per_stream: most_channels(&config) + others,
        waiting: config.pool.keep.saturating_mul(all),
    };
    let possible = wanted.raise_limit_and_fit();
    let keep = config.pool.keep.min(possible.waiting / all);
    let pool = ConnectionPoolConfig { size: config.pool.size.min(keep), keep, ..config.pool };
    MicssClientConfig { max_streams: possible.streams, pool, ..config }
}

/// The purpose of each of the client's listeners, in their order.
fn listener_purposes(config: &MicssClientConfig) -> Vec<String> {
    let socks = config.socks.iter().map(|_| "SOCKS5".to_owned());
    let forwards = config.forwards.iter().map(|forward| format!("to {}", forward.target));
    // One for IPv4 and one for IPv6.
    let intercepted = config.intercept.iter().flat_map(|intercept| {
        let what =
            if intercept.intercepts_udp() { "intercepted, TCP and UDP" } else { "intercepted" };
        [what; 2].map(String::from)
    });
    socks.chain(forwards).chain(intercepted).collect()
}

/// Settings that the configuration allows, but that are rarely intended.
fn risks(
    config: &MicssClientConfig,
    route: impl Fn(&ChannelUplink<'_>) -> Option<KernelRoute>,
) -> Vec<CheckFinding> {
    let first = config.first_server.iter().map(|remote| (String::new(), remote));
    let backups = config.backups.iter().enumerate();
    let backups = backups.map(|(index, remote)| (format!("backup_server {}: ", index + 1), remote));
    let peers = config.peers.iter();
    let peers = peers.map(|peer| (format!("peer {}: ", peer.addresses[0]), &peer.remote));
    let named = |(name, remote)| {
        let risks = risks_of(remote, &route).into_iter();
        let named = |risk: CheckFinding| CheckFinding {
            message: format!("{name}{}", risk.message),
            ..risk
        };
        risks.map(named).collect::<Vec<_>>()
    };
    let mut risks: Vec<CheckFinding> = first.chain(backups).chain(peers).flat_map(named).collect();
    if config.directory.is_some() {
        risks.extend(risks_of_uplinks(config));
    }
    risks.extend(open_to_all("SOCKS5", config.socks).map(|what| {
        let fix = "set socks = \"127.0.0.1:1080\", or restrict access with a firewall";
        risk("socks", what, fix)
    }));
    risks.extend(config.forwards.iter().filter_map(|forward| {
        let what = open_to_all(&format!("the forward to {}", forward.target), [forward.listen])?;
        Some(risk("forward", what, "listen on 127.0.0.1, or restrict access with a firewall"))
    }));
    if let Some(intercept) = config.intercept.as_ref().filter(|one| one.is_unprivileged_port()) {
        let what = format!(
            "any user can listen on intercept_port {}, and so keep the proxy from starting; \
             connections that `intercept` matches are then refused",
            intercept.port()
        );
        let fix = "leave intercept_port out, or choose a port below 1024 that no service of this host \
             uses";
        risks.push(risk("intercept_port", what, fix));
    }
    let leaves_udp = |one: &InterceptConfig| one.refused().is_none() && !one.intercepts_udp();
    if config.intercept.as_ref().is_some_and(leaves_udp) {
        let what = "UDP leaves in the clear: DNS (port 53) and QUIC (port 443) of applications show where \
                    they connect to";
        let fix = "set intercept_udp = \"udp dport { 53, 443 }\" to carry them, or \
                   intercept_refuse = [\"quic\", \"dns\"] to refuse them, or [] to let them leave";
        risks.push(risk("intercept_refuse", what, fix));
    }
    if config.intercept.is_some() && intercept::lacks_ipv6() {
        let what = "lo has no IPv6 (net.ipv6.conf.lo.disable_ipv6 is 1), so this host's own IPv6 \
                    connections that `intercept` matches are dropped";
        let fix = "sysctl net.ipv6.conf.lo.disable_ipv6=0, or disable IPv6 on all interfaces";
        risks.push(risk("intercept", what, fix));
    }
    risks
}

fn risk(subject: &str, what: impl Into<String>, fix: &str) -> CheckFinding {
    CheckFinding::new(FindingSeverity::Warning, subject, what, fix)
}

/// Such settings among the uplinks to peers in the directory.
fn risks_of_uplinks(config: &MicssClientConfig) -> Vec<CheckFinding> {
    if config.uplinks.len() < 2 {
        let what = "directory: without two [[uplink]]s all channels to a peer leave by their \
                    routes, which may be the same: an eavesdropper there reads everything";
        let fix = "add an [[uplink]] for each network that this host has";
        return vec![risk("uplink", what, fix)];
    }
    let own = config.uplinks.iter();
    let own = own.map(|own| ChannelUplink {
        to: None,
        source: own.source,
        device: own.device.as_deref(),
    });
    let shared = shared_route_warnings(&own.collect::<Vec<_>>(), |_| None).into_iter();
    let fix = "give each its own `device` or `source`, or leave one out";
    shared
        .map(|line| risk("uplink", format!("[[uplink]]s of the directory: {line}"), fix))
        .collect()
}

/// Such settings among the channels to one server.
fn risks_of(
    remote: &RemoteServerConfig,
    route: impl Fn(&ChannelUplink<'_>) -> Option<KernelRoute>,
) -> Vec<CheckFinding> {
    let RemoteServerConfig { channels, threshold } = remote;
    let mut risks = Vec::new();
    if channels.len() == 1 {
        let what = "there is only one channel: an eavesdropper on it reads everything";
        risks.push(risk("channels", what, "add a [[channel]] over another network"));
    }
    if *threshold == 1 && channels.len() > 1 {
        let what = "threshold is 1: an eavesdropper on any one channel reads everything";
        let fix = "set threshold = 2 or more, or leave it out: then all channels are needed";
        risks.push(risk("threshold", what, fix));
    }
    let shared =
        shared_route_warnings(&channels.iter().map(uplink).collect::<Vec<_>>(), route).into_iter();
    risks.extend(shared.map(|line| risk("channels", line, SHARED_FIX)));
    risks
}

/// The settings that determine how a channel leaves this host.
fn uplink(channel: &StreamChannelConfig) -> ChannelUplink<'_> {
    let StreamChannelConfig { server, source, device, .. } = channel;
    ChannelUplink {
        to: server.known().map(|known| known.ip()),
        source: *source,
        device: device.as_deref(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::tests::names;

    const GUIDE: &str = include_str!("../../../../../docs/guides/micss.md");

    #[test]
    fn help_and_guide_name_every_setting() {
        for name in CLIENT_KEYS.names("") {
            assert!(names(&help(), name), "{name} is not in --help");
        }
        for table in [
            "",
            "channel",
            "forward",
            "pool",
            "peer",
            "peer.channel",
            "backup_server",
            "backup_server.channel",
            "uplink",
            "directory",
            "directory.trust",
        ] {
            for name in CLIENT_KEYS.names(table) {
                let shown = ["`{}`", "[{}]", ".{}]"].map(|shown| shown.replace("{}", name));
                let is_shown = shown.iter().any(|shown| GUIDE.contains(shown));
                assert!(is_shown, "{table} {name}: not in the guide");
            }
        }
    }

    #[test]
    fn the_example_is_a_configuration_without_risks() {
        let config = MicssClientConfig::from_toml(EXAMPLE).unwrap();
        let channels = config.remotes().map(|remote| remote.channels.len());
        assert_eq!((channels.sum::<usize>(), config.forwards.len()), (3, 1));
        assert_eq!(listener_purposes(&config), ["SOCKS5", "to localhost:80"]);
        assert!(risks(&config, |_| None).is_empty());
    }

    #[test]
    fn channels_that_protect_nothing_are_named() {
        let risks_of = |channels: &[&str], socks: &str| {
            let channels = channels.join("\n[[channel]]\n");
            let text = format!("socks = \"{socks}\"\n[[channel]]\n{channels}");
            risks(&MicssClientConfig::from_toml(&text).unwrap(), |_| None)
        };
        let [a, b] = ["server = \"192.0.2.1:1\"", "server = \"192.0.2.2:1\""];
        let another_port = "server = \"192.0.2.1:2\"";
        let another_device = "server = \"192.0.2.1:1\"\ndevice = \"x\"";
        let another_source = "server = \"192.0.2.1:1\"\nsource = \"192.0.2.9\"";
        let local = "127.0.0.1:1080";
        assert!(risks_of(&[a, b, another_device, another_source], local).is_empty());
        assert!(risks_of(&[a, b], "[::1]:1080").is_empty());
        for (channels, socks, expected) in [
            (&[a, b, a][..], local, "channels 1 and 3 are both to 192.0.2.1"),
            (&[b, a, another_port], local, "channels 2 and 3 are both to 192.0.2.1"),
            (&[a], local, "only one channel"),
            (&[a, b], "0.0.0.0:1080", "anyone who can reach 0.0.0.0:1080 can use SOCKS5"),
            (&[a, b], "[::]:1080", "anyone who can reach [::]:1080 can use SOCKS5"),
        ] {
            let risks = risks_of(channels, socks);
            assert!(matches!(&risks[..], [risk] if risk.message.contains(expected)), "{risks:?}");
        }
        let forward = "[[forward]]\nlisten = \"0.0.0.0:8080\"\ntarget = \"localhost:80\"\n";
        let forward = format!("{forward}[[channel]]\n{a}\n[[channel]]\n{b}");
        let risks = risks(&MicssClientConfig::from_toml(&forward).unwrap(), |_| None);
        let expected = "anyone who can reach 0.0.0.0:8080 can use the forward to localhost:80";
        assert!(matches!(&risks[..], [risk] if risk.message.contains(expected)), "{risks:?}");
    }
}
