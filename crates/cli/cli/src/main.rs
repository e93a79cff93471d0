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
//! - `overview`: the commands in groups, for --help. `usage`: what is said of wrong arguments.
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
mod overview;
mod share_files;
mod uplink_devices;
mod usage;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgAction, CommandFactory, FromArgMatches, Parser};
use console::{CommandFailure, signals};

use commands::SunderCommand;

/// Splits trust over several networks, servers or parties.
#[derive(Parser)]
#[command(name = "sunder", version = env!("SUNDER_VERSION"), arg_required_else_help = true, after_help = EXIT_CODES)]
struct Cli {
    /// Log more; twice, still more. Replaces `RUST_LOG`
    #[arg(short, long, global = true, action = ArgAction::Count, display_order = 1000)]
    verbose: u8,
    /// Print no notes, and log only warnings and errors; twice, only errors. Replaces `RUST_LOG`
    #[arg(short, long, global = true, action = ArgAction::Count, display_order = 1000)]
    #[arg(conflicts_with = "verbose")]
    quiet: u8,
    #[command(subcommand)]
    command: SunderCommand,
}

impl Cli {
    /// Applies the options for all commands.
    fn set_verbosity(&self) {
        let steps = |count: u8| i8::try_from(count).unwrap_or(i8::MAX);
        service::log::set_verbosity(steps(self.verbose) - steps(self.quiet));
        if self.quiet > 0 {
            console::hide_notes();
        }
    }
}

const EXIT_CODES: &str = "\
`sunder COMMAND --help` explains a command, with an example. serve, proxy and
directory are also commands of `sunder streams`.

Exit codes: 0 done, 1 failed, 2 wrong usage or input, 3 refused because of
tampering or a failed security check.";

fn main() -> ExitCode {
    let command = overview::with_groups(Cli::command());
    let parsed = command.try_get_matches().and_then(|found| Cli::from_arg_matches(&found));
    match parsed {
        Ok(cli) => {
            cli.set_verbosity();
            exit_code(commands::run(&cli.command))
        }
        Err(error) if error.use_stderr() && !is_help(&error) => {
            exit_code(Err(usage::failure(&error)))
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// A line that a narrow terminal breaks again is hard to read. Commands and keys have no better
    /// place to be broken.
    #[test]
    fn what_follows_the_options_fits_in_80_columns() {
        fn examine(command: &clap::Command) {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in after.lines().filter(|line| line.chars().count() > 80) {
                let is_command =
                    ["sunder ", "openssl ", "    --"].iter().any(|it| line.contains(it));
                let is_key = line.split('"').any(|part| part.len() == 64);
                assert!(is_command || is_key, "{}: {line}", command.get_name());
            }
            command.get_subcommands().for_each(examine);
        }
        examine(&Cli::command());
    }
}
