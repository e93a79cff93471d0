//! A swept key with a range of values, whose bounds may be other keys.

use serde::Deserialize;
use toml::{Table, Value};

use super::read;
use crate::experiment::error::ExperimentProblem;
use crate::experiment::value::{number, written};

/// A range of numbers with a step.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SweepRange {
    from: SweepBound,
    to: SweepBound,
    step: f64,
}

/// A bound of a range.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum SweepBound {
    Number(f64),
    /// `{key}`: the value of a key swept before.
    Key(String),
}

/// The maximum number of values. A larger number is probably a mistake in the step.
const MAX_VALUES: f64 = 10_000.0;

/// The part of a step by which the last value may exceed the range because of rounding.
const ROUNDING: f64 = 1e-6;

impl SweepRange {
    /// Parses the table as a range; `None` if it has no `step`.
    pub(crate) fn read(at: &str, table: &Table) -> Option<Result<Self, ExperimentProblem>> {
        table.contains_key("step").then(|| {
            let range: Self = read(at, Value::Table(table.clone()))?;
            if range.step.is_finite() && range.step > 0.0 {
                return Ok(range);
            }
            Err(ExperimentProblem::new(
                format!("{at}.step"),
                format!("is {}; give more than 0", written(range.step)),
            ))
        })
    }

    /// Its values for the given values of earlier keys. None if it begins after its end.
    pub(crate) fn values(&self, at: &str, swept: &Table) -> Result<Vec<Value>, ExperimentProblem> {
        let from = self.from.value(&format!("{at}.from"), swept)?;
        let to = self.to.value(&format!("{at}.to"), swept)?;
        let steps = ((to - from) / self.step + ROUNDING).floor();
        if steps >= MAX_VALUES {
            return Err(ExperimentProblem::new(
                at,
                format!("has more than {MAX_VALUES} values; give larger steps"),
            ));
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most 10,000")]
        let steps = steps as i32;
        // Removes rounding errors such as that of 0.30000000000000004.
        let value = |i| ((from + f64::from(i) * self.step) * 1e9).round() / 1e9;
        Ok((0..=steps).map(|i| Value::Float(value(i))).collect())
    }
}

impl SweepBound {
    fn value(&self, at: &str, swept: &Table) -> Result<f64, ExperimentProblem> {
        let value = match self {
            Self::Number(value) => Some(*value),
            Self::Key(text) => {
                let name = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
                name.and_then(|name| swept.get(name)).and_then(number)
            }
        };
        value.filter(|value| value.is_finite()).ok_or_else(|| {
            ExperimentProblem::new(
                at,
                "is no number; give one, or {KEY} of a key with numbers swept before",
            )
        })
    }
}
