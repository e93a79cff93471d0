//! Common values by a circuit that merges both parties' sorted values.

use std::time::Instant;

use circuit::{Circuit, CircuitSchedule, generate};
use compute::predict::PredictedTraffic;
use compute::{
    ComputeAbortReason, ComputeRole, ComputeSession, ComputeSettings, Error, OutputLearners,
};
use console::CommandFailure;
use indicatif::HumanBytes;
use serde::Serialize;

use super::super::dry_run::{self, DryRunRequest};
use super::super::loading::{CircuitLoader, schedule};
use super::super::report::ComputeCosts;
use super::super::running::{ComputeSessionSetup, RunningComputation};
use super::super::{ComputeProtocolName, failed, scheme_name};
use super::numbers::{self, NUMBER_BITS, PsiOwnSet};
use super::table::PsiTableSource;
use super::{Arguments, PsiResult};

/// The default of `--rows`.
const DEFAULT_ROWS: u32 = 1000;

/// The most rows: their circuit is held in memory.
const MAX_ROWS: u32 = 100_000;

/// The memory that making the circuit takes, for each AND: as measured.
const BYTES_PER_AND: u64 = 190;

#[derive(Serialize)]
pub(super) struct CircuitPsiDocument<'a> {
    role: String,
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

/// Finds the common values, and prints them.
///
/// # Errors
/// If there are too many values, or the other party fails.
pub(super) fn run(
    arguments: &Arguments,
    name: ComputeProtocolName,
    source: &PsiTableSource,
) -> Result<(), CommandFailure> {
    let begun = Instant::now();
    let Arguments { connecting, protocol, json, .. } = arguments;
    let (role, json) = (arguments.role.compute_role(), *json);
    let rows = arguments.rows.unwrap_or(DEFAULT_ROWS);
    if rows > MAX_ROWS {
        let message = format!("--rows {rows} is more than the {MAX_ROWS} of --protocol circuit");
        return Err(CommandFailure::Usage(message));
    }
    // The garbler knows the order of this output: it gets the common values in another instance.
    let settings = protocol.settings(name, None, OutputLearners::Evaluator)?;
    let is_revealed = arguments.is_for_both()?;
    check_memory(rows)?;
    let table = source.read()?;
    let set = PsiOwnSet::new(table.all_keys(), role, rows as usize)?;
    let input = set.input()?;
    let reading = begun.elapsed();
    let of_protocol = settings.protocol;
    let circuit = move || Ok(schedule(&generate::intersection(rows, NUMBER_BITS), of_protocol));
    let mut loading = CircuitLoader::spawn(circuit)?;
    let traffic = |schedule: &CircuitSchedule, settings: &_| {
        traffic(schedule, settings, is_revealed.then_some(rows))
    };
    if arguments.dry_run {
        let loaded = loading.wait()?;
        let prediction = DryRunRequest {
            connecting,
            circuit: "psi",
            role,
            settings: &settings,
            levels: Vec::new(),
            instances: 1,
            reading,
            json,
        };
        return dry_run::run(&prediction, |settings| traffic(&loaded.schedule, settings), loaded);
    }
    let traffic = |schedule: &CircuitSchedule| traffic(schedule, &settings);
    let rest = arguments.others_command(&format!(" --rows {rows}"));
    let Arguments { phases, explain, .. } = arguments;
    let start =
        ComputeSessionSetup { connecting, role, settings, rest: &rest, explain: *explain, phases };
    let mut running = start.open(&mut loading, traffic, |_| Ok(()))?;
    let schedule = &loading.wait()?.schedule;
    if let Some(budget) = arguments.budget_of(running.peer)? {
        budget.charge(arguments.result_name(), rows.into())?;
    }
    let common = find(&mut running, schedule, &input, is_revealed.then_some(rows));
    let common = common.map_err(|error| explained(&error, rows))?;
    let common = common.map(|numbers| set.digests_of(&numbers));
    let (transport, reason) = (running.transport, running.reason.take());
    let costs = running.finish(settings.protocol)?;
    let document = CircuitPsiDocument {
        role: role.to_string(),
        own_values: set.len(),
        rows,
        ands: schedule.shape().ands,
        protocol: settings.protocol.name(),
        scheme: scheme_name(&settings),
        transfers: protocol.transfers().name(),
        transport,
        reason: reason.as_deref(),
        costs: &costs,
    };
    let learns = is_revealed || role == ComputeRole::Evaluator;
    PsiResult {
        table: &table,
        count: common.as_ref().filter(|_| learns).map(Vec::len),
        common: common.filter(|_| learns),
        sum: None,
        own_values: set.len(),
        run_s: costs.run_s,
        transport,
    }
    .print(arguments, &document)
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
    let revealed = common.map_or_else(Vec::new, |numbers| numbers::sorted(&numbers));
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
