//! The sending half of a stream: payloads come in, one share for each channel goes out. Shares that
//! the peer has not acknowledged are kept, so that a channel whose connection is replaced can
//! continue at the position that the peer needs. They are kept as shares, or as records from which
//! the shares can be recomputed.

mod chunk;
mod retention;

use std::collections::VecDeque;

use random::{RandomError, RandomGenerator, SharingSeed};
use sharing::{SharingParameters, Splitter};

use crate::protocol::buffer::ZeroizingBuffer;
use crate::protocol::memory::MemoryLease;
use crate::protocol::record::{
    self, HEADER_LEN, MAX_PAYLOAD, MAX_RECORD, MicssRecordKind, SMALL_RECORD,
};
use chunk::ShareChunk;

/// The maximum number of bytes that are kept of each channel's shares. A kernel queues no more for
/// a connection, unless its limits were raised.
pub const MAX_KEPT: u64 = 4 << 20;

/// How far a channel may be behind before the stream continues without it, in bytes of its shares.
pub const MAX_LAG: u64 = 1 << 20;

/// The interval of requests for an acknowledgement, in bytes: a quarter of what was sent, within
/// these limits.
const ACK_INTERVAL: (u64, u64) = (64 << 10, 512 << 10);

/// Records are appended to a chunk of shares while at least this much space is left in it.
const MIN_APPEND: usize = SMALL_RECORD / 2;

/// Records that are on their way to the channels.
///
/// The application's bytes are read into [`payload_mut`](Self::payload_mut) and sealed, possibly
/// several times, and then taken by each channel at its own rate. Further records follow when as
/// many channels as needed have taken their whole share, which limits the sender to the rate of the
/// slowest of these.
///
/// A position is a number of bytes of a channel's shares since the first record. It is the same on
/// all channels.
pub struct OutgoingRecords {
    splitter: Splitter,
    generator: RandomGenerator,
    /// False: only the payload is shared, as in the paper.
    records: bool,
    /// Whether only acknowledgements may follow.
    finished: bool,
    /// Bytes that precede the next record, unencrypted and equal on every channel.
    before: Vec<u8>,
    /// The number of such bytes that the shares contain, which positions do not count.
    preface: u64,
    /// The maximum length of the next records. It grows when it is used up.
    room: usize,
    /// A record before it is shared. Takes no memory until there is a payload.
    plain: ZeroizingBuffer,
    /// The shares that are kept or not taken yet, the oldest first.
    chunks: VecDeque<ShareChunk>,
    /// Memory for the shares of further chunks, and for their records. The last one is most likely
    /// in the processor's cache.
    spare: Vec<ZeroizingBuffer>,
    spare_plain: Vec<ZeroizingBuffer>,
    /// The memory of all chunks and the spare memory, in bytes. A stream that keeps many chunks
    /// needs it for each record.
    held: usize,
    /// How many bytes of its shares each channel has taken; `None` for lost channels.
    taken: Vec<Option<u64>>,
    /// The number of channels that are needed.
    fewest: usize,
    /// The number of bytes of all shares, preface included.
    end: u64,
    /// Whether shares are kept until they are acknowledged.
    keeps: bool,
    /// The position up to which everything is acknowledged, and the one up to which an
    /// acknowledgement was requested, preface included.
    acknowledged: u64,
    requested: u64,
    /// The limit of the memory for new records, and for shares that are kept.
    lease: MemoryLease,
    kept: MemoryLease,
}

impl OutgoingRecords {
    /// A sending half that shares records by `sharing`, one share for each channel. It keeps no
    /// shares.
    pub fn new(sharing: SharingParameters, generator: RandomGenerator) -> Self {
        let channels = usize::from(sharing.shares());
        Self {
            splitter: Splitter::new(sharing),
            generator,
            records: true,
            finished: false,
            before: Vec::new(),
            preface: 0,
            room: SMALL_RECORD,
            plain: ZeroizingBuffer::default(),
            chunks: VecDeque::new(),
            spare: Vec::new(),
            spare_plain: Vec::new(),
            held: 0,
            taken: vec![Some(0); channels],
            fewest: sharing.threshold().into(),
            end: 0,
            keeps: false,
            acknowledged: 0,
            requested: 0,
            lease: MemoryLease::default(),
            kept: MemoryLease::default(),
        }
    }

    /// Keeps shares until they are acknowledged, as long as there is memory for that.
    pub(crate) fn keep(&mut self) {
        self.keeps = true;
    }

    /// Limits the memory of long records by `lease`, without which they stay short, and the memory
    /// of kept shares by `kept`, without which they are dropped.
    pub(crate) fn limit_memory(&mut self, lease: MemoryLease, kept: MemoryLease) {
        (self.lease, self.kept) = (lease, kept);
    }

    /// Draws random bytes from its generator.
    ///
    /// # Errors
    /// If the random source fails.
    pub(crate) fn random<const N: usize>(&mut self) -> Result<[u8; N], RandomError> {
        self.generator.array()
    }

    /// Shares payloads without a header from now on: `integrity = "none"`. Channels can no longer
    /// be lost, and shares are not kept.
    pub fn drop_records(&mut self) {
        (self.records, self.keeps) = (false, false);
        self.fewest = self.taken.len();
    }

    /// Continues without a channel, if possible. Returns whether it is possible.
    pub fn lose(&mut self, channel: usize) -> bool {
        if self.taken[channel].is_none() {
            return true;
        }
        let possible = self.live() > self.fewest;
        if possible {
            self.taken[channel] = None;
        }
        possible
    }

    /// Whether the stream can continue with one channel fewer.
    pub fn has_spare(&self) -> bool {
        self.live() > self.fewest
    }

    /// Whether no channel is lost.
    pub fn has_all_channels(&self) -> bool {
        self.live() == self.taken.len()
    }

    /// Whether a channel is not lost.
    pub fn is_live(&self, channel: usize) -> bool {
        self.taken[channel].is_some()
    }

    /// The number of channels that are not lost.
    fn live(&self) -> usize {
        self.taken.iter().flatten().count()
    }

    /// The number of channels that have taken the first `end` bytes of their shares.
    fn ahead_of(&self, end: u64) -> usize {
        self.taken.iter().flatten().filter(|&&taken| taken >= end).count()
    }

    /// A channel that is too far behind, if the stream can continue without it: the bytes that it
    /// takes next are not kept, or it is so far behind that it is of no use.
    pub(crate) fn lagging_channel(&self) -> Option<usize> {
        let base = self.chunks.front().map_or(self.end, |oldest| oldest.start);
        let is_overtaken = |taken: u64| taken < base || self.end - taken > MAX_LAG;
        let is_overtaken = |taken: &Option<u64>| taken.is_some_and(is_overtaken);
        self.taken.iter().position(is_overtaken).filter(|_| self.has_spare())
    }

    /// How many bytes of its share a channel has not taken.
    pub(crate) fn lag(&self, channel: usize) -> u64 {
        self.taken[channel].map_or(0, |taken| self.end - taken)
    }

    /// Sends these bytes on every channel before the next record, unencrypted.
    pub fn precede(&mut self, bytes: Vec<u8>) {
        self.before = bytes;
    }

    /// Makes space for a payload of this many bytes, with the stream's end after it, up to the
    /// maximum length of a record. Only allowed while no channel has taken a part of the sealed
    /// records.
    pub fn make_room(&mut self, len: usize) {
        self.drop_old();
        let needed = 2 * HEADER_LEN + len.min(MAX_PAYLOAD);
        if self.remaining() >= needed.min(MAX_RECORD) {
            return;
        }
        let is_settled = self.is_sent_on_enough();
        let sealed = if is_settled { 0 } else { self.newest_len() };
        let room = (sealed + needed).next_power_of_two().min(MAX_RECORD);
        if !is_settled && (!self.is_untouched() || room <= self.part().max(self.room)) {
            return;
        }
        if room > self.room {
            if !self.may_take(room) {
                return;
            }
            self.room = room;
        }
        if sealed > 0 {
            self.enlarge(room);
        } else if self.remaining() < self.room {
            self.begin_chunk();
        }
    }

    /// Makes the newest chunk longer. No channel may have taken anything of it.
    fn enlarge(&mut self, room: usize) {
        let channels = self.taken.len();
        let Some(newest) = self.chunks.back_mut() else { return };
        let (part, len) = (newest.shares.len() / channels, newest.len);
        let mut larger = ZeroizingBuffer::new(room * channels);
        for channel in 0..channels {
            let own = &newest.shares[part * channel..][..len];
            larger[room * channel..][..len].copy_from_slice(own);
        }
        self.held = self.held - newest.shares.len() + larger.len();
        newest.shares = larger;
        self.plain = ZeroizingBuffer::new(room);
    }

    /// The buffer for the next payload: at most `MAX_PAYLOAD` bytes, and not empty unless records
    /// are sealed already.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.drop_old();
        let least = if self.is_sent_on_enough() { MIN_APPEND } else { HEADER_LEN + 1 };
        let is_unfit = self.newest_len() == 0 && self.part() != self.room;
        if is_unfit || self.remaining() < least {
            self.begin_chunk();
        }
        let end = self.remaining();
        if self.plain.len() < end {
            self.plain = self.next_plain(self.part());
        }
        &mut self.plain[HEADER_LEN.min(end)..end]
    }

    /// Begins a new chunk.
    fn begin_chunk(&mut self) {
        if self.part() != self.room && !self.may_take(self.room) {
            self.room = self.part().max(SMALL_RECORD);
        }
        self.drop_empty();
        self.free_shares(self.chunks.len());
        let shares = self.next_buffer();
        self.chunks.push_back(ShareChunk::new(self.end, shares));
        if self.plain.len() != self.room {
            self.plain = self.next_plain(self.room);
        }
        self.drop_old();
    }

    /// Whether there is memory for records of this length.
    fn may_take(&mut self, room: usize) -> bool {
        self.lease.resize(room.saturating_sub(SMALL_RECORD) * (1 + self.taken.len()))
    }

    /// The length of the newest chunk's parts.
    fn part(&self) -> usize {
        self.chunks.back().map_or(0, |newest| newest.shares.len() / self.taken.len())
    }

    fn newest_len(&self) -> usize {
        self.chunks.back().map_or(0, |newest| newest.len)
    }

    /// The space after the sealed records in the newest chunk.
    fn remaining(&self) -> usize {
        self.part() - self.newest_len()
    }

    /// Makes a record of the first `len` bytes of the payload and shares it, after the records that
    /// are sealed and not taken yet.
    ///
    /// # Errors
    /// If the random source fails.
    ///
    /// # Panics
    /// If the payload is shorter than `len`, or if there is no space for the bytes before it.
    pub fn seal(&mut self, kind: MicssRecordKind, len: usize) -> Result<(), RandomError> {
        let is_full = self.remaining() < HEADER_LEN + self.before.len();
        if self.plain.is_empty() || len == 0 && is_full {
            self.payload_mut();
        }
        let (part, start) = (self.part(), self.newest_len());
        let before = std::mem::take(&mut self.before);
        let room = (part - start).checked_sub(HEADER_LEN + before.len());
        assert!(room.is_some_and(|room| len <= room), "the payload has room for {room:?} bytes");
        let seed = if before.is_empty() { self.seed()? } else { None };
        let record = &mut self.plain[..HEADER_LEN + len];
        if self.records {
            record::protect(kind, record, &mut self.generator)?;
        }
        let record = &record[if self.records { 0 } else { HEADER_LEN }..];
        let len_of_record = record.len();
        let newest = self.chunks.back_mut().expect("there is one");
        let mut views: Vec<&mut [u8]> = newest
            .shares
            .chunks_exact_mut(part)
            .map(|share| {
                let (clear, share) = share[start..].split_at_mut(before.len());
                clear.copy_from_slice(&before);
                &mut share[..len_of_record]
            })
            .collect();
        let split = match &seed {
            Some(seed) => self.splitter.split_from_seed(record, &mut views, seed),
            None => self.splitter.split(record, &mut views, &mut self.generator),
        };
        split.map_err(|error| match error {
            sharing::ShareSplitError::Random(error) => error,
            wrong => unreachable!("one buffer a share, as long as the record: {wrong}"),
        })?;
        self.held -= newest.size();
        let unfit = newest.add_record(&mut self.plain, len_of_record, seed);
        self.held += newest.size() + unfit.as_ref().map_or(0, |unfit| unfit.len());
        newest.len += before.len() + len_of_record;
        self.spare_plain.extend(unfit);
        self.end += (before.len() + len_of_record) as u64;
        self.preface += before.len() as u64;
        if Some(len) == room {
            self.room = MAX_RECORD;
        }
        Ok(())
    }

    /// The seed of the next record, if shares are kept and it is worth recomputing them.
    fn seed(&mut self) -> Result<Option<SharingSeed>, RandomError> {
        let is_long = self.part() == MAX_RECORD && self.plain.len() == MAX_RECORD;
        let may_add = self.chunks.back().is_some_and(ShareChunk::may_add_record);
        if self.keeps && is_long && may_add { self.generator.seed() } else { Ok(None) }
    }

    /// Seals a record of data as [`Self::seal`] does, and sometimes requests an acknowledgement
    /// with it.
    ///
    /// # Errors
    /// As [`Self::seal`].
    ///
    /// # Panics
    /// As [`Self::seal`].
    pub(crate) fn seal_data(&mut self, len: usize) -> Result<(), RandomError> {
        let (least, most) = ACK_INTERVAL;
        let is_due = self.keeps && self.end - self.requested >= (self.end / 4).clamp(least, most);
        self.seal(if is_due { MicssRecordKind::DataAck } else { MicssRecordKind::Data }, len)?;
        if is_due {
            self.requested = self.end;
        }
        Ok(())
    }

    /// Requests an acknowledgement of everything that was sent, if an idle stream keeps more memory
    /// than it should and has not requested it. Returns whether it does.
    ///
    /// # Errors
    /// As [`Self::seal`].
    pub(crate) fn request_acknowledgement(&mut self) -> Result<bool, RandomError> {
        let is_small = self.chunks.len() <= 1 && self.part() <= SMALL_RECORD;
        let is_needed = self.end > self.acknowledged.max(self.requested);
        if !self.keeps || self.finished || is_small || !is_needed {
            return Ok(false);
        }
        self.payload_mut();
        self.seal(MicssRecordKind::DataAck, 0)?;
        self.requested = self.end;
        Ok(true)
    }

    /// Records that the peer has consumed everything before a position. Returns false if it cannot
    /// have.
    pub(crate) fn handle_acknowledged(&mut self, position: u64) -> bool {
        let acknowledged = position.saturating_add(self.preface);
        if acknowledged > self.end {
            return false;
        }
        self.acknowledged = self.acknowledged.max(acknowledged);
        self.drop_old();
        true
    }

    /// Whether every requested acknowledgement has arrived.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.acknowledged >= self.requested
    }

    /// The position of the oldest share that is kept.
    pub(crate) fn kept_from(&self) -> u64 {
        let oldest = self.chunks.front().map_or(self.end, |oldest| oldest.start);
        oldest.max(self.preface) - self.preface
    }

    /// Whether a channel can continue at this position.
    pub(crate) fn can_rejoin(&self, position: u64) -> bool {
        let at = position.saturating_add(self.preface);
        position >= self.kept_from() && at <= self.end
    }

    /// Records that a channel's connection was replaced, or that the channel takes part again: it
    /// continues at this position, which must be [possible](Self::can_rejoin).
    pub(crate) fn rejoin(&mut self, channel: usize, position: u64) {
        self.taken[channel] = Some(position + self.preface);
        self.make_again(channel);
    }

    /// Whether no channel has begun to take the newest chunk.
    fn is_untouched(&self) -> bool {
        let start = self.chunks.back().map_or(self.end, |newest| newest.start);
        self.taken.iter().flatten().all(|&taken| taken <= start)
    }

    /// The space on each channel after the sealed records, in bytes: for the next record, header
    /// included.
    pub fn room(&self) -> usize {
        let is_new =
            self.chunks.is_empty() || self.is_sent_on_enough() && self.remaining() < MIN_APPEND;
        if is_new { self.room } else { self.remaining() }
    }

    /// Seals a record with this payload.
    ///
    /// # Errors
    /// As [`Self::seal`].
    ///
    /// # Panics
    /// As [`Self::seal`].
    pub fn seal_payload(
        &mut self,
        kind: MicssRecordKind,
        payload: &[u8],
    ) -> Result<(), RandomError> {
        if self.payload_mut().len() < payload.len() {
            self.begin_chunk();
        }
        self.payload_mut()[..payload.len()].copy_from_slice(payload);
        self.seal(kind, payload.len())
    }

    /// Seals the end of the stream: a record, or nothing without records.
    ///
    /// # Errors
    /// As [`Self::seal`].
    ///
    /// # Panics
    /// As [`Self::seal`].
    pub fn finish(&mut self) -> Result<(), RandomError> {
        self.finished = true;
        self.seal(MicssRecordKind::Finish, 0)
    }

    /// Whether a record may follow now that aborts the stream.
    pub fn may_abort(&self) -> bool {
        let is_between = self.is_sent_on_enough() || self.is_untouched();
        self.records && !self.finished && is_between && self.room() >= HEADER_LEN
    }

    /// The part of its share that a channel takes next.
    pub fn unsent(&self, channel: usize) -> &[u8] {
        let Some(taken) = self.taken[channel].filter(|&taken| taken < self.end) else { return &[] };
        let place = self.chunks.partition_point(|chunk| chunk.end() <= taken);
        let Some(chunk) = self.chunks.get(place) else { return &[] };
        let from = taken.checked_sub(chunk.start).and_then(|from| usize::try_from(from).ok());
        let Some(from) = from else { return &[] };
        let part = chunk.shares.len() / self.taken.len();
        &chunk.shares[part * channel + from..part * channel + chunk.len]
    }

    /// Records that a channel has taken the next `len` bytes of its share.
    ///
    /// # Panics
    /// If there were fewer.
    pub fn advance(&mut self, channel: usize, len: usize) {
        if let Some(taken) = &mut self.taken[channel] {
            *taken += len as u64;
            assert!(*taken <= self.end, "no more than there is");
            self.make_again(channel);
        }
    }

    /// Whether every channel that is not lost has taken its whole share.
    pub fn is_sent_on_all(&self) -> bool {
        self.ahead_of(self.end) == self.live()
    }

    /// Whether as many channels as needed have taken their whole share, so that further records may
    /// follow.
    pub fn is_sent_on_enough(&self) -> bool {
        self.ahead_of(self.end) >= self.fewest
    }

    /// Frees memory that an idle stream does not need. Only allowed while no channel has bytes to
    /// take.
    pub fn shrink(&mut self) {
        if !self.is_sent_on_all() {
            return;
        }
        self.drop_old();
        self.free_spare();
        self.drop_empty();
        if self.chunks.is_empty() {
            (self.room, self.plain) = (SMALL_RECORD, ZeroizingBuffer::default());
            self.lease.resize(0);
        }
        self.may_keep();
    }
}

#[cfg(test)]
mod tests;
