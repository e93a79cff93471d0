//! Channels that contradict each other: some carry other bytes than were sent. The tamper code says which
//! shares are right, as long as enough are.

use std::hash::{BuildHasher, RandomState};

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{Incoming, Loss};
use crate::record::{self, HEADER_LEN, RecordError};

/// How many sets of shares are looked at for one record. With up to 14 channels these are all; of more they are
/// chosen at random, so that nobody can arrange to be in each.
const MAX_SETS: usize = 4000;

/// A set of channels that may make the next record, one bit each, and how long it is by their header.
pub(super) struct Candidate {
    channels: u16,
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
        if self.room < self.longest + HEADER_LEN {
            self.grow();
        }
        self.compact();
        self.candidates.clear();
        for channels in sets(self.live().collect(), self.threshold) {
            let mut header = Zeroizing::new([0; HEADER_LEN]);
            self.join(&places(channels), &mut *header);
            if let Some(len) = self.length(&header) {
                self.candidates.push(Candidate { channels, len });
            }
        }
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
        let (mut looked, mut brought, mut ended) = (None, 0, 0);
        for candidate in std::mem::take(&mut self.candidates) {
            let Candidate { channels, len } = candidate;
            // Most of them are of one length.
            if looked.replace(len) != Some(len) {
                (brought, ended) = self.who_has(len);
            }
            if channels & ended != 0 {
                continue;
            }
            if channels & brought != channels {
                left.push(candidate);
                continue;
            }
            self.join_plain(&places(channels), len);
            if record::verify(self.plain(len)).is_ok() {
                self.lose_those_against(&places(channels), len);
                (self.record_len, self.is_disputed) = (Some(len), false);
                return Ok(());
            }
        }
        self.candidates = left;
        if self.candidates.is_empty() { Err(RecordError::Tampered) } else { Ok(()) }
    }

    /// The channels that have brought so many bytes, and those that never will.
    fn who_has(&self, len: usize) -> (u16, u16) {
        let (mut brought, mut ended) = (0, 0);
        for (index, channel) in self.channels.iter().enumerate() {
            let has_brought = !channel.lost && channel.end >= self.start + len;
            brought |= u16::from(has_brought) << index;
            ended |= u16::from(!has_brought && channel.closed) << index;
        }
        (brought, ended)
    }

    /// Goes on without the channels whose bytes, as far as they have come, contradict the record that these have
    /// made.
    fn lose_those_against(&mut self, channels: &[usize], len: usize) {
        let record = Zeroizing::new(self.plain(len).to_vec());
        let others: Vec<usize> =
            self.live().filter(|channel| !channels.contains(channel)).collect();
        for other in others {
            let has = len.min(self.channels[other].end - self.start);
            if !self.agrees(other, channels, &record[..has]) {
                self.lose(other, Loss::Lied);
            }
        }
    }
}

/// Sets of `k` of these channels: all, or so many at random.
fn sets(channels: Vec<usize>, k: usize) -> Vec<u16> {
    let all: u16 = channels.into_iter().map(|channel| 1 << channel).sum();
    let is_set = |set: &u16| set & !all == 0 && set.count_ones() as usize == k;
    let mut sets: Vec<u16> = (0..=all).filter(is_set).collect();
    if sets.len() > MAX_SETS {
        let order = RandomState::new();
        sets.sort_by_cached_key(|set| order.hash_one(set));
        sets.truncate(MAX_SETS);
    }
    sets
}

/// The channels of a set.
fn places(set: u16) -> Vec<usize> {
    (0..16).filter(|channel| set & (1 << channel) != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_all_or_as_many_as_are_looked_at() {
        for (n, k, count) in [(3, 2, 3), (5, 3, 10), (4, 4, 1), (4, 1, 4), (2, 3, 0), (14, 7, 3432)]
        {
            let sets = sets((0..n).collect(), k);
            assert!(sets.is_sorted_by(|a, b| a < b), "each once");
            assert!(sets.iter().all(|&set| places(set).len() == k));
            assert_eq!(sets.len(), count, "{k} of {n}");
        }
        assert_eq!(sets(vec![1, 3, 4], 2), [0b0_1010, 0b1_0010, 0b1_1000]);
        let mut some = sets((0..16).collect(), 8);
        // Else they would be those of the first channels.
        assert!(some.iter().filter(|&&set| set & 1 == 0).count() > 1500);
        some.sort_unstable();
        some.dedup();
        assert_eq!(some.len(), MAX_SETS);
    }
}
