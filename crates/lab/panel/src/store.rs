//! All runs: their directories, and a list of them in memory, which is read from the directories
//! when the server starts.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tracing::warn;

use crate::run::{RunDirectory, RunName, RunRecord, RunState};

/// The runs, by their names: in the order of their times.
pub(crate) struct RunStore {
    directory: PathBuf,
    runs: BTreeMap<RunName, RunRecord>,
}

impl RunStore {
    /// Opens the directory, and creates it if there is none. Runs that an earlier server had not
    /// finished are interrupted.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let mut store = Self { directory: directory.to_owned(), runs: BTreeMap::new() };
        for entry in fs::read_dir(directory)? {
            let name = entry?.file_name().into_string().unwrap_or_default();
            // Other files are not ours.
            let Ok(name) = RunName::try_from(name) else { continue };
            match store.directory_of(&name).read() {
                Ok(record) => store.take_over(name, record),
                Err(error) => warn!("run {} is left out: {error}", name.as_str()),
            }
        }
        Ok(store)
    }

    /// Adds a run of an earlier server.
    fn take_over(&mut self, name: RunName, mut record: RunRecord) {
        if !record.state.is_over() {
            record.state = RunState::Interrupted;
            if let Err(error) = self.directory_of(&name).write(&record) {
                warn!("run {}: {error}", name.as_str());
            }
        }
        self.runs.insert(name, record);
    }

    pub(crate) fn directory_of(&self, name: &RunName) -> RunDirectory {
        RunDirectory::new(&self.directory, name)
    }

    /// A run.
    pub(crate) fn get(&self, name: &RunName) -> Option<&RunRecord> {
        self.runs.get(name)
    }

    /// Creates a run on the disk.
    ///
    /// # Errors
    /// If it cannot be written. Then there is no such run.
    pub(crate) fn add(&mut self, record: RunRecord, text: &str) -> io::Result<()> {
        let directory = self.directory_of(&record.id);
        directory.create(&record, text).inspect_err(|_| {
            let _ = directory.remove();
        })?;
        self.runs.insert(record.id.clone(), record);
        Ok(())
    }

    /// Changes a run, in memory and on the disk.
    ///
    /// # Errors
    /// If it cannot be written. It is changed in memory nevertheless.
    pub(crate) fn change(
        &mut self,
        name: &RunName,
        change: impl FnOnce(&mut RunRecord),
    ) -> io::Result<()> {
        let Some(record) = self.runs.get_mut(name) else { return Ok(()) };
        change(record);
        let record = record.clone();
        self.directory_of(name).write(&record)
    }

    /// Changes a run in memory only: how far it is.
    pub(crate) fn advance(&mut self, name: &RunName, change: impl FnOnce(&mut RunRecord)) {
        if let Some(record) = self.runs.get_mut(name) {
            change(record);
        }
    }

    /// Removes a run.
    ///
    /// # Errors
    /// If its directory cannot be removed. The run is then still there.
    pub(crate) fn remove(&mut self, name: &RunName) -> io::Result<()> {
        self.directory_of(name).remove()?;
        self.runs.remove(name);
        Ok(())
    }

    /// The latest runs before one, or of all, that contain a text, and how many of all do.
    pub(crate) fn list(
        &self,
        before: Option<&RunName>,
        search: &str,
        limit: usize,
    ) -> (Vec<RunRecord>, usize) {
        let search = search.to_lowercase();
        let contains = |text: &str| text.to_lowercase().contains(&search);
        let is_found = |record: &&RunRecord| {
            search.is_empty()
                || contains(&record.title)
                || contains(&record.note)
                || contains(record.id.as_str())
        };
        let total = self.runs.values().filter(is_found).count();
        let earlier = |record: &&RunRecord| before.is_none_or(|before| record.id < *before);
        let found = self.runs.values().rev().filter(earlier).filter(is_found);
        (found.take(limit).cloned().collect(), total)
    }

    /// The runs that wait, the first one first.
    pub(crate) fn queued(&self) -> impl Iterator<Item = &RunRecord> {
        self.runs.values().filter(|record| record.state == RunState::Queued)
    }
}
