//! SIGPIPE, which the system sends to a thread that writes to a socket or pipe without a reader. It
//! ends a program that does not expect it, so programs that load the module must not get it.

use std::mem::zeroed;
use std::ptr::null_mut;

/// While this lives, the thread gets no SIGPIPE: writes fail with an error alone.
pub(crate) struct SigpipeBlock {
    /// The signals that were blocked before.
    before: libc::sigset_t,
    /// Whether a SIGPIPE was waiting before, which is the program's.
    was_pending: bool,
}

impl SigpipeBlock {
    /// Blocks the signal for this thread.
    pub(crate) fn new() -> Self {
        let (set, mut before) = (sigpipe(), empty());
        // SAFETY: both pointers are of sets that live here.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) };
        Self { before, was_pending: is_pending() }
    }
}

impl Drop for SigpipeBlock {
    fn drop(&mut self) {
        if !self.was_pending && is_pending() {
            let (set, now) = (sigpipe(), libc::timespec { tv_sec: 0, tv_nsec: 0 });
            // SAFETY: the pointers are of values that live here, and null is allowed.
            while unsafe { libc::sigtimedwait(&raw const set, null_mut(), &raw const now) } == -1
                && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
            {}
        }
        // SAFETY: the pointer is of a set that lives here, and null is allowed.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, null_mut()) };
    }
}

/// Whether a SIGPIPE waits for this thread or the process.
fn is_pending() -> bool {
    let mut pending = empty();
    // SAFETY: the pointer is of a set that lives here.
    unsafe {
        libc::sigpending(&raw mut pending) == 0
            && libc::sigismember(&raw const pending, libc::SIGPIPE) == 1
    }
}

fn empty() -> libc::sigset_t {
    // SAFETY: a set of signals is integers, which may be zero; then it is emptied in its own way.
    unsafe {
        let mut set = zeroed();
        libc::sigemptyset(&raw mut set);
        set
    }
}

/// The set with SIGPIPE alone.
fn sigpipe() -> libc::sigset_t {
    let mut set = empty();
    // SAFETY: the pointer is of a set that lives here.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGPIPE) };
    set
}
