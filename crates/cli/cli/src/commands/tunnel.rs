//! `sunder tunnel`: one end of a ReMICSS tunnel.

mod clients_page;
mod closing;
pub(crate) mod ends;
mod examine;
mod invite;
mod join;
pub(crate) mod join_line;
mod limits;
mod metrics;
mod page;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::{future, io};

use clap::Subcommand;
use closing::ClosedState;
use console::CommandFailure;
use keys::SharedKey;
use keys::file::exposure;
use model::channels_by_name;
use remicss::IpTunnel as Running;
use remicss::TunnelStatus;
use remicss::config::{KEYS, TunnelChannelConfig, TunnelConfig, TunnelEnd};
use serde::{Deserialize, Serialize};
use service::config::{ConfigKeys, ConfigProblems};
use service::metrics::PrometheusMetric;
use service::signals::{self, StopSignals};
use service::status::{ServiceProblem, ServiceStatus};
use tun::route::KernelRoute;

use crate::checks::finding::{CheckFinding, FindingSeverity};
use crate::checks::listeners::OwnListeners;
use crate::checks::uplinks::{ChannelUplink, SHARED_FIX, route, shared_route_warnings};
use crate::commands::load_config;
use crate::daemon::{self, ConfiguredDaemon, Daemon};

/// A complete configuration for either end, shown by `--help`.
const CLIENT: &str = include_str!("tunnel.toml");
const SERVER: &str = include_str!("tunnel-server.toml");

/// Carries IP packets over several channels as shares.
///
/// Any k shares restore a packet. An eavesdropper on fewer channels than a packet's threshold
/// learns nothing of it. The end whose channels have `server` connects to the end whose channels
/// have `listen`.
///
/// Needs the right to create a network device (root, or `CAP_NET_ADMIN`). Its addresses and routes
/// vanish when it ends, even if it is killed; with `fail_closed`, packets for them are refused
/// then. Stops on SIGINT or SIGTERM. On SIGHUP it reads kappa, mu, the other settings of schedules,
/// the risks, quotas and clients again, without losing a packet. `RUST_LOG=debug` logs more.
#[derive(clap::Args)]
#[command(after_help = help(), args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    /// The configuration, in TOML
    #[arg(long, value_name = "FILE", required = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<TunnelCommand>,
}

#[derive(Subcommand)]
enum TunnelCommand {
    Join(join::Arguments),
    Invite(invite::Arguments),
    Close(closing::CloseArguments),
    Open(closing::OpenArguments),
}

/// The daemon.
pub(crate) struct Tunnel;

/// The status of an end of a tunnel. Its name is that of its device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct TunnelServiceStatus(TunnelStatus);

impl Daemon for Tunnel {
    const NAME: &'static str = "tunnel";
    const LEGEND: &'static str = "\
For a tunnel, `out` is the direction from this end to its peer: the state, loss
and delay of a channel in that direction are as the peer reports them. `in` is
the direction to this end. A rate marked `set` is from the configuration,
`guess` is a tunnel's initial value, and `at least` is what a channel carried
when no more was sent; other rates were measured. `wrong` counts changed shares.
A channel is `spare` while no packet waits for it, in `reserve` while channels
of lower priority numbers are enough, and has no `quota` left until the day or
month ends.
A server with several clients has a row for each: how long it has been
associated, how many of its channels are `up` in both directions, its rates, and
the risk of packets to it.";
    type Status = TunnelServiceStatus;

    fn page(now: &TunnelServiceStatus, before: Option<&TunnelServiceStatus>) -> String {
        let page = if now.0.clients.is_empty() { page::page } else { clients_page::page };
        page(&now.0, before.map(|before| &before.0))
    }
}

impl ConfiguredDaemon for Tunnel {
    const KEYS: ConfigKeys = KEYS;
    type Config = TunnelConfig;

    fn parse(text: &str, config_dir: &Path) -> Result<TunnelConfig, ConfigProblems> {
        let mut config = TunnelConfig::from_toml(text)?;
        config.quota_file = config.quota_file.map(|file| config_dir.join(file));
        Ok(config)
    }

    fn status_name(config: &TunnelConfig, _path: &Path) -> String {
        config.device.clone()
    }

    fn examine(
        config: &TunnelConfig,
        own: &OwnListeners,
    ) -> Result<Vec<CheckFinding>, CommandFailure> {
        Ok(examine::findings(config, own))
    }
}

impl ServiceStatus for TunnelServiceStatus {
    const METRICS: &'static [PrometheusMetric<Self>] = metrics::METRICS;

    fn name(&self) -> &str {
        &self.0.device
    }

    fn set_name(&mut self, name: String) {
        self.0.device = name;
    }

    fn uptime_s(&self) -> f64 {
        self.0.uptime_s
    }

    fn listen(&self) -> Vec<SocketAddr> {
        self.0.listen.clone()
    }

    fn problems(&self) -> Vec<ServiceProblem> {
        let problems =
            if self.0.clients.is_empty() { page::problems } else { clients_page::problems };
        problems(&self.0)
    }
}

fn help() -> String {
    format!(
        "Example: sunder tunnel --config tunnel.toml, with this in tunnel.toml\n\n{CLIENT}\n\
         and this at the other end\n\n{SERVER}\n\
         Further settings, above the first [[channel]]: objective, max_risk, max_loss,\n\
         max_delay_ms, min_rate_mbit, prefer, scheduler, min_threshold, min_channels,\n\
         tamper_code, rng, order, reassembly_mib, roaming, device (the tunnel's),\n\
         fail_closed, direct, allowed, mtu, quota_file. Of a channel: loss and\n\
         delay_ms, for sunder plan; shared_fate; cost_per_gb; priority; quota_gb and\n\
         quota_period. A server with several clients has a [[client]] with name, key\n\
         and networks for each, and may have between_clients.\n\
         docs/guides/tunnel.md has a table of all settings."
    )
}

/// Carries packets until a signal arrives, or runs the subcommand.
///
/// # Errors
/// If the configuration is wrong, or an address or the device is not available.
pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let path = match (&arguments.command, &arguments.config) {
        (Some(TunnelCommand::Join(arguments)), _) => return join::run(arguments),
        (Some(TunnelCommand::Invite(arguments)), _) => return invite::run(arguments),
        (Some(TunnelCommand::Close(arguments)), _) => return closing::close(arguments),
        (Some(TunnelCommand::Open(arguments)), _) => return closing::open(arguments),
        (None, Some(path)) => path,
        (None, None) => return Err(CommandFailure::Usage("--config is missing".into())),
    };
    signals::catch_hangups()?;
    let config = load_config::<Tunnel>(path)?;
    if config.fail_closed {
        // First, so that nothing leaves another way even if the rest fails.
        closing::now_closed(&config)?;
    }
    let keys = read_keys(path, &config)?;
    let shown = key_files(&config).filter_map(|key| shown_key(path, key));
    let risks = risks(&config, route).into_iter().map(|risk| risk.message);
    for risk in risks.chain(shown).chain(closing::still_closed(&config)) {
        console::warning(&risk);
    }
    let tunnel =
        Running::open(&config, keys).map_err(|error| CommandFailure::Failed(error.to_string()))?;
    daemon::run(carry(path.clone(), config, tunnel))
}

async fn carry(path: PathBuf, config: TunnelConfig, tunnel: Running) -> Result<(), CommandFailure> {
    let (signals, hangups) = (StopSignals::listen()?, signals::hangup_signals()?);
    let closed = ClosedState::keep(&config)?;
    let (stopper, source) = (tunnel.stopper(), tunnel.status_source());
    let _socket = daemon::answer_status::<Tunnel>(move || {
        let closed = closed.as_ref().map(ClosedState::status);
        TunnelServiceStatus(TunnelStatus { closed, ..source.status() })
    });
    console::print_line(&format!("device {}", tunnel.device()))?;
    let reloader = tunnel.reloader();
    let file = path.clone();
    let take = move |config: TunnelConfig| {
        let keys = read_keys(&file, &config)
            .map_err(|failure| io::Error::other(failure.message().to_owned()));
        let reloaded =
            keys.and_then(|keys| reloader.reload(&config, keys).map_err(io::Error::other));
        future::ready(reloaded)
    };
    signals::reload_on_hangup(hangups, move || load_config::<Tunnel>(&path), take);
    let carrying = tokio::task::spawn_blocking(|| tunnel.run());
    let ended = signals::until_stopped(signals, carrying, || stopper.stop()).await?;
    let result = ended.map_err(|panic| CommandFailure::Failed(panic.to_string()))?;
    result.map_err(|error| CommandFailure::Failed(error.to_string()))
}

/// The files of the key that is shared with the peer, or with each client.
fn key_files(config: &TunnelConfig) -> impl Iterator<Item = &PathBuf> {
    config.key.iter().chain(config.clients.iter().map(|client| &client.key))
}

/// Reads the shared keys from their files, relative to the configuration.
pub(crate) fn read_keys(
    path: &Path,
    config: &TunnelConfig,
) -> Result<Vec<SharedKey>, CommandFailure> {
    let read = |key: &PathBuf| SharedKey::read(&key_path(path, key));
    let keys: Result<Vec<SharedKey>, _> = key_files(config).map(read).collect();
    keys.map_err(|error| CommandFailure::Usage(error.to_string()))
}

/// A warning if other users can read or replace the key.
fn shown_key(config: &Path, key: &Path) -> Option<String> {
    let error = exposure(&key_path(config, key))?;
    Some(format!("key: {}, and so impersonate your peer: {}", error.problem(), error.advice()))
}

fn key_path(config: &Path, key: &Path) -> PathBuf {
    daemon::config_dir(config).join(key)
}

/// Settings that the configuration allows, but that are rarely intended.
fn risks(
    config: &TunnelConfig,
    route: impl Fn(&ChannelUplink<'_>) -> Option<KernelRoute>,
) -> Vec<CheckFinding> {
    let mut risks = Vec::new();
    let mut add = |subject: &str, what: String, fix: &str| {
        risks.push(CheckFinding::new(FindingSeverity::Warning, subject, what, fix));
    };
    if config.min_threshold == 1 {
        let (are, as_when) = if config.kappa < 2.0 {
            ("are", "")
        } else {
            (
                "may be",
                ", for example when channels \
                                                                     fail",
            )
        };
        let what = format!(
            "min_threshold is 1: packets {are} sent in the clear{as_when}, and an eavesdropper on \
             one channel reads them"
        );
        add("min_threshold", what, "set min_threshold = 2, with kappa = 2 or more");
    }
    if config.allowed.is_empty() && config.clients.is_empty() {
        let what = "addresses and routes are empty: all packets of the peer are dropped, unless \
                    `allowed` names its networks";
        let fix = "name the peer's networks, as in allowed = [\"10.9.0.0/24\"]";
        add("allowed", what.into(), fix);
    }
    let all_v4 = config.routes.iter().any(|it| it.prefix_len() == 0 && it.addr().is_ipv4());
    if config.fail_closed && all_v4 && !config.routes.iter().any(|it| it.addr().is_ipv6()) {
        let what = "routes has all of IPv4 and nothing of IPv6: IPv6 packets leave by the uplinks, \
                    in the clear";
        add(
            "routes",
            what.into(),
            "add \"::/0\": without an IPv6 address of the tunnel, IPv6 is refused",
        );
    }
    let through_itself = |(_, channel): &(usize, &TunnelChannelConfig)| {
        let peer = channel.peer.map(|peer| peer.ip());
        channel.device.is_none()
            && peer.is_some_and(|peer| config.routes.iter().any(|route| route.contains(&peer)))
    };
    for (index, _) in config.channels.iter().enumerate().filter(through_itself) {
        let number = index + 1;
        let what = format!(
            "channel {number} has no device, and its peer is in `routes`: its own datagrams may be \
             sent into the tunnel"
        );
        add("routes", what, "give the channel its `device`");
    }
    if config.min_channels == 1 && config.channels.len() > 1 {
        let what = "min_channels is 1: an attacker on one channel who can cut the others while the \
                    tunnel starts can forge and change packets";
        add("min_channels", what.into(), "leave min_channels out: then all channels are needed");
    }
    let uplink = |channel| uplink(config.end, channel);
    for line in
        shared_route_warnings(&config.channels.iter().map(uplink).collect::<Vec<_>>(), route)
    {
        add("channels", line, SHARED_FIX);
    }
    for (channels, name) in exposed_fates(config) {
        let what = format!(
            "channels {channels} share the fate \"{name}\": who reads one of them reads all, and \
             so all packets with a threshold of {} that are sent over them",
            config.min_threshold
        );
        let fix = "raise min_threshold, set max_risk, or add channels by other providers";
        add("shared_fate", what, fix);
    }
    if !config.tamper_code {
        let what = "tamper_code is off: an attacker on one channel can change packets unnoticed";
        add("tamper_code", what.into(), "leave tamper_code out, at both ends");
    }
    risks
}

/// The shared fates with as many channels as the lowest threshold, by channel numbers and name.
fn exposed_fates(config: &TunnelConfig) -> Vec<(String, &str)> {
    let names = config.channels.iter().map(|channel| channel.shared_fate.as_deref());
    let fates = channels_by_name(names).into_iter();
    let exposed = fates.filter(|(_, channels)| channels.len() >= config.min_threshold.into());
    let numbered = exposed.map(|(name, channels)| {
        let numbers: Vec<String> = channels.iter().map(|index| (index + 1).to_string()).collect();
        (numbers.join(" and "), name)
    });
    numbered.collect()
}

/// The settings that determine how a channel leaves this host.
fn uplink(end: TunnelEnd, channel: &TunnelChannelConfig) -> ChannelUplink<'_> {
    let own = channel.local.ip();
    // A server's channel answers from its listen address.
    let source = (end == TunnelEnd::Server || !own.is_unspecified()).then_some(own);
    ChannelUplink {
        to: channel.peer.map(|peer| peer.ip()),
        source,
        device: channel.device.as_deref(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::tests::names;

    const GUIDE: &str = include_str!("../../../../../docs/guides/tunnel.md");

    /// The server and the client in the guide.
    fn guides() -> [&'static str; 2] {
        let blocks = GUIDE.split("```toml\n").skip(1);
        let blocks: Vec<&str> = blocks.map(|rest| rest.split("```").next().unwrap()).collect();
        blocks.try_into().expect("two examples")
    }

    #[test]
    fn the_examples_are_ends_of_one_tunnel_without_risks() {
        for [server, client] in [[SERVER, CLIENT], guides()] {
            let [server, client] =
                [server, client].map(|text| TunnelConfig::from_toml(text).unwrap());
            assert_eq!((server.end, client.end), (TunnelEnd::Server, TunnelEnd::Client));
            let listens = server.channels.iter().map(|channel| Some(channel.local));
            assert!(listens.eq(client.channels.iter().map(|channel| channel.peer)));
            assert!(client.key.is_some() && client.key == server.key);
            assert!(client.min_threshold >= server.min_threshold);
            assert_eq!(client.tamper_code, server.tamper_code);
            assert_eq!(client.addresses[0].network(), server.addresses[0].network());
            assert_eq!((risks(&client, |_| None), risks(&server, |_| None)), (vec![], vec![]));
        }
    }

    #[test]
    fn help_and_guide_name_every_setting() {
        for table in ["", "channel"] {
            for name in KEYS.names(table) {
                assert!(names(&help(), name), "{name} is not in --help");
                let shown = [format!("`{name}`"), format!("[[{name}]]")];
                assert!(
                    shown.iter().any(|shown| GUIDE.contains(shown)),
                    "{name}: not in the guide"
                );
            }
        }
    }

    #[test]
    fn risky_tunnel_settings_are_named() {
        let named = |text: &str| {
            let risks = risks(&TunnelConfig::from_toml(text).unwrap(), |_| None).into_iter();
            risks.map(|risk| risk.message).collect::<Vec<_>>().join("; ")
        };
        let is_named = |text: &str, expected: &str| {
            let named = named(text);
            assert!(named.contains(expected), "{expected}: {named}");
        };
        is_named(&CLIENT.replace("kappa = 2", "kappa = 1"), "packets are sent in the clear, and");
        let floor = CLIENT.replace("kappa = 2", "kappa = 2\nmin_threshold = 1");
        is_named(&floor, "packets may be sent in the clear, for example when channels fail");
        is_named(
            &CLIENT.replace("kappa = 2", "kappa = 2\ntamper_code = false"),
            "tamper_code is off",
        );

        let one = CLIENT.replace("kappa = 2", "kappa = 2\nmin_threshold = 1\nmin_channels = 1");
        is_named(&one, "min_channels is 1: an attacker on one channel");

        let routes = "routes = [\"0.0.0.0/0\"]\nfail_closed = true";
        let all = CLIENT.replace("routes = [\"10.8.0.0/16\"]", routes);
        is_named(&all, "routes has all of IPv4 and nothing of IPv6");
        is_named(&all, "channel 1 has no device, and its peer is in `routes`");

        let same_device = CLIENT.replace("wwan0", "wlan0");
        is_named(&same_device, "channels 2 and 3 are both on wlan0");
        let same_source = CLIENT.replace("device = \"wlan0\"", "source = \"192.0.2.20\"");
        is_named(&same_source, "channels 1 and 2 are both at 192.0.2.20");
        let by_route = CLIENT.replace("device = ", "# ").replace("203.0.113.10", "198.51.100.10");
        is_named(&by_route, "channels 2 and 3 are both to 198.51.100.10");
        let same_address = SERVER.replace("203.0.113.10:6521", "198.51.100.10:6522");
        is_named(&same_address, "channels 2 and 3 are both at 198.51.100.10");
        let own_devices = same_address
            .replace("10:6522\"", "10:6522\"\ndevice = \"wwan0\"")
            .replace("100.10:6521\"", "100.10:6521\"\ndevice = \"wlan0\"");
        assert_eq!(named(&own_devices), "");
    }
}
