//! What is required of a schedule: kappa and mu, bounds, objectives; checked before any program.

use std::ops::RangeInclusive;

use thiserror::Error;

use crate::channels::ChannelSet;
use crate::schedules::ScheduleAverages;

/// A property that a schedule can be made best in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScheduleObjective {
    /// The least risk Z(p): the most privacy.
    Risk,
    /// The least loss L(p).
    Loss,
    /// The least delay D(p), as the paper has it: the mean over symbols sent.
    Delay,
    /// The least mean delay of the symbols that arrive.
    DeliveredDelay,
    /// The highest rate, in symbols in the unit of time of the channels' rates.
    Rate,
}

/// A bound that a schedule must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScheduleBound {
    /// Risk at most.
    MaxRisk,
    /// Loss at most.
    MaxLoss,
    /// Delay at most, in milliseconds; D(p) as the paper has it.
    MaxDelay,
    /// Mean delay of the symbols that arrive at most, in milliseconds.
    MaxDeliveredDelay,
    /// Rate at least.
    MinRate,
}

impl ScheduleBound {
    /// The property that is bounded, in words.
    pub(crate) fn property(self) -> &'static str {
        match self {
            Self::MaxRisk => "risk",
            Self::MaxLoss => "loss",
            Self::MaxDelay => "delay",
            Self::MaxDeliveredDelay => "delay of what arrives",
            Self::MinRate => "rate",
        }
    }
}

/// What is required of a schedule. [`ScheduleRequirements::default`] requires nothing;
/// [`PlanRequest::new`] checks it.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleRequirements {
    /// The mean threshold, 1 to mu; free if `None`.
    pub kappa: Option<f64>,
    /// The mean multiplicity, kappa to n; free if `None`.
    pub mu: Option<f64>,
    /// Whether the rate must be `R_C(mu)`, the most there is at `mu`, which must be given (IV-D).
    /// With `kth_delay_ms`, the most of the selections that are left.
    pub full_rate: bool,
    /// The least threshold that any symbol may have; 1 is free, floor(kappa) the limited schedule
    /// of IV-E.
    pub min_k: usize,
    /// The least multiplicity that any symbol may have; 1 is free, floor(mu) that of IV-E.
    pub min_m: usize,
    /// The delays, in milliseconds, that the kth fastest channel of a selection may have: a symbol
    /// arrives then, if no share is lost. `None`: any. Without a schedule of such selections, there
    /// is no plan.
    pub kth_delay_ms: Option<RangeInclusive<f64>>,
    /// The highest risk Z(p), 0 to 1.
    pub max_risk: Option<f64>,
    /// The highest loss L(p), 0 to 1.
    pub max_loss: Option<f64>,
    /// The highest delay D(p), in milliseconds.
    pub max_delay_ms: Option<f64>,
    /// The highest mean delay of the symbols that arrive, in milliseconds.
    pub max_delivered_delay_ms: Option<f64>,
    /// The lowest rate, in symbols in the unit of time of the channels' rates.
    pub min_rate: Option<f64>,
    /// What to be best in, the most important first; each next one decides among the schedules
    /// that are best in all before it.
    pub objectives: Vec<ScheduleObjective>,
}

impl Default for ScheduleRequirements {
    fn default() -> Self {
        Self {
            kappa: None,
            mu: None,
            full_rate: false,
            min_k: 1,
            min_m: 1,
            kth_delay_ms: None,
            max_risk: None,
            max_loss: None,
            max_delay_ms: None,
            max_delivered_delay_ms: None,
            min_rate: None,
            objectives: Vec::new(),
        }
    }
}

/// What is wrong with a request, whatever the channels are good for.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum PlanRequestError {
    /// kappa is not a number from 1 on.
    #[error("kappa = {0} is not a number from 1 on")]
    Kappa(f64),
    /// mu is not a number from 1 on.
    #[error("mu = {0} is not a number from 1 on")]
    Mu(f64),
    /// kappa is more than mu.
    #[error("kappa = {kappa} is more than mu = {mu}")]
    KappaAboveMu {
        /// The mean threshold asked for.
        kappa: f64,
        /// The mean multiplicity asked for.
        mu: f64,
    },
    /// kappa or mu is more than there are channels.
    #[error("{name} = {value} is more than the {n} channels there are")]
    TooFewChannels {
        /// Which of them: `kappa` or `mu`.
        name: &'static str,
        /// Its value.
        value: f64,
        /// How many channels there are.
        n: usize,
    },
    /// The highest rate depends on mu.
    #[error("the full rate depends on mu; give mu too")]
    FullRateWithoutMu,
    /// No symbol can have so high a least threshold.
    #[error("a threshold of at least {min_k} for every symbol contradicts kappa or the channels")]
    MinK {
        /// The least threshold asked for.
        min_k: usize,
    },
    /// No symbol can have so high a least multiplicity.
    #[error("at least {min_m} shares for every symbol contradict mu or the channels")]
    MinM {
        /// The least multiplicity asked for.
        min_m: usize,
    },
    /// A bound is not a number, or outside what it bounds.
    #[error("the bound on {} is not within its range: {}", .0.property(), .1)]
    Bound(ScheduleBound, f64),
}

impl ScheduleRequirements {
    /// The schedules of IV-E: no symbol has k below floor(kappa) or m below floor(mu). Without
    /// kappa or mu, nothing.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    pub fn limited(mut self) -> Self {
        self.min_k = self.kappa.map_or(self.min_k, |kappa| kappa.floor() as usize);
        self.min_m = self.mu.map_or(self.min_m, |mu| mu.floor() as usize);
        self
    }
}

/// Requirements that do not contradict each other. Only the channels can be too few for them, or
/// too bad, which [`ChannelSet::plan`] finds.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanRequest(ScheduleRequirements);

impl PlanRequest {
    /// A request for a schedule that meets these requirements.
    ///
    /// # Errors
    /// If one of them is outside its range, or contradicts another.
    pub fn new(requirements: ScheduleRequirements) -> Result<Self, PlanRequestError> {
        let ScheduleRequirements { kappa, mu, full_rate, min_k, min_m, .. } = requirements;
        let is_mean = |mean: &f64| *mean >= 1.0 && mean.is_finite();
        if let Some(kappa) = kappa.filter(|kappa| !is_mean(kappa)) {
            return Err(PlanRequestError::Kappa(kappa));
        }
        if let Some(mu) = mu.filter(|mu| !is_mean(mu)) {
            return Err(PlanRequestError::Mu(mu));
        }
        if let (Some(kappa), Some(mu)) = (kappa, mu)
            && kappa > mu
        {
            return Err(PlanRequestError::KappaAboveMu { kappa, mu });
        }
        if full_rate && mu.is_none() {
            return Err(PlanRequestError::FullRateWithoutMu);
        }
        if min_k < 1 || is_above(min_k, kappa.or(mu)) {
            return Err(PlanRequestError::MinK { min_k });
        }
        if min_m < 1 || is_above(min_m, mu) {
            return Err(PlanRequestError::MinM { min_m });
        }
        let bounds = [
            (ScheduleBound::MaxRisk, requirements.max_risk, 1.0),
            (ScheduleBound::MaxLoss, requirements.max_loss, 1.0),
            (ScheduleBound::MaxDelay, requirements.max_delay_ms, f64::MAX),
            (ScheduleBound::MaxDeliveredDelay, requirements.max_delivered_delay_ms, f64::MAX),
            (ScheduleBound::MinRate, requirements.min_rate, f64::MAX),
        ];
        for (bound, value, most) in bounds {
            if let Some(value) = value.filter(|value| !(0.0..=most).contains(value)) {
                return Err(PlanRequestError::Bound(bound, value));
            }
        }
        Ok(Self(requirements))
    }

    /// The requirements.
    pub fn requirements(&self) -> &ScheduleRequirements {
        &self.0
    }

    /// The same with other objectives.
    #[must_use]
    pub fn with_objectives(&self, objectives: Vec<ScheduleObjective>) -> Self {
        Self(ScheduleRequirements { objectives, ..self.0.clone() })
    }

    /// The same with kappa and mu exact where they are whole numbers, or each other, but for
    /// rounding: a few units in the last place of the largest mean there is.
    pub(crate) fn rounded(&self) -> ScheduleRequirements {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-14;
        let whole = |mean: f64| if near(mean, mean.round()) { mean.round() } else { mean };
        let kappa = self.0.kappa.map(whole);
        let mu = self.0.mu.map(whole);
        let kappa = kappa.map(|kappa| mu.filter(|mu| near(kappa, *mu)).unwrap_or(kappa));
        ScheduleRequirements { kappa, mu, ..self.0.clone() }
    }

    /// The same with `objective` no worse than `value`, which some schedule has, whatever was
    /// required of it before.
    pub(crate) fn bounded(&self, objective: ScheduleObjective, value: f64) -> Self {
        let mut bounded = self.clone();
        let bound = match objective {
            ScheduleObjective::Risk => &mut bounded.0.max_risk,
            ScheduleObjective::Loss => &mut bounded.0.max_loss,
            ScheduleObjective::Delay => &mut bounded.0.max_delay_ms,
            ScheduleObjective::DeliveredDelay => &mut bounded.0.max_delivered_delay_ms,
            ScheduleObjective::Rate => &mut bounded.0.min_rate,
        };
        *bound = Some(value);
        bounded
    }

    /// Checks that there are channels enough.
    #[expect(clippy::cast_precision_loss, reason = "there are few channels")]
    pub(crate) fn check(&self, set: &ChannelSet) -> Result<(), PlanRequestError> {
        let ScheduleRequirements { kappa, mu, min_k, min_m, .. } = self.0;
        let n = set.len();
        for (name, value) in [("mu", mu), ("kappa", kappa)] {
            if let Some(value) = value.filter(|value| *value > n as f64) {
                return Err(PlanRequestError::TooFewChannels { name, value, n });
            }
        }
        if min_k > n {
            return Err(PlanRequestError::MinK { min_k });
        }
        if min_m > n {
            return Err(PlanRequestError::MinM { min_m });
        }
        Ok(())
    }
}

/// Whether a least number for each symbol is above the mean of all.
#[expect(clippy::cast_precision_loss, reason = "what is not exact is far above any mean")]
fn is_above(least: usize, mean: Option<f64>) -> bool {
    mean.is_some_and(|mean| least as f64 > mean)
}

impl ScheduleAverages {
    /// The average that `objective` is about.
    pub fn value_of(&self, objective: ScheduleObjective) -> f64 {
        match objective {
            ScheduleObjective::Risk => self.risk,
            ScheduleObjective::Loss => self.loss,
            ScheduleObjective::Delay => self.delay_ms,
            ScheduleObjective::DeliveredDelay => self.delivered_delay_ms,
            ScheduleObjective::Rate => self.rate,
        }
    }
}
