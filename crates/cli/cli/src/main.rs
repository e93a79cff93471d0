//! The `sunder` command: `commands` has one file for each subcommand; the other modules have what
//! several subcommands share.

mod checks;
mod circuits;
mod commands;
mod console;
mod daemon;
mod failure;
mod numbers;
mod progress;
mod share_files;
mod signals;
mod table;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use commands::SunderCommand;
use failure::CommandFailure;

/// Splits trust over several networks, servers or parties, instead of adding another lock.
#[derive(Parser)]
#[command(name = "sunder", version, arg_required_else_help = true, after_help = EXIT_CODES)]
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
    CommandFailure::Usage(format!("{message}; --help shows what is possible"))
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
