//! `sunder quorum node`: one server of a group.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use console::CommandFailure;
use quorum::api::ApiSocket;
use quorum::node::{self, ConfiguredSocket, KEYS, QuorumNodeConfig};
use service::config::{ConfigKeys, ConfigProblems};
use service::limits::raise_open_files;
use service::memory;
use service::signals::{self, StopSignals};
use service::status::name_of;
use tracing::{info, warn};

use super::{QuorumServiceStatus, examine, page};
use crate::checks::finding::CheckFinding;
use crate::checks::host;
use crate::checks::listeners::OwnListeners;
use crate::commands::load_config;
use crate::daemon::{self, ConfiguredDaemon, Daemon};

/// A complete configuration, shown by `--help`.
pub(super) const EXAMPLE: &str = include_str!("node.toml");

/// Runs one server of a group.
///
/// Keeps links with the other servers, signs with them the messages that are registered or allowed
/// by a rule, and takes part in refreshes. Local users reach it through its sockets: `socket` to
/// sign, `register_socket` to register, `admin_socket` to refresh. Without the last two, `socket`
/// is for all of it.
///
/// Stops on SIGINT or SIGTERM. Reads its configuration again on SIGHUP: rules, peers, delays and
/// timeouts take effect at once, and the log names the changed settings that need a restart.
/// `sunder status` shows its state; `RUST_LOG=debug` logs more.
#[derive(clap::Args)]
#[command(after_help = help())]
pub(super) struct Arguments {
    /// The configuration, in TOML
    #[arg(long, value_name = "FILE")]
    pub(super) config: PathBuf,
    /// The bundle of the group, in place of the configuration's `bundle`: for the first start,
    /// which takes over what the server needs
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
}

/// The daemon.
pub(crate) struct Quorum;

impl Daemon for Quorum {
    const NAME: &'static str = "quorum";
    const LEGEND: &'static str = "\
For a server of a quorum, `height` is the height of the agreement log, and
`queued` is the number of bytes that wait to be sent to another server.";
    type Status = QuorumServiceStatus;

    fn page(now: &QuorumServiceStatus, before: Option<&QuorumServiceStatus>) -> String {
        page::page(&now.0, before.map(|before| &before.0))
    }
}

impl ConfiguredDaemon for Quorum {
    const KEYS: ConfigKeys = KEYS;
    type Config = QuorumNodeConfig;

    fn parse(text: &str, config_dir: &Path) -> Result<QuorumNodeConfig, ConfigProblems> {
        Ok(QuorumNodeConfig {
            config_dir: config_dir.to_owned(),
            ..QuorumNodeConfig::from_toml(text)?
        })
    }

    fn examine(
        config: &QuorumNodeConfig,
        own: &OwnListeners,
    ) -> Result<Vec<CheckFinding>, CommandFailure> {
        examine::findings(config, own)
    }
}

fn help() -> String {
    format!(
        "Example: sunder quorum node --config office.toml, with this in office.toml\n\n{EXAMPLE}\n\
         A server that is to join in a refresh has no `share`, but a bundle, or a\n\
         [[peer]] with `identity` and `address` for each server of the group that has\n\
         the key.\n\
         Further settings, above the first [[...]]: bundle (in place of public_key and\n\
         share), master_credential (in place of master_key), socket_access,\n\
         register_socket, register_access, admin_socket, admin_access,\n\
         max_connections, audit_mib, cometbft, sign_timeout_s,\n\
         registration_expires, proposal_expires, need_delay_s, grace_delay_s. Of a\n\
         [[rule]]: format, prefix_hex, fields, signatures, issuer, subject, names,\n\
         purposes, authorities, max_validity.\n\
         docs/guides/quorum.md has a table of them."
    )
}

/// Runs the server until a signal arrives.
///
/// # Errors
/// If the configuration is wrong, something that it names cannot be opened, or the server fails.
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    signals::catch_hangups()?;
    let mut config = load_config::<Quorum>(&arguments.config)?;
    if let Some(bundle) = &arguments.bundle {
        let path = std::path::absolute(bundle);
        config.shared_bundle = Some(path.map_err(|error| CommandFailure::reading(bundle, &error))?);
    }
    daemon::run(serve(arguments.config.clone(), config))
}

async fn serve(path: PathBuf, config: QuorumNodeConfig) -> Result<(), CommandFailure> {
    memory::return_freed_memory();
    // Before any secret is read.
    if let Err(error) = memory::lock_all_pages() {
        warn!(%error, "memory is not locked, so shares can be written to swap; {}", host::LOCKED_MEMORY_FIX);
    }
    let (signals, hangups) = (StopSignals::listen()?, signals::hangup_signals()?);
    // A connection of a local user takes one.
    raise_open_files();
    let failed = |error: &dyn std::fmt::Display| CommandFailure::Failed(error.to_string());
    let opened = node::open(&config).await.map_err(|error| failed(&error))?;
    let identity = opened.settings.identity.public();
    let mut node = node::start(&config, opened).map_err(|error| failed(&error))?;
    let handle = node.handle();
    let api = Arc::new(node.handle());
    let mut sockets = Vec::new();
    for ConfiguredSocket { key, path, access, allowed } in config.sockets() {
        let path = config.config_dir.join(path);
        let (connections, api) = (config.max_connections, Arc::clone(&api));
        let socket = ApiSocket::open(&path, access, allowed, connections, api);
        let failed = |error: io::Error| CommandFailure::Failed(format!("{key}: {error}"));
        sockets.push(socket.map_err(failed)?);
        info!(%identity, setting = key, socket = %path.display(), "this server");
    }
    let (source, name) = (node.handle(), name_of(&path));
    let status = move || QuorumServiceStatus(source.status(name.clone()));
    let _status = daemon::answer_status::<Quorum>(status);
    for address in &config.listen {
        console::print_line(&format!("listening on {address}"))?;
    }
    let take = move |new: QuorumNodeConfig| {
        let (handle, unchanged) = (handle.clone(), config.needs_restart(&new));
        async move {
            handle.reload(new).await.map_err(io::Error::other)?;
            if !unchanged.is_empty() {
                let settings = unchanged.join(", ");
                warn!(%settings, "changed settings that take effect only after a restart");
            }
            Ok(())
        }
    };
    signals::reload_on_hangup(hangups, move || load_config::<Quorum>(&path), take);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = async {
        tokio::select! {
            failed = node.failed() => return failed,
            _ = stopped => {}
        }
        node.stop().await
    };
    let ended = signals::until_stopped(signals, running, || drop(stop)).await?;
    ended.map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::tests::names;

    const GUIDE: &str = include_str!("../../../../../../docs/guides/quorum.md");
    const SIGNING_GUIDE: &str = include_str!("../../../../../../docs/guides/quorum-signing.md");

    #[test]
    fn the_example_is_a_configuration() {
        let config = QuorumNodeConfig::from_toml(EXAMPLE).unwrap();
        assert_eq!((config.listen.len(), config.rules.len()), (1, 1));
    }

    #[test]
    fn the_examples_in_the_guide_are_a_group_and_configurations() {
        let blocks = GUIDE.split("```toml\n").skip(1);
        let blocks: Vec<&str> = blocks.map(|rest| rest.split("```").next().unwrap()).collect();
        let [nodes, first, sockets, joining, weekly] = blocks[..] else { panic!("five examples") };
        let group = quorum::nodes::parse_nodes(nodes).unwrap();
        assert!(QuorumNodeConfig::from_toml(first).unwrap().bundle.is_some());
        let rest: Vec<&str> = first.lines().filter(|line| !line.starts_with("socket")).collect();
        let sockets = QuorumNodeConfig::from_toml(&format!("{sockets}{}", rest.join("\n")));
        assert_eq!(sockets.unwrap().sockets().len(), 3);
        let joining = QuorumNodeConfig::from_toml(joining).unwrap();
        assert_eq!((joining.share, joining.peers.len()), (None, 1));
        assert_eq!(joining.peers[0].key, group.members()[0].identity);
        let weekly = QuorumNodeConfig::from_toml(&format!("{weekly}{first}")).unwrap();
        assert_eq!(weekly.refresh_every.map(|it| it.as_secs()), Some(7 * 86_400));
    }

    /// The rules in the guide of formats.
    #[test]
    fn the_rules_in_the_guide_are_rules() {
        let blocks = SIGNING_GUIDE.split("```toml\n").skip(1);
        let rules: String = blocks.map(|rest| rest.split("```").next().unwrap()).collect();
        let config = QuorumNodeConfig::from_toml(
            &EXAMPLE.replace("[[rule]]", &format!("{rules}\n[[rule]]")),
        );
        assert_eq!(config.unwrap().rules.len(), 5);
    }

    #[test]
    fn help_and_guide_name_every_setting() {
        for table in ["", "peer", "rule"] {
            for name in KEYS.names(table) {
                assert!(names(&help(), name), "{name} is not in --help");
                let shown = [format!("`{name}`"), format!("[[{name}]]")];
                let is_shown = shown.iter().any(|shown| GUIDE.contains(shown));
                assert!(is_shown, "{table} {name}: not in the guide");
            }
        }
    }
}
