//! The order in which the trials run.

use std::collections::HashMap;

use serde::Deserialize;

use super::SweepPoint;
use super::shard::TrialShard;

/// The order of an experiment's points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PointOrder {
    /// As they are swept. Each repetition covers all points before the next one begins.
    #[default]
    Swept,
    /// Groups of points that differ in the last swept key only are in random order. Each group is
    /// complete, with all of its repetitions, before the next one begins.
    Random,
}

/// The trials in the order of their first attempts.
#[derive(Debug)]
pub(crate) struct TrialSchedule {
    /// The repetition and the index of the point, both from 0.
    trials: Vec<(usize, usize)>,
    /// The numbers of trials after which a group ends: the invalid trials of the group then run
    /// again.
    group_ends: Vec<usize>,
}

impl TrialSchedule {
    pub(crate) fn new(
        order: PointOrder,
        points: &[SweepPoint],
        repetitions: usize,
        seed: u64,
    ) -> Self {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (i, point) in points.iter().enumerate() {
            match groups.last_mut() {
                Some(group)
                    if order == PointOrder::Swept || are_one_group(&points[group[0]], point) =>
                {
                    group.push(i);
                }
                _ => groups.push(vec![i]),
            }
        }
        fastrand::Rng::with_seed(seed).shuffle(&mut groups);
        let (mut trials, mut group_ends) = (Vec::new(), Vec::new());
        for group in groups {
            for repetition in 0..repetitions {
                trials.extend(group.iter().map(|point| (repetition, *point)));
            }
            group_ends.push(trials.len());
        }
        Self { trials, group_ends }
    }

    /// The trials of a shard. `groups` has a number for each point: in each repetition, the points
    /// with the same number are in one shard.
    pub(crate) fn of_shard(&self, shard: TrialShard, groups: &[usize]) -> Self {
        let mut units = HashMap::new();
        let (mut trials, mut group_ends) = (Vec::new(), Vec::new());
        let mut ends = self.group_ends.iter().peekable();
        for (number, (repetition, point)) in self.trials.iter().enumerate() {
            let next = units.len();
            let unit = *units.entry((*repetition, groups[*point])).or_insert(next);
            if shard.has(unit) {
                trials.push((*repetition, *point));
            }
            if ends.next_if(|end| **end == number + 1).is_some() {
                group_ends.push(trials.len());
            }
        }
        // A group without a trial of this shard ends nothing.
        group_ends.dedup();
        Self { trials, group_ends }
    }

    /// The number of trials.
    pub(crate) fn len(&self) -> usize {
        self.trials.len()
    }

    /// The repetition and the index of the point of a trial, all from 0.
    pub(crate) fn trial(&self, number: usize) -> (usize, usize) {
        self.trials[number]
    }

    /// After `done` trials, the trials of a completed group, whose invalid ones run again; `None`
    /// if another trial comes first.
    pub(crate) fn completed(&self, done: usize) -> Option<std::ops::Range<usize>> {
        let end = self.group_ends.binary_search(&done).ok()?;
        let start = end.checked_sub(1).map_or(0, |before| self.group_ends[before]);
        Some(start..done)
    }
}

/// Whether two points differ in the last swept key only.
fn are_one_group(one: &SweepPoint, other: &SweepPoint) -> bool {
    let (one, other) = (one.swept(), other.swept());
    let shared = one.len().saturating_sub(1);
    one.iter().take(shared).eq(other.iter().take(shared))
}
