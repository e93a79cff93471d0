//! Which servers are asked for the value of a height that others have committed.

use std::collections::BTreeSet;

use super::super::context::ValidatorAddress;

/// The largest number of servers that are asked for a value before its height stalls. It doubles
/// whenever it does. Each of them may answer with a value of the largest length.
const MAX_ASKED: usize = 2;

/// The requests of one server.
#[derive(Debug)]
pub(super) struct ValueRequests {
    /// Whom it has asked since the height stalled last, and how many that may be.
    asked: BTreeSet<ValidatorAddress>,
    max_asked: usize,
    /// The last one that was asked in turn.
    last: ValidatorAddress,
}

impl ValueRequests {
    /// No requests.
    pub(super) fn new() -> Self {
        let (asked, last) = (BTreeSet::new(), ValidatorAddress([0; 32]));
        Self { asked, max_asked: MAX_ASKED, last }
    }

    /// A height begins.
    pub(super) fn begin(&mut self) {
        self.asked.clear();
        self.max_asked = MAX_ASKED;
    }

    /// Whether to ask a server that is ahead. It counts as asked then.
    pub(super) fn ask(&mut self, server: ValidatorAddress) -> bool {
        self.asked.len() < self.max_asked && self.asked.insert(server)
    }

    /// The height has stalled. Returns whom to ask now, twice as many as before, in turn: those
    /// that were asked may be faulty, or not have it either. `others` are the other servers of the
    /// height's set, in order. `None` is everybody who has a link, also outside the set: perhaps
    /// the whole group has moved on.
    pub(super) fn stalled(&mut self, others: &[ValidatorAddress]) -> Option<Vec<ValidatorAddress>> {
        self.max_asked = self.max_asked.saturating_mul(2);
        self.asked.clear();
        if self.max_asked >= others.len() {
            return None;
        }
        let next = others.partition_point(|other| *other <= self.last);
        let (before, after) = others.split_at(next);
        let chosen: Vec<_> = after.iter().chain(before).copied().take(self.max_asked).collect();
        self.last = chosen.last().copied().unwrap_or(self.last);
        self.asked.extend(&chosen);
        Some(chosen)
    }
}
