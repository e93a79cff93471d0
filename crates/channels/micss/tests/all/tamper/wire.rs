//! The stream that an attacker works on, as the channels carry it.

use random::RandomGenerator;
use sharing::SharingParameters;
use sunder_micss::outgoing::OutgoingRecords;
use sunder_micss::record::MicssRecordKind;

/// A kind and a payload.
pub(crate) type Item = (MicssRecordKind, Vec<u8>);

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
        let lens = [
            (MicssRecordKind::Open, 7),
            (MicssRecordKind::Opened, 0),
            (MicssRecordKind::Refused, 1),
        ];
        let data = [0, 1, 11, 12, 13, 28, 29, 100, 700].map(|len| (MicssRecordKind::Data, len));
        let ends = [(MicssRecordKind::Abort, 0), (MicssRecordKind::Finish, 0)];
        Self::of(n, &[&lens[..], &data, &ends].concat())
    }

    /// Three records.
    pub(crate) fn short(n: usize, round: usize) -> Self {
        let len = [20, 64, 150, 5, 33, 256][round % 6];
        let first = [MicssRecordKind::Data, MicssRecordKind::Open][round % 2];
        let last = [
            (MicssRecordKind::Finish, 0),
            (MicssRecordKind::Data, 80),
            (MicssRecordKind::Abort, 0),
        ][round % 3];
        Self::of(n, &[(first, len), (MicssRecordKind::Data, 40 + round % 50), last])
    }

    fn of(n: usize, records: &[(MicssRecordKind, usize)]) -> Self {
        let sharing = SharingParameters::xor(u8::try_from(n).unwrap()).unwrap();
        let mut outgoing = OutgoingRecords::new(sharing, RandomGenerator::seeded().unwrap());
        let mut recording = Self { sent: Vec::new(), shares: vec![Vec::new(); n], bounds: vec![0] };
        for &(kind, len) in records {
            let payload: Vec<u8> =
                b"known to whoever attacks. ".iter().copied().cycle().take(len).collect();
            outgoing.seal_payload(kind, &payload).unwrap();
            for (channel, share) in recording.shares.iter_mut().enumerate() {
                share.extend_from_slice(outgoing.unsent(channel));
                outgoing.advance(channel, outgoing.unsent(channel).len());
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
