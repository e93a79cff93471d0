//! The receiving half of a stream: shares from every channel in, checked payloads out.
//!
//! Which channel is read next decides how far they can drift apart. The one furthest behind comes
//! first, and none may be more than one record ahead, so a fast channel's bytes wait in the
//! network, and TCP's flow control slows it down to the slowest (paper 001, III-E).

use std::time::Duration;

use sharing::{Joiner, Sharing};
use zeroize::{Zeroize, Zeroizing};

use crate::record::{self, HEADER_LEN, Kind, MAX_RECORD, RecordError};

/// How long a record that has begun may wait for its next byte: a peer always sends records whole,
/// so a longer pause means that a channel is stuck, or a length was changed.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How many bytes a channel has room for until a longer record arrives.
const SMALL_RECORD: usize = 4 << 10;

/// What the next bytes of the stream are.
#[derive(Debug, PartialEq, Eq)]
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
    /// How far all channels' buffers have been used up. The same for all: they are in step.
    start: usize,
    /// How long the channels' buffers are.
    room: usize,
    /// The joined record. Wiped, like the shares, which together are the record.
    plain: Zeroizing<Vec<u8>>,
}

#[derive(Default)]
struct Channel {
    buffer: Zeroizing<Vec<u8>>,
    /// How many bytes of the buffer are filled.
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
            channels: (0..sharing.shares()).map(|_| Channel::default()).collect(),
            record_len: None,
            start: 0,
            room: SMALL_RECORD,
            plain: Zeroizing::default(),
        }
    }

    /// From here on, payloads come without a header: `integrity = "none"`.
    pub fn drop_records(&mut self) {
        self.records = false;
        self.record_len = None;
    }

    /// The channels to read from, the one furthest behind first. Channels that are a whole record
    /// ahead, and those that have ended, are not among them.
    pub fn wanted(&self) -> impl Iterator<Item = usize> + use<> {
        let mut order: Vec<usize> = (0..self.channels.len())
            .filter(|&i| !self.channels[i].closed && self.channels[i].end < self.limit())
            .collect();
        order.sort_by_key(|&i| self.channels[i].end);
        order.into_iter()
    }

    /// Where a channel's next bytes go. Empty only for channels that are not wanted.
    pub fn space(&mut self, channel: usize) -> &mut [u8] {
        let (limit, room) = (self.limit(), self.room);
        let Channel { buffer, end, .. } = &mut self.channels[channel];
        if buffer.len() < room {
            // Not `resize`: growing in place would leave a copy of the old bytes unwiped.
            let mut longer = Zeroizing::new(vec![0; room]);
            longer[..*end].copy_from_slice(&buffer[..*end]);
            *buffer = longer;
        }
        &mut buffer[*end..limit.max(*end)]
    }

    /// A channel has filled the first `len` bytes of its space.
    ///
    /// # Panics
    /// When it had not that much space.
    pub fn filled(&mut self, channel: usize, len: usize) {
        self.channels[channel].end += len;
        assert!(self.channels[channel].end <= self.room, "no more than there is space");
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
            self.join(HEADER_LEN, &mut *header);
            self.record_len = Some(record::length(&header)?);
            self.make_room();
        }
        match self.record_len {
            Some(len) if available >= len => {
                self.record_len = None;
                self.take(len);
                let record = &self.plain[..len];
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
            if available == self.room {
                self.room = MAX_RECORD;
            }
            self.take(available);
            return Ok(Some(Received { kind: Kind::Data, payload: &self.plain[..available] }));
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

    /// Joins the next `len` bytes of all channels into `out`.
    fn join(&mut self, len: usize, out: &mut [u8]) {
        join(&mut self.joiner, &self.coordinates, &self.channels, self.start, len, out);
    }

    /// Joins the next `len` bytes of all channels into `self.plain`, and is done with them.
    fn take(&mut self, len: usize) {
        if self.plain.len() < len {
            self.plain = Zeroizing::new(vec![0; self.room]);
        }
        let out = &mut self.plain[..len];
        join(&mut self.joiner, &self.coordinates, &self.channels, self.start, len, out);
        self.start += len;
        if self.channels.iter().all(|channel| channel.end == self.start) {
            self.start = 0;
            for channel in &mut self.channels {
                channel.end = 0;
            }
        } else {
            self.make_room();
        }
    }

    /// Makes the buffers hold the record that has begun, or any, if too little is left of them.
    fn make_room(&mut self) {
        let needed = self.record_len.unwrap_or(HEADER_LEN);
        if needed + HEADER_LEN > self.room {
            self.room = MAX_RECORD + HEADER_LEN;
        }
        if self.start + needed + HEADER_LEN > self.room {
            for channel in &mut self.channels {
                channel.buffer.copy_within(self.start..channel.end, 0);
                channel.end -= self.start;
            }
            self.start = 0;
        }
    }

    /// Gives back memory that an idle stream does not need. Only while nothing waits.
    pub fn shrink(&mut self) {
        if self.room > SMALL_RECORD && self.channels.iter().all(|channel| channel.end == 0) {
            self.room = SMALL_RECORD;
            for buffer in self.channels.iter_mut().map(|channel| &mut channel.buffer) {
                buffer.zeroize();
                buffer.shrink_to_fit();
            }
            self.plain.zeroize();
            self.plain.shrink_to_fit();
        }
    }
}

fn join(
    joiner: &mut Joiner,
    coordinates: &[u8],
    channels: &[Channel],
    start: usize,
    len: usize,
    out: &mut [u8],
) {
    let shares: Vec<&[u8]> =
        channels.iter().map(|channel| &channel.buffer[start..start + len]).collect();
    joiner.join(coordinates, &shares, out).expect("one share a channel, of one length");
}
