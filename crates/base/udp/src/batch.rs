//! The datagrams that wait to be sent on one socket.
//!
//! They are stored back to back in one buffer, as generic segmentation offload needs them (GSO,
//! `UDP_SEGMENT`): the kernel splits a run of datagrams of one length, the last of which may be
//! shorter. A datagram is written here once, and sent from here.

use zeroize::Zeroizing;

/// The maximum number of datagrams in a run. Linux accepts no more.
const MAX_SEGMENTS: usize = 64;

/// The maximum length of a run in bytes: the longest UDP datagram of IPv4.
const MAX_RUN_LEN: usize = 65_507;

/// A batch is full at this number of bytes: four runs of the maximum length.
const FULL_LEN: usize = 1 << 18;

/// A batch is full at this number of runs, if datagrams have many different lengths.
const FULL_RUNS: usize = 1 << 10;

/// Datagrams that wait to be sent on one socket. Its memory is kept when it is cleared, is bounded
/// if nothing is reserved in a batch that [is full](Self::is_full), and is wiped on drop.
pub struct DatagramBatch {
    /// Never shortened, so that reserved bytes are not zeroed each time.
    bytes: Zeroizing<Vec<u8>>,
    /// The number of bytes that are datagrams.
    used: usize,
    runs: Vec<DatagramRun>,
}

/// Datagrams of one length, sent as one message with GSO.
#[derive(Clone, Copy)]
struct DatagramRun {
    start: usize,
    len: usize,
    /// The length of each datagram except the last.
    segment: usize,
}

impl Default for DatagramBatch {
    fn default() -> Self {
        // The maximum capacity, because memory that grows leaves copies behind. The system
        // allocates pages when they are first written.
        let bytes = Zeroizing::new(Vec::with_capacity(FULL_LEN + MAX_RUN_LEN));
        Self { bytes, used: 0, runs: Vec::new() }
    }
}

impl DatagramBatch {
    /// Adds a datagram of `len` bytes, which the caller must fill: their initial content is
    /// unspecified. Nothing is added if `len` is 0.
    pub fn reserve(&mut self, len: usize) -> &mut [u8] {
        let start = self.used;
        self.used += len;
        if self.bytes.len() < self.used {
            self.bytes.resize(self.used, 0);
        }
        match self.runs.last_mut() {
            Some(run) if run.has_room_for(len) => run.len += len,
            _ if len == 0 => {}
            _ => self.runs.push(DatagramRun { start, len, segment: len }),
        }
        &mut self.bytes[start..self.used]
    }

    /// Removes the datagram that was reserved last.
    pub fn remove_last(&mut self) {
        if let Some(run) = self.runs.last_mut() {
            let len = (run.len - 1) % run.segment + 1;
            run.len -= len;
            self.used -= len;
            if run.len == 0 {
                self.runs.pop();
            }
        }
    }

    /// The length of all datagrams, in bytes.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether there is no datagram.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Whether it is full: nothing more should be reserved before it is sent.
    pub fn is_full(&self) -> bool {
        self.used >= FULL_LEN || self.runs.len() >= FULL_RUNS
    }

    /// The datagrams in order, as runs: the bytes, and the length of each datagram except the last,
    /// which may be shorter. A run has at most 64 datagrams and 65,507 bytes, unless it is a single
    /// longer datagram.
    pub fn runs(&self) -> impl Iterator<Item = (&[u8], usize)> {
        self.runs.iter().map(|run| (&self.bytes[run.start..run.start + run.len], run.segment))
    }

    /// The position of a run's bytes, from the beginning of the batch.
    pub(crate) fn position_of(&self, bytes: &[u8]) -> Option<usize> {
        let position = bytes.as_ptr().addr().checked_sub(self.bytes.as_ptr().addr())?;
        (position < self.used).then_some(position)
    }

    /// Removes the datagrams before a position, which is the beginning of one.
    pub fn skip(&mut self, position: usize) {
        self.runs.retain_mut(|run| {
            let skipped = position.saturating_sub(run.start).min(run.len);
            run.start += skipped;
            run.len -= skipped;
            run.len > 0
        });
    }

    /// Removes all datagrams.
    pub fn clear(&mut self) {
        self.used = 0;
        self.runs.clear();
    }
}

impl DatagramRun {
    /// Whether a datagram of this length can be appended.
    fn has_room_for(&self, len: usize) -> bool {
        let is_open = self.len.is_multiple_of(self.segment);
        is_open
            && len <= self.segment
            && self.len / self.segment < MAX_SEGMENTS
            && self.len + len <= MAX_RUN_LEN
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(lengths: &[usize]) -> DatagramBatch {
        let mut batch = DatagramBatch::default();
        for (i, &len) in lengths.iter().enumerate() {
            batch.reserve(len).fill(u8::try_from(i % 251).unwrap());
        }
        batch
    }

    fn shapes(batch: &DatagramBatch) -> Vec<(usize, usize)> {
        batch.runs().map(|(bytes, segment)| (bytes.len(), segment)).collect()
    }

    #[test]
    fn runs_obey_the_limits_of_gso() {
        let shapes = |lengths: &[usize]| shapes(&filled(lengths));
        assert_eq!(shapes(&[]), []);
        assert_eq!(shapes(&[0]), []);
        assert_eq!(shapes(&[100; 65]), [(6400, 100), (100, 100)]);
        assert_eq!(shapes(&[1472; 45]), [(1472 * 44, 1472), (1472, 1472)]);
        // A shorter one is a run's last, a longer one another's first.
        assert_eq!(shapes(&[9, 9, 4, 4, 9]), [(22, 9), (4, 4), (9, 9)]);
        assert_eq!(shapes(&[9, 0, 9]), [(18, 9)]);
        assert_eq!(shapes(&[65_508, 1]), [(65_508, 65_508), (1, 1)]);
    }

    #[test]
    fn a_batch_becomes_full_and_is_empty_after_clear() {
        let mut batch = DatagramBatch::default();
        while !batch.is_full() {
            batch.reserve(1400).fill(1);
        }
        assert_eq!(batch.used, 188 * 1400);
        batch.clear();
        assert!(batch.is_empty() && !batch.is_full());
        assert_eq!(shapes(&batch), []);
        // Every 2 begins a run, which the 1 after it ends.
        while !batch.is_full() {
            batch.reserve(2);
            batch.reserve(1);
        }
        assert_eq!(batch.runs().count(), FULL_RUNS);
    }

    proptest! {
        #[test]
        fn the_runs_are_the_datagrams(
            lengths in prop::collection::vec(prop_oneof![1 => 1..3000_usize, 3 => Just(1400)], 0..150)
        ) {
            let batch = filled(&lengths);
            let mut sent = Vec::new();
            for (bytes, segment) in batch.runs() {
                prop_assert!(bytes.len() <= MAX_RUN_LEN);
                prop_assert!(bytes.len().div_ceil(segment) <= MAX_SEGMENTS);
                sent.extend(bytes.chunks(segment).map(<[u8]>::to_vec));
            }
            prop_assert_eq!(sent.len(), lengths.len());
            for (i, (datagram, &len)) in sent.iter().zip(&lengths).enumerate() {
                let expected = vec![u8::try_from(i % 251).unwrap(); len];
                prop_assert_eq!(datagram, &expected);
            }
        }

        #[test]
        fn skip_keeps_the_rest(
            lengths in prop::collection::vec(1..4_usize, 1..200), index in any::<prop::sample::Index>()
        ) {
            let first = index.index(lengths.len());
            let mut batch = filled(&lengths);
            batch.skip(lengths[..first].iter().sum());
            let left: Vec<u8> =
                batch.runs().flat_map(|(bytes, segment)| bytes.chunks(segment))
                .map(|datagram| datagram[0]).collect();
            let expected: Vec<u8> =
                (first..lengths.len()).map(|i| u8::try_from(i % 251).unwrap()).collect();
            prop_assert_eq!(left, expected);
        }

        #[test]
        fn withdraw_undoes_reserve(
            lengths in prop::collection::vec(1..4_usize, 0..200), last in 1..4_usize
        ) {
            let (before, mut after) = (filled(&lengths), filled(&lengths));
            after.reserve(last);
            after.remove_last();
            prop_assert_eq!(before.used, after.used);
            prop_assert_eq!(shapes(&before), shapes(&after));
        }
    }
}
