//! Runs one experiment after another, each in a process of its own: two at a time would measure
//! each other. Accounts take turns.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::future::pending;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use accounts::AccountId;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::{Notify, watch};
use tokio::time::{interval, timeout};
use tracing::warn;

use crate::account_service::AccountService;
use crate::fair_queue::FairQueue;
use crate::journal::RunJournal;
use crate::run::{RunDirectory, RunName, RunRecord, RunState};
use crate::run_meter::{MEASURE_INTERVAL, RunMeter};
use crate::store::RunStore;

/// The runs, and the one that runs now.
pub(crate) struct RunQueue {
    /// This program.
    program: PathBuf,
    store: Mutex<RunStore>,
    current: Mutex<Option<CurrentRun>>,
    /// The accounts, if there are any. Without them, all runs are of the only user.
    accounts: Option<Arc<AccountService>>,
    /// Whose run runs next.
    turns: Mutex<FairQueue<Option<AccountId>>>,
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
    /// The limit that it has exceeded, in one line.
    exceeded: Option<String>,
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

/// How long a process may take to end when it is asked to, while runs of others wait.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// After this time, states that could not be written are written again.
const WRITE_INTERVAL: Duration = Duration::from_secs(10);

impl RunQueue {
    pub(crate) fn new(
        program: PathBuf,
        store: RunStore,
        accounts: Option<Arc<AccountService>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            program,
            store: Mutex::new(store),
            current: Mutex::new(None),
            accounts,
            turns: Mutex::default(),
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

    fn turns(&self) -> MutexGuard<'_, FairQueue<Option<AccountId>>> {
        self.turns.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The accounts, if there are any.
    pub(crate) fn accounts(&self) -> Option<&Arc<AccountService>> {
        self.accounts.as_ref()
    }

    /// The runs that wait, in the order in which they run if no others come.
    pub(crate) fn waiting(&self) -> Vec<RunName> {
        let (owners, names) = self.queued(|_| true);
        let order = self.turns().order(&owners);
        order.into_iter().map(|place| names[place].clone()).collect()
    }

    /// The run that runs next, if there is one that may.
    fn next(&self) -> Option<RunName> {
        // The time of an account is looked up once.
        let mut may_run = BTreeMap::new();
        let (owners, mut names) = self.queued(|owner| {
            let Some((accounts, id)) = self.accounts.as_ref().zip(owner) else { return true };
            let has_time = || accounts.time_today(id) < accounts.limits.time_a_day;
            *may_run.entry(id).or_insert_with(has_time)
        });
        let next = self.turns().next(&owners)?;
        Some(names.swap_remove(next))
    }

    /// The accounts and the names of the runs that wait, the first one first.
    fn queued(
        &self,
        mut may_run: impl FnMut(Option<AccountId>) -> bool,
    ) -> (Vec<Option<AccountId>>, Vec<RunName>) {
        let store = self.store();
        let queued = store.queued().filter(|run| may_run(run.owner));
        queued.map(|run| (run.owner, run.id.clone())).unzip()
    }

    /// Removes what accounts that were removed have left, except for a run that runs.
    fn remove_left_runs(&self) {
        let Some(accounts) = &self.accounts else { return };
        let owners = self.store().owners();
        for owner in owners.into_iter().filter(|owner| accounts.is_removed(*owner)) {
            let mut store = self.store();
            let left = store.of(owner).filter(|run| run.state != RunState::Running);
            let left: Vec<RunName> = left.map(|run| run.id.clone()).collect();
            for name in left {
                if let Err(error) = store.remove(&name) {
                    warn!("run {} cannot be removed: {error}", name.as_str());
                }
            }
            drop(store);
            self.turns().forget(Some(owner));
            self.changed();
        }
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
            self.remove_left_runs();
            match self.next() {
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
            exceeded: None,
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
        let current = self.current().take();
        let (is_stopped, exceeded) =
            current.map_or((false, None), |current| (current.is_stopped, current.exceeded));
        let (state, error) = match outcome {
            Ok((status, _)) if status.success() => (RunState::Finished, None),
            Ok(_) if exceeded.is_some() => (RunState::Stopped, exceeded),
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
            let owner = self.store().get(name).and_then(|record| record.owner);
            self.turns().serve(owner);
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
        let (kept, limiting) = tokio::select! {
            kept = keeping => (kept, None),
            exceeded = self.exceed_limit(name, directory) => (Ok(()), Some(exceeded)),
        };
        if kept.is_err() || limiting.is_some() {
            interrupt(&child)?;
        }
        let status = match timeout(END_TIMEOUT, child.wait()).await {
            Ok(status) => status?,
            Err(_) if limiting.is_none() && self.accounts.is_none() => child.wait().await?,
            // Runs of others wait.
            Err(_) => {
                child.start_kill()?;
                child.wait().await?
            }
        };
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

    /// Waits until a run exceeds a limit. The only user has none.
    async fn exceed_limit(&self, name: &RunName, directory: &RunDirectory) {
        let owner = self.store().get(name).and_then(|record| record.owner);
        let Some((accounts, owner)) = self.accounts.clone().zip(owner) else {
            return pending().await;
        };
        let mut meter = RunMeter::new(accounts, owner, directory.clone());
        let mut ticks = interval(MEASURE_INTERVAL);
        loop {
            ticks.tick().await;
            if let Some(why) = meter.exceeded() {
                if let Some(current) = self.current().as_mut() {
                    current.exceeded = Some(why);
                }
                return;
            }
            self.remove_left_runs();
        }
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
