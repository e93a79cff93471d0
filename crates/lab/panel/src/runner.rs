//! Runs one experiment after another, each in a process of its own: two at a time would measure
//! each other.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tracing::warn;

use crate::journal::RunJournal;
use crate::run::{RunDirectory, RunName, RunRecord, RunState};
use crate::store::RunStore;

/// The runs, and the one that runs now.
pub(crate) struct RunQueue {
    /// This program.
    program: PathBuf,
    store: Mutex<RunStore>,
    current: Mutex<Option<CurrentRun>>,
    /// A run was added.
    is_added: Notify,
    /// Counts changes, so that those who wait for one look again.
    changes: watch::Sender<u64>,
}

/// The run whose process runs.
struct CurrentRun {
    name: RunName,
    /// Whether a person stopped it, and who waits for that.
    is_stopped: bool,
    stop: Arc<Notify>,
    begin: Instant,
    /// How many trials were done when its process began.
    done_before: usize,
    /// The numbers of the trials whose last attempt was invalid.
    invalid: BTreeSet<usize>,
}

/// What matters here of an event of `sunder lab run --events`.
#[derive(Deserialize)]
struct RunEvent {
    done: Option<usize>,
    number: Option<usize>,
    /// Of a result.
    invalid: Option<bool>,
}

/// The maximum length of a line of the process, and of what it says on standard error.
pub(crate) const MAX_LINE: u64 = 1 << 20;
const MAX_ERROR: u64 = 64 << 10;

/// After this time, states that could not be written are written again.
const WRITE_INTERVAL: Duration = Duration::from_secs(10);

impl RunQueue {
    pub(crate) fn new(program: PathBuf, store: RunStore) -> Arc<Self> {
        Arc::new(Self {
            program,
            store: Mutex::new(store),
            current: Mutex::new(None),
            is_added: Notify::new(),
            changes: watch::Sender::new(0),
        })
    }

    /// The program `sunder`.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The runs.
    pub(crate) fn store(&self) -> MutexGuard<'_, RunStore> {
        // A panic while it was locked leaves a list of whole records.
        self.store.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn current(&self) -> MutexGuard<'_, Option<CurrentRun>> {
        self.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Sees each change of a run, and each new event.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Says that something has changed.
    pub(crate) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// Says that a run was added to those that wait.
    pub(crate) fn added(&self) {
        self.changed();
        self.is_added.notify_one();
    }

    /// The run whose process runs, and about how many seconds it still takes.
    pub(crate) fn running(&self) -> Option<(RunName, Option<f64>)> {
        let current = self.current();
        let current = current.as_ref()?;
        let record = self.store().get(&current.name)?.clone();
        let done = record.done.saturating_sub(current.done_before);
        let each = current.begin.elapsed().as_secs_f64() / done as f64;
        let left = (done > 0).then(|| each * record.total.saturating_sub(record.done) as f64);
        Some((current.name.clone(), left))
    }

    /// Stops a run that waits or runs. Returns whether it was one.
    ///
    /// # Errors
    /// If the state of a run that waits cannot be written.
    pub(crate) fn stop(&self, name: &RunName) -> io::Result<bool> {
        if let Some(current) = self.current().as_mut().filter(|current| current.name == *name) {
            current.is_stopped = true;
            current.stop.notify_one();
            return Ok(true);
        }
        let mut store = self.store();
        let is_queued = store.get(name).is_some_and(RunRecord::is_queued);
        if is_queued {
            store.change(name, |record| record.state = RunState::Stopped)?;
        }
        drop(store);
        self.changed();
        Ok(is_queued)
    }

    /// Runs what waits, for ever.
    pub(crate) async fn work(&self) {
        loop {
            self.store().write_again();
            let next = self.store().queued().next().map(|record| record.id.clone());
            match next {
                Some(name) => self.run(name).await,
                None => {
                    let _ = timeout(WRITE_INTERVAL, self.is_added.notified()).await;
                }
            }
        }
    }

    /// Runs a run to its end.
    async fn run(&self, name: RunName) {
        let directory = self.store().directory_of(&name);
        let done_before = self.store().get(&name).map_or(0, |record| record.done);
        let stop = Arc::new(Notify::new());
        *self.current() = Some(CurrentRun {
            name: name.clone(),
            is_stopped: false,
            stop: Arc::clone(&stop),
            begin: Instant::now(),
            done_before,
            // Those of its earlier processes.
            invalid: RunJournal::read(&directory).unwrap_or_default().invalid(),
        });
        if !self.begin(&name) {
            // A person has stopped it.
            drop(self.current().take());
            return;
        }
        let outcome = self.process(&name, &directory, &stop).await;
        let is_stopped = self.current().take().is_some_and(|current| current.is_stopped);
        let (state, error) = match outcome {
            Ok((status, _)) if status.success() => (RunState::Finished, None),
            Ok(_) if is_stopped => (RunState::Stopped, None),
            Ok((status, said)) => (RunState::Failed, Some(reason(status, &said))),
            Err(error) => (RunState::Failed, Some(format!("cannot run it: {error}"))),
        };
        if let Ok(journal) = RunJournal::read(&directory) {
            let invalid = journal.invalid().len();
            self.store().advance(&name, |record| record.invalid = invalid);
        }
        self.note(&name, state, error);
    }

    /// Notes that a run begins. Returns whether it still waits.
    fn begin(&self, name: &RunName) -> bool {
        let is_queued = self.store().get(name).is_some_and(RunRecord::is_queued);
        if is_queued {
            self.note(name, RunState::Running, None);
        }
        is_queued
    }

    /// Notes the state of a run.
    fn note(&self, name: &RunName, state: RunState, error: Option<String>) {
        let noted = self.store().change(name, |record| {
            record.state = state;
            record.error = error;
        });
        if let Err(error) = noted {
            warn!("the state of run {} is not on the disk: {error}", name.as_str());
        }
        self.changed();
    }

    /// Starts the process, keeps its events, and waits for it. A process whose output is wrong is
    /// ended. Returns how it ended, and what it wrote to standard error.
    async fn process(
        &self,
        name: &RunName,
        directory: &RunDirectory,
        stop: &Notify,
    ) -> io::Result<(ExitStatus, String)> {
        let log = EventLog::open(&directory.events())?;
        let mut child = self.start(name, directory)?;
        let said = tokio::spawn(read_errors(child.stderr.take()));
        let events = child.stdout.take().ok_or_else(|| io::Error::other("it has no output"))?;
        let keeping = async {
            let mut kept = pin!(self.keep_events(name, log, events));
            loop {
                tokio::select! {
                    kept = &mut kept => return kept,
                    () = stop.notified() => interrupt(&child)?,
                }
            }
        };
        // The process cannot wait for a reader after this.
        let kept = keeping.await;
        if kept.is_err() {
            interrupt(&child)?;
        }
        let status = child.wait().await?;
        kept?;
        Ok((status, said.await.unwrap_or_default()))
    }

    fn start(&self, name: &RunName, directory: &RunDirectory) -> io::Result<Child> {
        let record = self.store().get(name).cloned();
        let record = record.ok_or_else(|| io::Error::other("the run was deleted"))?;
        Command::new(&self.program)
            .args(["lab", "run"])
            .arg(directory.path().join(&record.file))
            .arg("--out")
            .arg(directory.path())
            .arg("--events")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
    }

    /// Appends the events of a process to the run's file, and counts trials. Ends when the process
    /// has closed its output.
    async fn keep_events(
        &self,
        name: &RunName,
        mut log: EventLog,
        events: impl AsyncRead + Unpin,
    ) -> io::Result<()> {
        let mut lines = BufReader::new(events);
        loop {
            let mut line = Vec::new();
            let mut limited = (&mut lines).take(MAX_LINE);
            if limited.read_until(b'\n', &mut line).await? == 0 {
                return Ok(());
            }
            if line.last() != Some(&b'\n') {
                return Err(io::Error::other("its output is no list of events"));
            }
            if let Ok(event) = serde_json::from_slice::<RunEvent>(&line) {
                self.count(name, &event);
            }
            // The results are elsewhere: a run goes on even if a full disk takes no events.
            if let Err(error) = log.append(&line) {
                warn!("an event of run {} is lost: {error}", name.as_str());
            }
            self.changed();
        }
    }

    /// Counts the trials that are done, and the invalid ones.
    fn count(&self, name: &RunName, event: &RunEvent) {
        let mut current = self.current();
        let Some(current) = current.as_mut() else { return };
        match (event.number, event.invalid) {
            (Some(number), Some(true)) => drop(current.invalid.insert(number)),
            (Some(number), Some(false)) => drop(current.invalid.remove(&number)),
            _ => {}
        }
        let invalid = current.invalid.len();
        self.store().advance(name, |record| {
            record.done = event.done.unwrap_or(record.done);
            record.invalid = invalid;
        });
    }
}

/// The file of a run's events. It has whole lines only.
struct EventLog {
    file: File,
    len: u64,
}

impl EventLog {
    fn open(path: &Path) -> io::Result<Self> {
        let opened = OpenOptions::new().create(true).append(true).open(path);
        let opened = opened.and_then(|file| Ok(Self { len: file.metadata()?.len(), file }));
        opened.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
        })
    }

    /// Appends a line, or nothing if not all of it can be written.
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(line);
        match &written {
            Ok(()) => self.len += line.len() as u64,
            // What was written of it is removed.
            Err(_) => drop(self.file.set_len(self.len)),
        }
        written
    }
}

/// Asks a process to end. It keeps what it has measured. Not by SIGINT: a process that a script has
/// started in the background ignores it.
fn interrupt(child: &Child) -> io::Result<()> {
    // A process that was waited for has no number any more.
    let process = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    process.map_or(Ok(()), |process| Ok(kill_process(process, Signal::TERM)?))
}

/// What a process writes to standard error. What is too long is not kept.
async fn read_errors(errors: Option<ChildStderr>) -> String {
    let mut said = Vec::new();
    if let Some(mut errors) = errors {
        let _ = (&mut errors).take(MAX_ERROR).read_to_end(&mut said).await;
        let _ = tokio::io::copy(&mut errors, &mut tokio::io::sink()).await;
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// Why a process failed: the last line that it wrote to standard error.
fn reason(status: ExitStatus, said: &str) -> String {
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    let line = last.map(|line| line.trim().trim_start_matches("error: ").to_owned());
    line.unwrap_or_else(|| format!("the process of the run ended: {status}"))
}
