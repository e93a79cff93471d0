//! A program that runs on a host of a trial, wherever that is.

use std::process::ExitStatus;
use std::time::Duration;

use super::command::ProgramCommand;
use super::program::ProgramProcess;
use super::trial_network::TrialHost;
use crate::host::EmulatedHost;

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
    },
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
                Ok(Self::Emulated { process, host })
            }
        }
    }

    /// Waits until a TCP port is open on its host.
    ///
    /// # Errors
    /// If the program ends before, or it takes too long.
    pub(crate) fn wait_for_port(&mut self, port: u16) -> Result<(), String> {
        match self {
            Self::Emulated { process, host } => process.wait_for_port(Some(host), port),
        }
    }

    /// Waits until it has printed a text.
    ///
    /// # Errors
    /// If the program ends before, or it takes too long.
    pub(crate) fn wait_for_output(&mut self, text: &str) -> Result<(), String> {
        match self {
            Self::Emulated { process, .. } => process.wait_for_output(text),
        }
    }

    /// Waits until the program ends, but no longer than `timeout`: `None` if it still runs.
    ///
    /// # Errors
    /// If it has printed too much, or cannot be seen.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<Option<ExitStatus>, String> {
        match self {
            Self::Emulated { process, .. } => process.wait(timeout),
        }
    }

    /// Says so if a program that was to run on has failed, or printed too much.
    ///
    /// # Errors
    /// What has happened, in one line.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        match self {
            Self::Emulated { process, .. } => process.check(),
        }
    }

    /// What the program printed.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn output(&self) -> Result<String, String> {
        match self {
            Self::Emulated { process, .. } => process.output(),
        }
    }

    /// What went wrong, in one line, with the last line that the program printed.
    pub(crate) fn error_with_output(&self, what: &str) -> String {
        match self {
            Self::Emulated { process, .. } => process.error_with_output(what),
        }
    }

    /// How it failed, in one line, with the end of what it printed.
    pub(crate) fn failure(&self, status: ExitStatus) -> String {
        match self {
            Self::Emulated { process, .. } => process.failure(status),
        }
    }
}
