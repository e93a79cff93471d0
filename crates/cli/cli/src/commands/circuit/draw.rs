//! `sunder circuit draw`: the gates and wires of a small circuit, or the widths of a large one.

mod diagram;
mod widths;

use std::io::Write;
use std::path::PathBuf;

use console::CommandFailure;

use super::convert;
use crate::circuits;
use crate::commands::svg_file;

/// Draws a circuit as SVG.
///
/// Up to 1,000 gates are drawn with their wires. For a larger circuit, the drawing shows the number
/// of gates at each AND-depth.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder circuit draw adder.txt --out adder.svg")]
pub(crate) struct Arguments {
    /// A circuit's file, or aes128, sha256, mincut
    #[arg(value_name = "FILE")]
    circuit: String,
    /// The new file
    #[arg(long, value_name = "OUT.svg", value_parser = svg_file)]
    out: PathBuf,
}

/// The gates, inputs and outputs of a circuit that is drawn in full.
const MAX_DRAWN: usize = 1_000;

/// Draws it.
///
/// # Errors
/// If there is no such circuit, or the drawing cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let circuit = circuits::load(&arguments.circuit)?;
    let svg = if circuit.wires() as usize + circuit.outputs().len() <= MAX_DRAWN {
        diagram::svg(&circuit)
    } else {
        widths::svg(&arguments.circuit, &circuit)?
    };
    let mut file = convert::create(&arguments.out)?;
    file.write_all(svg.as_bytes()).map_err(|error| {
        convert::remove(&arguments.out);
        CommandFailure::writing(&arguments.out, &error)
    })
}
