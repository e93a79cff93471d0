//! A program at a site.

use std::cell::Cell;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use containment::ContainmentLimit;

use super::answer::AgentAnswer;
use super::connection::SiteConnection;
use super::message::contained::ContainedStart;
use super::message::{AgentRequest, ProgramReadiness, ProgramSignal, ProgramStart};

/// A program that was started at a site. It is killed when this is dropped, with all that it
/// started.
#[derive(Debug)]
pub(crate) struct SiteProgram<'a> {
    site: &'a SiteConnection,
    number: u8,
    /// Its status, how long it ran and the limit at which it was stopped, if it has ended.
    ended: Option<(ExitStatus, Duration, Option<ContainmentLimit>)>,
    /// When it was told to end at once.
    killed: Cell<Option<Instant>>,
    /// The file of this machine that gets a copy of its output.
    copy: Option<PathBuf>,
}

/// How long a program may go on after it was told to end at once. The kernel may be busy for it.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);

impl<'a> SiteProgram<'a> {
    /// Starts a program. The file `copy` gets its output when that is read.
    pub(crate) fn start(
        site: &'a SiteConnection,
        start: ProgramStart,
        copy: Option<PathBuf>,
    ) -> Result<Self, String> {
        match site.request(&AgentRequest::Start(start))? {
            AgentAnswer::Started(number) => {
                Ok(Self { site, number, ended: None, killed: Cell::default(), copy })
            }
            _ => Err(site.unexpected()),
        }
    }

    /// Starts a contained program. Also returns by what its limits are enforced.
    pub(crate) fn contain(
        site: &'a SiteConnection,
        start: ContainedStart,
        copy: Option<PathBuf>,
    ) -> Result<(Self, String), String> {
        match site.request(&AgentRequest::Contain(start))? {
            AgentAnswer::Contained { program: number, means } => {
                Ok((Self { site, number, ended: None, killed: Cell::default(), copy }, means))
            }
            _ => Err(site.unexpected()),
        }
    }

    /// Waits until it is ready, at most for `timeout`. Otherwise the error says that it did not do
    /// what is `expected`.
    pub(crate) fn wait_until_ready(
        &mut self,
        readiness: &ProgramReadiness,
        timeout: Duration,
        expected: &str,
    ) -> Result<(), String> {
        let deadline = Instant::now() + timeout;
        loop {
            let (left, program) = (deadline.saturating_duration_since(Instant::now()), self.number);
            let (readiness, wait) = (readiness.clone(), left.min(self.site.max_wait()));
            match self.site.request(&AgentRequest::Await { program, readiness, wait })? {
                AgentAnswer::Ready => return Ok(()),
                AgentAnswer::NotYet if left.is_zero() => {
                    let within = format!("did not {expected} within {} s", timeout.as_secs());
                    return Err(self.error_with_output(&within));
                }
                AgentAnswer::NotYet => {}
                _ => return Err(self.site.unexpected()),
            }
        }
    }

    /// Waits until it has ended, but no longer than `timeout`: `None` if it still runs.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<Option<ExitStatus>, String> {
        let deadline = Instant::now() + timeout;
        while self.ended.is_none() {
            let (left, program) = (deadline.saturating_duration_since(Instant::now()), self.number);
            let wait = left.min(self.site.max_wait());
            match self.site.request(&AgentRequest::Wait { program, wait })? {
                AgentAnswer::Ended { status, time, limit } => {
                    self.ended = Some((ExitStatus::from_raw(status), time, limit));
                }
                AgentAnswer::NotYet
                    if self.killed.get().is_some_and(|at| at.elapsed() > KILL_TIMEOUT) =>
                {
                    return Err(self.site.line("a program does not end"));
                }
                AgentAnswer::NotYet if left.is_zero() || wait == left => return Ok(None),
                AgentAnswer::NotYet => {}
                _ => return Err(self.site.unexpected()),
            }
        }
        Ok(self.ended.map(|(status, ..)| status))
    }

    /// How long it ran, by the clock of its machine, if it has ended.
    pub(crate) fn time(&self) -> Option<Duration> {
        self.ended.map(|(_, time, _)| time)
    }

    /// The limit at which it was stopped, if it was contained.
    pub(crate) fn limit(&self) -> Option<ContainmentLimit> {
        self.ended.and_then(|(_, _, limit)| limit)
    }

    /// Sends a signal to it and all that it started.
    pub(crate) fn signal(&self, signal: ProgramSignal) -> Result<(), String> {
        if signal == ProgramSignal::Kill {
            self.killed.set(self.killed.get().or_else(|| Some(Instant::now())));
        }
        self.site.order(&AgentRequest::Signal { program: self.number, signal })
    }

    /// Says so if it was to run on and has failed, or printed too much.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        self.site.order(&AgentRequest::Check { program: self.number })
    }

    /// What it printed.
    pub(crate) fn output(&self) -> Result<String, String> {
        let mut output = Vec::new();
        loop {
            let (program, offset) = (self.number, output.len() as u64);
            match self.site.request(&AgentRequest::Output { program, offset })? {
                AgentAnswer::Piece(piece) if piece.is_empty() => break,
                AgentAnswer::Piece(piece) => output.extend(piece),
                _ => return Err(self.site.unexpected()),
            }
            if output.len() > MAX_OUTPUT_LEN {
                return Err(self.site.line("a program printed too much"));
            }
        }
        if let Some(copy) = &self.copy {
            fs::write(copy, &output).map_err(|error| format!("{}: {error}", copy.display()))?;
        }
        Ok(String::from_utf8_lossy(&output).into_owned())
    }

    /// What went wrong, in one line, with the last line that it printed.
    pub(crate) fn error_with_output(&self, what: &str) -> String {
        self.explain(what.to_owned()).unwrap_or_else(|why| why)
    }

    /// How it failed, in one line, with the end of what it printed.
    pub(crate) fn failure(&self) -> String {
        self.explain(String::new()).unwrap_or_else(|why| why)
    }

    fn explain(&self, what: String) -> Result<String, String> {
        match self.site.request(&AgentRequest::Explain { program: self.number, what })? {
            AgentAnswer::Line(line) => Ok(self.site.line(&line)),
            _ => Err(self.site.unexpected()),
        }
    }
}

/// The maximum length of a program's output. The agent has the same limit.
const MAX_OUTPUT_LEN: usize = 65 << 20;

impl Drop for SiteProgram<'_> {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // It ends with the trial otherwise.
            let _ = self.signal(ProgramSignal::Kill);
        }
    }
}
