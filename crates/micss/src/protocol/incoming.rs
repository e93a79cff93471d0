//! The receiving half of a stream: shares from every channel in, checked payloads out.
//!
//! Which channel is read next decides how far they can drift apart. The one furthest behind comes
//! first, and none may be further ahead than a buffer for one record holds, so a fast channel's bytes
//! wait in the network, and TCP's flow control slows it down to the slowest (paper 001, III-E).
//!
//! Where fewer shares are needed than there are channels, channels may be lost: those that end or break,
//! those whose shares do not come while the others' are there, and those that carry other bytes than were
//! sent. The stream goes on with the rest.

mod dispute;
mod shares;

use std::task::Poll;
use std::time::Duration;

use sharing::Sharing;
use zeroize::Zeroizing;

pub use self::dispute::SEED_LEN;
use self::dispute::{Dispute, RandomSets};
pub use self::shares::Loss;
use self::shares::{Channel, Shares};
use crate::protocol::buffer::Buffer;
use crate::protocol::memory::Lease;
use crate::protocol::record::{
    self, HEADER_LEN, Kind, MAX_OPENING, MAX_RECORD, RecordError, SMALL_RECORD,
};

/// How long a record that has begun may wait for its next byte: a peer always sends records whole,
/// so a longer pause means that a channel is stuck, or a length was changed. TCP that loses one packet
/// in seven is silent for half a minute now and then: it sends a lost packet again after 0.2 s, 0.4 s
/// and so on, each time twice as long.
pub const RECORD_TIMEOUT: Duration = Duration::from_secs(120);

/// The same where the stream can do without the channels that are behind.
pub const STALLED_CHANNEL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the other end may take for the first record: the request, or its answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The same when a stream opens.
pub(crate) const LATE_CHANNEL_TIMEOUT: Duration = Duration::from_secs(2);

/// What the next bytes of the stream are.
pub struct Received<'a> {
    /// What for. Without records, always [`Kind::Data`] or [`Kind::Finish`].
    pub kind: Kind,
    /// The payload, checked.
    pub payload: &'a [u8],
}

/// Shares on their way back to a stream.
pub struct Incoming {
    shares: Shares,
    /// False: payloads alone are shared, as in the paper.
    records: bool,
    /// The length of the next record, once its header is there.
    record_len: Option<usize>,
    /// The longest that it may be.
    longest: usize,
    /// Channels contradict each other about it.
    dispute: Option<Dispute>,
    /// Chooses which sets of shares a dispute tries.
    random: RandomSets,
}

impl Incoming {
    /// A receiving half that joins records by `sharing`, one share a channel. `seed` is random and
    /// not known to others: it decides which sets of shares are tried when channels contradict each
    /// other and there are too many sets to try all.
    pub fn new(sharing: Sharing, seed: [u8; SEED_LEN]) -> Self {
        Self {
            shares: Shares::new(sharing),
            records: true,
            record_len: None,
            longest: MAX_RECORD,
            dispute: None,
            random: RandomSets::new(seed),
        }
    }

    /// From here on, payloads come without a header: `integrity = "none"`. No channel may be lost any more,
    /// as nobody could tell one that was changed.
    pub fn drop_records(&mut self) {
        self.records = false;
        self.shares.may_lose = false;
        self.record_len = None;
    }

    /// The next record is one that opens a stream, so it is short: strangers, too, may send these, and the
    /// longer they are the more work it is to find out who lies.
    pub fn expect_opening(&mut self) {
        self.longest = MAX_OPENING;
    }

    /// From here on, long records need memory of this lease.
    pub(crate) fn limit_memory(&mut self, lease: Lease) {
        self.shares.lease = lease;
    }

    /// Goes on without a channel, if that is possible. Returns whether it is.
    pub fn lose(&mut self, channel: usize, why: Loss) -> bool {
        self.shares.lose(channel, why)
    }

    /// The next channel that was lost, and why. To be asked after everything else.
    pub fn poll_lost(&mut self) -> Option<(usize, Loss)> {
        self.shares.losses.pop_front()
    }

    /// Whether all channels are still there.
    pub fn is_whole(&self) -> bool {
        self.shares.channels.iter().all(|channel| !channel.lost)
    }

    /// Goes on without the channels that the next record waits for, because [`patience`](Self::patience) is
    /// over. Returns whether that is possible.
    pub fn lose_stalled(&mut self) -> bool {
        let possible = self.can_lose_stalled();
        if possible {
            for channel in self.stalled().collect::<Vec<_>>() {
                self.lose(channel, Loss::Stalled);
            }
        }
        possible
    }

    /// Whether enough channels have brought the next record, or its header, and others have not.
    pub fn can_lose_stalled(&self) -> bool {
        let stalled = self.stalled().count();
        self.shares.may_lose
            && stalled > 0
            && self.shares.live().count() - stalled >= self.shares.threshold
    }

    /// The channels that have not brought the next record, or its header.
    fn stalled(&self) -> impl Iterator<Item = usize> {
        let needed = self.shares.start + self.record_len.unwrap_or(HEADER_LEN);
        self.shares.live().filter(move |&channel| self.shares.channels[channel].end < needed)
    }

    /// The channels to read from, the one furthest behind first. Channels whose buffer is
    /// full, and those that have ended or were lost, are not among them.
    pub fn wanted(&self) -> impl Iterator<Item = usize> + use<> {
        let mut order: Vec<usize> = self
            .shares
            .live()
            .filter(|&i| {
                !self.shares.channels[i].closed && self.shares.channels[i].end < self.limit()
            })
            .collect();
        order.sort_by_key(|&i| self.shares.channels[i].end);
        order.into_iter()
    }

    /// The channel furthest behind, if others have brought more.
    pub fn awaited(&self) -> Option<usize> {
        let channel = self.wanted().next()?;
        let is_behind =
            |&other: &usize| self.shares.channels[other].end > self.shares.channels[channel].end;
        self.shares.live().any(|other| is_behind(&other)).then_some(channel)
    }

    /// Where a channel's next bytes go. Empty only for channels that are not wanted.
    pub fn space(&mut self, channel: usize) -> &mut [u8] {
        if self.shares.buffer.is_empty() {
            self.shares.buffer = Buffer::new(self.shares.room * (self.shares.channels.len() + 1));
        }
        let (start, end) = (self.shares.room * channel, self.shares.channels[channel].end);
        let limit = self.limit().max(end);
        &mut self.shares.buffer[start + end..start + limit]
    }

    /// A channel has filled the first `len` bytes of its space.
    ///
    /// # Panics
    /// When it had not that much space.
    pub fn filled(&mut self, channel: usize, len: usize) {
        self.shares.channels[channel].end += len;
        assert!(
            self.shares.channels[channel].end <= self.shares.room,
            "no more than there is space"
        );
    }

    /// Takes what was read of a channel before the stream began, at most 4 KiB.
    ///
    /// # Panics
    /// When it is more.
    pub fn put(&mut self, channel: usize, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.space(channel)[..bytes.len()].copy_from_slice(bytes);
            self.filled(channel, bytes.len());
        }
    }

    /// What was read of a channel behind the stream's end.
    pub fn rest(&self, channel: usize) -> &[u8] {
        let part = self.shares.room * channel;
        self.shares
            .buffer
            .get(part + self.shares.start..part + self.shares.channels[channel].end)
            .unwrap_or_default()
    }

    /// A channel has ended: no bytes will come on it any more.
    pub fn close(&mut self, channel: usize) {
        self.shares.channels[channel].closed = true;
    }

    /// How long to wait for the next bytes, if there is a bound: see [`RECORD_TIMEOUT`], and
    /// [`STALLED_CHANNEL_TIMEOUT`] where [`lose_stalled`](Self::lose_stalled) helps. Where a channel can be
    /// lost, what fewer bring than are needed is no record that has begun: somebody may have added it.
    pub fn patience(&self) -> Option<Duration> {
        if self.can_lose_stalled() {
            return Some(STALLED_CHANNEL_TIMEOUT);
        }
        let has_begun = |&channel: &usize| {
            let Channel { end, closed, .. } = self.shares.channels[channel];
            end > self.shares.start || closed
        };
        let fewest = if self.shares.has_spare() { self.shares.threshold } else { 1 };
        (self.shares.live().filter(has_begun).count() >= fewest).then_some(RECORD_TIMEOUT)
    }

    /// The next of the stream, if it is there. To be asked again until it is not.
    ///
    /// # Errors
    /// When the shares do not make a stream, or there is no memory for a long record. Nothing that came later
    /// may be used then.
    pub fn take_next(&mut self) -> Result<Option<Received<'_>>, RecordError> {
        loop {
            if let Poll::Ready(next) = self.poll_next()? {
                return Ok(next.map(|(kind, len)| self.received(kind, len)));
            }
        }
    }

    /// The kind of the next of the stream and the length of its payload, if it is there, for
    /// [`received`](Self::received). Pending: it is not known yet which channels are right, and finding out
    /// takes another call, each of which takes a fraction of a millisecond. Others should have their turn
    /// between two.
    ///
    /// # Errors
    /// As [`take_next`](Self::take_next).
    pub fn poll_next(&mut self) -> Result<Poll<Option<(Kind, usize)>>, RecordError> {
        if self.records { self.next_record() } else { self.next_bytes().map(Poll::Ready) }
    }

    /// What [`poll_next`](Self::poll_next) has just found.
    pub fn received(&self, kind: Kind, len: usize) -> Received<'_> {
        let header = if self.records { HEADER_LEN } else { 0 };
        let payload = if len > 0 { &self.shares.plain(header + len)[header..] } else { &[] };
        Received { kind, payload }
    }

    /// Whether the next record is one that opens a stream.
    pub(crate) fn is_opening(&self) -> bool {
        self.longest == MAX_OPENING
    }

    /// The kind of the next record and the length of its payload, once it is verified and lies in the last
    /// part of the buffer.
    fn next_record(&mut self) -> Result<Poll<Option<(Kind, usize)>>, RecordError> {
        loop {
            if let Some(dispute) = &mut self.dispute {
                match dispute.settle(&mut self.shares, &mut self.random)? {
                    Poll::Pending => return Ok(Poll::Pending),
                    Poll::Ready(None) => {}
                    Poll::Ready(len) => (self.dispute, self.record_len) = (None, len),
                }
            } else if self.record_len.is_none() && self.shares.available() >= HEADER_LEN {
                let mut header = Zeroizing::new([0; HEADER_LEN]);
                let shares: Vec<usize> = self.shares.live().take(self.shares.threshold).collect();
                self.shares.join(&shares, &mut *header);
                match record::length_within(&header, self.longest) {
                    Some(len) if self.shares.agree_with(&shares, &*header) => {
                        self.record_len = Some(len);
                    }
                    _ => {
                        self.begin_dispute(HEADER_LEN)?;
                        return Ok(Poll::Pending);
                    }
                }
                self.make_room()?;
            }
            match self.record_len {
                Some(len) if self.shares.available() >= len => match self.take_record(len) {
                    Ok(kind) => return Ok(Poll::Ready(Some((kind, len - HEADER_LEN)))),
                    Err(RecordError::Tampered) => {
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

    /// The next record's header, or all of it, of which `len` bytes have come on every channel, is
    /// not valid: from here on, looks for a set of shares that makes a valid record.
    fn begin_dispute(&mut self, len: usize) -> Result<(), RecordError> {
        self.dispute = Some(Dispute::new(&mut self.shares, self.longest, len)?);
        self.record_len = None;
        Ok(())
    }

    /// Without records: as many bytes as there are on every channel.
    fn next_bytes(&mut self) -> Result<Option<(Kind, usize)>, RecordError> {
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
            return Ok(Some((Kind::Data, available)));
        }
        let ahead =
            self.shares.live().any(|channel| self.shares.channels[channel].end > self.shares.start);
        let ended = |channel: usize| {
            let Channel { end, closed, .. } = self.shares.channels[channel];
            closed && end == self.shares.start
        };
        match (self.shares.live().all(ended), self.shares.live().any(ended)) {
            (true, _) => Ok(Some((Kind::Finish, 0))),
            // It will never have the bytes that others have.
            (false, true) if ahead => Err(RecordError::Uneven),
            _ => Ok(None),
        }
    }

    /// With records, a channel may only end after the stream's last record: what it has brought
    /// must at least be enough for the next. Goes on without those that end before, if that is possible.
    /// Returns whether there were any.
    fn lose_ended(&mut self) -> Result<bool, RecordError> {
        let needed = self.shares.start + self.record_len.unwrap_or(HEADER_LEN);
        let is_short = |&channel: &usize| {
            let Channel { end, closed, .. } = self.shares.channels[channel];
            closed && end < needed
        };
        let short: Vec<usize> = self.shares.live().filter(is_short).collect();
        for &channel in &short {
            if !self.lose(channel, Loss::Ended) {
                return Err(RecordError::Unfinished { channel });
            }
        }
        Ok(!short.is_empty())
    }

    /// How far channels may fill their buffers. Inside a long record, not far beyond its end: then
    /// there is little to move to the front for the next.
    fn limit(&self) -> usize {
        match self.record_len {
            Some(len) if len > self.shares.room / 2 => {
                self.shares.room.min(self.shares.start + len + HEADER_LEN)
            }
            _ => self.shares.room,
        }
    }

    /// Joins and verifies a record of `len` bytes that is there, and is done with it if it is one.
    fn take_record(&mut self, len: usize) -> Result<Kind, RecordError> {
        let shares: Vec<usize> = self.shares.live().take(self.shares.threshold).collect();
        self.shares.join_plain(&shares, len);
        let kind = record::verify(self.shares.plain(len))?;
        (self.record_len, self.longest) = (None, MAX_RECORD);
        self.advance(len)?;
        Ok(kind)
    }

    /// Is done with the next `len` bytes of all channels.
    fn advance(&mut self, len: usize) -> Result<(), RecordError> {
        self.shares.start += len;
        self.make_room()
    }

    /// Has the parts hold the record that has begun, or the header of any, if too little is left.
    fn make_room(&mut self) -> Result<(), RecordError> {
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
