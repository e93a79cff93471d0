//! Computes the answer: a schedule, the best value of each property, or both.

use std::cell::Cell;

use model::{
    ChannelQuantity, ChannelSensitivity, ChannelSet, PlanError, PlanRequest, ScheduleAverages,
    ScheduleObjective, ScheduleRequirements, ShareSchedule, ShareSelection,
};

/// Is told how many linear programs are solved, and how many there are.
pub type PlanProgress<'a> = &'a dyn Fn(usize, usize);

/// The answer to a request.
#[derive(Clone, Debug)]
pub struct PlanAnswer {
    /// The request.
    pub request: PlanRequest,
    /// A schedule, if one was requested or kappa and mu are given.
    pub planned: Option<PlannedSchedule>,
    /// The best value of each property, if there is no objective.
    pub overview: Option<PropertyOverview>,
    /// The effects of better channels, if requested.
    pub effects: Option<ImprovementEffects>,
}

/// A schedule and its properties.
#[derive(Clone, Debug)]
pub struct PlannedSchedule {
    /// The schedule.
    pub schedule: ShareSchedule,
    /// Its properties.
    pub averages: ScheduleAverages,
    /// The maximum improvement of the first objective that is still possible, if there is one.
    pub gap: Option<f64>,
}

/// The best value of each property.
#[derive(Clone, Debug)]
pub struct PropertyOverview {
    /// The highest rate at mu, if mu is given.
    pub rate: Option<f64>,
    /// Under the request's other conditions.
    pub best: BestProperties,
    /// The same at the highest rate at mu, if mu is given.
    pub best_at_full_rate: Option<BestProperties>,
    /// The delay with a share on every channel, one of which is enough, if kappa and mu are free.
    pub delay_over_all_ms: Option<f64>,
}

/// The best values of the properties, each optimized on its own.
#[derive(Clone, Copy, Debug)]
pub struct BestProperties {
    /// The probability that a symbol is read.
    pub risk: f64,
    /// The probability that a symbol is lost.
    pub loss: f64,
    /// The mean delay of the symbols sent, in ms.
    pub delay_ms: f64,
    /// The mean delay of the symbols that arrive, in ms.
    pub delivered_delay_ms: f64,
    /// The rate, in Mbit/s.
    pub rate: f64,
}

/// The effects on a property of improving one quantity of one channel by a tenth.
#[derive(Clone, Debug)]
pub struct ImprovementEffects {
    /// The property.
    pub objective: ScheduleObjective,
    /// The property of the channels as they are.
    pub now: f64,
    /// In the channels' order.
    pub each: Vec<ImprovementEffect>,
}

/// The effect of one quantity of one channel.
#[derive(Clone, Debug)]
pub struct ImprovementEffect {
    /// The channel, counted from 0.
    pub channel: usize,
    /// Its quantity.
    pub quantity: ChannelQuantity,
    /// The property's value; `None` if the bounds could not be kept.
    pub value: Option<f64>,
}

impl PlanAnswer {
    /// Computes the answer. Calls `progress` after each linear program, if there are several: with
    /// how many are solved, and how many there are.
    ///
    /// # Errors
    /// If the request is wrong, or no schedule keeps its bounds.
    pub fn find(
        set: &ChannelSet,
        request: &PlanRequest,
        progress: PlanProgress<'_>,
    ) -> Result<Self, PlanError> {
        let (planned, overview) = if request.requirements().objectives.is_empty() {
            // The overview first, because it checks the request.
            let overview = PropertyOverview::find(set, request, progress)?;
            (PlannedSchedule::at_best_rate(set, request), Some(overview))
        } else {
            (Some(PlannedSchedule::best(set, request)?), None)
        };
        Ok(Self { request: request.clone(), planned, overview, effects: None })
    }

    /// Adds the effects of better channels. Calls `progress` as [`find`](Self::find) does.
    ///
    /// # Errors
    /// If the solver fails.
    pub fn with_effects(
        self,
        set: &ChannelSet,
        progress: PlanProgress<'_>,
    ) -> Result<Self, PlanError> {
        let effects = ImprovementEffects::find(set, &self.request, progress)?;
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
    pub fn utilisation(&self, set: &ChannelSet) -> Vec<f64> {
        let used = |(i, channel): (usize, &model::ChannelModel)| {
            (self.schedule.channel_usage(i) * self.averages.rate / channel.rate()).min(1.0)
        };
        set.channels().iter().enumerate().map(used).collect()
    }
}

impl PropertyOverview {
    fn find(
        set: &ChannelSet,
        request: &PlanRequest,
        progress: PlanProgress<'_>,
    ) -> Result<Self, PlanError> {
        let requirements = request.requirements();
        let free = requirements.kappa.is_none() && requirements.mu.is_none();
        let full_rate = requirements
            .mu
            .map(|_| ScheduleRequirements { full_rate: true, ..requirements.clone() });
        let full_rate = full_rate.map(PlanRequest::new).transpose()?;
        let programs = BestProperties::PROGRAMS * if full_rate.is_some() { 2 } else { 1 };
        let solved = Cell::new(0);
        let solve = || {
            solved.set(solved.get() + 1);
            progress(solved.get(), programs);
        };
        Ok(Self {
            best: BestProperties::find(set, request, &solve)?,
            best_at_full_rate: full_rate
                .map(|request| BestProperties::find(set, &request, &solve))
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
    const PROGRAMS: usize = 5;

    fn find(set: &ChannelSet, request: &PlanRequest, solved: &dyn Fn()) -> Result<Self, PlanError> {
        let best = |objective| {
            let request = request.with_objectives(vec![objective]);
            let plan = set.plan(&request)?;
            solved();
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
    fn find(
        set: &ChannelSet,
        request: &PlanRequest,
        progress: PlanProgress<'_>,
    ) -> Result<Self, PlanError> {
        let objective =
            request.requirements().objectives.first().copied().unwrap_or(ScheduleObjective::Rate);
        let now = request.with_objectives(vec![objective]);
        let now = set.plan(&now)?.averages.value_of(objective);
        let sensitivities = set.sensitivities(request);
        let all = sensitivities.len();
        let mut each = Vec::new();
        for ChannelSensitivity { channel, quantity, value } in sensitivities {
            let value = match value {
                Ok(value) => Some(value),
                Err(PlanError::Infeasible { .. }) => None,
                Err(error) => return Err(error),
            };
            each.push(ImprovementEffect { channel, quantity, value });
            progress(each.len(), all);
        }
        Ok(Self { objective, now, each })
    }
}
