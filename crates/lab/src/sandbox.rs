//! A place where this program may make networks: namespaces of its own, which vanish with it.
//!
//! A user namespace gives the right to make the others without being root; root needs none. In a
//! new process namespace everything that an experiment starts ends with its first process, and that
//! ends with the one that started it (`PR_SET_PDEATHSIG`): after `kill -9` of either nothing is
//! left.

// Namespaces, what happens between fork and exec, and waiting for signals.
#![allow(unsafe_code)]

use std::env;
use std::fs;
use std::io;
use std::mem::zeroed;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
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

/// Set for the process inside.
const INSIDE: &str = "SUNDER_LAB_INSIDE";

/// Where experiments keep their files: in memory, a quarter of it at most, and only as long as the
/// sandbox is there.
pub const SCRATCH: &str = "/dev/shm";

/// Why there is no sandbox.
#[derive(Debug, Error)]
pub enum SandboxError {
    /// The kernel does not let this user make namespaces.
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
    /// What is there instead makes no TUN devices.
    #[error(
        "/dev/net/tun is not the kernel's TUN device; as root: rm /dev/net/tun; mknod /dev/net/tun c 10 200; \
         chmod 666 /dev/net/tun"
    )]
    NotTun,
    /// A signal has ended the sandbox's first process: its number.
    #[error("the sandbox was killed (signal {0}{why})", why = why(*.0))]
    Killed(i32),
    /// This process got a signal that ends programs, and has ended the sandbox: its number.
    #[error("interrupted")]
    Interrupted(i32),
    /// Something else failed on the way in.
    #[error("cannot {0}: {1}")]
    Entering(&'static str, io::Error),
}

/// Moves the program into a sandbox: starts it once more inside, with the same arguments, waits for
/// it, and exits as it did. Inside, it returns.
///
/// To be called before the program does anything else, above all before it starts a thread. After
/// an error the program has nothing to do but to say so: it may be in namespaces of its own
/// already, and does not hear of signals.
///
/// # Errors
/// When the system does not allow it, when the sandbox was killed, or when this process was to end
/// by SIGINT, SIGTERM or SIGHUP. Nothing is left of the sandbox then.
pub fn enter() -> Result<(), SandboxError> {
    if is_inside() {
        return settle();
    }
    make_namespaces()?;
    let mut inside = Command::new("/proc/self/exe");
    inside.args(env::args_os().skip(1)).env(INSIDE, "1");
    if let Some(name) = env::args_os().next() {
        inside.arg0(name);
    }
    let start = |error| SandboxError::Entering("start the sandbox", error);
    // Its writing end is this process's alone, so the other tells whether that is still there.
    let (lives, alive) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| start(error.into()))?;
    let copy = alive.as_raw_fd();
    let signals = hold_signals();
    // SAFETY: between fork and exec only system calls are made, and no memory is allocated. The
    // descriptor that is closed is the child's copy, which nothing else uses; the set of signals is
    // the closure's.
    unsafe {
        inside.pre_exec(move || {
            rustix::io::close(copy);
            libc::sigprocmask(SIG_UNBLOCK, &raw const signals, null_mut());
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // Had the parent ended before that, no signal would come.
            let mut ends = [PollFd::new(&lives, PollFlags::IN)];
            poll(&mut ends, Some(&Timespec::default()))?;
            if ends[0].revents().is_empty() {
                Ok(())
            } else {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        });
    }
    let status = attend(&mut inside.spawn().map_err(start)?, &signals)?;
    drop(alive);
    match status.signal() {
        Some(signal) => Err(SandboxError::Killed(signal)),
        None => exit(status.code().unwrap_or(1)),
    }
}

/// For a program of tests: moves it into a sandbox. Where the system does not allow one it says so,
/// and returns how the program is to end: with success, as nothing was found to be wrong.
///
/// # Errors
/// When there is no sandbox.
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

/// Ends whatever else runs in the sandbox, also what has left the group of the program that started
/// it. Does nothing outside of one.
pub(crate) fn end_programs() {
    if !is_inside() {
        return;
    }
    // SAFETY: it is given no memory. In the sandbox, of which this is the first process, -1 is all
    // others.
    unsafe { libc::kill(-1, libc::SIGKILL) };
    while let Ok(Some(_)) = wait(WaitOptions::empty()) {}
}

/// Whether this is the first process of a sandbox.
fn is_inside() -> bool {
    env::var_os(INSIDE).is_some() && getpid().as_raw_pid() == 1
}

/// Makes the namespaces for the inside, of which this process is not part yet.
fn make_namespaces() -> Result<(), SandboxError> {
    let namespaces = UnshareFlags::NEWPID | UnshareFlags::NEWNET | UnshareFlags::NEWNS;
    let unshare = |flags| {
        // SAFETY: the program has one thread, as is documented; no code of it depends on
        // namespaces.
        unsafe { unshare_unsafe(flags) }.map_err(|error| SandboxError::Namespaces(error.into()))
    };
    if has_rights() {
        // In a user namespace root would lose its rights over other users' directories.
        return unshare(namespaces);
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    unshare(namespaces | UnshareFlags::NEWUSER)?;
    let map = |error| SandboxError::Entering("set who is who in the sandbox", error);
    fs::write("/proc/self/setgroups", "deny").map_err(map)?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1")).map_err(map)?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1")).map_err(map)
}

/// Whether this is root, with all of root's rights that the inside needs.
fn has_rights() -> bool {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN | CapabilitySet::DAC_OVERRIDE;
    geteuid().is_root() && capabilities(None).is_ok_and(|has| has.effective.contains(needed))
}

/// Keeps signals for [`attend`]: those that would end this process, and those about the inside.
fn hold_signals() -> sigset_t {
    // SAFETY: all of it is plain data, of which zeros are a value. The calls are given memory that
    // is valid, or null where they then write nothing.
    unsafe {
        let mut signals: sigset_t = zeroed();
        libc::sigemptyset(&raw mut signals);
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGCHLD] {
            let mut action: libc::sigaction = zeroed();
            libc::sigaction(signal, null(), &raw mut action);
            // What `nohup` had ignored does not end this process.
            if action.sa_sigaction != SIG_IGN || signal == SIGCHLD {
                libc::sigaddset(&raw mut signals, signal);
            }
        }
        libc::sigprocmask(SIG_BLOCK, &raw const signals, null_mut());
        signals
    }
}

/// Waits until the inside has ended. Ends it if this process is to end; the inside's first process
/// ignores the signals for that, as every first process does.
fn attend(inside: &mut Child, signals: &sigset_t) -> Result<ExitStatus, SandboxError> {
    let wait = |error| SandboxError::Entering("wait for the sandbox", error);
    loop {
        if let Some(status) = inside.try_wait().map_err(wait)? {
            return Ok(status);
        }
        let mut signal: c_int = 0;
        // SAFETY: both are valid for the call.
        unsafe { libc::sigwait(signals, &raw mut signal) };
        if signal != SIGCHLD {
            inside.kill().and_then(|()| inside.wait()).map_err(wait)?;
            return Err(SandboxError::Interrupted(signal));
        }
    }
}

/// Why the kernel may have sent a signal that nobody else has.
fn why(signal: i32) -> &'static str {
    if signal == libc::SIGKILL { ", perhaps for want of memory" } else { "" }
}

/// Prepares the inside.
fn settle() -> Result<(), SandboxError> {
    let scratch =
        |error: rustix::io::Errno| SandboxError::Entering("make room for files", error.into());
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(scratch)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    // A program that changes to another user is to read its files, too.
    mount("tmpfs", SCRATCH, "tmpfs", flags, Some(c"mode=755,size=25%")).map_err(scratch)?;
    // In some containers this is not allowed. Programs then see processes by their numbers outside,
    // which few of them mind.
    let flags = flags | MountFlags::NOEXEC;
    let _ = mount("proc", "/proc", "proc", flags, None);
    protect_parameters(flags).map_err(|error| {
        SandboxError::Entering("protect this system's parameters (/proc/sys)", error.into())
    })?;
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .map_err(SandboxError::Tun)?;
    let device = fs::metadata("/dev/net/tun").map_err(SandboxError::Tun)?;
    if device.rdev() == makedev(10, 200) { Ok(()) } else { Err(SandboxError::NotTun) }
}

/// Makes the system's parameters unchangeable inside, but for networks': each host has its own of
/// these. It is root whom this keeps from changing the machine by mistake.
fn protect_parameters(flags: MountFlags) -> rustix::io::Result<()> {
    mount_bind_recursive("/proc/sys", "/proc/sys")?;
    mount_bind_recursive("/proc/sys/net", "/proc/sys/net")?;
    mount_remount("/proc/sys", flags | MountFlags::BIND | MountFlags::RDONLY, c"")
}
