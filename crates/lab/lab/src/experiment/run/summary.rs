//! Summaries of the repetitions of each point.

use std::collections::BTreeMap;

use toml::Table;

use super::journal::TrialRecord;
use super::results::ExperimentResults;
use crate::experiment::statistic::SampleSpread;
use crate::experiment::value::display;

/// A point and a summary of its measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct PointSummary<'a> {
    /// The values of the swept keys.
    pub point: &'a Table,
    /// The summaries of the valid trials, in the order of [`ExperimentResults::values`]; `None` if
    /// there are none.
    pub values: Vec<Option<SampleSpread>>,
    /// The model's predictions, in the same order.
    pub predictions: Vec<Option<f64>>,
    /// The number of its invalid trials, which are left out.
    pub invalid: usize,
}

impl ExperimentResults {
    /// The points of which a trial has run, in their order.
    pub fn summaries(&self) -> Vec<PointSummary<'_>> {
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        let mut points: Vec<Vec<&TrialRecord>> = Vec::new();
        for trial in &self.trials {
            let place = *places.entry(trial.point.to_string()).or_insert(points.len());
            if place == points.len() {
                points.push(Vec::new());
            }
            points[place].push(trial);
        }
        points.iter().map(|trials| self.summary(trials)).collect()
    }

    /// The summary of the trials of a point, of which there is at least one.
    fn summary<'a>(&'a self, trials: &[&'a TrialRecord]) -> PointSummary<'a> {
        let spread = |name: &String| {
            let valid = trials.iter().filter(|trial| !trial.invalid);
            let numbers = valid.filter_map(|trial| trial.values.get(name).copied()).collect();
            SampleSpread::of(self.statistic, numbers)
        };
        let first = trials[0];
        let names = || self.values.iter().map(|metric| &metric.name);
        PointSummary {
            point: &first.point,
            values: names().map(spread).collect(),
            predictions: names().map(|name| first.predictions.get(name).copied()).collect(),
            invalid: trials.iter().filter(|trial| trial.invalid).count(),
        }
    }
}

impl PointSummary<'_> {
    /// The values of the swept keys, as text.
    pub fn settings(&self) -> impl Iterator<Item = String> {
        self.point.values().map(display)
    }
}
