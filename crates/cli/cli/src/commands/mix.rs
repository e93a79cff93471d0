//! `sunder mix`: the proxy of mix-in-place.

mod examine;
mod metrics;
mod page;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;

use console::CommandFailure;
use mix::proxy::{self, KEYS, MixProxy, MixProxyConfig};
use serde::{Deserialize, Serialize};
use service::config::{ConfigKeys, ConfigProblems};
use service::limits::raise_open_files;
use service::metrics::PrometheusMetric;
use service::signals::{self, StopSignals};
use service::status::{ServiceProblem, ServiceStatus, name_of};
use tracing::warn;

use crate::checks::finding::CheckFinding;
use crate::checks::listeners::OwnListeners;
use crate::commands::load_config;
use crate::daemon::{self, ConfiguredDaemon, Daemon};

/// A complete configuration, shown by `--help`.
const EXAMPLE: &str = include_str!("mix.toml");

/// Keeps the mailboxes of groups whose members use `sunder chat`.
///
/// It learns who takes part in a round, but not who wrote to whom, nor whether anyone did, whatever
/// it does. If it cooperates with members of the group, they learn only about messages from and to
/// these members. With another `engine` than "broadcast", this holds only if the proxy follows the
/// protocol and cooperates with nobody.
///
/// Stops on SIGINT or SIGTERM. The next run continues where this one stopped, and the members
/// connect to it again. Reads its configuration again on SIGHUP: new groups start, groups that are
/// gone end, and the log names the changed settings that need a restart. `sunder status` shows its
/// state; `RUST_LOG=debug` logs each round.
#[derive(clap::Args)]
#[command(after_help = help())]
pub(crate) struct Arguments {
    /// The configuration, in TOML
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

/// The daemon.
pub(crate) struct Mix;

impl Daemon for Mix {
    const NAME: &'static str = "mix";
    const LEGEND: &'static str = "\
For a proxy of mix-in-place, `took part` is the number of members in the last
round: the anonymity set. `audits` shows how many audits found an update wrong,
or did not check it, of all audits. `today` is the bytes of messages since
midnight (UTC) or the start. The line of a proxy has its part of the processors
and its memory.";
    type Status = MixServiceStatus;

    fn page(now: &MixServiceStatus, before: Option<&MixServiceStatus>) -> String {
        page::page(&now.0, before.map(|before| &before.0))
    }
}

impl ConfiguredDaemon for Mix {
    const KEYS: ConfigKeys = KEYS;
    type Config = MixProxyConfig;

    fn parse(text: &str, config_dir: &Path) -> Result<MixProxyConfig, ConfigProblems> {
        Ok(MixProxyConfig { config_dir: config_dir.to_owned(), ..MixProxyConfig::from_toml(text)? })
    }

    fn examine(
        config: &MixProxyConfig,
        own: &OwnListeners,
    ) -> Result<Vec<CheckFinding>, CommandFailure> {
        Ok(examine::findings(config, own))
    }
}

/// The status of a proxy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct MixServiceStatus(proxy::MixProxyStatus);

impl ServiceStatus for MixServiceStatus {
    const METRICS: &'static [PrometheusMetric<Self>] = metrics::METRICS;

    fn name(&self) -> &str {
        &self.0.name
    }

    fn set_name(&mut self, name: String) {
        self.0.name = name;
    }

    fn uptime_s(&self) -> f64 {
        self.0.uptime_s
    }

    fn listen(&self) -> Vec<SocketAddr> {
        self.0.listen.parse::<SocketAddr>().into_iter().collect()
    }

    fn problems(&self) -> Vec<ServiceProblem> {
        page::problems(&self.0)
    }
}

fn help() -> String {
    format!(
        "Example: sunder mix --config office.toml, with this in office.toml\n\n{EXAMPLE}\n\
         Behind a load balancer: balancers = [\"192.0.2.10\"], its addresses, from which\n\
         the PROXY protocol is accepted.\n\
         Further settings of a group: profile, slots_per_member, interval_ms,\n\
         min_interval_ms, engine, keep, keep_mb; with another engine than\n\
         \"broadcast\" also writes, reads, audit_every_rounds.\n\
         docs/guides/chat.md has a table of them."
    )
}

/// Runs the proxy until a signal arrives.
///
/// # Errors
/// If the configuration is wrong, or something that it names cannot be used.
pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    signals::catch_hangups()?;
    let config = load_config::<Mix>(&arguments.config)?;
    daemon::run(serve(arguments.config.clone(), config))
}

async fn serve(path: PathBuf, config: MixProxyConfig) -> Result<(), CommandFailure> {
    let (signals, hangups) = (StopSignals::listen()?, signals::hangup_signals()?);
    let failed = |error: proxy::MixProxyError| CommandFailure::Failed(error.to_string());
    // A connection takes one or more, by its transport.
    raise_open_files();
    let proxy = MixProxy::open(&config).map_err(failed)?;
    let handle = proxy.handle();
    let (source, name) = (handle.clone(), name_of(&path));
    let _socket =
        daemon::answer_status::<Mix>(move || MixServiceStatus(source.status(name.clone())));
    console::print_line(&format!("listening on {}", proxy.local_addr()))?;
    console::print_line(&format!("proxy_key = \"{}\"", proxy.public_key()))?;
    let (reloaded, before) = (handle.clone(), config);
    let take = move |new: MixProxyConfig| {
        let unchanged = reloaded.reload(&new, &before).map_err(io::Error::other);
        async move {
            let settings = unchanged?.join(", ");
            if !settings.is_empty() {
                warn!(%settings, "changed settings that take effect only after a restart");
            }
            Ok(())
        }
    };
    signals::reload_on_hangup(hangups, move || load_config::<Mix>(&path), take);
    let (ended, end) = tokio::sync::oneshot::channel();
    let work = move || _ = ended.send(proxy.run());
    thread::Builder::new()
        .name("mix-accept".into())
        .spawn(work)
        .map_err(|error| CommandFailure::Failed(format!("no threads: {error}")))?;
    let ended = signals::until_stopped(signals, end, || handle.stop()).await?;
    ended.map_err(|_| CommandFailure::Failed("the proxy has failed".into()))?.map_err(failed)
}

#[cfg(test)]
mod tests {
    use mix::MemberCost;
    use mix::proxy::GroupProfile;

    use super::*;
    use crate::daemon::tests::names;

    const GUIDE: &str = include_str!("../../../../../docs/guides/chat.md");

    #[test]
    fn the_example_is_a_configuration() {
        let config = MixProxyConfig::from_toml(EXAMPLE).unwrap();
        assert_eq!(config.groups[0].terms.shape().members(), 16);
    }

    /// The guide's table of profiles has what the calculator says.
    #[test]
    fn the_guide_has_the_costs_of_profiles() {
        for profile in GroupProfile::ALL {
            for members in [4, 16, 64] {
                let cost = MemberCost::new(&profile.terms(members).unwrap(), members);
                let megabytes = |bytes: u64| format!("{} MB", (bytes + 500_000) / 1_000_000);
                let row = format!(
                    "| `\"{}\"` | {members} | {} | {} | {:.1} s | {:.1} s |",
                    profile.as_str(),
                    megabytes(cost.up_per_day),
                    megabytes(cost.down_per_day),
                    cost.delivery.as_secs_f64(),
                    cost.delivery_95.as_secs_f64(),
                );
                assert!(GUIDE.contains(&row), "not in the guide: {row}");
            }
        }
    }

    #[test]
    fn help_and_guide_name_every_setting() {
        for table in ["", "group"] {
            for name in KEYS.names(table) {
                assert!(names(&help(), name), "{name} is not in --help");
                let shown = [format!("`{name}`"), format!("[[{name}]]")];
                let is_shown = shown.iter().any(|shown| GUIDE.contains(shown));
                assert!(is_shown, "{table} {name}: not in the guide");
            }
        }
    }
}
