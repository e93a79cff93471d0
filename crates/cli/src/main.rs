//! The `sunder` command. One file a subcommand; what several need has a file of its own.

mod console;
mod daemon;
mod demo;
mod directory;
mod doctor;
mod failure;
mod input;
mod interrupt;
mod join;
mod lab;
mod listeners;
mod memory;
mod names;
mod numbers;
mod output;
mod plan;
mod progress;
mod proxy;
mod serve;
mod share;
mod split;
mod status;
mod table;
mod telling;
mod tunnel;
mod uplinks;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use failure::Failure;

/// Splits trust over several networks, servers or parties, instead of adding another lock.
#[derive(Parser)]
#[command(name = "sunder", version, arg_required_else_help = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 wrong usage or input, 3 refused because of \
                          tampering or a failed security check.";

#[derive(Subcommand)]
enum Command {
    Split(split::Arguments),
    Join(join::Arguments),
    Serve(serve::Arguments),
    Proxy(proxy::Arguments),
    Plan(plan::Arguments),
    Demo(demo::Arguments),
    Lab(lab::Arguments),
    Directory(directory::Arguments),
    Tunnel(tunnel::Arguments),
    Status(status::Arguments),
    Doctor(doctor::Arguments),
}

fn main() -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => exit_code(run(cli.command)),
        Err(error) if error.use_stderr() && !is_help(&error) => exit_code(Err(usage(&error))),
        Err(help) => {
            // If nobody reads the help, nothing is lost.
            let _ = help.print();
            ExitCode::from(u8::try_from(help.exit_code()).unwrap_or(2))
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    memory::forbid_core_files();
    // The laboratory and the files of `split` and `join` need more of /proc/self than is left then.
    if !matches!(command, Command::Split(_) | Command::Join(_) | Command::Lab(_)) {
        memory::hide();
    }
    match command {
        Command::Split(arguments) => split::run(&arguments),
        Command::Join(arguments) => join::run(&arguments),
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Proxy(arguments) => proxy::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Lab(arguments) => lab::run(&arguments),
        Command::Directory(arguments) => directory::run(&arguments),
        Command::Tunnel(arguments) => tunnel::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
    }
}

fn exit_code(result: Result<(), Failure>) -> ExitCode {
    let Err(failure) = result else { return ExitCode::SUCCESS };
    if !failure.message().is_empty() {
        console::error(failure.message());
    }
    ExitCode::from(failure.code())
}

/// Whether this is the help that is shown when there are no arguments at all.
fn is_help(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// What was wrong with the arguments, in one line: the parser's own message without the usage that
/// it adds.
fn usage(error: &clap::Error) -> Failure {
    let text = error.to_string();
    let lines = text.lines().take_while(|line| !line.starts_with("Usage:"));
    let lines = lines.filter(|line| !line.starts_with("For more information"));
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    let message = words.join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    Failure::Usage(format!("{message}; --help shows what is possible"))
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
