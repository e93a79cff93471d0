//! Computes the answer: a schedule, the best value of each property, or both.

use console::CommandFailure;
use console::CommandProgress;
use model::{
    ChannelQuantity, ChannelSensitivity, ChannelSet, PlanError, PlanRequest, ScheduleAverages,
    ScheduleObjective, ScheduleRequirements, ShareSchedule, ShareSelection,
};

use super::refusal::refuse;

/// The answer to a request.
pub(super) struct PlanAnswer {
    pub(super) request: PlanRequest,
    /// A schedule, if one was requested or kappa and mu are given.
    pub(super) planned: Option<PlannedSchedule>,
    /// The best value of each property, if there is no objective.
    pub(super) overview: Option<PropertyOverview>,
    /// The effects of better channels, if requested.
    pub(super) effects: Option<ImprovementEffects>,
}

/// A schedule and its properties.
pub(super) struct PlannedSchedule {
    pub(super) schedule: ShareSchedule,
    pub(super) averages: ScheduleAverages,
    /// The maximum improvement of the first objective that is still possible, if there is one.
    pub(super) gap: Option<f64>,
}

/// The best value of each property.
pub(super) struct PropertyOverview {
    /// The highest rate at mu, if mu is given.
    pub(super) rate: Option<f64>,
    /// Under the request's other conditions.
    pub(super) best: BestProperties,
    /// The same at the highest rate at mu, if mu is given.
    pub(super) best_at_full_rate: Option<BestProperties>,
    /// The delay with a share on every channel, one of which is enough, if kappa and mu are free.
    pub(super) delay_over_all_ms: Option<f64>,
}

/// The best values of the properties, each optimized on its own.
#[derive(Clone, Copy)]
pub(super) struct BestProperties {
    pub(super) risk: f64,
    pub(super) loss: f64,
    pub(super) delay_ms: f64,
    pub(super) delivered_delay_ms: f64,
    pub(super) rate: f64,
}

/// The effects on a property of improving one quantity of one channel by a tenth.
pub(super) struct ImprovementEffects {
    pub(super) objective: ScheduleObjective,
    /// The property of the channels as they are.
    pub(super) now: f64,
    /// In the channels' order.
    pub(super) each: Vec<ImprovementEffect>,
}

/// The effect of one quantity of one channel.
pub(super) struct ImprovementEffect {
    pub(super) channel: usize,
    pub(super) quantity: ChannelQuantity,
    /// The property's value; `None` if the bounds could not be kept.
    pub(super) value: Option<f64>,
}

impl PlanAnswer {
    /// Computes the answer.
    ///
    /// # Errors
    /// If the request is wrong, or no schedule keeps its bounds.
    pub(super) fn find(set: &ChannelSet, request: &PlanRequest) -> Result<Self, CommandFailure> {
        let (planned, overview) = if request.requirements().objectives.is_empty() {
            // The overview first, because it checks the request.
            let overview = PropertyOverview::find(set, request).map_err(refuse)?;
            (PlannedSchedule::at_best_rate(set, request), Some(overview))
        } else {
            (Some(PlannedSchedule::best(set, request).map_err(refuse)?), None)
        };
        Ok(Self { request: request.clone(), planned, overview, effects: None })
    }

    /// Adds the effects of better channels.
    ///
    /// # Errors
    /// If the solver fails.
    pub(super) fn with_effects(self, set: &ChannelSet) -> Result<Self, CommandFailure> {
        let effects = ImprovementEffects::find(set, &self.request).map_err(refuse)?;
        Ok(Self { effects: Some(effects), ..self })
    }
}

impl PlannedSchedule {
    fn best(set: &ChannelSet, request: &PlanRequest) -> Result<Self, PlanError> {
        let plan = set.plan(request)?;
        let gap = plan.certificates.first().map(|certificate| certificate.gap);
        Ok(Self { schedule: plan.schedule, averages: plan.averages, gap })
    }

    /// A schedule with the highest rate at kappa and mu, if both are given.
    fn at_best_rate(set: &ChannelSet, request: &PlanRequest) -> Option<Self> {
        let schedule = set.limited_schedule_at_best_rate(
            request.requirements().kappa?,
            request.requirements().mu?,
        )?;
        Some(Self { averages: schedule.averages(set), schedule, gap: None })
    }

    /// The fraction of each channel's rate that is used, in the channels' order.
    pub(super) fn utilisation(&self, set: &ChannelSet) -> Vec<f64> {
        let used = |(i, channel): (usize, &model::ChannelModel)| {
            (self.schedule.channel_usage(i) * self.averages.rate / channel.rate()).min(1.0)
        };
        set.channels().iter().enumerate().map(used).collect()
    }
}

impl PropertyOverview {
    fn find(set: &ChannelSet, request: &PlanRequest) -> Result<Self, PlanError> {
        let requirements = request.requirements();
        let free = requirements.kappa.is_none() && requirements.mu.is_none();
        let full_rate = requirements
            .mu
            .map(|_| ScheduleRequirements { full_rate: true, ..requirements.clone() });
        let full_rate = full_rate.map(PlanRequest::new).transpose()?;
        let programs = BestProperties::PROGRAMS * if full_rate.is_some() { 2 } else { 1 };
        let progress = CommandProgress::steps(programs);
        Ok(Self {
            best: BestProperties::find(set, request, &progress)?,
            best_at_full_rate: full_rate
                .map(|request| BestProperties::find(set, &request, &progress))
                .transpose()?,
            rate: requirements.mu.and_then(|mu| set.best_rate(mu)),
            delay_over_all_ms: free.then(|| first_of_all(set)).flatten(),
        })
    }
}

/// The delay with a share on every channel, one of which is enough: d(1, C).
fn first_of_all(set: &ChannelSet) -> Option<f64> {
    let threshold = ShareSelection::new(1, set.all()).ok()?;
    Some(set.subset_delay_ms(threshold))
}

impl BestProperties {
    /// The number of linear programs to solve.
    const PROGRAMS: u64 = 5;

    fn find(
        set: &ChannelSet,
        request: &PlanRequest,
        progress: &CommandProgress,
    ) -> Result<Self, PlanError> {
        let best = |objective| {
            let request = request.with_objectives(vec![objective]);
            let plan = set.plan(&request)?;
            progress.advance(1);
            Ok::<f64, PlanError>(plan.averages.value_of(objective))
        };
        Ok(Self {
            risk: best(ScheduleObjective::Risk)?,
            loss: best(ScheduleObjective::Loss)?,
            delay_ms: best(ScheduleObjective::Delay)?,
            delivered_delay_ms: best(ScheduleObjective::DeliveredDelay)?,
            rate: best(ScheduleObjective::Rate)?,
        })
    }
}

impl ImprovementEffects {
    fn find(set: &ChannelSet, request: &PlanRequest) -> Result<Self, PlanError> {
        let objective =
            request.requirements().objectives.first().copied().unwrap_or(ScheduleObjective::Rate);
        let now = request.with_objectives(vec![objective]);
        let now = set.plan(&now)?.averages.value_of(objective);
        let sensitivities = set.sensitivities(request);
        let progress = CommandProgress::steps(sensitivities.len() as u64);
        let mut each = Vec::new();
        for ChannelSensitivity { channel, quantity, value } in sensitivities {
            let value = match value {
                Ok(value) => Some(value),
                Err(PlanError::Infeasible { .. }) => None,
                Err(error) => return Err(error),
            };
            each.push(ImprovementEffect { channel, quantity, value });
            progress.advance(1);
        }
        Ok(Self { objective, now, each })
    }
}
