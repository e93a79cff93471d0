//! The receiving half of a stream: shares come in from every channel, verified payloads go out.
//!
//! The choice of the channel to read next limits how far channels can drift apart. The channel
//! furthest behind is read first, and none may be further ahead than the buffer of one record. So a
//! fast channel's bytes wait in the network, and TCP's flow control slows it down to the slowest
//! (MICSS, III-E).
//!
//! If fewer shares are needed than there are channels, channels may be lost: those that end or
//! break, those whose shares do not arrive while the others' have, and those that carry changed
//! bytes. The stream continues with the rest. A record does not wait for shares that are late: if
//! it can be joined from the others, it is taken, and the late channels are *behind* until their
//! shares have arrived, which are dropped.

mod share_search;
mod shares;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::task::Poll;
use std::time::Duration;

use sharing::SharingParameters;
use zeroize::Zeroizing;

pub use self::share_search::SEED_LEN;
use self::share_search::{CorrectShareSearch, RandomShareSets};
pub use self::shares::ChannelLossReason;
use self::shares::{ChannelShareProgress, IncomingShares};
use crate::protocol::buffer::ZeroizingBuffer;
use crate::protocol::memory::MemoryLease;
use crate::protocol::record::{
    self, HEADER_LEN, MAX_OPENING, MAX_RECORD, MicssRecordError, MicssRecordKind, SMALL_RECORD,
};

/// How long a record that has begun may wait for its next byte. A peer always sends whole records,
/// so a longer pause means that a channel is stuck, or that a length was changed. If one packet in
/// seven is lost, TCP is sometimes silent for half a minute: it retransmits a lost packet after 0.2
/// s, 0.4 s and so on, doubling each time.
pub const RECORD_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a record waits for further shares once enough channels have brought theirs. Then it is
/// taken without them.
pub const LATE_SHARE_TIMEOUT: Duration = Duration::from_millis(200);

/// The same if the shares that have arrived do not form a valid record: some of them may be an
/// attacker's. Then the channels are lost whose shares have not arrived.
pub const STALLED_CHANNEL_TIMEOUT: Duration = Duration::from_secs(10);

/// The time limit for the peer's first record: the request, or its answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// [`STALLED_CHANNEL_TIMEOUT`] when a stream opens.
pub(crate) const LATE_CHANNEL_TIMEOUT: Duration = Duration::from_secs(2);

/// The next element of the stream.
pub struct ReceivedRecord<'a> {
    /// Its kind. Without records, always [`MicssRecordKind::Data`] or [`MicssRecordKind::Finish`].
    pub kind: MicssRecordKind,
    /// The payload, verified.
    pub payload: &'a [u8],
}

/// Joins the shares of a stream.
pub struct IncomingRecords {
    shares: IncomingShares,
    /// False: only payloads are shared, as in the paper.
    records: bool,
    /// The length of the next record, once its header was read.
    record_len: Option<usize>,
    /// Its maximum length.
    longest: usize,
    /// The search for the right channels of the next record, if they contradict each other.
    dispute: Option<CorrectShareSearch>,
    /// The shares of the next record that arrived first did not form a valid record.
    is_contradicted: bool,
    /// Selects the sets of shares that a dispute tries.
    random: RandomShareSets,
}

impl IncomingRecords {
    /// A receiving half that joins records by `sharing`, one share for each channel. `seed` must be
    /// random and unknown to others: it selects the sets of shares that are tried when channels
    /// contradict each other and there are too many sets to try all.
    pub fn new(sharing: SharingParameters, seed: [u8; SEED_LEN]) -> Self {
        Self {
            shares: IncomingShares::new(sharing),
            records: true,
            record_len: None,
            longest: MAX_RECORD,
            dispute: None,
            is_contradicted: false,
            random: RandomShareSets::new(seed),
        }
    }

    /// Makes payloads have no headers from now on: `integrity = "none"`. Channels can no longer be
    /// lost, since a changed one cannot be identified.
    pub fn drop_records(&mut self) {
        self.records = false;
        self.shares.may_lose = false;
        self.record_len = None;
    }

    /// The next record opens a stream, so it must be short: unauthenticated senders can send such
    /// records too, and the longer they are, the more work it is to find the wrong channels.
    pub fn expect_opening(&mut self) {
        self.longest = MAX_OPENING;
    }

    /// Limits the memory of long records by this lease from now on.
    pub(crate) fn limit_memory(&mut self, lease: MemoryLease) {
        self.shares.lease = lease;
    }

    /// Continues without a channel, if possible. Returns whether it is possible.
    pub fn lose(&mut self, channel: usize, why: ChannelLossReason) -> bool {
        // It may have come from the lost channel's header.
        self.record_len = None;
        self.shares.lose(channel, why)
    }

    /// Whether the stream can continue with one channel fewer.
    pub(crate) fn has_spare(&self) -> bool {
        self.shares.has_spare()
    }

    /// The next channel that was lost, and why. Must be called after all other methods.
    pub fn poll_lost(&mut self) -> Option<(usize, ChannelLossReason)> {
        self.shares.losses.pop_front()
    }

    /// Whether no channel is lost.
    pub fn has_all_channels(&self) -> bool {
        self.shares.channels.iter().all(|channel| !channel.lost)
    }

    /// Whether bytes have arrived that were not consumed.
    pub(crate) fn is_waiting(&self) -> bool {
        let IncomingShares { start, channels, .. } = &self.shares;
        channels.iter().any(|channel| !channel.lost && channel.end > *start)
    }

    /// The position of the next record: how many bytes of each channel were consumed.
    pub(crate) fn position(&self) -> u64 {
        self.shares.position
    }

    /// The position of the next byte that a channel must bring.
    pub(crate) fn received(&self, channel: usize) -> u64 {
        self.shares.received(channel)
    }

    /// How many bytes a channel still has to bring of records that were taken without it.
    pub(crate) fn behind(&self, channel: usize) -> u64 {
        self.shares.channels[channel].behind
    }

    /// Records that a channel's connection was replaced by one whose first byte is at this
    /// position. A channel that was lost takes part again, from that position if it is in a later
    /// record. Returns false, and changes nothing, if the position is too late for a channel that
    /// is needed.
    pub(crate) fn rejoin(&mut self, channel: usize, from: u64) -> bool {
        self.shares.rejoin(channel, from)
    }

    /// Whether no channel is behind.
    pub fn is_caught_up(&self) -> bool {
        (0..self.shares.channels.len()).all(|channel| !self.is_behind(channel))
    }

    /// Whether records were taken without a channel whose shares of them have not arrived yet.
    pub(crate) fn is_behind(&self, channel: usize) -> bool {
        self.behind(channel) > 0
    }

    /// How many bytes of such records a channel has brought late, and how many there are together
    /// with those still missing.
    pub(crate) fn late_bytes(&self, channel: usize) -> (u64, u64) {
        let ChannelShareProgress { behind, dropped, .. } = self.shares.channels[channel];
        (dropped, dropped + behind)
    }

    /// Stops waiting for the late shares of the next record, after the time of
    /// [`next_record_timeout`](Self::next_record_timeout). If the others do not form a valid
    /// record, it waits for them again. Returns whether that is possible.
    pub fn skip_late(&mut self) -> bool {
        let possible = !self.is_contradicted() && self.can_lose_stalled();
        if possible {
            for channel in self.stalled().collect::<Vec<_>>() {
                self.shares.channels[channel].skipped = true;
            }
        }
        possible
    }

    /// Whether shares of the next record that have arrived contradict each other.
    pub(crate) fn is_contradicted(&self) -> bool {
        self.is_contradicted || self.dispute.is_some()
    }

    /// Continues without the channels for which the next record waits, after the time of
    /// [`next_record_timeout`](Self::next_record_timeout). Returns whether that is possible.
    pub fn lose_stalled(&mut self) -> bool {
        let possible = self.can_lose_stalled();
        if possible {
            for channel in self.stalled().collect::<Vec<_>>() {
                self.lose(channel, ChannelLossReason::Stalled);
            }
        }
        possible
    }

    /// Whether enough channels have brought the next record, or its header, and others have not.
    pub fn can_lose_stalled(&self) -> bool {
        let stalled = self.stalled().count();
        self.shares.may_lose
            && stalled > 0
            && self.shares.awaited().count() - stalled >= self.shares.threshold
    }

    /// The channels for which the next record, or its header, waits.
    pub(crate) fn stalled(&self) -> impl Iterator<Item = usize> {
        let needed = self.shares.start + self.record_len.unwrap_or(HEADER_LEN);
        self.shares.awaited().filter(move |&channel| self.shares.channels[channel].end < needed)
    }

    /// The channels to read from, the one furthest behind first. Channels whose buffer is full, and
    /// those that have ended or were lost, are omitted.
    pub fn wanted(&self) -> impl Iterator<Item = usize> + use<> {
        let mut order: Vec<usize> = self
            .shares
            .live()
            .filter(|&i| {
                !self.shares.channels[i].closed && self.shares.channels[i].end < self.limit()
            })
            .collect();
        order.sort_by_key(|&i| {
            let ChannelShareProgress { end, behind, .. } = self.shares.channels[i];
            (Reverse(behind), end)
        });
        order.into_iter()
    }

    /// The channel furthest behind among those for which the next record waits, if others have
    /// brought more.
    pub fn awaited(&self) -> Option<usize> {
        let channel = self.wanted().find(|&channel| !self.shares.channels[channel].skipped)?;
        let is_behind =
            |&other: &usize| self.shares.channels[other].end > self.shares.channels[channel].end;
        self.shares.live().any(|other| is_behind(&other)).then_some(channel)
    }

    /// The buffer for a channel's next bytes. Empty only for channels that are not wanted.
    pub fn space(&mut self, channel: usize) -> &mut [u8] {
        if self.shares.buffer.is_empty() {
            self.shares.buffer =
                ZeroizingBuffer::new(self.shares.room * (self.shares.channels.len() + 1));
        }
        // A channel that repeats many bytes would otherwise have to bring them in small pieces.
        let is_short = self.shares.room - self.shares.channels[channel].end < SMALL_RECORD / 2;
        if is_short && self.shares.start > self.shares.room / 2 {
            self.shares.compact();
        }
        let (start, end) = (self.shares.room * channel, self.shares.channels[channel].end);
        let limit = self.limit().max(end);
        &mut self.shares.buffer[start + end..start + limit]
    }

    /// Records that the first `len` bytes of a channel's space are filled.
    ///
    /// # Panics
    /// If the space was shorter.
    pub fn filled(&mut self, channel: usize, len: usize) {
        let start = self.shares.start;
        let has_header = |channel: &ChannelShareProgress| channel.end >= start + HEADER_LEN;
        let had_header = has_header(&self.shares.channels[channel]);
        self.shares.fill(channel, len);
        let filled = &self.shares.channels[channel];
        assert!(filled.end <= self.shares.room, "no more than there is space");
        if filled.skipped && filled.behind == 0 {
            let is_idle = self.shares.awaited().all(|i| self.shares.channels[i].end == start);
            // The others' header may be wrong: then this one contradicts it.
            if is_idle || !had_header && has_header(filled) {
                self.shares.channels[channel].skipped = false;
                self.record_len = None;
            }
        }
    }

    /// Adds bytes that were read from a channel before the stream began, at most 4 KiB.
    ///
    /// # Panics
    /// If there are more.
    pub fn put(&mut self, channel: usize, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.space(channel)[..bytes.len()].copy_from_slice(bytes);
            self.filled(channel, bytes.len());
        }
    }

    /// The bytes that were read from a channel after the stream's end.
    pub fn trailing_bytes(&self, channel: usize) -> &[u8] {
        let part = self.shares.room * channel;
        self.shares
            .buffer
            .get(part + self.shares.start..part + self.shares.channels[channel].end)
            .unwrap_or_default()
    }

    /// Records that a channel has ended: no further bytes will arrive on it.
    pub fn close(&mut self, channel: usize) {
        self.shares.channels[channel].closed = true;
    }

    /// How long to wait for the next record, if there is a limit. It is [`LATE_SHARE_TIMEOUT`] from
    /// when enough channels have brought it, if [`skip_late`](Self::skip_late) helps, or
    /// [`STALLED_CHANNEL_TIMEOUT`] if [`lose_stalled`](Self::lose_stalled) does; otherwise
    /// [`RECORD_TIMEOUT`] from the last byte. If channels can be lost, bytes on fewer channels than
    /// needed do not start a record, since an attacker may have added them.
    pub fn next_record_timeout(&self) -> Option<Duration> {
        if self.can_lose_stalled() {
            let is_contradicted = self.is_contradicted();
            return Some(if is_contradicted {
                STALLED_CHANNEL_TIMEOUT
            } else {
                LATE_SHARE_TIMEOUT
            });
        }
        let has_begun = |&channel: &usize| {
            let ChannelShareProgress { end, closed, .. } = self.shares.channels[channel];
            end > self.shares.start || closed
        };
        let fewest = if self.shares.has_spare() { self.shares.threshold } else { 1 };
        (self.shares.live().filter(has_begun).count() >= fewest).then_some(RECORD_TIMEOUT)
    }

    /// The next element of the stream, if it has arrived. Call it until it returns `None`.
    ///
    /// # Errors
    /// If the shares do not form a valid stream, or there is no memory for a long record. Then
    /// nothing that arrives later may be used.
    pub fn take_next(&mut self) -> Result<Option<ReceivedRecord<'_>>, MicssRecordError> {
        loop {
            if let Poll::Ready(next) = self.poll_next()? {
                return Ok(next.map(|(kind, len)| self.received_record(kind, len)));
            }
        }
    }

    /// The kind of the stream's next element and the length of its payload, if it has arrived, for
    /// [`received_record`](Self::received_record). Pending: the right channels are not known yet,
    /// and finding them takes further calls, each of which takes a fraction of a millisecond. Other
    /// tasks should run between two calls.
    ///
    /// # Errors
    /// As [`take_next`](Self::take_next).
    pub fn poll_next(
        &mut self,
    ) -> Result<Poll<Option<(MicssRecordKind, usize)>>, MicssRecordError> {
        if self.records { self.next_record() } else { self.next_bytes().map(Poll::Ready) }
    }

    /// The element that [`poll_next`](Self::poll_next) has just returned.
    pub fn received_record(&self, kind: MicssRecordKind, len: usize) -> ReceivedRecord<'_> {
        let header = if self.records { HEADER_LEN } else { 0 };
        let payload = if len > 0 { &self.shares.plain(header + len)[header..] } else { &[] };
        ReceivedRecord { kind, payload }
    }

    /// Whether the next record opens a stream.
    pub(crate) fn is_opening(&self) -> bool {
        self.longest == MAX_OPENING
    }

    /// The kind of the next record and the length of its payload, once it is verified and in the
    /// last part of the buffer.
    fn next_record(&mut self) -> Result<Poll<Option<(MicssRecordKind, usize)>>, MicssRecordError> {
        loop {
            if let Some(dispute) = &mut self.dispute {
                match dispute.find_valid_record(&mut self.shares, &mut self.random)? {
                    Poll::Pending => return Ok(Poll::Pending),
                    Poll::Ready(len) => self.record_len = len,
                }
            } else if self.record_len.is_none() && self.shares.available() >= HEADER_LEN {
                let mut header = Zeroizing::new([0; HEADER_LEN]);
                let shares: Vec<usize> =
                    self.shares.awaited().take(self.shares.threshold).collect();
                self.shares.join(&shares, &mut *header);
                match record::length_within(&header, self.longest) {
                    Some(len) if self.shares.agree_with(&shares, &*header) => {
                        self.record_len = Some(len);
                    }
                    _ if self.waits_for_skipped() => continue,
                    _ => {
                        self.begin_dispute(HEADER_LEN)?;
                        return Ok(Poll::Pending);
                    }
                }
                self.make_room()?;
            }
            match self.record_len {
                // The late shares have arrived: find out which of the others is wrong.
                Some(len)
                    if self.is_contradicted
                        && self.dispute.is_none()
                        && self.shares.has_spare()
                        && self.shares.available() >= len =>
                {
                    self.begin_dispute(len)?;
                    return Ok(Poll::Pending);
                }
                Some(len) if self.shares.available() >= len => match self.take_record(len) {
                    Ok(Poll::Pending) => return Ok(Poll::Pending),
                    Ok(Poll::Ready(kind)) => {
                        return Ok(Poll::Ready(Some((kind, len - HEADER_LEN))));
                    }
                    Err(MicssRecordError::Tampered) if self.waits_for_skipped() => {}
                    Err(MicssRecordError::Tampered) => {
                        self.begin_dispute(len)?;
                        return Ok(Poll::Pending);
                    }
                    Err(other) => return Err(other),
                },
                _ => {
                    if !self.lose_ended()? {
                        return Ok(Poll::Ready(None));
                    }
                }
            }
        }
    }

    /// Handles an invalid header or record. If it was taken without late shares, it waits for them
    /// again. Returns whether it does.
    fn waits_for_skipped(&mut self) -> bool {
        let is_skipped = self.shares.awaited().count() < self.shares.live().count();
        if is_skipped {
            self.shares.wait_for_all();
            (self.is_contradicted, self.record_len) = (true, None);
        }
        is_skipped
    }

    /// Handles an invalid header or record of which `len` bytes have arrived on every channel.
    /// Starts the search for a set of shares that forms a valid record.
    fn begin_dispute(&mut self, len: usize) -> Result<(), MicssRecordError> {
        self.dispute = Some(CorrectShareSearch::new(&mut self.shares, self.longest, len)?);
        self.record_len = None;
        Ok(())
    }

    /// Without records: the bytes that have arrived on every channel.
    fn next_bytes(&mut self) -> Result<Option<(MicssRecordKind, usize)>, MicssRecordError> {
        let available = self.shares.available();
        if available > 0 {
            let full = self
                .shares
                .live()
                .any(|channel| self.shares.channels[channel].end == self.shares.room);
            if full && self.shares.room == SMALL_RECORD {
                // Without memory, pieces stay short.
                let _ = self.shares.grow();
            }
            let shares: Vec<usize> = self.shares.live().take(self.shares.threshold).collect();
            self.shares.join_plain(&shares, available);
            self.advance(available)?;
            return Ok(Some((MicssRecordKind::Data, available)));
        }
        let ahead =
            self.shares.live().any(|channel| self.shares.channels[channel].end > self.shares.start);
        let ended = |channel: usize| {
            let ChannelShareProgress { end, closed, .. } = self.shares.channels[channel];
            closed && end == self.shares.start
        };
        match (self.shares.live().all(ended), self.shares.live().any(ended)) {
            (true, _) => Ok(Some((MicssRecordKind::Finish, 0))),
            // It cannot bring the bytes that others have brought.
            (false, true) if ahead => Err(MicssRecordError::Uneven),
            _ => Ok(None),
        }
    }

    /// With records, a channel may end only after the stream's last record: its bytes must at least
    /// be enough for the next one. Continues without channels that end earlier, if possible.
    /// Returns whether there were any.
    fn lose_ended(&mut self) -> Result<bool, MicssRecordError> {
        let needed = self.shares.start + self.record_len.unwrap_or(HEADER_LEN);
        let is_short = |&channel: &usize| {
            let ChannelShareProgress { end, closed, .. } = self.shares.channels[channel];
            closed && end < needed
        };
        let short: Vec<usize> = self.shares.live().filter(is_short).collect();
        for &channel in &short {
            if !self.lose(channel, ChannelLossReason::Ended) {
                return Err(MicssRecordError::Unfinished { channel });
            }
        }
        Ok(!short.is_empty())
    }

    /// How far channels may fill their buffers. Within a long record, not far beyond its end, so
    /// that few bytes are moved to the front for the next one.
    fn limit(&self) -> usize {
        match self.record_len {
            Some(len) if len > self.shares.room / 2 => {
                self.shares.room.min(self.shares.start + len + HEADER_LEN)
            }
            _ => self.shares.room,
        }
    }

    /// Joins and verifies a record of `len` bytes that has arrived, and consumes it if it is valid.
    /// After a dispute, drops wrong channels first. Pending: call it again at once.
    fn take_record(&mut self, len: usize) -> Result<Poll<MicssRecordKind>, MicssRecordError> {
        let mut right = None;
        if let Some(dispute) = &mut self.dispute {
            match dispute.find_wrong_channels(&mut self.shares, &mut self.random) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(found) => right = found,
            }
        }
        let any = || self.shares.awaited().take(self.shares.threshold).collect();
        let shares: Vec<usize> = right.unwrap_or_else(any);
        self.shares.join_plain(&shares, len);
        let kind = record::verify(self.shares.plain(len))?;
        (self.dispute, self.record_len, self.longest) = (None, None, MAX_RECORD);
        self.is_contradicted = false;
        self.advance(len)?;
        Ok(Poll::Ready(kind))
    }

    /// Consumes the next `len` bytes of all channels.
    fn advance(&mut self, len: usize) -> Result<(), MicssRecordError> {
        self.shares.consume(len);
        self.make_room()
    }

    /// Makes space in the parts for the record that has begun, or for any header, if too little is
    /// left.
    fn make_room(&mut self) -> Result<(), MicssRecordError> {
        let needed = self.record_len.unwrap_or(0) + HEADER_LEN;
        if needed > self.shares.room {
            self.shares.grow()?;
        }
        let drained = self
            .shares
            .live()
            .all(|channel| self.shares.channels[channel].end == self.shares.start);
        if drained || self.shares.start + needed > self.shares.room {
            self.shares.compact();
        }
        Ok(())
    }

    /// Frees memory that an idle stream does not need. Does nothing while shares are waiting.
    pub fn shrink(&mut self) {
        self.shares.shrink();
    }
}
