//! The processor time of computations. It does not depend on how busy the machine is, but for the
//! caches and the other thread of a core.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Does a computation, and returns how much processor time of this thread it took.
pub fn measured<T>(compute: impl FnOnce() -> T) -> (T, Duration) {
    let start = now();
    let result = compute();
    (result, now().saturating_sub(start))
}

/// The processor time of this thread so far.
fn now() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}
