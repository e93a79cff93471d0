//! The sending half of a stream: payloads in, one share for each channel out.

use sharing::{Generator, RandomError, Sharing, Splitter};

use crate::protocol::buffer::Buffer;
use crate::protocol::memory::Lease;
use crate::protocol::record::{self, HEADER_LEN, Kind, MAX_PAYLOAD, MAX_RECORD, SMALL_RECORD};

/// A few records on their way to the channels.
///
/// The application's bytes are read into [`payload_mut`](Self::payload_mut) and sealed, possibly
/// several times, and then taken by each channel at its own rate. There is space for further
/// records only when every channel has taken its whole share, which limits the sender to the rate
/// of the slowest channel.
pub struct Outgoing {
    splitter: Splitter,
    generator: Generator,
    /// False: only the payload is shared, as in the paper.
    records: bool,
    /// Nothing may follow.
    finished: bool,
    /// Bytes that precede the next record, unencrypted and equal on every channel.
    before: Vec<u8>,
    /// The maximum length of the next records; grows when it is used up.
    room: usize,
    /// A record before it is shared, then the shares of all sealed records: `1 + n` parts of equal
    /// length. Takes no memory until there is a payload.
    buffer: Buffer,
    /// How many bytes of its share each channel has taken; `None` for lost channels.
    taken: Vec<Option<usize>>,
    /// The minimum number of channels.
    fewest: usize,
    /// The length of the shares.
    len: usize,
    /// The limit of the buffer's memory, if there is one.
    lease: Lease,
}

impl Outgoing {
    /// A sending half that shares records by `sharing`, one share for each channel.
    pub fn new(sharing: Sharing, generator: Generator) -> Self {
        let channels = usize::from(sharing.shares());
        Self {
            splitter: Splitter::new(sharing),
            generator,
            records: true,
            finished: false,
            before: Vec::new(),
            room: SMALL_RECORD,
            buffer: Buffer::default(),
            taken: vec![Some(0); channels],
            fewest: sharing.threshold().into(),
            len: 0,
            lease: Lease::default(),
        }
    }

    /// Long records need memory of this lease from now on. Without it, records stay short.
    pub(crate) fn limit_memory(&mut self, lease: Lease) {
        self.lease = lease;
    }

    /// Payloads are shared without a header from now on: `integrity = "none"`. Channels can no
    /// longer be lost.
    pub fn drop_records(&mut self) {
        self.records = false;
        self.fewest = self.taken.len();
    }

    /// Goes on without a channel, if possible. Returns whether it is.
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

    /// Whether the stream can go on with one channel less.
    pub fn has_spare(&self) -> bool {
        self.live() > self.fewest
    }

    /// Whether no channel is lost.
    pub fn is_whole(&self) -> bool {
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

    /// Makes space for the next records, if all have been taken.
    fn begin(&mut self) {
        if self.is_taken() {
            self.len = 0;
            self.taken.iter_mut().flatten().for_each(|taken| *taken = 0);
        }
    }

    /// Sends these bytes before the next record on every channel, unencrypted.
    pub fn precede(&mut self, bytes: Vec<u8>) {
        self.before = bytes;
    }

    /// Makes space for a payload of so many bytes, with the stream's end behind it, up to the
    /// maximum length of a record. Only before any channel has begun to take the sealed records.
    pub fn make_room(&mut self, len: usize) {
        self.begin();
        let needed = self.len + 2 * HEADER_LEN + len.min(MAX_PAYLOAD);
        let room = needed.next_power_of_two().min(MAX_RECORD);
        if !self.may_seal() || room <= self.part().max(self.room) || !self.may_take(room) {
            return;
        }
        let (part, sealed) = (self.part(), self.len);
        let mut larger = Buffer::new(room * (1 + self.taken.len()));
        for share in 1..=self.taken.len() {
            let own = &self.buffer[part * share..][..sealed];
            larger[room * share..][..sealed].copy_from_slice(own);
        }
        (self.room, self.buffer) = (room, larger);
    }

    /// The buffer for the next payload: at most `MAX_PAYLOAD` bytes, and not empty unless records
    /// are sealed already.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.begin();
        if self.len == 0 && self.part() != self.room {
            if !self.may_take(self.room) {
                self.room = self.part().max(SMALL_RECORD);
            }
            self.buffer = Buffer::new(self.room * (1 + self.taken.len()));
        }
        let end = self.part() - self.len;
        &mut self.buffer[HEADER_LEN.min(end)..end]
    }

    /// Whether there is memory for parts of this length.
    fn may_take(&mut self, room: usize) -> bool {
        self.lease.resize(room.saturating_sub(SMALL_RECORD) * (1 + self.taken.len()))
    }

    /// The length of the buffer's parts.
    fn part(&self) -> usize {
        self.buffer.len() / (1 + self.taken.len())
    }

    /// Makes a record of the first `len` bytes of the payload and shares it, behind those that are
    /// sealed and not taken yet.
    ///
    /// # Errors
    /// If there are no random bytes.
    ///
    /// # Panics
    /// If a channel has begun to take the sealed records and others have not taken them all; if the
    /// payload is shorter than `len`; or if there is no space for the bytes before it.
    pub fn seal(&mut self, kind: Kind, len: usize) -> Result<(), RandomError> {
        self.begin();
        assert!(self.may_seal(), "nothing has been taken yet");
        if self.buffer.is_empty() {
            self.payload_mut();
        }
        let (part, start) = (self.part(), self.len);
        let before = std::mem::take(&mut self.before);
        let room = (part - start).checked_sub(HEADER_LEN + before.len());
        assert!(room.is_some_and(|room| len <= room), "the payload has room for {room:?} bytes");
        let (plain, shares) = self.buffer.split_at_mut(part);
        let record = &mut plain[..HEADER_LEN + len];
        if self.records {
            record::protect(kind, record, &mut self.generator)?;
        }
        let record = &record[if self.records { 0 } else { HEADER_LEN }..];
        let mut views: Vec<&mut [u8]> = shares
            .chunks_exact_mut(part)
            .map(|share| {
                let (clear, share) = share[start..].split_at_mut(before.len());
                clear.copy_from_slice(&before);
                &mut share[..record.len()]
            })
            .collect();
        self.splitter.split(record, &mut views, &mut self.generator).map_err(
            |error| match error {
                sharing::SplitError::Random(error) => error,
                wrong => unreachable!("one buffer a share, as long as the record: {wrong}"),
            },
        )?;
        self.len = start + before.len() + record.len();
        if Some(len) == room {
            self.room = MAX_RECORD;
        }
        Ok(())
    }

    /// Whether no channel has taken only a part of the sealed records.
    fn may_seal(&self) -> bool {
        self.is_taken() || self.taken.iter().flatten().all(|&taken| taken == 0)
    }

    /// The space on each channel behind the sealed records, in bytes: for the next record, header
    /// included.
    pub fn room(&self) -> usize {
        if self.is_taken() { self.room } else { self.part() - self.len }
    }

    /// Seals a record with this payload.
    ///
    /// # Errors
    /// As [`Self::seal`].
    ///
    /// # Panics
    /// As [`Self::seal`].
    pub fn seal_payload(&mut self, kind: Kind, payload: &[u8]) -> Result<(), RandomError> {
        self.payload_mut()[..payload.len()].copy_from_slice(payload);
        self.seal(kind, payload.len())
    }

    /// Seals the end of the stream: a record, or without records nothing.
    ///
    /// # Errors
    /// As [`Self::seal`].
    ///
    /// # Panics
    /// As [`Self::seal`].
    pub fn finish(&mut self) -> Result<(), RandomError> {
        self.finished = true;
        self.seal(Kind::Finish, 0)
    }

    /// Whether a record may follow now that aborts the stream.
    pub fn may_abort(&self) -> bool {
        self.records && !self.finished && self.may_seal() && self.room() >= HEADER_LEN
    }

    /// The part of its share that a channel has not taken yet.
    pub fn rest(&self, channel: usize) -> &[u8] {
        let start = self.part() * (1 + channel);
        let taken = self.taken[channel].unwrap_or(self.len);
        &self.buffer[start + taken..start + self.len]
    }

    /// A channel has taken the next `len` bytes of its share.
    ///
    /// # Panics
    /// If there were fewer.
    pub fn advance(&mut self, channel: usize, len: usize) {
        if let Some(taken) = &mut self.taken[channel] {
            *taken += len;
            assert!(*taken <= self.len, "no more than there is");
        }
    }

    /// Whether every channel that is not lost has taken its whole share.
    pub fn is_taken(&self) -> bool {
        self.taken.iter().flatten().all(|&taken| taken == self.len)
    }

    /// Frees memory that an idle stream does not need. Only while no channel has bytes to take.
    pub fn shrink(&mut self) {
        if self.is_taken() {
            self.room = SMALL_RECORD;
            self.buffer = Buffer::default();
            self.lease.resize(0);
            self.begin();
        }
    }
}
