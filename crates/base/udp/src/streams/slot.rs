//! A connection as shared between programs and the driver.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::connection::{UdpStreamConnection, UdpStreamPhase};
use super::now;

/// The key of a connection on a socket: the index of its endpoint, and the endpoint's number for
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct UdpStreamKey {
    pub(super) endpoint: usize,
    pub(super) id: u64,
}

/// How often a program yields to let the driver have the lock. The limit keeps a program working
/// while the driver gets no processor time.
const MAX_YIELDS: u32 = 1000;

/// A connection as shared between programs and the driver.
#[derive(Debug)]
pub(super) struct UdpStreamSlot {
    pub(super) key: UdpStreamKey,
    shared: Mutex<UdpStreamSlotState>,
    /// Whether the driver waits for the lock.
    pub(super) is_driver_waiting: AtomicBool,
    /// Signals readers that something can be read.
    readable: Condvar,
    /// Signals other changes to writers, and to threads that wait until the connection is open or
    /// ends.
    changed: Condvar,
}

/// What a slot's lock protects.
pub(super) struct UdpStreamSlotState {
    pub(super) connection: Box<dyn UdpStreamConnection>,
    /// When the driver will next serve it on its own; `None` while the driver serves it.
    pub(super) driver_wakes_at: Option<Duration>,
    /// Whether it is over, and the driver no longer serves it.
    pub(super) is_removed_from_driver: bool,
    /// The time limit of each read and write, if any.
    pub(super) timeout: Option<Duration>,
    /// Why programs can no longer use it.
    pub(super) unusable: Option<StreamUnusableReason>,
    /// The number of streams that programs have.
    pub(super) users: usize,
    /// Whether a thread waits until the driver has sent the last datagrams.
    pub(super) is_final_send_awaited: bool,
    pub(super) bytes_written: u64,
    pub(super) bytes_read: u64,
    readers: usize,
    other_waiters: usize,
}

/// Why programs can no longer use a connection, independent of its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamUnusableReason {
    /// A program closed it.
    Closed,
    /// The driver has ended.
    Abandoned,
}

/// What a program's thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamWaitCondition {
    Bytes,
    Change,
}

/// Which threads must be woken once the lock is released.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(super) struct StreamWakeups {
    readers: bool,
    other_waiters: bool,
}

impl UdpStreamSlot {
    pub(super) fn new(key: UdpStreamKey, connection: Box<dyn UdpStreamConnection>) -> Self {
        let shared = UdpStreamSlotState {
            connection,
            driver_wakes_at: None,
            is_removed_from_driver: false,
            timeout: None,
            unusable: None,
            users: 0,
            is_final_send_awaited: false,
            bytes_written: 0,
            bytes_read: 0,
            readers: 0,
            other_waiters: 0,
        };
        Self {
            key,
            shared: Mutex::new(shared),
            is_driver_waiting: AtomicBool::new(false),
            readable: Condvar::new(),
            changed: Condvar::new(),
        }
    }

    /// Locks it for a program, after the driver if that is waiting. The lock must be held only
    /// briefly.
    pub(super) fn lock_for_program(&self) -> MutexGuard<'_, UdpStreamSlotState> {
        // Without this, a thread that writes continuously would take the lock again before the
        // driver wakes up, which could then send nothing until the buffer is full.
        for _ in 0..MAX_YIELDS {
            if !self.is_driver_waiting.load(Ordering::Relaxed) {
                break;
            }
            thread::yield_now();
        }
        self.lock_now()
    }

    /// Locks it for the driver.
    pub(super) fn lock_for_driver(&self) -> MutexGuard<'_, UdpStreamSlotState> {
        self.is_driver_waiting.store(true, Ordering::Relaxed);
        let shared = self.lock_now();
        self.is_driver_waiting.store(false, Ordering::Relaxed);
        shared
    }

    fn lock_now(&self) -> MutexGuard<'_, UdpStreamSlotState> {
        // If a thread panics in a protocol, the connection is abandoned.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the lock until something may have happened.
    ///
    /// # Errors
    /// If the connection is unusable, or the operation that began at `began_at` has timed out.
    pub(super) fn wait<'a>(
        &'a self,
        shared: MutexGuard<'a, UdpStreamSlotState>,
        what: StreamWaitCondition,
        began_at: Duration,
    ) -> io::Result<MutexGuard<'a, UdpStreamSlotState>> {
        shared.check()?;
        let left = shared.timeout.map(|timeout| (began_at + timeout).saturating_sub(now()));
        let shared = self.wait_at_most(shared, what, left);
        if shared.timeout.is_some_and(|timeout| now() >= began_at + timeout) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(shared)
    }

    /// Releases the lock until something may have happened, or for at most that long.
    pub(super) fn wait_at_most<'a>(
        &'a self,
        mut shared: MutexGuard<'a, UdpStreamSlotState>,
        what: StreamWaitCondition,
        limit: Option<Duration>,
    ) -> MutexGuard<'a, UdpStreamSlotState> {
        let condition = match what {
            StreamWaitCondition::Bytes => &self.readable,
            StreamWaitCondition::Change => &self.changed,
        };
        *shared.waiters(what) += 1;
        let mut shared = if let Some(limit) = limit {
            let waited = condition.wait_timeout(shared, limit);
            waited.unwrap_or_else(PoisonError::into_inner).0
        } else {
            condition.wait(shared).unwrap_or_else(PoisonError::into_inner)
        };
        *shared.waiters(what) -= 1;
        shared
    }

    /// Wakes threads.
    pub(super) fn wake(&self, waiting: StreamWakeups) {
        if waiting.readers {
            self.readable.notify_all();
        }
        if waiting.other_waiters {
            self.changed.notify_all();
        }
    }

    /// Releases the lock until something has happened, or for that long.
    pub(super) fn wait_for_change<'a>(
        &'a self,
        shared: MutexGuard<'a, UdpStreamSlotState>,
        time: Duration,
    ) -> MutexGuard<'a, UdpStreamSlotState> {
        let waited = self.changed.wait_timeout(shared, time);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Records that the last datagrams were sent, after the connection was closed or its last
    /// stream was dropped.
    pub(super) fn notify_final_send(&self) {
        self.changed.notify_all();
    }

    /// Makes it unusable for programs.
    pub(super) fn make_unusable(&self, why: StreamUnusableReason) {
        self.lock_for_program().unusable.get_or_insert(why);
        self.wake(StreamWakeups { readers: true, other_waiters: true });
    }
}

impl UdpStreamSlotState {
    /// The threads that have something to do.
    pub(super) fn waiting(&self) -> StreamWakeups {
        if self.readers + self.other_waiters == 0 {
            return StreamWakeups { readers: false, other_waiters: false };
        }
        let state = self.connection.state();
        let is_over = state.phase == UdpStreamPhase::Over;
        StreamWakeups {
            readers: self.readers > 0 && (state.is_readable || is_over),
            other_waiters: self.other_waiters > 0
                && (state.is_writable || is_over || self.connection.is_flushed()),
        }
    }

    /// # Errors
    /// If programs can no longer use it.
    pub(super) fn check(&self) -> io::Result<()> {
        match self.unusable {
            Some(StreamUnusableReason::Closed) => {
                let what = "the connection was closed on this side";
                Err(io::Error::new(io::ErrorKind::NotConnected, what))
            }
            Some(StreamUnusableReason::Abandoned)
                if self.connection.state().phase != UdpStreamPhase::Over =>
            {
                Err(io::Error::other("the socket of the connection has failed"))
            }
            Some(StreamUnusableReason::Abandoned) | None => Ok(()),
        }
    }

    fn waiters(&mut self, what: StreamWaitCondition) -> &mut usize {
        match what {
            StreamWaitCondition::Bytes => &mut self.readers,
            StreamWaitCondition::Change => &mut self.other_waiters,
        }
    }
}

impl fmt::Debug for UdpStreamSlotState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpStreamSlotState")
            .field("state", &self.connection.state())
            .finish_non_exhaustive()
    }
}
