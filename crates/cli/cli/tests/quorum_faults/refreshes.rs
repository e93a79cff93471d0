//! Refreshes, their steps, and what is measured of one.

use std::time::{Duration, Instant};

use quorum::api::{QuorumApiError, RefreshStatus, RefreshStep};
use quorum::node::QuorumNodeStatus;

use crate::cluster::{Cluster, FIRST, SECOND, SERVERS, list_of};

/// The longest time without any signature while f+1 servers can sign.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(10);

/// How far a refresh is, as the first server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// One server has approved it.
    Approving,
    /// f+1 have.
    Open,
    /// A new server has registered its session key.
    SessionKeys,
    /// Enough of them have.
    Dealing,
    /// A dealing is chosen.
    Proved,
    /// A new server has its shares.
    Computed,
    /// The new epoch has begun.
    Final,
    /// Its header is signed.
    HeaderSigned,
}

impl Step {
    pub(crate) const ALL: [Self; 8] = [
        Self::Approving,
        Self::Open,
        Self::SessionKeys,
        Self::Dealing,
        Self::Proved,
        Self::Computed,
        Self::Final,
        Self::HeaderSigned,
    ];

    /// The step in which a server is on the way to an epoch.
    fn of(status: &QuorumNodeStatus, epoch: u64) -> Option<Self> {
        let RefreshStatus { step, done, .. } =
            status.refresh.as_ref().filter(|refresh| refresh.epoch == epoch)?;
        Some(match (step, done) {
            (RefreshStep::Approving, _) => Self::Approving,
            (RefreshStep::SessionKeys, 0) => Self::Open,
            (RefreshStep::SessionKeys, _) => Self::SessionKeys,
            (RefreshStep::Dealing, 0) => Self::Dealing,
            (RefreshStep::Dealing, _) | (RefreshStep::Computing, 0) => Self::Proved,
            (RefreshStep::Computing, _) => Self::Computed,
            (RefreshStep::Done, _) if status.header_signed => Self::HeaderSigned,
            (RefreshStep::Done, _) => Self::Final,
            (RefreshStep::Cancelled, _) => return None,
        })
    }
}

/// What a fault in a refresh did.
pub(crate) struct Outcome {
    /// The time from the end of the fault until all servers were in the new epoch.
    pub(crate) finished: Duration,
    /// The longest time without a signature.
    pub(crate) pause: Duration,
}

/// The worst of several, for the table.
pub(crate) struct Worst {
    what: String,
    runs: usize,
    finished: Duration,
    pause: Duration,
}

impl Worst {
    pub(crate) fn of(what: &str) -> Self {
        Self { what: what.into(), runs: 0, finished: Duration::ZERO, pause: Duration::ZERO }
    }

    pub(crate) fn add(&mut self, outcome: &Outcome) {
        self.runs += 1;
        self.finished = self.finished.max(outcome.finished);
        self.pause = self.pause.max(outcome.pause);
    }

    pub(crate) fn print(&self) {
        let Self { what, runs, finished, pause } = self;
        println!(
            "| {what} | {runs} | {:.1} | {:.1} |",
            finished.as_secs_f64(),
            pause.as_secs_f64()
        );
    }
}

impl Cluster {
    /// The group that has not the key.
    pub(crate) fn other_group(&self) -> Vec<usize> {
        if self.group == FIRST { SECOND.into() } else { FIRST.into() }
    }

    /// Approves a refresh to a group at a server: again, as an operator does, if a new server seems
    /// not to answer.
    pub(crate) fn approve(&self, server: usize, group: &[usize]) {
        self.until("it is approved", || match self.try_approve(server, group) {
            Err(QuorumApiError::Refused { status: 503, .. }) => false,
            Err(error) => panic!("server {server}: {error}{}", self.logs()),
            Ok(()) => true,
        });
    }

    /// The same, at a server that may have done it.
    pub(crate) fn try_approve(&self, server: usize, group: &[usize]) -> Result<(), QuorumApiError> {
        let client = self.client(server);
        self.runtime.block_on(client.start_refresh(list_of(group))).map(|_| ())
    }

    /// Whether some server says that the refresh to the next epoch is at a step or beyond.
    pub(crate) fn is_at(&self, step: Step) -> bool {
        let epoch = self.epoch + 1;
        (1..=SERVERS).any(|server| {
            let status = self.status(server);
            status.and_then(|status| Step::of(&status, epoch)).is_some_and(|it| it >= step)
        })
    }

    /// Waits until some server says so.
    pub(crate) fn until_step(&self, step: Step) {
        self.until(&format!("{step:?}"), || self.is_at(step));
    }

    /// Waits until all servers are in the next epoch, which this group has, and checks everything.
    /// The fault has ended at `since`.
    pub(crate) fn refreshed(&mut self, group: Vec<usize>, since: Instant) -> Outcome {
        self.enter(group);
        self.settled(since)
    }

    /// From now on all servers are to be in the next epoch, which this group has.
    pub(crate) fn enter(&mut self, group: Vec<usize>) {
        (self.group, self.epoch) = (group, self.epoch + 1);
    }

    /// Causes a fault in which signatures pause for less than [`MAX_PAUSE`]: up to three times,
    /// each time from the same group, because a busy machine may delay signatures.
    pub(crate) fn with_short_pause(
        &mut self,
        what: &str,
        fault: impl Fn(&mut Self) -> Outcome,
    ) -> Outcome {
        let (before, mut pauses) = (self.group.clone(), Vec::new());
        loop {
            let outcome = fault(self);
            if outcome.pause < MAX_PAUSE {
                return outcome;
            }
            pauses.push(outcome.pause);
            assert!(pauses.len() < 3, "{what}, three times: {pauses:?} without a signature");
            if self.group != before {
                for server in [self.group[0], self.group[1]] {
                    self.approve(server, &before);
                }
                self.refreshed(before.clone(), Instant::now());
            }
        }
    }

    /// Waits until they are, and checks everything. The fault has ended at `since`.
    pub(crate) fn settled(&self, since: Instant) -> Outcome {
        self.settle();
        let (finished, pause) = (since.elapsed(), self.signers.longest_pause());
        Outcome { finished, pause }
    }
}
