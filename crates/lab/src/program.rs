//! Programs that run on a trial's hosts.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::host::Host;

/// How long a program may take until it is ready.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often it is looked whether a program is ready: nobody tells.
const LOOK: Duration = Duration::from_millis(2);

/// A program that has been started. It is killed when this is dropped, with all that it started.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    child: Child,
    output: PathBuf,
}

impl Program {
    /// Starts a program on a host. What it prints goes to the file `output`; what it says about
    /// errors too, unless `errors` names another.
    pub(crate) fn start(
        host: &Host,
        run: &[String],
        output: PathBuf,
        errors: Option<&Path>,
    ) -> Result<Self, String> {
        let Some((name, arguments)) = run.split_first() else {
            return Err("the command is empty".into());
        };
        let start = || {
            let printed = File::create(&output)?;
            let said = errors.map_or_else(|| printed.try_clone(), File::create)?;
            let mut command = Command::new(name);
            command
                .args(arguments)
                .stdin(Stdio::null())
                .stdout(printed)
                .stderr(said)
                .process_group(0);
            host.run(|| command.spawn())?
        };
        let child = start().map_err(|error| format!("cannot start {name}: {error}"))?;
        Ok(Self { name: name.clone(), child, output })
    }

    /// Waits until a TCP port is open on the host.
    pub(crate) fn wait_until_it_listens(&mut self, host: &Host, port: u16) -> Result<(), String> {
        let listens = |_: &Self| {
            is_open(host, port)
                .map_err(|error| format!("cannot see {}'s ports: {error}", host.name()))
        };
        self.wait_until(listens, &format!("listen on port {port}"))
    }

    /// Waits until it has printed a text.
    pub(crate) fn wait_until_it_says(&mut self, text: &str) -> Result<(), String> {
        self.wait_until(|program| Ok(program.output().contains(text)), &format!("say \"{text}\""))
    }

    /// Waits until the program is ready, which is when it does as expected.
    fn wait_until(
        &mut self,
        is_ready: impl Fn(&Self) -> Result<bool, String>,
        expected: &str,
    ) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while !is_ready(self)? {
            if let Some(status) = self.wait(LOOK).map_err(|error| error.to_string())? {
                return Err(self.complaint(&format!("ended ({status}) and did not {expected}")));
            }
            if Instant::now() > deadline {
                return Err(self.complaint(&format!("did not {expected} within 20 s")));
            }
        }
        Ok(())
    }

    /// Waits until the program ends, but no longer than `patience`: `None` if it still runs.
    pub(crate) fn wait(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let ended = pidfd_open(pid, PidfdFlags::empty())?;
            let timeout = Timespec {
                tv_sec: patience.as_secs().cast_signed(),
                tv_nsec: patience.subsec_nanos().into(),
            };
            poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&timeout))?;
        }
        self.child.try_wait()
    }

    /// Says so if a program that was to run on has failed.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(Some(status)) if !status.success() => {
                Err(self.complaint(&format!("{} during the measurement", ending(status))))
            }
            _ => Ok(()),
        }
    }

    /// What the program printed.
    pub(crate) fn output(&self) -> String {
        fs::read(&self.output)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// What went wrong, in one line, with the last that the program said.
    pub(crate) fn complaint(&self, what: &str) -> String {
        let said = self.output();
        let last = said.lines().rev().map(str::trim).find(|line| !line.is_empty());
        match last {
            Some(last) => format!("{} {what}: {last}", self.name),
            None => format!("{} {what}", self.name),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            // There is none any more if all have ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// How a program ended, for a person.
pub(crate) fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("failed with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "failed".into(),
    }
}

/// Whether something listens on a TCP port of a host.
fn is_open(host: &Host, port: u16) -> io::Result<bool> {
    let tables = host.run(|| {
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
