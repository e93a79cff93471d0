//! Programs that run on a trial's hosts.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::command::ProgramCommand;
use crate::host::EmulatedHost;
use crate::search::{find_program, search_path};

/// The time within which a program must be ready.
pub(crate) const READY_TIMEOUT: Duration = Duration::from_secs(20);

/// The interval at which readiness is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The interval at which the length of a running program's output is checked.
const OUTPUT_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The maximum length of a program's output, in MiB.
const MAX_OUTPUT_MIB: usize = 64;

/// How much of the end of what a program printed can be in an error message, in bytes.
const MAX_TAIL_LEN: usize = 400;

/// A program that has been started. It is killed when this is dropped, with all that it started.
#[derive(Debug)]
pub(crate) struct ProgramProcess {
    name: String,
    child: Child,
    output: File,
    /// What it says about errors, if that is kept apart.
    errors: Option<File>,
}

impl ProgramProcess {
    /// Starts a program on a host, or without one in this process's network. What it prints goes to
    /// a file in the directory `files` that is named after `name`; with `has_errors`, what it says
    /// about errors goes to another.
    pub(crate) fn start_named(
        host: Option<&EmulatedHost>,
        name: &str,
        command: &ProgramCommand,
        files: &Path,
        has_errors: bool,
    ) -> Result<Self, String> {
        let [output, errors] =
            ["log", "errors"].map(|extension| files.join(format!(".{name}.{extension}")));
        Self::start(host, command, &output, has_errors.then_some(&*errors))
    }

    /// Starts a program on a host, or without one in this process's network. What it prints goes to
    /// the file `output`; what it says about errors too, unless `errors` names another.
    pub(crate) fn start(
        host: Option<&EmulatedHost>,
        command: &ProgramCommand,
        output: &Path,
        errors: Option<&Path>,
    ) -> Result<Self, String> {
        let ProgramCommand { run, environment, directory } = command;
        let Some((name, arguments)) = run.split_first() else {
            return Err("the command is empty".into());
        };
        // A program's status socket is beside its output, apart from those of this host's services.
        let runtime = output.parent().unwrap_or(Path::new("")).to_owned();
        // A name with a slash is a complete path: the experiment was checked for that.
        let path = if name.contains('/') { Some(name.into()) } else { find_program(name) };
        let start = || {
            let path = path.ok_or(io::ErrorKind::NotFound)?;
            let output = new_file(output)?;
            let errors = errors.map(new_file).transpose()?;
            let mut command = Command::new(path);
            if let Some(directory) = directory {
                command.current_dir(directory);
            }
            command
                .args(arguments)
                .env("PATH", search_path())
                .env("RUNTIME_DIRECTORY", runtime)
                .envs(environment)
                .stdin(Stdio::null())
                .stdout(output.try_clone()?)
                .stderr(errors.as_ref().unwrap_or(&output).try_clone()?)
                .process_group(0);
            let child = run_on(host, || command.spawn())??;
            Ok(Self { name: name.clone(), child, output, errors })
        };
        start().map_err(|error: io::Error| format!("cannot start {name}: {error}"))
    }

    /// Sends a signal to it and all that it started.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), String> {
        let group = Pid::from_raw(self.child.id().cast_signed()).ok_or("it has no process")?;
        kill_process_group(group, signal).map_err(|error| format!("{}: {error}", self.name))
    }

    /// Waits until a TCP port is open on the host.
    pub(crate) fn wait_for_port(
        &mut self,
        host: Option<&EmulatedHost>,
        port: u16,
    ) -> Result<(), String> {
        let is_ready = self.has_port_within(host, port, READY_TIMEOUT)?;
        self.ready_in_time(is_ready, &opens(port))
    }

    /// Waits at most for `wait` until a TCP port is open on the host, and returns whether it is.
    pub(crate) fn has_port_within(
        &mut self,
        host: Option<&EmulatedHost>,
        port: u16,
        wait: Duration,
    ) -> Result<bool, String> {
        let listens = |program: &Self| {
            is_open(host, port).map_err(|error| {
                let name = host.map_or(&*program.name, EmulatedHost::name);
                format!("cannot see {name}'s ports: {error}")
            })
        };
        self.is_ready_within(wait, listens, &opens(port))
    }

    /// Waits until it has printed a text.
    pub(crate) fn wait_for_output(&mut self, text: &str) -> Result<(), String> {
        let is_ready = self.has_output_within(text, READY_TIMEOUT)?;
        self.ready_in_time(is_ready, &says(text))
    }

    /// Waits at most for `wait` until it has printed a text, and returns whether it has.
    pub(crate) fn has_output_within(&mut self, text: &str, wait: Duration) -> Result<bool, String> {
        let mut search = OutputSearch { text, searched: 0, kept: Vec::new() };
        let has_said = |program: &Self| {
            search.advance(&program.output).map_err(|error| program.unreadable(&error))
        };
        self.is_ready_within(wait, has_said, &says(text))
    }

    /// Waits until the program is ready, which is when it does as expected. Returns whether it is
    /// ready in time.
    fn is_ready_within(
        &mut self,
        wait: Duration,
        mut is_ready: impl FnMut(&Self) -> Result<bool, String>,
        expected: &str,
    ) -> Result<bool, String> {
        let deadline = Instant::now() + wait;
        loop {
            // Check the exit first: a program that has ended may have become ready before.
            let ended = self.wait(POLL_INTERVAL)?;
            if is_ready(self)? {
                return Ok(true);
            }
            if let Some(status) = ended {
                return Err(
                    self.error_with_output(&format!("ended ({status}) and did not {expected}"))
                );
            }
            if Instant::now() > deadline {
                return Ok(false);
            }
        }
    }

    fn ready_in_time(&self, is_ready: bool, expected: &str) -> Result<(), String> {
        let seconds = READY_TIMEOUT.as_secs();
        let late = || self.error_with_output(&format!("did not {expected} within {seconds} s"));
        is_ready.then_some(()).ok_or_else(late)
    }

    /// Waits until the program ends, but no longer than `timeout`: `None` if it still runs. It is
    /// an error if it prints too much.
    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<Option<ExitStatus>, String> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let ended = self
                .wait_shortly(left.min(OUTPUT_POLL_INTERVAL))
                .map_err(|error| error.to_string())?;
            self.check_length()?;
            if ended.is_some() || left <= OUTPUT_POLL_INTERVAL {
                return Ok(ended);
            }
        }
    }

    fn wait_shortly(&mut self, timeout: Duration) -> io::Result<Option<ExitStatus>> {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let ended = pidfd_open(pid, PidfdFlags::empty())?;
            let timeout = Timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() };
            poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&timeout))?;
        }
        self.child.try_wait()
    }

    /// Says so if it has printed too much.
    fn check_length(&self) -> Result<(), String> {
        for file in [Some(&self.output), self.errors.as_ref()].into_iter().flatten() {
            let length = file.metadata().map_err(|error| self.unreadable(&error))?.len();
            if length > (MAX_OUTPUT_MIB << 20) as u64 {
                return Err(format!("{} printed more than {MAX_OUTPUT_MIB} MiB", self.name));
            }
        }
        Ok(())
    }

    /// The processor time that its process has taken, without those that it started.
    pub(crate) fn processor_time(&self) -> Result<Duration, String> {
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        // After the name, which is in brackets, comes the third field: user time is the 14th, and
        // system time the 15th (proc_pid_stat(5)).
        let (_, fields) = stat.rsplit_once(')').ok_or_else(|| format!("{path}: no name"))?;
        let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
        let ticks: u64 = ticks.sum::<Result<_, _>>().map_err(|error| format!("{path}: {error}"))?;
        Ok(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
    }

    /// Says so if a program that was to run on has failed, or printed too much.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        self.check_length()?;
        match self.child.try_wait() {
            Ok(Some(status)) if !status.success() => Err(self
                .error_with_output(&format!("{} during the measurement", describe_status(status)))),
            _ => Ok(()),
        }
    }

    /// A piece of what the program printed, from a position on. It is empty at the end.
    pub(crate) fn output_piece(&self, offset: u64, max_len: usize) -> Result<Vec<u8>, String> {
        let mut piece = vec![0; max_len];
        let read = self.output.read_at(&mut piece, offset);
        piece.truncate(read.map_err(|error| self.unreadable(&error))?);
        Ok(piece)
    }

    /// Its end, for another thread to wait for.
    pub(crate) fn ended(&self) -> Result<ProgramEnd, String> {
        let pid = Pid::from_raw(self.child.id().cast_signed()).ok_or("it has no process")?;
        let ended = pidfd_open(pid, PidfdFlags::empty());
        ended.map(ProgramEnd).map_err(|error| format!("{}: {error}", self.name))
    }

    /// What the program printed.
    pub(crate) fn output(&self) -> Result<String, String> {
        read_from(&self.output, 0, MAX_OUTPUT_MIB << 20).map_err(|error| self.unreadable(&error))
    }

    /// What went wrong, in one line, with the last line that the program printed: on standard
    /// error, if that is kept apart and there is one.
    pub(crate) fn error_with_output(&self, what: &str) -> String {
        let files = [self.errors.as_ref(), Some(&self.output)].into_iter().flatten();
        let last = files.map(tail).find_map(|printed| {
            let mut lines = printed.lines().rev().map(str::trim);
            lines.find(|line| !line.is_empty()).map(str::to_owned)
        });
        self.with_output(what, &last.unwrap_or_default())
    }

    /// How it failed, in one line, with the end of its standard error, or else of its output.
    pub(crate) fn failure(&self, status: ExitStatus) -> String {
        let errors = self.errors.as_ref().map(tail).filter(|text| !text.trim().is_empty());
        let text = errors.unwrap_or_else(|| tail(&self.output));
        self.with_output(&describe_status(status), &output_tail(&text))
    }

    /// What went wrong, with the end of the output, if there is any.
    fn with_output(&self, what: &str, text: &str) -> String {
        let colon = if text.is_empty() { "" } else { ": " };
        format!("{} {what}{colon}{text}", self.name)
    }

    fn unreadable(&self, error: &io::Error) -> String {
        format!("cannot read what {} printed: {error}", self.name)
    }
}

impl Drop for ProgramProcess {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            // The group is gone if all its processes have ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// The end of a program.
#[derive(Debug)]
pub(crate) struct ProgramEnd(OwnedFd);

impl ProgramEnd {
    /// Waits until the program has ended.
    pub(crate) fn wait(&self) {
        // Only a signal interrupts it.
        while poll(&mut [PollFd::new(&self.0, PollFlags::IN)], None).is_err() {}
    }
}

/// What a program does that opens a port, for messages.
pub(crate) fn opens(port: u16) -> String {
    format!("listen on port {port}")
}

/// What a program does that prints a text, for messages.
pub(crate) fn says(text: &str) -> String {
    format!("say \"{text}\"")
}

/// The end of a program's output, in one line.
pub(crate) fn output_tail(text: &str) -> String {
    let letters = text.char_indices().rev().take(MAX_TAIL_LEN);
    let text = &text[letters.last().map_or(0, |(place, _)| place)..];
    let mut words: Vec<&str> = text.split_whitespace().rev().take(30).collect();
    words.reverse();
    words.join(" ")
}

/// How a program ended, for a person.
fn describe_status(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("failed with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "failed".into(),
    }
}

/// Runs `work` on a host, or without one in this thread.
fn run_on<T: Send>(host: Option<&EmulatedHost>, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    match host {
        Some(host) => host.run(work),
        None => Ok(work()),
    }
}

/// Whether something listens on a TCP port of a host.
fn is_open(host: Option<&EmulatedHost>, port: u16) -> io::Result<bool> {
    let tables = run_on(host, || {
        ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/thread-self/net/{table}")))
    })?;
    // Without IPv6 there is no such table.
    let listens = format!(":{port:04X}");
    Ok(tables.into_iter().flatten().any(|table| {
        table.lines().skip(1).any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let (local, state) = (fields.next(), fields.nth(1));
            local.is_some_and(|local| local.ends_with(&listens)) && state == Some("0A")
        })
    }))
}

/// A search for a text in a file that grows. No byte is read twice.
struct OutputSearch<'a> {
    text: &'a str,
    /// How much of the file has been searched, in bytes.
    searched: u64,
    /// The end of that, in which the text may begin.
    kept: Vec<u8>,
}

impl OutputSearch<'_> {
    /// Searches the new output, and returns whether the text has appeared.
    fn advance(&mut self, file: &File) -> io::Result<bool> {
        // Only up to the current length: the output may grow without end.
        let length = file.metadata()?.len();
        let mut piece = vec![0; 1 << 16];
        while self.searched < length {
            let read = file.read_at(&mut piece, self.searched)?;
            if read == 0 {
                break;
            }
            self.searched += read as u64;
            self.kept.extend_from_slice(&piece[..read]);
            if String::from_utf8_lossy(&self.kept).contains(self.text) {
                return Ok(true);
            }
            let enough = self.text.len().saturating_sub(1);
            self.kept.drain(..self.kept.len().saturating_sub(enough));
        }
        Ok(self.text.is_empty())
    }
}

/// A new file to write, and to read from anywhere.
fn new_file(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(true).open(path)
}

/// The end of a file's text; nothing if it cannot be read.
fn tail(file: &File) -> String {
    let length = file.metadata().map_or(0, |file| file.len());
    read_from(file, length.saturating_sub(MAX_TAIL_LEN as u64), MAX_TAIL_LEN).unwrap_or_default()
}

/// Reads at most a number of bytes of text from a position of a file.
fn read_from(file: &File, place: u64, most: usize) -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut piece = vec![0; 1 << 16];
    while bytes.len() < most {
        let wanted = piece.len().min(most - bytes.len());
        let read = file.read_at(&mut piece[..wanted], place + bytes.len() as u64)?;
        if read == 0 {
            break;
        }
        bytes.extend_from_slice(&piece[..read]);
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_text_is_found_across_reads() {
        let text = "it is r\u{e9}ady";
        let printed = format!("{}{text} now", "it is r\u{e9}a.\n".repeat(10_000));
        for cut in [0, 3, 65_535, 65_536, printed.len() - 8, printed.len() - 5] {
            let mut file = tempfile::tempfile().unwrap();
            let mut search = OutputSearch { text, searched: 0, kept: Vec::new() };
            let (before, after) = printed.as_bytes().split_at(cut);
            file.write_all(before).unwrap();
            let whole = cut >= printed.len() - 4;
            assert_eq!(search.advance(&file).unwrap(), whole, "{cut}");
            assert!(search.kept.len() < text.len() || whole);
            file.write_all(after).unwrap();
            assert!(search.advance(&file).unwrap() || whole, "{cut}");
        }
    }

    #[test]
    fn a_program_has_the_environment_and_the_directory_of_its_command() {
        let files = tempfile::tempdir().unwrap();
        let script = "echo $PARTY; pwd; echo wrong >&2";
        let mut command = ProgramCommand::new(["sh", "-c", script].map(str::to_owned).to_vec())
            .with_variable("PARTY", "garbler".into());
        command.directory = Some("/".into());
        let mut program =
            ProgramProcess::start_named(None, "party", &command, files.path(), true).unwrap();
        let status = program.wait(READY_TIMEOUT).unwrap().unwrap();
        assert!(status.success());
        assert_eq!(program.output().unwrap(), "garbler\n/\n");
        assert_eq!(program.error_with_output("says"), "sh says: wrong");
        assert!(files.path().join(".party.errors").exists());
    }

    #[test]
    fn messages_end_with_the_last_output() {
        let mut file = tempfile::tempfile().unwrap();
        assert_eq!(tail(&file), "");
        file.write_all(&b"so\n".repeat(1000)).unwrap();
        file.write_all(b"it went\n wrong\n").unwrap();
        assert_eq!(tail(&file).len(), 400);
        let end = output_tail(&tail(&file));
        assert!(end.ends_with("so so it went wrong") && end.split(' ').count() == 30, "{end}");
        assert_eq!(read_from(&file, 3000, 7).unwrap(), "it went");
    }
}
