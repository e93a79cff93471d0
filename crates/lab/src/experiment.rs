//! Experiments: files that say which networks there are, what runs on them, what is varied, and
//! what is measured.
//!
//! What is wrong with a file as such is found by [`Experiment::parse`], for every trial, before the
//! first; what a machine lacks, and what only a driver knows, by the first trial that needs it.
//! [`run()`] performs it, and [`Results`] are what it gives.
//! [docs/formats/experiment.md](../../../docs/formats/experiment.md) describes the files.

mod built_in;
mod columns;
mod error;
mod file;
mod run;
mod statistic;
mod value;

use std::collections::BTreeMap;
use std::iter::repeat_with;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toml::Table;

pub use built_in::built_in;
pub use error::{ExperimentError, ResultsError, RunError};
pub use run::journal::Record;
pub use run::machine::Machine;
pub use run::results::Results;
pub use run::summary::Summary;
pub use run::{Status, run, run_with};
pub use statistic::{Spread, Statistic};

use crate::trial::Trial;
use error::Problem;
use file::File;
use file::plot::{self, Plot};
use file::predict;
use file::programs;
use file::sweep::{Combination, Sweep};
use file::template::{self, Filled};

/// An experiment, checked.
#[derive(Debug)]
pub struct Experiment {
    /// What its file is called, for errors.
    file: String,
    name: String,
    about: String,
    paper: Option<String>,
    repetitions: usize,
    /// What is told of all repetitions of a point.
    statistic: Statistic,
    /// How often a trial is performed, at most, while links are late.
    attempts: usize,
    /// Whether a trial counts though links were late.
    keep_late: bool,
    seed: u64,
    /// The digest of the file's text.
    digest: String,
    /// The swept keys.
    keys: Vec<String>,
    metrics: Vec<Metric>,
    points: Vec<Point>,
    plots: Vec<Plot>,
}

/// One combination of what is varied.
#[derive(Debug)]
struct Point {
    combination: Combination,
    trial: Trial,
    /// The numbers of the file's programs that it starts.
    programs: Vec<usize>,
    /// What the model says, by the name of the value. What it cannot say is missing.
    predictions: BTreeMap<String, f64>,
}

/// A quantity that is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// Its name.
    pub name: String,
    /// What it is measured in; empty if that was not said.
    pub unit: String,
}

impl Metric {
    /// Its name, and what it is measured in.
    pub fn label(&self) -> String {
        if self.unit.is_empty() {
            self.name.clone()
        } else {
            format!("{}, {}", self.name, self.unit)
        }
    }
}

/// The most trials, of which each takes seconds.
const MAX_TRIALS: usize = 100_000;

impl Experiment {
    /// Reads an experiment from the text of `file`, whose name it takes.
    ///
    /// # Errors
    /// The first thing that is wrong with it. Programs may be missing on this machine:
    /// [`find_programs`](Self::find_programs).
    pub fn parse(file: &Path, text: &str) -> Result<Self, ExperimentError> {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let file = file.display().to_string();
        Self::checked(name, file.clone(), text).map_err(|problem| problem.of(&file))
    }

    fn checked(name: String, file: String, text: &str) -> Result<Self, Problem> {
        let content = File::parse(text)?;
        content.check()?;
        let (repetitions, statistic) = (content.repetitions(), content.statistic());
        let sweep = Sweep::new(&content.sweep)?;
        let mut points = Vec::new();
        for combination in sweep.combinations(MAX_TRIALS / repetitions)? {
            let values = combination.describe();
            let point = Point::new(&content, &sweep, combination);
            points.push(point.map_err(|problem| problem.with(&values))?);
        }
        let metrics = metrics(&content, &points)?;
        let keys = sweep.keys();
        columns::check(&keys, &metrics)?;
        predict::check(&content.predict, &metrics)?;
        let plots = plot::check(content.plots, &sweep, &metrics, &points)?;
        Ok(Self {
            file,
            name,
            about: content.about,
            paper: content.paper,
            repetitions,
            statistic,
            attempts: content.attempts,
            keep_late: content.keep_late,
            seed: content.seed,
            digest: hex(&Sha256::digest(text)),
            keys,
            metrics,
            points,
            plots,
        })
    }

    /// Looks for the programs that it starts.
    ///
    /// # Errors
    /// The first that is not on this machine, and how to install it.
    pub fn find_programs(&self) -> Result<(), ExperimentError> {
        programs::find(&self.points).map_err(|problem| problem.of(&self.file))
    }

    /// What it is called: the file's name without its extension.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is about, in a line.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Where in the papers it is from.
    pub fn paper(&self) -> Option<&str> {
        self.paper.as_deref()
    }

    /// How many trials there are: the points, as often as they are repeated.
    pub fn trials(&self) -> usize {
        self.points.len() * self.repetitions
    }

    /// The trial of a number from 0: the repetition, from 0, and the point. All points come once
    /// before any comes again.
    fn trial(&self, number: usize) -> (usize, &Point) {
        (number / self.points.len(), &self.points[number % self.points.len()])
    }

    /// The seed of a repetition. All points have the same, so that they see the same chances.
    fn seed_of(&self, repetition: usize) -> u64 {
        let mut random = fastrand::Rng::with_seed(self.seed);
        repeat_with(|| random.u64(..)).nth(repetition).unwrap_or_default()
    }
}

impl Point {
    fn new(file: &File, sweep: &Sweep, combination: Combination) -> Result<Self, Problem> {
        let Filled { trial, combination, programs } = template::trial(file, sweep, combination)?;
        let predictions = predict::all(&file.predict, &trial, &combination)?;
        Ok(Self { combination, trial, programs, predictions })
    }

    /// The values of the swept keys.
    fn swept(&self) -> &Table {
        &self.combination.swept
    }
}

/// What is measured, in the file's order.
fn metrics(file: &File, points: &[Point]) -> Result<Vec<Metric>, Problem> {
    let Some(names) = file.measure.get("values").and_then(toml::Value::as_table) else {
        let what = "must be a table, the same for all trials: write [measure.values]";
        return Err(Problem::new("measure.values", what));
    };
    let unit = |name| {
        let values = points.first().and_then(|point| point.trial.measure.values.get(name));
        values.map(|value| value.unit.clone()).unwrap_or_default()
    };
    Ok(names.keys().map(|name| Metric { name: name.clone(), unit: unit(name) }).collect())
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}
