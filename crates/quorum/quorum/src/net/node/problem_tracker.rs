//! What has been wrong with a node since when, and what is logged of it.

use std::time::{Duration, Instant};

/// How long something is wrong before it is logged: links need a moment after a start.
const LOG_DELAY: Duration = Duration::from_secs(3);

/// What has been wrong since when.
#[derive(Debug, Default)]
pub(super) struct ProblemTracker {
    /// What is wrong with the files of the store.
    pub(super) store: Option<String>,
    /// Since when something is wrong.
    pub(super) since: Option<Instant>,
    /// The kind of problem that was logged last.
    logged: Option<String>,
}

impl ProblemTracker {
    /// Notes what is wrong now, which may be nothing. Returns what is to be logged.
    pub(super) fn note(&mut self, problem: &str, now: Instant) -> Option<HealthLogLine> {
        if problem.is_empty() {
            let since = self.since.take();
            let after = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
            return self.logged.take().map(|_| HealthLogLine::Healthy { after });
        }
        let since = *self.since.get_or_insert(now);
        // Times and counts change from second to second.
        let kind = problem.split(':').next().unwrap_or(problem);
        let kind: String = kind.chars().filter(|c| !c.is_ascii_digit()).collect();
        if now.saturating_duration_since(since) < LOG_DELAY || self.logged.as_ref() == Some(&kind) {
            return None;
        }
        self.logged = Some(kind);
        Some(HealthLogLine::Problem)
    }
}

/// A line of the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HealthLogLine {
    Problem,
    Healthy { after: Duration },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_logged_when_it_lasts_and_when_it_is_over() {
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
