//! A swept key that goes in steps, whose ends may be other keys.

use serde::Deserialize;
use toml::{Table, Value};

use super::read;
use crate::experiment::error::Problem;
use crate::experiment::value::{number, written};

/// From one number to another, in steps.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Range {
    from: Bound,
    to: Bound,
    step: f64,
}

/// An end of a range.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Bound {
    Number(f64),
    /// `{key}`: what a key swept before has.
    Key(String),
}

/// The most values; more are a mistake in the step.
const MAX_VALUES: f64 = 10_000.0;

/// A last step may be this part of one beyond the end: what rounding costs.
const ROUNDING: f64 = 1e-6;

impl Range {
    /// The range that a table is, if it is meant to be one.
    pub(crate) fn read(at: &str, table: &Table) -> Option<Result<Self, Problem>> {
        table.contains_key("step").then(|| {
            let range: Self = read(at, Value::Table(table.clone()))?;
            if range.step.is_finite() && range.step > 0.0 {
                return Ok(range);
            }
            Err(Problem::new(
                format!("{at}.step"),
                format!("is {}; give more than 0", written(range.step)),
            ))
        })
    }

    /// Its values where the keys swept before have these; none if it begins beyond its end.
    pub(crate) fn values(&self, at: &str, swept: &Table) -> Result<Vec<Value>, Problem> {
        let from = self.from.value(&format!("{at}.from"), swept)?;
        let to = self.to.value(&format!("{at}.to"), swept)?;
        let steps = ((to - from) / self.step + ROUNDING).floor();
        if steps >= MAX_VALUES {
            return Err(Problem::new(
                at,
                format!("has more than {MAX_VALUES} values; give larger steps"),
            ));
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most 10,000")]
        let steps = steps as i32;
        // Without the last digits, which rounding makes: 0.30000000000000004.
        let value = |i| ((from + f64::from(i) * self.step) * 1e9).round() / 1e9;
        Ok((0..=steps).map(|i| Value::Float(value(i))).collect())
    }
}

impl Bound {
    fn value(&self, at: &str, swept: &Table) -> Result<f64, Problem> {
        let value = match self {
            Self::Number(value) => Some(*value),
            Self::Key(text) => {
                let name = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
                name.and_then(|name| swept.get(name)).and_then(number)
            }
        };
        value.filter(|value| value.is_finite()).ok_or_else(|| {
            Problem::new(at, "is no number; give one, or {KEY} of a key with numbers swept before")
        })
    }
}
