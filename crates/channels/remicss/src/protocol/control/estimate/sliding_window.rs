//! Minimum, maximum and median of the values of the last ten seconds.

use std::collections::VecDeque;
use std::time::Duration;

/// How long a value counts.
const SPAN: Duration = Duration::from_secs(10);

/// The maximum number of values; beyond it, the oldest are removed. Usually there are ten a second.
const MAX_VALUES: usize = 128;

/// Values and their times.
#[derive(Clone, Debug, Default)]
pub struct SlidingWindow {
    values: VecDeque<(Duration, i64)>,
}

impl SlidingWindow {
    /// Adds a value. Times must not decrease.
    pub fn push(&mut self, now: Duration, value: i64) {
        while self.values.len() >= MAX_VALUES
            || self.values.front().is_some_and(|front| is_old(front, now))
        {
            self.values.pop_front();
        }
        self.values.push_back((now, value));
    }

    /// The minimum of the last ten seconds.
    pub fn min(&self, now: Duration) -> Option<i64> {
        self.recent(now).min()
    }

    /// The maximum of the last ten seconds.
    pub fn max(&self, now: Duration) -> Option<i64> {
        self.recent(now).max()
    }

    /// The median of the last ten seconds, the lower one of two.
    pub fn median(&self, now: Duration) -> Option<i64> {
        let mut values: Vec<i64> = self.recent(now).collect();
        let middle = values.len().checked_sub(1)? / 2;
        Some(*values.select_nth_unstable(middle).1)
    }

    fn recent(&self, now: Duration) -> impl Iterator<Item = i64> {
        self.values.iter().filter(move |entry| !is_old(entry, now)).map(|(_, value)| *value)
    }
}

fn is_old((at, _): &(Duration, i64), now: Duration) -> bool {
    now.saturating_sub(*at) > SPAN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn values_count_for_ten_seconds() {
        let mut sliding = SlidingWindow::default();
        assert_eq!((sliding.min(at(0)), sliding.median(at(0))), (None, None));
        for (second, value) in [(0, 7), (1, -3), (2, 100), (9, 5)] {
            sliding.push(at(second), value);
        }
        let now = |second| {
            let now = at(second);
            (sliding.min(now), sliding.median(now), sliding.max(now))
        };
        assert_eq!(now(10), (Some(-3), Some(5), Some(100)));
        assert_eq!(now(11), (Some(-3), Some(5), Some(100)));
        assert_eq!(now(12), (Some(5), Some(5), Some(100)));
        assert_eq!(now(13), (Some(5), Some(5), Some(5)));
        assert_eq!(now(20), (None, None, None));
    }

    #[test]
    fn memory_is_bounded() {
        let mut sliding = SlidingWindow::default();
        (0..10_000).for_each(|value| sliding.push(at(1), value));
        assert_eq!(sliding.values.len(), MAX_VALUES);
        assert_eq!((sliding.min(at(1)), sliding.max(at(1))), (Some(9_872), Some(9_999)));
    }
}
