//! The subcommands, one file each.

mod demo;
mod directory;
mod doctor;
mod join;
mod lab;
mod plan;
mod proxy;
mod serve;
mod split;
mod status;
mod tunnel;

use clap::Subcommand;

use crate::failure::Failure;
use crate::memory;

#[derive(Subcommand)]
pub(crate) enum Command {
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

/// Runs a subcommand.
///
/// # Errors
/// As the subcommand.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
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
