//! The journal of a run: a line for the experiment and the machine, a line for each trial, then a
//! line for each repeated attempt of an invalid trial. Each line is on the disk before the next
//! trial begins.

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

use crate::experiment::Experiment;
use crate::experiment::error::ExperimentRunError;
use crate::experiment::shard::TrialShard;
use crate::machine::MachineProperties;
use crate::perform::is_late;
use crate::site::{SitePath, SiteRecord};

/// A finished trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrialRecord {
    /// The repetition, from 1.
    pub repetition: usize,
    /// The values of the swept keys.
    pub point: Table,
    /// The measured values, by name.
    pub values: BTreeMap<String, f64>,
    /// The texts beside them, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub texts: BTreeMap<String, String>,
    /// The model's predictions, by the name of the value.
    pub predictions: BTreeMap<String, f64>,
    /// The 99th percentile of the lateness of delivered packets, in ms.
    pub late_ms: f64,
    /// How many packets the kernel dropped because a link did not read them in time.
    pub missed: u64,
    /// How often the trial ran: until links were not late, or as often as the experiment allows.
    /// The values are those of the attempt with the least lateness. In the journal: the number of
    /// the attempt.
    #[serde(default = "once")]
    pub attempts: usize,
    /// Whether the trial is invalid: links were late, and the experiment does not keep such trials.
    /// Summaries and graphs leave it out.
    #[serde(default)]
    pub invalid: bool,
    /// Whether a path between sites changed during the trial.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub path_changed: bool,
    /// At sites: the paths between them, before and after the trial.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<SitePath>,
}

impl TrialRecord {
    /// Sets `invalid` by the current criteria.
    pub(crate) fn check_lateness(&mut self, keep_late: bool) {
        self.invalid = is_late(self.late_ms, self.missed) && !keep_late;
    }
}

/// The first line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JournalHeader {
    /// The SHA-256 of the experiment's text.
    experiment: String,
    /// When the run began: UTC, RFC 3339.
    pub(crate) started: String,
    pub(crate) machine: MachineProperties,
    /// The other machines, if it was merged from the journals of shards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) other_machines: Vec<MachineProperties>,
    /// The shard whose trials it has; `None` for all trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shard: Option<TrialShard>,
    /// The sites at which it runs, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) sites: BTreeMap<String, SiteRecord>,
}

/// An open journal. It is locked against other runs.
pub(crate) struct TrialJournal {
    path: PathBuf,
    file: File,
    pub(crate) heading: JournalHeader,
    /// The record of each trial so far, in the order of the trials.
    pub(crate) records: Vec<TrialRecord>,
}

/// The name of a journal in the directory of its results.
const FILE_NAME: &str = "trials.jsonl";

/// How long to wait for an interrupted run to exit.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum length of a journal, in bytes.
const MAX_LEN: u64 = 1 << 30;

impl TrialJournal {
    /// Opens the journal in a directory, or begins a new one if it has no trial. An incomplete last
    /// line is removed.
    pub(crate) fn open(
        directory: &Path,
        experiment: &Experiment,
    ) -> Result<Self, ExperimentRunError> {
        let path = directory.join(FILE_NAME);
        let failed = |error| ExperimentRunError::Writing(path.clone(), error);
        let mut file = open_file(&path).map_err(failed)?;
        if !lock(&file).map_err(failed)? {
            return Err(ExperimentRunError::Busy(path));
        }
        let bytes = read_all(&mut file).map_err(failed)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        if whole == 0 && !is_torn_heading(&bytes) {
            return Err(ExperimentRunError::Broken(path, 1));
        }
        let content = read_lines(&path, &bytes[..whole], experiment)?;
        let kept = if content.is_some() { whole as u64 } else { 0 };
        file.set_len(kept).and_then(|()| file.seek(SeekFrom::End(0))).map_err(failed)?;
        if let Some((heading, records)) = content {
            return Ok(Self { path, file, heading, records });
        }
        let heading = JournalHeader::new(experiment);
        let mut journal = Self { path, file, heading: heading.clone(), records: Vec::new() };
        journal.write_line(&heading)?;
        Ok(journal)
    }

    /// Creates the journal of a whole experiment from those of its shards, which have these
    /// headings.
    pub(crate) fn create(
        directory: &Path,
        experiment: &Experiment,
        shards: &[JournalHeader],
    ) -> Result<Self, ExperimentRunError> {
        let mut journal = Self::open(directory, experiment)?;
        let failed = |error| ExperimentRunError::Writing(journal.path.clone(), error);
        if !journal.records.is_empty() {
            return Err(ExperimentRunError::NotEmpty(journal.path));
        }
        journal.heading.merge(shards);
        journal.file.set_len(0).and_then(|()| journal.file.rewind()).map_err(failed)?;
        journal.write_line(&journal.heading.clone())?;
        Ok(journal)
    }

    /// Adds the trial with a number, from 0, and waits until it is on the disk.
    pub(crate) fn append(
        &mut self,
        number: usize,
        record: TrialRecord,
    ) -> Result<(), ExperimentRunError> {
        self.write_line(&record)?;
        keep_least_late(&mut self.records, number, record);
        Ok(())
    }

    fn write_line(&mut self, content: &impl Serialize) -> Result<(), ExperimentRunError> {
        let line = serde_json::to_vec(content).map_err(io::Error::from);
        let written = line.and_then(|mut line| {
            line.push(b'\n');
            self.file.write_all(&line)?;
            self.file.sync_data()
        });
        written.map_err(|error| ExperimentRunError::Writing(self.path.clone(), error))
    }
}

impl JournalHeader {
    fn new(experiment: &Experiment) -> Self {
        let started = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        Self {
            experiment: experiment.digest.clone(),
            started,
            machine: MachineProperties::current(),
            other_machines: Vec::new(),
            shard: experiment.shard,
            sites: experiment.sites.clone(),
        }
    }

    /// Takes the time of the earliest of several shards, and the machines and sites of all.
    fn merge(&mut self, shards: &[Self]) {
        let mut machines: Vec<MachineProperties> = Vec::new();
        for heading in shards {
            for machine in [&heading.machine].into_iter().chain(&heading.other_machines) {
                if !machines.contains(machine) {
                    machines.push(machine.clone());
                }
            }
        }
        let started = shards.iter().map(|heading| &heading.started).min();
        self.started = started.unwrap_or(&self.started).clone();
        for (name, site) in shards.iter().flat_map(|heading| &heading.sites) {
            self.sites.entry(name.clone()).or_insert_with(|| site.clone());
        }
        if !machines.is_empty() {
            self.machine = machines.remove(0);
            self.other_machines = machines;
        }
    }

    /// Checks that it is of this experiment; `path` is for errors.
    fn check_experiment(
        &self,
        path: &Path,
        experiment: &Experiment,
    ) -> Result<(), ExperimentRunError> {
        if self.experiment == experiment.digest {
            Ok(())
        } else {
            Err(ExperimentRunError::Changed(path.to_owned()))
        }
    }

    /// Checks that it is of this experiment, this shard, this machine and these sites; `path` is
    /// for errors.
    fn check(&self, path: &Path, experiment: &Experiment) -> Result<(), ExperimentRunError> {
        self.check_experiment(path, experiment)?;
        if self.shard != experiment.shard {
            return Err(ExperimentRunError::OtherShard(path.to_owned(), self.shard));
        }
        if self.machine != MachineProperties::current() {
            return Err(ExperimentRunError::Moved(path.to_owned()));
        }
        if self.sites != experiment.sites {
            return Err(ExperimentRunError::OtherSites(path.to_owned()));
        }
        Ok(())
    }
}

fn once() -> usize {
    1
}

/// Opens or creates the file. It will be truncated and written, so links to other files and files
/// of other users are refused.
fn open_file(path: &Path) -> io::Result<File> {
    let other = |what: &str| {
        io::Error::other(format!("it {what}; remove it, or choose another place with --out"))
    };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    // Without waiting for the other end of a named pipe.
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

/// Reads the journal of a shard in a directory: the heading, and all attempts.
///
/// # Errors
/// If there is none, it is of another experiment, a run is still writing it, or a line of it is
/// malformed.
pub(crate) fn read(
    directory: &Path,
    experiment: &Experiment,
) -> Result<(JournalHeader, Vec<TrialRecord>), ExperimentRunError> {
    let path = directory.join(FILE_NAME);
    let failed = |error| ExperimentRunError::Reading(path.clone(), error);
    let mut file = File::open(&path).map_err(failed)?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => return Err(ExperimentRunError::Busy(path)),
        Err(TryLockError::Error(error)) => return Err(failed(error)),
        Ok(()) => {}
    }
    let bytes = read_all(&mut file).map_err(failed)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut lines = bytes[..whole].split_inclusive(|byte| *byte == b'\n');
    let heading = lines.next().and_then(|line| serde_json::from_slice(line).ok());
    let heading: JournalHeader =
        heading.ok_or_else(|| ExperimentRunError::Broken(path.clone(), 1))?;
    heading.check_experiment(&path, experiment)?;
    let record = |(index, line)| {
        let mut record: TrialRecord =
            serde_json::from_slice(line).map_err(|_| broken(directory, index))?;
        record.check_lateness(experiment.keep_late);
        Ok(record)
    };
    let records: Result<_, ExperimentRunError> = lines.enumerate().map(record).collect();
    Ok((heading, records?))
}

/// The error that the attempt with an index, from 0, in the journal of a directory is malformed.
pub(crate) fn broken(directory: &Path, index: usize) -> ExperimentRunError {
    ExperimentRunError::Broken(directory.join(FILE_NAME), index + 2)
}

/// The start of each journal.
const BEGINNING: &[u8] = b"{\"experiment\":\"";

/// Whether this is the start of a first line that was not completed.
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

/// Locks the file for this run; `false` if another run keeps it locked.
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

/// Parses complete lines. `None` if there are no trials among them.
fn read_lines(
    path: &Path,
    bytes: &[u8],
    experiment: &Experiment,
) -> Result<Option<(JournalHeader, Vec<TrialRecord>)>, ExperimentRunError> {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let Some(heading) = lines.next() else { return Ok(None) };
    let heading: JournalHeader = serde_json::from_slice(heading)
        .map_err(|_| ExperimentRunError::Broken(path.to_owned(), 1))?;
    let mut lines = lines.peekable();
    // Without a trial, nothing is lost even if the experiment differs.
    if lines.peek().is_none() {
        return Ok(None);
    }
    heading.check(path, experiment)?;
    let mut records = Vec::new();
    for (place, line) in lines.enumerate() {
        let broken = || ExperimentRunError::Broken(path.to_owned(), place + 2);
        let number = experiment.next(&records).ok_or_else(broken)?;
        let record = serde_json::from_slice(line).ok();
        let record = record.filter(|record| experiment.is_of(number, record));
        let mut record: TrialRecord = record.ok_or_else(broken)?;
        record.check_lateness(experiment.keep_late);
        keep_least_late(&mut records, number, record);
    }
    Ok(Some((heading, records)))
}

/// Adds a record. Of several attempts of a trial, the one with the least lateness is kept, whatever
/// it measured.
pub(super) fn keep_least_late(records: &mut Vec<TrialRecord>, number: usize, record: TrialRecord) {
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
