//! `sunder init`: writes a configuration and its keys, and prints what the other end needs.

#[cfg(feature = "mix")]
mod mix;
mod proxy;
#[cfg(feature = "quorum")]
mod quorum;
#[cfg(feature = "transport")]
mod relay;
mod serve;
#[cfg(feature = "tunnel")]
mod tunnel;

use std::io::{self, BufRead, IsTerminal, Write};
use std::str::FromStr;

use clap::Subcommand;
use console::CommandFailure;

/// Writes a configuration and its keys, and a line for the other end.
///
/// What an option does not say is asked for on a terminal. Existing files are never overwritten.
/// The line on standard output is for the other end. `sunder chat init` begins a group that chats.
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: InitCommand,
}

#[derive(Subcommand)]
enum InitCommand {
    #[cfg(feature = "tunnel")]
    Tunnel(tunnel::Arguments),
    Serve(serve::Arguments),
    Proxy(proxy::Arguments),
    #[cfg(feature = "mix")]
    Mix(mix::Arguments),
    #[cfg(feature = "quorum")]
    Quorum(quorum::Arguments),
    #[cfg(feature = "transport")]
    Relay(relay::Arguments),
}

/// Runs the subcommand.
///
/// # Errors
/// If an option is missing or wrong, or a file exists or cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    match &arguments.command {
        #[cfg(feature = "tunnel")]
        InitCommand::Tunnel(arguments) => tunnel::run(arguments),
        InitCommand::Serve(arguments) => serve::run(arguments),
        InitCommand::Proxy(arguments) => proxy::run(arguments),
        #[cfg(feature = "mix")]
        InitCommand::Mix(arguments) => mix::run(arguments),
        #[cfg(feature = "quorum")]
        InitCommand::Quorum(arguments) => quorum::run(arguments),
        #[cfg(feature = "transport")]
        InitCommand::Relay(arguments) => relay::run(arguments),
    }
}

/// The values of an option that must be there. On a terminal they are asked for.
fn required<T: FromStr<Err: ToString> + Clone>(
    given: &[T],
    option: &str,
    question: &str,
) -> Result<Vec<T>, CommandFailure> {
    if !given.is_empty() {
        return Ok(given.to_vec());
    }
    if !io::stdin().is_terminal() {
        return Err(CommandFailure::Usage(format!("{option} is missing; --help has an example")));
    }
    let failed = |error: io::Error| CommandFailure::Failed(format!("cannot ask: {error}"));
    loop {
        eprint!("{question}, separated by spaces: ");
        io::stderr().flush().map_err(failed)?;
        let mut line = String::new();
        if io::stdin().lock().read_line(&mut line).map_err(failed)? == 0 {
            return Err(CommandFailure::Usage(format!("{option} is missing")));
        }
        match line.split_whitespace().map(T::from_str).collect::<Result<Vec<T>, _>>() {
            Ok(values) if !values.is_empty() => return Ok(values),
            Ok(_) => {}
            Err(error) => console::error(&error.to_string()),
        }
    }
}
