//! How programs' threads wake the thread of a socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Wakes a driver.
#[derive(Debug)]
pub(super) struct Wake {
    event: OwnedFd,
    is_listening: AtomicBool,
}

impl Wake {
    pub(super) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, is_listening: AtomicBool::new(false) })
    }

    /// Whether somebody accepts connections.
    pub(super) fn is_listening(&self) -> bool {
        self.is_listening.load(Ordering::Relaxed)
    }

    pub(super) fn start_listening(&self) {
        self.is_listening.store(true, Ordering::Relaxed);
    }

    /// Ends the driver's sleep.
    pub(super) fn wake(&self) {
        // It fails only if the driver is to be woken already.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    pub(super) fn clear(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }

    /// Accepts no more connections.
    pub(super) fn stop_listening(&self) {
        self.is_listening.store(false, Ordering::Relaxed);
        self.wake();
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
