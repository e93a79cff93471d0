//! Channels that contradict each other: some carry other bytes than were sent. The tamper code says which
//! shares are right, as long as enough are.

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{Incoming, Loss};
use crate::record::{self, HEADER_LEN, MAX_RECORD, RecordError};

/// A set of channels that may make the next record, and how long it is by their header.
pub(super) struct Candidate {
    channels: Vec<usize>,
    len: usize,
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

    /// The next record's header, or all of it, is not one. Finds the sets of shares that may still make it, by
    /// their headers, which are all there.
    ///
    /// # Errors
    /// When all shares are needed.
    pub(super) fn dispute(&mut self) -> Result<(), RecordError> {
        if !self.has_spare() {
            return Err(RecordError::Tampered);
        }
        self.record_len = None;
        if self.room < MAX_RECORD + HEADER_LEN {
            self.grow();
        }
        self.compact();
        let live: Vec<usize> = self.live().collect();
        let mut candidates = Vec::new();
        for set in Sets::new(live.len(), self.threshold) {
            let channels: Vec<usize> = set.iter().map(|&place| live[place]).collect();
            let mut header = Zeroizing::new([0; HEADER_LEN]);
            self.join(&channels, &mut *header);
            if let Some(len) = self.length(&header) {
                candidates.push(Candidate { channels, len });
            }
        }
        self.candidates = candidates;
        self.is_disputed = true;
        Ok(())
    }

    /// Verifies the records of the sets whose shares have come, each once, and with the first that is one goes on
    /// without the channels that contradict it.
    ///
    /// # Errors
    /// When no set is left.
    pub(super) fn settle(&mut self) -> Result<(), RecordError> {
        let mut left = Vec::new();
        for candidate in std::mem::take(&mut self.candidates) {
            let Candidate { channels, len } = &candidate;
            let all = |test: fn(&Self, usize, usize) -> bool| {
                channels.iter().all(|&channel| test(self, channel, *len))
            };
            if !all(|this, channel, _| !this.channels[channel].lost) {
                continue;
            }
            if !all(Self::has_brought) {
                left.push(candidate);
                continue;
            }
            self.join_plain(channels, *len);
            if record::verify(self.plain(*len)).is_ok() {
                self.lose_those_against(channels, *len);
                (self.record_len, self.is_disputed) = (Some(*len), false);
                return Ok(());
            }
        }
        self.candidates = left;
        if self.candidates.is_empty() { Err(RecordError::Tampered) } else { Ok(()) }
    }

    fn has_brought(&self, channel: usize, len: usize) -> bool {
        self.channels[channel].end >= self.start + len
    }

    /// Goes on without the channels that contradict the record that these have made.
    fn lose_those_against(&mut self, channels: &[usize], len: usize) {
        let record = Zeroizing::new(self.plain(len).to_vec());
        let others: Vec<usize> =
            self.live().filter(|channel| !channels.contains(channel)).collect();
        for other in others {
            if self.has_brought(other, len) && !self.agrees(other, channels, &record) {
                self.lose(other, Loss::Lied);
            }
        }
    }
}

/// All sets of `k` of `n` places, each in order. With 16 channels there are 12,870 at most.
struct Sets {
    n: usize,
    places: Option<Vec<usize>>,
}

impl Sets {
    fn new(n: usize, k: usize) -> Self {
        Self { n, places: (k <= n).then(|| (0..k).collect()) }
    }
}

impl Iterator for Sets {
    type Item = Vec<usize>;

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
            let mut all = std::collections::BTreeSet::new();
            for set in Sets::new(n, k) {
                assert!(set.is_sorted_by(|a, b| a < b) && set.iter().all(|&place| place < n));
                assert!(all.insert(set));
            }
            assert_eq!(all.len(), count, "{k} of {n}");
        }
    }
}
