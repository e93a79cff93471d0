//! Loss tests: whether datagrams are lost at random, or because more is sent than the channel
//! carries.
//!
//! A test sends clearly less than what arrived before. At this rate a bottleneck loses nothing,
//! and random loss as many as before.

use std::time::Duration;

use super::interval::{MeasurementInterval, from_count};

/// The rate of a test is this fraction of what arrived before, but within these fractions of the
/// known rate. So one test lowers a rate by a factor of fifty at most, and the next one continues
/// from there.
const TEST_FRACTION: f64 = 0.75;
const MIN_TEST_FRACTION: f64 = 0.02;

/// At this rate, in bit/s, 10 full datagrams take a fifth of a second.
const MIN_TEST_BPS: f64 = 600e3;

/// A test lasts until this number of datagrams would be lost at random, within bounds of datagrams
/// and of time, and until the queue that has built up is drained.
const EXPECTED_LOSSES: f64 = 10.0;
const MIN_DATAGRAMS: u64 = 10;
const MAX_DATAGRAMS: u64 = 300;
const MAX_TEST_TIME: Duration = Duration::from_secs(2);

/// A queue drains as long as datagrams arrive in less than this fraction of the time in which they
/// were sent.
const DRAINING_FRACTION: f64 = 0.9;

/// A test shows a bottleneck if at most this fraction of the previous loss is left, or if this many
/// times as much arrives; and if random loss would differ by this many standard deviations.
const LOSS_FRACTION: f64 = 0.5;
const ARRIVING_FACTOR: f64 = 1.5;
const SIGNIFICANT_DEVIATIONS: f64 = 2.0;

/// The time from one test to the next. It doubles with each test that shows random loss, since
/// random loss may come and go.
const MIN_SPACING: Duration = Duration::from_secs(1);
const MAX_SPACING: Duration = Duration::from_secs(8);

/// What made a test necessary: successive intervals of which too little arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossEvidence {
    sum: MeasurementInterval,
    /// The highest rate at which datagrams arrived in an interval, in bit/s.
    most_arriving: f64,
}

/// The tests of one channel.
#[derive(Clone, Debug)]
pub(super) struct LossTester {
    running: Option<RunningLossTest>,
    /// When the next test may begin.
    next_at: Duration,
    spacing: Duration,
}

#[derive(Clone, Copy, Debug)]
struct RunningLossTest {
    began: Duration,
    pace_bps: f64,
    /// What was measured before the test.
    before: LossEvidence,
    /// The intervals of the test so far.
    sum: MeasurementInterval,
}

/// The result of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LossTestResult {
    /// The same fraction is lost at a lower rate: this fraction arrives at any rate.
    Random { arriving: f64 },
    /// The channel carries this rate, in bit/s, and this fraction arrives at lower rates.
    Bottleneck { rate: f64, arriving: f64 },
    /// The channel carries less than this rate, in bit/s, of which much was lost as well, though
    /// clearly less than before: another test must follow.
    Below { rate: f64 },
}

impl LossEvidence {
    /// Adds an interval. Returns the number of messages that the intervals took so far.
    pub(super) fn add(&mut self, interval: MeasurementInterval) -> u64 {
        self.sum = self.sum.followed_by(interval);
        self.most_arriving = self.most_arriving.max(interval.arriving_bps());
        self.sum.messages
    }

    /// The highest rate at which datagrams arrived in an interval, in bit/s.
    pub(super) fn max_arrival_bps(&self) -> f64 {
        self.most_arriving
    }

    /// The fraction that did not arrive, or not in time.
    fn missing_part(&self) -> f64 {
        1.0 - self.sum.arriving_bps() / self.sum.sent_bps().max(1.0)
    }

    /// The intervals as one.
    pub(super) fn sum(&self) -> MeasurementInterval {
        self.sum
    }
}

impl LossTester {
    /// No test so far.
    pub(super) fn new() -> Self {
        Self { running: None, next_at: Duration::ZERO, spacing: MIN_SPACING }
    }

    /// The rate of the running test, in bit/s.
    pub(super) fn pace_bps(&self) -> Option<f64> {
        self.running.map(|test| test.pace_bps)
    }

    /// Begins a test of a channel with this known rate, unless the last one was too recent. Returns
    /// whether it began. If nothing is known of what arrived before, the pace is the lowest one.
    pub(super) fn begin(&mut self, now: Duration, rate: f64, evidence: LossEvidence) -> bool {
        if now < self.next_at {
            return false;
        }
        let (lowest, highest) = (MIN_TEST_FRACTION * rate, TEST_FRACTION * rate);
        self.running = Some(RunningLossTest {
            began: now,
            pace_bps: (TEST_FRACTION * evidence.most_arriving)
                .clamp(lowest, highest)
                .max(MIN_TEST_BPS),
            before: evidence,
            sum: MeasurementInterval::default(),
        });
        true
    }

    /// Handles an interval during a test. The result, if this ends it.
    pub(super) fn handle(
        &mut self,
        now: Duration,
        interval: MeasurementInterval,
    ) -> Option<LossTestResult> {
        let test = self.running.as_mut()?;
        if interval.began >= test.began {
            test.sum = test.sum.followed_by(interval);
        } else if test.before.sum.messages == 0 {
            test.before.add(interval);
        }
        let test = *test;
        let is_long = now >= test.began + MAX_TEST_TIME;
        let is_draining = interval.arriving < interval.sending.mul_f64(DRAINING_FRACTION);
        if (test.sum.sent < test.needed_datagrams() || is_draining) && !is_long {
            return None;
        }
        self.running = None;
        self.next_at = now + self.spacing;
        if test.sum.sent < MIN_DATAGRAMS {
            // Too little was sent.
            return None;
        }
        let verdict = test.verdict();
        match verdict {
            LossTestResult::Random { .. } => self.spacing = (2 * self.spacing).min(MAX_SPACING),
            LossTestResult::Bottleneck { .. } => self.spacing = MIN_SPACING,
            LossTestResult::Below { .. } => self.next_at = now,
        }
        Some(verdict)
    }

    /// Ends a running test without a result.
    pub(super) fn cancel(&mut self) {
        self.running = None;
    }
}

impl RunningLossTest {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    fn needed_datagrams(&self) -> u64 {
        let needed = EXPECTED_LOSSES / self.before.missing_part().max(f64::EPSILON);
        (needed as u64).clamp(MIN_DATAGRAMS, MAX_DATAGRAMS)
    }

    fn verdict(&self) -> LossTestResult {
        // A queue may have delayed what arrived before, so this is less than what was not lost.
        let (arriving, missing) = (self.sum.arrived_fraction(), self.before.missing_part());
        let before = 1.0 - missing;
        let deviation = (before * missing / from_count(self.sum.sent)).sqrt();
        let is_significant = arriving - before > SIGNIFICANT_DEVIATIONS * deviation;
        let is_better =
            1.0 - arriving <= LOSS_FRACTION * missing || arriving >= ARRIVING_FACTOR * before;
        if !(is_significant && is_better) {
            LossTestResult::Random { arriving }
        } else if self.pace_bps > self.before.most_arriving {
            LossTestResult::Below { rate: self.pace_bps }
        } else {
            LossTestResult::Bottleneck { rate: self.before.most_arriving / arriving, arriving }
        }
    }
}
