//! Wakes the driver thread of a socket from programs' threads.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::slot::UdpStreamKey;
use crate::socket::UdpBatchSocket;

/// Wakes a driver.
#[derive(Debug)]
pub(super) struct UdpDriverWaker {
    event: OwnedFd,
    /// The connections for which the driver was woken.
    woken: Mutex<Vec<UdpStreamKey>>,
}

impl UdpDriverWaker {
    pub(super) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, woken: Mutex::default() })
    }

    /// Wakes the driver for a connection.
    pub(super) fn wake_for(&self, key: UdpStreamKey) {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner).push(key);
        self.wake();
    }

    /// Ends the driver's sleep.
    pub(super) fn wake(&self) {
        // This fails only if a wake-up is already pending.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// The connections for which it was woken since the last call.
    pub(super) fn take(&self) -> Vec<UdpStreamKey> {
        std::mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sleeps until a datagram has arrived, the socket can send if `until_room`, another thread
    /// wakes the driver, or time has passed.
    pub(super) fn sleep(
        &self,
        socket: &UdpBatchSocket,
        until_room: bool,
        time: Duration,
    ) -> io::Result<()> {
        let timeout = Timespec::try_from(time).ok();
        let mut events = PollFlags::IN;
        events.set(PollFlags::OUT, until_room);
        let fds = &mut [PollFd::new(socket, events), PollFd::new(self, PollFlags::IN)];
        match poll(fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !fds[1].revents().is_empty() {
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
        Ok(())
    }
}

impl AsFd for UdpDriverWaker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
