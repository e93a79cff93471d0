//! What a controller requests: files and programs of a trial.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::statvfs;
use rustix::process::Signal;
use transport::choice::examine;
use transport::{ConnectionOptions, ExchangeProfile};

use super::ports::open_ports;
use crate::perform::command::ProgramCommand;
use crate::perform::followed::make_empty;
use crate::perform::program::ProgramProcess;
use crate::sandbox;
use crate::site::{
    AgentAnswer, AgentRequest, FilePiece, MAX_PIECE_LEN, PathReading, ProgramReadiness,
    ProgramSignal, ProgramStart, TrialFilePath,
};

/// A trial at this site.
#[derive(Debug, Default)]
pub(super) struct AgentTrial {
    /// The programs, by their numbers.
    programs: Vec<AgentProgram>,
}

/// A program of a trial.
#[derive(Debug)]
struct AgentProgram {
    process: ProgramProcess,
    /// How long it ran, once it has ended.
    time: Arc<OnceLock<Duration>>,
    status: Option<ExitStatus>,
}

impl AgentTrial {
    /// Does what is requested. `options` are those of the agent's connections.
    pub(super) fn perform(
        &mut self,
        request: AgentRequest,
        options: &ConnectionOptions,
    ) -> AgentAnswer {
        let answer = match request {
            AgentRequest::Begin => self.begin().map(|()| AgentAnswer::Done),
            AgentRequest::Put(piece) => put(&piece).map(|()| AgentAnswer::Done),
            AgentRequest::Zeros { path, length } => {
                zeros(&path, length).map(|()| AgentAnswer::Done)
            }
            AgentRequest::Start(start) => self.start(start),
            AgentRequest::Await { program, readiness, wait } => {
                self.program(program).and_then(|it| it.wait_until_ready(&readiness, wait))
            }
            AgentRequest::Ports => Ok(AgentAnswer::Ports(open_ports())),
            AgentRequest::Wait { program, wait } => {
                self.program(program).and_then(|it| it.wait(wait))
            }
            AgentRequest::Signal { program, signal } => {
                self.program(program).map(|it| it.signal(signal)).map(|()| AgentAnswer::Done)
            }
            AgentRequest::Check { program } => {
                self.program(program).and_then(|it| it.process.check()).map(|()| AgentAnswer::Done)
            }
            AgentRequest::Explain { program, what } => {
                self.program(program).map(|it| AgentAnswer::Line(it.explain(&what)))
            }
            AgentRequest::Output { program, offset } => self.program(program).and_then(|it| {
                it.process.output_piece(offset, MAX_PIECE_LEN).map(AgentAnswer::Piece)
            }),
            AgentRequest::Probe { address } => {
                probe(&address.to_string(), options).map(AgentAnswer::Path)
            }
            AgentRequest::Keepalive | AgentRequest::Hello { .. } => Ok(AgentAnswer::Done),
            AgentRequest::End => Ok(self.end()),
        };
        answer.unwrap_or_else(AgentAnswer::Failed)
    }

    /// Ends all programs and empties the directory for files.
    fn begin(&mut self) -> Result<(), String> {
        self.end_programs();
        let files = sandbox::trial_files();
        make_empty(&files).map_err(|error| format!("cannot make {}: {error}", files.display()))
    }

    /// Ends all programs and removes the files.
    pub(super) fn end(&mut self) -> AgentAnswer {
        // Programs that have ended may have freed room.
        let was_full = has_no_room(Path::new(sandbox::SCRATCH));
        self.end_programs();
        let _ = fs::remove_dir_all(sandbox::trial_files());
        AgentAnswer::Over { was_full }
    }

    fn end_programs(&mut self) {
        self.programs.clear();
        sandbox::end_programs();
    }

    fn program(&mut self, number: u8) -> Result<&mut AgentProgram, String> {
        let program = self.programs.get_mut(usize::from(number));
        // One that could not be started has a number, too.
        program.ok_or_else(|| format!("program {number} was not started"))
    }

    fn start(&mut self, start: ProgramStart) -> Result<AgentAnswer, String> {
        let number =
            u8::try_from(self.programs.len()).map_err(|_| "there are too many programs")?;
        self.programs.push(AgentProgram::start(start)?);
        Ok(AgentAnswer::Started(number))
    }
}

impl AgentProgram {
    fn start(start: ProgramStart) -> Result<Self, String> {
        let ProgramStart { name, run, environment, directory, has_errors } = start;
        let files = sandbox::trial_files();
        let directory = directory.map_or_else(|| files.clone(), |it| it.below(&files));
        let command = ProgramCommand {
            run,
            environment: environment.into_iter().collect(),
            directory: Some(directory),
        };
        let process = ProgramProcess::start_named(None, &name, &command, &files, has_errors)?;
        let (began, time) = (Instant::now(), Arc::new(OnceLock::new()));
        let (ended, measured) = (process.ended()?, time.clone());
        // The time of the end is exact whatever the controller requests meanwhile.
        let watch = move || {
            ended.wait();
            let _ = measured.set(began.elapsed());
        };
        let spawned = thread::Builder::new().name("agent-program".into()).spawn(watch);
        spawned.map_err(|error| format!("cannot watch {name}: {error}"))?;
        Ok(Self { process, time, status: None })
    }

    fn wait_until_ready(
        &mut self,
        readiness: &ProgramReadiness,
        wait: Duration,
    ) -> Result<AgentAnswer, String> {
        let is_ready = match readiness {
            ProgramReadiness::Port(port) => self.process.has_port_within(None, *port, wait),
            ProgramReadiness::Text(text) => self.process.has_output_within(text, wait),
        };
        Ok(if is_ready? { AgentAnswer::Ready } else { AgentAnswer::NotYet })
    }

    fn wait(&mut self, wait: Duration) -> Result<AgentAnswer, String> {
        if self.status.is_none() {
            self.status = self.process.wait(wait)?;
        }
        let Some(status) = self.status else { return Ok(AgentAnswer::NotYet) };
        // The thread that watches it may be a moment behind.
        while self.time.get().is_none() {
            thread::yield_now();
        }
        let time = self.time.get().copied().unwrap_or_default();
        Ok(AgentAnswer::Ended { status: status.into_raw(), time })
    }

    fn signal(&self, signal: ProgramSignal) {
        let signal = match signal {
            ProgramSignal::Terminate => Signal::TERM,
            ProgramSignal::Kill => Signal::KILL,
        };
        // It may have ended meanwhile.
        let _ = self.process.signal(signal);
    }

    fn explain(&self, what: &str) -> String {
        match self.status {
            Some(status) if what.is_empty() => self.process.failure(status),
            _ => self.process.error_with_output(what),
        }
    }
}

/// Writes a piece of a file.
fn put(piece: &FilePiece) -> Result<(), String> {
    let path = piece.path.below(&sandbox::trial_files());
    let write = || {
        if piece.offset == 0 {
            make_parent(&path)?;
        }
        let mut file = open(&path, piece.offset == 0)?;
        if file.seek(SeekFrom::End(0))? != piece.offset {
            return Err(io::Error::other("its pieces are not in order"));
        }
        file.write_all(&piece.bytes)?;
        let mode = if piece.is_executable { 0o755 } else { 0o644 };
        file.set_permissions(fs::Permissions::from_mode(mode))
    };
    write().map_err(|error| unwritten(&piece.path, &error))
}

/// Creates a file of zero bytes.
fn zeros(name: &TrialFilePath, length: u32) -> Result<(), String> {
    let path = name.below(&sandbox::trial_files());
    let write = || {
        make_parent(&path)?;
        open(&path, true)?.set_len(length.into())
    };
    write().map_err(|error| unwritten(name, &error))
}

fn make_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

/// Opens a file to append, a new one if it `begins`. What a program has put there in its place is
/// not followed.
fn open(path: &Path, begins: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).custom_flags(libc::O_NOFOLLOW);
    if begins {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => options.create_new(true),
        };
    }
    options.open(path)
}

fn unwritten(path: &TrialFilePath, error: &io::Error) -> String {
    let what = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            format!("its disk for trials is full ({})", sandbox::SCRATCH)
        }
        _ => error.to_string(),
    };
    format!("cannot write {}: {what}", path.as_str())
}

/// Whether a file system has no room left.
fn has_no_room(directory: &Path) -> bool {
    statvfs(directory).is_ok_and(|it| it.f_bavail == 0)
}

/// Measures the path to another agent.
fn probe(address: &str, options: &ConnectionOptions) -> Result<PathReading, String> {
    let exchange = ExchangeProfile { sent: 1, received: 1, rounds: 1 };
    let examined = examine(address, options, exchange)
        .map_err(|error| format!("cannot measure the path: {error}"))?;
    let measured = examined.measured;
    let mbit = |rate: Option<transport::probe::MeasuredRate>| rate.map(|it| it.rate * 8e-6);
    Ok(PathReading {
        round_trip_ms: examined.path.round_trip.as_secs_f64() * 1e3,
        sent: measured.map_or(0, |it| it.sent),
        lost: measured.map_or(0, |it| it.lost),
        up_mbit: mbit(measured.and_then(|it| it.up)),
        down_mbit: mbit(measured.and_then(|it| it.down)),
    })
}
