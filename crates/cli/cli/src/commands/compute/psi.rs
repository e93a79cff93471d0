//! `sunder compute psi`: the values that a column of each party's table have in common.

mod sets;
mod table;

use std::path::PathBuf;

use circuit::{Circuit, CircuitSchedule, generate};
use compute::predict::PredictedTraffic;
use compute::{
    ComputeAbortReason, ComputeRole, ComputeSession, ComputeSettings, Error, OutputLearners,
};
use console::CommandFailure;
use indicatif::HumanBytes;
use serde::Serialize;

use super::connection::ComputeConnectOptions;
use super::dry_run::{self, DryRunRequest};
use super::loading::{CircuitLoader, schedule};
use super::phases::PhaseFileOptions;
use super::report::ComputeCosts;
use super::running::{ComputeSessionSetup, RunningComputation};
use super::{ComputeProtocolOptions, ComputeRoleName, OutputRecipient, failed, scheme_name};
use sets::{NUMBER_BITS, PsiOwnSet};

/// Finds the values that one column of each party's CSV file have in common.
///
/// Each party learns these values, and about the other values only that there are at most --rows.
/// Values are compared exactly, except for spaces around them: normalise them first (to small
/// letters, for example). Both parties give the same --rows.
///
/// Security is semi-honest: it holds if both parties run this program unchanged. A party can put
/// any values into its own file, and learns which of them the other party has.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// The file: comma-separated values, with the names of the columns in the first row
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The name of the column [default: the only one]
    #[arg(long, value_name = "NAME")]
    column: Option<String>,
    /// The character between the columns
    #[arg(long, value_name = "CHARACTER", default_value = ",", value_parser = delimiter)]
    delimiter: u8,
    /// The maximum number of different values of a party: a higher one costs time and memory
    #[arg(long, value_name = "N", default_value = "1000",
          value_parser = clap::value_parser!(u32).range(1..=MAX_ROWS))]
    rows: u32,
    /// This party's role; the other party takes the other role
    #[arg(long, value_enum)]
    role: ComputeRoleName,
    #[command(flatten)]
    connecting: ComputeConnectOptions,
    #[command(flatten)]
    protocol: ComputeProtocolOptions,
    /// Predict the bytes, round trips and time of a run, for the path to the party that listens at
    /// --connect
    #[arg(long)]
    dry_run: bool,
    /// Show why auto uses this transport
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    phases: PhaseFileOptions,
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Example, on two hosts: the party that listens prints the command for the other,
with its key.
  sunder compute psi a.csv --column email --role garbler --listen 0.0.0.0:7001

Example, on one host:
  sunder compute psi a.csv --column email --role garbler --listen 127.0.0.1:7001 &
  sunder compute psi b.csv --column email --role evaluator --connect 127.0.0.1:7001";

/// The most rows: their circuit is held in memory.
const MAX_ROWS: i64 = 100_000;

/// The memory that making the circuit takes, for each AND: as measured.
const BYTES_PER_AND: u64 = 190;

fn delimiter(text: &str) -> Result<u8, &'static str> {
    match text.as_bytes() {
        &[byte] if byte.is_ascii() && !b"\"\r\n".contains(&byte) => Ok(byte),
        _ => Err("it must be one ASCII character, but not a quote or line end"),
    }
}

#[derive(Serialize)]
struct PsiDocument<'a> {
    role: String,
    /// `null` if this party does not learn them.
    common: Option<&'a [String]>,
    own_values: usize,
    rows: u32,
    ands: u64,
    protocol: &'a str,
    /// `null` with GMW.
    scheme: Option<&'a str>,
    transfers: &'a str,
    transport: &'a str,
    /// `null` if this party did not let `auto` choose it.
    reason: Option<&'a str>,
    #[serde(flatten)]
    costs: &'a ComputeCosts,
}

/// Finds the common values.
///
/// # Errors
/// If the file has no such column or too many values, or the other party fails.
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let Arguments { connecting, protocol, rows, json, .. } = arguments;
    let (role, rows, json) = (arguments.role.role(), *rows, *json);
    // The garbler knows the order of this output: it gets the common values in another instance.
    let settings = ComputeSettings { learns: OutputLearners::Evaluator, ..protocol.settings()? };
    let is_revealed = match protocol.output_to() {
        OutputRecipient::Both => true,
        OutputRecipient::Evaluator => false,
        OutputRecipient::Garbler => {
            let message = "--output-to garbler is not possible here: swap the roles instead";
            return Err(CommandFailure::Usage(message.into()));
        }
    };
    check_memory(rows)?;
    let values = table::column(&arguments.file, arguments.column.as_deref(), arguments.delimiter)?;
    let set = PsiOwnSet::new(values, role, rows as usize)?;
    let input = set.input()?;
    let of_protocol = settings.protocol;
    let circuit = move || Ok(schedule(&generate::intersection(rows, NUMBER_BITS), of_protocol));
    let mut loading = CircuitLoader::spawn(circuit)?;
    let traffic =
        |schedule: &CircuitSchedule| traffic(schedule, &settings, is_revealed.then_some(rows));
    if arguments.dry_run {
        let loaded = loading.wait()?;
        let (circuit, instances, settings) = ("psi", 1, &settings);
        let prediction = DryRunRequest { connecting, circuit, role, settings, instances, json };
        return dry_run::run(&prediction, traffic(&loaded.schedule), loaded);
    }
    let (other, options) = (role.other(), protocol.options());
    let rest = format!("psi FILE --column NAME --rows {rows} --role {other}{options}");
    let Arguments { phases, explain, .. } = arguments;
    let start =
        ComputeSessionSetup { connecting, role, settings, rest: &rest, explain: *explain, phases };
    let mut running = start.open(&mut loading, traffic, |_| Ok(()))?;
    let schedule = &loading.wait()?.schedule;
    let common = find(&mut running, schedule, &input, is_revealed.then_some(rows));
    let common = common.map_err(|error| explained(&error, rows))?;
    let common = common.map(|numbers| set.values_of(&numbers));
    let (transport, reason) = (running.transport, running.reason.take());
    let costs = running.finish(settings.protocol)?;
    let document = PsiDocument {
        role: role.to_string(),
        common: common.as_deref().filter(|_| is_revealed || role == ComputeRole::Evaluator),
        own_values: set.len(),
        rows,
        ands: schedule.shape().ands,
        protocol: settings.protocol.name(),
        scheme: scheme_name(&settings),
        transfers: protocol.transfers.name(),
        transport,
        reason: reason.as_deref(),
        costs: &costs,
    };
    if json { console::print_json(&document) } else { print(&document) }
}

/// Refuses rows whose circuit does not fit into memory: the program would be killed in the middle.
fn check_memory(rows: u32) -> Result<(), CommandFailure> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    // If the system does not tell, nothing is known.
    let Some(available) = kib.map(|kib| kib * 1024) else { return Ok(()) };
    let needed = about_ands(rows) * BYTES_PER_AND;
    if needed <= available {
        return Ok(());
    }
    Err(CommandFailure::Usage(format!(
        "--rows {rows} needs about {} of memory, but {} are free: divide both files, for example \
         by the first letter of the values, and compare the parts",
        HumanBytes(needed),
        HumanBytes(available)
    )))
}

/// About how many ANDs the circuit has: of merging two columns, and shuffling one.
fn about_ands(rows: u32) -> u64 {
    let rows = u64::from(rows);
    rows * u64::from(NUMBER_BITS) * (3 * u64::from(rows.ilog2() + 1) + 2)
}

/// Finds the numbers of the common values. So many rows are revealed to the garbler.
fn find(
    running: &mut RunningComputation,
    schedule: &CircuitSchedule,
    input: &[u8],
    revealed_rows: Option<u32>,
) -> Result<Option<Vec<u8>>, Error> {
    let _showing = running.show(schedule.shape().ands);
    let common = running.session.run(schedule, input)?;
    match revealed_rows {
        Some(rows) => reveal_to_garbler(&mut running.session, common, rows),
        None => Ok(common),
    }
}

/// The evaluator reveals the common numbers to the garbler, in ascending order, as its input of
/// another circuit.
fn reveal_to_garbler(
    session: &mut ComputeSession,
    common: Option<Vec<u8>>,
    rows: u32,
) -> Result<Option<Vec<u8>>, Error> {
    session.set_learns(OutputLearners::Both);
    let revealed = common.map_or_else(Vec::new, |numbers| sets::sorted(&numbers));
    session.run(&reveal_circuit(rows), &revealed)
}

/// A circuit whose output is the evaluator's input.
fn reveal_circuit(rows: u32) -> CircuitSchedule {
    let mut circuit = Circuit::new(&[0, rows * NUMBER_BITS]);
    let input: Vec<_> = circuit.input(1).collect();
    circuit.output(&input);
    CircuitSchedule::new(&circuit)
}

/// What the parties send; so many rows are revealed to the garbler.
fn traffic(
    schedule: &CircuitSchedule,
    settings: &ComputeSettings,
    revealed_rows: Option<u32>,
) -> PredictedTraffic {
    let found = PredictedTraffic::of(schedule, settings, 1);
    let Some(rows) = revealed_rows else { return found };
    let settings = ComputeSettings { learns: OutputLearners::Both, ..*settings };
    found.and(&reveal_circuit(rows), &settings)
}

/// What an error is here.
fn explained(error: &Error, rows: u32) -> CommandFailure {
    match error {
        Error::Sizes { .. }
        | Error::Differs { what: "the circuit" }
        | Error::Aborted { reason: ComputeAbortReason::Differs, .. } => {
            CommandFailure::Usage(format!(
                "the other party computes something else: it must also run `sunder compute psi` \
                 with --rows {rows} and the same options"
            ))
        }
        _ => failed(error),
    }
}

fn print(document: &PsiDocument) -> Result<(), CommandFailure> {
    let &PsiDocument { common, own_values, transport, costs, .. } = document;
    let Some(common) = common else {
        console::note("only the other party learns the common values");
        return Ok(());
    };
    for value in common {
        console::print_line(value)?;
    }
    console::note(&format!(
        "{} of {own_values} values are common; {:.3} s by {transport}",
        common.len(),
        costs.run_s,
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_ands_is_about_right() {
        for rows in [10, 100, 1_000] {
            let circuit = generate::intersection(rows, NUMBER_BITS);
            let (about, ands) = (about_ands(rows), circuit.counts().ands);
            assert!(about >= ands && about < ands + ands / 2, "{rows}: {about} for {ands}");
        }
    }
}
