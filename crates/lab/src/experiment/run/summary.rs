//! Summaries of the repetitions of each point.

use toml::Table;

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
    /// The points, in their order.
    pub fn summaries(&self) -> Vec<Summary<'_>> {
        let points = self.trials.len().checked_div(self.repetitions).unwrap_or(0);
        (0..points).map(|point| self.summary(point, points)).collect()
    }

    /// The point with a number, from 0, out of `points`.
    fn summary(&self, number: usize, points: usize) -> Summary<'_> {
        let trials = || self.trials.iter().skip(number).step_by(points);
        let spread = |name: &String| {
            let valid = trials().filter(|trial| !trial.invalid);
            let numbers = valid.filter_map(|trial| trial.values.get(name).copied()).collect();
            Spread::of(self.statistic, numbers)
        };
        let first = &self.trials[number];
        let names = || self.values.iter().map(|metric| &metric.name);
        Summary {
            point: &first.point,
            values: names().map(spread).collect(),
            predictions: names().map(|name| first.predictions.get(name).copied()).collect(),
            invalid: trials().filter(|trial| trial.invalid).count(),
        }
    }
}

impl Summary<'_> {
    /// The values of the swept keys, as text.
    pub fn settings(&self) -> impl Iterator<Item = String> {
        self.point.values().map(display)
    }
}
