//! What the parties of a trial print, while they run and afterwards.
//!
//! A driver writes the output of each party to a file of [`directory`] that is named after the
//! party. New lines are reported while the trial measures, and at the end the files are kept in the
//! directory of the results.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::followed::{FollowedDirectory, files};
use crate::sandbox::SCRATCH;

/// Lines that a party of a trial has printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrialOutput {
    /// The trial's number, from 1.
    pub number: usize,
    /// The party, such as `client`.
    pub party: String,
    /// The new lines.
    pub text: String,
}

/// The directory for the files of the trial that runs.
pub(super) fn directory() -> PathBuf {
    Path::new(SCRATCH).join("outputs")
}

/// Keeps the outputs in the directory for results, as `NUMBER-PARTY.log`.
pub(super) fn keep(number: usize, results: &Path) -> io::Result<()> {
    for (party, path) in files(&directory()) {
        let mut from = File::open(path)?;
        let to = results.join(format!("{number}-{party}.log"));
        // A new file: an existing one may be a link to another file.
        match fs::remove_file(&to) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => io::copy(&mut from, &mut File::create_new(to)?)?,
        };
    }
    Ok(())
}

/// Follows the outputs of a trial.
pub(super) struct OutputFollower {
    files: FollowedDirectory,
    /// The trial's number.
    number: usize,
}

impl OutputFollower {
    /// Empties the directory. The measurement of the trial with this number begins now.
    ///
    /// # Errors
    /// If the directory cannot be emptied.
    pub(super) fn new(number: usize) -> io::Result<Self> {
        Self::of(directory(), number)
    }

    fn of(directory: PathBuf, number: usize) -> io::Result<Self> {
        Ok(Self { files: FollowedDirectory::new(directory)?, number })
    }

    /// The lines that were printed since the last time. At the end of the trial, the last line may
    /// be incomplete.
    pub(super) fn news(&mut self, is_end: bool) -> Vec<TrialOutput> {
        let news = self.files.news(is_end).into_iter();
        let output = |(party, lines): (String, Vec<u8>)| {
            let text = String::from_utf8_lossy(&lines).into_owned();
            TrialOutput { number: self.number, party, text }
        };
        news.map(output).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::followed::CHUNK;
    use super::*;

    #[test]
    fn lines_are_reported_once_they_are_complete() {
        let place = tempfile::tempdir().unwrap();
        let mut follower = OutputFollower::of(place.path().join("outputs"), 2).unwrap();
        assert_eq!(follower.news(false), []);
        let mut file = File::create(place.path().join("outputs/server")).unwrap();
        file.write_all(b"listening\nis re").unwrap();
        let said =
            |text: &str| vec![TrialOutput { number: 2, party: "server".into(), text: text.into() }];
        assert_eq!(follower.news(false), said("listening\n"));
        assert_eq!(follower.news(false), []);
        file.write_all(b"ady\n\xff and").unwrap();
        assert_eq!(follower.news(false), said("is ready\n"));
        assert_eq!(follower.news(true), said("\u{fffd} and"));
        // A line that never ends is reported in pieces.
        file.write_all(&vec![b'x'; CHUNK + 1]).unwrap();
        assert_eq!(follower.news(false)[0].text.len(), CHUNK);
        assert_eq!(follower.news(false), []);
    }
}
