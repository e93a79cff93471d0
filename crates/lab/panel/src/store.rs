//! All runs: their directories, and a list of them in memory, which is read from the directories
//! when the server starts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use accounts::AccountId;
use serde_json::Value;
use tracing::warn;

use crate::journal::RunJournal;
use crate::quota::QuotaUsage;
use crate::run::{RunDirectory, RunName, RunRecord, RunState};

/// The runs, by their names: in the order of their times.
pub(crate) struct RunStore {
    directory: PathBuf,
    runs: BTreeMap<RunName, StoredRun>,
    /// The runs whose records could not be written.
    unwritten: BTreeSet<RunName>,
}

/// What becomes of runs that wait when the server starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueAtRestart {
    /// They are interrupted, until the only user resumes them.
    Interrupted,
    /// They go on waiting.
    Kept,
}

struct StoredRun {
    record: RunRecord,
    /// The bytes that it holds on the disk, when it was measured last.
    bytes: u64,
    /// What a search finds, in lower case.
    words: String,
}

impl RunStore {
    /// Opens the directory, and creates it if there is none. Runs that an earlier server had not
    /// finished are interrupted. Those that waited go on waiting if the queue is kept.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub(crate) fn open(directory: &Path, restart: QueueAtRestart) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let (runs, unwritten) = (BTreeMap::new(), BTreeSet::new());
        let mut store = Self { directory: directory.to_owned(), runs, unwritten };
        for entry in fs::read_dir(directory)? {
            let name = entry?.file_name().into_string().unwrap_or_default();
            // Other files are not ours.
            let Ok(name) = RunName::try_from(name) else { continue };
            match store.directory_of(&name).read() {
                Ok(record) => store.take_over(&name, record, restart),
                Err(error) => warn!("run {} is left out: {error}", name.as_str()),
            }
        }
        Ok(store)
    }

    /// Adds a run of an earlier server.
    fn take_over(&mut self, name: &RunName, mut record: RunRecord, restart: QueueAtRestart) {
        let is_kept = record.is_queued() && restart == QueueAtRestart::Kept;
        let is_interrupted = !record.state.is_over() && !is_kept;
        if is_interrupted {
            record.state = RunState::Interrupted;
            match RunJournal::read(&self.directory_of(name)) {
                Ok(journal) => {
                    record.done = journal.trials.len();
                    record.invalid = journal.invalid().len();
                }
                Err(error) => warn!("the results of run {}: {error}", name.as_str()),
            }
        }
        let bytes = self.directory_of(name).bytes();
        self.runs.insert(name.clone(), StoredRun::new(record, bytes));
        if is_interrupted && let Err(error) = self.write(name) {
            warn!("the state of run {} is not on the disk: {error}", name.as_str());
        }
    }

    pub(crate) fn directory_of(&self, name: &RunName) -> RunDirectory {
        RunDirectory::new(&self.directory, name)
    }

    /// A run.
    pub(crate) fn get(&self, name: &RunName) -> Option<&RunRecord> {
        self.runs.get(name).map(|run| &run.record)
    }

    /// Creates a run on the disk.
    ///
    /// # Errors
    /// If it cannot be written. Then there is no such run.
    pub(crate) fn add(
        &mut self,
        record: RunRecord,
        text: &str,
        archive: Option<&[u8]>,
    ) -> io::Result<()> {
        let directory = self.directory_of(&record.id);
        directory.create(&record, text, archive).inspect_err(|_| {
            let _ = directory.remove();
        })?;
        let bytes = directory.bytes();
        self.runs.insert(record.id.clone(), StoredRun::new(record, bytes));
        Ok(())
    }

    /// Changes a run, in memory and on the disk.
    ///
    /// # Errors
    /// If it cannot be written. It is changed in memory nevertheless, and written later.
    pub(crate) fn change(
        &mut self,
        name: &RunName,
        change: impl FnOnce(&mut RunRecord),
    ) -> io::Result<()> {
        let Some(run) = self.runs.get_mut(name) else { return Ok(()) };
        change(&mut run.record);
        run.words = words(&run.record);
        self.write(name)
    }

    fn write(&mut self, name: &RunName) -> io::Result<()> {
        let directory = self.directory_of(name);
        let Some(run) = self.runs.get_mut(name) else { return Ok(()) };
        let written = directory.write(&run.record);
        run.bytes = directory.bytes();
        match &written {
            Ok(()) => drop(self.unwritten.remove(name)),
            Err(_) => drop(self.unwritten.insert(name.clone())),
        }
        written
    }

    /// Tries again to write what could not be written, for example because the disk was full.
    pub(crate) fn write_again(&mut self) {
        for name in self.unwritten.clone() {
            // It stays among those that are not written.
            let _ = self.write(&name);
        }
    }

    /// Changes a run in memory only: how far it is.
    pub(crate) fn advance(&mut self, name: &RunName, change: impl FnOnce(&mut RunRecord)) {
        if let Some(run) = self.runs.get_mut(name) {
            change(&mut run.record);
        }
    }

    /// Removes a run.
    ///
    /// # Errors
    /// If its directory cannot be removed. The run is then still there.
    pub(crate) fn remove(&mut self, name: &RunName) -> io::Result<()> {
        self.directory_of(name).remove()?;
        self.runs.remove(name);
        self.unwritten.remove(name);
        Ok(())
    }

    /// The latest runs before one, or of all, that contain a text, and how many of all do.
    pub(crate) fn list(
        &self,
        before: Option<&RunName>,
        search: &str,
        limit: usize,
        is_visible: impl Fn(&RunRecord) -> bool,
    ) -> (Vec<RunRecord>, usize) {
        let search = search.to_lowercase();
        let contains = |run: &StoredRun| search.is_empty() || run.words.contains(&search);
        let is_found = |run: &&StoredRun| is_visible(&run.record) && contains(run);
        let total = self.runs.values().filter(is_found).count();
        let earlier = |run: &&StoredRun| before.is_none_or(|before| run.record.id < *before);
        let found = self.runs.values().rev().filter(earlier).filter(is_found);
        (found.take(limit).map(|run| run.record.clone()).collect(), total)
    }

    /// What the runs of an account hold, or all runs. One that waits or runs counts as the bytes
    /// that it may hold.
    pub(crate) fn usage(&self, of: Option<AccountId>, run_bytes: u64) -> QuotaUsage {
        let runs = self.runs.values().filter(|run| of.is_none() || run.record.owner == of);
        runs.fold(QuotaUsage::default(), |usage, run| {
            let is_over = run.record.state.is_over();
            let bytes = if is_over { run.bytes } else { run.bytes.max(run_bytes) };
            QuotaUsage {
                runs: usage.runs + 1,
                unfinished: usage.unfinished + usize::from(!is_over),
                bytes: usage.bytes + bytes,
            }
        })
    }

    /// The bytes that a run holds on the disk.
    pub(crate) fn bytes_of(&self, name: &RunName) -> u64 {
        self.runs.get(name).map_or(0, |run| run.bytes)
    }

    /// The accounts that have runs.
    pub(crate) fn owners(&self) -> BTreeSet<AccountId> {
        self.runs.values().filter_map(|run| run.record.owner).collect()
    }

    /// The runs of an account.
    pub(crate) fn of(&self, owner: AccountId) -> impl Iterator<Item = &RunRecord> {
        self.runs.values().map(|run| &run.record).filter(move |run| run.owner == Some(owner))
    }

    /// The runs that wait, the first one first.
    pub(crate) fn queued(&self) -> impl Iterator<Item = &RunRecord> {
        let records = self.runs.values().map(|run| &run.record);
        records.filter(|record| record.is_queued())
    }
}

impl StoredRun {
    fn new(record: RunRecord, bytes: u64) -> Self {
        Self { words: words(&record), record, bytes }
    }
}

/// What a search finds of a run, in lower case: its title, note and name, and the values that were
/// requested.
fn words(record: &RunRecord) -> String {
    let mut words = format!("{}\n{}\n{}", record.title, record.note, record.id.as_str());
    add_values(&serde_json::to_value(&record.request).unwrap_or_default(), &mut words);
    words.to_lowercase()
}

fn add_values(value: &Value, words: &mut String) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Array(values) => values.iter().for_each(|value| add_values(value, words)),
        Value::Object(values) => values.values().for_each(|value| add_values(value, words)),
        Value::Number(number) => words.extend(["\n", &number.to_string()]),
        Value::String(text) => words.extend(["\n", text]),
    }
}
