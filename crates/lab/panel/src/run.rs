//! A run, and its state on the disk.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use accounts::AccountId;
use keys::storage::{self, Durability};
use random::RandomGenerator;
use serde::{Deserialize, Serialize};

use crate::chosen_file::ARCHIVE_FILE;
use crate::request::RunRequest;

/// The name of a run, and of its directory: the time in microseconds, and random digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct RunName(String);

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RunState {
    /// It waits for others.
    Queued,
    Running,
    /// All trials have run.
    Finished,
    /// A person stopped it.
    Stopped,
    /// A trial failed, or the run could not begin.
    Failed,
    /// The server ended meanwhile.
    Interrupted,
}

/// A run, as in its file `run.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunRecord {
    pub(crate) id: RunName,
    pub(crate) title: String,
    /// The name of the experiment file.
    pub(crate) file: String,
    pub(crate) request: RunRequest,
    /// When it was requested: UTC, RFC 3339.
    pub(crate) created: String,
    pub(crate) state: RunState,
    /// How many trials are done, and how many there are.
    pub(crate) done: usize,
    pub(crate) total: usize,
    /// How many trials have an invalid result. Some of them run again.
    pub(crate) invalid: usize,
    /// What a person wrote about it.
    pub(crate) note: String,
    /// Why it failed, in one line.
    pub(crate) error: Option<String>,
    /// The account that it is of, if there are accounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<AccountId>,
    /// The digest of the token of a link to it, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) link: Option<String>,
}

/// The files of a run in its directory.
const RECORD: &str = "run.json";
const EVENTS: &str = "events.jsonl";
const JOURNAL: &str = "trials.jsonl";

/// The tables that the page may get.
const TABLES: [&str; 3] = ["results.csv", "results.json", "comparison.csv"];

impl RunState {
    /// Whether the run is over, unless it is resumed.
    pub(crate) fn is_over(self) -> bool {
        !matches!(self, Self::Queued | Self::Running)
    }
}

impl RunRecord {
    /// Whether it waits for others.
    pub(crate) fn is_queued(&self) -> bool {
        self.state == RunState::Queued
    }
}

impl RunName {
    /// A new name. Of two names, the later one is the greater.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub(crate) fn new() -> io::Result<Self> {
        let now = SystemTime::now();
        let text = humantime::format_rfc3339_seconds(now).to_string();
        let digits: String = text.chars().filter(char::is_ascii_digit).collect();
        let (date, time) = digits.split_at(8);
        let since = now.duration_since(SystemTime::UNIX_EPOCH).map_err(io::Error::other)?;
        let random = RandomGenerator::system().array().map_err(io::Error::other)?;
        let random = u16::from_ne_bytes(random) & 0xfff;
        Ok(Self(format!("{date}-{time}-{:05x}{random:03x}", since.subsec_micros())))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for RunName {
    type Error = &'static str;

    /// Takes a name that [`RunName::new`] could have made, so that no path is among them.
    fn try_from(name: String) -> Result<Self, Self::Error> {
        let is_hex =
            |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let parts: Vec<&str> = name.split('-').collect();
        let has_form = parts.iter().map(|part| part.len()).eq([8, 6, 8]);
        if has_form && parts.into_iter().all(is_hex) {
            Ok(Self(name))
        } else {
            Err("no run has this name")
        }
    }
}

impl From<RunName> for String {
    fn from(name: RunName) -> Self {
        name.0
    }
}

/// The directory of a run.
#[derive(Clone, Debug)]
pub(crate) struct RunDirectory(PathBuf);

impl RunDirectory {
    pub(crate) fn new(runs: &Path, name: &RunName) -> Self {
        Self(runs.join(name.as_str()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The file to which the events of the run are written.
    pub(crate) fn events(&self) -> PathBuf {
        self.0.join(EVENTS)
    }

    /// The file to which the laboratory writes each result.
    pub(crate) fn journal(&self) -> PathBuf {
        self.0.join(JOURNAL)
    }

    /// Creates the directory, with the experiment file, its archive and the record. Only this user
    /// can read it, because the experiment has the texts of files that a person has chosen.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn create(
        &self,
        record: &RunRecord,
        text: &str,
        archive: Option<&[u8]>,
    ) -> io::Result<()> {
        fs::DirBuilder::new().mode(0o700).create(&self.0)?;
        storage::create(&self.0.join(&record.file), text.as_bytes(), 0o666)?;
        if let Some(archive) = archive {
            storage::create(&self.0.join(ARCHIVE_FILE), archive, 0o666)?;
        }
        self.write(record)
    }

    /// Reads the record.
    ///
    /// # Errors
    /// If there is none, or it is malformed.
    pub(crate) fn read(&self) -> io::Result<RunRecord> {
        let bytes = fs::read(self.0.join(RECORD))?;
        serde_json::from_slice(&bytes).map_err(io::Error::other)
    }

    /// Writes the record.
    ///
    /// # Errors
    /// If it cannot be written; the old one is kept.
    pub(crate) fn write(&self, record: &RunRecord) -> io::Result<()> {
        let bytes = serde_json::to_vec_pretty(record)?;
        storage::replace(&self.0.join(RECORD), &bytes, 0o666, Durability::Synced)
    }

    /// The bytes that the run holds on the disk: of each file whole blocks.
    pub(crate) fn bytes(&self) -> u64 {
        bytes_in(&self.0)
    }

    /// Removes everything of the run.
    ///
    /// # Errors
    /// If something cannot be removed.
    pub(crate) fn remove(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.0)
    }

    /// The path of a file that the page may get: a table, the experiment, or a graph.
    pub(crate) fn file(&self, name: &str) -> Option<PathBuf> {
        let stem = name.strip_suffix(".svg").or(name.strip_suffix(".toml")).unwrap_or_default();
        let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_named = !stem.is_empty() && stem.bytes().all(is_word);
        (is_named || TABLES.contains(&name)).then(|| self.0.join(name))
    }
}

/// The size of a block of a file system.
const BLOCK: u64 = 4 << 10;

/// The bytes of a file or directory with everything in it. What vanishes meanwhile has none.
fn bytes_in(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    let own = metadata.len().div_ceil(BLOCK).max(1) * BLOCK;
    if !metadata.is_dir() {
        return own;
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    own + entries.map(|entry| bytes_in(&entry.path())).sum::<u64>()
}
