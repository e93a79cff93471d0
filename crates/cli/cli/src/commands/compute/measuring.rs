//! What the phases before a session take.

use std::time::{Duration, Instant};

use compute::{PhaseFigures, peak_memory};
use rustix::time::{ClockId, clock_gettime};

/// A phase that has begun.
pub(super) struct PhaseMeasurement {
    start: Instant,
    clock: ClockId,
    cpu: Duration,
}

impl PhaseMeasurement {
    /// Begins. The clock is that of the processor time of this thread, or of the process.
    pub(super) fn start(clock: ClockId) -> Self {
        Self { start: Instant::now(), clock, cpu: read(clock) }
    }

    /// What it has taken until now.
    pub(super) fn figures(&self) -> PhaseFigures {
        PhaseFigures {
            time: self.start.elapsed(),
            cpu: read(self.clock).saturating_sub(self.cpu),
            peak_memory: peak_memory(),
            ..PhaseFigures::default()
        }
    }
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
