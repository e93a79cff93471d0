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

use std::collections::VecDeque;
use std::task::Poll;
use std::time::Duration;

use sharing::{Joiner, Sharing};
use zeroize::Zeroizing;

use self::dispute::Dispute;
use crate::protocol::buffer::Buffer;
use crate::protocol::memory::Lease;
use crate::protocol::record::{
    self, HEADER_LEN, Kind, MAX_OPENING, MAX_RECORD, RecordError, SMALL_RECORD,
};

/// How long a record that has begun may wait for its next byte: a peer always sends records whole,
/// so a longer pause means that a channel is stuck, or a length was changed. TCP that loses one packet
/// in seven is silent for half a minute now and then: it sends a lost packet again after 0.2 s, 0.4 s
/// and so on, each time twice as long.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The same where the stream can do without the channels that are behind.
pub const SHORT_PATIENCE: Duration = Duration::from_secs(10);

/// How long the other end may take for the first record: the request, or its answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The same when a stream opens.
pub(crate) const MOMENT: Duration = Duration::from_secs(2);

/// Why a channel was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// Nobody has brought it to the association.
    #[error("its list has not come, or is another")]
    Missing,
    /// It ended before the stream.
    #[error("it has ended")]
    Ended,
    /// It broke.
    #[error("it is broken")]
    Broken,
    /// Its share of a record did not come, and enough others did.
    #[error("it is stuck")]
    Behind,
    /// It carried other bytes than were sent.
    #[error("TAMPERING: it carries other bytes than were sent")]
    Lied,
}

/// What the next bytes of the stream are.
pub struct Received<'a> {
    /// What for. Without records, always [`Kind::Data`] or [`Kind::Finish`].
    pub kind: Kind,
    /// The payload, checked.
    pub payload: &'a [u8],
}

/// Shares on their way back to a stream.
pub struct Incoming {
    joiner: Joiner,
    /// How many shares are needed.
    threshold: usize,
    /// Whether the stream may go on with fewer channels, as long as these are enough.
    may_lose: bool,
    /// Channels that were lost, until somebody has asked for them.
    losses: VecDeque<(usize, Loss)>,
    /// False: payloads alone are shared, as in the paper.
    records: bool,
    channels: Vec<Channel>,
    /// The length of the record that begins at `start`, once its header is there.
    record_len: Option<usize>,
    /// The longest that it may be.
    longest: usize,
    /// Channels contradict each other about it.
    dispute: Option<Dispute>,
    /// How far all channels' parts have been used up. The same for all: they are in step.
    start: usize,
    /// How long the buffer's parts are.
    room: usize,
    /// The channels' shares, then the joined record: `n + 1` parts of one length. No memory at all
    /// until a share arrives.
    buffer: Buffer,
    /// How much memory that may be, where it is limited.
    lease: Lease,
}

#[derive(Clone, Default)]
struct Channel {
    /// How many bytes of its part of the buffer are filled.
    end: usize,
    closed: bool,
    lost: bool,
}

impl Incoming {
    /// A receiving half that joins records by `sharing`, one share a channel.
    pub fn new(sharing: Sharing) -> Self {
        Self {
            joiner: Joiner::new(sharing),
            threshold: sharing.threshold().into(),
            may_lose: true,
            losses: VecDeque::new(),
            records: true,
            channels: vec![Channel::default(); usize::from(sharing.shares())],
            record_len: None,
            longest: MAX_RECORD,
            dispute: None,
            start: 0,
            room: SMALL_RECORD,
            buffer: Buffer::default(),
            lease: Lease::default(),
        }
    }

    /// From here on, payloads come without a header: `integrity = "none"`. No channel may be lost any more,
    /// as nobody could tell one that was changed.
    pub fn drop_records(&mut self) {
        self.records = false;
        self.may_lose = false;
        self.record_len = None;
    }

    /// The next record is one that opens a stream, so it is short: strangers, too, may send these, and the
    /// longer they are the more work it is to find out who lies.
    pub fn expect_opening(&mut self) {
        self.longest = MAX_OPENING;
    }

    /// From here on, long records need memory of this lease.
    pub(crate) fn limit_memory(&mut self, lease: Lease) {
        self.lease = lease;
    }

    /// Goes on without a channel, if that is possible. Returns whether it is.
    pub fn lose(&mut self, channel: usize, why: Loss) -> bool {
        if self.channels[channel].lost {
            return true;
        }
        let possible = self.has_spare();
        if possible {
            self.channels[channel] = Channel { end: 0, closed: true, lost: true };
            self.losses.push_back((channel, why));
        }
        possible
    }

    /// The next channel that was lost, and why. To be asked after everything else.
    pub fn poll_lost(&mut self) -> Option<(usize, Loss)> {
        self.losses.pop_front()
    }

    /// Whether all channels are still there.
    pub fn is_whole(&self) -> bool {
        self.channels.iter().all(|channel| !channel.lost)
    }

    /// Goes on without the channels that the next record waits for, because [`patience`](Self::patience) is
    /// over. Returns whether that is possible.
    pub fn lose_those_behind(&mut self) -> bool {
        let possible = self.can_lose_those_behind();
        if possible {
            for channel in self.behind().collect::<Vec<_>>() {
                self.lose(channel, Loss::Behind);
            }
        }
        possible
    }

    /// Whether enough channels have brought the next record, or its header, and others have not.
    pub fn can_lose_those_behind(&self) -> bool {
        let behind = self.behind().count();
        self.may_lose && behind > 0 && self.live().count() - behind >= self.threshold
    }

    /// The channels that have not brought the next record, or its header.
    fn behind(&self) -> impl Iterator<Item = usize> {
        let needed = self.start + self.record_len.unwrap_or(HEADER_LEN);
        self.live().filter(move |&channel| self.channels[channel].end < needed)
    }

    /// Whether the stream can go on with a channel less.
    fn has_spare(&self) -> bool {
        self.may_lose && self.live().count() > self.threshold
    }

    /// The channels that are still there.
    fn live(&self) -> impl Iterator<Item = usize> {
        (0..self.channels.len()).filter(|&channel| !self.channels[channel].lost)
    }

    /// The channels to read from, the one furthest behind first. Channels whose buffer is
    /// full, and those that have ended or were lost, are not among them.
    pub fn wanted(&self) -> impl Iterator<Item = usize> + use<> {
        let mut order: Vec<usize> = self
            .live()
            .filter(|&i| !self.channels[i].closed && self.channels[i].end < self.limit())
            .collect();
        order.sort_by_key(|&i| self.channels[i].end);
        order.into_iter()
    }

    /// The channel furthest behind, if others have brought more.
    pub fn awaited(&self) -> Option<usize> {
        let channel = self.wanted().next()?;
        let is_behind = |&other: &usize| self.channels[other].end > self.channels[channel].end;
        self.live().any(|other| is_behind(&other)).then_some(channel)
    }

    /// Where a channel's next bytes go. Empty only for channels that are not wanted.
    pub fn space(&mut self, channel: usize) -> &mut [u8] {
        if self.buffer.is_empty() {
            self.buffer = Buffer::new(self.room * (self.channels.len() + 1));
        }
        let (start, end) = (self.room * channel, self.channels[channel].end);
        let limit = self.limit().max(end);
        &mut self.buffer[start + end..start + limit]
    }

    /// A channel has filled the first `len` bytes of its space.
    ///
    /// # Panics
    /// When it had not that much space.
    pub fn filled(&mut self, channel: usize, len: usize) {
        self.channels[channel].end += len;
        assert!(self.channels[channel].end <= self.room, "no more than there is space");
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
        let part = self.room * channel;
        self.buffer.get(part + self.start..part + self.channels[channel].end).unwrap_or_default()
    }

    /// A channel has ended: no bytes will come on it any more.
    pub fn close(&mut self, channel: usize) {
        self.channels[channel].closed = true;
    }

    /// How long to wait for the next bytes, if there is a bound: see [`PATIENCE`], and
    /// [`SHORT_PATIENCE`] where [`lose_those_behind`](Self::lose_those_behind) helps. Where a channel can be
    /// lost, what fewer bring than are needed is no record that has begun: somebody may have added it.
    pub fn patience(&self) -> Option<Duration> {
        if self.can_lose_those_behind() {
            return Some(SHORT_PATIENCE);
        }
        let has_begun = |&channel: &usize| {
            let Channel { end, closed, .. } = self.channels[channel];
            end > self.start || closed
        };
        let fewest = if self.has_spare() { self.threshold } else { 1 };
        (self.live().filter(has_begun).count() >= fewest).then_some(PATIENCE)
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
        let payload = if len > 0 { &self.plain(header + len)[header..] } else { &[] };
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
            if self.dispute.is_some() {
                if self.settle()?.is_pending() {
                    return Ok(Poll::Pending);
                }
            } else if self.record_len.is_none() && self.available() >= HEADER_LEN {
                let mut header = Zeroizing::new([0; HEADER_LEN]);
                let shares: Vec<usize> = self.live().take(self.threshold).collect();
                self.join(&shares, &mut *header);
                match self.length(&header) {
                    Some(len) if self.agree_with(&shares, &*header) => self.record_len = Some(len),
                    _ => {
                        self.dispute(HEADER_LEN)?;
                        return Ok(Poll::Pending);
                    }
                }
                self.make_room()?;
            }
            match self.record_len {
                Some(len) if self.available() >= len => match self.take_record(len) {
                    Ok(kind) => return Ok(Poll::Ready(Some((kind, len - HEADER_LEN)))),
                    Err(RecordError::Tampered) => {
                        self.dispute(len)?;
                        return Ok(Poll::Pending);
                    }
                    Err(other) => return Err(other),
                },
                _ => {
                    if !self.lose_those_that_ended()? {
                        return Ok(Poll::Ready(None));
                    }
                }
            }
        }
    }

    /// The next record's length by its header, if it may be that long.
    fn length(&self, header: &[u8; HEADER_LEN]) -> Option<usize> {
        record::length(header).ok().filter(|&len| len <= self.longest)
    }

    /// Without records: as many bytes as there are on every channel.
    fn next_bytes(&mut self) -> Result<Option<(Kind, usize)>, RecordError> {
        let available = self.available();
        if available > 0 {
            let full = self.live().any(|channel| self.channels[channel].end == self.room);
            if full && self.room == SMALL_RECORD {
                // Without memory, pieces stay short.
                let _ = self.grow();
            }
            let shares: Vec<usize> = self.live().take(self.threshold).collect();
            self.join_plain(&shares, available);
            self.advance(available)?;
            return Ok(Some((Kind::Data, available)));
        }
        let ahead = self.live().any(|channel| self.channels[channel].end > self.start);
        let ended = |channel: usize| {
            let Channel { end, closed, .. } = self.channels[channel];
            closed && end == self.start
        };
        match (self.live().all(ended), self.live().any(ended)) {
            (true, _) => Ok(Some((Kind::Finish, 0))),
            // It will never have the bytes that others have.
            (false, true) if ahead => Err(RecordError::Uneven),
            _ => Ok(None),
        }
    }

    /// With records, a channel may only end after the stream's last record: what it has brought
    /// must at least be enough for the next. Goes on without those that end before, if that is possible.
    /// Returns whether there were any.
    fn lose_those_that_ended(&mut self) -> Result<bool, RecordError> {
        let needed = self.start + self.record_len.unwrap_or(HEADER_LEN);
        let is_short = |&channel: &usize| {
            let Channel { end, closed, .. } = self.channels[channel];
            closed && end < needed
        };
        let short: Vec<usize> = self.live().filter(is_short).collect();
        for &channel in &short {
            if !self.lose(channel, Loss::Ended) {
                return Err(RecordError::Unfinished { channel });
            }
        }
        Ok(!short.is_empty())
    }

    /// How many bytes all channels have that are still there.
    fn available(&self) -> usize {
        let end = self.live().map(|channel| self.channels[channel].end).min();
        end.unwrap_or(self.start) - self.start
    }

    /// How far channels may fill their buffers. Inside a long record, not far beyond its end: then
    /// there is little to move to the front for the next.
    fn limit(&self) -> usize {
        match self.record_len {
            Some(len) if len > self.room / 2 => self.room.min(self.start + len + HEADER_LEN),
            _ => self.room,
        }
    }

    /// Joins and verifies a record of `len` bytes that is there, and is done with it if it is one.
    fn take_record(&mut self, len: usize) -> Result<Kind, RecordError> {
        let shares: Vec<usize> = self.live().take(self.threshold).collect();
        self.join_plain(&shares, len);
        let kind = record::verify(self.plain(len))?;
        (self.record_len, self.longest) = (None, MAX_RECORD);
        self.advance(len)?;
        Ok(kind)
    }

    /// Is done with the next `len` bytes of all channels.
    fn advance(&mut self, len: usize) -> Result<(), RecordError> {
        self.start += len;
        self.make_room()
    }

    /// What was joined last into the last part of the buffer.
    fn plain(&self, len: usize) -> &[u8] {
        &self.buffer[self.room * self.channels.len()..][..len]
    }

    /// Joins the next `len` bytes of these channels into the last part of the buffer.
    fn join_plain(&mut self, channels: &[usize], len: usize) {
        let (shares, plain) = self.buffer.split_at_mut(self.room * self.channels.len());
        join(&mut self.joiner, channels, shares, (self.room, self.start), &mut plain[..len]);
    }

    /// Joins the next bytes of these channels, as many as there is room for.
    fn join(&mut self, channels: &[usize], out: &mut [u8]) {
        join(&mut self.joiner, channels, &self.buffer, (self.room, self.start), out);
    }

    /// Has the parts hold the record that has begun, or the header of any, if too little is left.
    fn make_room(&mut self) -> Result<(), RecordError> {
        let needed = self.record_len.unwrap_or(0) + HEADER_LEN;
        if needed > self.room {
            self.grow()?;
        }
        let drained = self.live().all(|channel| self.channels[channel].end == self.start);
        if drained || self.start + needed > self.room {
            self.compact();
        }
        Ok(())
    }

    /// Moves what is there to the front of the parts.
    fn compact(&mut self) {
        let live = self.channels.iter_mut().enumerate().filter(|(_, channel)| !channel.lost);
        for (index, channel) in live {
            let part = self.room * index;
            self.buffer.copy_within(part + self.start..part + channel.end, part);
            channel.end -= self.start;
        }
        self.start = 0;
    }

    /// Has the parts hold any record. What a joined record was is lost.
    fn grow(&mut self) -> Result<(), RecordError> {
        let room = MAX_RECORD + HEADER_LEN;
        if !self.lease.resize((room - SMALL_RECORD) * (self.channels.len() + 1)) {
            return Err(RecordError::NoMemory);
        }
        let mut longer = Buffer::new(room * (self.channels.len() + 1));
        for (index, channel) in self.channels.iter().enumerate() {
            let filled = &self.buffer[self.room * index..][..channel.end];
            longer[room * index..][..channel.end].copy_from_slice(filled);
        }
        (self.buffer, self.room) = (longer, room);
        Ok(())
    }

    /// Gives back memory that an idle stream does not need. Only while nothing waits.
    pub fn shrink(&mut self) {
        if self.live().all(|channel| self.channels[channel].end == 0) {
            self.room = SMALL_RECORD;
            self.buffer = Buffer::default();
            self.lease.resize(0);
        }
    }
}

/// Joins the shares of channels, which lie in parts of `room` bytes, from `start` in each, as many bytes as
/// there is room for.
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
