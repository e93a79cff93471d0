//! The shares of some records that follow each other, and what they can be made of again.

use random::SharingSeed;
use sharing::{ShareSplitError, Splitter};

use crate::protocol::buffer::ZeroizingBuffer;

/// How many records a chunk has at most whose shares can be made again: each needs a seed.
const MAX_RECORDS: usize = 16;

/// The shares of some records.
pub(super) struct ShareChunk {
    /// How many bytes are before it, preface included.
    pub(super) start: u64,
    /// The length of its shares.
    pub(super) len: usize,
    /// The shares, in one part for each channel; empty if they have to be made again.
    pub(super) shares: ZeroizingBuffer,
    /// What they can be made of again.
    pub(super) records: Option<UnsharedRecords>,
}

/// Records before they are shared, which are all that a chunk has.
pub(super) struct UnsharedRecords {
    /// Each at its position in the shares.
    plain: ZeroizingBuffer,
    /// The lengths and the seeds, in their order.
    seeds: Vec<(usize, SharingSeed)>,
}

impl UnsharedRecords {
    pub(super) fn into_memory(self) -> ZeroizingBuffer {
        self.plain
    }
}

impl ShareChunk {
    pub(super) fn new(start: u64, shares: ZeroizingBuffer) -> Self {
        Self { start, len: 0, shares, records: None }
    }

    pub(super) fn end(&self) -> u64 {
        self.start + self.len as u64
    }

    /// Its memory, in bytes.
    pub(super) fn size(&self) -> usize {
        self.shares.len() + self.records.as_ref().map_or(0, |records| records.plain.len())
    }

    /// Whether the shares of all that it has can be made again if those of one more record can.
    pub(super) fn may_add_record(&self) -> bool {
        let few = |records: &UnsharedRecords| records.seeds.len() < MAX_RECORDS;
        self.records.as_ref().map_or(self.len == 0, few)
    }

    /// Keeps the next record, which is in the first `len` bytes of `plain`, and its seed. Takes
    /// `plain` if it is the first one. Without a seed, nothing can be made again: returns the
    /// memory of the records before.
    pub(super) fn add_record(
        &mut self,
        plain: &mut ZeroizingBuffer,
        len: usize,
        seed: Option<SharingSeed>,
    ) -> Option<ZeroizingBuffer> {
        match (seed, &mut self.records) {
            (None, records) => return records.take().map(UnsharedRecords::into_memory),
            (Some(seed), Some(records)) => {
                records.plain[self.len..][..len].copy_from_slice(&plain[..len]);
                records.seeds.push((len, seed));
            }
            (Some(seed), None) => {
                let plain = std::mem::take(plain);
                self.records = Some(UnsharedRecords { plain, seeds: vec![(len, seed)] });
            }
        }
        None
    }

    /// Makes the shares again, in `shares`: one part for each channel.
    ///
    /// # Errors
    /// If the parts are not as many as the splitter's shares.
    pub(super) fn resplit(
        &mut self,
        splitter: &Splitter,
        mut shares: ZeroizingBuffer,
    ) -> Result<(), ShareSplitError> {
        let Some(UnsharedRecords { plain, seeds }) = &self.records else { return Ok(()) };
        let part = plain.len();
        let mut at = 0;
        for (len, seed) in seeds {
            let place = at..at + len;
            let mut views: Vec<&mut [u8]> =
                shares.chunks_exact_mut(part).map(|share| &mut share[place.clone()]).collect();
            splitter.split_from_seed(&plain[place.clone()], &mut views, seed)?;
            at += len;
        }
        self.shares = shares;
        Ok(())
    }
}
