//! `sunder lab` of a program that was built without the laboratory: runs the program that has it,
//! which a package of its own installs.

use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use console::CommandFailure;

/// Where that program is, from the folder of this one.
const LAB_PROGRAM: &str = "../lib/sunder/sunder-lab";

/// Runs experiments on emulated networks, or on real machines (package sunder-lab).
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    arguments: Vec<OsString>,
}

/// Runs the other program in place of this one.
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let this = env::current_exe()
        .map_err(|error| CommandFailure::Failed(format!("cannot find this program: {error}")))?;
    let folder = this.parent().map(PathBuf::from).unwrap_or_default();
    let program = folder.join(LAB_PROGRAM);
    // Those for every command.
    let options = env::args_os().skip(1).take_while(|word| word != "lab");
    let mut command = Command::new(&program);
    let error = command.args(options).arg("lab").args(&arguments.arguments).exec();
    Err(CommandFailure::Failed(match error.kind() {
        ErrorKind::NotFound => "this program was built without lab: install the package \
                                sunder-lab, or build it with --features lab"
            .to_owned(),
        _ => format!("cannot run {}: {error}", program.display()),
    }))
}
