//! A script that runs.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use containment::{
    ContainedCommand, ContainedEnd, ContainedExit, ContainedProcess, ContainmentError,
    ContainmentLimit, ContainmentLimits, GuestMachine, UploadBounds,
};
use rustix::process::Signal;
use tempfile::TempDir;

use super::folder::ScriptPair;
use super::{NO_MACHINE_AT_SITE, UNCONTAINED_SITE};
use crate::host::EmulatedHost;
use crate::perform::command::ProgramCommand;
use crate::perform::outputs;
use crate::perform::program::output_tail;
use crate::perform::trial_network::TrialHost;
use crate::perform::trial_program::TrialProgram;
use crate::sandbox::{SCRATCH, program_link};
use crate::site::{
    ContainedStart, ProgramSignal, ProgramStart, SiteConnection, SiteProgram, TrialFilePath,
};

/// The time in which a contained script that has reached its limit is gone.
const LIMIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A running script.
pub(super) struct ScriptParty<'a> {
    process: ScriptProcess<'a>,
    end: Option<ScriptEnd>,
}

/// What contains a script.
#[derive(Debug)]
pub(super) enum ScriptBounds {
    /// Nothing.
    None,
    /// A sandbox with limits.
    Sandbox(ContainmentLimits),
    /// A virtual machine in a sandbox.
    Machine(ContainmentLimits, GuestMachine),
}

/// The process of a script.
enum ScriptProcess<'a> {
    /// One that is not contained, with the privileges of the user.
    Own {
        program: TrialProgram<'a>,
        /// Its copy of the folder, on an emulated host. It is removed with this.
        _copy: Option<TempDir>,
    },
    Contained {
        process: ContainedProcess,
        limits: ContainmentLimits,
        /// The file with its output.
        output: PathBuf,
    },
    /// One that is contained at a site.
    ContainedAtSite {
        program: SiteProgram<'a>,
        limits: ContainmentLimits,
        /// By what the limits are enforced, in words.
        means: String,
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

impl<'a> ScriptParty<'a> {
    /// Starts a script on a host.
    pub(super) fn start(
        role: &str,
        host: TrialHost<'a>,
        pair: &ScriptPair,
        arguments: &[String],
        bounds: ScriptBounds,
    ) -> Result<Self, String> {
        let run = [&["sh".into(), format!("./{}", pair.script(role))], arguments].concat();
        let process = match (bounds, host) {
            (ScriptBounds::None, _) => own(role, host, pair, run)?,
            (ScriptBounds::Sandbox(limits), TrialHost::Emulated { host, .. }) => {
                contained(role, host, pair, run, limits, None)?
            }
            (ScriptBounds::Machine(limits, machine), TrialHost::Emulated { host, .. }) => {
                contained(role, host, pair, run, limits, Some(machine))?
            }
            (ScriptBounds::Sandbox(limits), TrialHost::Site { site, emulated: Some(host) }) => {
                contained_at_site(role, site, host, pair, run, limits)?
            }
            (ScriptBounds::Machine(..), TrialHost::Site { site, .. }) => {
                return Err(site.line(NO_MACHINE_AT_SITE));
            }
            (ScriptBounds::Sandbox(_), TrialHost::Site { site, .. }) => {
                return Err(site.line(UNCONTAINED_SITE));
            }
        };
        Ok(Self { process, end: None })
    }

    /// How it is contained, in words.
    pub(super) fn means(&self) -> &str {
        match &self.process {
            ScriptProcess::Own { .. } => "not contained",
            ScriptProcess::Contained { process, .. } => process.means(),
            ScriptProcess::ContainedAtSite { means, .. } => means,
        }
    }

    /// Whether a port has been open in its virtual machine.
    pub(super) fn has_opened_port(&self) -> bool {
        match &self.process {
            ScriptProcess::Own { .. } | ScriptProcess::ContainedAtSite { .. } => false,
            ScriptProcess::Contained { process, .. } => process.has_opened_port(),
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
        end.map(|end| self.described(end, false)).transpose()
    }

    /// Waits until it ends. It is ended after `limit`, which is also that of its sandbox.
    pub(super) fn end_within(&mut self, limit: Duration) -> Result<PartyEnd, String> {
        match self.process {
            ScriptProcess::Own { .. } => self.stop(limit, Duration::ZERO),
            ScriptProcess::Contained { .. } | ScriptProcess::ContainedAtSite { .. } => {
                self.stop(limit + LIMIT_TIMEOUT, Duration::ZERO)
            }
        }
    }

    /// Waits so long until it ends. Then it is asked to end, and ended after `grace`.
    pub(super) fn stop(&mut self, wait: Duration, grace: Duration) -> Result<PartyEnd, String> {
        let was_ended = !self.has_ended(wait)?;
        if was_ended {
            self.process.end(false)?;
            if !self.has_ended(grace)? {
                self.process.end(true)?;
            }
            while !self.has_ended(Duration::from_millis(100))? {}
        }
        let end = self.end.ok_or("it has not ended")?;
        self.described(end, was_ended)
    }

    fn described(&self, end: ScriptEnd, was_ended: bool) -> Result<PartyEnd, String> {
        let (limit, output) = match &self.process {
            ScriptProcess::Own { program, .. } => (None, program.output()?),
            ScriptProcess::Contained { limits, output, .. } => {
                let limit = end.limit.map(|limit| (limit.name(), limits.describe(limit)));
                (limit, read(output))
            }
            ScriptProcess::ContainedAtSite { program, limits, .. } => {
                let limit = end.limit.map(|limit| (limit.name(), limits.describe(limit)));
                (limit, program.output()?)
            }
        };
        let was_ended = was_ended || limit.is_some();
        let ScriptEnd { exit, time, .. } = end;
        Ok(PartyEnd { exit, time, was_ended, limit, tail: output_tail(&output) })
    }
}

impl ScriptProcess<'_> {
    fn wait(&mut self, timeout: Duration) -> Result<Option<ScriptEnd>, String> {
        match self {
            Self::Own { program, .. } => {
                let status = program.wait(timeout)?;
                Ok(status.map(|status| {
                    let signal = status.signal().map(|signal| 128 + signal);
                    let exit = status.code().or(signal).unwrap_or(1);
                    ScriptEnd { exit, limit: None, time: program.time() }
                }))
            }
            Self::ContainedAtSite { program, .. } => {
                let status = program.wait(timeout)?;
                Ok(status.map(|status| {
                    let signal = status.signal().map(|signal| 128 + signal);
                    let exit = status.code().or(signal).unwrap_or(1);
                    let time = program.time().unwrap_or_default();
                    ScriptEnd { exit, limit: program.limit(), time }
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

    /// Asks it to end, or with `at_once` ends it.
    fn end(&self, at_once: bool) -> Result<(), String> {
        match self {
            Self::Own { program, .. } => program.end(at_once)?,
            Self::Contained { process, .. } if at_once => process.kill(),
            Self::Contained { process, .. } => process.terminate(),
            Self::ContainedAtSite { program, .. } => program.signal(if at_once {
                ProgramSignal::Kill
            } else {
                ProgramSignal::Terminate
            })?,
        }
        Ok(())
    }
}

/// Starts a script in a sandbox, or in a virtual machine there.
fn contained<'a>(
    role: &str,
    host: &EmulatedHost,
    pair: &ScriptPair,
    run: Vec<String>,
    limits: ContainmentLimits,
    machine: Option<GuestMachine>,
) -> Result<ScriptProcess<'a>, String> {
    let failed = |error: std::io::Error| format!("cannot contain a script: {error}");
    // A port below 1024 needs no capability: the hosts are those of the experiment alone.
    let _ = host.set("net/ipv4/ip_unprivileged_port_start", "0");
    let output = outputs::directory().join(role);
    let command = ContainedCommand {
        run,
        folder: pair.folder.clone(),
        directory: pair.directory.clone(),
        program: Some(program_link()),
        network: host.namespace().map_err(failed)?,
        machine,
        limits,
        output: File::create(&output).map_err(failed)?,
        scratch: SCRATCH.into(),
    };
    match ContainedProcess::start(command) {
        Ok(process) => Ok(ScriptProcess::Contained { process, limits, output }),
        Err(error @ (ContainmentError::NotMade | ContainmentError::NotBooted)) => {
            Err(format!("{error}: {}", console_reason(&read(&output))))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Why a sandbox or a guest has ended, from what it printed: the guest's own words, or those of its
/// kernel at a panic, before the trace that follows, or else the last ones.
fn console_reason(console: &str) -> String {
    let words = ["the guest ", "Kernel panic"];
    let of_line = |line: &str| words.iter().find_map(|word| line.find(word));
    let found = console.lines().find_map(|line| Some(&line[of_line(line)?..]));
    output_tail(found.unwrap_or(console))
}

/// Starts a script in a sandbox of a host that is emulated at a site.
fn contained_at_site<'a>(
    role: &str,
    site: &'a SiteConnection,
    host: &str,
    pair: &ScriptPair,
    run: Vec<String>,
    limits: ContainmentLimits,
) -> Result<ScriptProcess<'a>, String> {
    let shown = pair.path.display();
    let failed = |what: &str| format!("cannot copy {shown}: {what}");
    let copy = tempfile::tempdir_in(SCRATCH).map_err(|error| failed(&error.to_string()))?;
    // What leads out of the folder is refused before anything is sent.
    let unpacked = pair.folder.unpack(copy.path(), &UploadBounds::of_limits(&limits));
    unpacked.map_err(|error| failed(&error.to_string()))?;
    site.write_folder(copy.path(), role)?;
    let directory = pair.directory.to_str().ok_or_else(|| failed("its name is not text"))?;
    let directory = match directory {
        "" => None,
        path => Some(TrialFilePath::new(path).ok_or_else(|| failed("its path is too long"))?),
    };
    let program = ProgramStart {
        name: role.to_owned(),
        host: Some(host.to_owned()),
        run,
        environment: Vec::new(),
        directory,
        has_errors: false,
    };
    let output = outputs::directory().join(role);
    let (program, means) =
        SiteProgram::contain(site, ContainedStart { program, limits }, Some(output))?;
    Ok(ScriptProcess::ContainedAtSite { program, limits, means })
}

/// Starts a script as the user.
fn own<'a>(
    role: &str,
    host: TrialHost<'a>,
    pair: &ScriptPair,
    run: Vec<String>,
) -> Result<ScriptProcess<'a>, String> {
    let copy = copy(pair)?;
    let (folder, copy) = match host {
        TrialHost::Emulated { .. } => (copy.path().to_owned(), Some(copy)),
        TrialHost::Site { site, .. } => {
            site.write_folder(copy.path(), role)?;
            (host.files().join(role), None)
        }
    };
    let directory = Some(folder.join(&pair.directory));
    let command = ProgramCommand { directory, ..ProgramCommand::new(run) };
    let program = TrialProgram::start_party(host, role, &command)?;
    Ok(ScriptProcess::Own { program, _copy: copy })
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

/// The output in a file.
fn read(output: &Path) -> String {
    String::from_utf8_lossy(&fs::read(output).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_on_a_console_is_one_line_without_a_trace() {
        let panic = "[    0.1] Kernel panic - not syncing: no memory\r\n[    0.1] Call Trace:\r\n";
        assert_eq!(console_reason(panic), "Kernel panic - not syncing: no memory");
        let guest = "SeaBIOS\r\nthe guest has no files\r\n[    1.0] reboot: Power down\r\n";
        assert_eq!(console_reason(guest), "the guest has no files");
        assert_eq!(console_reason("qemu: no\nbwrap: no pages\n"), "qemu: no bwrap: no pages");
    }
}
