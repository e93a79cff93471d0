//! A connection that programs and the driver share.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::connection::{UdpStreamConnection, UdpStreamPhase};
use super::now;

/// Which connection of a socket: the index of its endpoint, and the number that this gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct UdpStreamKey {
    pub(super) endpoint: usize,
    pub(super) id: u64,
}

/// How often a program looks whether the driver has had the lock: a driver that gets no processor
/// for long does not keep it from working.
const MAX_YIELDS: u32 = 1000;

/// A connection that programs and the driver share.
#[derive(Debug)]
pub(super) struct UdpStreamSlot {
    pub(super) key: UdpStreamKey,
    shared: Mutex<UdpStreamSlotState>,
    /// Whether the driver waits for the lock.
    pub(super) is_driver_waiting: AtomicBool,
    /// For readers: something can be read.
    readable: Condvar,
    /// For writers and who waits for the connection or its end: something else has happened.
    changed: Condvar,
}

/// What a slot's lock protects.
pub(super) struct UdpStreamSlotState {
    pub(super) connection: Box<dyn UdpStreamConnection>,
    /// When the driver looks at it again by itself; `None` while it does.
    pub(super) driver_wakes_at: Option<Duration>,
    /// Whether it is over, and the driver does not look at it again.
    pub(super) is_removed_from_driver: bool,
    /// How long each read and write waits, if there is a limit.
    pub(super) timeout: Option<Duration>,
    /// Why programs can use it no more.
    pub(super) unusable: Option<StreamUnusableReason>,
    /// The streams of programs.
    pub(super) users: usize,
    /// Whether one waits until the driver has sent what there is to send at the end.
    pub(super) is_final_send_awaited: bool,
    pub(super) bytes_written: u64,
    pub(super) bytes_read: u64,
    readers: usize,
    other_waiters: usize,
}

/// Why programs cannot use a connection, whatever its state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamUnusableReason {
    /// A program closed it.
    Closed,
    /// There is no driver any more.
    Abandoned,
}

/// For what a program's thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamWaitCondition {
    Bytes,
    Change,
}

/// Who has to be woken, once the lock is released.
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

    /// Locks it for a program, after the driver if that waits. Whoever holds the lock keeps the
    /// others from working: not for long.
    pub(super) fn lock_for_program(&self) -> MutexGuard<'_, UdpStreamSlotState> {
        // Who writes without a pause would lock it again before the driver has woken up, and so
        // keep it from sending until there is no room for more.
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
        // A thread that panics in a protocol leaves an abandoned connection.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the lock until something may have happened.
    ///
    /// # Errors
    /// If the connection is unusable, or the timeout of an operation that began at `began_at` is
    /// over.
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

    /// Releases the lock until something may have happened, or for that long.
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

    /// Releases the lock until something has happened or time has passed.
    pub(super) fn wait_for_change<'a>(
        &'a self,
        shared: MutexGuard<'a, UdpStreamSlotState>,
        time: Duration,
    ) -> MutexGuard<'a, UdpStreamSlotState> {
        let waited = self.changed.wait_timeout(shared, time);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// What the connection had to send when it was closed, or its last stream dropped, is sent.
    pub(super) fn notify_final_send(&self) {
        self.changed.notify_all();
    }

    /// Programs cannot use it from now on.
    pub(super) fn make_unusable(&self, why: StreamUnusableReason) {
        self.lock_for_program().unusable.get_or_insert(why);
        self.wake(StreamWakeups { readers: true, other_waiters: true });
    }
}

impl UdpStreamSlotState {
    /// The threads that have something to do now.
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
    /// If programs cannot use it.
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
