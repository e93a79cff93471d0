//! The stream that an attacker works on, as the channels carry it.

use sharing::{Generator, Sharing};
use sunder_micss::outgoing::Outgoing;
use sunder_micss::record::Kind;

/// A kind and a payload.
pub(crate) type Item = (Kind, Vec<u8>);

/// A recording of one direction of a stream on every channel. The attacker knows `sent`.
pub(crate) struct Recording {
    pub(crate) sent: Vec<Item>,
    /// The bytes of each channel.
    pub(crate) shares: Vec<Vec<u8>>,
    /// The start of each record, and the end of the last.
    pub(crate) bounds: Vec<usize>,
}

impl Recording {
    /// Records of all kinds, with sizes around the block sizes of the tamper code.
    pub(crate) fn new(n: usize) -> Self {
        let lens = [(Kind::Open, 7), (Kind::Opened, 0), (Kind::Refused, 1)];
        let data = [0, 1, 11, 12, 13, 28, 29, 100, 700].map(|len| (Kind::Data, len));
        let ends = [(Kind::Abort, 0), (Kind::Finish, 0)];
        Self::of(n, &[&lens[..], &data, &ends].concat())
    }

    /// Three records.
    pub(crate) fn short(n: usize, round: usize) -> Self {
        let len = [20, 64, 150, 5, 33, 256][round % 6];
        let first = [Kind::Data, Kind::Open][round % 2];
        let last = [(Kind::Finish, 0), (Kind::Data, 80), (Kind::Abort, 0)][round % 3];
        Self::of(n, &[(first, len), (Kind::Data, 40 + round % 50), last])
    }

    fn of(n: usize, records: &[(Kind, usize)]) -> Self {
        let sharing = Sharing::xor(u8::try_from(n).unwrap()).unwrap();
        let mut outgoing = Outgoing::new(sharing, Generator::seeded().unwrap());
        let mut recording = Self { sent: Vec::new(), shares: vec![Vec::new(); n], bounds: vec![0] };
        for &(kind, len) in records {
            let payload: Vec<u8> =
                b"known to whoever attacks. ".iter().copied().cycle().take(len).collect();
            outgoing.seal_payload(kind, &payload).unwrap();
            for (channel, share) in recording.shares.iter_mut().enumerate() {
                share.extend_from_slice(outgoing.rest(channel));
                outgoing.advance(channel, outgoing.rest(channel).len());
            }
            recording.sent.push((kind, payload));
            recording.bounds.push(recording.len());
        }
        recording
    }

    /// The number of bytes on each channel.
    pub(crate) fn len(&self) -> usize {
        self.shares[0].len()
    }

    /// The number of records.
    pub(crate) fn records(&self) -> usize {
        self.sent.len()
    }

    /// The range of a record on each channel.
    pub(crate) fn record(&self, index: usize) -> std::ops::Range<usize> {
        self.bounds[index]..self.bounds[index + 1]
    }
}
