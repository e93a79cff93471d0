//! Tracks a node's problem, since when it has lasted, and what has been logged about it.

use std::time::{Duration, Instant};

/// How long a problem must last before it is logged. Links need a moment after a start.
const LOG_DELAY: Duration = Duration::from_secs(3);

/// The current problem and its history.
#[derive(Debug, Default)]
pub(super) struct ProblemTracker {
    /// The problem of the store's files.
    pub(super) store: Option<String>,
    /// The beginning of the current problem.
    pub(super) since: Option<Instant>,
    /// The kind of the last logged problem.
    logged: Option<String>,
}

impl ProblemTracker {
    /// Updates the current problem, which may be empty. Returns what must be logged.
    pub(super) fn note(&mut self, problem: &str, now: Instant) -> Option<HealthLogLine> {
        if problem.is_empty() {
            let since = self.since.take();
            let after = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
            return self.logged.take().map(|_| HealthLogLine::Healthy { after });
        }
        let since = *self.since.get_or_insert(now);
        // Times and counts change every second.
        let kind = problem.split(':').next().unwrap_or(problem);
        let kind: String = kind.chars().filter(|c| !c.is_ascii_digit()).collect();
        if now.saturating_duration_since(since) < LOG_DELAY || self.logged.as_ref() == Some(&kind) {
            return None;
        }
        self.logged = Some(kind);
        Some(HealthLogLine::Problem)
    }
}

/// A line to be logged.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HealthLogLine {
    Problem,
    Healthy { after: Duration },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lasting_problem_is_logged_once_and_when_it_ends() {
        let (begin, second) = (Instant::now(), Duration::from_secs);
        let mut watch = ProblemTracker::default();
        let mut note = |problem: &str, at| watch.note(problem, begin + second(at));
        assert_eq!(note("1 others are connected: start a (down for 0 s)", 0), None);
        assert_eq!(note("", 2), None, "it did not last");
        assert_eq!(note("1 others are connected: start a (down for 0 s)", 3), None);
        assert_eq!(
            note("1 others are connected: start a (down for 3 s)", 6),
            Some(HealthLogLine::Problem)
        );
        assert_eq!(note("0 others are connected: start a (down for 9 s)", 12), None);
        assert_eq!(
            note("audit.log was removed: restart", 13),
            Some(HealthLogLine::Problem),
            "another"
        );
        assert_eq!(note("", 20), Some(HealthLogLine::Healthy { after: second(17) }));
        assert_eq!(note("", 21), None);
    }
}
