//! Servers are killed by SIGKILL at each step of a refresh, and started again.

use std::env;
use std::time::Instant;

use quorum::api::QuorumApiError;

use crate::cluster::{Cluster, ED25519_KEY, FIRST, POLYNOMIAL_KEY, SECOND, SERVERS};
use crate::refreshes::{Outcome, Step, Worst};

/// The delay of each link: steps take long enough to be seen.
const DELAY_MS: u32 = 10;

/// When a killed server starts again.
#[derive(Clone, Copy, Debug)]
enum Back {
    AtOnce,
    /// When the other servers have finished the refresh.
    Later,
}

pub(crate) fn servers_killed_in_a_refresh_lose_nothing() {
    lose_nothing(Cluster::start(DELAY_MS));
}

pub(crate) fn servers_with_a_polynomial_key_killed_in_a_refresh_lose_nothing() {
    lose_nothing(Cluster::with_key(DELAY_MS, POLYNOMIAL_KEY));
}

pub(crate) fn servers_with_an_ed25519_key_killed_in_a_refresh_lose_nothing() {
    lose_nothing(Cluster::with_key(DELAY_MS, ED25519_KEY));
}

fn lose_nothing(mut cluster: Cluster) {
    let kills = [
        (Step::Proved, vec![1], Back::Later),
        (Step::Computed, vec![2], Back::AtOnce),
        (Step::Dealing, (1..=SERVERS).collect(), Back::AtOnce),
    ];
    for (step, victims, back) in kills {
        let to = cluster.other_group();
        killed(&mut cluster, step, &victims, back, to);
    }
}

pub(crate) fn every_server_killed_at_every_step() {
    let rounds = env::var("SUNDER_QUORUM_ROUNDS").ok().and_then(|it| it.parse().ok()).unwrap_or(1);
    let mut cluster = Cluster::start(DELAY_MS);
    println!("| killed | runs | all in the new epoch after, s | no signature for, s |");
    for step in Step::ALL {
        let mut one = Worst::of(&format!("one server, {step:?}"));
        let mut all = Worst::of(&format!("all servers, {step:?}"));
        for round in 0..rounds {
            for victim in 1..=SERVERS {
                let back = if (victim + round) % 2 == 0 { Back::AtOnce } else { Back::Later };
                let to = cluster.other_group();
                one.add(&killed(&mut cluster, step, &[victim], back, to));
            }
            let victims: Vec<usize> = (1..=SERVERS).collect();
            let to = cluster.other_group();
            all.add(&killed(&mut cluster, step, &victims, Back::AtOnce, to));
        }
        one.print();
        all.print();
    }
    // Groups that overlap, and the same group again.
    let mut overlapping = Worst::of("one server, groups that overlap");
    let mut groups = [[1, 2, 3, 4], [3, 4, 5, 6], [3, 4, 5, 6], [5, 6, 7, 8], [8, 7, 2, 1]];
    groups[0] = if cluster.group == FIRST { FIRST } else { SECOND };
    for round in 0..rounds {
        for (i, step) in Step::ALL.into_iter().enumerate() {
            let to = groups[(i + round) % groups.len()];
            let victim = cluster.group[i % 4];
            overlapping.add(&killed(&mut cluster, step, &[victim], Back::AtOnce, to.into()));
        }
    }
    overlapping.print();
}

/// Kills servers at a step of a refresh to a group. If it is one, signatures pause for a short time
/// only.
fn killed(
    cluster: &mut Cluster,
    step: Step,
    victims: &[usize],
    back: Back,
    to: Vec<usize>,
) -> Outcome {
    if victims.len() > 1 {
        return kill(cluster, step, victims, back, to);
    }
    let what = format!("{victims:?} killed at {step:?}");
    cluster.with_short_pause(&what, |cluster| kill(cluster, step, victims, back, to.clone()))
}

fn kill(
    cluster: &mut Cluster,
    step: Step,
    victims: &[usize],
    back: Back,
    to: Vec<usize>,
) -> Outcome {
    let approving: Vec<usize> = cluster.group[..2].into();
    cluster.signers.reset_pause();
    cluster.approve(approving[0], &to);
    if step > Step::Approving {
        cluster.approve(approving[1], &to);
    }
    cluster.until_step(step);
    for &victim in victims {
        cluster.kill(victim);
    }
    let is_alone = victims.len() == 1;
    // Without a new server nobody may approve.
    if step == Step::Approving && is_alone && !to.contains(&victims[0]) {
        // The command of an operator is repeated until the refresh is seen.
        let other = cluster.group.iter().rev().find(|it| !victims.contains(it));
        cluster.approve(*other.unwrap(), &to);
    }
    if let (Back::Later, true) = (back, is_alone && step > Step::Approving) {
        cluster.until_step(Step::HeaderSigned);
    }
    let since = Instant::now();
    for &victim in victims {
        cluster.start_server(victim);
    }
    if step == Step::Approving {
        for server in approving {
            cluster.until("it answers", || cluster.status(server).is_some());
            // If the refresh is over, it is refused. Until the new servers listen, too.
            cluster.until("it may approve", || match cluster.try_approve(server, &to) {
                Err(QuorumApiError::Refused { status: 503, .. }) => cluster.is_at(Step::Open),
                _ => true,
            });
        }
    }
    cluster.refreshed(to, since)
}
