//! Errors in an experiment's file or run.

use std::io;
use std::path::PathBuf;

use chart::ChartError;
use thiserror::Error;

use super::shard::TrialShard;
use crate::perform::TrialError;

/// An error in an experiment's file, in one line: where it is, what it is, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{file}: {key}: {problem}")]
pub struct ExperimentError {
    /// The file.
    pub file: String,
    /// The key, such as `links.a.both.loss`, or the line.
    pub key: String,
    /// The error, and what to do.
    pub problem: String,
}

/// An error in a file whose name is not known here.
#[derive(Debug)]
pub(crate) struct ExperimentProblem {
    key: String,
    what: String,
}

/// Why a document is not the results of an experiment.
#[derive(Debug, Error)]
pub enum ResultsError {
    /// It is not a document of results.
    #[error("these are no results: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Its points are not those of the experiment with this name.
    #[error("these results are not of the points of {0}")]
    OtherPoints(String),
}

/// Why a run has stopped. The journal has the trials that were finished.
#[derive(Debug, Error)]
pub enum ExperimentRunError {
    /// The journal is of another experiment text.
    #[error(
        "{} is of another experiment, or of this one before it was changed; \
         choose another place with --out, or remove that file", .0.display()
    )]
    Changed(PathBuf),
    /// The journal is of another machine, kernel or version.
    #[error(
        "{} was begun on another machine, with another kernel or by another version of sunder; \
         choose another place with --out, or remove that file", .0.display()
    )]
    Moved(PathBuf),
    /// The journal is of another shard: the journal, and which shard it is of.
    #[error(
        "{} has the trials of {}; choose another place with --out, or remove that file",
        .0.display(), match .1 { Some(shard) => format!("shard {shard}"), None => "all shards".into() }
    )]
    OtherShard(PathBuf, Option<TrialShard>),
    /// The journal is of a run on an emulated network, or at other sites.
    #[error(
        "{} was begun at other sites, or without sites; choose another place with --out, or remove \
         that file", .0.display()
    )]
    OtherSites(PathBuf),
    /// There is no journal to merge.
    #[error("cannot read {}: {}; name the directories with the results of the shards", .0.display(), .1)]
    Reading(PathBuf, io::Error),
    /// Two directories to merge have the same trial.
    #[error("{} and {} have the same trials; name each shard once", .0.display(), .1.display())]
    Twice(PathBuf, PathBuf),
    /// Trials are missing in the shards that are to be merged.
    #[error(
        "{missing} of {of} trials are missing; name the directories of all shards, and finish those \
         that were interrupted with the command that began them"
    )]
    Missing {
        /// How many are missing.
        missing: usize,
        /// The number of trials of the experiment.
        of: usize,
    },
    /// The invalid trials of a shard that is to be merged have not run again yet.
    #[error("the run in {} was interrupted; finish it with the command that began it", .0.display())]
    Unfinished(PathBuf),
    /// There are results already where merged ones are to be written.
    #[error("{} has trials already; choose another place with --out, or remove that file", .0.display())]
    NotEmpty(PathBuf),
    /// A line of the journal, counted from 1, was not written by a run.
    #[error(
        "{}, line {}: this is not what was measured; choose another place with --out, or remove that file",
        .0.display(), .1
    )]
    Broken(PathBuf, usize),
    /// Another run is writing there.
    #[error("{} is being written by another run; wait for it, or choose another place with --out", .0.display())]
    Busy(PathBuf),
    /// Results cannot be written.
    #[error("cannot write {}: {}{}", .0.display(), .1, advice(.1))]
    Writing(PathBuf, io::Error),
    /// A trial failed: its name, and why.
    #[error("{0}: {1}")]
    Trial(String, TrialError),
    /// A graph cannot be drawn.
    #[error(transparent)]
    Chart(#[from] ChartError),
}

/// The maximum number of characters of a key, and of each word in a message.
const MAX_LETTERS: usize = 100;

impl ExperimentProblem {
    pub(crate) fn new(key: impl Into<String>, what: impl Into<String>) -> Self {
        Self { key: key.into(), what: what.into() }
    }

    /// Adds the values of the swept keys for which the error occurs.
    pub(crate) fn with_sweep_values(self, point: &str) -> Self {
        let what =
            if point.is_empty() { self.what } else { format!("{} (with {point})", self.what) };
        Self { what, ..self }
    }

    pub(crate) fn in_file(self, file: &str) -> ExperimentError {
        let line = |text: &str| text.split(char::is_control).collect::<Vec<_>>().join(" ");
        let words = |text: String| {
            text.split(' ').map(|word| short(word, MAX_LETTERS)).collect::<Vec<_>>().join(" ")
        };
        let key = short(&line(&self.key), MAX_LETTERS);
        let problem = short(&words(line(&self.what)), 5 * MAX_LETTERS);
        ExperimentError { file: line(file), key, problem }
    }
}

/// The end of the text of an error of writing: what to do if the disk is full.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; make room there, or choose another place with --out"
        }
        _ => "",
    }
}

/// Shortens a text to at most `most` characters, and keeps its beginning and its end.
fn short(text: &str, most: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= most {
        return text.to_owned();
    }
    let part = most / 2;
    let (start, end) = (&letters[..part], &letters[letters.len() - part..]);
    start.iter().chain(&['\u{2026}']).chain(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_a_full_disk_names_the_place_and_what_to_do() {
        let full = io::ErrorKind::StorageFull.into();
        let shown = ExperimentRunError::Writing("runs/a".into(), full).to_string();
        assert!(shown.starts_with("cannot write runs/a: "), "{shown}");
        assert!(
            shown.ends_with("; make room there, or choose another place with --out"),
            "{shown}"
        );
    }
}
