//! An experiment's file as it is written: placeholders without their values.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use libc::c_int;
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

/// The longest file, in bytes.
const LONGEST: usize = 1 << 20;

/// The most repetitions.
const MOST_REPETITIONS: usize = 1000;

/// The most attempts at a trial.
const MOST_ATTEMPTS: usize = 10;

/// The most programs, graphs and measured values.
const MOST: usize = 100;

/// The text of an experiment's file.
///
/// # Errors
/// When it cannot be read; of kind [`InvalidData`](io::ErrorKind::InvalidData) if it is not text in
/// UTF-8. What is no regular file, or longer than 1 MiB, is not read.
pub fn text(path: &Path) -> io::Result<String> {
    let file = regular_file(OpenOptions::new().read(true), path, 0)?;
    let mut bytes = Vec::new();
    file.take(LONGEST as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > LONGEST {
        return Err(io::Error::other("it is longer than 1 MiB; an experiment says less"));
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Opens a file that is neither a device nor a pipe, whose content might never end. With further flags of the
/// system's.
pub(super) fn regular_file(
    options: &mut OpenOptions,
    path: &Path,
    flags: c_int,
) -> io::Result<fs::File> {
    // Without waiting for whoever is at the other end of a pipe.
    let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | flags).open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::other("it is not a regular file; name another, or remove it"))
}

impl File {
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        if text.len() > LONGEST {
            return Err(Problem::new("the file", "is longer than 1 MiB; say less"));
        }
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
        for (key, number, most) in [
            ("repetitions", self.repetitions.unwrap_or(1), MOST_REPETITIONS),
            ("seeds", self.seeds.unwrap_or(1), MOST_REPETITIONS),
            ("attempts", self.attempts, MOST_ATTEMPTS),
        ] {
            if !(1..=most).contains(&number) {
                let what = format!("{number} is not from 1 to {most}; give another number");
                return Err(Problem::new(key, what));
            }
        }
        let values = self.measure.get("values").and_then(Value::as_table).map_or(0, Table::len);
        for (key, count) in [
            ("programs", self.programs.len()),
            ("plots", self.plots.len()),
            ("measure.values", values),
        ] {
            if count > MOST {
                let what = format!("are {count}, more than {MOST}; leave some out");
                return Err(Problem::new(key, what));
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
