//! What a flood causes is logged now and then, so that the log is not flooded as well.

use std::time::Duration;

use tokio::time::Instant;

/// How often something is said that happens all the time.
const PERIOD: Duration = Duration::from_secs(10);

/// When something was said last, and how often it has happened since.
#[derive(Debug, Default)]
pub(crate) struct Rarely {
    said: Option<Instant>,
    unsaid: u64,
}

impl Rarely {
    /// It has happened. If it is to be said, returns how often it has happened since that was said last.
    pub(crate) fn happened(&mut self) -> Option<u64> {
        self.unsaid += 1;
        if self.said.is_some_and(|said| said.elapsed() < PERIOD) {
            return None;
        }
        self.said = Some(Instant::now());
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
}
