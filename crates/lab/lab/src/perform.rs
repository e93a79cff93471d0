//! Runs a trial: creates its network, starts its programs, measures, and ends everything.

mod at_sites;
pub(crate) mod command;
pub(crate) mod driver;
pub(crate) mod followed;
mod outputs;
mod phases;
pub(crate) mod program;
mod sampling;
pub(crate) mod sockets;
mod stretched_links;
mod trial_network;
mod trial_program;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

use thiserror::Error;

use crate::network::EmulatedNetwork;
use crate::sandbox;
use crate::site::SitePath;
use crate::trial::read::document;
use crate::trial::{MeasurePlan, Trial, TrialContext, ValuePlan};
pub(crate) use at_sites::perform_at_sites;
use command::ProgramCommand;
use driver::DriverMeasure;
pub use driver::check_script_archive;
pub use driver::datagrams::{DatagramFlow, ReceivedFlow};
pub use outputs::TrialOutput;
pub use phases::TrialPhase;
use program::output_tail;
pub use sampling::{TrialProgress, TrialSample};
use trial_network::{TrialHost, TrialNetwork};
use trial_program::TrialProgram;

/// The result of a trial.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrialMeasurement {
    /// The requested values, by name.
    pub values: BTreeMap<String, f64>,
    /// The requested texts that there are, by name.
    pub texts: BTreeMap<String, String>,
    /// The 99th percentile of the lateness of delivered packets, in ms, in the worst direction of
    /// any link.
    pub late_ms: f64,
    /// How many packets the kernel dropped because a link did not read them in time, or refused
    /// from a link.
    pub missed: u64,
    /// At sites: the paths between them.
    pub paths: Vec<SitePath>,
}

/// The maximum lateness, in ms, at which a measurement still describes the links, and not the
/// machine.
const MAX_LATE_MS: f64 = 1.0;

impl TrialMeasurement {
    /// Whether the machine did not keep up with its links: the lateness was above 1 ms, or the
    /// kernel dropped packets.
    pub fn is_late(&self) -> bool {
        is_late(self.late_ms, self.missed)
    }
}

/// The same, from the two figures.
pub(crate) fn is_late(late_ms: f64, missed: u64) -> bool {
    late_ms > MAX_LATE_MS || missed > 0
}

/// Why a trial failed, in one line.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct TrialError(pub String);

/// Runs a trial in a [sandbox](crate::sandbox). Calls `report` from another thread, ten times a
/// second while it measures.
///
/// # Errors
/// If the network cannot be created, a program fails or does not become ready, or a value is
/// missing.
pub fn perform(
    trial: &Trial,
    context: TrialContext<'_>,
    report: &(dyn Fn(&TrialProgress) + Sync),
) -> Result<TrialMeasurement, TrialError> {
    write_files(trial, context.files).map_err(|error| {
        failed(format!("cannot write the trial's files: {}", sandbox::write_error(&error)))
    })?;
    let trial = &with_hosts_of_driver(trial)?;
    let network = EmulatedNetwork::new(trial, context).map_err(failed)?;
    let network = TrialNetwork::Emulated { network, files: context.files };
    let MeasuredQuantities { values, texts } = perform_on(&network, trial, context, report)?;
    sandbox::end_programs();
    let TrialNetwork::Emulated { network, .. } = network else {
        return Err(failed("the network is not an emulated one"));
    };
    let late_ms = network.late_ms();
    let missed =
        network.missed().map_err(|error| failed(format!("cannot see what was missed: {error}")))?;
    network.remove().map_err(failed)?;
    Ok(TrialMeasurement { values, texts, late_ms, missed, paths: Vec::new() })
}

/// Starts the programs, measures, and ends the programs.
fn perform_on(
    network: &TrialNetwork<'_>,
    trial: &Trial,
    context: TrialContext<'_>,
    report: &(dyn Fn(&TrialProgress) + Sync),
) -> Result<MeasuredQuantities, TrialError> {
    let mut programs = start(trial, network)?;
    let measured = sampling::during(network.emulated(), context.number, report, || {
        measure(&trial.measure, network)
    });
    outputs::keep(context.number, context.results)
        .map_err(|error| failed(format!("cannot keep the outputs: {error}")))?;
    let measured = measured?;
    programs.iter_mut().try_for_each(TrialProgram::check).map_err(failed)?;
    Ok(measured)
}

#[expect(clippy::needless_pass_by_value, reason = "for use with `map_err`")]
fn failed(why: impl ToString) -> TrialError {
    TrialError(why.to_string())
}

fn write_files(trial: &Trial, directory: &Path) -> io::Result<()> {
    for (name, text) in &trial.files {
        fs::write(directory.join(name), text)?;
    }
    for (name, length) in &trial.zeros {
        File::create(directory.join(name))?.set_len(u64::from(*length))?;
    }
    Ok(())
}

/// The trial with the hosts and links that its driver adds.
fn with_hosts_of_driver(trial: &Trial) -> Result<Trial, TrialError> {
    let mut trial = trial.clone();
    let driver = trial.measure.driver.as_deref().and_then(driver::find);
    if let Some(driver) = driver {
        let options = trial.measure.options.clone();
        (driver.network)(&options, &mut trial).map_err(failed)?;
    }
    Ok(trial)
}

/// Starts the programs in order, each after the previous one is ready.
fn start<'a>(
    trial: &Trial,
    network: &'a TrialNetwork<'_>,
) -> Result<Vec<TrialProgram<'a>>, TrialError> {
    let mut programs = Vec::new();
    for (i, plan) in trial.programs.iter().enumerate() {
        let host = network.host(&plan.host).map_err(failed)?;
        let command = ProgramCommand::new(plan.run.clone());
        let name = format!("program-{i}");
        let mut program = TrialProgram::start(host, &name, &command, false).map_err(failed)?;
        if let Some(port) = plan.listens {
            program.wait_for_port(port).map_err(failed)?;
        }
        if let Some(text) = &plan.says {
            program.wait_for_output(text).map_err(failed)?;
        }
        programs.push(program);
    }
    Ok(programs)
}

/// The requested values and texts, by name.
#[derive(Debug)]
struct MeasuredQuantities {
    values: BTreeMap<String, f64>,
    texts: BTreeMap<String, String>,
}

/// Measures with a driver or a program.
fn measure(
    plan: &MeasurePlan,
    network: &TrialNetwork<'_>,
) -> Result<MeasuredQuantities, TrialError> {
    if let Some(name) = &plan.driver {
        let driver =
            driver::find(name).ok_or_else(|| failed(format!("there is no driver {name}")))?;
        let measured = match driver.measure {
            DriverMeasure::Programs { measure, .. } | DriverMeasure::Linked(measure) => {
                measure(network, &plan.options)
            }
            DriverMeasure::Emulated(measure) => network
                .emulated()
                .ok_or_else(|| format!("the driver {name} measures emulated networks only"))
                .and_then(|network| measure(network, &plan.options)),
        };
        let measured = measured.map_err(failed)?;
        let mut values = BTreeMap::new();
        for (name, value) in &plan.values {
            let number = measured.read(name, value).map_err(failed)?;
            values.extend(number.map(|number| (name.clone(), number)));
        }
        return Ok(MeasuredQuantities { values, texts: texts(plan, measured.document()) });
    }
    let host = network.host(plan.host.as_deref().unwrap_or_default()).map_err(failed)?;
    let output = run(plan, host)?;
    let value = |(name, plan): (&String, &ValuePlan)| {
        let number = plan.read(&output).ok_or_else(|| {
            failed(format!(
                "{name} is not in the output as a plain number: {}",
                output_tail(&output)
            ))
        })?;
        Ok((name.clone(), number * plan.scale))
    };
    let values = plan.values.iter().map(value).collect::<Result<_, TrialError>>()?;
    let texts = if plan.texts.is_empty() {
        BTreeMap::new()
    } else {
        texts(plan, document(&output).as_ref())
    };
    Ok(MeasuredQuantities { values, texts })
}

/// The requested texts that a document has.
fn texts(plan: &MeasurePlan, document: Option<&serde_json::Value>) -> BTreeMap<String, String> {
    let texts = plan.texts.iter();
    texts.filter_map(|(name, plan)| Some((name.clone(), plan.read(document?)?))).collect()
}

/// The default time limit for a program that measures, in seconds.
const DEFAULT_TIMEOUT_S: f64 = 60.0;

/// Runs the program that measures and returns its output.
fn run(plan: &MeasurePlan, host: TrialHost<'_>) -> Result<String, TrialError> {
    let command = ProgramCommand::new(plan.run.clone().unwrap_or_default());
    let mut program = TrialProgram::start(host, "measure", &command, true).map_err(failed)?;
    let timeout_s = plan.timeout_s.unwrap_or(DEFAULT_TIMEOUT_S);
    let status = program.wait(Duration::from_secs_f64(timeout_s)).map_err(failed)?;
    match status {
        Some(status) if status.success() => program.output().map_err(failed),
        Some(status) => Err(failed(program.failure(status))),
        None => Err(failed(program.error_with_output(&format!("took longer than {timeout_s} s")))),
    }
}
