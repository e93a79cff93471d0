//! A script that runs.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use containment::{
    ContainedCommand, ContainedEnd, ContainedExit, ContainedProcess, ContainmentError,
    ContainmentLimit, ContainmentLimits, UploadBounds,
};
use rustix::process::Signal;
use tempfile::TempDir;

use super::folder::ScriptPair;
use crate::host::EmulatedHost;
use crate::perform::command::ProgramCommand;
use crate::perform::outputs;
use crate::perform::program::{ProgramProcess, output_tail};
use crate::sandbox::SCRATCH;

/// The time in which a contained script that has reached its limit is gone.
const LIMIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A running script.
pub(super) struct ScriptParty {
    process: ScriptProcess,
    /// The file with its output.
    output: PathBuf,
    end: Option<ScriptEnd>,
}

/// The process of a script.
enum ScriptProcess {
    /// One that is not contained, with the privileges of the user.
    Own {
        program: ProgramProcess,
        began: Instant,
        /// Its copy of the folder. It is removed with this.
        _copy: TempDir,
    },
    Contained {
        process: ContainedProcess,
        limits: ContainmentLimits,
    },
}

/// How a script's process has ended.
#[derive(Clone, Copy, Debug)]
struct ScriptEnd {
    exit: i32,
    limit: Option<ContainmentLimit>,
    time: Duration,
}

/// How a script has ended.
#[derive(Clone, Debug)]
pub(super) struct PartyEnd {
    /// The exit code; 128 and the signal's number after a signal.
    pub(super) exit: i32,
    pub(super) time: Duration,
    /// Whether it did not end by itself.
    pub(super) was_ended: bool,
    /// The name of the limit at which it was stopped, and what that is.
    pub(super) limit: Option<(&'static str, String)>,
    /// The end of its output, in one line.
    pub(super) tail: String,
}

impl PartyEnd {
    /// What has failed, if it has. A server need not end by itself, but a client has to.
    pub(super) fn failure(&self, role: &str) -> Option<String> {
        let what = match &self.limit {
            Some((name, what)) => format!("stopped ({name}): {what}"),
            None if self.was_ended && role == "client" => {
                format!("ended after {:.0} s", self.time.as_secs_f64())
            }
            None if self.was_ended || self.exit == 0 => return None,
            None => format!("exit code {}", self.exit),
        };
        let colon = if self.tail.is_empty() { "" } else { ": " };
        Some(format!("{what}{colon}{}", self.tail))
    }
}

impl ScriptParty {
    /// Starts a script on a host, in a sandbox if there are limits.
    pub(super) fn start(
        role: &str,
        host: &EmulatedHost,
        pair: &ScriptPair,
        arguments: &[String],
        limits: Option<ContainmentLimits>,
    ) -> Result<Self, String> {
        let run = [&["sh".into(), format!("./{}", pair.script(role))], arguments].concat();
        let output = outputs::directory().join(role);
        let process = match limits {
            Some(limits) => contained(host, pair, run, limits, &output)?,
            None => own(host, pair, run, &output)?,
        };
        Ok(Self { process, output, end: None })
    }

    /// How it is contained, in words.
    pub(super) fn means(&self) -> &str {
        match &self.process {
            ScriptProcess::Own { .. } => "not contained",
            ScriptProcess::Contained { process, .. } => process.means(),
        }
    }

    /// Waits at most so long, and returns whether it has ended.
    pub(super) fn has_ended(&mut self, wait: Duration) -> Result<bool, String> {
        if self.end.is_none() {
            self.end = self.process.wait(wait)?;
        }
        Ok(self.end.is_some())
    }

    /// How it has ended, if it has.
    pub(super) fn end_if_ended(&mut self) -> Result<Option<PartyEnd>, String> {
        let end = if self.has_ended(Duration::ZERO)? { self.end } else { None };
        Ok(end.map(|end| self.described(end, false)))
    }

    /// Waits until it ends. It is ended after `limit`, which is also that of its sandbox.
    pub(super) fn end_within(&mut self, limit: Duration) -> Result<PartyEnd, String> {
        match self.process {
            ScriptProcess::Own { .. } => self.stop(limit, Duration::ZERO),
            ScriptProcess::Contained { .. } => self.stop(limit + LIMIT_TIMEOUT, Duration::ZERO),
        }
    }

    /// Waits so long until it ends. Then it is asked to end, and ended after `grace`.
    pub(super) fn stop(&mut self, wait: Duration, grace: Duration) -> Result<PartyEnd, String> {
        let was_ended = !self.has_ended(wait)?;
        if was_ended {
            self.process.terminate()?;
            if !self.has_ended(grace)? {
                self.process.kill()?;
            }
            while !self.has_ended(Duration::from_millis(100))? {}
        }
        let end = self.end.ok_or("it has not ended")?;
        Ok(self.described(end, was_ended))
    }

    fn described(&self, end: ScriptEnd, was_ended: bool) -> PartyEnd {
        let limit = match (&self.process, end.limit) {
            (ScriptProcess::Contained { limits, .. }, Some(limit)) => {
                Some((limit.name(), limits.describe(limit)))
            }
            _ => None,
        };
        let was_ended = was_ended || limit.is_some();
        let ScriptEnd { exit, time, .. } = end;
        PartyEnd { exit, time, was_ended, limit, tail: tail(&self.output) }
    }
}

impl ScriptProcess {
    fn wait(&mut self, timeout: Duration) -> Result<Option<ScriptEnd>, String> {
        match self {
            Self::Own { program, began, .. } => {
                let status = program.wait(timeout)?;
                Ok(status.map(|status| {
                    let signal = status.signal().map(|signal| 128 + signal);
                    let exit = status.code().or(signal).unwrap_or(1);
                    ScriptEnd { exit, limit: None, time: began.elapsed() }
                }))
            }
            Self::Contained { process, .. } => {
                let end = process.wait(timeout).map_err(|error| error.to_string())?;
                Ok(end.map(|ContainedEnd { exit, time }| {
                    let killed = 128 + Signal::KILL.as_raw();
                    let (exit, limit) = match exit {
                        ContainedExit::Code(code) => (code, None),
                        ContainedExit::Limit(limit) => (killed, Some(limit)),
                        ContainedExit::Killed => (killed, None),
                    };
                    ScriptEnd { exit, limit, time }
                }))
            }
        }
    }

    fn terminate(&self) -> Result<(), String> {
        match self {
            Self::Own { program, .. } => program.signal(Signal::TERM),
            Self::Contained { process, .. } => {
                process.terminate();
                Ok(())
            }
        }
    }

    fn kill(&self) -> Result<(), String> {
        match self {
            Self::Own { program, .. } => program.signal(Signal::KILL),
            Self::Contained { process, .. } => {
                process.kill();
                Ok(())
            }
        }
    }
}

/// Starts a script in a sandbox.
fn contained(
    host: &EmulatedHost,
    pair: &ScriptPair,
    run: Vec<String>,
    limits: ContainmentLimits,
    output: &Path,
) -> Result<ScriptProcess, String> {
    let failed = |error: std::io::Error| format!("cannot contain a script: {error}");
    // A port below 1024 needs no capability: the hosts are those of the experiment alone.
    let _ = host.set("net/ipv4/ip_unprivileged_port_start", "0");
    let command = ContainedCommand {
        run,
        folder: pair.folder.clone(),
        directory: pair.directory.clone(),
        network: host.namespace().map_err(failed)?,
        limits,
        output: File::create(output).map_err(failed)?,
        scratch: SCRATCH.into(),
    };
    match ContainedProcess::start(command) {
        Ok(process) => Ok(ScriptProcess::Contained { process, limits }),
        Err(error @ ContainmentError::NotMade) => Err(format!("{error}: {}", tail(output))),
        Err(error) => Err(error.to_string()),
    }
}

/// Starts a script as the user.
fn own(
    host: &EmulatedHost,
    pair: &ScriptPair,
    run: Vec<String>,
    output: &Path,
) -> Result<ScriptProcess, String> {
    let copy = copy(pair)?;
    let directory = Some(copy.path().join(&pair.directory));
    let command = ProgramCommand { directory, ..ProgramCommand::new(run) };
    let program = ProgramProcess::start(Some(host), &command, output, None)?;
    Ok(ScriptProcess::Own { program, began: Instant::now(), _copy: copy })
}

/// Copies a folder. The time that this takes is not a script's.
fn copy(pair: &ScriptPair) -> Result<TempDir, String> {
    let shown = pair.path.display();
    let failed = |what: &str| format!("cannot copy {shown}: {what}");
    let copy = tempfile::tempdir_in(SCRATCH).map_err(|error| failed(&error.to_string()))?;
    if !pair.path.is_dir() {
        let unpacked = pair.folder.unpack(copy.path(), &UploadBounds::default());
        return unpacked.map(|()| copy).map_err(|error| failed(&error.to_string()));
    }
    let copied = Command::new("cp").arg("-r").arg(pair.path.join(".")).arg(copy.path()).output();
    let copied = copied.map_err(|error| failed(&error.to_string()))?;
    if copied.status.success() {
        Ok(copy)
    } else {
        Err(failed(String::from_utf8_lossy(&copied.stderr).trim()))
    }
}

/// The end of an output, in one line.
fn tail(output: &Path) -> String {
    output_tail(&String::from_utf8_lossy(&fs::read(output).unwrap_or_default()))
}
