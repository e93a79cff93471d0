//! The programs of a trial at a site.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use containment::{
    ContainedCommand, ContainedEnd, ContainedExit, ContainedProcess, ContainmentError,
    ContainmentLimit, UploadedFolder,
};
use rustix::process::Signal;

use crate::host::EmulatedHost;
use crate::perform::command::ProgramCommand;
use crate::perform::program::{ProgramProcess, output_tail};
use crate::sandbox;
use crate::site::{
    AgentAnswer, ContainedStart, MAX_PIECE_LEN, ProgramReadiness, ProgramSignal, ProgramStart,
};

/// A program of a trial. It is killed when this is dropped, with all that it started.
#[derive(Debug)]
pub(super) enum AgentProgram {
    /// One with the privileges of the agent's user.
    Own(OwnProgram),
    /// One of a stranger.
    Contained(ContainedProgram),
}

/// A program with the privileges of the agent's user.
#[derive(Debug)]
pub(super) struct OwnProgram {
    process: ProgramProcess,
    /// The emulated host on which it runs.
    host: Option<Arc<EmulatedHost>>,
    /// How long it ran, once it has ended.
    time: Arc<OnceLock<Duration>>,
    status: Option<ExitStatus>,
}

/// A program of a stranger, in a sandbox on an emulated host.
#[derive(Debug)]
pub(super) struct ContainedProgram {
    process: ContainedProcess,
    /// What it has printed.
    output: File,
    name: String,
}

impl AgentProgram {
    pub(super) fn wait_until_ready(
        &mut self,
        readiness: &ProgramReadiness,
        wait: Duration,
    ) -> Result<AgentAnswer, String> {
        let Self::Own(OwnProgram { process, host, .. }) = self else {
            return Err("a contained program does not say when it is ready".into());
        };
        let is_ready = match readiness {
            ProgramReadiness::Port(port) => process.has_port_within(host.as_deref(), *port, wait),
            ProgramReadiness::Text(text) => process.has_output_within(text, wait),
        };
        Ok(if is_ready? { AgentAnswer::Ready } else { AgentAnswer::NotYet })
    }

    pub(super) fn wait(&mut self, wait: Duration) -> Result<AgentAnswer, String> {
        let ended = match self {
            Self::Own(program) => program.wait(wait)?.map(|(status, time)| (status, time, None)),
            Self::Contained(program) => program.wait(wait)?,
        };
        Ok(ended.map_or(AgentAnswer::NotYet, |(status, time, limit)| AgentAnswer::Ended {
            status: status.into_raw(),
            time,
            limit,
        }))
    }

    pub(super) fn signal(&self, signal: ProgramSignal) {
        match self {
            Self::Own(program) => {
                let signal = match signal {
                    ProgramSignal::Terminate => Signal::TERM,
                    ProgramSignal::Kill => Signal::KILL,
                };
                // It may have ended meanwhile.
                let _ = program.process.signal(signal);
            }
            Self::Contained(program) => match signal {
                ProgramSignal::Terminate => program.process.terminate(),
                ProgramSignal::Kill => program.process.kill(),
            },
        }
    }

    pub(super) fn check(&mut self) -> Result<(), String> {
        match self {
            Self::Own(program) => program.process.check(),
            // Its limits are watched.
            Self::Contained(_) => Ok(()),
        }
    }

    pub(super) fn explain(&self, what: &str) -> String {
        match self {
            Self::Own(OwnProgram { process, status: Some(status), .. }) if what.is_empty() => {
                process.failure(*status)
            }
            Self::Own(program) => program.process.error_with_output(what),
            Self::Contained(ContainedProgram { output, name, .. }) => {
                format!("{name} {what}: {}", output_tail(&end_of(output)))
            }
        }
    }

    pub(super) fn output_piece(&self, offset: u64) -> Result<Vec<u8>, String> {
        match self {
            Self::Own(program) => program.process.output_piece(offset, MAX_PIECE_LEN),
            Self::Contained(ContainedProgram { output, name, .. }) => {
                let mut piece = vec![0; MAX_PIECE_LEN];
                let read = output.read_at(&mut piece, offset);
                piece.truncate(
                    read.map_err(|error| format!("cannot read what {name} printed: {error}"))?,
                );
                Ok(piece)
            }
        }
    }
}

impl OwnProgram {
    /// Starts it on the machine, or on an emulated host.
    pub(super) fn start(
        start: ProgramStart,
        host: Option<Arc<EmulatedHost>>,
    ) -> Result<Self, String> {
        let ProgramStart { name, run, environment, directory, has_errors, .. } = start;
        let files = sandbox::trial_files();
        let directory = directory.map_or_else(|| files.clone(), |it| it.below(&files));
        let command = ProgramCommand {
            run,
            environment: environment.into_iter().collect(),
            directory: Some(directory),
        };
        let process =
            ProgramProcess::start_named(host.as_deref(), &name, &command, &files, has_errors)?;
        let (began, time) = (Instant::now(), Arc::new(OnceLock::new()));
        let (ended, measured) = (process.ended()?, time.clone());
        // The time of the end is exact whatever the controller requests meanwhile.
        let watch = move || {
            ended.wait();
            let _ = measured.set(began.elapsed());
        };
        let spawned = thread::Builder::new().name("agent-program".into()).spawn(watch);
        spawned.map_err(|error| format!("cannot watch {name}: {error}"))?;
        Ok(Self { process, host, time, status: None })
    }

    fn wait(&mut self, wait: Duration) -> Result<Option<(ExitStatus, Duration)>, String> {
        if self.status.is_none() {
            self.status = self.process.wait(wait)?;
        }
        let Some(status) = self.status else { return Ok(None) };
        // The thread that watches it may be a moment behind.
        while self.time.get().is_none() {
            thread::yield_now();
        }
        Ok(Some((status, self.time.get().copied().unwrap_or_default())))
    }
}

impl ContainedProgram {
    /// Starts it on an emulated host. Also returns by what its limits are enforced.
    pub(super) fn start(
        start: ContainedStart,
        host: &EmulatedHost,
    ) -> Result<(Self, String), String> {
        let ContainedStart { program, limits } = start;
        let ProgramStart { name, run, directory, .. } = program;
        let failed = |error: io::Error| format!("cannot contain {name}: {error}");
        // A port below 1024 needs no capability: the host is that of the experiment alone.
        let _ = host.set("net/ipv4/ip_unprivileged_port_start", "0");
        let files = sandbox::trial_files();
        let folder = UploadedFolder::open(&files.join(&name)).map_err(|error| error.to_string())?;
        let path = files.join(format!(".{name}.log"));
        let file =
            || File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let output = file().map_err(failed)?;
        let command = ContainedCommand {
            run,
            folder,
            directory: directory.map_or_else(PathBuf::new, |it| it.below(&PathBuf::new())),
            program: Some(sandbox::program_link()),
            network: host.namespace().map_err(failed)?,
            machine: None,
            limits,
            output: output.try_clone().map_err(failed)?,
            scratch: sandbox::SCRATCH.into(),
        };
        match ContainedProcess::start(command) {
            Ok(process) => {
                let means = process.means().to_owned();
                Ok((Self { process, output, name }, means))
            }
            Err(error @ ContainmentError::NotMade) => {
                Err(format!("{error}: {}", output_tail(&end_of(&output))))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn wait(
        &mut self,
        wait: Duration,
    ) -> Result<Option<(ExitStatus, Duration, Option<ContainmentLimit>)>, String> {
        let end = self.process.wait(wait).map_err(|error| error.to_string())?;
        Ok(end.map(|ContainedEnd { exit, time }| {
            let killed = ExitStatus::from_raw(Signal::KILL.as_raw());
            match exit {
                ContainedExit::Code(code) => (ExitStatus::from_raw((code & 0xff) << 8), time, None),
                ContainedExit::Limit(limit) => (killed, time, Some(limit)),
                ContainedExit::Killed => (killed, time, None),
            }
        }))
    }
}

/// The end of what a program has printed.
fn end_of(output: &File) -> String {
    const MAX_END_LEN: u64 = 400;
    let length = output.metadata().map_or(0, |it| it.len());
    let mut end = vec![0; usize::try_from(MAX_END_LEN.min(length)).unwrap_or_default()];
    let read = output.read_at(&mut end, length.saturating_sub(MAX_END_LEN)).unwrap_or_default();
    String::from_utf8_lossy(&end[..read]).into_owned()
}
