//! The log, and a limit on how often an event is logged.

use std::io;
use std::sync::atomic::{AtomicI8, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::prelude::*;

use crate::ServiceError;

/// The period of a [`LogRateLimiter`].
const PERIOD: Duration = Duration::from_secs(10);

/// The filter if nothing else is set. The consensus library logs a line for each vote, and one for
/// each invalid message of a faulty server.
const LEVELS: &str = "info,arc_malachitebft=error";

/// See [`set_verbosity`].
static VERBOSITY: AtomicI8 = AtomicI8::new(0);

/// Sets how much more than usual the log shows, or less if negative. This replaces `RUST_LOG`, and
/// is called before [`start`].
pub fn set_verbosity(verbosity: i8) {
    VERBOSITY.store(verbosity, Ordering::Relaxed);
}

/// The filter for a verbosity other than 0.
fn levels_of(verbosity: i8) -> &'static str {
    match verbosity {
        ..=-2 => "error",
        -1 => "warn,arc_malachitebft=error",
        0 => LEVELS,
        1 => "info,sunder=debug,arc_malachitebft=error",
        2.. => "debug,sunder=trace,arc_malachitebft=info",
    }
}

/// Starts the log on standard error, filtered by [`set_verbosity`], or else by `RUST_LOG`, or at
/// level `info` if neither is set.
///
/// # Errors
/// If `RUST_LOG` is not a valid filter.
///
/// # Panics
/// If the process already has a log.
pub fn start(coloured: bool) -> Result<(), ServiceError> {
    let verbosity = VERBOSITY.load(Ordering::Relaxed);
    let environment = std::env::var("RUST_LOG").unwrap_or_default();
    let is_given = verbosity == 0 && !environment.is_empty();
    let levels = if is_given { environment } else { levels_of(verbosity).to_owned() };
    let filter: Targets = levels.parse().map_err(|error: ParseError| {
        let reason = error.to_string().replace('\n', " ");
        ServiceError::Levels { levels, reason }
    })?;
    let lines = tracing_subscriber::fmt::layer().with_ansi(coloured).with_writer(io::stderr);
    tracing_subscriber::registry().with(lines).with(filter).init();
    Ok(())
}

/// Limits how often an event is logged: at most a given number of times in 10 s. Events that are
/// not logged are counted.
#[derive(Debug, Default)]
pub struct LogRateLimiter {
    /// The start of the period.
    since: Option<Instant>,
    /// The number of events of this period that were logged.
    logged: u32,
    /// The number of events since the last one that was logged.
    unlogged: u64,
}

impl LogRateLimiter {
    /// Counts an event that is logged once in a period. If it is to be logged now, returns the
    /// number of events since the last logged one, including this one.
    pub fn count_event(&mut self) -> Option<u64> {
        self.count_event_of(1)
    }

    /// Like [`count_event`](Self::count_event) for an event that is logged up to `max` times in a
    /// period.
    pub fn count_event_of(&mut self, max: u32) -> Option<u64> {
        self.unlogged += 1;
        if self.since.is_none_or(|since| since.elapsed() >= PERIOD) {
            (self.since, self.logged) = (Some(Instant::now()), 0);
        }
        if self.logged >= max {
            return None;
        }
        self.logged += 1;
        Some(std::mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn each_step_of_verbosity_shows_more() {
        let shown = |verbosity| {
            let filter: Targets = levels_of(verbosity).parse().unwrap();
            let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
            let own = levels.iter().filter(|level| filter.would_enable("sunder_micss::net", level));
            own.count()
        };
        assert_eq!([-3, -2, -1, 0, 1, 2, 3].map(shown), [1, 1, 2, 3, 4, 5, 5]);
    }

    #[tokio::test(start_paused = true)]
    async fn all_events_are_counted_and_few_are_logged() {
        let mut limiter = LogRateLimiter::default();
        assert_eq!(limiter.count_event(), Some(1));
        assert_eq!((0..5).filter_map(|_| limiter.count_event()).count(), 0);
        tokio::time::advance(PERIOD).await;
        assert_eq!(limiter.count_event(), Some(6));
        assert_eq!(limiter.count_event(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn infrequent_events_are_logged_each_time() {
        let mut limiter = LogRateLimiter::default();
        assert_eq!((0..100).filter_map(|_| limiter.count_event_of(16)).sum::<u64>(), 16);
        tokio::time::advance(PERIOD).await;
        assert_eq!(limiter.count_event_of(16), Some(85));
        assert_eq!(limiter.count_event_of(16), Some(1));
    }
}
