//! What a schedule is needed for: kappa and mu, bounds, objectives; checked before any program.

use thiserror::Error;

use crate::channels::ChannelSet;
use crate::schedules::Averages;

/// A property that a schedule can be made best in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Objective {
    /// The least risk Z(p): the most privacy.
    Risk,
    /// The least loss L(p).
    Loss,
    /// The least delay D(p), as the paper has it: the mean over symbols sent.
    Delay,
    /// The least mean delay of the symbols that arrive.
    DeliveredDelay,
    /// The highest rate.
    Rate,
}

/// A bound that a schedule must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
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

/// What a schedule is needed for. [`PlanRequest::default`] asks for nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanRequest {
    /// The mean threshold, 1 to mu; free if `None`.
    pub kappa: Option<f64>,
    /// The mean multiplicity, kappa to n; free if `None`.
    pub mu: Option<f64>,
    /// Whether the rate must be `R_C(mu)`, the most there is at `mu`, which must be given (IV-D).
    pub full_rate: bool,
    /// The least threshold that any symbol may have; 1 is free, floor(kappa) the limited schedule
    /// of IV-E.
    pub min_k: usize,
    /// The least multiplicity that any symbol may have; 1 is free, floor(mu) that of IV-E.
    pub min_m: usize,
    /// The highest risk.
    pub max_risk: Option<f64>,
    /// The highest loss.
    pub max_loss: Option<f64>,
    /// The highest delay D(p), in milliseconds.
    pub max_delay_ms: Option<f64>,
    /// The highest mean delay of the symbols that arrive, in milliseconds.
    pub max_delivered_delay_ms: Option<f64>,
    /// The lowest rate.
    pub min_rate: Option<f64>,
    /// What to be best in, the most important first; each next one decides among the schedules
    /// that are best in all before it.
    pub objectives: Vec<Objective>,
}

impl Default for PlanRequest {
    fn default() -> Self {
        Self {
            kappa: None,
            mu: None,
            full_rate: false,
            min_k: 1,
            min_m: 1,
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
    #[error("the bound on {0} is not within its range: {1}")]
    Bound(&'static str, f64),
}

impl PlanRequest {
    /// The schedules of IV-E: no symbol has k below floor(kappa) or m below floor(mu). Without
    /// kappa or mu, nothing.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    pub fn limited(mut self) -> Self {
        self.min_k = self.kappa.map_or(self.min_k, |kappa| kappa.floor() as usize);
        self.min_m = self.mu.map_or(self.min_m, |mu| mu.floor() as usize);
        self
    }

    /// The same with kappa and mu exact where they are whole numbers, or each other, but for
    /// rounding: a few units in the last place of the largest mean there is.
    pub(crate) fn rounded(&self) -> Self {
        let near = |a: f64, b: f64| (a - b).abs() < 1e-14;
        let whole = |mean: f64| if near(mean, mean.round()) { mean.round() } else { mean };
        let kappa = self.kappa.map(whole);
        let mu = self.mu.map(whole);
        let kappa = kappa.map(|kappa| mu.filter(|mu| near(kappa, *mu)).unwrap_or(kappa));
        Self { kappa, mu, ..self.clone() }
    }

    /// Asks for `objective` to be no worse than `value`, whatever was asked for it before.
    pub(crate) fn bind(&mut self, objective: Objective, value: f64) {
        match objective {
            Objective::Risk => self.max_risk = Some(value),
            Objective::Loss => self.max_loss = Some(value),
            Objective::Delay => self.max_delay_ms = Some(value),
            Objective::DeliveredDelay => self.max_delivered_delay_ms = Some(value),
            Objective::Rate => self.min_rate = Some(value),
        }
    }

    /// Checks what can be checked without a program.
    #[expect(clippy::cast_precision_loss, reason = "k, m and n are small")]
    pub(crate) fn check(&self, set: &ChannelSet) -> Result<(), PlanRequestError> {
        let n = set.len();
        if let Some(kappa) = self.kappa.filter(|kappa| !(*kappa >= 1.0 && kappa.is_finite())) {
            return Err(PlanRequestError::Kappa(kappa));
        }
        if let Some(mu) = self.mu.filter(|mu| !(*mu >= 1.0 && mu.is_finite())) {
            return Err(PlanRequestError::Mu(mu));
        }
        if let (Some(kappa), Some(mu)) = (self.kappa, self.mu)
            && kappa > mu
        {
            return Err(PlanRequestError::KappaAboveMu { kappa, mu });
        }
        for (name, value) in [("mu", self.mu), ("kappa", self.kappa)] {
            if let Some(value) = value.filter(|value| *value > n as f64) {
                return Err(PlanRequestError::TooFewChannels { name, value, n });
            }
        }
        if self.full_rate && self.mu.is_none() {
            return Err(PlanRequestError::FullRateWithoutMu);
        }
        let most_k = self.kappa.or(self.mu).unwrap_or(n as f64);
        if self.min_k < 1 || self.min_k as f64 > most_k {
            return Err(PlanRequestError::MinK { min_k: self.min_k });
        }
        if self.min_m < 1 || self.min_m as f64 > self.mu.unwrap_or(n as f64) {
            return Err(PlanRequestError::MinM { min_m: self.min_m });
        }
        let bounds = [
            ("risk", self.max_risk, 1.0),
            ("loss", self.max_loss, 1.0),
            ("delay", self.max_delay_ms, f64::MAX),
            ("delay of what arrives", self.max_delivered_delay_ms, f64::MAX),
            ("rate", self.min_rate, f64::MAX),
        ];
        for (name, value, most) in bounds {
            if let Some(value) = value.filter(|value| !(0.0..=most).contains(value)) {
                return Err(PlanRequestError::Bound(name, value));
            }
        }
        Ok(())
    }
}

impl Averages {
    /// The average that `objective` is about.
    pub fn of(&self, objective: Objective) -> f64 {
        match objective {
            Objective::Risk => self.risk,
            Objective::Loss => self.loss,
            Objective::Delay => self.delay_ms,
            Objective::DeliveredDelay => self.delivered_delay_ms,
            Objective::Rate => self.rate,
        }
    }
}
