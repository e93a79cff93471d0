//! `sunder quorum`: signatures by 3f+1 servers, none of which has the key.

mod clients;
mod examine;
mod init;
mod metrics;
mod node;
mod page;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use keys::SecretKey;
use keys::file::exposure;
use quorum::node::{Config, Status};
use serde::{Deserialize, Serialize};
use service::metrics::Metric;
use service::status::ServiceStatus;

use crate::console;
use crate::daemon;
use crate::failure::Failure;
pub(crate) use init::make_key;

pub(crate) use node::Quorum;

/// RSA signatures by a group of 3f+1 servers, of which any f+1 sign and none has the key.
///
/// Any f servers learn nothing of the key and cannot sign. `openssl dgst -verify` verifies the
/// signatures. A refresh moves the key to other servers. docs/guides/quorum.md shows how.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const HELP: &str =
    "Example: sunder quorum node --config office.toml runs a server. It reads rules, peers
and delays again on SIGHUP.
Then: sunder quorum register --socket /run/sunder/quorum-office/api FILE, at two of four servers
and: sunder quorum sign --socket /run/sunder/quorum-office/api FILE, at one of them";

#[derive(Subcommand)]
enum Command {
    Init(init::Arguments),
    Identity(Identity),
    Node(node::Arguments),
    Register(clients::Register),
    Sign(clients::Sign),
    Refresh(clients::RefreshArguments),
    Pubkey(clients::Pubkey),
    Headers(clients::Headers),
    VerifyEpochs(clients::VerifyEpochs),
    Backup(Backup),
    Restore(Restore),
}

/// Prints the public key of a server's identity, for the list of servers.
///
/// The file has 64 hexadecimal digits; make one: (umask 077; openssl rand -hex 32 > identity.key).
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum identity /etc/sunder/office/identity.key")]
struct Identity {
    /// The identity key's file
    file: PathBuf,
}

/// Writes a backup of a server, which may run, to a new file.
///
/// It has the shares encrypted, without the key that decrypts them, which stays in the store: it
/// can be restored on this server until the epoch ends.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum backup --config office.toml backup")]
struct Backup {
    /// The configuration of the server, in TOML
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The file to write
    file: PathBuf,
}

/// Replaces the state of a stopped server by a backup of the same epoch.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum restore --config office.toml backup")]
struct Restore {
    /// The configuration of the server, in TOML
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The backup
    file: PathBuf,
}

/// The status of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Named(Status);

impl ServiceStatus for Named {
    const METRICS: &'static [Metric<Self>] = metrics::METRICS;

    fn name(&self) -> &str {
        &self.0.name
    }

    fn set_name(&mut self, name: String) {
        self.0.name = name;
    }

    fn uptime_s(&self) -> f64 {
        self.0.uptime_s
    }
}

/// Runs the subcommand.
///
/// # Errors
/// As the subcommand.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Init(arguments) => init::run(arguments),
        Command::Identity(arguments) => identity(&arguments.file),
        Command::Node(arguments) => node::run(arguments),
        Command::Register(arguments) => clients::register(arguments),
        Command::Sign(arguments) => clients::sign(arguments),
        Command::Refresh(arguments) => clients::refresh(arguments),
        Command::Pubkey(arguments) => clients::pubkey(arguments),
        Command::Headers(arguments) => clients::headers(arguments),
        Command::VerifyEpochs(arguments) => clients::verify_epochs(arguments),
        Command::Backup(Backup { config, file }) => {
            let config = daemon::load::<Quorum>(config)?;
            back_up(&config, file)
        }
        Command::Restore(Restore { config, file }) => {
            let config = daemon::load::<Quorum>(config)?;
            quorum::node::restore(&config, file).map_err(|it| Failure::Failed(it.to_string()))
        }
    }
}

fn back_up(config: &Config, file: &Path) -> Result<(), Failure> {
    let epochs = quorum::node::back_up(config, file);
    let epochs = epochs.map_err(|error| Failure::Failed(error.to_string()))?;
    let shown = file.display();
    console::print_line(&match epochs.last() {
        Some(epoch) => format!("{shown}: the state of epoch {epoch}, for as long as it lasts"),
        None => format!("{shown}: a state without shares"),
    })
}

fn identity(file: &Path) -> Result<(), Failure> {
    let key = SecretKey::read(file).map_err(|error| Failure::Usage(error.to_string()))?;
    if let Some(error) = exposure(file) {
        let (what, fix) = (error.what(), error.fix());
        console::warning(&format!("key: {what}, and be this server: {fix}"));
    }
    console::print_line(&key.public().to_string())
}
