//! The monotonic clock of the system, in nanoseconds.

use rustix::time::{ClockId, clock_gettime};

/// A millisecond in nanoseconds.
pub(crate) const MS: u64 = 1_000_000;

/// Converts milliseconds to nanoseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "conditions are checked"
)]
pub(crate) fn nanos(ms: f64) -> u64 {
    (ms * MS as f64).round() as u64
}

/// The current time of the monotonic clock.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
