//! What an experiment gave: the document `results.json`.

use serde::{Deserialize, Serialize};

use super::journal::{Journal, Record};
use super::machine::Machine;
use crate::experiment::error::ResultsError;
use crate::experiment::statistic::Statistic;
use crate::experiment::{Experiment, Metric, Point};

/// What an experiment gave: the document `results.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// The experiment.
    pub name: String,
    /// What it is about.
    pub about: String,
    /// Where in the papers it is from.
    pub paper: Option<String>,
    /// How often each point was measured.
    pub repetitions: usize,
    /// What tables and graphs tell of all repetitions of a point.
    #[serde(default)]
    pub statistic: Statistic,
    /// The seed of the links' chances.
    pub seed: u64,
    /// The SHA-256 of the experiment's text.
    pub sha256: String,
    /// When it was begun: UTC, RFC 3339.
    pub started: String,
    /// What it was measured on.
    pub machine: Machine,
    /// The keys that were swept.
    pub keys: Vec<String>,
    /// What was measured.
    pub values: Vec<Metric>,
    /// How many of the trials are invalid.
    #[serde(default)]
    pub invalid: usize,
    /// The trials, in the order in which they were performed first.
    pub trials: Vec<Record>,
}

impl Results {
    pub(crate) fn new(experiment: &Experiment, journal: Journal) -> Self {
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
            keys: experiment.keys.clone(),
            values: experiment.metrics.clone(),
            invalid: invalid(&journal.records),
            trials: journal.records,
        }
    }

    /// Reads the document `results.json` of an experiment, as any version has written it, and
    /// judges the trials by the criteria of today.
    ///
    /// # Errors
    /// When it is no such document, or not of this experiment's points.
    pub fn read(experiment: &Experiment, document: &[u8]) -> Result<Self, ResultsError> {
        let mut results: Self = serde_json::from_slice(document)?;
        let points = experiment.points.iter().cycle();
        let is_of = |(trial, point): (&Record, &Point)| {
            trial.point == *point.swept()
                && trial.values.keys().eq(point.trial.measure.values.keys())
        };
        let whole = results.repetitions * experiment.points.len();
        if results.trials.len() != whole || !results.trials.iter().zip(points).all(is_of) {
            return Err(ResultsError::OtherPoints(experiment.name.clone()));
        }
        results.trials.iter_mut().for_each(|trial| trial.judge(experiment.keep_late));
        results.invalid = invalid(&results.trials);
        Ok(results)
    }
}

fn invalid(trials: &[Record]) -> usize {
    trials.iter().filter(|trial| trial.invalid).count()
}
