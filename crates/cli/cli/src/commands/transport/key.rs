//! `sunder transport key`: the key by which other hosts recognise this one.

use std::path::PathBuf;

use console::CommandFailure;

use super::kept_identity;

/// Prints the public key with which `send` and `forward` identify this host's user.
///
/// Other hosts admit it with --peer. Creates it if it does not exist.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder transport key")]
pub(super) struct Arguments {
    /// Print the public key of this file instead
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
}

/// Prints the key.
///
/// # Errors
/// If the key cannot be read or created.
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let key = kept_identity(arguments.identity.as_deref())?;
    console::print_line(&key.public().to_string())
}
