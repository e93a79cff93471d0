//! `sunder circuit eval`.

use circuit::{CircuitSchedule, evaluate_64};
use console::CommandFailure;
use serde::Serialize;

use crate::circuits;

/// Evaluates a circuit on the inputs of both parties, without any protection.
///
/// Bit i of an input or output is bit i mod 8 of byte i div 8. For aes128 (the garbler has the key)
/// and sha256 (one block of 64 bytes that you have padded, 32 bytes from each party) this is the
/// bit order of the standards.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder circuit eval aes128 \\
    --garbler 000102030405060708090a0b0c0d0e0f --evaluator 00112233445566778899aabbccddeeff")]
pub(crate) struct Arguments {
    /// A circuit's file, or aes128, sha256, mincut; aes128:N and sha256:N are N rounds, each on the
    /// output of the previous one
    #[arg(value_name = "FILE")]
    circuit: String,
    /// The garbler's input, in hexadecimal
    #[arg(long, value_name = "HEX", default_value = "")]
    garbler: String,
    /// The evaluator's input, in hexadecimal
    #[arg(long, value_name = "HEX", default_value = "")]
    evaluator: String,
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct CircuitEvalDocument {
    output: String,
}

/// Evaluates it, and prints the output.
///
/// # Errors
/// If there is no such circuit, or an input does not fit it.
pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let schedule = circuits::schedule(&arguments.circuit, CircuitSchedule::new)?;
    let shape = schedule.shape();
    let mut inputs = circuits::input("garbler", &arguments.garbler, shape.garbler_inputs)?;
    inputs.extend(circuits::input("evaluator", &arguments.evaluator, shape.evaluator_inputs)?);
    let words: Vec<u64> = inputs.into_iter().map(u64::from).collect();
    let output: Vec<bool> =
        evaluate_64(&schedule, &words).into_iter().map(|word| word & 1 == 1).collect();
    let output = circuits::to_hex(&output);
    if arguments.json {
        return console::print_json(&CircuitEvalDocument { output });
    }
    console::print_line(&output)
}
