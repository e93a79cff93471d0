//! Which shares are kept after channels have taken them, and the memory for them.

use super::chunk::{ShareChunk, UnsharedRecords};
use super::{MAX_KEPT, OutgoingRecords};
use crate::protocol::buffer::ZeroizingBuffer;
use crate::protocol::record::MAX_RECORD;

impl OutgoingRecords {
    /// Drops the shares that no channel needs any more, and those for which there is no memory, if
    /// enough channels have taken them.
    pub(super) fn drop_old(&mut self) {
        let Some(least) = self.taken.iter().flatten().copied().min() else { return };
        let unneeded = if self.keeps { least.min(self.acknowledged) } else { least };
        while self.chunks.len() > 1 {
            let oldest = &self.chunks[0];
            let (start, end) = (oldest.start, oldest.end());
            let may_drop = end <= unneeded
                || self.ahead_of(end) >= self.fewest
                    && (self.end - start > MAX_KEPT || !self.may_keep());
            if !may_drop {
                break;
            }
            self.drop_oldest();
        }
        if let [newest] = self.chunks.make_contiguous()
            && newest.end() <= unneeded
        {
            (newest.start, newest.len) = (self.end, 0);
            self.spare_plain.extend(newest.records.take().map(UnsharedRecords::into_memory));
        }
    }

    /// Drops the oldest chunk. Its memory can be reused.
    pub(super) fn drop_oldest(&mut self) {
        let Some(ShareChunk { shares, records, .. }) = self.chunks.pop_front() else { return };
        if shares.len() == MAX_RECORD * self.taken.len() {
            self.spare.push(shares);
        } else {
            self.held -= shares.len();
        }
        self.spare_plain.extend(records.map(UnsharedRecords::into_memory));
    }

    /// Frees the shares among the first `count` chunks that all channels have taken, if they can be
    /// recomputed.
    pub(super) fn free_shares(&mut self, count: usize) {
        let Some(least) = self.taken.iter().flatten().copied().min() else { return };
        for chunk in self.chunks.iter_mut().take(count) {
            if chunk.end() <= least && chunk.records.is_some() && !chunk.shares.is_empty() {
                self.spare.push(std::mem::take(&mut chunk.shares));
            }
        }
    }

    /// Recomputes the shares that a channel takes next, if they were freed.
    pub(super) fn make_again(&mut self, channel: usize) {
        let Some(taken) = self.taken[channel].filter(|&taken| taken < self.end) else { return };
        let place = self.chunks.partition_point(|chunk| chunk.end() <= taken);
        if self.chunks.get(place).is_none_or(|chunk| !chunk.shares.is_empty()) {
            return;
        }
        self.free_shares(self.chunks.len() - 1);
        let len = MAX_RECORD * self.taken.len();
        let shares = self.spare.pop().unwrap_or_else(|| {
            self.held += len;
            ZeroizingBuffer::new(len)
        });
        let made = self.chunks[place].resplit(&self.splitter, shares);
        made.expect("one part for each channel");
    }

    /// Frees the memory for further chunks.
    pub(super) fn free_spare(&mut self) {
        let spare = self.spare.iter().chain(&self.spare_plain);
        self.held -= spare.map(|spare| spare.len()).sum::<usize>();
        (self.spare, self.spare_plain) = Default::default();
    }

    /// Whether there is memory for the shares that are kept: for all but the newest.
    pub(super) fn may_keep(&mut self) -> bool {
        let newest = self.chunks.back().map_or(0, ShareChunk::size);
        if self.kept.resize(self.held - newest) {
            return true;
        }
        self.free_spare();
        self.kept.resize(self.held - newest)
    }

    /// The memory of a new chunk's shares. At the limit, the oldest chunk is dropped to reuse its
    /// memory, if enough channels have taken it: freeing memory and allocating it again would cost
    /// more than sharing.
    pub(super) fn next_buffer(&mut self) -> ZeroizingBuffer {
        let len = self.room * self.taken.len();
        let may_drop_oldest = self.room == MAX_RECORD
            && self.chunks.front().is_some_and(|oldest| {
                (oldest.shares.is_empty() || oldest.shares.len() == len)
                    && self.ahead_of(oldest.end()) >= self.fewest
            });
        let needs_memory = self.spare.is_empty() || self.spare_plain.is_empty();
        if needs_memory && may_drop_oldest && !self.kept.resize(self.held) {
            self.drop_oldest();
        }
        let spare = if self.room == MAX_RECORD { self.spare.pop() } else { None };
        spare.unwrap_or_else(|| {
            self.held += len;
            ZeroizingBuffer::new(len)
        })
    }

    /// The memory of a record that is to be shared.
    pub(super) fn next_plain(&mut self, len: usize) -> ZeroizingBuffer {
        let spare = if len == MAX_RECORD { self.spare_plain.pop() } else { None };
        self.held -= spare.as_ref().map_or(0, |spare| spare.len());
        spare.unwrap_or_else(|| ZeroizingBuffer::new(len))
    }

    /// Drops the newest chunk if it is empty.
    pub(super) fn drop_empty(&mut self) {
        if let Some(newest) = self.chunks.back()
            && newest.len == 0
        {
            self.held -= newest.shares.len();
            self.chunks.pop_back();
        }
    }
}
