//! An experiment's file as it is written: placeholders without their values.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::Problem;
use super::plot::Plot;
use super::summary::Statistic;

/// The keys of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) about: String,
    pub(super) paper: Option<String>,
    repetitions: Option<usize>,
    seeds: Option<usize>,
    #[serde(default = "thrice")]
    pub(super) attempts: usize,
    #[serde(default)]
    pub(super) keep_late: bool,
    #[serde(default = "first")]
    pub(super) seed: u64,
    #[serde(default)]
    pub(super) sweep: Table,
    pub(super) hosts: Table,
    #[serde(default)]
    pub(super) links: Table,
    #[serde(default)]
    pub(super) files: Table,
    #[serde(default)]
    pub(super) zeros: Table,
    #[serde(default)]
    pub(super) programs: Vec<Value>,
    pub(super) measure: Table,
    /// The predictor of a value, by the value's name.
    #[serde(default)]
    pub(super) predict: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) plots: Vec<Plot>,
}

impl File {
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        let table: Table = toml::from_str(text).map_err(|error| syntax(text, &error))?;
        read("", Value::Table(table))
    }

    /// How often each point is measured.
    pub(super) fn repetitions(&self) -> usize {
        self.seeds.or(self.repetitions).unwrap_or(1)
    }

    /// What is told of all repetitions of a point.
    pub(super) fn statistic(&self) -> Statistic {
        if self.seeds.is_some() { Statistic::Interval } else { Statistic::Range }
    }

    /// Checks what does not depend on what is varied.
    pub(super) fn check(&self) -> Result<(), Problem> {
        for (key, said) in [("about", Some(self.about.as_str())), ("paper", self.paper.as_deref())]
        {
            if said.is_some_and(|said| said.contains(char::is_control)) {
                return Err(Problem::new(
                    key,
                    "has several lines or is no plain text; write one line",
                ));
            }
        }
        if self.repetitions.is_some() && self.seeds.is_some() {
            let what = "is another word for repetitions, each with a seed; leave out one of them";
            return Err(Problem::new("seeds", what));
        }
        for (key, number) in [
            ("repetitions", self.repetitions),
            ("seeds", self.seeds),
            ("attempts", Some(self.attempts)),
        ] {
            if number == Some(0) {
                return Err(Problem::new(key, "is 0; give at least 1"));
            }
        }
        Ok(())
    }
}

/// What the value at `key` says.
pub(super) fn read<T: DeserializeOwned>(key: &str, value: Value) -> Result<T, Problem> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let below = error.path().to_string();
        let key = match (key, below.as_str()) {
            ("", ".") => String::from("the file"),
            (_, ".") => key.to_owned(),
            ("", _) => below,
            _ => format!("{key}.{below}"),
        };
        let what = in_plain_words(error.inner().message());
        Problem::new(key, format!("{what}; see docs/formats/experiment.md"))
    })
}

/// The message without the names of Rust's numbers.
pub(crate) fn in_plain_words(message: &str) -> String {
    let message = message.replace("expected f64", "expected a number");
    // TOML's numbers end where those of 64 bits with a sign do.
    let most = i64::MAX.cast_unsigned();
    let whole =
        [("u16", u16::MAX.into()), ("u32", u32::MAX.into()), ("u64", most), ("usize", most)];
    whole.iter().fold(message, |message, (name, most)| {
        let words = format!("expected a whole number from 0 to {most}");
        message.replace(&format!("expected {name}"), &words)
    })
}

fn syntax(text: &str, error: &toml::de::Error) -> Problem {
    let at = error.span().map_or(0, |span| span.start);
    let line = text.get(..at).unwrap_or_default().matches('\n').count() + 1;
    let said = error.span().and_then(|span| text.get(span)).unwrap_or_default();
    let said = if said.is_empty() { String::new() } else { format!(" ({said})") };
    Problem::new(format!("line {line}"), format!("{}{said}; this is not TOML", error.message()))
}

fn thrice() -> usize {
    3
}

fn first() -> u64 {
    1
}
