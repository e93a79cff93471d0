//! What a flood causes is logged now and then, so that the log is not flooded as well.

use std::time::Duration;

use tokio::time::Instant;

/// How often something is said that happens all the time.
const PERIOD: Duration = Duration::from_secs(10);

/// Since when something is said, how often it was, and how often it has happened since it was said last.
#[derive(Debug, Default)]
pub(crate) struct Rarely {
    since: Option<Instant>,
    said: u32,
    unsaid: u64,
}

impl Rarely {
    /// It has happened. If it is to be said, returns how often it has happened since that was said last.
    pub(crate) fn happened(&mut self) -> Option<u64> {
        self.happened_of(1)
    }

    /// The same for what is said so often in a period.
    pub(crate) fn happened_of(&mut self, most: u32) -> Option<u64> {
        self.unsaid += 1;
        if self.since.is_none_or(|since| since.elapsed() >= PERIOD) {
            (self.since, self.said) = (Some(Instant::now()), 0);
        }
        if self.said >= most {
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_is_counted_and_little_said() {
        let mut rarely = Rarely::default();
        assert_eq!(rarely.happened(), Some(1));
        assert_eq!((0..5).filter_map(|_| rarely.happened()).count(), 0);
        tokio::time::advance(PERIOD).await;
        assert_eq!(rarely.happened(), Some(6));
        assert_eq!(rarely.happened(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_come_in_floods_is_said_each_time() {
        let mut rarely = Rarely::default();
        assert_eq!((0..100).filter_map(|_| rarely.happened_of(16)).sum::<u64>(), 16);
        tokio::time::advance(PERIOD).await;
        assert_eq!(rarely.happened_of(16), Some(85));
        assert_eq!(rarely.happened_of(16), Some(1));
    }
}
