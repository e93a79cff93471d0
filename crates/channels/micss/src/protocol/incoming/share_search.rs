//! Finds the right channels when channels contradict each other, because some carry changed bytes.
//! The tamper code identifies the right shares, as long as there are enough.
//!
//! The search takes time, and unauthenticated senders can cause it as well. So it runs in slices,
//! and a record that opens a stream gets far fewer attempts than one of an open stream.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hasher};
use std::task::Poll;
use std::vec;

use sharing::locate;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::shares::{ChannelLossReason, IncomingShares};
use crate::protocol::record::{self, HEADER_LEN, MAX_OPENING, MicssRecordError};

/// The maximum number of sets of shares that are tried for one record. With up to 14 channels these
/// are all sets. With more channels, sets are selected at random, so that no channel is in every
/// set by design.
const MAX_SETS: usize = 4000;

/// The same for a record that opens a stream. With up to 9 channels these are all sets.
const MAX_OPENING_SETS: usize = 128;

/// How many bytes are joined in one slice, plus [`SET_COST`] for each set.
const SLICE: usize = 64 << 10;

/// The cost of selecting a set, in joined bytes.
const SET_COST: usize = 500;

/// The length of the seed of an [`Incoming`](super::IncomingRecords), in bytes.
pub const SEED_LEN: usize = 16;

/// Selects sets of shares at random, so that an attacker cannot predict them. Not for secrets:
/// others must only not know the seed.
pub(super) struct RandomShareSets {
    seed: [u8; SEED_LEN],
    drawn: u64,
}

impl RandomShareSets {
    /// The selection that follows from a seed.
    pub(super) fn new(seed: [u8; SEED_LEN]) -> Self {
        Self { seed, drawn: 0 }
    }

    /// A number that cannot be predicted without the seed.
    fn draw(&mut self) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.seed);
        hasher.write_u64(self.drawn);
        self.drawn += 1;
        hasher.finish()
    }
}

/// The search for the right channels of a record.
pub(super) struct CorrectShareSearch {
    /// The maximum length of the record.
    longest: usize,
    /// How many bytes of it had arrived on all channels in use at the start. `None` once the search
    /// has begun.
    first_len: Option<usize>,
    /// Sets of channels whose header was not read yet, one bit for each channel.
    sets: vec::IntoIter<u16>,
    /// Sets whose header is possible, and whose record was not verified yet.
    candidates: VecDeque<CandidateShareSet>,
    /// Those of them whose shares had not all arrived at the last check.
    waiting: Vec<CandidateShareSet>,
    /// The set that forms the valid record.
    found: Option<CandidateShareSet>,
    /// Which channels contradict it, once the record has arrived on all.
    suspicion: Option<SuspectChannels>,
}

/// Channels that contradict a record, and the sets of shares that may clear them.
///
/// Coordinated changes on several channels can leave the joined record unchanged for some sets;
/// then right channels contradict it. Two polynomials of degree below k that have the same secret
/// agree in at most k - 2 shares, so at least two of k right channels contradict a set with changed
/// ones. So a channel that contradicts alone is wrong. So are as many as majority decoding
/// corrects, if no more are changed. If more contradict, those are wrong that are in no set that
/// forms the record.
struct SuspectChannels {
    /// One bit for each channel.
    suspects: u16,
    sets: vec::IntoIter<u16>,
    record: Zeroizing<Vec<u8>>,
}

/// A set of channels that may form the next record, one bit each, and the record's length by their
/// header.
struct CandidateShareSet {
    channels: u16,
    len: u16,
}

impl CorrectShareSearch {
    /// Starts a search for the next record, which has at most `longest` bytes: `len` bytes of it
    /// have arrived on every channel, and are not valid.
    ///
    /// # Errors
    /// If all shares are needed, or there is no memory for a long record.
    pub(super) fn new(
        shares: &mut IncomingShares,
        longest: usize,
        len: usize,
    ) -> Result<Self, MicssRecordError> {
        if !shares.has_spare() {
            return Err(MicssRecordError::Tampered);
        }
        if shares.room < longest + HEADER_LEN {
            shares.grow()?;
        }
        shares.compact();
        let first_len = Some(len.min(MAX_OPENING));
        Ok(Self {
            longest,
            first_len,
            sets: Vec::new().into_iter(),
            candidates: VecDeque::new(),
            waiting: Vec::new(),
            found: None,
            suspicion: None,
        })
    }

    /// Runs a slice of the search. Verifies the records of the sets whose shares have arrived, each
    /// once. Returns the length of the first valid one. `None`: more shares must arrive first.
    /// Pending: call it again at once.
    ///
    /// # Errors
    /// If no set is left.
    pub(super) fn find_valid_record(
        &mut self,
        shares: &mut IncomingShares,
        random: &mut RandomShareSets,
    ) -> Result<Poll<Option<usize>>, MicssRecordError> {
        if let Some(found) = &self.found {
            return Ok(Poll::Ready(Some(found.len.into())));
        }
        if let Some(len) = self.first_len.take() {
            self.sets = sets_to_try(shares, self.longest, len, random).into_iter();
            return Ok(Poll::Pending);
        }
        let mut left = SLICE;
        for channels in self.sets.by_ref() {
            let mut header = Zeroizing::new([0; HEADER_LEN]);
            shares.join(&members(channels), &mut *header);
            let len = record::length_within(&header, self.longest);
            if let Some(len) = len.and_then(|len| u16::try_from(len).ok()) {
                self.candidates.push_back(CandidateShareSet { channels, len });
            }
            left = left.saturating_sub(HEADER_LEN + SET_COST);
            if left == 0 {
                return Ok(Poll::Pending);
            }
        }
        if self.candidates.is_empty() {
            self.candidates = std::mem::take(&mut self.waiting).into();
        }
        let (mut looked, mut brought, mut ended) = (None, 0, 0);
        while let Some(candidate) = self.candidates.pop_front() {
            let CandidateShareSet { channels, len } = candidate;
            let len = usize::from(len);
            // Most of them have the same length.
            if looked.replace(len) != Some(len) {
                (brought, ended) = who_has(shares, len);
            }
            if channels & ended != 0 {
                continue;
            }
            if channels & brought != channels {
                self.waiting.push(candidate);
                continue;
            }
            shares.join_plain(&members(channels), len);
            if record::verify(shares.plain(len)).is_ok() {
                self.found = Some(candidate);
                return Ok(Poll::Ready(Some(len)));
            }
            left = left.saturating_sub(len + SET_COST);
            if left == 0 {
                return Ok(Poll::Pending);
            }
        }
        if self.waiting.is_empty() {
            Err(MicssRecordError::Tampered)
        } else {
            Ok(Poll::Ready(None))
        }
    }

    /// Runs a slice of the search for wrong channels, once the record that was found has arrived on
    /// all. At its end, drops them, and returns the channels to join the record from. `None`: one
    /// of these was lost in the meantime. Pending: call it again at once.
    pub(super) fn find_wrong_channels(
        &mut self,
        shares: &mut IncomingShares,
        random: &mut RandomShareSets,
    ) -> Poll<Option<Vec<usize>>> {
        let Some(CandidateShareSet { channels, len }) = self.found else {
            return Poll::Ready(None);
        };
        let (right, len) = (members(channels), usize::from(len));
        if right.iter().any(|&channel| shares.channels[channel].lost) {
            return Poll::Ready(None);
        }
        let mut suspicion = match self.suspicion.take() {
            Some(suspicion) => suspicion,
            None => SuspectChannels::new(shares, &right, (self.longest, len), random),
        };
        let mut left = SLICE;
        while let Some(set) = suspicion.sets.next()
            && suspicion.suspects != 0
        {
            if set & suspicion.suspects == 0 {
                continue;
            }
            shares.join_plain(&members(set), len);
            if bool::from(shares.plain(len).ct_eq(&suspicion.record)) {
                suspicion.suspects &= !set;
            }
            left = left.saturating_sub(len + SET_COST);
            if left == 0 {
                self.suspicion = Some(suspicion);
                return Poll::Pending;
            }
        }
        for channel in members(suspicion.suspects) {
            shares.lose(channel, ChannelLossReason::Tampered);
        }
        Poll::Ready(Some(right))
    }
}

impl SuspectChannels {
    /// The channels that contradict the record of `len` bytes that the channels of `right` form.
    fn new(
        shares: &mut IncomingShares,
        right: &[usize],
        (longest, len): (usize, usize),
        random: &mut RandomShareSets,
    ) -> Self {
        shares.join_plain(right, len);
        let record = Zeroizing::new(shares.plain(len).to_vec());
        // Except channels that have returned since, and have not brought it.
        let brought: Vec<usize> = shares.awaited().collect();
        let others = brought.iter().copied().filter(|channel| !right.contains(channel));
        let contradicts = |&channel: &usize| !shares.agrees(channel, right, &record);
        let suspects: Vec<usize> = others.filter(contradicts).collect();
        let outvoted = brought.len().saturating_sub(shares.threshold) / 2;
        let sets = if suspects.len() <= outvoted.max(1) {
            Vec::new()
        } else {
            sets_to_try(shares, longest, len.min(MAX_OPENING), random)
        };
        Self { suspects: set(suspects), sets: sets.into_iter(), record }
    }
}

/// The sets to try for a record of at most `longest` bytes, of which every channel has `len`.
fn sets_to_try(
    shares: &IncomingShares,
    longest: usize,
    len: usize,
    random: &mut RandomShareSets,
) -> Vec<u16> {
    let max = if longest == MAX_OPENING { MAX_OPENING_SETS } else { MAX_SETS };
    let mut sets = sets(&shares.awaited().collect::<Vec<_>>(), shares.threshold, max, random);
    if let Some(majority) = majority(shares, len) {
        sets.retain(|set| *set != majority);
        sets.insert(0, majority);
    }
    sets
}

/// A set of channels that are right about the record's first bytes, if the majority can outvote the
/// wrong ones.
fn majority(shares: &IncomingShares, len: usize) -> Option<u16> {
    let brought: Vec<usize> = shares.awaited().collect();
    let coordinate = |&channel: &usize| u8::try_from(channel + 1).expect("at most MAX_CHANNELS");
    let coordinates: Vec<u8> = brought.iter().map(coordinate).collect();
    let share = |&channel: &usize| &shares.buffer[shares.room * channel + shares.start..][..len];
    let parts: Vec<&[u8]> = brought.iter().map(share).collect();
    let mut record = Zeroizing::new(vec![0; len]);
    let sharing = shares.joiner.sharing();
    let wrong = locate::correct(sharing, &coordinates, &parts, &mut record).ok()?;
    let right = brought.iter().zip(&coordinates).filter(|(_, x)| !wrong.contains(x));
    let right: Vec<usize> = right.map(|(&channel, _)| channel).take(shares.threshold).collect();
    (right.len() == shares.threshold).then(|| set(right))
}

/// The channels that have brought `len` bytes, and those that never will.
fn who_has(shares: &IncomingShares, len: usize) -> (u16, u16) {
    let (mut brought, mut ended) = (0, 0);
    for (index, channel) in shares.channels.iter().enumerate() {
        let has_brought = !channel.lost && channel.end >= shares.start + len;
        brought |= u16::from(has_brought) << index;
        ended |= u16::from(!has_brought && channel.closed) << index;
    }
    (brought, ended)
}

/// Sets of `k` of these channels, each once: all, or `max` of them at random.
fn sets(channels: &[usize], k: usize, max: usize, random: &mut RandomShareSets) -> Vec<u16> {
    let n = channels.len();
    // A `u16` has at most 16 bits, so nothing overflows.
    let count = (0..k.min(n)).fold(1, |count, i| count * (n - i) / (i + 1));
    if k > n {
        return Vec::new();
    }
    if count > max {
        let mut known = HashSet::new();
        return std::iter::repeat_with(|| at_random(channels, k, random.draw()))
            .filter(|set| known.insert(*set))
            .take(max)
            .collect();
    }
    let mut chosen: Vec<usize> = (0..k).collect();
    let mut sets = Vec::with_capacity(count);
    loop {
        sets.push(set(chosen.iter().map(|&place| channels[place])));
        // The first member that can move up does, and those before it start again.
        let is_last = |i: usize| chosen[i] + 1 == chosen.get(i + 1).copied().unwrap_or(n);
        let Some(i) = (0..k).find(|&i| !is_last(i)) else { return sets };
        chosen[i] += 1;
        (0..i).for_each(|before| chosen[before] = before);
    }
}

/// `k` of these channels, selected by a random number.
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
fn members(set: u16) -> Vec<usize> {
    (0..16).filter(|channel| set & (1 << channel) != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_sets_are_exhaustive_or_limited_to_the_maximum() {
        let random = &mut RandomShareSets::new([7; SEED_LEN]);
        for (n, k, count) in [(3, 2, 3), (5, 3, 10), (4, 4, 1), (4, 1, 4), (2, 3, 0), (14, 7, 3432)]
        {
            let sets = sets(&(0..n).collect::<Vec<_>>(), k, MAX_SETS, random);
            assert!(sets.is_sorted_by(|a, b| a < b), "each once");
            assert!(sets.iter().all(|&set| members(set).len() == k));
            assert_eq!(sets.len(), count, "{k} of {n}");
        }
        assert_eq!(sets(&[1, 3, 4], 2, 3, random), [0b0_1010, 0b1_0010, 0b1_1000]);
        for max in [MAX_SETS, MAX_OPENING_SETS] {
            let mut some = sets(&(0..16).collect::<Vec<_>>(), 8, max, random);
            // Otherwise the bits would belong to some channels only.
            for channel in 0..16 {
                let with = some.iter().filter(|&&set| set & (1 << channel) != 0).count();
                assert!((max / 4..=max * 3 / 4).contains(&with), "{channel} in {with} of {max}");
            }
            assert!(some.iter().all(|&set| members(set).len() == 8));
            some.sort_unstable();
            some.dedup();
            assert_eq!(some.len(), max);
        }
        assert_eq!(sets(&(0..9).collect::<Vec<_>>(), 4, MAX_OPENING_SETS, random).len(), 126);
    }
}
