//! The journal of a run: a line for the experiment and the machine, one for each trial, then one
//! for each time that an invalid trial was performed again. What is in it has been measured,
//! whatever happens afterwards.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use toml::Table;

use super::machine::Machine;
use crate::experiment::Experiment;
use crate::experiment::error::RunError;
use crate::perform::is_late;

/// A trial that was performed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Which repetition it was, from 1.
    pub repetition: usize,
    /// The values of the swept keys.
    pub point: Table,
    /// What was measured, by name.
    pub values: BTreeMap<String, f64>,
    /// What the model says, by the name of the value.
    pub predictions: BTreeMap<String, f64>,
    /// How late the links handed over packets, in ms, at the 99th percentile.
    pub late_ms: f64,
    /// How many packets were lost because a link had not fetched them in time.
    pub missed: u64,
    /// How often it was performed, until links were not late, or as often as the experiment allows.
    /// The figures are those of the time when they were least late. In the journal: which time it
    /// was.
    #[serde(default = "once")]
    pub attempts: usize,
    /// Whether it says more of the machine than of what was to be measured: links were late, and
    /// the experiment does not keep such trials. Tables' summaries and graphs leave it out.
    #[serde(default)]
    pub invalid: bool,
}

impl Record {
    /// Says whether it is invalid, whatever it said before.
    pub(crate) fn judge(&mut self, keep_late: bool) {
        self.invalid = is_late(self.late_ms, self.missed) && !keep_late;
    }
}

/// The first line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Heading {
    /// The digest of the experiment's text.
    experiment: String,
    /// When it was begun: UTC, RFC 3339.
    pub(crate) started: String,
    pub(crate) machine: Machine,
}

/// A journal, open for more. Nobody else can open it meanwhile.
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    pub(crate) heading: Heading,
    /// What it says of each trial so far, in the order of the trials.
    pub(crate) records: Vec<Record>,
}

/// How long a run that was interrupted may take until it is gone.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest journal, in bytes.
const MAX_LEN: u64 = 1 << 30;

impl Journal {
    /// Opens the journal in a directory, or begins it if no trial is in it. A last line that was
    /// not written to its end is removed.
    pub(crate) fn open(directory: &Path, experiment: &Experiment) -> Result<Self, RunError> {
        let path = directory.join("trials.jsonl");
        let failed = |error| RunError::Writing(path.clone(), error);
        let mut file = open_file(&path).map_err(failed)?;
        if !lock(&file).map_err(failed)? {
            return Err(RunError::Busy(path));
        }
        let bytes = read_all(&mut file).map_err(failed)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if whole == 0 && !is_torn_heading(&bytes) {
            return Err(RunError::Broken(path, 1));
        }
        let content = read_lines(&path, &bytes[..whole], experiment)?;
        let kept = if content.is_some() { whole as u64 } else { 0 };
        file.set_len(kept).and_then(|()| file.seek(SeekFrom::End(0))).map_err(failed)?;
        if let Some((heading, records)) = content {
            return Ok(Self { path, file, heading, records });
        }
        let heading = Heading::new(experiment);
        let mut journal = Self { path, file, heading: heading.clone(), records: Vec::new() };
        journal.write_line(&heading)?;
        Ok(journal)
    }

    /// Adds the trial of this number, from 0, and waits until it is on the disk.
    pub(crate) fn append(&mut self, number: usize, record: Record) -> Result<(), RunError> {
        self.write_line(&record)?;
        take(&mut self.records, number, record);
        Ok(())
    }

    fn write_line(&mut self, content: &impl Serialize) -> Result<(), RunError> {
        let line = serde_json::to_vec(content).map_err(io::Error::from);
        let written = line.and_then(|mut line| {
            line.push(b'\n');
            self.file.write_all(&line)?;
            self.file.sync_data()
        });
        written.map_err(|error| RunError::Writing(self.path.clone(), error))
    }
}

impl Heading {
    fn new(experiment: &Experiment) -> Self {
        let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        Self { experiment: experiment.digest.clone(), started, machine: Machine::here() }
    }

    /// Checks that it is of this experiment and this machine; `path` is the journal's.
    fn check(&self, path: &Path, experiment: &Experiment) -> Result<(), RunError> {
        if self.experiment != experiment.digest {
            return Err(RunError::Changed(path.to_owned()));
        }
        if self.machine != Machine::here() {
            return Err(RunError::Moved(path.to_owned()));
        }
        Ok(())
    }
}

fn once() -> usize {
    1
}

/// Opens the file, or makes it. What is in it will be cut and written to, so it is no other file by
/// another name, and nobody else's.
fn open_file(path: &Path) -> io::Result<File> {
    let other = |what: &str| {
        io::Error::other(format!("it {what}; remove it, or choose another place with --out"))
    };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    // Without waiting for whoever is at the other end of a pipe.
    options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW);
    let file = options.open(path).map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => other("is a link to another file"),
        _ => error,
    })?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file; name another, or remove it"));
    }
    if metadata.nlink() > 1 {
        return Err(other("has another name elsewhere"));
    }
    if metadata.uid() != geteuid().as_raw() {
        return Err(other(&format!("belongs to user {}", metadata.uid())));
    }
    Ok(file)
}

/// How each journal begins.
const BEGINNING: &[u8] = b"{\"experiment\":\"";

/// Whether this is what is left of a first line that was not written to its end.
fn is_torn_heading(bytes: &[u8]) -> bool {
    bytes.iter().zip(BEGINNING).all(|(byte, expected)| byte == expected)
}

fn read_all(file: &mut File) -> io::Result<Vec<u8>> {
    if file.metadata()?.len() > MAX_LEN {
        return Err(io::Error::other("it is longer than 1 GiB; choose another place with --out"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_LEN).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Takes the file for this run; `false` if another keeps it.
fn lock(file: &File) -> io::Result<bool> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() > deadline => return Ok(false),
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_TIMEOUT / 20),
        }
    }
}

/// What whole lines say, if there are trials among them and they are this experiment's.
fn read_lines(
    path: &Path,
    bytes: &[u8],
    experiment: &Experiment,
) -> Result<Option<(Heading, Vec<Record>)>, RunError> {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let Some(heading) = lines.next() else { return Ok(None) };
    let heading: Heading =
        serde_json::from_slice(heading).map_err(|_| RunError::Broken(path.to_owned(), 1))?;
    let mut lines = lines.peekable();
    // Whatever was to be measured, nothing is lost.
    if lines.peek().is_none() {
        return Ok(None);
    }
    heading.check(path, experiment)?;
    let mut records = Vec::new();
    for (place, line) in lines.enumerate() {
        let broken = || RunError::Broken(path.to_owned(), place + 2);
        let number = experiment.next(&records).ok_or_else(broken)?;
        let record = serde_json::from_slice(line).ok();
        let record = record.filter(|record| experiment.is_of(number, record));
        let mut record: Record = record.ok_or_else(broken)?;
        record.judge(experiment.keep_late);
        take(&mut records, number, record);
    }
    Ok(Some((heading, records)))
}

/// Takes in a trial that was performed: the first time, or again, where the time counts at which
/// links were least late, whatever was measured.
fn take(records: &mut Vec<Record>, number: usize, record: Record) {
    let Some(best) = records.get_mut(number) else {
        records.push(record);
        return;
    };
    let attempts = best.attempts + 1;
    if (record.missed, record.late_ms) < (best.missed, best.late_ms) {
        *best = record;
    }
    best.attempts = attempts;
}
