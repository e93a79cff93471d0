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
    /// Whether not all have been asked since the last request, so that others are to be asked if
    /// nobody answers.
    is_unanswered: bool,
}

impl ValueRequests {
    /// No requests.
    pub(super) fn new() -> Self {
        let (asked, last) = (BTreeSet::new(), ValidatorAddress([0; 32]));
        Self { asked, max_asked: MAX_ASKED, last, is_unanswered: false }
    }

    /// A height begins.
    pub(super) fn begin(&mut self) {
        self.asked.clear();
        self.max_asked = MAX_ASKED;
        self.is_unanswered = false;
    }

    /// Whether others are to be asked if the height stalls.
    pub(super) fn is_unanswered(&self) -> bool {
        self.is_unanswered
    }

    /// Whether to ask a server that is ahead, as it says. It counts as asked then.
    pub(super) fn ask(&mut self, server: ValidatorAddress) -> bool {
        let is_asked = self.asked.len() < self.max_asked && self.asked.insert(server);
        self.is_unanswered |= is_asked;
        is_asked
    }

    /// The height has stalled. Returns whom to ask now, twice as many as before, in turn: those
    /// that were asked may be faulty, or not have it either. `others` are the other servers of the
    /// height's set, in order. `None` is everybody who has a link, also outside the set: perhaps
    /// the whole group has moved on.
    pub(super) fn stalled(&mut self, others: &[ValidatorAddress]) -> Option<Vec<ValidatorAddress>> {
        self.max_asked = self.max_asked.saturating_mul(2);
        self.asked.clear();
        self.is_unanswered = self.max_asked < others.len();
        if !self.is_unanswered {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_asked_in_turn_until_all_are() {
        let others: Vec<_> = (1..=10).map(|number| ValidatorAddress([number; 32])).collect();
        let mut requests = ValueRequests::new();
        assert!(!requests.is_unanswered());
        assert!(requests.ask(others[6]) && !requests.ask(others[6]) && requests.ask(others[7]));
        assert!(!requests.ask(others[0]), "enough were asked");
        assert!(requests.is_unanswered());
        assert_eq!(requests.stalled(&others).unwrap(), others[..4]);
        assert!(!requests.ask(others[9]) && requests.is_unanswered());
        let next = [&others[4..], &others[..2]].concat();
        assert_eq!(requests.stalled(&others).unwrap(), next);
        assert!(requests.is_unanswered());
        assert_eq!(requests.stalled(&others), None, "all");
        assert!(!requests.is_unanswered());
        requests.begin();
        assert!(requests.ask(others[0]));
    }
}
