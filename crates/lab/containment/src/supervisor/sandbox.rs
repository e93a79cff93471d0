//! `bwrap`, which makes the namespaces of a command, and all that runs in them.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open,
    pidfd_send_signal, setrlimit, waitid,
};

use crate::bubblewrap::SandboxDescriptors;
use crate::cgroup::CommandGroups;
use crate::command::ContainmentError;
use crate::limits::ContainmentLimits;
use crate::upload::UploadOwner;
use crate::watchdog::descendants;

/// The time within which the sandbox must be ready, and within which it must end.
const SANDBOX_TIMEOUT: Duration = Duration::from_secs(20);

/// The open files of a process.
const MAX_OPEN_FILES: u64 = 1024;

/// The memory that a process can lock, in bytes.
const MAX_LOCKED_MEMORY: u64 = 64 << 10;

/// The longest status of `bwrap` that is read.
const MAX_STATUS_LEN: u64 = 4096;

/// A sandbox with a command. All its processes are killed when this is dropped.
#[derive(Debug)]
pub(super) struct CommandSandbox {
    /// The process of `bwrap` that waits for the command, but not for all that it has started.
    bwrap: Child,
    /// Readable when that has ended.
    has_ended: OwnedFd,
    /// The first process of the sandbox, with which all others end, and its number.
    first: (OwnedFd, u32),
    go: UnixStream,
    /// The pipe with its status. `bwrap` writes to it at the end, too.
    _report: File,
    status: Option<ExitStatus>,
    /// Whether all its processes have ended.
    is_gone: bool,
}

/// What a sandbox is made with, beside the arguments of `bwrap`.
#[derive(Debug)]
pub(super) struct SandboxPlan<'a> {
    pub(super) groups: &'a CommandGroups,
    pub(super) limits: &'a ContainmentLimits,
    /// The filter of system calls.
    pub(super) filter: &'a [u8],
    /// The user of the command outside the sandbox.
    pub(super) owner: Option<UploadOwner>,
    /// Another group of this user.
    pub(super) group: Option<u32>,
    /// Descriptors that the command inherits.
    pub(super) inherited: &'a [RawFd],
}

impl CommandSandbox {
    /// Starts `bwrap`, and waits until the sandbox is ready.
    pub(super) fn start(
        bwrap: &Path,
        arguments: impl FnOnce(SandboxDescriptors) -> Vec<OsString>,
        output: OwnedFd,
        plan: &SandboxPlan<'_>,
    ) -> Result<Self, ContainmentError> {
        let failed = |error| ContainmentError::System("start bwrap", error);
        let (bwrap, mut report, mut go) = spawn(bwrap, arguments, output, plan).map_err(failed)?;
        let mut bwrap = KilledOnDrop(Some(bwrap));
        let has_ended = pidfd(bwrap.number()).map_err(failed)?;
        go.set_read_timeout(Some(SANDBOX_TIMEOUT)).map_err(failed)?;
        // A sandbox that was not made closes the socket.
        let is_ready = matches!(go.read(&mut [0]), Ok(1));
        let first = first_process(&mut report).filter(|_| is_ready);
        let first = first.ok_or(ContainmentError::NotMade)?;
        let first = (pidfd(first).map_err(failed)?, first);
        let bwrap = bwrap.0.take().ok_or(ContainmentError::NotMade)?;
        Ok(Self { bwrap, has_ended, first, go, _report: report, status: None, is_gone: false })
    }

    /// Lets the command start, and returns when that was.
    pub(super) fn release(&mut self) -> io::Result<Instant> {
        let began = Instant::now();
        self.go.write_all(b"\n")?;
        Ok(began)
    }

    /// The number of the first process of the sandbox.
    pub(super) fn first_process(&self) -> u32 {
        self.first.1
    }

    /// Waits until the command ends, but no longer than `timeout`, and returns its exit code.
    pub(super) fn wait(&mut self, timeout: Duration) -> io::Result<Option<i32>> {
        if self.status.is_none() {
            wait_readable(self.has_ended.as_fd(), timeout)?;
            self.status = self.bwrap.try_wait()?;
        }
        // `bwrap` turns a signal into an exit code itself.
        Ok(self.status.map(|status| status.code().or(status.signal()).unwrap_or(1)))
    }

    /// Asks every process to end. The first one of the sandbox ignores that.
    pub(super) fn terminate(&self) {
        for number in descendants(self.first_process()) {
            if let Some(process) = Pid::from_raw(number.cast_signed()) {
                // It may have ended.
                let _ = kill_process(process, Signal::TERM);
            }
        }
    }

    /// Kills all processes that are left, and waits until they are gone.
    pub(super) fn end(&mut self) -> io::Result<()> {
        if self.is_gone {
            return Ok(());
        }
        // The kernel kills all others of its namespace, and it ends when all are gone. `bwrap` may
        // have ended before, as soon as the command had. The process may have ended by itself.
        let _ = pidfd_send_signal(&self.first.0, Signal::KILL);
        wait_readable(self.first.0.as_fd(), SANDBOX_TIMEOUT)?;
        self.wait(SANDBOX_TIMEOUT)?;
        if self.status.is_none() {
            self.bwrap.kill()?;
            self.status = Some(self.bwrap.wait()?);
        }
        // Without its parent it may have become a child of this process, and then remains until it
        // is waited for. Otherwise another process does that.
        let _ = waitid(WaitId::PidFd(self.first.0.as_fd()), WaitIdOptions::EXITED);
        self.is_gone = true;
        Ok(())
    }
}

impl Drop for CommandSandbox {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = self.end();
    }
}

/// A process that is killed unless it is taken. All of its sandbox ends with it.
struct KilledOnDrop(Option<Child>);

impl KilledOnDrop {
    fn number(&self) -> u32 {
        self.0.as_ref().map_or(0, Child::id)
    }
}

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

/// Starts `bwrap`. Returns it, its status and this end of the command's standard input.
fn spawn(
    bwrap: &Path,
    arguments: impl FnOnce(SandboxDescriptors) -> Vec<OsString>,
    output: OwnedFd,
    plan: &SandboxPlan<'_>,
) -> io::Result<(Child, File, UnixStream)> {
    let mut filter = File::from(memfd_create("filter", MemfdFlags::CLOEXEC)?);
    filter.write_all(plan.filter)?;
    filter.rewind()?;
    let (status, to_status) = pipe_with(PipeFlags::CLOEXEC)?;
    let (go, input) = UnixStream::pair()?;
    let given = [filter.as_raw_fd(), to_status.as_raw_fd()];
    let passed = [&given, plan.inherited].concat();
    let mut command = Command::new(bwrap);
    command.args(arguments(SandboxDescriptors { filter: given[0], status: given[1] }));
    command.env_clear().current_dir("/").process_group(0);
    command.stdin(OwnedFd::from(input)).stdout(output.try_clone()?).stderr(output);
    let entrances: Vec<RawFd> = plan.groups.entrances().map(|it| it.as_raw_fd()).collect();
    let rlimits = rlimits(plan.limits, plan.groups.limit_memory());
    let (owner, group) = (plan.owner, plan.group);
    // SAFETY: between fork and exec, the closure makes only system calls and allocates no memory.
    // The descriptors in it stay open until `spawn` returns.
    unsafe {
        command.pre_exec(move || prepare(&entrances, &passed, &rlimits, owner, group));
    }
    Ok((command.spawn()?, status.into(), go))
}

/// The limits of each process.
fn rlimits(limits: &ContainmentLimits, has_memory_limit: bool) -> Vec<(Resource, u64)> {
    let mut rlimits = vec![
        (Resource::Core, 0),
        (Resource::Fsize, limits.disk_mib << 20),
        (Resource::Memlock, MAX_LOCKED_MEMORY),
        (Resource::Msgqueue, 0),
        (Resource::Nofile, MAX_OPEN_FILES),
    ];
    if !has_memory_limit {
        // More than all processes together can have, so that the watchdog sees when it is too much.
        rlimits.push((Resource::Data, limits.memory_mib << 21));
    }
    rlimits
}

/// Prepares the process that becomes `bwrap`, between fork and exec.
fn prepare(
    entrances: &[RawFd],
    passed: &[RawFd],
    rlimits: &[(Resource, u64)],
    owner: Option<UploadOwner>,
    other_group: Option<u32>,
) -> io::Result<()> {
    for entrance in entrances {
        // SAFETY: the caller keeps the descriptor open.
        let entrance = unsafe { BorrowedFd::borrow_raw(*entrance) };
        rustix::io::write(entrance, b"0")?;
    }
    // Descriptors that this program has inherited must not reach the command.
    // SAFETY: the call takes no memory, and closes nothing before exec.
    let closing =
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if closing != 0 {
        return Err(io::Error::last_os_error());
    }
    for fd in passed {
        // SAFETY: the caller keeps the descriptor open.
        fcntl_setfd(unsafe { BorrowedFd::borrow_raw(*fd) }, FdFlags::empty())?;
    }
    for (resource, most) in rlimits {
        setrlimit(*resource, Rlimit { current: Some(*most), maximum: Some(*most) })?;
    }
    if let Some(UploadOwner { user, group }) = owner {
        let others = other_group.as_slice();
        // SAFETY: the calls take no memory but the slice. The process has one thread.
        let is_changed = unsafe {
            libc::setgroups(others.len(), others.as_ptr()) == 0
                && libc::setresgid(group, group, group) == 0
                && libc::setresuid(user, user, user) == 0
        };
        if !is_changed {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn pidfd(number: u32) -> io::Result<OwnedFd> {
    let process = Pid::from_raw(number.cast_signed()).ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(process, PidfdFlags::empty())?)
}

/// Waits until there is something to read, or so long.
pub(super) fn wait_readable(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
    let timeout = Timespec {
        tv_sec: timeout.as_secs().cast_signed(),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    Ok(poll(&mut fds, Some(&timeout))? > 0)
}

/// The first process of the sandbox, from the first line of the status.
fn first_process(report: &mut File) -> Option<u32> {
    let mut text = Vec::new();
    let mut byte = [0];
    let mut report = report.take(MAX_STATUS_LEN);
    while report.read(&mut byte).ok()? == 1 && byte != *b"\n" {
        text.push(byte[0]);
    }
    let line: serde_json::Value = serde_json::from_slice(&text).ok()?;
    line.get("child-pid")?.as_u64()?.try_into().ok()
}
