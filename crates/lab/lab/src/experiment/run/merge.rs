//! Merges the results of all shards of an experiment into those of the whole.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use super::journal::{self, TrialJournal, TrialRecord};
use super::results::ExperimentResults;
use crate::experiment::Experiment;
use crate::experiment::error::ExperimentRunError;

/// Merges the results of an experiment's shards in the directories `shards`, and writes the results
/// of the whole to the directory `out`. They are those of one run of all trials, except that the
/// machines may differ. The directories of the shards are not changed.
///
/// # Errors
/// If a trial is missing or is there twice, a journal is of another experiment or is still being
/// written, `out` has trials already, or the results cannot be written.
pub fn merge(
    experiment: &Experiment,
    shards: &[PathBuf],
    out: &Path,
) -> Result<ExperimentResults, ExperimentRunError> {
    let mut attempts = TrialAttempts::new(experiment, shards);
    let mut headings = Vec::new();
    for (shard, directory) in shards.iter().enumerate() {
        let (heading, records) = journal::read(directory, experiment)?;
        for (index, record) in records.into_iter().enumerate() {
            attempts.add(shard, index, record)?;
        }
        headings.push(heading);
    }
    // Nothing is written if a trial is missing.
    let order = attempts.in_order()?;
    fs::create_dir_all(out).map_err(|error| ExperimentRunError::Writing(out.to_owned(), error))?;
    let mut journal = TrialJournal::create(out, experiment, &headings)?;
    for (number, record) in order {
        journal.append(number, record)?;
    }
    let results = ExperimentResults::new(experiment, journal);
    results.write(experiment, out)?;
    Ok(results)
}

/// The attempts of each trial.
struct TrialAttempts<'a> {
    experiment: &'a Experiment,
    shards: &'a [PathBuf],
    /// The number of each trial, by its repetition and its point.
    numbers: BTreeMap<(usize, String), usize>,
    /// For each trial the index of its shard, from 0, and the attempts in their order.
    attempts: Vec<Option<(usize, VecDeque<TrialRecord>)>>,
}

impl<'a> TrialAttempts<'a> {
    fn new(experiment: &'a Experiment, shards: &'a [PathBuf]) -> Self {
        let name = |number| {
            let (repetition, point) = experiment.trial(number);
            ((repetition + 1, point.swept().to_string()), number)
        };
        let numbers = (0..experiment.trials()).map(name).collect();
        Self { experiment, shards, numbers, attempts: vec![None; experiment.trials()] }
    }

    /// Adds the attempt with an index, from 0, in the journal of a shard.
    fn add(
        &mut self,
        shard: usize,
        index: usize,
        record: TrialRecord,
    ) -> Result<(), ExperimentRunError> {
        let number = self.numbers.get(&(record.repetition, record.point.to_string()));
        let number = number.filter(|number| self.experiment.is_of(**number, &record));
        let number = *number.ok_or_else(|| journal::broken(&self.shards[shard], index))?;
        let (from, attempts) =
            self.attempts[number].get_or_insert_with(|| (shard, VecDeque::new()));
        if *from != shard {
            let [one, other] = [*from, shard].map(|index| self.shards[index].clone());
            return Err(ExperimentRunError::Twice(one, other));
        }
        attempts.push_back(record);
        Ok(())
    }

    /// All attempts with the numbers of their trials, in the order of one run of all trials.
    fn in_order(mut self) -> Result<Vec<(usize, TrialRecord)>, ExperimentRunError> {
        let missing = self.attempts.iter().filter(|attempts| attempts.is_none()).count();
        if missing > 0 {
            return Err(ExperimentRunError::Missing { missing, of: self.attempts.len() });
        }
        let (mut order, mut records) = (Vec::new(), Vec::new());
        while let Some(number) = self.experiment.next(&records) {
            let Some((shard, attempts)) = &mut self.attempts[number] else { break };
            let Some(record) = attempts.pop_front() else {
                return Err(ExperimentRunError::Unfinished(self.shards[*shard].clone()));
            };
            journal::keep_least_late(&mut records, number, record.clone());
            order.push((number, record));
        }
        Ok(order)
    }
}
