//! Servers that do not reach each other, until they do again.

use std::time::{Duration, Instant};

use lab::LinkDirection;

use crate::cluster::Cluster;
use crate::links::{self, Cut};
use crate::refreshes::{MAX_PAUSE, Outcome, Step, Worst};

/// The delay of each link.
const DELAY_MS: u32 = 5;

/// How long servers are cut off: longer than a link waits for its peer.
const CUT: Duration = Duration::from_secs(8);

pub(crate) fn halves_of_a_group_sign_and_the_refresh_ends_when_they_meet() {
    let mut cluster = Cluster::start(DELAY_MS);
    cluster.with_short_pause("2 and 2 of the old group", halves);
}

pub(crate) fn every_partition() {
    let mut cluster = Cluster::start(DELAY_MS);
    println!("| partition | runs | all in the new epoch after, s | no signature for, s |");
    let print = |what: &str, outcomes: Vec<Outcome>| {
        let mut worst = Worst::of(what);
        for outcome in &outcomes {
            worst.add(outcome);
        }
        worst.print();
    };
    let what = "2 and 2 of the old group";
    print(what, vec![cluster.with_short_pause(what, halves)]);
    let what = "1 and 3 of the old group";
    let of = |alone| cluster.with_short_pause(what, |cluster| one_alone(cluster, alone));
    print(what, (0..4).map(of).collect());
    let steps = [Step::Open, Step::SessionKeys, Step::Dealing, Step::Proved, Step::Computed];
    let outcomes = steps.map(|step| old_from_new(&mut cluster, step));
    print("old and new group", outcomes.into());
    let what = "one server sends or receives nothing";
    let outcomes = [LinkDirection::Forward, LinkDirection::Back].map(|direction| {
        cluster.with_short_pause(what, |cluster| deaf_or_mute(cluster, direction))
    });
    print(what, outcomes.into());
    let what = "a tenth of all packets is lost";
    print(what, vec![cluster.with_short_pause(what, lossy)]);
    let what = "links that flap";
    print(what, vec![cluster.with_short_pause(what, flapping)]);
}

/// Approves the refresh to the other group at two servers.
fn approve(cluster: &Cluster, servers: [usize; 2]) -> Vec<usize> {
    let to = cluster.other_group();
    cluster.signers.reset_pause();
    for server in servers {
        cluster.approve(server, &to);
    }
    to
}

/// Waits until at least this time has passed and so many more messages were signed.
fn sign_for(cluster: &Cluster, time: Duration, count: u64) {
    let (since, before) = (Instant::now(), cluster.signers.signed());
    cluster.until("messages are signed", || {
        since.elapsed() >= time && cluster.signers.signed() >= before + count
    });
}

fn halves(cluster: &mut Cluster) -> Outcome {
    let group = cluster.group.clone();
    // Each half loses its links, and does not make the log go on, but signs.
    cluster.begin_faults(&group);
    let cut = Cut::between(&cluster.network, &group[..2], &group[2..]);
    let to = approve(cluster, [group[0], group[2]]);
    sign_for(cluster, CUT, 20);
    for &server in &group {
        let client = cluster.client(server);
        let signing = client.sign(b"release of a half".as_slice().into(), cluster.encoding());
        cluster.runtime.block_on(signing).unwrap_or_else(|error| panic!("{server}: {error}"));
        let status = cluster.status(server).unwrap();
        assert_eq!(status.health.epoch, Some(cluster.epoch));
    }
    cut.heal(&cluster.network);
    finish(cluster, to)
}

fn one_alone(cluster: &mut Cluster, alone: usize) -> Outcome {
    let group = cluster.group.clone();
    let alone = group[alone];
    let others: Vec<usize> = group.iter().copied().filter(|it| *it != alone).collect();
    cluster.begin_faults(&[alone]);
    let to = cluster.other_group();
    let beyond: Vec<usize> = others.iter().chain(&to).copied().collect();
    let cut = Cut::between(&cluster.network, &[alone], &beyond);
    approve(cluster, [others[0], others[1]]);
    cluster.until_step(Step::HeaderSigned);
    sign_for(cluster, CUT, 20);
    cut.heal(&cluster.network);
    finish(cluster, to)
}

fn old_from_new(cluster: &mut Cluster, step: Step) -> Outcome {
    let group = cluster.group.clone();
    let to = approve(cluster, [group[1], group[3]]);
    cluster.until_step(step);
    let cut = Cut::between(&cluster.network, &group, &to);
    let (since, before) = (Instant::now(), cluster.signers.signed());
    // If the old group ends its epoch just then, the new one hears of it only afterwards.
    cluster.until("messages are signed", || {
        let signed = cluster.signers.signed() - before;
        since.elapsed() >= CUT && (signed >= 20 || cluster.is_at(Step::Final))
    });
    let is_over = cluster.is_at(Step::Final);
    cut.heal(&cluster.network);
    let outcome = cluster.refreshed(to, Instant::now());
    let most = if is_over { CUT + MAX_PAUSE } else { MAX_PAUSE };
    assert!(outcome.pause < most, "{step:?}: {:?} without a signature", outcome.pause);
    outcome
}

fn deaf_or_mute(cluster: &mut Cluster, direction: LinkDirection) -> Outcome {
    let group = cluster.group.clone();
    cluster.begin_faults(&group[..1]);
    links::lose(&cluster.network, group[0], &[direction], 1.0);
    let to = approve(cluster, [group[1], group[2]]);
    cluster.until_step(Step::HeaderSigned);
    links::lose(&cluster.network, group[0], &[direction], 0.0);
    finish(cluster, to)
}

fn lossy(cluster: &mut Cluster) -> Outcome {
    let group = cluster.group.clone();
    let all: Vec<usize> = group.iter().chain(&cluster.other_group()).copied().collect();
    cluster.begin_faults(&all);
    for &it in &all {
        links::lose(&cluster.network, it, &LinkDirection::BOTH, 0.1);
    }
    let to = approve(cluster, [group[0], group[1]]);
    cluster.until_step(Step::HeaderSigned);
    for &it in &all {
        links::lose(&cluster.network, it, &LinkDirection::BOTH, 0.0);
    }
    finish(cluster, to)
}

/// One link after another is lost for longer than links wait.
fn flapping(cluster: &mut Cluster) -> Outcome {
    let group = cluster.group.clone();
    let to = cluster.other_group();
    let all: Vec<usize> = group.iter().chain(&to).copied().collect();
    cluster.begin_faults(&all);
    approve(cluster, [group[0], group[1]]);
    for &server in &all {
        links::lose(&cluster.network, server, &LinkDirection::BOTH, 1.0);
        sign_for(cluster, Duration::from_secs(6), 5);
        links::lose(&cluster.network, server, &LinkDirection::BOTH, 0.0);
    }
    finish(cluster, to)
}

/// The fault has ended, and the refresh ends.
fn finish(cluster: &mut Cluster, to: Vec<usize>) -> Outcome {
    cluster.refreshed(to, Instant::now())
}
