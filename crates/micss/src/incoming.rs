//! The receiving half of a stream: shares from every channel in, checked payloads out.
//!
//! Which channel is read next decides how far they can drift apart. The one furthest behind comes
//! first, and none may be further ahead than a buffer for one record holds, so a fast channel's bytes
//! wait in the network, and TCP's flow control slows it down to the slowest (paper 001, III-E).

use std::time::Duration;

use sharing::{Joiner, Sharing};
use zeroize::Zeroizing;

use crate::buffer::Buffer;
use crate::record::{self, HEADER_LEN, Kind, MAX_RECORD, RecordError, SMALL_RECORD};

/// How long a record that has begun may wait for its next byte: a peer always sends records whole,
/// so a longer pause means that a channel is stuck, or a length was changed. TCP that loses one packet
/// in seven is silent for half a minute now and then: it sends a lost packet again after 0.2 s, 0.4 s
/// and so on, each time twice as long.
pub const PATIENCE: Duration = Duration::from_secs(120);

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
    coordinates: Vec<u8>,
    /// False: payloads alone are shared, as in the paper.
    records: bool,
    channels: Vec<Channel>,
    /// The length of the record that begins at `start`, once its header is there.
    record_len: Option<usize>,
    /// How far all channels' parts have been used up. The same for all: they are in step.
    start: usize,
    /// How long the buffer's parts are.
    room: usize,
    /// The channels' shares, then the joined record: `n + 1` parts of one length. No memory at all
    /// until a share arrives.
    buffer: Buffer,
}

#[derive(Clone, Default)]
struct Channel {
    /// How many bytes of its part of the buffer are filled.
    end: usize,
    closed: bool,
}

impl Incoming {
    /// A receiving half that joins records by `sharing`, one share a channel.
    pub fn new(sharing: Sharing) -> Self {
        Self {
            joiner: Joiner::new(sharing),
            coordinates: (1..=sharing.shares()).collect(),
            records: true,
            channels: vec![Channel::default(); usize::from(sharing.shares())],
            record_len: None,
            start: 0,
            room: SMALL_RECORD,
            buffer: Buffer::default(),
        }
    }

    /// From here on, payloads come without a header: `integrity = "none"`.
    pub fn drop_records(&mut self) {
        self.records = false;
        self.record_len = None;
    }

    /// The channels to read from, the one furthest behind first. Channels whose buffer is
    /// full, and those that have ended, are not among them.
    pub fn wanted(&self) -> impl Iterator<Item = usize> + use<> {
        let mut order: Vec<usize> = (0..self.channels.len())
            .filter(|&i| !self.channels[i].closed && self.channels[i].end < self.limit())
            .collect();
        order.sort_by_key(|&i| self.channels[i].end);
        order.into_iter()
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

    /// How long to wait for the next bytes, if there is a bound: see [`PATIENCE`].
    pub fn patience(&self) -> Option<Duration> {
        let waits = |channel: &Channel| channel.end > self.start || channel.closed;
        self.channels.iter().any(waits).then_some(PATIENCE)
    }

    /// The next of the stream, if it is there. To be asked again until it is not.
    ///
    /// # Errors
    /// When the shares do not make a stream. Nothing that came later may be used then.
    pub fn take_next(&mut self) -> Result<Option<Received<'_>>, RecordError> {
        if self.records { self.next_record() } else { self.next_bytes() }
    }

    fn next_record(&mut self) -> Result<Option<Received<'_>>, RecordError> {
        let available = self.available();
        if self.record_len.is_none() && available >= HEADER_LEN {
            let mut header = Zeroizing::new([0; HEADER_LEN]);
            let shares = &self.buffer[..self.room * self.channels.len()];
            let shares =
                shares.chunks_exact(self.room).map(|part| &part[self.start..][..HEADER_LEN]);
            join(&mut self.joiner, &self.coordinates, shares, &mut *header);
            self.record_len = Some(record::length(&header)?);
            self.make_room();
        }
        match self.record_len {
            Some(len) if available >= len => {
                self.record_len = None;
                let record = self.take(len);
                let kind = record::verify(record)?;
                Ok(Some(Received { kind, payload: &record[HEADER_LEN..] }))
            }
            _ => self.check_open().map(|()| None),
        }
    }

    /// Without records: as many bytes as there are on every channel.
    fn next_bytes(&mut self) -> Result<Option<Received<'_>>, RecordError> {
        let available = self.available();
        if available > 0 {
            let full = self.channels.iter().any(|channel| channel.end == self.room);
            if full && self.room == SMALL_RECORD {
                self.grow();
            }
            return Ok(Some(Received { kind: Kind::Data, payload: self.take(available) }));
        }
        let ahead = self.channels.iter().any(|channel| channel.end > self.start);
        let ended = |channel: &Channel| channel.closed && channel.end == self.start;
        match (self.channels.iter().all(ended), self.channels.iter().any(ended)) {
            (true, _) => Ok(Some(Received { kind: Kind::Finish, payload: &[] })),
            // It will never have the bytes that others have.
            (false, true) if ahead => Err(RecordError::Uneven),
            _ => Ok(None),
        }
    }

    /// With records, a channel may only end after the stream's last record: what it has brought
    /// must at least be enough for the next.
    fn check_open(&self) -> Result<(), RecordError> {
        let needed = self.start + self.record_len.unwrap_or(HEADER_LEN);
        match self.channels.iter().position(|channel| channel.closed && channel.end < needed) {
            Some(channel) => Err(RecordError::Unfinished { channel }),
            None => Ok(()),
        }
    }

    /// How many bytes all channels have.
    fn available(&self) -> usize {
        let end = self.channels.iter().map(|channel| channel.end).min();
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

    /// Joins the next `len` bytes of all channels, and is done with them.
    fn take(&mut self, len: usize) -> &[u8] {
        let (shares, plain) = self.buffer.split_at_mut(self.room * self.channels.len());
        let shares = shares.chunks_exact(self.room).map(|part| &part[self.start..][..len]);
        join(&mut self.joiner, &self.coordinates, shares, &mut plain[..len]);
        self.start += len;
        self.make_room();
        &self.buffer[self.room * self.channels.len()..][..len]
    }

    /// Has the parts hold the record that has begun, or the header of any, if too little is left.
    fn make_room(&mut self) {
        let needed = self.record_len.unwrap_or(0) + HEADER_LEN;
        if needed > self.room {
            self.grow();
        }
        let drained = self.channels.iter().all(|channel| channel.end == self.start);
        if drained || self.start + needed > self.room {
            for (index, channel) in self.channels.iter_mut().enumerate() {
                let part = self.room * index;
                self.buffer.copy_within(part + self.start..part + channel.end, part);
                channel.end -= self.start;
            }
            self.start = 0;
        }
    }

    /// Has the parts hold any record. What a joined record was is lost.
    fn grow(&mut self) {
        let room = MAX_RECORD + HEADER_LEN;
        let mut longer = Buffer::new(room * (self.channels.len() + 1));
        for (index, channel) in self.channels.iter().enumerate() {
            let filled = &self.buffer[self.room * index..][..channel.end];
            longer[room * index..][..channel.end].copy_from_slice(filled);
        }
        (self.buffer, self.room) = (longer, room);
    }

    /// Gives back memory that an idle stream does not need. Only while nothing waits.
    pub fn shrink(&mut self) {
        if self.channels.iter().all(|channel| channel.end == 0) {
            self.room = SMALL_RECORD;
            self.buffer = Buffer::default();
        }
    }
}

fn join<'a>(
    joiner: &mut Joiner,
    coordinates: &[u8],
    shares: impl Iterator<Item = &'a [u8]>,
    out: &mut [u8],
) {
    let shares: Vec<&[u8]> = shares.collect();
    joiner.join(coordinates, &shares, out).expect("one share a channel, of one length");
}
