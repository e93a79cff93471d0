//! What an experiment gave, and the files that hold it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::journal::Journal;
use super::summary::Statistic;
use super::value::said;
use super::{Experiment, Machine, Problem, Record, RunError};

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

impl Results {
    pub(super) fn new(experiment: &Experiment, journal: Journal) -> Self {
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

    /// Reads the document `results.json` of an experiment, as any version has written it, and judges
    /// the trials by the criteria of today.
    ///
    /// # Errors
    /// When it is no such document, or not of this experiment's points.
    pub fn read(experiment: &Experiment, document: &[u8]) -> Result<Self, String> {
        let read = serde_json::from_slice(document);
        let mut results: Self = read.map_err(|error| format!("these are no results: {error}"))?;
        let points = experiment.points.iter().cycle();
        let is_of = |(trial, point): (&Record, &super::Point)| {
            trial.point == *point.swept()
                && trial.values.keys().eq(point.trial.measure.values.keys())
        };
        let whole = results.repetitions * experiment.points.len();
        if results.trials.len() != whole || !results.trials.iter().zip(points).all(is_of) {
            return Err(format!("these results are not of the points of {}", experiment.name));
        }
        results.trials.iter_mut().for_each(|trial| trial.judge(experiment.keep_late));
        results.invalid = invalid(&results.trials);
        Ok(results)
    }

    /// Writes the documents and the graphs into a directory, over what is there already.
    ///
    /// # Errors
    /// When they cannot be written, or a graph cannot be drawn.
    pub fn write(&self, experiment: &Experiment, directory: &Path) -> Result<(), RunError> {
        let write = |name: &str, bytes: io::Result<Vec<u8>>| {
            let path = directory.join(name);
            let written = bytes.and_then(|bytes| replace(&path, &bytes));
            written.map_err(|error| RunError::Writing(path, error))
        };
        write("results.csv", self.csv())?;
        write("results.json", self.json())?;
        for plot in &experiment.plots {
            write(&plot.file_name(), Ok(plot.draw(experiment, self)?.into_bytes()))?;
        }
        Ok(())
    }

    fn json(&self) -> io::Result<Vec<u8>> {
        let mut document = serde_json::to_vec(self)?;
        document.push(b'\n');
        Ok(document)
    }

    /// A row for each trial. What is missing is empty.
    fn csv(&self) -> io::Result<Vec<u8>> {
        let mut table = csv::Writer::from_writer(Vec::new());
        table.write_record(columns(&self.keys, &self.values))?;
        for trial in &self.trials {
            let number = |number: Option<&f64>| number.map(f64::to_string).unwrap_or_default();
            let mut row = vec![trial.repetition.to_string()];
            row.extend(
                self.keys.iter().map(|key| trial.point.get(key).map(said).unwrap_or_default()),
            );
            for Metric { name, .. } in &self.values {
                row.push(number(trial.values.get(name)));
                row.push(number(trial.predictions.get(name)));
            }
            row.push(number(Some(&trial.late_ms)));
            row.push(trial.missed.to_string());
            row.push(trial.attempts.to_string());
            row.push(trial.invalid.to_string());
            table.write_record(row)?;
        }
        table.into_inner().map_err(csv::IntoInnerError::into_error)
    }
}

fn invalid(trials: &[Record]) -> usize {
    trials.iter().filter(|trial| trial.invalid).count()
}

/// The columns of the table of trials.
fn columns(keys: &[String], metrics: &[Metric]) -> Vec<String> {
    let mut columns = vec![String::from("repetition")];
    columns.extend_from_slice(keys);
    columns.extend(metrics.iter().flat_map(|Metric { name, .. }| [name.clone(), predicted(name)]));
    columns.extend(["late_ms", "missed", "attempts", "invalid"].map(String::from));
    columns
}

/// What the prediction of a value is called.
fn predicted(name: &str) -> String {
    format!("{name}_predicted")
}

/// Checks that each column has a name of its own.
pub(super) fn check_columns(keys: &[String], metrics: &[Metric]) -> Result<(), Problem> {
    let columns = columns(keys, metrics);
    for (i, name) in columns.iter().enumerate() {
        if columns[..i].contains(name) {
            let what = format!("{name} would be two columns of the results; give another name");
            let key = if keys.contains(name) { "sweep" } else { "measure.values" };
            return Err(Problem::new(format!("{key}.{name}"), what));
        }
    }
    Ok(())
}

/// Puts a file in the place of another, at once.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut unfinished = path.to_owned();
    unfinished.as_mut_os_string().push(".unfinished");
    // One may be left from a run that was killed.
    let _ = fs::remove_file(&unfinished);
    let written = File::create_new(&unfinished).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written
}
