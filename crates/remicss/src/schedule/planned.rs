//! Thresholds in the proportions of a plan.

use std::time::Duration;

use model::sample::LowDiscrepancy;
use model::{Schedule, Subset, Threshold};

use super::Scheduler;

/// A schedule of the model (IV), dealt out so evenly that even a short run has its averages.
///
/// Until there is a new plan after a channel went down, a symbol that was to use it is sent with the
/// same k over the rest of its channels, and where they are fewer than k, over those beside them that
/// are ready the soonest. Only if fewer than k channels are up does k become their number.
#[derive(Clone, Debug)]
pub struct Planned {
    sequence: LowDiscrepancy,
    least_k: usize,
}

impl Planned {
    /// The thresholds of a schedule, from the beginning of its sequence.
    pub fn new(schedule: &Schedule) -> Self {
        let thresholds = schedule.entries().iter().map(|(threshold, _)| threshold.k());
        let least_k = thresholds.min().unwrap_or(0);
        Self { sequence: LowDiscrepancy::new(schedule), least_k }
    }
}

impl Scheduler for Planned {
    fn next_threshold(&mut self, up: Subset, ready: &[Duration]) -> Option<Threshold> {
        let planned = self.sequence.next_threshold();
        if up.includes(planned.channels()) { Some(planned) } else { fit(planned, up, ready) }
    }

    fn least_k(&self) -> usize {
        self.least_k
    }
}

/// What comes nearest to a threshold with the channels that are up.
fn fit(planned: Threshold, up: Subset, ready: &[Duration]) -> Option<Threshold> {
    let mut channels: Subset = up.iter().filter(|c| planned.channels().contains(*c)).collect();
    while channels.len() < planned.k() {
        let others = up.iter().filter(|c| !channels.contains(*c));
        let Some(soonest) = others.min_by_key(|c| ready.get(*c)) else { break };
        channels = channels.with(soonest);
    }
    Threshold::new(planned.k().min(channels.len()), channels).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(channels: &[usize]) -> Subset {
        channels.iter().copied().collect()
    }

    fn threshold(k: usize, channels: &[usize]) -> Threshold {
        Threshold::new(k, set(channels)).unwrap()
    }

    #[test]
    fn proportions_are_those_of_the_plan() {
        let (often, seldom) = (threshold(2, &[0, 1, 2]), threshold(1, &[3]));
        let schedule = Schedule::new([(often, 0.75), (seldom, 0.25)]).unwrap();
        let mut planned = Planned::new(&schedule);
        assert_eq!(planned.least_k(), 1);
        let ready = [Duration::ZERO; 4];
        for _ in 0..1000 {
            let four: Vec<Threshold> =
                (0..4).filter_map(|_| planned.next_threshold(Subset::first(4), &ready)).collect();
            assert_eq!(four.iter().filter(|threshold| **threshold == seldom).count(), 1);
            assert_eq!(four.iter().filter(|threshold| **threshold == often).count(), 3);
        }
    }

    #[test]
    fn channels_that_are_down_are_made_up_for() {
        let ready = [3, 9, 5, 1].map(Duration::from_millis);
        let fit =
            |k, channels: &[usize], up: &[usize]| fit(threshold(k, channels), set(up), &ready);
        // Enough remain.
        assert_eq!(fit(2, &[0, 1, 2], &[1, 2, 3]), Some(threshold(2, &[1, 2])));
        // One is missing, and channel 2 is ready before channel 1.
        assert_eq!(fit(2, &[0, 3], &[0, 1, 2]), Some(threshold(2, &[0, 2])));
        assert_eq!(fit(3, &[0, 1, 2], &[0, 3]), Some(threshold(2, &[0, 3])));
        assert_eq!(fit(3, &[0, 1, 2], &[]), None);
    }

    proptest! {
        #[test]
        fn no_more_is_given_up_than_must_be(
            wanted in 1..1_u32 << 16, k in 1..=16_usize, up in 0..1_u32 << 16,
        ) {
            let subset = |bits: u32| (0..16).filter(|c| bits >> c & 1 == 1).collect::<Subset>();
            let (wanted, up) = (subset(wanted), subset(up));
            let k = k.min(wanted.len());
            let schedule = Schedule::constant(Threshold::new(k, wanted).unwrap());
            let given = Planned::new(&schedule).next_threshold(up, &[Duration::ZERO; 16]);
            let Some(given) = given else {
                prop_assert!(up.is_empty());
                return Ok(());
            };
            prop_assert!(up.includes(given.channels()));
            prop_assert_eq!(given.k(), k.min(up.len()));
            let kept = up.iter().filter(|c| wanted.contains(*c)).count();
            prop_assert_eq!(given.m(), kept.max(given.k()));
        }
    }
}
