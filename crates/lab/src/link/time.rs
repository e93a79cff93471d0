//! Time, as links count it.

/// Nanoseconds since a moment before the link was made.
pub(super) type Nanos = u64;

/// A millisecond.
pub(super) const MS: Nanos = 1_000_000;

/// A time in milliseconds as nanoseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "conditions are checked")]
pub(super) fn nanos(ms: f64) -> Nanos {
    (ms * MS as f64).round() as Nanos
}
