//! Channels in reserve: a channel of a higher priority number is used only while those of lower
//! numbers are too few for mu, or cannot keep the bounds.

use std::collections::BTreeSet;

use model::{ChannelModel, ChannelSubset};

use super::plan::{PlanGoal, TunnelPlan, TunnelPlanError};

/// The priority of channels that are not in reserve.
pub const FIRST_PRIORITY: u8 = 1;

/// The best plan over the channels of `usable` of the lowest priority numbers that are enough, and
/// the channels that are left in reserve. `priorities` are those of `channels`, in their order.
///
/// # Errors
/// As [`PlanGoal::plan`] over all of `usable`.
pub fn plan_by_priority(
    goal: &PlanGoal,
    channels: &[ChannelModel],
    usable: ChannelSubset,
    priorities: &[u8],
) -> Result<(TunnelPlan, ChannelSubset), TunnelPlanError> {
    let priority = |channel: usize| priorities.get(channel).copied().unwrap_or(FIRST_PRIORITY);
    let mut levels: BTreeSet<u8> = usable.iter().map(priority).collect();
    // With the last level, all are used.
    levels.pop_last();
    for level in levels {
        let (used, reserve): (Vec<usize>, Vec<usize>) =
            usable.iter().partition(|channel| priority(*channel) <= level);
        #[expect(clippy::cast_precision_loss, reason = "16 at most")]
        let are_enough = used.len() as f64 >= goal.mu;
        if !are_enough {
            continue;
        }
        let plan = goal.plan(channels, used.into_iter().collect());
        if let Ok(plan) = plan
            && plan.unmet.is_none()
        {
            return Ok((plan, reserve.into_iter().collect()));
        }
    }
    goal.plan(channels, usable).map(|plan| (plan, ChannelSubset::EMPTY))
}

#[cfg(test)]
mod tests {
    use model::{LossProbability, RiskProbability, ScheduleObjective};

    use super::*;
    use crate::protocol::send::bounds::PlanBounds;
    use crate::protocol::send::shared_fates::SharedFates;
    use crate::protocol::send::spare::PlanPreference;

    fn channel(risk: f64, rate: f64) -> ChannelModel {
        ChannelModel::new(RiskProbability(risk), LossProbability(0.01), 5.0, rate).unwrap()
    }

    fn goal(mu: f64, bounds: PlanBounds) -> PlanGoal {
        PlanGoal {
            kappa: 1.0,
            mu,
            objective: ScheduleObjective::Risk,
            second_objective: None,
            floor: 1,
            keeps_order: false,
            prefer: PlanPreference::Redundancy,
            bounds,
            fates: SharedFates::default(),
        }
    }

    /// The channels in reserve, and those that the plan uses.
    fn planned(goal: &PlanGoal, up: &[usize], priorities: &[u8]) -> (Vec<usize>, Vec<usize>) {
        let channels = [channel(0.1, 20.0), channel(0.1, 20.0), channel(0.1, 20.0)];
        let up = up.iter().copied().collect();
        let (plan, reserve) = plan_by_priority(goal, &channels, up, priorities).unwrap();
        let used = (0..3).filter(|channel| plan.schedule.channel_usage(*channel) > 0.0);
        (reserve.iter().collect(), used.collect())
    }

    #[test]
    fn a_backup_is_used_while_others_are_too_few() {
        let goal = goal(2.0, PlanBounds::default());
        assert_eq!(planned(&goal, &[0, 1, 2], &[1, 1, 2]), (vec![2], vec![0, 1]));
        assert_eq!(planned(&goal, &[1, 2], &[1, 1, 2]), (vec![], vec![1, 2]));
        assert_eq!(planned(&goal, &[0, 1], &[1, 1, 2]), (vec![], vec![0, 1]));
        // In the order of their numbers.
        assert_eq!(planned(&goal, &[0, 1, 2], &[1, 3, 2]), (vec![1], vec![0, 2]));
    }

    #[test]
    fn a_backup_is_used_while_others_cannot_keep_the_bounds() {
        let rate =
            |min| goal(1.0, PlanBounds { min_rate_mbit: Some(min), ..PlanBounds::default() });
        assert_eq!(planned(&rate(15.0), &[0, 1, 2], &[1, 2, 3]), (vec![1, 2], vec![0]));
        assert_eq!(planned(&rate(30.0), &[0, 1, 2], &[1, 2, 3]), (vec![2], vec![0, 1]));
        assert_eq!(planned(&rate(50.0), &[0, 1, 2], &[1, 2, 3]), (vec![], vec![0, 1, 2]));
        // Nothing keeps it: then all are used, as without bounds.
        assert_eq!(planned(&rate(90.0), &[0, 1, 2], &[1, 2, 3]), (vec![], vec![0, 1, 2]));
    }
}
