//! Emulated links as channels of the model (ReMICSS, IV).

use model::{
    ChannelModel, ChannelSet, LossProbability, PlanRequest, RiskProbability, ScheduleObjective,
    ScheduleRequirements,
};

use crate::trial::LinkPlan;

/// The length of the IPv4 and UDP headers of a datagram, in bytes.
pub(crate) const DATAGRAM_HEADERS: f64 = 20.0 + 8.0;

/// The minimum mean delay of the channels at full rate, in ms, with thresholds from 1.
pub(crate) fn min_delay(channels: &ChannelSet, kappa: f64, mu: f64) -> Option<f64> {
    let request = PlanRequest::new(at_full_rate(kappa, mu, ScheduleObjective::Delay)).ok()?;
    Some(channels.plan(&request).ok()?.averages.delay_ms)
}

/// The channels with the given delays, in ms.
pub(crate) fn with_delays(channels: &ChannelSet, delays: &[f64]) -> Option<ChannelSet> {
    let channel = |(channel, delay): (&ChannelModel, &f64)| {
        ChannelModel::new(
            RiskProbability(channel.risk()),
            LossProbability(channel.loss()),
            *delay,
            channel.rate(),
        )
        .ok()
    };
    let channels = channels.channels().iter().zip(delays);
    ChannelSet::new(channels.map(channel).collect::<Option<_>>()?).ok()
}

/// Requirements for the full rate with these means of threshold and multiplicity.
pub(crate) fn at_full_rate(
    kappa: f64,
    mu: f64,
    objective: ScheduleObjective,
) -> ScheduleRequirements {
    ScheduleRequirements {
        kappa: Some(kappa),
        mu: Some(mu),
        full_rate: true,
        objectives: vec![objective],
        ..ScheduleRequirements::default()
    }
}

/// The links as channels of the model, from the first host to the second. A packet's delay is the
/// link's delay and its transmission time.
pub(crate) fn channels<'a>(links: impl Iterator<Item = &'a LinkPlan>) -> Option<ChannelSet> {
    let channel = |link: &LinkPlan| {
        let conditions = link.conditions()[0];
        let (rate, mtu) = (conditions.rate_mbit?, f64::from(link.mtu));
        let payload = rate * (mtu - DATAGRAM_HEADERS) / mtu;
        let delay_ms = conditions.delay_ms + mtu * 8.0 / (rate * 1000.0);
        ChannelModel::new(RiskProbability(0.0), LossProbability(conditions.loss), delay_ms, payload)
            .ok()
    };
    ChannelSet::new(links.map(channel).collect::<Option<_>>()?).ok()
}
