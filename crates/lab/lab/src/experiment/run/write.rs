//! Writes the results: CSV, JSON and graphs.

use std::io;
use std::path::Path;

use keys::storage::{self, Durability};

use super::results::ExperimentResults;
use crate::experiment::error::ExperimentRunError;
use crate::experiment::value::display;
use crate::experiment::{
    ComparisonDefinition, Experiment, ExperimentMetric, ResultsComparison, columns,
};

impl ExperimentResults {
    /// Writes the documents and graphs into a directory and replaces existing ones.
    ///
    /// # Errors
    /// If they cannot be written, or a graph cannot be drawn.
    pub fn write(
        &self,
        experiment: &Experiment,
        directory: &Path,
    ) -> Result<(), ExperimentRunError> {
        let write = |name: &str, bytes: io::Result<Vec<u8>>| {
            let path = directory.join(name);
            let replace =
                |bytes: Vec<u8>| storage::replace(&path, &bytes, 0o666, Durability::Synced);
            let written = bytes.and_then(replace);
            written.map_err(|error| ExperimentRunError::Writing(path, error))
        };
        write("results.csv", self.csv())?;
        write("results.json", self.json())?;
        if let Some(comparison) = self.comparison() {
            write("comparison.csv", comparison_csv(&comparison))?;
        }
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

    /// A row for each trial. Missing values are empty.
    fn csv(&self) -> io::Result<Vec<u8>> {
        let mut table = csv::Writer::from_writer(Vec::new());
        let mut columns = columns::all(&self.keys, &self.values);
        if !self.sites.is_empty() {
            columns.push(columns::PATH_CHANGED.into());
        }
        table.write_record(columns)?;
        for trial in &self.trials {
            let number = |number: Option<&f64>| number.map(f64::to_string).unwrap_or_default();
            let mut row = vec![trial.repetition.to_string()];
            row.extend(
                self.keys.iter().map(|key| trial.point.get(key).map(display).unwrap_or_default()),
            );
            for ExperimentMetric { name, .. } in &self.values {
                row.push(number(trial.values.get(name)));
                row.push(number(trial.predictions.get(name)));
            }
            row.push(number(Some(&trial.late_ms)));
            row.push(trial.missed.to_string());
            row.push(trial.attempts.to_string());
            row.push(trial.invalid.to_string());
            if !self.sites.is_empty() {
                row.push(trial.path_changed.to_string());
            }
            table.write_record(row)?;
        }
        table.into_inner().map_err(csv::IntoInnerError::into_error)
    }
}

/// A row for each complete group.
fn comparison_csv(comparison: &ResultsComparison<'_>) -> io::Result<Vec<u8>> {
    let ComparisonDefinition { of, value, limits, .. } = comparison.compare;
    let mut table = csv::Writer::from_writer(Vec::new());
    let mut head: Vec<String> = comparison.keys.iter().map(ToString::to_string).collect();
    head.extend(["best".into(), format!("{value}_best"), format!("{value}_{of}")]);
    head.push(format!("{of}_over_best"));
    head.extend(limits.keys().map(|name| format!("{of}_over_{name}")));
    table.write_record(head)?;
    for group in &comparison.groups {
        let mut row = group.settings.clone();
        row.push(group.best.clone());
        let numbers = [group.least_of_others, group.value, group.over_best()];
        row.extend(numbers.iter().chain(&group.ratios).map(f64::to_string));
        table.write_record(row)?;
    }
    table.into_inner().map_err(csv::IntoInnerError::into_error)
}
