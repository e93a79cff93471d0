//! The processor time of computations. It does not depend on the load of the host, except through
//! caches and hyper-threading.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Runs a computation, and returns the processor time of this thread that it took.
pub fn measured<T>(compute: impl FnOnce() -> T) -> (T, Duration) {
    let start = now();
    let result = compute();
    (result, now().saturating_sub(start))
}

/// The processor time of this thread so far.
fn now() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}
