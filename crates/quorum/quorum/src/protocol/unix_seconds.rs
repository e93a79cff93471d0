//! Times that servers agree on.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A time in whole seconds since the beginning of 1970 (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixSeconds(pub u64);

impl UnixSeconds {
    /// A time of the system's clock. Times before 1970 become 0.
    pub fn from_system(time: SystemTime) -> Self {
        Self(time.duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs()))
    }

    /// The time that has passed since then, or zero if that is later.
    pub fn until(self, later: Self) -> Duration {
        Duration::from_secs(later.0.saturating_sub(self.0))
    }
}

impl fmt::Display for UnixSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A faulty server can have sent any number, and the formatter knows years to 9999.
        const LAST: u64 = 253_402_300_799;
        let time = UNIX_EPOCH + Duration::from_secs(self.0.min(LAST));
        write!(f, "{}", humantime::format_rfc3339_seconds(time))
    }
}
