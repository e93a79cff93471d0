//! `sunder quorum cometbft-config`.

use std::net::SocketAddr;
use std::path::PathBuf;

use console::CommandFailure;

use super::Quorum;
use crate::commands::load_config;

/// Writes the directory of CometBFT, by which the servers can agree.
///
/// The servers of a group agree on the steps of a refresh by an agreement log, which a server runs
/// itself. With the setting `cometbft`, CometBFT runs it, as a process beside each server. All
/// servers of a group must have the setting, from the beginning on.
///
/// The directory gets config.toml, with the settings that make CometBFT fast, and genesis.json,
/// which is the same at all servers. Only the owner can read it. CometBFT creates its own keys
/// there, but has no key of the group. docs/guides/quorum-cometbft.md is the guide.
#[derive(clap::Args)]
#[command(after_help = "\
Example: sunder quorum cometbft-config --config office.toml \\
           --listen 192.0.2.1:26656
Then, beside the server: cometbft start --home DIRECTORY")]
pub(super) struct CometbftConfigArguments {
    /// The configuration of the server, in TOML, with the directory as `cometbft`
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The address on which CometBFT accepts connections of other servers
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// The bundle of the group, in place of the configuration's `bundle`
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
}

/// Writes the directory, and prints how to start CometBFT.
///
/// # Errors
/// If the configuration is wrong, or the directory cannot be written.
pub(super) fn write_config(arguments: &CometbftConfigArguments) -> Result<(), CommandFailure> {
    let mut config = load_config::<Quorum>(&arguments.config)?;
    if let Some(bundle) = &arguments.bundle {
        let path = std::path::absolute(bundle);
        config.shared_bundle = Some(path.map_err(|error| CommandFailure::reading(bundle, &error))?);
    }
    let home = quorum::node::write_cometbft_home(&config, arguments.listen);
    let home = home.map_err(|error| CommandFailure::Failed(error.to_string()))?;
    console::print_line(&format!("cometbft start --home {}", home.path().display()))
}
