//! How much an account may use, and how much all may. Pure.

use std::time::Duration;

use serde::Serialize;
use thiserror::Error;

/// The quotas of each account and of all together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaLimits {
    /// How many runs of an account may wait or run.
    pub unfinished: usize,
    /// How many bytes the runs of an account may hold on the disk.
    pub bytes: u64,
    /// How many bytes all runs together may hold.
    pub total_bytes: u64,
    /// How many bytes one run may hold. A run that waits or runs counts as so many.
    pub run_bytes: u64,
    /// How long an account's runs may run on a day (UTC).
    pub time_a_day: Duration,
}

impl Default for QuotaLimits {
    fn default() -> Self {
        Self {
            unfinished: 10,
            bytes: 1 << 30,
            total_bytes: 16 << 30,
            run_bytes: 64 << 20,
            time_a_day: Duration::from_secs(4 * 3600),
        }
    }
}

/// How many runs an account may keep. It bounds the list in memory.
pub(crate) const MAX_KEPT: usize = 1_000;

/// What runs use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct QuotaUsage {
    /// How many runs there are, and how many of them wait or run.
    pub(crate) runs: usize,
    pub(crate) unfinished: usize,
    /// The bytes that they hold, or may hold before they are over.
    pub(crate) bytes: u64,
}

/// A quota does not allow another run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum QuotaExceeded {
    #[error("{0} of your runs wait already, which is your quota: stop some, or wait")]
    Unfinished(usize),
    #[error("you keep {MAX_KEPT} runs, which is your quota: delete some")]
    Kept,
    #[error(
        "your runs hold {} MiB and another one may need {} MiB, which is more than your quota of \
         {} MiB: delete runs", .held >> 20, .needed >> 20, .quota >> 20
    )]
    Bytes { held: u64, needed: u64, quota: u64 },
    #[error(
        "the runs of all accounts hold as much as the server may keep: delete some of yours, or \
         ask its administrator"
    )]
    TotalBytes,
    #[error(
        "your runs have run for {} minutes today, which is your quota: continue tomorrow (UTC)",
        .0.as_secs() / 60
    )]
    Time(Duration),
}

impl QuotaLimits {
    /// Whether an account may have one more run that waits. `held` is what the run holds already.
    ///
    /// # Errors
    /// The quota that does not allow it.
    pub(crate) fn check(
        &self,
        own: QuotaUsage,
        all: QuotaUsage,
        time_today: Duration,
        held: u64,
    ) -> Result<(), QuotaExceeded> {
        let needed = self.run_bytes.saturating_sub(held);
        if own.unfinished >= self.unfinished {
            return Err(QuotaExceeded::Unfinished(self.unfinished));
        }
        if own.runs >= MAX_KEPT && held == 0 {
            return Err(QuotaExceeded::Kept);
        }
        if own.bytes + needed > self.bytes {
            return Err(QuotaExceeded::Bytes { held: own.bytes, needed, quota: self.bytes });
        }
        if all.bytes + needed > self.total_bytes {
            return Err(QuotaExceeded::TotalBytes);
        }
        if time_today >= self.time_a_day {
            return Err(QuotaExceeded::Time(self.time_a_day));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_quota_is_exact_and_says_what_to_do() {
        let limits = QuotaLimits {
            unfinished: 2,
            bytes: 100 << 20,
            total_bytes: 150 << 20,
            run_bytes: 10 << 20,
            time_a_day: Duration::from_secs(3600),
        };
        let mut own = QuotaUsage { runs: 9, unfinished: 1, bytes: 90 << 20 };
        let mut all = QuotaUsage { runs: 20, unfinished: 5, bytes: 140 << 20 };
        let (mut time, mut held) = (Duration::from_secs(3599), 0);
        assert_eq!(limits.check(own, all, time, held), Ok(()));
        own.unfinished = 2;
        let refused = limits.check(own, all, time, held).unwrap_err();
        assert_eq!(refused, QuotaExceeded::Unfinished(2));
        own.unfinished = 1;
        own.bytes += 1;
        let refused = limits.check(own, all, time, held).unwrap_err();
        assert!(refused.to_string().contains("quota of 100 MiB: delete runs"), "{refused}");
        // A run that is resumed needs only the rest.
        held = 1;
        assert_eq!(
            limits.check(own, QuotaUsage { bytes: all.bytes + 1, ..all }, time, held),
            Ok(())
        );
        own.bytes -= 1;
        held = 0;
        all.bytes += 1;
        assert_eq!(limits.check(own, all, time, held), Err(QuotaExceeded::TotalBytes));
        all.bytes -= 1;
        time = Duration::from_secs(3600);
        let refused = limits.check(own, all, time, held).unwrap_err();
        assert!(refused.to_string().contains("60 minutes today"), "{refused}");
        time = Duration::ZERO;
        own.runs = MAX_KEPT;
        assert_eq!(limits.check(own, all, time, held), Err(QuotaExceeded::Kept));
    }
}
