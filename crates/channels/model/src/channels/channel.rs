//! One channel: its risk, loss, delay and rate (III-B).

use std::ops::RangeInclusive;

use thiserror::Error;

/// The rates that a channel can have. The range is wide enough for any unit, and its ends keep the
/// arithmetic exact.
pub const RATES: RangeInclusive<f64> = 1e-6..=1e9;

/// The delays a channel can have, in milliseconds: up to a day.
pub const DELAYS_MS: RangeInclusive<f64> = 0.0..=86_400_000.0;

/// The probability z that an adversary sees a share. The range 0 to 1 is checked where it is used.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct RiskProbability(pub f64);

/// The probability l that a share is lost. The range, 0 to less than 1, is checked where it is
/// used.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct LossProbability(pub f64);

/// The prices that a GB on a channel can have, in any currency.
pub const COSTS: RangeInclusive<f64> = 0.0..=1e6;

/// One channel: the quadruple (z, l, d, r) of III-B, and the price of what it carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChannelModel {
    risk: f64,
    loss: f64,
    delay_ms: f64,
    rate: f64,
    cost: f64,
}

/// Why the values do not define a channel.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum ChannelModelError {
    /// The risk is not a probability.
    #[error("risk z = {0} is not within 0 to 1")]
    Risk(f64),
    /// The loss is not within 0 to less than 1: a channel that loses everything is not allowed.
    #[error("loss l = {0} is not from 0 to below 1; leave out a channel that loses everything")]
    Loss(f64),
    /// The delay is negative, too large or not a number.
    #[error("delay d = {0} ms is not within 0 ms to a day")]
    Delay(f64),
    /// The rate is too small, too large or not a number.
    #[error("rate r = {0} is not within 0.000001 to 1000000000")]
    Rate(f64),
    /// The price is negative, too large or not a number.
    #[error("a price of {0} for a GB is not within 0 to 1000000")]
    Cost(f64),
}

impl ChannelModel {
    /// A channel with these properties: an adversary sees a share with probability `risk` (z, 0 to
    /// 1), a share is lost with probability `loss` (l, 0 to less than 1), a share that is not lost
    /// arrives after `delay_ms` (d, in [`DELAYS_MS`]), and the channel carries `rate` shares in a
    /// unit of time (r, in [`RATES`], any unit).
    ///
    /// # Errors
    /// If one of them is outside its range, or not a number.
    pub fn new(
        risk: RiskProbability,
        loss: LossProbability,
        delay_ms: f64,
        rate: f64,
    ) -> Result<Self, ChannelModelError> {
        let (RiskProbability(risk), LossProbability(loss)) = (risk, loss);
        if !(0.0..=1.0).contains(&risk) {
            return Err(ChannelModelError::Risk(risk));
        }
        if !(0.0..1.0).contains(&loss) {
            return Err(ChannelModelError::Loss(loss));
        }
        if !DELAYS_MS.contains(&delay_ms) {
            return Err(ChannelModelError::Delay(delay_ms));
        }
        if !RATES.contains(&rate) {
            return Err(ChannelModelError::Rate(rate));
        }
        Ok(Self { risk, loss, delay_ms, rate, cost: 0.0 })
    }

    /// The same channel, on which each GB costs this price, in [`COSTS`]. Without a price it is
    /// free.
    ///
    /// # Errors
    /// If the price is outside its range, or not a number.
    pub fn with_cost(self, cost: f64) -> Result<Self, ChannelModelError> {
        if COSTS.contains(&cost) {
            Ok(Self { cost, ..self })
        } else {
            Err(ChannelModelError::Cost(cost))
        }
    }

    /// The same channel with a further, independent cause of its risk and of its loss.
    pub(crate) fn with_cause(self, risk: f64, loss: f64) -> Self {
        let either = |own: f64, other: f64| own + other * (1.0 - own);
        // The largest loss below 1.
        let most = 1.0 - f64::EPSILON / 2.0;
        Self {
            risk: either(self.risk, risk).min(1.0),
            loss: either(self.loss, loss).min(most),
            ..self
        }
    }

    /// The probability that an adversary sees a share sent here: z.
    pub fn risk(&self) -> f64 {
        self.risk
    }

    /// The probability that a share sent here is lost: l.
    pub fn loss(&self) -> f64 {
        self.loss
    }

    /// The delay of a share that is not lost, in milliseconds: d.
    pub fn delay_ms(&self) -> f64 {
        self.delay_ms
    }

    /// The largest number of shares that this channel carries in a unit of time: r.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The price of a GB on this channel.
    pub fn cost(&self) -> f64 {
        self.cost
    }
}
