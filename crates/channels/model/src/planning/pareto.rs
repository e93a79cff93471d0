//! Pareto fronts: how much one property must worsen to improve another.

use super::plan::{OptimalSchedule, PlanError};
use super::request::{PlanRequest, ScheduleObjective};
use crate::channels::ChannelSet;

/// Plans along the Pareto front of two properties under a request, from the plan that is best in
/// the first property to the one that is best in the second. No plan on the front is worse than
/// another in both.
///
/// ```
/// use sunder_model::{
///     ChannelModel, ChannelSet, LossProbability, PlanRequest, RiskProbability, ScheduleObjective,
///     ScheduleRequirements,
/// };
///
/// let set = ChannelSet::new(vec![
///     ChannelModel::new(RiskProbability(0.1), LossProbability(0.01), 5.0, 100.0)?,
///     ChannelModel::new(RiskProbability(0.3), LossProbability(0.001), 20.0, 50.0)?,
/// ])?;
/// let request = PlanRequest::new(ScheduleRequirements::default())?;
/// for plan in set.pareto_front(
///     &request,
///     ScheduleObjective::Risk,
///     ScheduleObjective::Loss,
///     5,
/// )? {
///     let averages = plan?.averages;
///     println!("risk {:.3}, loss {:.5}", averages.risk, averages.loss);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The two ends are lexicographic optima: best in one property and, among those schedules, best in
/// the other. Between them the first property is bounded by evenly spaced values and the second is
/// optimised. This is an iterator because each point is a separate linear program, so a caller can
/// report progress.
#[derive(Debug)]
pub struct ParetoFront<'a> {
    set: &'a ChannelSet,
    request: PlanRequest,
    first: ScheduleObjective,
    second: ScheduleObjective,
    /// The values of the first property at the two ends.
    ends: (f64, f64),
    /// The plans at the ends, until the iterator has returned them.
    best_first: Option<OptimalSchedule>,
    best_second: Option<OptimalSchedule>,
    points: usize,
    next: usize,
}

impl ChannelSet {
    /// The Pareto front of `first` and `second` in `points` plans, at least two. There are fewer if
    /// one plan is best in both. Only the request's bounds, kappa and mu are used, not its
    /// objectives.
    ///
    /// # Errors
    /// If there is no plan: see [`ChannelSet::plan`].
    pub fn pareto_front(
        &self,
        request: &PlanRequest,
        first: ScheduleObjective,
        second: ScheduleObjective,
        points: usize,
    ) -> Result<ParetoFront<'_>, PlanError> {
        let best = |objectives| self.plan(&request.with_objectives(objectives));
        let best_first = best(vec![first, second])?;
        let best_second = best(vec![second, first])?;
        let ends = (best_first.averages.value_of(first), best_second.averages.value_of(first));
        // If the ends are equal, all points between them are too.
        let apart = !is_near(ends.0, ends.1, 1e-8);
        Ok(ParetoFront {
            set: self,
            request: request.clone(),
            first,
            second,
            ends,
            best_first: Some(best_first),
            best_second: Some(best_second).filter(|_| apart),
            points: if apart { points.max(2) } else { 1 },
            next: 0,
        })
    }
}

impl ParetoFront<'_> {
    /// The plan that is best in the second property while the first is bounded by its `place`-th
    /// value.
    #[expect(clippy::cast_precision_loss, reason = "there are few points")]
    fn between(&self, place: usize) -> Result<OptimalSchedule, PlanError> {
        let part = place as f64 / (self.points - 1) as f64;
        let value = self.ends.0 + part * (self.ends.1 - self.ends.0);
        let plan = |value| {
            let request = self.request.bounded(self.first, value);
            self.set.plan(&request.with_objectives(vec![self.second]))
        };
        match plan(value) {
            // If the ends are almost equal, rounding can move a value beyond the optimum.
            Err(PlanError::Infeasible { best, .. }) if is_near(best, value, 1e-6) => plan(best),
            planned => planned,
        }
    }
}

fn is_near(one: f64, other: f64, relative: f64) -> bool {
    (one - other).abs() <= relative * one.abs().max(other.abs())
}

impl Iterator for ParetoFront<'_> {
    type Item = Result<OptimalSchedule, PlanError>;

    fn next(&mut self) -> Option<Self::Item> {
        let place = self.next;
        self.next += 1;
        if place >= self.points {
            None
        } else if place == 0 {
            self.best_first.take().map(Ok)
        } else if place == self.points - 1 {
            self.best_second.take().map(Ok)
        } else {
            Some(self.between(place))
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.points.saturating_sub(self.next);
        (left, Some(left))
    }
}

impl ExactSizeIterator for ParetoFront<'_> {}
