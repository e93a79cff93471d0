//! Helpers of all threads.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time since a tunnel was set up.
#[derive(Clone, Copy, Debug)]
pub(super) struct TunnelClock(pub(super) Instant);

impl TunnelClock {
    pub(super) fn now(self) -> Duration {
        self.0.elapsed()
    }
}

/// Locks a mutex, even if it is poisoned: a thread that panicked while holding it has ended the
/// tunnel anyway.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
