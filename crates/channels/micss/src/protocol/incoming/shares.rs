//! The shares of a stream that have arrived and were not used yet: a buffer for each channel, all
//! starting at the same position, and the channels that are not lost.

use std::collections::VecDeque;

use sharing::{Joiner, SharingParameters};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::protocol::buffer::ZeroizingBuffer;
use crate::protocol::memory::MemoryLease;
use crate::protocol::record::{HEADER_LEN, MAX_RECORD, MicssRecordError, SMALL_RECORD};

/// Why a channel was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelLossReason {
    /// It has not joined the association.
    #[error("its list did not arrive, or is a different one")]
    Missing,
    /// It ended before the stream.
    #[error("it has ended")]
    Ended,
    /// It broke.
    #[error("it is broken")]
    Broken,
    /// Its share of a record did not arrive, although enough others did.
    #[error("it is stuck")]
    Stalled,
    /// It is too far behind the others.
    #[error("it is slower than the others")]
    Slow,
    /// It carried changed bytes.
    #[error("TAMPERING: it carries other bytes than were sent")]
    Tampered,
}

/// The shares that have arrived, and the channels that bring them.
pub(super) struct IncomingShares {
    pub(super) joiner: Joiner,
    /// The number of shares that are needed.
    pub(super) threshold: usize,
    /// Whether channels may be lost, as long as enough are left.
    pub(super) may_lose: bool,
    /// Channels that were lost, until the caller takes them.
    pub(super) losses: VecDeque<(usize, ChannelLossReason)>,
    pub(super) channels: Vec<ChannelShareProgress>,
    /// How much of each part was consumed. It is the same for all channels.
    pub(super) start: usize,
    /// How many bytes of each channel were consumed since the stream began.
    pub(super) position: u64,
    /// The length of each part, in bytes.
    pub(super) room: usize,
    /// The channels' shares, then the joined record: `n + 1` parts of equal length. Takes no memory
    /// until a share arrives.
    pub(super) buffer: ZeroizingBuffer,
    /// The limit of the buffer's memory, if there is one.
    pub(super) lease: MemoryLease,
}

/// The progress of one channel.
#[derive(Clone, Default)]
pub(super) struct ChannelShareProgress {
    /// How many bytes of its part of the buffer are filled.
    pub(super) end: usize,
    pub(super) closed: bool,
    pub(super) lost: bool,
    /// Whether the next record does not wait for its share, which is late.
    pub(super) skipped: bool,
    /// How many bytes it still has to bring of records that were taken without its share. They are
    /// dropped when they arrive.
    pub(super) behind: u64,
    /// How many such bytes were dropped.
    pub(super) dropped: u64,
    /// The position from which a lost channel takes part again.
    pub(super) joins_at: Option<u64>,
}

impl IncomingShares {
    /// No shares yet. Records are joined by `sharing`.
    pub(super) fn new(sharing: SharingParameters) -> Self {
        Self {
            joiner: Joiner::new(sharing),
            threshold: sharing.threshold().into(),
            may_lose: true,
            losses: VecDeque::new(),
            channels: vec![ChannelShareProgress::default(); usize::from(sharing.shares())],
            start: 0,
            position: 0,
            room: SMALL_RECORD,
            buffer: ZeroizingBuffer::default(),
            lease: MemoryLease::default(),
        }
    }

    /// Continues without a channel, if possible. Returns whether it is possible.
    pub(super) fn lose(&mut self, channel: usize, why: ChannelLossReason) -> bool {
        if self.channels[channel].lost {
            if self.channels[channel].joins_at.take().is_some() {
                self.losses.push_back((channel, why));
            }
            return true;
        }
        let possible = self.has_spare();
        if possible {
            self.channels[channel] = ChannelShareProgress {
                closed: true,
                lost: true,
                ..ChannelShareProgress::default()
            };
            self.losses.push_back((channel, why));
            if self.awaited().count() < self.threshold {
                self.wait_for_all();
            }
        }
        possible
    }

    /// The position of the next byte that a channel must bring.
    pub(super) fn received(&self, channel: usize) -> u64 {
        let ChannelShareProgress { end, lost, behind, .. } = self.channels[channel];
        let is_level = !lost && behind == 0;
        self.position + if is_level { (end - self.start) as u64 } else { 0 }
    }

    /// Records that a channel's connection was replaced by one whose first byte is at this
    /// position. Returns false, and changes nothing, if it is too late for a channel that is
    /// needed.
    pub(super) fn rejoin(&mut self, channel: usize, from: u64) -> bool {
        let received = self.received(channel);
        let (is_lost, start) = (self.channels[channel].lost, self.start);
        let ChannelShareProgress { end, behind, skipped, .. } = self.channels[channel];
        if from > received {
            if !is_lost && !self.has_spare() {
                return false;
            }
            let (lost, closed, joins_at) = (true, true, Some(from));
            self.channels[channel] =
                ChannelShareProgress { closed, lost, joins_at, ..ChannelShareProgress::default() };
            return true;
        }
        self.channels[channel] = ChannelShareProgress {
            end: if is_lost || behind > 0 { start } else { end },
            skipped: is_lost || skipped,
            behind: received - from,
            ..ChannelShareProgress::default()
        };
        true
    }

    /// Makes the next record wait for all channels that are not lost.
    pub(super) fn wait_for_all(&mut self) {
        self.channels.iter_mut().for_each(|channel| channel.skipped = false);
    }

    /// Whether the stream can continue with one channel fewer.
    pub(super) fn has_spare(&self) -> bool {
        self.may_lose && self.live().count() > self.threshold
    }

    /// The channels that are not lost.
    pub(super) fn live(&self) -> impl Iterator<Item = usize> {
        (0..self.channels.len()).filter(|&channel| !self.channels[channel].lost)
    }

    /// Those of them for which the next record waits.
    pub(super) fn awaited(&self) -> impl Iterator<Item = usize> {
        self.live().filter(|&channel| !self.channels[channel].skipped)
    }

    /// How many bytes of the next record have arrived on every channel for which it waits.
    pub(super) fn available(&self) -> usize {
        let end = self.awaited().map(|channel| self.channels[channel].end).min();
        end.unwrap_or(self.start) - self.start
    }

    /// Records that a channel has brought `len` bytes, which are in its part. Drops those of
    /// earlier records.
    pub(super) fn fill(&mut self, channel: usize, len: usize) {
        let ChannelShareProgress { end, behind, dropped, .. } = &mut self.channels[channel];
        let late = usize::try_from(*behind).unwrap_or(len).min(len);
        if late > 0 {
            (*behind, *dropped) = (*behind - late as u64, *dropped + late as u64);
            let place = self.room * channel + *end;
            self.buffer.copy_within(place + late..place + len, place);
        }
        *end += len - late;
    }

    /// Consumes the next `len` bytes of all channels. Channels that have not brought them are
    /// behind, and skipped until they have caught up. A channel that has brought them is not
    /// skipped, even if it is behind because it repeats bytes.
    pub(super) fn consume(&mut self, len: usize) {
        self.start += len;
        self.position += len as u64;
        let (start, position) = (self.start, self.position);
        for channel in &mut self.channels {
            if let Some(behind) = channel.joins_at.and_then(|at| position.checked_sub(at)) {
                *channel = ChannelShareProgress {
                    end: start,
                    skipped: true,
                    behind,
                    ..ChannelShareProgress::default()
                };
            }
        }
        for channel in self.channels.iter_mut().filter(|channel| !channel.lost) {
            let missing = self.start.saturating_sub(channel.end);
            channel.behind += missing as u64;
            channel.end += missing;
            channel.skipped = channel.behind > 0 && (channel.skipped || missing > 0);
        }
    }

    /// The first `len` bytes of the record that was last joined into the last part of the buffer.
    pub(super) fn plain(&self, len: usize) -> &[u8] {
        &self.buffer[self.room * self.channels.len()..][..len]
    }

    /// Joins the next `len` bytes of these channels into the last part of the buffer.
    pub(super) fn join_plain(&mut self, channels: &[usize], len: usize) {
        let (shares, plain) = self.buffer.split_at_mut(self.room * self.channels.len());
        join(&mut self.joiner, channels, shares, (self.room, self.start), &mut plain[..len]);
    }

    /// Joins the next bytes of these channels, as many as `out` is long.
    pub(super) fn join(&mut self, channels: &[usize], out: &mut [u8]) {
        join(&mut self.joiner, channels, &self.buffer, (self.room, self.start), out);
    }

    /// Whether the next bytes of every awaited channel are consistent with `joined`, which was
    /// joined from `channels`.
    pub(super) fn agree_with(&mut self, channels: &[usize], joined: &[u8]) -> bool {
        let others: Vec<usize> =
            self.awaited().filter(|channel| !channels.contains(channel)).collect();
        others.into_iter().all(|channel| self.agrees(channel, channels, joined))
    }

    /// Whether a channel's next bytes are consistent: in place of those of `channels[0]`, they give
    /// the same result.
    pub(super) fn agrees(&mut self, channel: usize, channels: &[usize], joined: &[u8]) -> bool {
        let mut set = channels.to_vec();
        set[0] = channel;
        let mut other = Zeroizing::new(vec![0; joined.len()]);
        self.join(&set, &mut other);
        bool::from(other.ct_eq(joined))
    }

    /// Moves the shares to the front of the parts.
    pub(super) fn compact(&mut self) {
        let live = self.channels.iter_mut().enumerate().filter(|(_, channel)| !channel.lost);
        for (index, channel) in live {
            let part = self.room * index;
            self.buffer.copy_within(part + self.start..part + channel.end, part);
            channel.end -= self.start;
        }
        self.start = 0;
    }

    /// Makes the parts long enough for any record. The joined record is discarded.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub(super) fn grow(&mut self) -> Result<(), MicssRecordError> {
        let room = MAX_RECORD + HEADER_LEN;
        if !self.lease.resize((room - SMALL_RECORD) * (self.channels.len() + 1)) {
            return Err(MicssRecordError::NoMemory);
        }
        let mut longer = ZeroizingBuffer::new(room * (self.channels.len() + 1));
        for (index, channel) in self.channels.iter().enumerate() {
            let filled = &self.buffer[self.room * index..][..channel.end];
            longer[room * index..][..channel.end].copy_from_slice(filled);
        }
        (self.buffer, self.room) = (longer, room);
        Ok(())
    }

    /// Frees memory that an idle stream does not need. Does nothing while shares are waiting.
    pub(super) fn shrink(&mut self) {
        if self.live().all(|channel| self.channels[channel].end == 0) {
            self.room = SMALL_RECORD;
            self.buffer = ZeroizingBuffer::default();
            self.lease.resize(0);
        }
    }
}

/// Joins the shares of channels, which are in parts of `room` bytes and begin at `start` in each.
/// The length is that of `out`.
fn join(
    joiner: &mut Joiner,
    channels: &[usize],
    parts: &[u8],
    (room, start): (usize, usize),
    out: &mut [u8],
) {
    let coordinate = |&channel: &usize| u8::try_from(channel + 1).expect("at most MAX_CHANNELS");
    let coordinates: Vec<u8> = channels.iter().map(coordinate).collect();
    let share = |&channel: &usize| &parts[room * channel + start..][..out.len()];
    let shares: Vec<&[u8]> = channels.iter().map(share).collect();
    joiner.join(&coordinates, &shares, out).expect("as many as are needed, of one length");
}
