//! `sunder serve`: the server's end of MICSS.

mod examine;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use console::CommandFailure;
use micss::config::{MicssServerConfig, SERVER_KEYS};
use micss::server::MicssServer;
use service::config::{ConfigKeys, ConfigProblems};
use service::limits::OpenFileBudget;
use service::signals::{self, StopSignals};
use service::status::name_of;
use tokio::sync::oneshot;

use crate::checks::files::warn_of_exposed_keys;
use crate::checks::finding::{CheckFinding, FindingSeverity};
use crate::checks::listeners::{OwnListeners, open_to_all};
use crate::commands::load_config;
use crate::commands::streams::{self, StreamServiceStatus};
use crate::daemon::{self, ConfiguredDaemon, Daemon};

/// A complete configuration, shown by `--help`.
const EXAMPLE: &str = include_str!("serve.toml");

/// Connects streams that arrive over several channels to services.
///
/// A client names a service, and gets it if the configuration allows it. The other end is
/// `sunder proxy`.
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
}

/// The daemon.
pub(crate) struct Serve;

impl Daemon for Serve {
    const NAME: &'static str = "serve";
    const LEGEND: &'static str = streams::LEGEND;
    type Status = StreamServiceStatus;

    fn page(now: &StreamServiceStatus, before: Option<&StreamServiceStatus>) -> String {
        streams::page(Self::NAME, now, before)
    }
}

impl ConfiguredDaemon for Serve {
    const KEYS: ConfigKeys = SERVER_KEYS;
    type Config = MicssServerConfig;

    fn parse(text: &str, config_dir: &Path) -> Result<MicssServerConfig, ConfigProblems> {
        Ok(MicssServerConfig {
            config_dir: config_dir.to_owned(),
            ..MicssServerConfig::from_toml(text)?
        })
    }

    fn examine(
        config: &MicssServerConfig,
        own: &OwnListeners,
    ) -> Result<Vec<CheckFinding>, CommandFailure> {
        examine::findings(config, own)
    }
}

fn help() -> String {
    format!(
        "Example: sunder serve --config serve.toml, with this in serve.toml\n\n{EXAMPLE}\n\
         Further settings: allow_udp, proxy_protocol, max_channels, max_waiting,\n\
         max_memory_mib, lost_channel_timeout_s, and [directory].\n\
         docs/guides/micss.md has a table of them."
    )
}

/// Serves until a signal arrives.
///
/// # Errors
/// If the configuration is wrong, an address is not available, or streams were interrupted.
pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    signals::catch_hangups()?;
    let config = load(&arguments.config)?;
    daemon::run(serve(arguments.config.clone(), config))
}

fn load(path: &Path) -> Result<MicssServerConfig, CommandFailure> {
    let config = load_config::<Serve>(path)?;
    for risk in open_listeners(&config) {
        console::warning(&risk.message);
    }
    if let Some(directory) = &config.directory {
        warn_of_exposed_keys(&directory.key_files(&config.config_dir));
    }
    Ok(config)
}

async fn serve(path: PathBuf, config: MicssServerConfig) -> Result<(), CommandFailure> {
    let (signals, hangups) = (StopSignals::listen()?, signals::hangup_signals()?);
    let failed = |error: io::Error| CommandFailure::Failed(error.to_string());
    let server = MicssServer::bind(within_limits(config)).await.map_err(failed)?;
    let (handle, name) = (server.handle(), name_of(&path));
    let status = move || StreamServiceStatus { name: name.clone(), status: handle.status() };
    let _socket = daemon::answer_status::<Serve>(status);
    print_listening(&server.local_addresses().map_err(failed)?)?;
    if let Some(answerer) = server.directory_server() {
        for address in answerer.local_addresses().map_err(failed)? {
            console::print_line(&format!("directory: answering on {address}"))?;
        }
        if let Some(key) = answerer.public_key() {
            console::print_line(&format!("directory: public_key = \"{key}\""))?;
        }
    }
    let handle = server.handle();
    let take = move |config| {
        let handle = handle.clone();
        async move {
            let addresses = handle.reload(within_limits(config)).await?;
            // The server continues even if standard output is closed.
            let _ = print_listening(&addresses);
            Ok(())
        }
    };
    signals::reload_on_hangup(hangups, move || load(&path), take);
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = server.run(async { _ = stopped.await });
    Ok(signals::until_stopped(signals, serving, || drop(stop)).await?)
}

/// The listeners that other hosts can reach, which need protection by other means.
fn open_listeners(config: &MicssServerConfig) -> Vec<CheckFinding> {
    let directory = config.directory.iter().flat_map(|directory| &directory.listen);
    let warning = |subject: &str, what: Option<String>| {
        let fix = "restrict access with a firewall";
        what.map(|what| CheckFinding::new(FindingSeverity::Warning, subject, what, fix))
    };
    let streams = open_to_all("the server of streams", config.listen.iter().copied());
    let directory = open_to_all("the directory", directory.copied());
    let streams = warning("listen", streams);
    streams.into_iter().chain(warning("directory, listen", directory)).collect()
}

fn print_listening(addresses: &[SocketAddr]) -> Result<(), CommandFailure> {
    addresses.iter().try_for_each(|address| console::print_line(&format!("listening on {address}")))
}

/// Lowers the limits to what the limit of file descriptors allows.
fn within_limits(config: MicssServerConfig) -> MicssServerConfig {
    let (streams, waiting) = (config.max_streams, config.max_waiting);
    // A stream of datagrams has a UDP socket, and a connection within this process.
    let own = if config.allow_udp.is_empty() { 1 } else { 3 };
    let possible = OpenFileBudget {
        streams,
        files_per_stream: usize::from(config.max_channels) + own,
        waiting,
    }
    .raise_limit_and_fit();
    MicssServerConfig { max_streams: possible.streams, max_waiting: possible.waiting, ..config }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::tests::names;

    const GUIDE: &str = include_str!("../../../../../docs/guides/micss.md");

    #[test]
    fn help_and_guide_name_every_setting() {
        for name in SERVER_KEYS.names("") {
            assert!(names(&help(), name), "{name} is not in --help");
        }
        let (_, guide) = GUIDE.split_once("## All settings of `serve.toml`").unwrap();
        for table in ["", "directory"] {
            for name in SERVER_KEYS.names(table) {
                let shown = [format!("`{name}`"), format!("[{name}]")];
                let is_shown = shown.iter().any(|shown| guide.contains(shown));
                assert!(is_shown, "{table} {name}: not in the guide");
            }
        }
    }

    #[test]
    fn listeners_that_are_open_are_named() {
        let risks = |listen: &str| {
            let text = format!(
                "listen = [\"{listen}:1\", \"127.0.0.1:1\"]\nallow = []\n[directory]\n\
                 listen = [\"{listen}:2\"]\nshared_key = \"x\"\n\
                 addresses = [\"192.0.2.1:1\", \"192.0.2.2:1\"]\n"
            );
            let risks = open_listeners(&MicssServerConfig::from_toml(&text).unwrap()).into_iter();
            risks.map(|risk| risk.message).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(risks("127.0.0.2"), "");
        let messages = risks("192.0.2.1");
        for what in [
            "192.0.2.1:1 can use the server of streams",
            "192.0.2.1:2 can use the \
                                                                   directory",
        ] {
            assert!(messages.contains(&format!("anyone who can reach {what}")), "{messages}");
        }
    }

    #[test]
    fn the_example_is_a_configuration() {
        let config = MicssServerConfig::from_toml(EXAMPLE).unwrap();
        assert_eq!((config.listen.len(), config.min_channels), (3, 3));
    }
}
