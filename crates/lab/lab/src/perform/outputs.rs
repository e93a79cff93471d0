//! What the parties of a trial print, while they run and afterwards.
//!
//! A driver writes the output of each party to a file of [`directory`] that is named after the
//! party. New lines are reported while the trial measures, and at the end the files are kept in the
//! directory of the results.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::sandbox::SCRATCH;

/// How much of a file is reported at a time. A longer line is reported in pieces.
const CHUNK: usize = 16 << 10;

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

/// Follows the files of a trial.
pub(super) struct OutputFollower {
    directory: PathBuf,
    /// The trial's number.
    number: usize,
    /// How much of each file was reported, by the party.
    read: BTreeMap<String, u64>,
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
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir(&directory)?,
        }
        Ok(Self { directory, number, read: BTreeMap::new() })
    }

    /// The lines that were printed since the last time: of each party at most 16 KiB. What cannot
    /// be read is left out. At the end of the trial, the last line may be incomplete.
    pub(super) fn news(&mut self, is_end: bool) -> Vec<TrialOutput> {
        let mut news = Vec::new();
        for (party, path) in files(&self.directory) {
            let offset = self.read.entry(party.clone()).or_default();
            let Ok(text) = lines_from(&path, offset, is_end) else { continue };
            if !text.is_empty() {
                news.push(TrialOutput { number: self.number, party, text });
            }
        }
        news
    }
}

/// The files of a directory, by the party.
fn files(directory: &Path) -> BTreeMap<String, PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|it| Some((it.file_name().into_string().ok()?, it.path()))).collect()
}

/// Reads complete lines from a position, and advances the position.
fn lines_from(path: &Path, offset: &mut u64, is_end: bool) -> io::Result<String> {
    let mut bytes = vec![0; CHUNK];
    let length = File::open(path)?.read_at(&mut bytes, *offset)?;
    let complete = bytes[..length].iter().rposition(|byte| *byte == b'\n').map(|last| last + 1);
    let end = match complete {
        Some(end) if !is_end => end,
        None if !is_end && length < CHUNK => 0,
        _ => length,
    };
    *offset += end as u64;
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

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
