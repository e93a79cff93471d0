//! The round-trip time, measured from an acknowledgement to the peer's answer to it.

use std::collections::VecDeque;
use std::time::Duration;

use super::number::MAX_WIRE;

/// The value before the first measurement (draft-gg-udt-03, section 6).
const INITIAL: Duration = Duration::from_millis(100);

/// Longer measurements of the peer count as this.
const MAX_SAMPLE: Duration = Duration::from_secs(60);

/// The largest number of unanswered acknowledgements. The oldest ones are dropped.
const MAX_WAITING: usize = 1024;

/// The smoothed round-trip time and its variation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SabulRttEstimator {
    mean: Duration,
    variation: Duration,
    least: Option<Duration>,
}

impl SabulRttEstimator {
    pub(crate) fn new() -> Self {
        Self { mean: INITIAL, variation: INITIAL / 2, least: None }
    }

    /// Adds a measurement: the first replaces the initial value, later ones have a weight of 1/8.
    pub(crate) fn add(&mut self, sample: Duration) {
        let sample = sample.min(MAX_SAMPLE);
        if self.least.is_none() {
            (self.mean, self.variation) = (sample, sample / 2);
        } else {
            let distance = sample.abs_diff(self.mean);
            self.variation = (self.variation * 3 + distance) / 4;
            self.mean = (self.mean * 7 + sample) / 8;
        }
        self.least = Some(self.least.map_or(sample, |least| least.min(sample)));
    }

    pub(crate) fn mean(&self) -> Duration {
        self.mean
    }

    pub(crate) fn variation(&self) -> Duration {
        self.variation
    }

    /// The min RTT.
    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.least
    }

    /// The response timeout: the smoothed round-trip time plus four times its variation.
    pub(crate) fn response_timeout(&self) -> Duration {
        self.mean + 4 * self.variation
    }
}

/// Acknowledgements that were sent and not answered yet.
#[derive(Debug, Default)]
pub(crate) struct SabulUnansweredAcks {
    /// For each its number, the packet number in it, and when it was sent.
    waiting: VecDeque<(u32, u64, Duration)>,
    last_number: u32,
}

impl SabulUnansweredAcks {
    /// Adds an acknowledgement of all packets before `next`. Returns its number.
    pub(crate) fn add(&mut self, next: u64, now: Duration) -> u32 {
        self.last_number = self.last_number % MAX_WIRE + 1;
        if self.waiting.len() == MAX_WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back((self.last_number, next, now));
        self.last_number
    }

    /// Handles the peer's answer to the acknowledgement with this number. Returns the packet number
    /// in it and the round-trip time; `None` if no such acknowledgement is waiting.
    pub(crate) fn answer(&mut self, number: u32, now: Duration) -> Option<(u64, Duration)> {
        let position = self.waiting.iter().position(|(waiting, ..)| *waiting == number)?;
        self.waiting.drain(..position);
        let (_, next, sent_at) = self.waiting.pop_front()?;
        Some((next, now.saturating_sub(sent_at)))
    }
}
