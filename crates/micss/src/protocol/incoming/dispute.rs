//! Channels that contradict each other: some carry other bytes than were sent. The tamper code says which
//! shares are right, as long as enough are.
//!
//! Finding them takes time, which strangers can cause as well. So it is done in slices, and a record that opens
//! a stream gets far fewer tries than one of a stream that runs.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::task::Poll;
use std::vec;

use sharing::locate;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{Incoming, Loss};
use crate::protocol::record::{self, HEADER_LEN, MAX_OPENING, RecordError};

/// How many sets of shares are looked at for one record. With up to 14 channels these are all; of more they are
/// chosen at random, so that nobody can arrange to be in each.
const MAX_SETS: usize = 4000;

/// The same for a record that opens a stream. With up to 9 channels these are all.
const MAX_OPENING_SETS: usize = 128;

/// How many bytes are joined in one go, each set counted with [`SET_COST`] more.
const SLICE: usize = 64 << 10;

/// What choosing a set costs, in bytes joined.
const SET_COST: usize = 500;

/// The search for the channels that are right about a record.
#[derive(Default)]
pub(super) struct Dispute {
    /// How many of its bytes all channels have brought, as far as they are looked at to begin with. Nothing:
    /// the search has begun.
    begins_with: Option<usize>,
    /// Sets of channels whose header was not looked at yet, one bit each.
    sets: vec::IntoIter<u16>,
    /// Sets whose header may be one, and whose record was not verified yet.
    candidates: VecDeque<Candidate>,
    /// Those of them whose shares had not all come when they were looked at last.
    waiting: Vec<Candidate>,
}

/// A set of channels that may make the next record, one bit each, and how long it is by their header.
struct Candidate {
    channels: u16,
    len: u16,
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

    /// The next record's header, or all of it, of which so many bytes have come on every channel, is not one.
    /// From here on the sets of shares are looked for that may still make it.
    ///
    /// # Errors
    /// When all shares are needed, or there is no memory for a long record.
    pub(super) fn dispute(&mut self, len: usize) -> Result<(), RecordError> {
        if !self.has_spare() {
            return Err(RecordError::Tampered);
        }
        self.record_len = None;
        if self.room < self.longest + HEADER_LEN {
            self.grow()?;
        }
        self.compact();
        let begins_with = Some(len.min(MAX_OPENING));
        self.dispute = Some(Dispute { begins_with, ..Dispute::default() });
        Ok(())
    }

    /// The sets that are looked at, by so many bytes of the record.
    fn sets(&self, len: usize) -> Vec<u16> {
        let max = if self.is_opening() { MAX_OPENING_SETS } else { MAX_SETS };
        let mut sets = sets(&self.live().collect::<Vec<_>>(), self.threshold, max);
        if let Some(majority) = self.majority(len) {
            sets.retain(|set| *set != majority);
            sets.insert(0, majority);
        }
        sets
    }

    /// A set of those that are right about the record's first bytes, if so few are wrong that the others outvote
    /// them.
    fn majority(&self, len: usize) -> Option<u16> {
        let live: Vec<usize> = self.live().collect();
        let coordinate =
            |&channel: &usize| u8::try_from(channel + 1).expect("at most MAX_CHANNELS");
        let coordinates: Vec<u8> = live.iter().map(coordinate).collect();
        let share = |&channel: &usize| &self.buffer[self.room * channel + self.start..][..len];
        let shares: Vec<&[u8]> = live.iter().map(share).collect();
        let mut record = Zeroizing::new(vec![0; len]);
        let sharing = self.joiner.sharing();
        let wrong = locate::correct(sharing, &coordinates, &shares, &mut record).ok()?;
        let right = live.iter().zip(&coordinates).filter(|(_, x)| !wrong.contains(x));
        let right: Vec<usize> = right.map(|(&channel, _)| channel).take(self.threshold).collect();
        (right.len() == self.threshold).then(|| set(right))
    }

    /// Looks on, for a slice. Verifies the records of the sets whose shares have come, each once, and with the
    /// first that is one goes on without the channels that contradict it. Pending: to be called again at once.
    ///
    /// # Errors
    /// When no set is left.
    pub(super) fn settle(&mut self) -> Result<Poll<()>, RecordError> {
        let Some(mut dispute) = self.dispute.take() else { return Ok(Poll::Ready(())) };
        if let Some(len) = dispute.begins_with.take() {
            dispute.sets = self.sets(len).into_iter();
            self.dispute = Some(dispute);
            return Ok(Poll::Pending);
        }
        let mut left = SLICE;
        while let Some(channels) = dispute.sets.next() {
            let mut header = Zeroizing::new([0; HEADER_LEN]);
            self.join(&places(channels), &mut *header);
            let len = self.length(&header).and_then(|len| u16::try_from(len).ok());
            if let Some(len) = len {
                dispute.candidates.push_back(Candidate { channels, len });
            }
            left = left.saturating_sub(HEADER_LEN + SET_COST);
            if left == 0 {
                self.dispute = Some(dispute);
                return Ok(Poll::Pending);
            }
        }
        if dispute.candidates.is_empty() {
            dispute.candidates = std::mem::take(&mut dispute.waiting).into();
        }
        let (mut looked, mut brought, mut ended) = (None, 0, 0);
        while let Some(candidate) = dispute.candidates.pop_front() {
            let Candidate { channels, len } = candidate;
            let len = usize::from(len);
            // Most of them are of one length.
            if looked.replace(len) != Some(len) {
                (brought, ended) = self.who_has(len);
            }
            if channels & ended != 0 {
                continue;
            }
            if channels & brought != channels {
                dispute.waiting.push(candidate);
                continue;
            }
            self.join_plain(&places(channels), len);
            if record::verify(self.plain(len)).is_ok() {
                self.lose_those_against(&places(channels), len);
                self.record_len = Some(len);
                return Ok(Poll::Ready(()));
            }
            left = left.saturating_sub(len + SET_COST);
            if left == 0 {
                self.dispute = Some(dispute);
                return Ok(Poll::Pending);
            }
        }
        if dispute.waiting.is_empty() {
            return Err(RecordError::Tampered);
        }
        self.dispute = Some(dispute);
        Ok(Poll::Ready(()))
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

/// Sets of `k` of these channels, each once: all, or `max` at random.
fn sets(channels: &[usize], k: usize, max: usize) -> Vec<u16> {
    let n = channels.len();
    // Never more than a u16 has bits, so nothing overflows.
    let count = (0..k.min(n)).fold(1, |count, i| count * (n - i) / (i + 1));
    if k > n {
        return Vec::new();
    }
    if count > max {
        let (random, mut known) = (RandomState::new(), HashSet::new());
        return (0_u64..)
            .map(|number| at_random(channels, k, random.hash_one(number)))
            .filter(|set| known.insert(*set))
            .take(max)
            .collect();
    }
    let mut chosen: Vec<usize> = (0..k).collect();
    let mut sets = Vec::with_capacity(count);
    loop {
        sets.push(set(chosen.iter().map(|&place| channels[place])));
        // The first member that can move up does, and those before it begin again.
        let is_last = |i: usize| chosen[i] + 1 == chosen.get(i + 1).copied().unwrap_or(n);
        let Some(i) = (0..k).find(|&i| !is_last(i)) else { return sets };
        chosen[i] += 1;
        (0..i).for_each(|before| chosen[before] = before);
    }
}

/// `k` of these channels, as a random number chooses them.
fn at_random(channels: &[usize], k: usize, mut random: u64) -> u16 {
    let mut left = channels.to_vec();
    let mut choose = || {
        let among = left.len() as u64;
        let place = usize::try_from(random % among).expect("less than there are");
        random /= among;
        left.swap_remove(place)
    };
    set((0..k).map(|_| choose()).collect::<Vec<_>>())
}

/// The set of these channels.
fn set(channels: impl IntoIterator<Item = usize>) -> u16 {
    channels.into_iter().fold(0, |set, channel| set | 1 << channel)
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
            let sets = sets(&(0..n).collect::<Vec<_>>(), k, MAX_SETS);
            assert!(sets.is_sorted_by(|a, b| a < b), "each once");
            assert!(sets.iter().all(|&set| places(set).len() == k));
            assert_eq!(sets.len(), count, "{k} of {n}");
        }
        assert_eq!(sets(&[1, 3, 4], 2, 3), [0b0_1010, 0b1_0010, 0b1_1000]);
        for max in [MAX_SETS, MAX_OPENING_SETS] {
            let mut some = sets(&(0..16).collect::<Vec<_>>(), 8, max);
            // Else they would be those of some channels only.
            for channel in 0..16 {
                let with = some.iter().filter(|&&set| set & (1 << channel) != 0).count();
                assert!((max / 4..=max * 3 / 4).contains(&with), "{channel} in {with} of {max}");
            }
            assert!(some.iter().all(|&set| places(set).len() == 8));
            some.sort_unstable();
            some.dedup();
            assert_eq!(some.len(), max);
        }
        assert_eq!(sets(&(0..9).collect::<Vec<_>>(), 4, MAX_OPENING_SETS).len(), 126);
    }
}
