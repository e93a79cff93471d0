//! `sunder circuit info`.

use circuit::{Circuit, CircuitSchedule};
use console::CommandFailure;
use console::table::{ColumnAlignment, aligned};
use serde::Serialize;

use crate::circuits::{self, InputNumbers};

/// Shows a circuit's inputs, outputs, numbers of gates and digest.
///
/// Input values have numbers from 1. The garbler gives the first, unless --garbler-inputs names
/// others. The SHA-256 depends on which party gives which value.
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
    /// The input values that the garbler gives, by their numbers from 1, as 1,3, or none [default:
    /// 1]
    #[arg(long, value_name = "NUMBERS")]
    garbler_inputs: Option<InputNumbers>,
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
}

/// How many values of a party are shown, unless as JSON.
const MAX_SHOWN_VALUES: usize = 8;

#[derive(Serialize)]
struct CircuitInfoDocument {
    garbler_inputs: u32,
    evaluator_inputs: u32,
    outputs: usize,
    /// The input values in the order of the file.
    input_values: Vec<InputValueDocument>,
    /// The bits of each output value.
    output_values: Vec<u32>,
    gates: u64,
    and: u64,
    xor: u64,
    inv: u64,
    /// `null` if it is repeated.
    depth: Option<u32>,
    sha256: String,
}

#[derive(Serialize)]
struct InputValueDocument {
    number: usize,
    party: &'static str,
    bits: u32,
}

/// Prints it.
///
/// # Errors
/// If there is no such circuit, or no such input value.
pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let of_garbler = arguments.garbler_inputs.as_ref();
    let (circuit, rounds) = circuits::load_repeated(&arguments.circuit, of_garbler)?;
    let (counts, times) = (circuit.counts(), rounds.unwrap_or(1));
    let digest = match rounds {
        Some(_) => {
            let schedule = circuits::schedule(&arguments.circuit, of_garbler, CircuitSchedule::new);
            schedule?.shape().digest
        }
        None => circuit.digest(),
    };
    let document = CircuitInfoDocument {
        garbler_inputs: circuit.garbler_inputs(),
        evaluator_inputs: circuit.evaluator_inputs(),
        outputs: circuit.outputs().len(),
        input_values: input_values(&circuit, of_garbler),
        output_values: circuit.output_values().to_vec(),
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
    let inputs = |party: &str, bits: u32| {
        let values = document.input_values.iter().filter(|value| value.party == party);
        let values = values.map(|value| (value.number, value.bits));
        with_values(bits as usize, "input", &values.collect::<Vec<_>>())
    };
    let outputs: Vec<(usize, u32)> = (1..).zip(document.output_values.iter().copied()).collect();
    let rows = [
        ["garbler's input", &inputs("garbler", document.garbler_inputs)],
        ["evaluator's input", &inputs("evaluator", document.evaluator_inputs)],
        ["output", &with_values(document.outputs, "output", &outputs)],
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

/// The input values in the order of the file, with the party that gives each.
fn input_values(circuit: &Circuit, of_garbler: Option<&InputNumbers>) -> Vec<InputValueDocument> {
    let count = circuit.input_values().len();
    let is_garblers = |number: usize| of_garbler.map_or(number == 1, |it| it.contains(number));
    let (mut garbler, mut evaluator) =
        (circuit.garbler_values().iter(), circuit.evaluator_values().iter());
    let value = |number: usize| {
        let (party, bits) = if is_garblers(number) {
            ("garbler", garbler.next())
        } else {
            ("evaluator", evaluator.next())
        };
        InputValueDocument { number, party, bits: bits.copied().unwrap_or(0) }
    };
    (1..=count).map(value).collect()
}

/// A number of bits, and the numbers and the bits of the values that have them.
fn with_values(bits: usize, name: &str, values: &[(usize, u32)]) -> String {
    match values {
        [] => format!("{bits} bits"),
        [(number, _)] => format!("{bits} bits ({name} {number})"),
        _ => {
            let shown = values.iter().take(MAX_SHOWN_VALUES);
            let mut shown: Vec<String> =
                shown.map(|(number, bits)| format!("{name} {number}: {bits}")).collect();
            if values.len() > MAX_SHOWN_VALUES {
                shown.push(format!("{} more", values.len() - MAX_SHOWN_VALUES));
            }
            format!("{bits} bits ({})", shown.join(", "))
        }
    }
}
