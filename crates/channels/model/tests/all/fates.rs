//! Channels that share a fate: properties and plans agree with an enumeration of all outcomes.

use sim::SeededRng;
use sunder_model::simulate::ScheduleSimulation;
use sunder_model::{
    ChannelModel, ChannelSet, ChannelSetError, ChannelSubset, LossProbability, MAX_GROUPS,
    RiskProbability, ScheduleRequirements, ShareSchedule, ShareSelection, SharedRiskGroup,
};

use crate::textbook::sets::{OBJECTIVES, common_set, fraction, grouped_set, means, mixed_set};
use crate::textbook::{Programs, agree, columns, plan_for, selections};

/// One or two fates of channels of `set`, and the rest of it unchanged.
fn with_fates(rng: &mut SeededRng, set: ChannelSet) -> ChannelSet {
    let mut order: Vec<usize> = (0..set.len()).collect();
    rng.shuffle(&mut order);
    let first = 2 + rng.index(order.len() - 1);
    let (one, rest) = order.split_at(first);
    let fates = [one, rest].into_iter().filter(|members| members.len() > 1);
    set.with_shared_fates(fates.map(|members| members.iter().copied().collect()).collect()).unwrap()
}

/// Every outcome of the channels' and groups' draws, with its probability and the channels that
/// are hit.
fn outcomes(
    set: &ChannelSet,
    of_channel: fn(&ChannelModel) -> f64,
    of_group: fn(&SharedRiskGroup) -> f64,
) -> Vec<(f64, ChannelSubset)> {
    let own = set.channels().iter().enumerate();
    let own = own.map(|(i, channel)| (ChannelSubset::EMPTY.with(i), of_channel(channel)));
    let groups = set.groups().iter().map(|group| (group.channels(), of_group(group)));
    let draws: Vec<(ChannelSubset, f64)> = own.chain(groups).collect();
    let n = set.len();
    let outcome = |bits: u32| {
        let (mut probability, mut drawn) = (1.0, ChannelSubset::EMPTY);
        let mut of_groups = ChannelSubset::EMPTY;
        for (place, (channels, p)) in draws.iter().enumerate() {
            let is_hit = bits >> place & 1 == 1;
            probability *= if is_hit { *p } else { 1.0 - p };
            let hit = if place < n { &mut drawn } else { &mut of_groups };
            *hit = channels.iter().filter(|_| is_hit).fold(*hit, ChannelSubset::with);
        }
        // A channel's own draw hits all of its fate. A group hits its channels only.
        let mut hit = of_groups;
        for channel in drawn.iter() {
            let fate = set.shared_fates().iter().find(|fate| fate.contains(channel));
            let all = fate.copied().unwrap_or(ChannelSubset::EMPTY.with(channel));
            hit = all.iter().fold(hit, ChannelSubset::with);
        }
        (probability, hit)
    };
    (0..1_u32 << draws.len()).map(outcome).collect()
}

/// Risk, loss, and delay times delivery of a symbol, by the outcomes.
fn properties(set: &ChannelSet, selection: ShareSelection) -> [f64; 3] {
    let (k, channels) = (selection.k(), selection.channels());
    let (mut risk, mut loss, mut delayed) = (0.0, 0.0, 0.0);
    for (probability, seen) in outcomes(set, ChannelModel::risk, SharedRiskGroup::risk) {
        if channels.iter().filter(|i| seen.contains(*i)).count() >= k {
            risk += probability;
        }
    }
    for (probability, lost) in outcomes(set, ChannelModel::loss, SharedRiskGroup::loss) {
        let arrived = channels.iter().filter(|i| !lost.contains(*i));
        let mut delays: Vec<f64> = arrived.map(|i| set.channels()[i].delay_ms()).collect();
        delays.sort_by(f64::total_cmp);
        match delays.get(k - 1) {
            Some(delay) => delayed += probability * delay,
            None => loss += probability,
        }
    }
    [risk, loss, delayed]
}

#[test]
fn properties_are_those_of_all_outcomes() {
    let mut rng = SeededRng::new(21);
    for round in 0..60 {
        let n = 2 + round % 4;
        let set = if round % 2 == 0 { mixed_set(&mut rng, n) } else { grouped_set(&mut rng, n) };
        if set.groups().len() + 2 > MAX_GROUPS {
            continue;
        }
        let set = with_fates(&mut rng, set);
        for selection in selections(n) {
            let found = set.properties(selection);
            let found = [found.risk, found.loss, found.delivered_delay_ms()];
            for (found, expected) in found.into_iter().zip(properties(&set, selection)) {
                assert!(agree(found, expected), "{found}, {expected}: {selection:?}\n{set:?}");
            }
        }
    }
}

/// A plan is as good as the best of all schedules of a set in which each fate is a group.
#[test]
fn plans_are_optimal() {
    let mut rng = SeededRng::new(22);
    for round in 0..60 {
        let n = 2 + round % 4;
        let base = common_set(&mut rng, n);
        let set = with_fates(&mut rng, base);
        let any = |fate: &ChannelSubset, of: fn(&ChannelModel) -> f64| {
            1.0 - fate.iter().map(|i| 1.0 - of(&set.channels()[i])).product::<f64>()
        };
        let groups = set.shared_fates().iter().map(|fate| {
            let risk = RiskProbability(any(fate, ChannelModel::risk));
            let loss = LossProbability(any(fate, ChannelModel::loss));
            SharedRiskGroup::new(*fate, risk, loss).unwrap()
        });
        let alone = set.channels().iter().enumerate().map(|(i, channel)| {
            let is_alone = !set.shared_fates().iter().any(|fate| fate.contains(i));
            let own = |value: f64| if is_alone { value } else { 0.0 };
            let (risk, loss) = (own(channel.risk()), own(channel.loss()));
            let (risk, loss) = (RiskProbability(risk), LossProbability(loss));
            ChannelModel::new(risk, loss, channel.delay_ms(), channel.rate()).unwrap()
        });
        let grouped = ChannelSet::with_groups(alone.collect(), groups.collect()).unwrap();
        let all = columns(&grouped);
        let (kappa, mu) = means(&mut rng, n);
        let request = ScheduleRequirements {
            kappa: Some(kappa),
            mu: Some(mu),
            ..ScheduleRequirements::default()
        };
        for objective in OBJECTIVES {
            let request = ScheduleRequirements { objectives: vec![objective], ..request.clone() };
            let best = Programs::new(&grouped, &all, &request).best(objective).unwrap();
            let value = plan_for(&set, &request).unwrap().averages.value_of(objective);
            assert!(agree(value, best), "{objective:?}: {value}, not {best}: {set:?}");
        }
    }
}

/// Whatever part of the risk is common to the channels, the fate's risk is not below the true one:
/// from independent channels to channels that are always seen together.
#[test]
fn a_fate_bounds_every_common_cause() {
    let mut rng = SeededRng::new(23);
    for round in 0..100 {
        let n = 2 + round % 4;
        let base = common_set(&mut rng, n);
        let members = ChannelSubset::first(2 + rng.index(n - 1));
        let common = [0.0, 1.0, fraction(&mut rng)][round % 3] * 0.5;
        let cause = SharedRiskGroup::new(members, RiskProbability(common), LossProbability(common))
            .unwrap();
        // The probability of the common cause and the channel's own.
        let marginal = base.channels().iter().enumerate().map(|(i, channel)| {
            let all = |own: f64| {
                if members.contains(i) { 1.0 - (1.0 - own) * (1.0 - common) } else { own }
            };
            let risk = RiskProbability(all(channel.risk()));
            let loss = LossProbability(all(channel.loss()));
            ChannelModel::new(risk, loss, channel.delay_ms(), channel.rate()).unwrap()
        });
        let fates = ChannelSet::new(marginal.collect()).unwrap();
        let fates = fates.with_shared_fates(vec![members]).unwrap();
        let exact = ChannelSet::with_groups(base.channels().to_vec(), vec![cause]).unwrap();
        for selection in selections(n) {
            let (bound, exact) = (fates.properties(selection), exact.properties(selection));
            assert!(bound.risk >= exact.risk - 1e-12, "{selection:?}: {bound:?}, {exact:?}");
            assert!(bound.loss >= exact.loss - 1e-12, "{selection:?}: {bound:?}, {exact:?}");
        }
    }
}

#[test]
fn a_simulation_of_symbols_agrees() {
    let mut rng = SeededRng::new(24);
    for n in 2..6 {
        let base = common_set(&mut rng, n);
        let set = with_fates(&mut rng, base);
        let selections = selections(n);
        let part = 1.0 / f64::from(u32::try_from(selections.len()).unwrap());
        let entries = selections.into_iter().map(|selection| (selection, part));
        let schedule = ShareSchedule::new(entries).unwrap();
        let mut simulation = ScheduleSimulation::new(&set, &schedule);
        simulation.run(100_000, &mut || rng.next_u64());
        let (found, formulas) = (simulation.estimates(), schedule.averages(&set));
        let (risk, loss) = (found.risk, found.loss);
        let is_near = |low: f64, high: f64, value: f64| {
            // Three times as wide as the interval of 99 %.
            let wide = high - low;
            (low - wide..=high + wide).contains(&value)
        };
        assert!(is_near(risk.low, risk.high, formulas.risk), "{risk:?}, {formulas:?}");
        assert!(is_near(loss.low, loss.high, formulas.loss), "{loss:?}, {formulas:?}");
    }
}

#[test]
fn wrong_fates_are_refused() {
    let set = |n| common_set(&mut SeededRng::new(1), n);
    let of = |channels: &[usize]| channels.iter().copied().collect::<ChannelSubset>();
    let refused = |n, fates: &[&[usize]]| {
        set(n).with_shared_fates(fates.iter().map(|fate| of(fate)).collect()).unwrap_err()
    };
    assert_eq!(refused(3, &[&[1]]), ChannelSetError::SmallGroup);
    assert_eq!(refused(3, &[&[1, 3]]), ChannelSetError::UnknownChannel(3));
    assert_eq!(refused(3, &[&[0, 1], &[1, 2]]), ChannelSetError::TwoFates(1));
    let five: [&[usize]; 5] = [&[0, 1], &[2, 3], &[4, 5], &[6, 7], &[8, 9]];
    assert_eq!(refused(10, &five), ChannelSetError::TooManyGroups(5));
}
