//! `sunder quorum node`: one server of a group.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use keys::file::exposure;
use keys::{PublicKey, RsaPublicKey};
use quorum::Digest;
use quorum::api::ApiSocket;
use quorum::consensus::{self, Consensus};
use quorum::log::LogFailed;
use quorum::node::{self, Config, KEYS, LogBefore, LogStart, MasterKeySource, Node, Opened};
use service::config::{Keys, Problems};
use service::memory;
use service::signals::{self, StopSignals};
use service::status::name_of;
use tracing::{info, warn};

use super::{Named, page};
use crate::checks::finding::{Finding, Level};
use crate::checks::{host, listeners};
use crate::console;
use crate::daemon::{self, Daemon};
use crate::failure::Failure;

/// A complete configuration, shown by `--help`.
pub(super) const EXAMPLE: &str = include_str!("node.toml");

/// The file of the agreement log in the store's directory.
const LOG_FILE: &str = "log.sqlite";

/// Runs one server of a group.
///
/// Keeps links with the other servers, signs with them what is registered or what a rule allows,
/// and takes part in refreshes. Local users reach it by its socket; whoever may connect to it may
/// register, sign and refresh.
///
/// Stops on SIGINT or SIGTERM. Reads the rules of its configuration again on SIGHUP.
/// `sunder status` shows its state; `RUST_LOG=debug` logs more.
#[derive(clap::Args)]
#[command(after_help = help())]
pub(super) struct Arguments {
    /// The configuration, in TOML
    #[arg(long, value_name = "FILE")]
    pub(super) config: PathBuf,
}

/// The daemon.
pub(crate) struct Quorum;

impl Daemon for Quorum {
    const NAME: &'static str = "quorum";
    const KEYS: Keys = KEYS;
    const LEGEND: &'static str = "\
For a server of a quorum, `height` is that of the agreement log, and `queued` are bytes that wait to
be sent to another server.";
    type Config = Config;
    type Status = Named;

    fn parse(text: &str, config_dir: &Path) -> Result<Config, Problems> {
        Ok(Config { config_dir: config_dir.to_owned(), ..Config::from_toml(text)? })
    }

    fn examine(config: &Config) -> Result<Vec<Finding>, Failure> {
        Ok(findings(config))
    }

    fn page(now: &Named, before: Option<&Named>) -> String {
        page::page(&now.0, before.map(|before| &before.0))
    }
}

fn help() -> String {
    format!(
        "Example: sunder quorum node --config office.toml, with this in office.toml\n\n{EXAMPLE}\n\
         A server that is to join by a refresh has no `share`, and a [[peer]] with `identity` and\n\
         `address` for each server of the group that has the key.\n\
         Further settings, above the first [[...]]: master_credential (in place of master_key),\n\
         socket_access, sign_timeout_s, need_delay_s, grace_delay_s.\n\
         docs/guides/quorum.md has a table of them."
    )
}

/// Runs the server until a signal arrives.
///
/// # Errors
/// If the configuration is wrong, something that it names cannot be opened, or the server fails.
pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let config = daemon::load::<Quorum>(&arguments.config)?;
    daemon::run(serve(arguments.config.clone(), config))
}

async fn serve(path: PathBuf, config: Config) -> Result<(), Failure> {
    // Before any secret is read.
    if let Err(error) = memory::lock() {
        warn!(%error, "memory is not locked, so shares can be written to swap; {}", host::UNLOCK);
    }
    let (signals, hangups) = (StopSignals::listen()?, signals::hangups()?);
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
    let Opened { settings, store, network } =
        node::open(&config).await.map_err(|error| failed(&error))?;
    let identity = settings.identity.public();
    let log_settings = (Digest(settings.public.digest()), Arc::clone(&network.links));
    let log_path = config.config_dir.join(&config.store).join(LOG_FILE);
    let start_log = move |start: LogStart<Consensus>| {
        let (log, links) = log_settings.clone();
        let LogStart { applied, before } = start;
        let inbox = match before {
            LogBefore::Inbox(inbox) => Some(inbox),
            LogBefore::Log(log) => log.stop(),
        };
        let inbox =
            inbox.ok_or_else(|| LogFailed(Arc::new(consensus::ConsensusError::Panicked)))?;
        let store = log_path.clone();
        let settings = consensus::Settings { identity, log, links, inbox, store, applied };
        Consensus::start(settings).map_err(|error| LogFailed(Arc::new(error)))
    };
    let mut node = Node::start(settings, store, network, start_log).map_err(|it| failed(&it))?;
    let handle = node.handle();
    let api = Arc::new(node.handle());
    let path_of_socket = config.config_dir.join(&config.socket);
    let socket = ApiSocket::open(&path_of_socket, config.socket_access, api);
    let _socket = socket.map_err(|error| failed(&error))?;
    info!(%identity, socket = %path_of_socket.display(), "this server");
    for address in &config.listen {
        console::print_line(&format!("listening on {address}"))?;
    }
    let (source, name) = (node.handle(), name_of(&path));
    let status = move || Named(source.status(name.clone()));
    let _status = daemon::answer_status::<Quorum>(status);
    let take = move |config: Config| {
        let handle = handle.clone();
        async move { handle.set_rules(config.rules).await.map_err(io::Error::other) }
    };
    signals::reload_on_hangup(hangups, move || daemon::load::<Quorum>(&path), take);
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

/// What is found on this host.
fn findings(config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let at = |path: &Path| config.config_dir.join(path);
    let error =
        |subject: &str, what: String, fix: &str| Finding::new(Level::Error, subject, what, fix);
    let identity = at(&config.identity);
    findings.push(match (keys::SecretKey::read(&identity), exposure(&identity)) {
        (Err(failed), _) => error("identity", failed.to_string(), "name the file of a key"),
        (Ok(_), Some(exposed)) => error("identity", exposed.what(), &exposed.fix()),
        (Ok(key), None) => Finding::ok("identity", format!("this server is {}", key.public())),
    });
    findings.push(match RsaPublicKey::read(&at(&config.public_key)) {
        Ok(key) => Finding::ok("public_key", format!("an RSA key of {} bits", key.bits())),
        Err(failed) => error("public_key", failed.to_string(), "copy public.pem from the ceremony"),
    });
    if let MasterKeySource::File(path) = &config.master_key {
        let read = quorum::store::MasterKey::read(&at(path));
        findings.push(match read {
            Ok(_) => Finding::ok("master_key", "it can be read, by its owner only"),
            Err(failed) => error("master_key", failed.to_string(), "name the file of a key"),
        });
    }
    if let Some(share) = &config.share
        && let Ok(true) = at(share).try_exists()
    {
        let what = "it is there, and destroyed as soon as the server has started";
        findings.push(Finding::ok("share", what));
    }
    if config.peers.is_empty() && config.share.is_none() && !at(&config.store).exists() {
        findings.push(error(
            "share",
            "neither `share` nor a [[peer]]: the server can get no shares".into(),
            "name the file from the ceremony, or the servers of the group that has the key",
        ));
    }
    let mut names: HashMap<[u8; 32], PublicKey> = HashMap::new();
    for peer in &config.peers {
        if names.insert(peer.key.to_bytes(), peer.key).is_some() {
            let what = format!("two have the identity {}", peer.key);
            findings.push(error("peer", what, "give each the identity of its server"));
        }
    }
    findings.extend(config.listen.iter().map(|address| {
        listeners::tcp("listen", *address, || {
            listeners::own_or_anothers("listen", *address, "quorum node")
        })
    }));
    findings.push(host::locked_memory(memory::lock()));
    findings.push(host::random());
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::tests::names;

    const GUIDE: &str = include_str!("../../../../../docs/guides/quorum.md");

    #[test]
    fn the_example_is_a_configuration() {
        let config = Config::from_toml(EXAMPLE).unwrap();
        assert_eq!((config.listen.len(), config.rules.len()), (1, 1));
    }

    #[test]
    fn the_examples_in_the_guide_are_a_group_and_configurations() {
        let blocks = GUIDE.split("```toml\n").skip(1);
        let blocks: Vec<&str> = blocks.map(|rest| rest.split("```").next().unwrap()).collect();
        let [nodes, first, joining] = blocks[..] else { panic!("three examples") };
        let group = quorum::nodes::parse_nodes(nodes).unwrap();
        assert!(Config::from_toml(first).unwrap().share.is_some());
        let joining = Config::from_toml(joining).unwrap();
        assert_eq!((joining.share, joining.peers.len()), (None, 1));
        assert_eq!(joining.peers[0].key, group.members()[0].identity);
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
