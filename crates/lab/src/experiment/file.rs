//! An experiment's file as it is written: placeholders without their values.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::Problem;
use super::plot::Plot;

/// The keys of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) about: String,
    pub(super) paper: Option<String>,
    #[serde(default = "once")]
    pub(super) repetitions: usize,
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
fn in_plain_words(message: &str) -> String {
    let message = message.replace("expected f64", "expected a number");
    let whole = ["u16", "u32", "u64", "usize"].map(|name| format!("expected {name}"));
    whole.iter().fold(message, |message, name| message.replace(name, "expected a whole number"))
}

fn syntax(text: &str, error: &toml::de::Error) -> Problem {
    let at = error.span().map_or(0, |span| span.start);
    let line = text.get(..at).unwrap_or_default().matches('\n').count() + 1;
    Problem::new(format!("line {line}"), format!("{}; this is not TOML", error.message()))
}

fn once() -> usize {
    1
}

fn first() -> u64 {
    1
}
