//! The `sunder` command: `commands` has one file for each subcommand; the other modules have what
//! several subcommands share.
//!
//! # Map
//!
//! - `commands`: one file or folder for each subcommand, and the list of all. A daemon also has
//!   `metrics` and `page` (of `sunder status`) and `examine` (for `sunder doctor`). `streams` has
//!   what `proxy` and `serve` share.
//! - `new_files`: new configurations and their keys, for `init` and other commands that write
//!   them. `uplink_devices`: the devices that such commands are given.
//! - `daemon`: what daemons share: their configuration, status and tests.
//! - `checks`: tests of this host that change nothing, for `sunder doctor` and for warnings.
//! - `share_files`: the files of `split`, `join` and `check`. `circuits`: circuits by name or file.
//!   `numbers`: numbers for people, pure.

// A build without all systems leaves some of what they share unused.
#![cfg_attr(not(feature = "default"), allow(dead_code))]

mod checks;
#[cfg(feature = "compute")]
mod circuits;
mod commands;
mod daemon;
mod new_files;
#[cfg(any(feature = "lab", feature = "tunnel"))]
mod numbers;
mod share_files;
mod uplink_devices;

use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ErrorKind};
use console::{CommandFailure, signals};

use commands::SunderCommand;

/// Splits trust over several networks, servers or parties, instead of adding another lock.
#[derive(Parser)]
#[command(name = "sunder", version = env!("SUNDER_VERSION"), arg_required_else_help = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: SunderCommand,
}

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 wrong usage or input, 3 refused because of \
                          tampering or a failed security check.";

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => exit_code(commands::run(&cli.command)),
        Err(error) if error.use_stderr() && !is_help(&error) => exit_code(Err(usage(&error))),
        Err(help) => {
            // If the output is closed, nothing is lost.
            let _ = help.print();
            ExitCode::from(u8::try_from(help.exit_code()).unwrap_or(2))
        }
    }
}

fn exit_code(result: Result<(), CommandFailure>) -> ExitCode {
    let Err(failure) = result else { return ExitCode::SUCCESS };
    let code = signals::code().unwrap_or_else(|| failure.code());
    if !failure.message().is_empty() {
        console::error(failure.message());
        let has = |word: &str| std::env::args_os().any(|argument| argument == word);
        // With `-`, standard output is a file's.
        if has("--json") && !has("-") {
            console::json_error(failure.message(), code);
        }
    }
    ExitCode::from(code)
}

/// Whether this is the help that is shown if there are no arguments.
fn is_help(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// A usage error in one line: the parser's message without its usage text.
fn usage(error: &clap::Error) -> CommandFailure {
    let text = error.to_string();
    let lines = text.lines().take_while(|line| !line.starts_with("Usage:"));
    let lines = lines.filter(|line| !line.starts_with("For more information"));
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    let message = words.join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    CommandFailure::Usage(match missing_feature(error) {
        Some(feature) => format!(
            "{message}; this program was built without it: build it with --features {feature}"
        ),
        None => format!("{message}; --help shows the options"),
    })
}

/// The Cargo feature of a subcommand or demonstration that this program was built without.
fn missing_feature(error: &clap::Error) -> Option<&'static str> {
    let kinds = [ContextKind::InvalidSubcommand, ContextKind::InvalidValue];
    let name = kinds.into_iter().find_map(|kind| error.get(kind))?;
    Some(match name.to_string().as_str() {
        "plan" | "tunnel" if cfg!(not(feature = "tunnel")) => "tunnel",
        "circuit" | "compute" if cfg!(not(feature = "compute")) => "compute",
        "chat" | "mix" if cfg!(not(feature = "mix")) => "mix",
        "quorum" | "sign" if cfg!(not(feature = "quorum")) => "quorum",
        "directory" if cfg!(not(feature = "directory")) => "directory",
        "transport" if cfg!(not(feature = "transport")) => "transport",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
