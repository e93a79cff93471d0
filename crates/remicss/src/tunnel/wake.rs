//! How one thread wakes another that waits for descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// Wakes the thread that waits with it. A clone wakes the same.
#[derive(Clone, Debug)]
pub(super) struct Wake(Arc<OwnedFd>);

impl Wake {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Ends the wait that runs, or the next.
    pub(super) fn wake(&self) {
        // It fails only if the counter is full, when the wait ends anyway.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    /// Waits until one of the descriptors has something to read, or this is woken, or for so long.
    /// Says which descriptors have something; after an interruption, none.
    pub(super) fn wait(&self, sources: &[BorrowedFd<'_>], patience: Option<Duration>) -> Vec<bool> {
        let mut events: Vec<PollFd<'_>> = [self.0.as_fd()]
            .iter()
            .chain(sources)
            .map(|source| PollFd::from_borrowed_fd(*source, PollFlags::IN))
            .collect();
        let patience = patience.map(|patience| Timespec {
            tv_sec: patience.as_secs().cast_signed(),
            tv_nsec: patience.subsec_nanos().into(),
        });
        if poll(&mut events, patience.as_ref()).is_err() {
            return vec![false; sources.len()];
        }
        if !events[0].revents().is_empty() {
            let _ = rustix::io::read(&*self.0, &mut [0_u8; 8]);
        }
        events[1..].iter().map(|event| !event.revents().is_empty()).collect()
    }
}
