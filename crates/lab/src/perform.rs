//! Performs a trial: makes its network, starts its programs, measures, and ends everything.

pub(crate) mod driver;
mod program;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

use thiserror::Error;

use crate::host::Host;
use crate::network::Network;
use crate::sandbox;
use crate::trial::{MeasurePlan, Place, Trial, ValuePlan};
use program::{Program, end_of};

/// What a trial gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The values that were asked for, by name.
    pub values: BTreeMap<String, f64>,
    /// How late the links handed over packets, in ms: of 100 packets, 99 were less late, on the
    /// worst line.
    pub late_ms: f64,
    /// How many packets the kernel dropped because a link had not fetched them in time, or did not
    /// take from it.
    pub missed: u64,
}

/// How late the links may be, in ms, before a measurement says more of the machine than of them.
const MAX_LATE_MS: f64 = 1.0;

impl Measured {
    /// Whether the machine did not keep up with its links: they were more than 1 ms late, or did
    /// not fetch packets in time.
    pub fn is_late(&self) -> bool {
        is_late(self.late_ms, self.missed)
    }
}

/// The same of its two figures.
pub(crate) fn is_late(late_ms: f64, missed: u64) -> bool {
    late_ms > MAX_LATE_MS || missed > 0
}

/// Why a trial failed, in one line.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct TrialError(pub String);

/// Performs a trial, in a [sandbox](crate::sandbox).
///
/// # Errors
/// When the network cannot be made, a program fails or does not get ready, or a value is missing.
pub fn perform(trial: &Trial, place: Place<'_>) -> Result<Measured, TrialError> {
    write_files(trial, place.files)
        .map_err(|error| failed(format!("cannot write the trial's files: {error}")))?;
    let network = Network::new(trial, place).map_err(failed)?;
    let mut programs = start(trial, &network, place.files)?;
    let values = measure(&trial.measure, &network, place.files)?;
    programs.iter_mut().try_for_each(Program::check).map_err(failed)?;
    drop(programs);
    sandbox::end_programs();
    let late_ms = network.late_ms();
    let missed =
        network.missed().map_err(|error| failed(format!("cannot see what was missed: {error}")))?;
    network.take_down().map_err(failed)?;
    Ok(Measured { values, late_ms, missed })
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

/// Starts the programs, each when the one before is ready.
fn start(trial: &Trial, network: &Network, files: &Path) -> Result<Vec<Program>, TrialError> {
    let mut programs = Vec::new();
    for (i, plan) in trial.programs.iter().enumerate() {
        let host = host(network, &plan.host)?;
        let output = files.join(format!(".program-{i}.log"));
        let mut program = Program::start(host, &plan.run, &output, None).map_err(failed)?;
        if let Some(port) = plan.listens {
            program.wait_for_port(host, port).map_err(failed)?;
        }
        if let Some(text) = &plan.says {
            program.wait_for_output(text).map_err(failed)?;
        }
        programs.push(program);
    }
    Ok(programs)
}

/// Measures, by a driver or a program.
fn measure(
    plan: &MeasurePlan,
    network: &Network,
    files: &Path,
) -> Result<BTreeMap<String, f64>, TrialError> {
    if let Some(name) = &plan.driver {
        let driver =
            driver::find(name).ok_or_else(|| failed(format!("there is no driver {name}")))?;
        let measured = (driver.measure)(network, &plan.options).map_err(failed)?;
        let value = |(name, plan): (&String, &ValuePlan)| {
            let number = measured
                .0
                .get(name.as_str())
                .ok_or_else(|| failed(format!("the driver gives no {name}")))?;
            Ok((name.clone(), number * plan.scale))
        };
        return plan.values.iter().map(value).collect();
    }
    let host = host(network, plan.host.as_deref().unwrap_or_default())?;
    let output = run(plan, host, files)?;
    let value = |(name, plan): (&String, &ValuePlan)| {
        let number = plan.read(&output).ok_or_else(|| {
            failed(format!("{name} is not in the output as a plain number: {}", end_of(&output)))
        })?;
        Ok((name.clone(), number * plan.scale))
    };
    plan.values.iter().map(value).collect()
}

/// How long a program may measure unless the experiment says otherwise, in seconds.
const DEFAULT_TIMEOUT_S: f64 = 60.0;

/// Runs the program that measures, and returns what it prints.
fn run(plan: &MeasurePlan, host: &Host, files: &Path) -> Result<String, TrialError> {
    let command = plan.run.as_deref().unwrap_or_default();
    let [output, errors] = [".measure.log", ".measure.errors"].map(|name| files.join(name));
    let mut program = Program::start(host, command, &output, Some(&errors)).map_err(failed)?;
    let timeout_s = plan.timeout_s.unwrap_or(DEFAULT_TIMEOUT_S);
    let status = program.wait(Duration::from_secs_f64(timeout_s)).map_err(failed)?;
    match status {
        Some(status) if status.success() => program.output().map_err(failed),
        Some(status) => Err(failed(program.failure(status))),
        None => Err(failed(program.error_with_output(&format!("took longer than {timeout_s} s")))),
    }
}

fn host<'a>(network: &'a Network, name: &str) -> Result<&'a Host, TrialError> {
    network.host(name).ok_or_else(|| failed(format!("there is no host {name}")))
}
