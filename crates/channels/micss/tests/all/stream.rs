//! The protocol without sockets: everything arrives unchanged, however the network divides it and
//! whichever channel is fast, and the end of a channel is not taken for the stream's.

use proptest::prelude::*;
use random::RandomGenerator;
use sharing::{SharingParameters, Splitter, tamper};
use sunder_micss::incoming::{IncomingRecords, SEED_LEN};
use sunder_micss::outgoing::OutgoingRecords;
use sunder_micss::record::{
    HEADER_LEN, MAX_PAYLOAD, MAX_RECORD, MicssRecordError, MicssRecordKind,
};

/// The maximum distance of a channel ahead of the consumed bytes.
const MAX_AHEAD: usize = MAX_RECORD + HEADER_LEN;

/// A kind and a payload.
type Item = (MicssRecordKind, Vec<u8>);

/// A small random generator, so that a failing case can be repeated from its seed.
struct Choices(u64);

impl Choices {
    /// A number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % bound as u64).unwrap()
    }
}

/// Both ends of one direction and the channels between them.
struct Line {
    outgoing: OutgoingRecords,
    incoming: IncomingRecords,
    channels: Vec<Channel>,
    /// The number of consumed bytes of each channel.
    used: usize,
    records: bool,
    choices: Choices,
    got: Vec<Item>,
}

#[derive(Clone, Default)]
struct Channel {
    /// Taken from the sender, and not yet passed to the receiver.
    under_way: Vec<u8>,
    /// The number of bytes from the sender, and that of the bytes passed to the receiver.
    sent: usize,
    received: usize,
    /// The position of its end, if before the sender's last byte.
    cut: Option<usize>,
    closed: bool,
}

impl Line {
    fn new(n: u8, records: bool, seed: u64) -> Self {
        let sharing = SharingParameters::xor(n).unwrap();
        let mut outgoing = OutgoingRecords::new(sharing, RandomGenerator::seeded().unwrap());
        let mut incoming = IncomingRecords::new(sharing, [7; SEED_LEN]);
        if !records {
            outgoing.drop_records();
            incoming.drop_records();
        }
        let channels = vec![Channel::default(); usize::from(n)];
        let choices = Choices(seed);
        Self { outgoing, incoming, channels, used: 0, records, choices, got: Vec::new() }
    }

    /// Sends all items as far as possible, sometimes several together.
    fn send(&mut self, items: &[Item]) -> Result<(), MicssRecordError> {
        let followers = items.iter().skip(1).map(Some).chain([None]);
        for ((kind, payload), follower) in items.iter().zip(followers) {
            self.outgoing.make_room(payload.len());
            self.outgoing.seal_payload(*kind, payload).unwrap();
            if let Some((_, follower)) = follower
                && self.choices.below(3) == 0
            {
                self.outgoing.make_room(follower.len());
                if self.outgoing.room() >= HEADER_LEN + follower.len() {
                    continue;
                }
            }
            while !self.outgoing.is_sent_on_all() {
                let channel = self.choices.below(self.channels.len());
                self.take_from_sender(channel);
                self.pass_on()?;
            }
            if self.choices.below(4) == 0 {
                self.outgoing.shrink();
            }
        }
        Ok(())
    }

    fn take_from_sender(&mut self, channel: usize) {
        let rest = self.outgoing.unsent(channel);
        let len = piece(&mut self.choices, rest.len());
        let Channel { under_way, sent, cut, .. } = &mut self.channels[channel];
        // Bytes after the cut are lost.
        let passes = cut.map_or(len, |cut| cut.saturating_sub(*sent).min(len));
        under_way.extend_from_slice(&rest[..passes]);
        *sent += len;
        self.outgoing.advance(channel, len);
    }

    /// Passes some bytes in flight to the receiver. Returns whether there were any.
    fn pass_on(&mut self) -> Result<bool, MicssRecordError> {
        self.check_wanted();
        let wanted: Vec<usize> = self.incoming.wanted().collect();
        let ready = |&&i: &&usize| {
            let Channel { under_way, sent, cut, .. } = &self.channels[i];
            !under_way.is_empty() || cut.is_some_and(|cut| cut <= *sent)
        };
        let Some(&channel) = wanted.iter().find(ready) else {
            return Ok(false);
        };
        self.give(channel);
        self.take_all()?;
        Ok(true)
    }

    fn give(&mut self, channel: usize) {
        let space = self.incoming.space(channel);
        assert!(!space.is_empty(), "a wanted channel has space");
        let Channel { under_way, received, closed, .. } = &mut self.channels[channel];
        assert!(*received - self.used + space.len() <= MAX_AHEAD, "bounded memory");
        if under_way.is_empty() {
            *closed = true;
            self.incoming.close(channel);
            return;
        }
        let len = piece(&mut self.choices, under_way.len().min(space.len()));
        space[..len].copy_from_slice(&under_way[..len]);
        under_way.drain(..len);
        *received += len;
        self.incoming.filled(channel, len);
    }

    fn take_all(&mut self) -> Result<(), MicssRecordError> {
        while let Some(received) = self.incoming.take_next()? {
            let header = if self.records { HEADER_LEN } else { 0 };
            self.used += header + received.payload.len();
            let kind = received.kind;
            self.got.push((kind, received.payload.to_vec()));
            if kind == MicssRecordKind::Finish {
                return Ok(());
            }
        }
        if self.choices.below(4) == 0 {
            self.incoming.shrink();
        }
        let begun =
            self.channels.iter().any(|channel| channel.closed || channel.received > self.used);
        assert_eq!(
            self.incoming.next_record_timeout().is_some(),
            begun,
            "patience once something has begun"
        );
        Ok(())
    }

    /// The channel furthest behind is always wanted, and first.
    fn check_wanted(&self) {
        let wanted: Vec<usize> = self.incoming.wanted().collect();
        let progress: Vec<usize> = wanted.iter().map(|&i| self.channels[i].received).collect();
        assert!(progress.is_sorted(), "{progress:?}");
        let open = self.channels.iter().filter(|channel| !channel.closed);
        let behind = open.map(|channel| channel.received).min();
        let all_open = self.channels.iter().all(|channel| !channel.closed);
        assert!(!all_open || progress.first().copied() == behind, "the furthest behind is wanted");
    }

    /// Passes all bytes in flight to the receiver.
    fn settle(&mut self) -> Result<(), MicssRecordError> {
        while self.pass_on()? {}
        Ok(())
    }

    /// Ends every channel at the sender's position, unless it ended before.
    fn end(&mut self) -> Result<(), MicssRecordError> {
        for channel in &mut self.channels {
            channel.cut.get_or_insert(channel.sent);
        }
        self.settle()
    }
}

/// The length of the next piece of `len` bytes: one byte, all bytes, or a random number.
fn piece(choices: &mut Choices, len: usize) -> usize {
    match (len, choices.below(4)) {
        (0, _) => 0,
        (_, 0) => 1,
        (_, 1) => len,
        _ => 1 + choices.below(len),
    }
}

fn join(items: &[Item]) -> Vec<u8> {
    items.iter().flat_map(|(_, payload)| payload).copied().collect()
}

/// Payloads that fit into a record.
fn fitting(lens: Vec<(usize, u8)>, kinds: &[MicssRecordKind]) -> Vec<Item> {
    let items = lens.into_iter().map(|(len, kind)| {
        let payload = (0..len.min(MAX_PAYLOAD))
            .map(|i| i.wrapping_mul(7).wrapping_add(len).to_le_bytes()[0])
            .collect();
        (kinds[usize::from(kind) % kinds.len()], payload)
    });
    items.collect()
}

/// Lengths, each with a number that selects the kind.
fn lens() -> impl Strategy<Value = Vec<(usize, u8)>> {
    let len = prop_oneof![3 => 0..40usize, 2 => 0..3000usize, 1 => Just(usize::MAX)];
    prop::collection::vec((len, any::<u8>()), 0..12)
}

const ANY_KIND: [MicssRecordKind; 4] = [
    MicssRecordKind::Data,
    MicssRecordKind::Open,
    MicssRecordKind::Opened,
    MicssRecordKind::Refused,
];

/// Bytes that fit into one record are sent as one if they are available at once, such as a web page
/// of 4 KiB with its header, and its end.
#[test]
fn available_bytes_are_sent_in_one_record() {
    for first in [None, Some(MicssRecordKind::Opened)] {
        for len in [1, 4096 + 300, MAX_PAYLOAD - 2 * HEADER_LEN] {
            let sharing = SharingParameters::xor(2).unwrap();
            let mut outgoing = OutgoingRecords::new(sharing, RandomGenerator::seeded().unwrap());
            if let Some(kind) = first {
                outgoing.seal_payload(kind, &[]).unwrap();
            }
            outgoing.make_room(len);
            assert!(outgoing.payload_mut().len() >= len, "{len} bytes behind {first:?}");
            outgoing.seal(MicssRecordKind::Data, len).unwrap();
            assert!(outgoing.room() >= HEADER_LEN, "the end behind {len} bytes behind {first:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn records_arrive_as_they_were_sent(n in 1..=5u8, lens in lens(), last in 4..=5u8, seed: u64) {
        let mut items = fitting(lens, &ANY_KIND);
        items.push((if last == 4 { MicssRecordKind::Finish } else { MicssRecordKind::Abort }, Vec::new()));
        let mut line = Line::new(n, true, seed);
        line.send(&items).unwrap();
        line.settle().unwrap();
        prop_assert!(line.got == items);
    }

    #[test]
    fn bytes_arrive_as_they_were_sent(n in 1..=5u8, lens in lens(), seed: u64) {
        let items = fitting(lens, &[MicssRecordKind::Data]);
        let mut line = Line::new(n, false, seed);
        line.send(&items).unwrap();
        line.end().unwrap();
        prop_assert_eq!(line.got.pop(), Some((MicssRecordKind::Finish, Vec::new())));
        prop_assert!(line.got.iter().all(|(kind, _)| *kind == MicssRecordKind::Data));
        prop_assert!(join(&line.got) == join(&items));
    }

    /// With records, the end of a channel is never the stream's end: not of one, not of all, not
    /// between two records.
    #[test]
    fn an_early_end_is_an_error(n in 1..=5u8, lens in lens(), one: bool, at: prop::sample::Index, seed: u64) {
        let items = fitting(lens, &ANY_KIND);
        let total: usize = items.iter().map(|(_, payload)| HEADER_LEN + payload.len()).sum();
        let mut line = Line::new(n, true, seed);
        let victim = line.choices.below(usize::from(n));
        for (i, channel) in line.channels.iter_mut().enumerate() {
            channel.cut = (!one || i == victim).then_some(at.index(total + 1));
        }
        let error = line.send(&items).and_then(|()| line.end()).unwrap_err();
        let MicssRecordError::Unfinished { channel } = error else { panic!("{error}") };
        prop_assert!(!one || channel == victim || at.index(total + 1) == total);
        prop_assert!(items.starts_with(&line.got));
    }

    /// Without records, the later end of the other channels reveals the early end of one.
    #[test]
    fn uneven_ends_are_an_error(n in 2..=5u8, lens in lens(), at: prop::sample::Index, seed: u64) {
        let items = fitting(lens, &[MicssRecordKind::Data]);
        let sent = join(&items);
        prop_assume!(!sent.is_empty());
        let mut line = Line::new(n, false, seed);
        let victim = line.choices.below(usize::from(n));
        line.channels[victim].cut = Some(at.index(sent.len()));
        let error = line.send(&items).and_then(|()| line.end()).unwrap_err();
        prop_assert_eq!(error, MicssRecordError::Uneven);
        prop_assert!(sent.starts_with(&join(&line.got)));
    }
}

/// A transfer of full records: buffers grow, and shrink again when idle.
#[test]
fn long_records_and_idle_times() {
    for n in 1..=5 {
        for records in [true, false] {
            let mut line = Line::new(n, records, u64::from(n));
            let mut sent = Vec::new();
            for round in 0..3u8 {
                line.send(&[(MicssRecordKind::Data, vec![round; 10])]).unwrap();
                line.settle().unwrap();
                line.outgoing.shrink();
                line.incoming.shrink();
                sent.extend([round; 10]);
                for i in 0..6 {
                    let len = line.outgoing.payload_mut().len();
                    assert!(
                        i == 0 || len == MAX_PAYLOAD,
                        "a payload that fills its room makes more"
                    );
                    let payload = vec![round ^ i; len];
                    sent.extend(&payload);
                    line.send_without_shrinking(&payload);
                }
            }
            assert!(join(&line.got) == sent, "{n} channels");
        }
    }
}

impl Line {
    fn send_without_shrinking(&mut self, payload: &[u8]) {
        self.outgoing.seal_payload(MicssRecordKind::Data, payload).unwrap();
        while !self.outgoing.is_sent_on_all() {
            let channel = self.choices.below(self.channels.len());
            self.take_from_sender(channel);
            self.pass_on().unwrap();
        }
        self.settle().unwrap();
    }
}

/// Data after the end of one channel are no end; the last record in flight when all close is.
#[test]
fn the_last_record_may_arrive_with_the_end_of_the_channels() {
    let mut line = Line::new(3, true, 1);
    line.outgoing.seal_payload(MicssRecordKind::Finish, &[]).unwrap();
    for channel in 0..3 {
        let share = line.outgoing.unsent(channel).to_vec();
        line.incoming.space(channel)[..share.len()].copy_from_slice(&share);
        line.incoming.filled(channel, share.len());
        line.incoming.close(channel);
    }
    assert_eq!(
        line.incoming.take_next().unwrap().map(|received| received.kind),
        Some(MicssRecordKind::Finish)
    );
}

/// A later version may have more kinds; this one reports an unknown kind.
#[test]
fn an_unknown_kind_is_reported() {
    let mut generator = RandomGenerator::seeded().unwrap();
    let message = [99, 0, 0, 1, 42];
    let code = tamper::protect(&[&message], &mut generator).unwrap();
    let record = [&code[..], &message].concat();
    let sharing = SharingParameters::xor(2).unwrap();
    let mut shares = [vec![0; record.len()], vec![0; record.len()]];
    let mut views: Vec<&mut [u8]> = shares.iter_mut().map(Vec::as_mut_slice).collect();
    Splitter::new(sharing).split(&record, &mut views, &mut generator).unwrap();
    let mut incoming = IncomingRecords::new(sharing, [7; SEED_LEN]);
    for (channel, share) in shares.iter().enumerate() {
        incoming.space(channel)[..share.len()].copy_from_slice(share);
        incoming.filled(channel, share.len());
    }
    assert_eq!(incoming.take_next().err(), Some(MicssRecordError::UnknownKind(99)));
}
