//! Wakes a thread that waits for file descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Wakes the thread that waits with it. Clones wake the same thread.
#[derive(Clone, Debug)]
pub(super) struct ThreadWaker(Arc<OwnedFd>);

impl ThreadWaker {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Ends the current wait, or the next one.
    pub(super) fn wake(&self) {
        // It fails only if the counter is full, and then the wait ends anyway.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    /// Waits until a descriptor is readable, this is woken, or the timeout expires. Returns which
    /// descriptors are readable; after an interruption, none.
    pub(super) fn wait(&self, sources: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Vec<bool> {
        let mut events: Vec<PollFd<'_>> = [self.0.as_fd()]
            .iter()
            .chain(sources)
            .map(|source| PollFd::from_borrowed_fd(*source, PollFlags::IN))
            .collect();
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().cast_signed(),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        if poll(&mut events, timeout.as_ref()).is_err() {
            return vec![false; sources.len()];
        }
        if !events[0].revents().is_empty() {
            let _ = rustix::io::read(&*self.0, &mut [0_u8; 8]);
        }
        events[1..].iter().map(|event| !event.revents().is_empty()).collect()
    }
}
