//! The requirements of a schedule: kappa, mu, bounds and objectives. They are checked before any
//! program is solved.

use std::ops::RangeInclusive;

use thiserror::Error;

use crate::channels::ChannelSet;
use crate::schedules::ScheduleAverages;

/// A property that a schedule can optimise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScheduleObjective {
    /// The lowest risk Z(p): the most privacy.
    Risk,
    /// The lowest loss L(p).
    Loss,
    /// The lowest delay D(p), as the paper defines it: the mean over symbols sent.
    Delay,
    /// The lowest mean delay of the symbols that arrive.
    DeliveredDelay,
    /// The highest rate, in symbols per unit of time of the channels' rates.
    Rate,
    /// The lowest price of a GB.
    Cost,
}

/// A bound that a schedule must meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScheduleBound {
    /// An upper bound of the risk.
    MaxRisk,
    /// An upper bound of the loss.
    MaxLoss,
    /// An upper bound of the delay D(p) as the paper defines it, in milliseconds.
    MaxDelay,
    /// An upper bound of the mean delay of the symbols that arrive, in milliseconds.
    MaxDeliveredDelay,
    /// A lower bound of the rate.
    MinRate,
    /// An upper bound of the price of a GB.
    MaxCost,
}

impl ScheduleBound {
    /// The name of the bounded property.
    pub(crate) fn property(self) -> &'static str {
        match self {
            Self::MaxRisk => "risk",
            Self::MaxLoss => "loss",
            Self::MaxDelay => "delay",
            Self::MaxDeliveredDelay => "delay of the symbols that arrive",
            Self::MinRate => "rate",
            Self::MaxCost => "price of a GB",
        }
    }
}

/// The requirements of a schedule. [`ScheduleRequirements::default`] requires nothing;
/// [`PlanRequest::new`] validates them.
#[derive(Clone, Debug, PartialEq)]
pub struct ScheduleRequirements {
    /// The mean threshold, 1 to mu; free if `None`.
    pub kappa: Option<f64>,
    /// The mean multiplicity, kappa to n; free if `None`.
    pub mu: Option<f64>,
    /// Whether the rate must be `R_C(mu)`, the highest rate for `mu`, which must then be given
    /// (IV-D). With `kth_delay_ms`, it must be the highest rate that the remaining selections
    /// allow.
    pub full_rate: bool,
    /// The smallest threshold of any symbol. 1 does not restrict it; floor(kappa) is the limited
    /// schedule of IV-E.
    pub min_k: usize,
    /// The smallest multiplicity of any symbol. 1 does not restrict it; floor(mu) is that of IV-E.
    pub min_m: usize,
    /// The allowed delays of the kth fastest channel of a selection, in milliseconds: without
    /// losses, a symbol arrives after that delay. `None` allows any. If such selections make no
    /// schedule, there is no plan.
    pub kth_delay_ms: Option<RangeInclusive<f64>>,
    /// The highest risk Z(p), 0 to 1.
    pub max_risk: Option<f64>,
    /// The highest loss L(p), 0 to 1.
    pub max_loss: Option<f64>,
    /// The highest delay D(p), in milliseconds.
    pub max_delay_ms: Option<f64>,
    /// The highest mean delay of the symbols that arrive, in milliseconds.
    pub max_delivered_delay_ms: Option<f64>,
    /// The lowest rate, in symbols per unit of time of the channels' rates.
    pub min_rate: Option<f64>,
    /// The highest price of a GB of symbols.
    pub max_cost: Option<f64>,
    /// The objectives, most important first. Each one selects among the schedules that are best in
    /// all before it.
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
            max_cost: None,
            objectives: Vec::new(),
        }
    }
}

/// What is wrong with a request, independent of the channels' properties.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum PlanRequestError {
    /// kappa is not a number of at least 1.
    #[error("kappa = {0} is not a number of at least 1")]
    Kappa(f64),
    /// mu is not a number of at least 1.
    #[error("mu = {0} is not a number of at least 1")]
    Mu(f64),
    /// kappa is more than mu.
    #[error("kappa = {kappa} is more than mu = {mu}")]
    KappaAboveMu {
        /// The requested mean threshold.
        kappa: f64,
        /// The requested mean multiplicity.
        mu: f64,
    },
    /// kappa or mu is larger than the number of channels.
    #[error("{name} = {value} is more than the number of channels, {n}")]
    TooFewChannels {
        /// Which of them: `kappa` or `mu`.
        name: &'static str,
        /// Its value.
        value: f64,
        /// The number of channels.
        n: usize,
    },
    /// The full rate is requested without mu, on which it depends.
    #[error("the full rate depends on mu; give mu too")]
    FullRateWithoutMu,
    /// `min_k` is higher than any symbol's threshold can be.
    #[error("a threshold of at least {min_k} for every symbol contradicts kappa or the channels")]
    MinK {
        /// The requested smallest threshold.
        min_k: usize,
    },
    /// `min_m` is higher than any symbol's multiplicity can be.
    #[error("at least {min_m} shares for every symbol contradict mu or the channels")]
    MinM {
        /// The requested smallest multiplicity.
        min_m: usize,
    },
    /// A bound is not a number, or is outside the range of its property.
    #[error("the bound on {} is not within its range: {}", .0.property(), .1)]
    Bound(ScheduleBound, f64),
}

impl ScheduleRequirements {
    /// Restricts the request to the schedules of IV-E: no symbol has k below floor(kappa) or m
    /// below floor(mu). Without kappa or mu, it changes nothing.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    pub fn limited(mut self) -> Self {
        self.min_k = self.kappa.map_or(self.min_k, |kappa| kappa.floor() as usize);
        self.min_m = self.mu.map_or(self.min_m, |mu| mu.floor() as usize);
        self
    }
}

/// Requirements that do not contradict each other. [`ChannelSet::plan`] reports if the channels
/// cannot meet them.
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
            (ScheduleBound::MaxCost, requirements.max_cost, f64::MAX),
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

    /// The same, but kappa and mu are rounded to whole numbers, or to each other, if they differ
    /// only by rounding: a few units in the last place of the largest possible mean.
    pub(crate) fn rounded(&self) -> ScheduleRequirements {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-14;
        let whole = |mean: f64| if near(mean, mean.round()) { mean.round() } else { mean };
        let kappa = self.0.kappa.map(whole);
        let mu = self.0.mu.map(whole);
        let kappa = kappa.map(|kappa| mu.filter(|mu| near(kappa, *mu)).unwrap_or(kappa));
        ScheduleRequirements { kappa, mu, ..self.0.clone() }
    }

    /// The same, but `objective` must be no worse than `value`, which some schedule reaches,
    /// whatever was required of it before.
    pub(crate) fn bounded(&self, objective: ScheduleObjective, value: f64) -> Self {
        let mut bounded = self.clone();
        let bound = match objective {
            ScheduleObjective::Risk => &mut bounded.0.max_risk,
            ScheduleObjective::Loss => &mut bounded.0.max_loss,
            ScheduleObjective::Delay => &mut bounded.0.max_delay_ms,
            ScheduleObjective::DeliveredDelay => &mut bounded.0.max_delivered_delay_ms,
            ScheduleObjective::Rate => &mut bounded.0.min_rate,
            ScheduleObjective::Cost => &mut bounded.0.max_cost,
        };
        *bound = Some(value);
        bounded
    }

    /// Checks that there are enough channels.
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

/// Whether a minimum for each symbol exceeds the mean of all symbols.
#[expect(clippy::cast_precision_loss, reason = "what is not exact is far above any mean")]
fn is_above(least: usize, mean: Option<f64>) -> bool {
    mean.is_some_and(|mean| least as f64 > mean)
}

impl ScheduleAverages {
    /// The average that `objective` optimises.
    pub fn value_of(&self, objective: ScheduleObjective) -> f64 {
        match objective {
            ScheduleObjective::Risk => self.risk,
            ScheduleObjective::Loss => self.loss,
            ScheduleObjective::Delay => self.delay_ms,
            ScheduleObjective::DeliveredDelay => self.delivered_delay_ms,
            ScheduleObjective::Rate => self.rate,
            ScheduleObjective::Cost => self.cost,
        }
    }
}
