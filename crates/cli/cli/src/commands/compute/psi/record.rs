//! The record of what other parties have asked for, and the budget that it limits. Whoever may ask
//! again and again with values of their choice learns the whole file.
//!
//! There is a file for each key that `--key` has named, and one for all other parties: a party
//! could take a new key for each run.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use console::CommandFailure;
use keys::IdentityPublicKey;
use keys::storage::{self, Durability};
use serde::{Deserialize, Serialize};

/// The version of the files.
const VERSION: u32 = 1;

/// The number of latest runs that a file lists.
const MAX_LISTED: usize = 100;

/// The name of the file of parties whose key was not named, and the end of all names.
const UNNAMED: &str = "unnamed";
const EXTENSION: &str = "json";

/// How much other parties may ask for.
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct PsiBudgetOptions {
    /// Refuse a run if the other party has learnt results in N runs already: of its key, if --key
    /// names it, or else of all parties without --key. See `sunder compute psi-runs`
    #[arg(long, value_name = "N")]
    max_runs: Option<u64>,
    /// Refuse a run if, with it, the other party could ask with more than N values in all its runs:
    /// as the receiver with 1.27 times as many as it says, and at least 512 in each
    #[arg(long, value_name = "N")]
    max_rows: Option<u64>,
}

/// What is recorded of one party.
#[derive(Default, Serialize, Deserialize)]
struct PsiRecord {
    version: u32,
    /// The number of runs in which it could learn something.
    runs: u64,
    /// The sum of the numbers of values with which it could ask in them.
    rows: u64,
    /// The latest of them, the last one at the end.
    latest: Vec<RecordedRun>,
}

/// A run in which the other party could learn something.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct RecordedRun {
    pub(super) unix_s: u64,
    /// What was computed: `values`, `count` or `sum`.
    pub(super) result: String,
    /// The number of values with which the other party could ask.
    pub(super) rows: u64,
}

/// The record of one party, and the budget.
pub(super) struct PsiBudget<'a> {
    options: &'a PsiBudgetOptions,
    /// `None` without a directory for state.
    path: Option<PathBuf>,
}

/// A record as `sunder compute psi-runs` shows it.
#[derive(Serialize)]
pub(super) struct PsiRecordDocument {
    /// `null` for all parties that `--key` has not named.
    pub(super) key: Option<String>,
    pub(super) runs: u64,
    pub(super) rows: u64,
    pub(super) latest: Vec<RecordedRun>,
}

impl<'a> PsiBudget<'a> {
    /// The budget for a party, of whose key `None` stands for one that `--key` has not named.
    ///
    /// # Errors
    /// If runs are limited, but cannot be recorded.
    pub(super) fn new(
        options: &'a PsiBudgetOptions,
        key: Option<IdentityPublicKey>,
    ) -> Result<Self, CommandFailure> {
        let is_named = key.is_some();
        let name = key.map_or_else(|| UNNAMED.to_owned(), |key| key.to_string());
        let path = directory().map(|directory| directory.join(format!("{name}.{EXTENSION}")));
        let is_limited = options.max_runs.is_some() || options.max_rows.is_some();
        if path.is_none() && is_limited {
            let message = "runs cannot be recorded without a home directory: set HOME or \
                           XDG_STATE_HOME, or leave --max-runs and --max-rows out";
            return Err(CommandFailure::Usage(message.into()));
        }
        // A party that takes another key begins at zero again, which only this user can notice.
        if is_limited && is_named && path.as_ref().is_some_and(|path| !path.exists()) {
            console::note(
                "no run with this key is recorded: its budget begins at zero (`sunder compute \
                 psi-runs` shows the runs with other keys)",
            );
        }
        Ok(Self { options, path })
    }

    /// Refuses the party if it may not ask for even one value more.
    ///
    /// # Errors
    /// If it may not, or the record cannot be read.
    pub(super) fn check(&self) -> Result<(), CommandFailure> {
        let Some(path) = &self.path else { return Ok(()) };
        self.allow(&read(path)?, 1, path)
    }

    /// Records a run of now, unless the party may not ask for so many values.
    ///
    /// # Errors
    /// If it may not, or the record cannot be written. Then nothing is recorded.
    pub(super) fn charge(&self, result: &str, rows: u64) -> Result<(), CommandFailure> {
        let Some(path) = &self.path else { return Ok(()) };
        let failed = |error| CommandFailure::writing(path, &error);
        let _lock = lock(path).map_err(failed)?;
        let mut record = read(path)?;
        self.allow(&record, rows, path)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        record.version = VERSION;
        record.runs = record.runs.saturating_add(1);
        record.rows = record.rows.saturating_add(rows);
        record.latest.push(RecordedRun { unix_s: now, result: result.to_owned(), rows });
        let listed = record.latest.len();
        record.latest.drain(..listed.saturating_sub(MAX_LISTED));
        let content = serde_json::to_vec(&record).map_err(io::Error::other).map_err(failed)?;
        storage::replace(path, &content, 0o600, Durability::Synced).map_err(failed)
    }

    fn allow(&self, record: &PsiRecord, rows: u64, path: &Path) -> Result<(), CommandFailure> {
        let refused = |what: String| {
            Err(CommandFailure::Refused(format!(
                "{what}: raise the limit if the other party may learn more (the record: {})",
                path.display()
            )))
        };
        match self.options.max_runs {
            Some(most) if record.runs >= most => {
                let runs = record.runs;
                return refused(format!(
                    "{runs} runs of this party are recorded, of --max-runs {most}"
                ));
            }
            _ => {}
        }
        match self.options.max_rows {
            Some(most) if record.rows.saturating_add(rows) > most => refused(format!(
                "with this run, this party could have asked with more than --max-rows {most} \
                 values ({} before)",
                record.rows
            )),
            _ => Ok(()),
        }
    }
}

/// All records: that of unnamed parties at the end.
///
/// # Errors
/// If one cannot be read.
pub(super) fn all() -> Result<Vec<PsiRecordDocument>, CommandFailure> {
    let Some(directory) = directory() else { return Ok(Vec::new()) };
    let failed = |error: io::Error| CommandFailure::reading(&directory, &error);
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed)?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|it| it == EXTENSION) {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    let document = |path: PathBuf| {
        let PsiRecord { runs, rows, latest, .. } = read(&path)?;
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned());
        Ok(PsiRecordDocument { key: name.filter(|name| name != UNNAMED), runs, rows, latest })
    };
    paths.into_iter().map(document).collect()
}

fn directory() -> Option<PathBuf> {
    storage::state_directory("psi")
}

/// Waits until no other process changes a record. Creates the directory.
fn lock(path: &Path) -> io::Result<File> {
    if let Some(directory) = path.parent() {
        storage::create_private_directory(directory)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path.with_extension("lock"))?;
    file.lock()?;
    Ok(file)
}

fn read(path: &Path) -> Result<PsiRecord, CommandFailure> {
    let content = match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(PsiRecord::default()),
        content => content.map_err(|error| CommandFailure::reading(path, &error))?,
    };
    match serde_json::from_slice::<PsiRecord>(&content) {
        Ok(record) if record.version == VERSION => Ok(record),
        _ => Err(CommandFailure::Failed(format!(
            "{} is damaged, or of another version: move it away to begin a new record",
            path.display()
        ))),
    }
}
