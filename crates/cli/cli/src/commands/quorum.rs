//! `sunder quorum`: signatures by 3f+1 servers, none of which has the key.

mod clients;
mod cometbft;
mod examine;
mod files;
mod format_name;
mod git_sign;
mod init;
mod metrics;
mod node;
mod page;
mod prepare;
mod review;
mod servers;
mod sign;
mod ssh_agent;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use console::CommandFailure;
use keys::IdentitySecretKey;
use keys::file::exposure;
use quorum::node::{QuorumNodeConfig, QuorumNodeStatus};
use serde::{Deserialize, Serialize};
use service::metrics::PrometheusMetric;
use service::status::{ServiceProblem, ServiceStatus};

use crate::commands::load_config;

pub(crate) use node::Quorum;

/// Signs with an RSA or Ed25519 key that is split among 3f+1 servers.
///
/// Any f+1 servers sign together, and no server has the key. Any f servers learn nothing about the
/// key and cannot sign. `openssl` verifies the signatures. A refresh moves the key to other
/// servers. docs/guides/quorum.md is the guide.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: QuorumCommand,
}

const HELP: &str = "Example: sunder quorum node --config office.toml
runs a server. It reads rules, peers and delays again on SIGHUP.
Then, at two of four servers:
sunder quorum register --socket /run/sunder/quorum-office/api FILE
and at one of them:
sunder quorum sign --socket /run/sunder/quorum-office/api FILE";

#[derive(Subcommand)]
enum QuorumCommand {
    Init(init::Arguments),
    Identity(QuorumIdentityArguments),
    Node(node::Arguments),
    CometbftConfig(cometbft::CometbftConfigArguments),
    Prepare(prepare::QuorumPrepareArguments),
    Register(clients::QuorumRegisterArguments),
    Sign(sign::QuorumSignArguments),
    GitSign(git_sign::QuorumGitSignArguments),
    Pending(review::QuorumPendingArguments),
    Show(review::QuorumShowArguments),
    Withdraw(review::QuorumWithdrawArguments),
    Refresh(clients::QuorumRefreshArguments),
    Bundle(review::QuorumBundleArguments),
    Pubkey(clients::QuorumPubkeyArguments),
    SshAgent(ssh_agent::QuorumSshAgentArguments),
    Headers(clients::QuorumHeadersArguments),
    VerifyEpochs(clients::VerifyEpochsArguments),
    Backup(QuorumBackupArguments),
    Restore(QuorumRestoreArguments),
}

/// Prints the public key of a server's identity, for the list of servers.
///
/// The same as `sunder key public FILE`. To create the file: sunder key new identity.key
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum identity /etc/sunder/quorum/office/identity.key")]
struct QuorumIdentityArguments {
    /// The identity key's file
    file: PathBuf,
}

/// Writes a backup of a server to a new file. The server may be running.
///
/// The shares in the backup are encrypted. The key that decrypts them stays in the store, so the
/// backup can be restored only on this server, and only until the epoch ends.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum backup --config office.toml backup")]
struct QuorumBackupArguments {
    /// The configuration of the server, in TOML
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The file to write
    file: PathBuf,
}

/// Replaces the state of a stopped server with a backup of the same epoch.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum restore --config office.toml backup")]
struct QuorumRestoreArguments {
    /// The configuration of the server, in TOML
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The backup
    file: PathBuf,
}

/// The status of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct QuorumServiceStatus(QuorumNodeStatus);

impl ServiceStatus for QuorumServiceStatus {
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
        self.0.listen.clone()
    }

    fn problems(&self) -> Vec<ServiceProblem> {
        page::problems(&self.0)
    }
}

/// Runs the subcommand.
///
/// # Errors
/// As the subcommand.
pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    match &arguments.command {
        QuorumCommand::Init(arguments) => init::run(arguments),
        QuorumCommand::Identity(arguments) => identity(&arguments.file),
        QuorumCommand::Node(arguments) => node::run(arguments),
        QuorumCommand::CometbftConfig(arguments) => cometbft::write_config(arguments),
        QuorumCommand::Prepare(arguments) => prepare::prepare(arguments),
        QuorumCommand::Register(arguments) => clients::register(arguments),
        QuorumCommand::Sign(arguments) => sign::sign(arguments),
        QuorumCommand::GitSign(arguments) => git_sign::git_sign(arguments),
        QuorumCommand::Pending(arguments) => review::pending(arguments),
        QuorumCommand::Show(arguments) => review::show(arguments),
        QuorumCommand::Withdraw(arguments) => review::withdraw(arguments),
        QuorumCommand::Refresh(arguments) => clients::refresh(arguments),
        QuorumCommand::Bundle(arguments) => review::bundle(arguments),
        QuorumCommand::Pubkey(arguments) => clients::pubkey(arguments),
        QuorumCommand::SshAgent(arguments) => ssh_agent::run(arguments),
        QuorumCommand::Headers(arguments) => clients::headers(arguments),
        QuorumCommand::VerifyEpochs(arguments) => clients::verify_epochs(arguments),
        QuorumCommand::Backup(QuorumBackupArguments { config, file }) => {
            let config = load_config::<Quorum>(config)?;
            back_up(&config, file)
        }
        QuorumCommand::Restore(QuorumRestoreArguments { config, file }) => {
            let config = load_config::<Quorum>(config)?;
            quorum::node::restore(&config, file)
                .map_err(|it| CommandFailure::Failed(it.to_string()))
        }
    }
}

fn back_up(config: &QuorumNodeConfig, file: &Path) -> Result<(), CommandFailure> {
    let epochs = quorum::node::back_up(config, file);
    let epochs = epochs.map_err(|error| CommandFailure::Failed(error.to_string()))?;
    let shown = file.display();
    console::print_line(&match epochs.last() {
        Some(epoch) => format!(
            "{shown}: the state of epoch {epoch}; it can be restored until the \
                                epoch ends"
        ),
        None => format!("{shown}: a state without shares"),
    })
}

fn identity(file: &Path) -> Result<(), CommandFailure> {
    let key =
        IdentitySecretKey::read(file).map_err(|error| CommandFailure::Usage(error.to_string()))?;
    if let Some(error) = exposure(file) {
        let (what, fix) = (error.problem(), error.advice());
        console::warning(&format!("key: {what}, and so impersonate this server: {fix}"));
    }
    console::print_line(&key.public().to_string())
}
