//! A distinguisher for members that are idle, send and receive: it gets the lengths and the times
//! of what each sends, without the random numbers of the run, and cannot tell them apart.
#![allow(clippy::cast_precision_loss, reason = "statistics of small numbers")]

use std::time::Duration;

use super::exchanges::{Exchanges, KEPT, OBLIVIOUS};
use super::person::NAMES;
use super::world::{Sight, World};
use crate::protocol::member::tests::unlinkability::distinguisher::classify;

/// The roles: who sends, who receives, and who is idle.
const ROLES: usize = 3;

/// How long a run is observed.
const OBSERVED: Duration = Duration::from_secs(4);

/// The members of a program that reveals what it does: its requests come later while something is
/// not delivered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    Real,
    Leaks,
}

/// `SUNDER_SEEDS=N` runs as many.
#[test]
fn senders_receivers_and_idle_members_look_the_same() {
    for exchange in [KEPT, OBLIVIOUS] {
        for (roles, auc, bound) in distinguish(exchange, Program::Real) {
            assert!((auc - 0.5).abs() <= bound, "{exchange:?} {roles:?}: {auc} beyond {bound}");
        }
    }
}

/// Shows that the test can fail.
#[test]
fn a_program_whose_requests_wait_is_told_apart() {
    let all = distinguish(KEPT, Program::Leaks);
    let worst = all.iter().map(|(_, auc, _)| (auc - 0.5).abs()).fold(0.0, f64::max);
    assert!(worst > 0.3, "{all:?}");
}

/// The area under the curve for each pair of roles, and how far from 0.5 it is by chance in 1 % of
/// cases at most.
fn distinguish(exchange: Exchanges, program: Program) -> Vec<([&'static str; 2], f64, f64)> {
    let runs = sim::run_seeds(24, |seed| run(exchange, seed, program));
    let samples: Vec<_> = runs.into_iter().flatten().collect();
    let (train, test) = samples.split_at(samples.len() / 2);
    let likely = classify(train, test, ROLES);
    let scores = |role: usize, of: usize| -> Vec<f64> {
        let of_role = likely.iter().zip(test).filter(|(_, (_, label))| *label == of);
        of_role.map(|(likely, _)| likely[role]).collect()
    };
    let names = ["sends", "receives", "idle"];
    [(0, 1), (0, 2), (1, 2)]
        .map(|(one, other)| {
            let (of_one, of_other) = (scores(one, one), scores(one, other));
            let (n, m) = (of_one.len() as f64, of_other.len() as f64);
            // Of three pairs, so that one of them is outside by chance in 1 % of cases.
            let bound = 2.94 * ((n + m + 1.0) / (12.0 * n * m)).sqrt();
            let area = area_under_curve(&of_one, &of_other);
            let roles = [names[one], names[other]];
            println!("{exchange:?} {roles:?}: area {area:.3}, by chance 0.5 +- {bound:.3}");
            (roles, area, bound)
        })
        .into()
}

/// How often a sample of the first class has the greater score.
fn area_under_curve(one: &[f64], other: &[f64]) -> f64 {
    let pairs = one.iter().flat_map(|a| other.iter().map(move |b| a.total_cmp(b)));
    let won = pairs.map(|order| match order {
        std::cmp::Ordering::Greater => 1.0,
        std::cmp::Ordering::Equal => 0.5,
        std::cmp::Ordering::Less => 0.0,
    });
    won.sum::<f64>() / (one.len() * other.len()) as f64
}

/// The features of each member, and its role.
fn run(exchange: Exchanges, seed: u64, program: Program) -> Vec<(Vec<f64>, usize)> {
    let mut world = World::of_members(exchange, seed);
    // Each member has each role in a sixth or a third of the runs.
    let orders = [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1], [2, 1, 0], [1, 0, 2]];
    let [sender, receiver, idle] = orders[usize::try_from(seed % 6).unwrap()];
    world.seen.clear();
    let (begin, text) = (world.now, " and on".repeat(40));
    while world.now < begin + OBSERVED {
        if world.people[sender].undelivered() == 0 {
            world.people[sender].say(NAMES[receiver], &text);
        }
        if program == Program::Leaks {
            let is_busy = world.people[sender].undelivered() > 0;
            world.delays[sender] = Duration::from_millis(if is_busy { 25 } else { 0 });
        }
        world.tick();
    }
    assert!(!world.people[receiver].read.is_empty() || !world.people[receiver].shown.is_empty());
    [sender, receiver, idle]
        .iter()
        .zip(0..)
        .map(|(&it, role)| (features(&world, it), role))
        .collect()
}

/// Of the messages of a member: how many, their lengths, and the times between them and after the
/// last message of anybody else.
fn features(world: &World, person: usize) -> Vec<f64> {
    let (mut lens, mut gaps, mut after_others) = (Vec::new(), Vec::new(), Vec::new());
    let (mut last_own, mut last_other) = (None, None);
    for seen in &world.seen {
        let Sight::Message(len) = seen.what else { continue };
        let at = seen.at.as_secs_f64();
        if seen.person == person {
            lens.push(len as f64);
            gaps.extend(last_own.map(|last| at - last));
            after_others.extend(last_other.map(|last| at - last));
            last_own = Some(at);
        } else {
            last_other = Some(at);
        }
    }
    let mut features = vec![lens.len() as f64];
    for values in [&lens, &gaps, &after_others] {
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / count;
        let greatest = values.iter().copied().fold(0.0, f64::max);
        features.extend([mean, variance.sqrt(), greatest]);
    }
    features.extend((0..20).map(|at| gaps.get(at).copied().unwrap_or(0.0)));
    features
}
