//! Time, as links count it.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the system's monotonic clock.
pub(crate) type Nanos = u64;

/// A millisecond.
pub(super) const MS: Nanos = 1_000_000;

/// A time in milliseconds as nanoseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "conditions are checked"
)]
pub(super) fn nanos(ms: f64) -> Nanos {
    (ms * MS as f64).round() as Nanos
}

/// The time by the system's monotonic clock.
pub(crate) fn now() -> Nanos {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
