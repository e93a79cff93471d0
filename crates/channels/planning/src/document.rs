//! The answer as JSON.

use model::simulate::{MeanEstimate, SimulationEstimates};
use model::{ChannelQuantity, ScheduleObjective};
use serde::Serialize;

use crate::answer::{BestProperties, ImprovementEffects, PlanAnswer, PlannedSchedule};
use crate::channels::PlanChannels;

/// What `sunder plan --json` prints. Risks and losses are probabilities, delays in ms, rates in
/// Mbit/s; channels are counted from 0.
#[derive(Debug, Serialize)]
pub struct PlanDocument<'a> {
    names: &'a [String],
    /// Of the schedule, or else as requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    kappa: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mu: Option<f64>,
    /// Of the schedule, or else the highest at mu.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<f64>,
    #[serde(flatten)]
    schedule: Option<ScheduleDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    best: Option<BestPropertiesDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    best_at_full_rate: Option<BestPropertiesDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sensitivity: Option<SensitivityDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    simulation: Option<SimulationDocument>,
}

#[derive(Debug, Serialize)]
struct ScheduleDocument {
    risk: f64,
    loss: f64,
    delay: f64,
    delivered_delay: f64,
    /// The price of a GB; absent if no channel has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_per_gb: Option<f64>,
    /// The maximum improvement of the first objective that is still possible; absent without an
    /// objective.
    #[serde(skip_serializing_if = "Option::is_none")]
    gap: Option<f64>,
    schedule: Vec<ScheduleEntryDocument>,
    /// The fraction of each channel's rate that is used.
    utilisation: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct ScheduleEntryDocument {
    k: usize,
    channels: Vec<usize>,
    p: f64,
}

#[derive(Debug, Serialize)]
struct BestPropertiesDocument {
    risk: f64,
    loss: f64,
    delay: f64,
    delivered_delay: f64,
    rate: f64,
    /// The delay with a share on every channel, one of which is enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_over_all: Option<f64>,
}

#[derive(Debug, Serialize)]
struct SensitivityDocument {
    property: &'static str,
    now: f64,
    effects: Vec<ImprovementEffectDocument>,
}

#[derive(Debug, Serialize)]
struct ImprovementEffectDocument {
    channel: usize,
    quantity: &'static str,
    /// `null` if the bounds could not be kept.
    value: Option<f64>,
}

#[derive(Debug, Serialize)]
struct SimulationDocument {
    symbols: u64,
    risk: EstimateDocument,
    loss: EstimateDocument,
    /// `null` if too few symbols arrived.
    delay: Option<EstimateDocument>,
    delivered_delay: Option<EstimateDocument>,
}

#[derive(Debug, Serialize)]
struct EstimateDocument {
    mean: f64,
    low: f64,
    high: f64,
}

impl<'a> PlanDocument<'a> {
    /// The whole document.
    pub fn new(
        channels: &'a PlanChannels,
        answer: &PlanAnswer,
        trial: Option<&SimulationEstimates>,
    ) -> Self {
        let averages = answer.planned.as_ref().map(|planned| planned.averages);
        let overview = answer.overview.as_ref();
        let over_all = overview.and_then(|overview| overview.delay_over_all_ms);
        let at_full_rate = overview.and_then(|overview| overview.best_at_full_rate.as_ref());
        Self {
            names: &channels.names,
            kappa: averages.map(|averages| averages.kappa).or(answer.request.requirements().kappa),
            mu: averages.map(|averages| averages.mu).or(answer.request.requirements().mu),
            rate: averages
                .map(|averages| averages.rate)
                .or_else(|| overview.and_then(|overview| overview.rate)),
            schedule: answer
                .planned
                .as_ref()
                .map(|planned| ScheduleDocument::new(channels, planned)),
            best: overview.map(|overview| BestPropertiesDocument::new(&overview.best, over_all)),
            best_at_full_rate: at_full_rate.map(|best| BestPropertiesDocument::new(best, None)),
            sensitivity: answer.effects.as_ref().map(SensitivityDocument::new),
            simulation: trial.map(SimulationDocument::new),
        }
    }
}

impl ScheduleDocument {
    fn new(channels: &PlanChannels, planned: &PlannedSchedule) -> Self {
        let entries = planned.schedule.entries().iter();
        let schedule = entries.map(|(threshold, p)| ScheduleEntryDocument {
            k: threshold.k(),
            channels: threshold.channels().iter().collect(),
            p: *p,
        });
        Self {
            risk: planned.averages.risk,
            loss: planned.averages.loss,
            delay: planned.averages.delay_ms,
            delivered_delay: planned.averages.delivered_delay_ms,
            cost_per_gb: channels.has_costs().then_some(planned.averages.cost),
            gap: planned.gap,
            schedule: schedule.collect(),
            utilisation: planned.utilisation(&channels.set),
        }
    }
}

impl BestPropertiesDocument {
    fn new(best: &BestProperties, delay_over_all: Option<f64>) -> Self {
        Self {
            risk: best.risk,
            loss: best.loss,
            delay: best.delay_ms,
            delivered_delay: best.delivered_delay_ms,
            rate: best.rate,
            delay_over_all,
        }
    }
}

impl SensitivityDocument {
    fn new(effects: &ImprovementEffects) -> Self {
        let document = effects.each.iter().map(|effect| ImprovementEffectDocument {
            channel: effect.channel,
            quantity: quantity_key(effect.quantity),
            value: effect.value,
        });
        Self {
            property: property_key(effects.objective),
            now: effects.now,
            effects: document.collect(),
        }
    }
}

impl SimulationDocument {
    fn new(estimates: &SimulationEstimates) -> Self {
        Self {
            symbols: estimates.symbols,
            risk: estimates.risk.into(),
            loss: estimates.loss.into(),
            delay: estimates.delay_ms.map(Into::into),
            delivered_delay: estimates.delivered_delay_ms.map(Into::into),
        }
    }
}

impl From<MeanEstimate> for EstimateDocument {
    fn from(estimate: MeanEstimate) -> Self {
        Self { mean: estimate.mean, low: estimate.low, high: estimate.high }
    }
}

fn property_key(objective: ScheduleObjective) -> &'static str {
    match objective {
        ScheduleObjective::Risk => "risk",
        ScheduleObjective::Loss => "loss",
        ScheduleObjective::Delay => "delay",
        ScheduleObjective::DeliveredDelay => "delivered_delay",
        ScheduleObjective::Rate => "rate",
        ScheduleObjective::Cost => "cost_per_gb",
    }
}

/// The name of a quantity, in JSON and in text.
pub fn quantity_key(quantity: ChannelQuantity) -> &'static str {
    match quantity {
        ChannelQuantity::Risk => "risk",
        ChannelQuantity::Loss => "loss",
        ChannelQuantity::Delay => "delay",
        ChannelQuantity::Rate => "rate",
    }
}
