//! A server is stopped by SIGSTOP, as by a debugger or a hypervisor, and goes on later.

use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::refreshes::{Outcome, Step, Worst};

/// The delay of each link.
const DELAY_MS: u32 = 5;

pub(crate) fn a_server_that_was_stopped_goes_on() {
    let mut cluster = Cluster::start(DELAY_MS);
    // Longer than a link waits for its peer.
    stopped(&mut cluster, 1, Step::Dealing, Duration::from_secs(7));
}

pub(crate) fn every_server_stopped_for_20_seconds() {
    let mut cluster = Cluster::start(DELAY_MS);
    let mut worst = Worst::of("one server stopped for 20 s");
    let steps = [Step::Open, Step::Dealing, Step::Proved, Step::Computed];
    for (victim, step) in (1..).zip(steps.into_iter().chain(steps)) {
        worst.add(&stopped(&mut cluster, victim, step, Duration::from_secs(20)));
    }
    worst.print();
}

fn stopped(cluster: &mut Cluster, victim: usize, step: Step, time: Duration) -> Outcome {
    let what = format!("{victim} stopped at {step:?}");
    cluster.with_short_pause(&what, |cluster| stop(cluster, victim, step, time))
}

fn stop(cluster: &mut Cluster, victim: usize, step: Step, time: Duration) -> Outcome {
    let to = cluster.other_group();
    cluster.signers.reset_pause();
    for server in [cluster.group[1], cluster.group[2]] {
        cluster.approve(server, &to);
    }
    cluster.until_step(step);
    cluster.pause(victim);
    let since = Instant::now();
    // The others go on, and wait for nobody.
    cluster.until_step(Step::HeaderSigned);
    cluster.until("the time is over", || since.elapsed() >= time);
    cluster.resume(victim);
    cluster.refreshed(to, Instant::now())
}
