//! An experiment's file, with its placeholders.

mod check;
pub(super) mod compare;
mod optimal;
pub(super) mod plot;
pub(super) mod predict;
pub(super) mod programs;
mod range;
mod sites;
pub(super) mod sweep;
pub(super) mod template;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::error::ExperimentProblem;
use super::schedule::PointOrder;
use super::statistic::SummaryStatistic;
use compare::ComparisonDefinition;
use plot::PlotDefinition;

/// The keys of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExperimentFile {
    pub(crate) about: String,
    pub(crate) paper: Option<String>,
    repetitions: Option<usize>,
    seeds: Option<usize>,
    #[serde(default = "thrice")]
    pub(crate) attempts: usize,
    #[serde(default)]
    pub(crate) keep_late: bool,
    #[serde(default = "first")]
    pub(crate) seed: u64,
    #[serde(default)]
    pub(crate) order: PointOrder,
    #[serde(default)]
    pub(crate) sweep: Table,
    pub(crate) hosts: Table,
    #[serde(default)]
    pub(crate) links: Table,
    #[serde(default)]
    pub(crate) files: Table,
    #[serde(default)]
    pub(crate) zeros: Table,
    #[serde(default)]
    pub(crate) programs: Vec<Value>,
    pub(crate) measure: Table,
    /// The predictor of a value, by the value's name.
    #[serde(default)]
    pub(crate) predict: BTreeMap<String, String>,
    pub(crate) compare: Option<ComparisonDefinition>,
    #[serde(default)]
    pub(crate) plots: Vec<PlotDefinition>,
}

impl ExperimentFile {
    pub(crate) fn parse(text: &str) -> Result<Self, ExperimentProblem> {
        let table: Table = toml::from_str(text).map_err(|error| syntax(text, &error))?;
        read("", Value::Table(table))
    }

    /// The number of measurements of each point.
    pub(crate) fn repetitions(&self) -> usize {
        self.seeds.or(self.repetitions).unwrap_or(1)
    }

    /// How the repetitions of a point are summarized.
    pub(crate) fn statistic(&self) -> SummaryStatistic {
        if self.seeds.is_some() { SummaryStatistic::Interval } else { SummaryStatistic::Range }
    }

    /// Checks what is the same for all points.
    pub(crate) fn check(&self) -> Result<(), ExperimentProblem> {
        for (key, line) in [("about", Some(self.about.as_str())), ("paper", self.paper.as_deref())]
        {
            if line.is_some_and(|line| line.contains(char::is_control)) {
                return Err(ExperimentProblem::new(
                    key,
                    "has several lines or is no plain text; write one line",
                ));
            }
        }
        if self.repetitions.is_some() && self.seeds.is_some() {
            let what = "is another word for repetitions, each with a seed; leave out one of them";
            return Err(ExperimentProblem::new("seeds", what));
        }
        for (key, number) in [
            ("repetitions", self.repetitions),
            ("seeds", self.seeds),
            ("attempts", Some(self.attempts)),
        ] {
            if number == Some(0) {
                return Err(ExperimentProblem::new(key, "is 0; give at least 1"));
            }
        }
        Ok(())
    }
}

/// Parses the value at `key`.
pub(crate) fn read<T: DeserializeOwned>(key: &str, value: Value) -> Result<T, ExperimentProblem> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let below = error.path().to_string();
        let key = match (key, below.as_str()) {
            ("", ".") => String::from("the file"),
            (_, ".") => key.to_owned(),
            ("", _) => below,
            _ => format!("{key}.{below}"),
        };
        let what = in_plain_words(error.inner().message());
        ExperimentProblem::new(key, format!("{what}; see docs/formats/experiment.md"))
    })
}

/// Replaces the names of Rust's number types in a message.
fn in_plain_words(message: &str) -> String {
    let message = message.replace("expected f64", "expected a number");
    // TOML's integers are signed 64-bit numbers.
    let most = i64::MAX.cast_unsigned();
    let whole =
        [("u16", u16::MAX.into()), ("u32", u32::MAX.into()), ("u64", most), ("usize", most)];
    whole.iter().fold(message, |message, (name, most)| {
        let words = format!("expected a whole number from 0 to {most}");
        message.replace(&format!("expected {name}"), &words)
    })
}

fn syntax(text: &str, error: &toml::de::Error) -> ExperimentProblem {
    let at = error.span().map_or(0, |span| span.start);
    let line = text.get(..at).unwrap_or_default().matches('\n').count() + 1;
    let found = error.span().and_then(|span| text.get(span)).unwrap_or_default();
    let found = if found.is_empty() { String::new() } else { format!(" ({found})") };
    ExperimentProblem::new(
        format!("line {line}"),
        format!("{}{found}; this is not TOML", error.message()),
    )
}

fn thrice() -> usize {
    3
}

fn first() -> u64 {
    1
}
