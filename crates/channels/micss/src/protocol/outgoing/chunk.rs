//! The shares of some consecutive records, and the data from which they can be recomputed.

use random::SharingSeed;
use sharing::{ShareSplitError, Splitter};

use crate::protocol::buffer::ZeroizingBuffer;

/// The maximum number of records in a chunk whose shares can be recomputed: each needs a seed.
const MAX_RECORDS: usize = 16;

/// The shares of some records.
pub(super) struct ShareChunk {
    /// The position of its first byte, preface included.
    pub(super) start: u64,
    /// The length of its shares.
    pub(super) len: usize,
    /// The shares, in one part for each channel. Empty if they have to be recomputed.
    pub(super) shares: ZeroizingBuffer,
    /// The data from which they can be recomputed.
    pub(super) records: Option<UnsharedRecords>,
}

/// All records of a chunk, before they are shared.
pub(super) struct UnsharedRecords {
    /// Each record is at its position in the shares.
    plain: ZeroizingBuffer,
    /// The lengths and the seeds of the records, in order.
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

    /// Whether its shares could still all be recomputed after one more record.
    pub(super) fn may_add_record(&self) -> bool {
        let few = |records: &UnsharedRecords| records.seeds.len() < MAX_RECORDS;
        self.records.as_ref().map_or(self.len == 0, few)
    }

    /// Keeps the next record, which is the first `len` bytes of `plain`, and its seed. Takes
    /// `plain` if it is the first record. Without a seed, nothing can be recomputed any more: then
    /// returns the memory of the earlier records.
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

    /// Recomputes the shares into `shares`: one part for each channel.
    ///
    /// # Errors
    /// If the number of parts is not the splitter's number of shares.
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
