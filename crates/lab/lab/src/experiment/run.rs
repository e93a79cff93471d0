//! Runs the trials of an experiment one after the other, and resumes a run that was stopped.

pub(super) mod compare;
mod draw;
pub(super) mod journal;
pub(super) mod merge;
pub(super) mod results;
pub(super) mod summary;
mod write;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use toml::Table;

use super::Experiment;
use super::error::ExperimentRunError;
use crate::perform::followed::make_empty;
use crate::perform::{TrialError, TrialMeasurement, TrialProgress, perform, perform_at_sites};
use crate::sandbox;
use crate::site::{SiteConnections, SitePath};
use crate::trial::{Trial, TrialContext};
use journal::{TrialJournal, TrialRecord};
use results::ExperimentResults;

/// What happens during a run. Each trial begins, and then has its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ExperimentEvent<'a> {
    /// A trial begins.
    Trial {
        /// Its number, from 1.
        number: usize,
        /// How many trials are done.
        done: usize,
        /// The number of trials.
        total: usize,
        /// A description of the trial: its number, point, repetition and attempt.
        name: &'a str,
        /// The values of the swept keys.
        point: &'a Table,
        /// The model's predictions, by the name of the value.
        predictions: &'a BTreeMap<String, f64>,
    },
    /// A trial has ended, and its result is on the disk.
    Result {
        /// The trial's number, from 1.
        number: usize,
        /// The result.
        #[serde(flatten)]
        record: &'a TrialRecord,
    },
    /// The last trial has ended, or the last for which there is time.
    End {
        /// How many trials are done.
        done: usize,
        /// The number of trials.
        total: usize,
    },
}

/// Runs the remaining trials in a [sandbox](crate::sandbox), up to the time of
/// [`Experiment::stop_at`], and writes the results to the directory `out`. Calls `event` for each
/// event, and `report` ten times a second while a trial measures.
///
/// # Errors
/// If a trial fails, results cannot be written, or `out` has results of another experiment.
pub fn run(
    experiment: &Experiment,
    out: &Path,
    event: impl FnMut(&ExperimentEvent<'_>),
    report: &(dyn Fn(&TrialProgress) + Sync),
) -> Result<ExperimentResults, ExperimentRunError> {
    run_with(experiment, out, event, |trial, context| {
        clear(context.files)?;
        perform(trial, context, report)
    })
}

/// Like [`run()`] at sites, in a [sandbox with the machine's network](sandbox::enter_with_network).
/// The experiment is one of [`Experiment::parse_for_sites`] and [`Experiment::at_sites`].
///
/// # Errors
/// As for [`run()`], and if a site stays lost.
pub fn run_at_sites(
    experiment: &Experiment,
    sites: &SiteConnections,
    out: &Path,
    event: impl FnMut(&ExperimentEvent<'_>),
    report: &(dyn Fn(&TrialProgress) + Sync),
) -> Result<ExperimentResults, ExperimentRunError> {
    run_with(experiment, out, event, |trial, context| {
        clear(context.files)?;
        perform_at_sites(trial, context, sites, report)
    })
}

/// Makes the directory for files, or empties it.
fn clear(files: &Path) -> Result<(), TrialError> {
    make_empty(files)
        .map_err(|error| TrialError(format!("cannot make {}: {error}", files.display())))
}

/// Like [`run()`], with another function to run a trial. It must create the directory for files
/// itself.
///
/// # Errors
/// As for [`run()`].
pub fn run_with(
    experiment: &Experiment,
    out: &Path,
    mut event: impl FnMut(&ExperimentEvent<'_>),
    mut perform: impl FnMut(&Trial, TrialContext<'_>) -> Result<TrialMeasurement, TrialError>,
) -> Result<ExperimentResults, ExperimentRunError> {
    fs::create_dir_all(out).map_err(|error| ExperimentRunError::Writing(out.to_owned(), error))?;
    let mut journal = TrialJournal::open(out, experiment)?;
    let total = experiment.trials();
    let files = sandbox::trial_files();
    while let Some(number) = experiment.next(&journal.records) {
        if experiment.stops_at.is_some_and(|at| Instant::now() >= at) {
            break;
        }
        let (repetition, point) = experiment.trial(number);
        let attempts = journal.records.get(number).map_or(0, |record| record.attempts) + 1;
        let trial_name = experiment.describe_trial(number);
        let again =
            || format!("{trial_name}, again: attempt {attempts} of {}", experiment.attempts);
        let name = if attempts > 1 { again() } else { trial_name.clone() };
        let done = journal.records.len() - experiment.remaining_retries(&journal.records);
        event(&ExperimentEvent::Trial {
            number: number + 1,
            done,
            total,
            name: &name,
            point: point.swept(),
            predictions: point.predictions(),
        });
        let context = TrialContext {
            seed: experiment.seed_of(repetition),
            files: &files,
            results: out,
            number: number + 1,
        };
        let measured = perform(&point.trial, context).and_then(finite);
        let measured = measured.map_err(|error| ExperimentRunError::Trial(name, error))?;
        let mut record = TrialRecord {
            repetition: repetition + 1,
            point: point.swept().clone(),
            values: measured.values,
            texts: measured.texts,
            predictions: point.predictions().clone(),
            late_ms: measured.late_ms,
            missed: measured.missed,
            attempts,
            invalid: false,
            path_changed: measured.paths.iter().any(SitePath::has_changed),
            paths: measured.paths,
        };
        record.check_lateness(experiment.keep_late);
        journal.append(number, record.clone())?;
        event(&ExperimentEvent::Result { number: number + 1, record: &record });
    }
    let done = journal.records.len() - experiment.remaining_retries(&journal.records);
    event(&ExperimentEvent::End { done, total });
    let results = ExperimentResults::new(experiment, journal);
    results.write(experiment, out)?;
    Ok(results)
}

/// Checks that something was measured, and that all values are finite.
fn finite(measured: TrialMeasurement) -> Result<TrialMeasurement, TrialError> {
    if measured.values.is_empty() && measured.texts.is_empty() {
        let what = "it has none of the values of measure.values; ask also for a text that says why";
        return Err(TrialError(what.into()));
    }
    let late = ("late_ms", measured.late_ms);
    let values = measured.values.iter().map(|(name, value)| (name.as_str(), *value));
    let wrong = values.chain([late]).find(|(_, value)| !value.is_finite());
    let wrong = wrong.map(|(name, value)| format!("{name} is {value}, which is no number"));
    wrong.map_or(Ok(measured), |wrong| Err(TrialError(wrong)))
}

impl Experiment {
    /// The trial with a number, from 0, for messages.
    fn describe_trial(&self, number: usize) -> String {
        let (repetition, point) = self.trial(number);
        let which = format!("trial {} of {}", number + 1, self.trials());
        let mut parts = vec![point.combination.describe()];
        if self.repetitions > 1 {
            parts.push(format!("repetition {}", repetition + 1));
        }
        parts.retain(|part| !part.is_empty());
        if parts.is_empty() { which } else { format!("{which} ({})", parts.join(", ")) }
    }

    /// The number, from 0, of the next trial to run. First, all trials run once, or those of a
    /// group of a random order. Then invalid ones of them run again, up to the experiment's maximum
    /// number of attempts; all run n times before any runs n + 1 times.
    pub(crate) fn next(&self, records: &[TrialRecord]) -> Option<usize> {
        if let Some(completed) = self.schedule.completed(records.len()) {
            let again = completed.filter(|number| self.needs_retry(&records[*number]));
            if let Some(number) = again.min_by_key(|number| records[*number].attempts) {
                return Some(number);
            }
        }
        (records.len() < self.trials()).then_some(records.len())
    }

    /// How many of these trials will run again.
    fn remaining_retries(&self, records: &[TrialRecord]) -> usize {
        records.iter().filter(|record| self.needs_retry(record)).count()
    }

    fn needs_retry(&self, record: &TrialRecord) -> bool {
        record.invalid && record.attempts < self.attempts
    }

    /// Whether a record is of the trial with this number, from 0.
    pub(crate) fn is_of(&self, number: usize, record: &TrialRecord) -> bool {
        if number >= self.trials() {
            return false;
        }
        let (repetition, point) = self.trial(number);
        record.repetition == repetition + 1 && point.is_of(record)
    }
}
