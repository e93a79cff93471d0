//! The rate of a train of packets.

use std::time::Duration;

/// A train.
#[derive(Debug, Default)]
pub struct Train {
    first: Option<Duration>,
    last: Duration,
    bytes: usize,
}

/// An estimate of the rate of the path.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    /// In bytes/s.
    pub rate: f64,
}

impl Train {
    /// No packet has arrived.
    pub fn new() -> Self {
        Self::default()
    }

    /// A packet has arrived.
    pub fn add(&mut self, _position: u32, at: Duration, bytes: usize) {
        if self.first.is_some() {
            self.bytes += bytes;
        }
        self.first.get_or_insert(at);
        self.last = at;
    }

    /// The estimate.
    pub fn estimate(&self) -> Option<Estimate> {
        let time = self.last.saturating_sub(self.first?).as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "a number of bytes")]
        let bytes = self.bytes as f64;
        (time > 0.0).then_some(Estimate { rate: bytes / time })
    }
}
