//! `sunder circuit eval`.

use base16ct::lower::encode_string;
use circuit::{CircuitSchedule, evaluate_64};
use console::CommandFailure;
use serde::Serialize;

use crate::circuits::{self, InputNumbers, ValueOrderOptions};

/// Evaluates a circuit on the inputs of both parties, without any protection.
///
/// Each value begins with a byte. Without other orders, bit i of a value is bit i mod 8 of byte i
/// div 8, counted from the least significant bit of the first byte. For aes128 (the garbler has the
/// key) and sha256 (one block of 64 bytes that you have padded, 32 bytes from each party) this is
/// the order of the standards. For published circuits of AES and SHA, --bit-order msb or
/// --byte-order big is that of the standards.
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
    /// The input values that the garbler gives, by their numbers from 1, as 1,3, or none [default:
    /// 1]
    #[arg(long, value_name = "NUMBERS")]
    garbler_inputs: Option<InputNumbers>,
    #[command(flatten)]
    order: ValueOrderOptions,
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
    let Arguments { order, garbler_inputs, .. } = arguments;
    let of_garbler = garbler_inputs.as_ref();
    let schedule = circuits::schedule(&arguments.circuit, of_garbler, CircuitSchedule::new)?;
    let shape = schedule.shape();
    let bits = |party: &str, hex: &str, values: &[u32]| {
        let whose = format!("{party}'s input");
        let bytes = circuits::parse_hex(hex).map_err(|error| {
            CommandFailure::Usage(format!("the {whose} is not hexadecimal: {error}"))
        })?;
        order.bits(&whose, values, &bytes)
    };
    let inputs = [
        bits("garbler", &arguments.garbler, &shape.garbler_values)?,
        bits("evaluator", &arguments.evaluator, &shape.evaluator_values)?,
    ];
    let words: Vec<u64> = inputs.iter().flat_map(|bits| bits.iter()).map(|&it| it.into()).collect();
    let output: Vec<bool> =
        evaluate_64(&schedule, &words).into_iter().map(|word| word & 1 == 1).collect();
    let output = encode_string(&order.bytes(&shape.output_values, &output));
    if arguments.json {
        return console::print_json(&CircuitEvalDocument { output });
    }
    console::print_line(&output)
}
