//! Channels that contradict each other: some carry other bytes than were sent. The tamper code says which
//! shares are right, as long as enough are.

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{Incoming, Loss};
use crate::record::{self, HEADER_LEN, MAX_RECORD, RecordError};

/// How many sets of shares are tried for one record. With up to 14 channels these are all.
const MAX_SETS: usize = 4000;

/// What does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dispute {
    /// The shares of a record's header, so nobody knows how long it is.
    Header,
    /// The record, which is there as a whole.
    Record,
}

impl Incoming {
    /// Whether the next bytes of every channel fit those that these channels' shares make together.
    pub(super) fn agree_with(&mut self, channels: &[usize], joined: &[u8]) -> bool {
        let others: Vec<usize> =
            self.live().filter(|channel| !channels.contains(channel)).collect();
        others.into_iter().all(|channel| self.agrees(channel, channels, joined))
    }

    /// Whether a channel's next bytes fit: in the place of another's they make the same.
    fn agrees(&mut self, channel: usize, channels: &[usize], joined: &[u8]) -> bool {
        let mut set = channels.to_vec();
        set[0] = channel;
        let mut other = Zeroizing::new(vec![0; joined.len()]);
        self.join(&set, &mut other);
        bool::from(other.ct_eq(joined))
    }

    /// Finds shares that make a record, and goes on without the channels that contradict them. As long as
    /// the dispute is about a header and there are none, all channels may bring as much as any record has.
    ///
    /// # Errors
    /// When none will be found.
    pub(super) fn settle(&mut self, dispute: Dispute) -> Result<(), RecordError> {
        if !self.has_spare() {
            return Err(RecordError::Tampered);
        }
        self.record_len = None;
        if self.room < MAX_RECORD + HEADER_LEN {
            self.grow();
        }
        self.compact();
        let live: Vec<usize> = self.live().collect();
        let mut sets = Sets::new(live.len(), self.threshold);
        let mut tried = 0;
        while let Some(set) = sets.next() {
            tried += 1;
            if tried > MAX_SETS {
                return Err(RecordError::Tampered);
            }
            let channels: Vec<usize> = set.iter().map(|&place| live[place]).collect();
            if let Some(len) = self.verified(&channels) {
                let record = Zeroizing::new(self.plain(len).to_vec());
                for &channel in live.iter().filter(|channel| !channels.contains(channel)) {
                    let is_there = self.channels[channel].end >= self.start + len;
                    if is_there && !self.agrees(channel, &channels, &record) {
                        self.lose(channel, Loss::Lied);
                    }
                }
                self.record_len = Some(len);
                return Ok(());
            }
        }
        let full = |&channel: &usize| self.channels[channel].end - self.start >= MAX_RECORD;
        // Whatever comes behind a record that is there does not make it another.
        let is_hopeless = dispute == Dispute::Record || live.iter().all(full);
        if is_hopeless { Err(RecordError::Tampered) } else { Ok(()) }
    }

    /// The length of the record that these channels' shares make, if they make one and it is there.
    fn verified(&mut self, channels: &[usize]) -> Option<usize> {
        let ends = channels.iter().map(|&channel| self.channels[channel].end);
        let available = ends.min()?.saturating_sub(self.start);
        if available < HEADER_LEN {
            return None;
        }
        let mut header = Zeroizing::new([0; HEADER_LEN]);
        self.join(channels, &mut *header);
        let len = record::length(&header).ok().filter(|&len| len <= available)?;
        self.join_plain(channels, len);
        record::verify(self.plain(len)).is_ok().then_some(len)
    }
}

/// All sets of `k` of `n` places, each in order.
struct Sets {
    n: usize,
    places: Option<Vec<usize>>,
}

impl Sets {
    fn new(n: usize, k: usize) -> Self {
        Self { n, places: (k <= n).then(|| (0..k).collect()) }
    }

    fn next(&mut self) -> Option<Vec<usize>> {
        let current = self.places.take()?;
        let k = current.len();
        let highest = |place: usize| self.n - k + place;
        if let Some(moved) = (0..k).rev().find(|&place| current[place] < highest(place)) {
            let mut next = current.clone();
            next[moved] += 1;
            for place in moved + 1..k {
                next[place] = next[place - 1] + 1;
            }
            self.places = Some(next);
        }
        Some(current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_all_and_once() {
        for (n, k, count) in [(3, 2, 3), (5, 3, 10), (4, 4, 1), (4, 1, 4), (2, 3, 0), (14, 7, 3432)]
        {
            let mut sets = Sets::new(n, k);
            let mut all = std::collections::BTreeSet::new();
            while let Some(set) = sets.next() {
                assert!(set.is_sorted_by(|a, b| a < b) && set.iter().all(|&place| place < n));
                assert!(all.insert(set));
            }
            assert_eq!(all.len(), count, "{k} of {n}");
        }
    }
}
