//! A script that runs.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::folder::ScriptPair;
use crate::host::EmulatedHost;
use crate::perform::command::ProgramCommand;
use crate::perform::outputs;
use crate::perform::program::{ProgramProcess, output_tail};
use crate::sandbox::SCRATCH;

/// A running script.
pub(super) struct ScriptParty {
    program: ProgramProcess,
    /// Its copy of the folder. It is removed with this.
    _copy: TempDir,
    began: Instant,
    ended: Option<(ExitStatus, Duration)>,
}

/// How a script has ended.
#[derive(Clone, Debug)]
pub(super) struct PartyEnd {
    /// The exit code; 128 and the signal's number after a signal.
    pub(super) exit: i32,
    pub(super) time: Duration,
    /// Whether it did not end by itself.
    pub(super) was_ended: bool,
    /// The end of its output, in one line.
    pub(super) tail: String,
}

impl PartyEnd {
    /// What has failed, if it has. A server need not end by itself, but a client has to.
    pub(super) fn failure(&self, role: &str) -> Option<String> {
        if self.was_ended {
            let late = || format!("ended after {:.0} s: {}", self.time.as_secs_f64(), self.tail);
            return (role == "client").then(late);
        }
        (self.exit != 0).then(|| format!("exit code {}: {}", self.exit, self.tail))
    }
}

impl ScriptParty {
    /// Starts a script on a host.
    pub(super) fn start(
        role: &str,
        host: &EmulatedHost,
        pair: &ScriptPair,
        arguments: &[String],
    ) -> Result<Self, String> {
        let copy = copy(&pair.folder)?;
        let run = [&["sh".into(), format!("./{}", pair.script(role))], arguments].concat();
        let directory = Some(copy.path().to_owned());
        let command = ProgramCommand { directory, ..ProgramCommand::new(run) };
        let output = outputs::directory().join(role);
        let program = ProgramProcess::start(Some(host), &command, &output, None)?;
        Ok(Self { program, _copy: copy, began: Instant::now(), ended: None })
    }

    /// Waits at most so long, and returns whether it has ended.
    pub(super) fn has_ended(&mut self, wait: Duration) -> Result<bool, String> {
        if self.ended.is_none() {
            let status = self.program.wait(wait)?;
            self.ended = status.map(|status| (status, self.began.elapsed()));
        }
        Ok(self.ended.is_some())
    }

    /// How it has ended, if it has.
    pub(super) fn end_if_ended(&mut self) -> Result<Option<PartyEnd>, String> {
        if self.has_ended(Duration::ZERO)? {
            self.end(Duration::ZERO, Duration::ZERO).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Waits until it ends. After `limit`, it is asked to end, and ended after `grace`.
    pub(super) fn end(&mut self, limit: Duration, grace: Duration) -> Result<PartyEnd, String> {
        let was_ended = !self.has_ended(limit)?;
        if was_ended {
            self.program.signal(Signal::TERM)?;
            if !self.has_ended(grace)? {
                self.program.signal(Signal::KILL)?;
            }
            while !self.has_ended(Duration::from_millis(100))? {}
        }
        let (status, time) = self.ended.ok_or("it has not ended")?;
        let exit = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(1);
        Ok(PartyEnd { exit, time, was_ended, tail: output_tail(&self.program.output()?) })
    }
}

/// Copies a folder. The time that this takes is not a script's.
fn copy(folder: &Path) -> Result<TempDir, String> {
    let failed = |what: &str| format!("cannot copy {}: {what}", folder.display());
    let copy = tempfile::tempdir_in(SCRATCH).map_err(|error| failed(&error.to_string()))?;
    let copied = Command::new("cp").arg("-r").arg(folder.join(".")).arg(copy.path()).output();
    let copied = copied.map_err(|error| failed(&error.to_string()))?;
    if copied.status.success() {
        Ok(copy)
    } else {
        Err(failed(String::from_utf8_lossy(&copied.stderr).trim()))
    }
}
