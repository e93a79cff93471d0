//! What the channel model says of a tunnel over a trial's links (000, IV).

use model::{Channel, ChannelSet, Need, Objective, Plan};

use super::predict::DATAGRAM_HEADERS;
use super::sweep::Combination;
use crate::trial::{LinkPlan, Trial};

/// The payload of datagrams that a tunnel over all links carries at most, at the swept or set `mu`:
/// `R_C`, where the channels' rates are what datagrams get of each alone, as in 000, VI-A.
pub(super) fn rate(trial: &Trial, combination: &Combination) -> Option<f64> {
    channels(trial.links.values())?.best_rate(combination.number("mu")?)
}

/// The least part of its packets that is lost at full rate (IV-D).
pub(super) fn loss(trial: &Trial, combination: &Combination) -> Option<f64> {
    Some(plan(trial, combination, Objective::Loss)?.averages.loss)
}

/// The least mean delay at full rate (IV-D).
pub(super) fn delay(trial: &Trial, combination: &Combination) -> Option<f64> {
    Some(plan(trial, combination, Objective::Delay)?.averages.delay_ms)
}

/// The best plan at `kappa` and `mu`, with no threshold below `min_threshold`, which is 1 if it is not
/// given.
fn plan(trial: &Trial, combination: &Combination, objective: Objective) -> Option<Plan> {
    let (kappa, mu) = (combination.number("kappa")?, combination.number("mu")?);
    let floor = combination.number("min_threshold").unwrap_or(1.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let need = Need { min_k: floor as usize, ..need(kappa, mu, objective) };
    channels(trial.links.values())?.plan(&need).ok()
}

/// The least mean delay in ms of channels at full rate, with thresholds from 1 on.
pub(crate) fn least_delay(channels: &ChannelSet, kappa: f64, mu: f64) -> Option<f64> {
    Some(channels.plan(&need(kappa, mu, Objective::Delay)).ok()?.averages.delay_ms)
}

/// The channels with other delays, in ms.
pub(crate) fn with_delays(channels: &ChannelSet, delays: &[f64]) -> Option<ChannelSet> {
    let channel = |(channel, delay): (&Channel, &f64)| {
        Channel::new(channel.risk(), channel.loss(), *delay, channel.rate()).ok()
    };
    let channels = channels.channels().iter().zip(delays);
    ChannelSet::new(channels.map(channel).collect::<Option<_>>()?).ok()
}

fn need(kappa: f64, mu: f64, objective: Objective) -> Need {
    Need {
        kappa: Some(kappa),
        mu: Some(mu),
        full_rate: true,
        objectives: vec![objective],
        ..Need::default()
    }
}

/// The links as the model's channels, from the first host to the second. A packet's delay is the
/// link's, and the time that it takes to be sent.
pub(crate) fn channels<'a>(links: impl Iterator<Item = &'a LinkPlan>) -> Option<ChannelSet> {
    let channel = |link: &LinkPlan| {
        let conditions = link.conditions()[0];
        let (rate, mtu) = (conditions.rate_mbit?, f64::from(link.mtu));
        let payload = rate * (mtu - DATAGRAM_HEADERS) / mtu;
        let delay_ms = conditions.delay_ms + mtu * 8.0 / (rate * 1000.0);
        Channel::new(0.0, conditions.loss, delay_ms, payload).ok()
    };
    ChannelSet::new(links.map(channel).collect::<Option<_>>()?).ok()
}
