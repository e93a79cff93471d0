//! Namespaces in which this program runs experiments, and which end with it. Their network has no
//! route out, or is the machine's network at a site.
//!
//! A user namespace grants the right to create the other namespaces without root; root needs none.
//! In a new process namespace everything that an experiment starts ends with its first process.
//! That process ends with the process that started it (`PR_SET_PDEATHSIG`), so nothing remains
//! after `kill -9` of either.

// Namespaces, code between fork and exec, and waiting for signals need unsafe calls.
#![allow(unsafe_code)]

use std::env;
use std::fs;
use std::io;
use std::mem::zeroed;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, exit};
use std::ptr::{null, null_mut};

use libc::{SIG_BLOCK, SIG_IGN, SIG_UNBLOCK, SIGCHLD, SIGHUP, SIGINT, SIGTERM, c_int, sigset_t};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::makedev;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change, mount_remount,
};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Signal, WaitOptions, getegid, geteuid, getpid, set_parent_process_death_signal, wait,
};
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities, unshare_unsafe};
use thiserror::Error;

/// The environment variable that marks the process inside the sandbox.
const INSIDE: &str = "SUNDER_LAB_INSIDE";

/// The directory for the files of experiments. It is in memory, with at most a quarter of it, and
/// exists as long as the sandbox.
pub const SCRATCH: &str = "/dev/shm";

/// Why a sandbox could not be created.
#[derive(Debug, Error)]
pub enum SandboxError {
    /// The kernel does not let this user create namespaces.
    #[error(
        "this system does not let you make networks of your own ({0}); as root, allow user namespaces: \
         sysctl user.max_user_namespaces=10000, and where they exist kernel.unprivileged_userns_clone=1 \
         and kernel.apparmor_restrict_unprivileged_userns=0; or run this as root"
    )]
    Namespaces(io::Error),
    /// There are no TUN devices.
    #[error(
        "cannot open /dev/net/tun ({0}); as root: modprobe tun; chmod 666 /dev/net/tun; or run this as root"
    )]
    Tun(io::Error),
    /// The device at that path is not TUN's.
    #[error(
        "/dev/net/tun is not the kernel's TUN device; as root: rm /dev/net/tun; mknod /dev/net/tun c 10 200; \
         chmod 666 /dev/net/tun"
    )]
    NotTun,
    /// A signal ended the first process of the sandbox: its number.
    #[error("the sandbox was killed (signal {0}{why})", why = signal_reason(*.0))]
    Killed(i32),
    /// This process got a signal to end, and ended the sandbox: the number of the signal.
    #[error("interrupted")]
    Interrupted(i32),
    /// Another step failed.
    #[error("cannot {0}: {1}")]
    Entering(&'static str, io::Error),
}

/// The directory for the files of a trial. It exists while one runs.
pub(crate) fn trial_files() -> PathBuf {
    Path::new(SCRATCH).join("trial")
}

/// An error of writing files of a trial, in words. If no space is left, it says where.
pub(crate) fn write_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!(
                "{SCRATCH} is full: it has a quarter of the memory; give the trial less to write"
            )
        }
        _ => error.to_string(),
    }
}

/// A path that leads to this program in each sandbox.
pub(crate) fn program_link() -> PathBuf {
    Path::new(SCRATCH).join("sunder")
}

/// The network that the processes of a sandbox have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SandboxNetwork {
    /// One of their own, without interfaces, in which they can create others.
    Own,
    /// That of the process that has entered the sandbox.
    Machine,
}

/// Moves the program into a sandbox: starts it again inside, with the same arguments, waits for it,
/// and exits with its status. Returns only inside.
///
/// Call it before anything else, in particular before starting a thread. After an error the program
/// can only report it: it may already be in namespaces of its own, with signals blocked.
///
/// # Errors
/// If the system does not allow it, if the sandbox was killed, or if this process got SIGINT,
/// SIGTERM or SIGHUP. The sandbox is gone then.
pub fn enter() -> Result<(), SandboxError> {
    enter_in(SandboxNetwork::Own)
}

/// Like [`enter`], but the programs inside have the network of this machine. What they start still
/// ends with the sandbox.
///
/// # Errors
/// As for [`enter`].
pub fn enter_with_network() -> Result<(), SandboxError> {
    enter_in(SandboxNetwork::Machine)
}

fn enter_in(network: SandboxNetwork) -> Result<(), SandboxError> {
    if is_inside() {
        return set_up_inside(network);
    }
    create_namespaces(network)?;
    let mut inside = Command::new("/proc/self/exe");
    inside.args(env::args_os().skip(1)).env(INSIDE, "1");
    if let Some(name) = env::args_os().next() {
        inside.arg0(name);
    }
    let start = |error| SandboxError::Entering("start the sandbox", error);
    // Only this process holds the writing end, so the child sees when this process has ended.
    let (parent_closed, parent) =
        pipe_with(PipeFlags::CLOEXEC).map_err(|error| start(error.into()))?;
    let copy = parent.as_raw_fd();
    let signals = block_signals();
    // SAFETY: between fork and exec, the closure makes only system calls and allocates no memory.
    // It closes the child's own copy of the descriptor, which nothing else uses, and owns the
    // signal set.
    unsafe {
        inside.pre_exec(move || {
            rustix::io::close(copy);
            libc::sigprocmask(SIG_UNBLOCK, &raw const signals, null_mut());
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // If the parent ended before this call, no signal will come.
            let mut ends = [PollFd::new(&parent_closed, PollFlags::IN)];
            poll(&mut ends, Some(&Timespec::default()))?;
            if ends[0].revents().is_empty() {
                Ok(())
            } else {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        });
    }
    let status = wait_for(&mut inside.spawn().map_err(start)?, &signals)?;
    drop(parent);
    match status.signal() {
        Some(signal) => Err(SandboxError::Killed(signal)),
        None => exit(status.code().unwrap_or(1)),
    }
}

/// Moves a test program into a sandbox. If the system does not allow one, prints so and returns
/// success, because no test failed.
///
/// # Errors
/// The exit code to end with, if there is no sandbox.
pub fn enter_for_tests() -> Result<(), ExitCode> {
    enter().map_err(|error| match error {
        SandboxError::Killed(_) | SandboxError::Interrupted(_) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        error => {
            eprintln!("SKIPPED: these tests did not run: {error}");
            ExitCode::SUCCESS
        }
    })
}

/// Kills all other processes in the sandbox, including those that left the process group of their
/// program. Does nothing outside a sandbox.
pub(crate) fn end_programs() {
    if !is_inside() {
        return;
    }
    // SAFETY: the call takes no memory. In the sandbox, whose first process this is, -1 means all
    // others.
    unsafe { libc::kill(-1, libc::SIGKILL) };
    while let Ok(Some(_)) = wait(WaitOptions::empty()) {}
}

/// Whether this is the first process of a sandbox.
fn is_inside() -> bool {
    env::var_os(INSIDE).is_some() && getpid().as_raw_pid() == 1
}

/// Creates the namespaces for child processes. This process does not enter its new process
/// namespace.
fn create_namespaces(network: SandboxNetwork) -> Result<(), SandboxError> {
    let mut namespaces = UnshareFlags::NEWPID | UnshareFlags::NEWNS;
    if network == SandboxNetwork::Own {
        namespaces |= UnshareFlags::NEWNET;
    }
    let unshare = |flags| {
        // SAFETY: the program has one thread, as `enter` requires, and none of its code depends on
        // namespaces.
        unsafe { unshare_unsafe(flags) }.map_err(|error| SandboxError::Namespaces(error.into()))
    };
    if has_capabilities() {
        // In a user namespace root would lose access to directories of other users.
        return unshare(namespaces);
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(namespaces | UnshareFlags::NEWUSER)?;
    let map = |error| SandboxError::Entering("set who is who in the sandbox", error);
    fs::write("/proc/self/setgroups", "deny").map_err(map)?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1")).map_err(map)?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1")).map_err(map)
}

/// Whether this is root with all capabilities that the sandbox needs.
fn has_capabilities() -> bool {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN | CapabilitySet::DAC_OVERRIDE;
    geteuid().is_root() && capabilities(None).is_ok_and(|has| has.effective.contains(needed))
}

/// Blocks the signals that [`wait_for`] handles: those that end this process, and SIGCHLD.
fn block_signals() -> sigset_t {
    // SAFETY: the types are plain data for which zeros are valid. The calls get valid memory, or
    // null where they write nothing.
    unsafe {
        let mut signals: sigset_t = zeroed();
        libc::sigemptyset(&raw mut signals);
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGCHLD] {
            let mut action: libc::sigaction = zeroed();
            libc::sigaction(signal, null(), &raw mut action);
            // A signal that `nohup` set to be ignored must not end this process.
            if action.sa_sigaction != SIG_IGN || signal == SIGCHLD {
                libc::sigaddset(&raw mut signals, signal);
            }
        }
        libc::sigprocmask(SIG_BLOCK, &raw const signals, null_mut());
        signals
    }
}

/// Waits until the child has ended. Kills it if this process is to end, because the first process
/// of a namespace ignores the signals for that.
fn wait_for(inside: &mut Child, signals: &sigset_t) -> Result<ExitStatus, SandboxError> {
    let wait = |error| SandboxError::Entering("wait for the sandbox", error);
    loop {
        if let Some(status) = inside.try_wait().map_err(wait)? {
            return Ok(status);
        }
        let mut signal: c_int = 0;
        // SAFETY: both pointers are valid during the call.
        unsafe { libc::sigwait(signals, &raw mut signal) };
        if signal != SIGCHLD {
            inside.kill().and_then(|()| inside.wait()).map_err(wait)?;
            return Err(SandboxError::Interrupted(signal));
        }
    }
}

/// A probable reason for a signal that the kernel sent.
fn signal_reason(signal: i32) -> &'static str {
    if signal == libc::SIGKILL { ", perhaps for want of memory" } else { "" }
}

/// Prepares the namespaces inside the sandbox.
fn set_up_inside(network: SandboxNetwork) -> Result<(), SandboxError> {
    let scratch =
        |error: rustix::io::Errno| SandboxError::Entering("make room for files", error.into());
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(scratch)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    // Programs that change to another user must be able to read its files.
    mount("tmpfs", SCRATCH, "tmpfs", flags, Some(c"mode=755,size=25%")).map_err(scratch)?;
    // Some containers do not allow this. Programs then see process IDs of the outside, which rarely
    // matters.
    let flags = flags | MountFlags::NOEXEC;
    let _ = mount("proc", "/proc", "proc", flags, None);
    protect_parameters(flags, network).map_err(|error| {
        SandboxError::Entering("protect this system's parameters (/proc/sys)", error.into())
    })?;
    env::current_exe()
        .and_then(|program| symlink(program, program_link()))
        .map_err(|error| SandboxError::Entering("name this program", error))?;
    match network {
        SandboxNetwork::Own => check_tun(),
        SandboxNetwork::Machine => Ok(()),
    }
}

/// Checks that programs can create network devices.
pub(crate) fn check_tun() -> Result<(), SandboxError> {
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .map_err(SandboxError::Tun)?;
    let device = fs::metadata("/dev/net/tun").map_err(SandboxError::Tun)?;
    if device.rdev() == makedev(10, 200) { Ok(()) } else { Err(SandboxError::NotTun) }
}

/// Makes the system's parameters read-only inside, except those of networks of the sandbox's own,
/// which each host has. This keeps root from changing the machine by mistake.
fn protect_parameters(flags: MountFlags, network: SandboxNetwork) -> rustix::io::Result<()> {
    mount_bind_recursive("/proc/sys", "/proc/sys")?;
    if network == SandboxNetwork::Own {
        mount_bind_recursive("/proc/sys/net", "/proc/sys/net")?;
    }
    mount_remount("/proc/sys", flags | MountFlags::BIND | MountFlags::RDONLY, c"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_a_full_disk_names_its_directory() {
        let full = write_error(&io::ErrorKind::StorageFull.into());
        assert!(full.starts_with("/dev/shm is full: ") && full.contains("less to write"), "{full}");
        assert!(!write_error(&io::ErrorKind::NotFound.into()).contains("full"));
    }
}
