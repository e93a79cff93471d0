//! A place where this program may make networks: namespaces of its own, which vanish with it.
//!
//! A user namespace gives the right to make the others without being root. In a new process
//! namespace everything that an experiment starts ends with its first process, and that ends with
//! the one that started it (`PR_SET_PDEATHSIG`): after `kill -9` of either nothing is left.

// Namespaces, and what happens between fork and exec.
#![allow(unsafe_code)]

use std::env;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, exit};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Signal, WaitOptions, getegid, geteuid, getpid, set_parent_process_death_signal, wait,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use thiserror::Error;

/// Set for the process inside.
const INSIDE: &str = "SUNDER_LAB_INSIDE";

/// Where experiments keep their files: in memory, and only as long as the sandbox is there.
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
    /// Something else failed on the way in.
    #[error("cannot {0}: {1}")]
    Entering(&'static str, io::Error),
}

/// Moves the program into a sandbox: starts it once more inside, with the same arguments, waits for
/// it, and exits as it did. Inside, it returns.
///
/// To be called before the program does anything else, above all before it starts a thread.
///
/// # Errors
/// When the system does not allow it. Nothing has been changed then that others could see.
pub fn enter() -> Result<(), SandboxError> {
    if is_inside() {
        return settle();
    }
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    let flags =
        UnshareFlags::NEWUSER | UnshareFlags::NEWPID | UnshareFlags::NEWNET | UnshareFlags::NEWNS;
    // SAFETY: the program has one thread, as is documented; no code of it depends on namespaces.
    unsafe { unshare_unsafe(flags) }.map_err(|error| SandboxError::Namespaces(error.into()))?;
    let map = |error| SandboxError::Entering("set who is who in the sandbox", error);
    fs::write("/proc/self/setgroups", "deny").map_err(map)?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1")).map_err(map)?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1")).map_err(map)?;

    let mut inside = Command::new("/proc/self/exe");
    inside.args(env::args_os().skip(1)).env(INSIDE, "1");
    if let Some(name) = env::args_os().next() {
        inside.arg0(name);
    }
    let start = |error| SandboxError::Entering("start the sandbox", error);
    // Its writing end is this process's alone, so the other tells whether that is still there.
    let (lives, alive) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| start(error.into()))?;
    let copy = alive.as_raw_fd();
    // SAFETY: between fork and exec only system calls are made, and no memory is allocated. The
    // descriptor that is closed is the child's copy, which nothing else uses.
    unsafe {
        inside.pre_exec(move || {
            rustix::io::close(copy);
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
    let status = inside.spawn().and_then(|mut child| child.wait()).map_err(start)?;
    drop(alive);
    exit(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
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

/// Prepares the inside.
fn settle() -> Result<(), SandboxError> {
    let scratch =
        |error: rustix::io::Errno| SandboxError::Entering("make room for files", error.into());
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(scratch)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", SCRATCH, "tmpfs", flags, Some(c"mode=700")).map_err(scratch)?;
    // In some containers this is not allowed. Programs then see processes by their numbers outside,
    // which few of them mind.
    let _ = mount("proc", "/proc", "proc", flags | MountFlags::NOEXEC, None);
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
        .map_err(SandboxError::Tun)?;
    Ok(())
}
