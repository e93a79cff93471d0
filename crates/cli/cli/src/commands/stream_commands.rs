//! `sunder streams`: the commands for streams under one name.

use clap::Subcommand;
use console::CommandFailure;

/// Carries TCP streams over several channels: the commands serve, proxy and directory.
#[derive(clap::Args)]
#[command(
    hide = true,
    arg_required_else_help = true,
    after_help = "Example: sunder streams proxy --config proxy.toml\n\nThe same as: sunder proxy \
                  --config proxy.toml"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: StreamsCommand,
}

#[derive(Subcommand)]
enum StreamsCommand {
    Serve(super::serve::Arguments),
    Proxy(super::proxy::Arguments),
    #[cfg(feature = "directory")]
    Directory(super::directory::Arguments),
}

/// Runs the command.
///
/// # Errors
/// As the command.
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    match &arguments.command {
        StreamsCommand::Serve(arguments) => super::serve::run(arguments),
        StreamsCommand::Proxy(arguments) => super::proxy::run(arguments),
        #[cfg(feature = "directory")]
        StreamsCommand::Directory(arguments) => super::directory::run(arguments),
    }
}
