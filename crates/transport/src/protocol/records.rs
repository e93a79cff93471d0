//! The encrypted stream: records, each of which is its length (two bytes, big-endian) and a chunk
//! of up to 65,519 bytes, encrypted with its number. An empty chunk is the end of the stream: a
//! stream that stops before was cut.

use std::sync::Arc;

use keys::noise::TAG_LEN;
use snow::StatelessTransportState;
use zeroize::{Zeroize as _, Zeroizing};

/// The longest chunk: a message of Noise is at most 65,535 bytes.
pub(crate) const MAX_CHUNK_LEN: usize = 65_535 - TAG_LEN;

const HEADER_LEN: usize = 2;
const MAX_RECORD_LEN: usize = HEADER_LEN + MAX_CHUNK_LEN + TAG_LEN;

/// How much is read at a time.
const BUFFER_LEN: usize = 4 * MAX_RECORD_LEN;

/// A record that the peer has not sent: it was changed, repeated, or is not the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChangedRecord;

/// Makes the records of one direction.
pub(crate) struct Sealer {
    noise: Arc<StatelessTransportState>,
    number: u64,
}

impl Sealer {
    pub(crate) fn new(noise: Arc<StatelessTransportState>) -> Self {
        Self { noise, number: 0 }
    }

    /// Appends the record of a chunk.
    ///
    /// # Panics
    /// If the chunk is longer than [`MAX_CHUNK_LEN`].
    pub(crate) fn seal(&mut self, chunk: &[u8], to: &mut Vec<u8>) {
        let len = u16::try_from(chunk.len() + TAG_LEN).expect("a chunk fits a record");
        to.extend(len.to_be_bytes());
        let at = to.len();
        to.resize(at + usize::from(len), 0);
        let written = self.noise.write_message(self.number, chunk, &mut to[at..]);
        assert_eq!(written, Ok(usize::from(len)), "a chunk fits a message of Noise");
        self.number += 1;
    }
}

/// What the next record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// It is not complete: more bytes have to come.
    Incomplete,
    /// Data, to be taken by [`Opener::read`].
    Data,
    /// The end of the stream. What comes after it is ignored.
    End,
}

/// Takes the records of one direction.
pub(crate) struct Opener {
    noise: Arc<StatelessTransportState>,
    number: u64,
    /// What has arrived and is not decrypted: `arrived[start..end]`.
    arrived: Vec<u8>,
    start: usize,
    end: usize,
    /// The chunk: `chunk[read..len]` is not read yet.
    chunk: Zeroizing<Vec<u8>>,
    read: usize,
    len: usize,
    has_ended: bool,
}

impl Opener {
    pub(crate) fn new(noise: Arc<StatelessTransportState>) -> Self {
        Self {
            noise,
            number: 0,
            arrived: vec![0; BUFFER_LEN],
            start: 0,
            end: 0,
            chunk: Zeroizing::new(vec![0; MAX_RECORD_LEN]),
            read: 0,
            len: 0,
            has_ended: false,
        }
    }

    /// Room for bytes that arrive: never empty after [`Self::poll`] has said
    /// [`Opened::Incomplete`].
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.start > 0 && BUFFER_LEN - self.end < MAX_RECORD_LEN {
            self.arrived.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        &mut self.arrived[self.end..]
    }

    /// So many bytes are in the room now.
    ///
    /// # Panics
    /// If there are more than the room has.
    pub(crate) fn filled(&mut self, count: usize) {
        self.end += count;
        assert!(self.end <= BUFFER_LEN, "no more bytes than there is room for");
    }

    /// Decrypts the next record, unless data of the last one is to be read.
    ///
    /// # Errors
    /// When the record is not what the peer has sent next. The connection must be closed.
    pub(crate) fn poll(&mut self) -> Result<Opened, ChangedRecord> {
        if self.read < self.len {
            return Ok(Opened::Data);
        }
        if self.has_ended {
            return Ok(Opened::End);
        }
        let arrived = &self.arrived[self.start..self.end];
        let Some((header, rest)) = arrived.split_first_chunk() else {
            return Ok(Opened::Incomplete);
        };
        let len = usize::from(u16::from_be_bytes(*header));
        if len < TAG_LEN {
            return Err(ChangedRecord);
        }
        let Some(record) = rest.get(..len) else { return Ok(Opened::Incomplete) };
        let opened = self.noise.read_message(self.number, record, &mut self.chunk);
        self.len = opened.map_err(|_| ChangedRecord)?;
        self.number += 1;
        self.start += HEADER_LEN + len;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        self.read = 0;
        self.has_ended = self.len == 0;
        Ok(if self.has_ended { Opened::End } else { Opened::Data })
    }

    /// Takes data of the record. Returns its length: 0 only if there is none, or no room.
    pub(crate) fn read(&mut self, to: &mut [u8]) -> usize {
        let count = to.len().min(self.len - self.read);
        to[..count].copy_from_slice(&self.chunk[self.read..self.read + count]);
        self.chunk[self.read..self.read + count].zeroize();
        self.read += count;
        count
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::handshake::tests::sessions;
    use super::*;

    /// What an end reads of a stream that arrives in pieces of these lengths, in turn.
    fn received(stream: &[u8], pieces: &[usize]) -> Result<(Vec<u8>, bool), ChangedRecord> {
        let mut opener = sessions().1.opener;
        let (mut received, mut rest) = (Vec::new(), stream);
        let mut pieces = pieces.iter().copied().cycle();
        loop {
            match opener.poll()? {
                Opened::Data => {
                    let mut data = [0; 1000];
                    let len = opener.read(&mut data);
                    received.extend(&data[..len]);
                }
                Opened::End => return Ok((received, true)),
                Opened::Incomplete if rest.is_empty() => return Ok((received, false)),
                Opened::Incomplete => {
                    let space = opener.space();
                    let count = pieces.next().unwrap_or(1).min(space.len()).min(rest.len());
                    assert!(count > 0);
                    space[..count].copy_from_slice(&rest[..count]);
                    rest = &rest[count..];
                    opener.filled(count);
                }
            }
        }
    }

    fn sealed(chunks: &[&[u8]]) -> Vec<u8> {
        let (mut sealer, mut stream) = (sessions().0.sealer, Vec::new());
        for chunk in chunks {
            sealer.seal(chunk, &mut stream);
        }
        stream
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_stream_arrives_whole_however_it_is_cut(
            chunks in prop::collection::vec(prop_oneof![1..100_usize, Just(MAX_CHUNK_LEN)], 0..8),
            pieces in prop::collection::vec(prop_oneof![1..100_usize, 1..300_000_usize], 1..8),
        ) {
            let chunks: Vec<Vec<u8>> =
                chunks.iter().zip(0_u8..).map(|(len, byte)| vec![byte; *len]).collect();
            let mut all: Vec<&[u8]> = chunks.iter().map(|chunk| &chunk[..]).collect();
            all.push(&[]);
            prop_assert_eq!(received(&sealed(&all), &pieces), Ok((chunks.concat(), true)));
        }

        #[test]
        fn no_changed_byte_is_delivered(at in 0..300_usize, bit in 0..8_u8) {
            let chunks: [&[u8]; 4] = [&[1; 70], &[2; 70], &[3; 70], &[]];
            let mut stream = sealed(&chunks);
            let at = at % stream.len();
            stream[at] ^= 1 << bit;
            let before = (at / 88).min(3) * 70;
            // It is no error yet if a length was made longer than what follows.
            if let Ok((data, has_ended)) = received(&stream, &[10]) {
                prop_assert!(!has_ended);
                prop_assert_eq!(data.len(), before);
            }
        }
    }

    #[test]
    fn records_are_not_repeated_skipped_or_swapped() {
        let one = sealed(&[&[1; 10]]);
        let both = sealed(&[&[1; 10], &[2; 10]]);
        let two = &both[one.len()..];
        assert_eq!(received(&[&one[..], &one].concat(), &[7]), Err(ChangedRecord));
        assert_eq!(received(two, &[7]), Err(ChangedRecord));
        assert_eq!(received(&[two, &one].concat(), &[7]), Err(ChangedRecord));
        // A stream that is cut after a record has not ended.
        assert_eq!(received(&one, &[7]), Ok((vec![1; 10], false)));
    }

    #[test]
    fn impossible_lengths_are_refused_at_once() {
        for len in 0..16_u16 {
            assert_eq!(received(&len.to_be_bytes(), &[2]), Err(ChangedRecord));
        }
    }
}
