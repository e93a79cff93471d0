//! `sunder circuit convert`.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};

use circuit::Circuit;
use circuit::bristol::{self, BristolFormat, BristolWriteError};
use clap::ValueEnum;
use console::CommandFailure;

use crate::circuits;

/// Writes a circuit in one of Bristol's formats.
///
/// It reads both formats, also with gates OR, NOT, NAND, NOR and XNOR, netlists that yosys has
/// written as JSON, for example from Verilog, and netlists in BLIF. The inputs of the netlist's
/// module become the input values, in the order of its ports, and its outputs the output values.
#[derive(clap::Args)]
#[command(after_help = "\
Example, from Verilog:
  yosys -q -p 'prep -flatten -auto-top; write_json average.json' average.v
  sunder circuit convert average.json --out average.txt")]
pub(crate) struct Arguments {
    /// A circuit's file (Bristol's formats, a netlist of yosys, or BLIF), or aes128, sha256, mincut
    #[arg(value_name = "FILE")]
    circuit: String,
    /// The format
    #[arg(long, value_enum, default_value = "fashion")]
    to: BristolFormatName,
    /// The new file [default: standard output]
    #[arg(long)]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum BristolFormatName {
    /// The older one: two inputs, one output; AND, XOR and INV
    Old,
    /// Bristol Fashion
    Fashion,
}

/// Writes it.
///
/// # Errors
/// If there is no such circuit, or it cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let circuit = circuits::load(&arguments.circuit)?;
    let format = match arguments.to {
        BristolFormatName::Old => BristolFormat::Old,
        BristolFormatName::Fashion => BristolFormat::Fashion,
    };
    let Some(path) = &arguments.out else {
        return write(&circuit, format, io::stdout().lock(), |error| match error.kind() {
            ErrorKind::BrokenPipe => CommandFailure::Unread,
            _ => CommandFailure::Failed(format!("cannot write standard output: {error}")),
        });
    };
    let file = create(path)?;
    let written = write(&circuit, format, file, |error| CommandFailure::writing(path, error));
    written.inspect_err(|_| remove(path))
}

/// Removes a file that could not be written to its end.
pub(super) fn remove(path: &Path) {
    // The error of writing matters more.
    let _ = fs::remove_file(path);
}

/// Creates a file that does not exist.
///
/// # Errors
/// If it exists, or cannot be made.
pub(super) fn create(path: &Path) -> Result<File, CommandFailure> {
    File::create_new(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => CommandFailure::Usage(format!(
            "{} exists; move it away, or choose another place with --out",
            path.display()
        )),
        _ => CommandFailure::writing(path, &error),
    })
}

fn write(
    circuit: &Circuit,
    format: BristolFormat,
    to: impl Write,
    failed: impl Fn(&io::Error) -> CommandFailure,
) -> Result<(), CommandFailure> {
    let mut to = BufWriter::new(to);
    match bristol::write(circuit, format, &mut to) {
        Ok(()) => to.flush().map_err(|error| failed(&error)),
        Err(BristolWriteError::Io(error)) => Err(failed(&error)),
        Err(error) => Err(CommandFailure::Usage(format!("{error}; use --to fashion"))),
    }
}
