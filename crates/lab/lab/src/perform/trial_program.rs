//! A program that runs on a host of a trial, wherever that is.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::command::ProgramCommand;
use super::outputs;
use super::program::{ProgramProcess, READY_TIMEOUT, opens, says};
use super::trial_network::TrialHost;
use crate::host::EmulatedHost;
use crate::sandbox;
use crate::site::{ProgramReadiness, ProgramSignal, ProgramStart, SiteProgram, TrialFilePath};

/// A program that was started on a host of a trial. It is killed when this is dropped, with all
/// that it started.
#[derive(Debug)]
pub(crate) enum TrialProgram<'a> {
    /// A process of this machine, on an emulated host.
    Emulated {
        /// The process.
        process: ProgramProcess,
        /// Its host.
        host: &'a EmulatedHost,
        /// When it was started.
        began: Instant,
    },
    /// A process of a site's machine.
    Site(SiteProgram<'a>),
}

impl<'a> TrialProgram<'a> {
    /// Starts a program. Its output is kept under `name`, one for each program of a host; with
    /// `has_errors` its standard error is kept apart.
    ///
    /// # Errors
    /// If it cannot be started, in one line.
    pub(crate) fn start(
        host: TrialHost<'a>,
        name: &str,
        command: &ProgramCommand,
        has_errors: bool,
    ) -> Result<Self, String> {
        match host {
            TrialHost::Emulated { host, files } => {
                let process =
                    ProgramProcess::start_named(Some(host), name, command, files, has_errors)?;
                Ok(Self::Emulated { process, host, began: Instant::now() })
            }
            TrialHost::Site { site, emulated } => {
                let start = start_at_site(name, emulated, command, has_errors)?;
                SiteProgram::start(site, start, None).map(Self::Site)
            }
        }
    }

    /// Starts a program whose output is kept with the results, as that of a party. It has no
    /// standard error apart.
    ///
    /// # Errors
    /// If it cannot be started, in one line.
    pub(crate) fn start_party(
        host: TrialHost<'a>,
        role: &str,
        command: &ProgramCommand,
    ) -> Result<Self, String> {
        let output = outputs::directory().join(role);
        match host {
            TrialHost::Emulated { host, .. } => {
                let process = ProgramProcess::start(Some(host), command, &output, None)?;
                Ok(Self::Emulated { process, host, began: Instant::now() })
            }
            TrialHost::Site { site, emulated } => {
                let start = start_at_site(role, emulated, command, false)?;
                SiteProgram::start(site, start, Some(output)).map(Self::Site)
            }
        }
    }

    /// Waits until a TCP port is open on its host.
    ///
    /// # Errors
    /// If the program ends before, or it takes too long.
    pub(crate) fn wait_for_port(&mut self, port: u16) -> Result<(), String> {
        match self {
            Self::Emulated { process, host, .. } => process.wait_for_port(Some(host), port),
            Self::Site(program) => {
                program.wait_until_ready(&ProgramReadiness::Port(port), READY_TIMEOUT, &opens(port))
            }
        }
    }

    /// Waits until it has printed a text.
    ///
    /// # Errors
    /// If the program ends before, or it takes too long.
    pub(crate) fn wait_for_output(&mut self, text: &str) -> Result<(), String> {
        match self {
            Self::Emulated { process, .. } => process.wait_for_output(text),
            Self::Site(program) => program.wait_until_ready(
                &ProgramReadiness::Text(text.to_owned()),
                READY_TIMEOUT,
                &says(text),
            ),
        }
    }

    /// Waits until the program ends, but no longer than `timeout`: `None` if it still runs.
    ///
    /// # Errors
    /// If it has printed too much, or cannot be seen.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<Option<ExitStatus>, String> {
        match self {
            Self::Emulated { process, .. } => process.wait(timeout),
            Self::Site(program) => program.wait(timeout),
        }
    }

    /// How long it ran, directly after [`Self::wait`] has said that it has ended: by the clock of
    /// its machine.
    pub(crate) fn time(&self) -> Duration {
        match self {
            Self::Emulated { began, .. } => began.elapsed(),
            Self::Site(program) => program.time().unwrap_or_default(),
        }
    }

    /// Asks it and all that it started to end, or with `at_once` ends them.
    ///
    /// # Errors
    /// If the signal cannot be sent.
    pub(crate) fn end(&self, at_once: bool) -> Result<(), String> {
        match self {
            Self::Emulated { process, .. } => {
                process.signal(if at_once { Signal::KILL } else { Signal::TERM })
            }
            Self::Site(program) => {
                program.signal(if at_once { ProgramSignal::Kill } else { ProgramSignal::Terminate })
            }
        }
    }

    /// Says so if a program that was to run on has failed, or printed too much.
    ///
    /// # Errors
    /// What has happened, in one line.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        match self {
            Self::Emulated { process, .. } => process.check(),
            Self::Site(program) => program.check(),
        }
    }

    /// What the program printed.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn output(&self) -> Result<String, String> {
        match self {
            Self::Emulated { process, .. } => process.output(),
            Self::Site(program) => program.output(),
        }
    }

    /// What went wrong, in one line, with the last line that the program printed.
    pub(crate) fn error_with_output(&self, what: &str) -> String {
        match self {
            Self::Emulated { process, .. } => process.error_with_output(what),
            Self::Site(program) => program.error_with_output(what),
        }
    }

    /// How it failed, in one line, with the end of what it printed.
    pub(crate) fn failure(&self, status: ExitStatus) -> String {
        match self {
            Self::Emulated { process, .. } => process.failure(status),
            Self::Site(program) => program.failure(),
        }
    }
}

/// How an agent starts a command.
pub(crate) fn start_at_site(
    name: &str,
    host: Option<&str>,
    command: &ProgramCommand,
    has_errors: bool,
) -> Result<ProgramStart, String> {
    let ProgramCommand { run, environment, directory } = command;
    let below = |directory: &PathBuf| {
        let below = directory.strip_prefix(sandbox::trial_files()).ok()?.to_str()?;
        TrialFilePath::new(below)
    };
    let directory = directory.as_ref().map(|directory| {
        below(directory).ok_or_else(|| format!("{}: not of the trial", directory.display()))
    });
    Ok(ProgramStart {
        name: name.to_owned(),
        host: host.map(str::to_owned),
        run: run.clone(),
        environment: environment.clone().into_iter().collect(),
        directory: directory.transpose()?,
        has_errors,
    })
}
