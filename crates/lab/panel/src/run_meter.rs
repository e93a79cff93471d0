//! The limits of the run that runs, when there are accounts: its time, its bytes on the disk, and
//! whether its account is still there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use accounts::AccountId;

use crate::account_service::AccountService;
use crate::quota::QuotaExceeded;
use crate::run::RunDirectory;

/// How often a run is measured.
pub(crate) const MEASURE_INTERVAL: Duration = Duration::from_secs(1);

/// How often its time is noted. So much of it is lost if the server is killed.
const NOTE_INTERVAL: Duration = Duration::from_secs(10);

/// Measures what the run of an account uses.
pub(crate) struct RunMeter {
    accounts: Arc<AccountService>,
    owner: AccountId,
    directory: RunDirectory,
    begin: Instant,
    /// The part of its time that is noted.
    noted: Duration,
    /// How long it may run today.
    allowed: Duration,
}

impl RunMeter {
    /// Begins to measure.
    pub(crate) fn new(
        accounts: Arc<AccountService>,
        owner: AccountId,
        directory: RunDirectory,
    ) -> Self {
        let allowed = accounts.limits.time_a_day.saturating_sub(accounts.time_today(owner));
        let (begin, noted) = (Instant::now(), Duration::ZERO);
        Self { accounts, owner, directory, begin, noted, allowed }
    }

    /// The limit that the run exceeds, in one line.
    pub(crate) fn exceeded(&mut self) -> Option<String> {
        let time = self.begin.elapsed();
        if time.saturating_sub(self.noted) >= NOTE_INTERVAL {
            self.note();
        }
        if self.accounts.is_removed(self.owner) {
            return Some("its account was removed".into());
        }
        if time >= self.allowed {
            return Some(QuotaExceeded::Time(self.accounts.limits.time_a_day).to_string());
        }
        let limit = self.accounts.limits.run_bytes;
        (self.directory.bytes() > limit).then(|| {
            let limit = limit >> 20;
            format!(
                "it holds more than {limit} MiB, which is the quota of a run: run a smaller one"
            )
        })
    }

    /// Notes the time until now.
    fn note(&mut self) {
        let time = self.begin.elapsed();
        self.accounts.add_time(self.owner, time.saturating_sub(self.noted));
        self.noted = time;
    }
}

impl Drop for RunMeter {
    fn drop(&mut self) {
        self.note();
    }
}
