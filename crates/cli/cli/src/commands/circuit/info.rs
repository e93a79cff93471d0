//! `sunder circuit info`.

use circuit::CircuitSchedule;
use console::CommandFailure;
use console::table::{ColumnAlignment, aligned};
use serde::Serialize;

use crate::circuits;

/// Shows a circuit's inputs, outputs, numbers of gates and digest.
///
/// Depth is the number of ANDs on the longest path. The two parties of a computation need circuits
/// with the same SHA-256.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder circuit info aes128")]
pub(crate) struct Arguments {
    /// A circuit's file, or aes128, sha256, mincut; aes128:N and sha256:N are N rounds, each on the
    /// output of the previous one
    #[arg(value_name = "FILE")]
    circuit: String,
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct CircuitInfoDocument {
    garbler_inputs: u32,
    evaluator_inputs: u32,
    outputs: usize,
    gates: u64,
    and: u64,
    xor: u64,
    inv: u64,
    /// `null` if it is repeated.
    depth: Option<u32>,
    sha256: String,
}

/// Prints it.
///
/// # Errors
/// If there is no such circuit.
pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let (circuit, rounds) = circuits::load_repeated(&arguments.circuit)?;
    let (counts, times) = (circuit.counts(), rounds.unwrap_or(1));
    let digest = match rounds {
        Some(_) => circuits::schedule(&arguments.circuit, CircuitSchedule::new)?.shape().digest,
        None => circuit.digest(),
    };
    let document = CircuitInfoDocument {
        garbler_inputs: circuit.garbler_inputs(),
        evaluator_inputs: circuit.evaluator_inputs(),
        outputs: circuit.outputs().len(),
        gates: (circuit.len() as u64).saturating_mul(times),
        and: counts.ands.saturating_mul(times),
        xor: counts.xors.saturating_mul(times),
        inv: counts.nots.saturating_mul(times),
        depth: rounds.is_none().then(|| circuit.depth()),
        sha256: base16ct::lower::encode_string(&digest),
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
        ["depth", &document.depth.map_or("that of one round, N times".into(), |it| it.to_string())],
        ["SHA-256", &document.sha256],
    ];
    let rows = rows.map(|row| row.map(str::to_owned));
    console::print(
        aligned(&[ColumnAlignment::Left, ColumnAlignment::Left], &rows).trim_end().as_bytes(),
    )
}
