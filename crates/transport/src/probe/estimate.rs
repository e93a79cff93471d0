//! The rate of a train of packets.

use std::time::Duration;

/// Packets that arrive within this time of the first one were passed on together with it.
const TOGETHER: Duration = Duration::from_micros(5);
/// Fewer packets say nothing.
const MIN_PACKETS: usize = 8;

/// The arrivals of packets that were sent back to back.
#[derive(Debug, Default)]
pub(super) struct Train(Vec<(Duration, usize)>);

/// A measured rate, in bytes/s of IP packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// The likely one.
    pub rate: f64,
}

impl Train {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// A packet, in the order of arrival.
    pub(super) fn add(&mut self, at: Duration, bytes: usize) {
        self.0.push((at, bytes));
    }

    /// The bytes after those that came first, by the time in which they came.
    #[expect(clippy::cast_precision_loss, reason = "some hundred packets")]
    pub(super) fn estimate(&self) -> Option<Rate> {
        let (first, _) = *self.0.first()?;
        let (last, _) = *self.0.last()?;
        let later = self.0.iter().filter(|(at, _)| at.saturating_sub(first) >= TOGETHER);
        let bytes: usize = later.map(|(_, bytes)| bytes).sum();
        let seconds = last.saturating_sub(first).as_secs_f64();
        let is_known = self.0.len() >= MIN_PACKETS && bytes > 0 && seconds > 0.0;
        is_known.then(|| Rate { rate: bytes as f64 / seconds })
    }
}
