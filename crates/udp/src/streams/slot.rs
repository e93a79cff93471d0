//! A connection that programs and the driver share.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::connection::{Connection, Phase};
use super::now;

/// Which connection of a socket: the index of its endpoint, and the number that this gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) endpoint: usize,
    pub(super) id: u64,
}

/// How often a program looks whether the driver has had the lock: a driver that gets no processor
/// for long does not keep it from working.
const MAX_YIELDS: u32 = 1000;

/// A connection that programs and the driver share.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) key: Key,
    shared: Mutex<Shared>,
    /// Whether the driver waits for the lock.
    pub(super) is_wanted: AtomicBool,
    /// For readers: something can be read.
    readable: Condvar,
    /// For writers and who waits for the connection or its end: something else has happened.
    changed: Condvar,
}

/// What a slot's lock protects.
pub(super) struct Shared {
    pub(super) connection: Box<dyn Connection>,
    /// When the driver looks at it again by itself; `None` while it does.
    pub(super) sleeps_until: Option<Duration>,
    /// Whether it is over, and the driver does not look at it again.
    pub(super) is_forgotten: bool,
    /// How long each read and write waits, if there is a limit.
    pub(super) timeout: Option<Duration>,
    /// Why programs can use it no more.
    pub(super) unusable: Option<Unusable>,
    /// The streams of programs.
    pub(super) users: usize,
    /// Whether one waits until the driver has sent what there is to send at the end.
    pub(super) is_last_waiting: bool,
    pub(super) bytes_written: u64,
    pub(super) bytes_read: u64,
    readers: usize,
    others: usize,
}

/// Why programs cannot use a connection, whatever its state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// A program closed it.
    Closed,
    /// There is no driver any more.
    Abandoned,
}

/// For what a program's thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitFor {
    Bytes,
    Change,
}

/// Who has to be woken, once the lock is released.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(super) struct Waiting {
    readers: bool,
    others: bool,
}

impl Slot {
    pub(super) fn new(key: Key, connection: Box<dyn Connection>) -> Self {
        let shared = Shared {
            connection,
            sleeps_until: None,
            is_forgotten: false,
            timeout: None,
            unusable: None,
            users: 0,
            is_last_waiting: false,
            bytes_written: 0,
            bytes_read: 0,
            readers: 0,
            others: 0,
        };
        Self {
            key,
            shared: Mutex::new(shared),
            is_wanted: AtomicBool::new(false),
            readable: Condvar::new(),
            changed: Condvar::new(),
        }
    }

    /// Locks it for a program, after the driver if that waits. Whoever holds the lock keeps the
    /// others from working: not for long.
    pub(super) fn lock(&self) -> MutexGuard<'_, Shared> {
        // Who writes without a pause would lock it again before the driver has woken up, and so
        // keep it from sending until there is no room for more.
        for _ in 0..MAX_YIELDS {
            if !self.is_wanted.load(Ordering::Relaxed) {
                break;
            }
            thread::yield_now();
        }
        self.lock_now()
    }

    /// Locks it for the driver.
    pub(super) fn lock_first(&self) -> MutexGuard<'_, Shared> {
        self.is_wanted.store(true, Ordering::Relaxed);
        let shared = self.lock_now();
        self.is_wanted.store(false, Ordering::Relaxed);
        shared
    }

    fn lock_now(&self) -> MutexGuard<'_, Shared> {
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
        shared: MutexGuard<'a, Shared>,
        what: WaitFor,
        began_at: Duration,
    ) -> io::Result<MutexGuard<'a, Shared>> {
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
        mut shared: MutexGuard<'a, Shared>,
        what: WaitFor,
        limit: Option<Duration>,
    ) -> MutexGuard<'a, Shared> {
        let condition = match what {
            WaitFor::Bytes => &self.readable,
            WaitFor::Change => &self.changed,
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
    pub(super) fn wake(&self, waiting: Waiting) {
        if waiting.readers {
            self.readable.notify_all();
        }
        if waiting.others {
            self.changed.notify_all();
        }
    }

    /// Releases the lock until something has happened or time has passed.
    pub(super) fn wait_for_change<'a>(
        &'a self,
        shared: MutexGuard<'a, Shared>,
        time: Duration,
    ) -> MutexGuard<'a, Shared> {
        let waited = self.changed.wait_timeout(shared, time);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// What the connection had to send when it was closed, or its last stream dropped, is sent.
    pub(super) fn let_last_go(&self) {
        self.changed.notify_all();
    }

    /// Programs cannot use it from now on.
    pub(super) fn make_unusable(&self, why: Unusable) {
        self.lock().unusable.get_or_insert(why);
        self.wake(Waiting { readers: true, others: true });
    }
}

impl Shared {
    /// The threads that have something to do now.
    pub(super) fn waiting(&self) -> Waiting {
        if self.readers + self.others == 0 {
            return Waiting { readers: false, others: false };
        }
        let state = self.connection.state();
        let is_over = state.phase == Phase::Over;
        Waiting {
            readers: self.readers > 0 && (state.is_readable || is_over),
            others: self.others > 0
                && (state.is_writable || is_over || self.connection.is_flushed()),
        }
    }

    /// # Errors
    /// If programs cannot use it.
    pub(super) fn check(&self) -> io::Result<()> {
        match self.unusable {
            Some(Unusable::Closed) => {
                let what = "the connection was closed on this side";
                Err(io::Error::new(io::ErrorKind::NotConnected, what))
            }
            Some(Unusable::Abandoned) if self.connection.state().phase != Phase::Over => {
                Err(io::Error::other("the socket of the connection has failed"))
            }
            Some(Unusable::Abandoned) | None => Ok(()),
        }
    }

    fn waiters(&mut self, what: WaitFor) -> &mut usize {
        match what {
            WaitFor::Bytes => &mut self.readers,
            WaitFor::Change => &mut self.others,
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("state", &self.connection.state()).finish_non_exhaustive()
    }
}
