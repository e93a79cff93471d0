//! `sunder circuit info`.

use serde::Serialize;

use crate::circuits;
use crate::console;
use crate::failure::Failure;
use crate::table::{Side, aligned};

/// Shows a circuit's inputs, outputs, numbers of gates and digest.
///
/// Depth is the number of ANDs on the longest path. Two parties of a computation need circuits with
/// the same SHA-256.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder circuit info aes128")]
pub(crate) struct Arguments {
    /// A circuit's file, or aes128, sha256, mincut
    #[arg(value_name = "FILE")]
    circuit: String,
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document {
    garbler_inputs: u32,
    evaluator_inputs: u32,
    outputs: usize,
    gates: usize,
    and: u64,
    xor: u64,
    inv: u64,
    depth: u32,
    sha256: String,
}

/// Prints it.
///
/// # Errors
/// If there is no such circuit.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let circuit = circuits::load(&arguments.circuit)?;
    let counts = circuit.counts();
    let document = Document {
        garbler_inputs: circuit.garbler_inputs(),
        evaluator_inputs: circuit.evaluator_inputs(),
        outputs: circuit.outputs().len(),
        gates: circuit.len(),
        and: counts.ands,
        xor: counts.xors,
        inv: counts.nots,
        depth: circuit.depth(),
        sha256: circuits::hex_of(&circuit.digest()),
    };
    if arguments.json {
        return console::print_json(&document);
    }
    let bits = |bits: usize| format!("{bits} bits");
    let rows = [
        ["garbler's input", &bits(document.garbler_inputs as usize)],
        ["evaluator's input", &bits(document.evaluator_inputs as usize)],
        ["output", &bits(document.outputs)],
        ["AND", &document.and.to_string()],
        ["XOR", &document.xor.to_string()],
        ["INV", &document.inv.to_string()],
        ["depth", &document.depth.to_string()],
        ["SHA-256", &document.sha256],
    ];
    let rows = rows.map(|row| row.map(str::to_owned));
    console::print(aligned(&[Side::Left, Side::Left], &rows).trim_end().as_bytes())
}
