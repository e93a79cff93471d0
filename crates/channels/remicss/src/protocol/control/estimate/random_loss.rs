//! Random loss of a channel: what is lost at any rate.

use super::interval::MeasurementInterval;

/// The number of samples whose mean is the estimate.
const SAMPLES: usize = 4;

/// A sample of less than this fraction of the others' mean has met a full queue.
const OUTLIER_FRACTION: f64 = 0.9;

/// If a smaller fraction of datagrams arrives, nothing can be learnt from it.
const MIN_ARRIVING: f64 = 0.05;

/// An interval shows that random loss has ended if it lost less than expected by this number of
/// standard deviations, and by this fraction of what was sent.
const SIGNIFICANT_DEVIATIONS: f64 = 4.0;
const SIGNIFICANT_FRACTION: f64 = 0.03;

/// The mean of the last samples of what arrived, each of an interval that met no bottleneck.
#[derive(Clone, Debug)]
pub(super) struct RandomLossEstimator {
    samples: [f64; SAMPLES],
    /// The number of samples so far.
    sampled: usize,
}

impl RandomLossEstimator {
    /// No loss, until there is a sample.
    pub(super) fn new() -> Self {
        Self { samples: [1.0; SAMPLES], sampled: 0 }
    }

    /// The fraction of datagrams that is not lost at random, 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "a few")]
    pub(super) fn arrival_fraction(&self) -> f64 {
        let samples = &self.samples[..self.sampled.min(SAMPLES)];
        let Some(worst) = samples.iter().copied().reduce(f64::min) else { return 1.0 };
        let (sum, others) = (samples.iter().sum::<f64>(), samples.len() as f64 - 1.0);
        let mean = (sum - worst) / others.max(1.0);
        if worst < OUTLIER_FRACTION * mean { mean } else { sum / (others + 1.0) }
    }

    /// Whether hardly anything arrives, at any rate.
    pub(super) fn loses_nearly_all(&self) -> bool {
        self.arrival_fraction() < MIN_ARRIVING
    }

    /// A rate at which datagrams arrive, corrected for random loss: the rate at which they were
    /// carried. It is at most `sent`, since more than that was not carried: if by chance less was
    /// lost than usual, the correction would give a rate that fills the queue.
    pub(super) fn correct_for_loss(&self, arriving: f64, sent: f64) -> f64 {
        (arriving / self.arrival_fraction().max(MIN_ARRIVING)).min(sent)
    }

    /// Adds a sample: the fraction that arrived of an interval that met no bottleneck.
    pub(super) fn sample(&mut self, arriving: f64) {
        self.samples[self.sampled % SAMPLES] = arriving;
        self.sampled = self.sampled.checked_add(1).unwrap_or(SAMPLES);
    }

    /// Replaces all samples by this one.
    pub(super) fn reset(&mut self, arriving: f64) {
        *self = Self::new();
        self.sample(arriving);
    }

    /// Handles an interval that may have met a bottleneck. If it lost significantly less than
    /// usual, it replaces all samples.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    pub(super) fn handle_interval(&mut self, interval: MeasurementInterval) {
        let (usual, part) = (self.arrival_fraction(), interval.arrived_fraction());
        let deviation = (usual * (1.0 - usual) / interval.sent.max(1) as f64).sqrt();
        if part - usual > SIGNIFICANT_FRACTION.max(SIGNIFICANT_DEVIATIONS * deviation) {
            self.reset(part);
        }
    }
}
