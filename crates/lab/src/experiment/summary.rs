//! What the repetitions of each point gave together.

use toml::Table;

use super::Results;
use super::value::said;

/// A point: what was varied, and what it gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary<'a> {
    /// The values of the swept keys.
    pub point: &'a Table,
    /// What was measured, in the order of [`Results::values`]; `None` where nothing was.
    pub values: Vec<Option<Spread>>,
    /// What the model says, in the same order.
    pub predictions: Vec<Option<f64>>,
}

/// How some numbers are spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The one in the middle; of an even count, the mean of the two.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The greatest.
    pub most: f64,
}

impl Results {
    /// The points, in their order.
    pub fn summaries(&self) -> Vec<Summary<'_>> {
        let points = self.trials.len().checked_div(self.repetitions).unwrap_or(0);
        (0..points).map(|point| self.summary(point, points)).collect()
    }

    /// The point of a number from 0, of so many.
    fn summary(&self, number: usize, points: usize) -> Summary<'_> {
        let trials = || self.trials.iter().skip(number).step_by(points);
        let spread = |name: &String| {
            Spread::of(trials().filter_map(|trial| trial.values.get(name).copied()).collect())
        };
        let first = &self.trials[number];
        let names = || self.values.iter().map(|metric| &metric.name);
        Summary {
            point: &first.point,
            values: names().map(spread).collect(),
            predictions: names().map(|name| first.predictions.get(name).copied()).collect(),
        }
    }
}

impl Summary<'_> {
    /// The values of the swept keys, as text.
    pub fn settings(&self) -> impl Iterator<Item = String> {
        self.point.values().map(said)
    }
}

impl Spread {
    /// How these are spread; `None` if there are none.
    fn of(mut numbers: Vec<f64>) -> Option<Self> {
        numbers.sort_by(f64::total_cmp);
        let (least, most) = (*numbers.first()?, *numbers.last()?);
        let half = numbers.len() / 2;
        let median = f64::midpoint(numbers[half], numbers[(numbers.len() - 1) / 2]);
        Some(Self { median, least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let median = |numbers: &[f64]| Spread::of(numbers.to_vec()).map(|spread| spread.median);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[9.0, 1.0, 2.0, 4.0]), Some(3.0));
        let spread = Spread { median: 2.0, least: 1.0, most: 9.0 };
        assert_eq!(Spread::of(vec![9.0, 1.0, 2.0]), Some(spread));
    }
}
