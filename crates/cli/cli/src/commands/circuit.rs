//! `sunder circuit`: circuits that two parties compute together.

mod convert;
mod draw;
mod eval;
mod info;

use clap::Subcommand;
use console::CommandFailure;

/// Shows, converts, evaluates and draws Boolean circuits.
///
/// A circuit is a file in one of Bristol's formats, a netlist that yosys has written as JSON, a
/// netlist in BLIF, or one of the generated circuits aes128, sha256 and mincut.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = "Example: sunder circuit info aes128")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: CircuitCommand,
}

#[derive(Subcommand)]
enum CircuitCommand {
    Info(info::Arguments),
    Convert(convert::Arguments),
    Eval(eval::Arguments),
    Draw(draw::Arguments),
}

/// Runs the subcommand.
///
/// # Errors
/// As the subcommand.
pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    match &arguments.command {
        CircuitCommand::Info(arguments) => info::run(arguments),
        CircuitCommand::Convert(arguments) => convert::run(arguments),
        CircuitCommand::Eval(arguments) => eval::run(arguments),
        CircuitCommand::Draw(arguments) => draw::run(arguments),
    }
}
