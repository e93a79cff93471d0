//! The results of an experiment: the document `results.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::journal::{TrialJournal, TrialRecord};
use crate::experiment::error::ResultsError;
use crate::experiment::file::compare::ComparisonDefinition;
use crate::experiment::file::plot::PlotDefinition;
use crate::experiment::shard::TrialShard;
use crate::experiment::statistic::SummaryStatistic;
use crate::experiment::{Experiment, ExperimentMetric};
use crate::machine::MachineProperties;
use crate::site::SiteRecord;

/// The results of an experiment: the document `results.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExperimentResults {
    /// The name of the experiment.
    pub name: String,
    /// Its description.
    pub about: String,
    /// The part of the papers that it reproduces.
    pub paper: Option<String>,
    /// The number of measurements of each point.
    pub repetitions: usize,
    /// How tables and graphs summarize the repetitions of a point.
    #[serde(default)]
    pub statistic: SummaryStatistic,
    /// The experiment's seed, from which the links' seeds are derived.
    pub seed: u64,
    /// The SHA-256 of the experiment's text.
    pub sha256: String,
    /// When the run began: UTC, RFC 3339.
    pub started: String,
    /// The machine.
    pub machine: MachineProperties,
    /// The other machines on which shards of it ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_machines: Vec<MachineProperties>,
    /// The shard whose trials these are, if they are not those of the whole experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<TrialShard>,
    /// The sites at which it ran, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sites: BTreeMap<String, SiteRecord>,
    /// The swept keys.
    pub keys: Vec<String>,
    /// The measured quantities.
    pub values: Vec<ExperimentMetric>,
    /// The comparison, if the experiment defines one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compare: Option<ComparisonDefinition>,
    /// The graphs that the experiment defines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plots: Vec<PlotDefinition>,
    /// The number of trials that have not run yet.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left: usize,
    /// The number of trials of other shards.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub elsewhere: usize,
    /// The number of invalid trials.
    #[serde(default)]
    pub invalid: usize,
    /// The trials: repetition by repetition, in the order of the points.
    pub trials: Vec<TrialRecord>,
}

impl ExperimentResults {
    pub(crate) fn new(experiment: &Experiment, journal: TrialJournal) -> Self {
        let left = experiment.trials() - journal.records.len();
        let trials = journal.records.into_iter().enumerate();
        let mut trials: Vec<_> =
            trials.map(|(number, record)| (experiment.schedule.trial(number), record)).collect();
        trials.sort_by_key(|(place, _)| *place);
        let trials: Vec<TrialRecord> = trials.into_iter().map(|(_, record)| record).collect();
        Self {
            name: experiment.name.clone(),
            about: experiment.about.clone(),
            paper: experiment.paper.clone(),
            repetitions: experiment.repetitions,
            statistic: experiment.statistic,
            seed: experiment.seed,
            sha256: experiment.digest.clone(),
            started: journal.heading.started,
            machine: journal.heading.machine,
            other_machines: journal.heading.other_machines,
            shard: experiment.shard,
            sites: journal.heading.sites,
            keys: experiment.keys.clone(),
            values: experiment.metrics.clone(),
            compare: experiment.compare.clone(),
            plots: experiment.plots.clone(),
            left,
            elsewhere: experiment.repetitions * experiment.points.len() - experiment.trials(),
            invalid: invalid(&trials),
            trials,
        }
    }

    /// Reads the document `results.json` of an experiment as written by any version, and applies
    /// the current criteria for invalid trials.
    ///
    /// # Errors
    /// If the document is malformed, or is not of this experiment's points.
    pub fn read(experiment: &Experiment, document: &[u8]) -> Result<Self, ResultsError> {
        let mut results: Self = serde_json::from_slice(document)?;
        // Trials that have not run are missing.
        let mut points = experiment.points.iter();
        let mut repetition = 0;
        let are_of = results.trials.iter().all(|trial| {
            if trial.repetition != repetition {
                repetition = trial.repetition;
                points = experiment.points.iter();
            }
            points.any(|point| point.is_of(trial))
        });
        let whole = results.repetitions * experiment.points.len();
        if results.trials.len() + results.left + results.elsewhere != whole || !are_of {
            return Err(ResultsError::OtherPoints(experiment.name.clone()));
        }
        results.trials.iter_mut().for_each(|trial| trial.check_lateness(experiment.keep_late));
        results.invalid = invalid(&results.trials);
        results.compare.clone_from(&experiment.compare);
        results.plots.clone_from(&experiment.plots);
        Ok(results)
    }
}

fn invalid(trials: &[TrialRecord]) -> usize {
    trials.iter().filter(|trial| trial.invalid).count()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}
