//! Summaries of the repetitions of each point.

use std::collections::BTreeMap;

use toml::Table;

use super::journal::Record;
use super::results::Results;
use crate::experiment::statistic::Spread;
use crate::experiment::value::display;

/// A point and a summary of its measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary<'a> {
    /// The values of the swept keys.
    pub point: &'a Table,
    /// The summaries of the valid trials, in the order of [`Results::values`]; `None` if there are
    /// none.
    pub values: Vec<Option<Spread>>,
    /// The model's predictions, in the same order.
    pub predictions: Vec<Option<f64>>,
    /// The number of its invalid trials, which are left out.
    pub invalid: usize,
}

impl Results {
    /// The points of which a trial has run, in their order.
    pub fn summaries(&self) -> Vec<Summary<'_>> {
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        let mut points: Vec<Vec<&Record>> = Vec::new();
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
    fn summary<'a>(&'a self, trials: &[&'a Record]) -> Summary<'a> {
        let spread = |name: &String| {
            let valid = trials.iter().filter(|trial| !trial.invalid);
            let numbers = valid.filter_map(|trial| trial.values.get(name).copied()).collect();
            Spread::of(self.statistic, numbers)
        };
        let first = trials[0];
        let names = || self.values.iter().map(|metric| &metric.name);
        Summary {
            point: &first.point,
            values: names().map(spread).collect(),
            predictions: names().map(|name| first.predictions.get(name).copied()).collect(),
            invalid: trials.iter().filter(|trial| trial.invalid).count(),
        }
    }
}

impl Summary<'_> {
    /// The values of the swept keys, as text.
    pub fn settings(&self) -> impl Iterator<Item = String> {
        self.point.values().map(display)
    }
}
