//! `sunder transport key`: the key by which other hosts recognise this one.

use std::path::PathBuf;

use console::CommandFailure;
use transport::persistent_identity;

use super::identity;

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
    let key = if let Some(file) = &arguments.identity {
        identity(file)?
    } else {
        let failed = |error| format!("this user's key cannot be kept: {error}");
        let kept = persistent_identity().map_err(|error| CommandFailure::Failed(failed(error)))?;
        let missing = "no directory to keep a key in: set HOME, or give --identity";
        kept.ok_or_else(|| CommandFailure::Failed(missing.into()))?
    };
    console::print_line(&key.public().to_string())
}
