//! Random sets of channels, random kappa and mu, and random requirements.

use sim::SeededRng;
use sunder_model::{
    ChannelModel, ChannelSet, ChannelSubset, LossProbability, RiskProbability, ScheduleObjective,
    ScheduleRequirements, SharedRiskGroup,
};

use super::number;

/// All objectives.
pub(crate) const OBJECTIVES: [ScheduleObjective; 5] = [
    ScheduleObjective::Risk,
    ScheduleObjective::Loss,
    ScheduleObjective::Delay,
    ScheduleObjective::DeliveredDelay,
    ScheduleObjective::Rate,
];

/// A value from 0 up to, but not including, 1.
pub(crate) fn fraction(rng: &mut SeededRng) -> f64 {
    f64::from(u32::try_from(rng.next_u64() >> 32).unwrap()) / 4_294_967_296.0
}

/// A probability: often 0, tiny, or one of few values so that there are ties; 1 only if `certain`.
fn probability(rng: &mut SeededRng, certain: bool) -> f64 {
    match rng.below(8) {
        0 => 0.0,
        1 => 1e-6,
        2 => 0.01,
        3 if certain => 1.0,
        4 => 0.9,
        _ => fraction(rng),
    }
}

/// A channel with any valid values: often zeros, limits and ties.
pub(crate) fn mixed_channel(rng: &mut SeededRng) -> ChannelModel {
    let (risk, loss) = (probability(rng, true), probability(rng, false));
    let delay_ms = match rng.below(4) {
        0 => 0.0,
        1 => 10.0,
        2 => number(rng.index(5)),
        _ => 200.0 * fraction(rng),
    };
    let rate = match rng.below(4) {
        0 => 1.0,
        1 => 100.0,
        2 => 1.0 + number(rng.index(1000)),
        _ => 1.0 + 999.0 * fraction(rng),
    };
    ChannelModel::new(RiskProbability(risk), LossProbability(loss), delay_ms, rate).unwrap()
}

/// A realistic channel, different from all others.
pub(crate) fn common_channel(rng: &mut SeededRng) -> ChannelModel {
    let risk = 0.02 + 0.6 * fraction(rng);
    let loss = 0.01 + 0.3 * fraction(rng);
    let delay_ms = 1.0 + 100.0 * fraction(rng);
    ChannelModel::new(
        RiskProbability(risk),
        LossProbability(loss),
        delay_ms,
        10.0 + 90.0 * fraction(rng),
    )
    .unwrap()
}

pub(crate) fn mixed_set(rng: &mut SeededRng, n: usize) -> ChannelSet {
    ChannelSet::new((0..n).map(|_| mixed_channel(rng)).collect()).unwrap()
}

pub(crate) fn common_set(rng: &mut SeededRng, n: usize) -> ChannelSet {
    ChannelSet::new((0..n).map(|_| common_channel(rng)).collect()).unwrap()
}

/// A set with few different values, none of them tiny, so that many schedules tie.
pub(crate) fn tied_set(rng: &mut SeededRng, n: usize) -> ChannelSet {
    let mut pick = |values: [f64; 3]| values[rng.index(3)];
    let channels = (0..n).map(|_| {
        let (risk, loss) = (pick([0.2, 0.5, 0.8]), pick([0.2, 0.3, 0.5]));
        ChannelModel::new(
            RiskProbability(risk),
            LossProbability(loss),
            pick([1.0, 5.0, 20.0]),
            pick([10.0, 20.0, 50.0]),
        )
        .unwrap()
    });
    ChannelSet::new(channels.collect()).unwrap()
}

/// A set of at least two channels, some of which are in groups; groups may overlap.
pub(crate) fn grouped_set(rng: &mut SeededRng, n: usize) -> ChannelSet {
    let channels = (0..n).map(|_| mixed_channel(rng)).collect();
    let groups = (0..=rng.index(3)).map(|_| {
        let mut order: Vec<usize> = (0..n).collect();
        rng.shuffle(&mut order);
        let members: ChannelSubset = order.into_iter().take(2 + rng.index(n - 1)).collect();
        SharedRiskGroup::new(
            members,
            RiskProbability(probability(rng, true)),
            LossProbability(probability(rng, false)),
        )
        .unwrap()
    });
    ChannelSet::with_groups(channels, groups.collect()).unwrap()
}

/// Kappa and mu for n channels: often whole, equal, or at an end.
pub(crate) fn means(rng: &mut SeededRng, n: usize) -> (f64, f64) {
    let mut between = |low: f64, high: f64| {
        let any = low + fraction(rng) * (high - low);
        match rng.below(6) {
            0 => low,
            1 => high,
            2 => any.floor().max(low),
            3 => ((any * 4.0).floor() / 4.0).max(low),
            _ => any,
        }
    };
    let mu = between(1.0, number(n));
    (between(1.0, mu), mu)
}

/// Any combination of kappa, mu, limited schedules, the full rate and a minimum rate. The last
/// argument has the chances of each in percent; kappa and mu have the same.
pub(crate) fn requirements(
    rng: &mut SeededRng,
    set: &ChannelSet,
    (kappa, mu): (f64, f64),
    [mean, limited, full_rate, min_rate]: [u64; 4],
) -> ScheduleRequirements {
    let request = ScheduleRequirements {
        kappa: Some(kappa).filter(|_| rng.chance(mean)),
        mu: Some(mu).filter(|_| rng.chance(mean)),
        ..ScheduleRequirements::default()
    };
    let mut request = if rng.chance(limited) { request.limited() } else { request };
    request.full_rate = request.mu.is_some() && rng.chance(full_rate);
    let rate = set.best_rate(mu).unwrap() * fraction(rng);
    request.min_rate = Some(rate).filter(|_| rng.chance(min_rate));
    request
}
