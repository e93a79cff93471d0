//! One channel: its risk, loss, delay and rate (III-B).

use std::ops::RangeInclusive;

use thiserror::Error;

/// The rates a channel can have. Wide enough for any unit; the ends keep the arithmetic exact.
pub const RATES: RangeInclusive<f64> = 1e-6..=1e9;

/// The delays a channel can have, in milliseconds: up to a day.
pub const DELAYS_MS: RangeInclusive<f64> = 0.0..=86_400_000.0;

/// The probability z that an adversary sees a share: 0 to 1, which is checked where it is used.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct RiskProbability(pub f64);

/// The probability l that a share is lost: 0 to less than 1, which is checked where it is used.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct LossProbability(pub f64);

/// One channel: the quadruple (z, l, d, r) of III-B.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChannelModel {
    risk: f64,
    loss: f64,
    delay_ms: f64,
    rate: f64,
}

/// Why there can be no such channel.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum ChannelModelError {
    /// A risk is a probability.
    #[error("risk z = {0} is not within 0 to 1")]
    Risk(f64),
    /// A channel that loses everything is none.
    #[error("loss l = {0} is not from 0 to below 1; leave out a channel that loses everything")]
    Loss(f64),
    /// A delay is not negative, and finite.
    #[error("delay d = {0} ms is not within 0 ms to a day")]
    Delay(f64),
    /// A channel that carries nothing is none.
    #[error("rate r = {0} is not within 0.000001 to 1000000000")]
    Rate(f64),
}

impl ChannelModel {
    /// A channel on which an adversary sees a share with probability `risk` (z, 0 to 1), which
    /// loses a share with probability `loss` (l, 0 to less than 1), delivers it after `delay_ms`
    /// (d, in [`DELAYS_MS`]) if it is not lost, and carries `rate` shares in a unit of time (r, in
    /// [`RATES`], any unit).
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
        Ok(Self { risk, loss, delay_ms, rate })
    }

    /// The probability that an adversary sees a share sent here: z.
    pub fn risk(&self) -> f64 {
        self.risk
    }

    /// The probability that a share sent here is lost: l.
    pub fn loss(&self) -> f64 {
        self.loss
    }

    /// The time a share takes if it is not lost, in milliseconds: d.
    pub fn delay_ms(&self) -> f64 {
        self.delay_ms
    }

    /// The most shares this channel carries in a unit of time: r.
    pub fn rate(&self) -> f64 {
        self.rate
    }
}
