//! Streams that need fewer channels than they have: some channels end, become silent or change
//! bytes, and the stream continues while enough do not. Nothing is delivered that was not sent.

use std::task::Poll;

use proptest::collection::vec;
use proptest::prelude::*;
use random::RandomGenerator;
use sharing::SharingParameters;
use sunder_micss::incoming::{
    ChannelLossReason, IncomingRecords, LATE_SHARE_TIMEOUT, RECORD_TIMEOUT, SEED_LEN,
    STALLED_CHANNEL_TIMEOUT,
};
use sunder_micss::outgoing::OutgoingRecords;
use sunder_micss::record::{HEADER_LEN, MicssRecordError, MicssRecordKind};

/// A kind and a payload.
type Item = (MicssRecordKind, Vec<u8>);

/// A fault of a channel from some byte on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// It ends.
    Ends(usize),
    /// It becomes silent.
    Stops(usize),
    /// One byte is changed.
    ChangesOne(usize, u8),
    /// All bytes are changed.
    ChangesAll(usize),
    /// A byte is deleted.
    Deletes(usize),
    /// A byte is inserted.
    Inserts(usize),
}

impl Fault {
    /// Applies the fault to the sent bytes. Also returns whether the channel ends.
    fn apply(self, sent: &[u8]) -> (Vec<u8>, bool) {
        let mut bytes = sent.to_vec();
        match self {
            Self::Ends(at) => {
                bytes.truncate(at);
                return (bytes, true);
            }
            Self::Stops(at) => bytes.truncate(at),
            Self::ChangesOne(at, mask) => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= mask;
                }
            }
            Self::ChangesAll(at) => bytes.iter_mut().skip(at).for_each(|byte| *byte = !*byte),
            Self::Deletes(at) if at < bytes.len() => _ = bytes.remove(at),
            Self::Inserts(at) if at < bytes.len() => bytes.insert(at, 0x5A),
            Self::Deletes(_) | Self::Inserts(_) => {}
        }
        (bytes, false)
    }
}

/// A stream with payloads of these lengths: the records, and the bytes of each channel.
fn shared(k: u8, n: u8, lens: &[usize]) -> (Vec<Item>, Vec<Vec<u8>>) {
    let sharing = SharingParameters::shamir(k, n).unwrap();
    let mut outgoing = OutgoingRecords::new(sharing, RandomGenerator::seeded().unwrap());
    let mut channels = vec![Vec::new(); n.into()];
    let mut records = Vec::new();
    let mut send = |outgoing: &mut OutgoingRecords, kind, payload: &[u8]| {
        outgoing.seal_payload(kind, payload).unwrap();
        for (channel, bytes) in channels.iter_mut().enumerate() {
            bytes.extend_from_slice(outgoing.unsent(channel));
            outgoing.advance(channel, outgoing.unsent(channel).len());
        }
        records.push((kind, payload.to_vec()));
    };
    for &len in lens {
        let bytes: Vec<u8> = (0..=250).cycle().take(len).collect();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(rest.len().min(outgoing.payload_mut().len()));
            send(&mut outgoing, MicssRecordKind::Data, piece);
            rest = later;
        }
    }
    send(&mut outgoing, MicssRecordKind::Finish, &[]);
    (records, channels)
}

/// The end of a stream.
#[derive(Debug, PartialEq)]
enum End {
    Finished,
    Failed(MicssRecordError),
    Stuck,
}

/// Receives from the channels in pieces of these lengths. Returns the delivered items, the end, and
/// the lost channels.
fn receive(
    k: u8,
    channels: &[(Vec<u8>, bool)],
    pieces: &[usize],
) -> (Vec<Item>, End, Vec<(usize, ChannelLossReason)>) {
    let n = u8::try_from(channels.len()).unwrap();
    let mut incoming =
        IncomingRecords::new(SharingParameters::shamir(k, n).unwrap(), [7; SEED_LEN]);
    let mut given = vec![0; channels.len()];
    let mut closed = vec![false; channels.len()];
    let (mut got, mut lost) = (Vec::new(), Vec::new());
    let mut pieces = pieces.iter().copied().cycle();
    loop {
        loop {
            match incoming.take_next() {
                Ok(Some(received)) => {
                    got.push((received.kind, received.payload.to_vec()));
                    if received.kind == MicssRecordKind::Finish {
                        lost.extend(std::iter::from_fn(|| incoming.poll_lost()));
                        return (got, End::Finished, lost);
                    }
                }
                Ok(None) => break,
                Err(error) => return (got, End::Failed(error), lost),
            }
        }
        lost.extend(std::iter::from_fn(|| incoming.poll_lost()));
        let ready = |&channel: &usize| {
            let (bytes, ends) = &channels[channel];
            given[channel] < bytes.len() || *ends && !closed[channel]
        };
        let Some(channel) = incoming.wanted().find(ready) else {
            let is_limited = incoming.next_record_timeout().is_some();
            if is_limited && (incoming.skip_late() || incoming.lose_stalled()) {
                continue;
            }
            return (got, End::Stuck, lost);
        };
        let rest = &channels[channel].0[given[channel]..];
        if rest.is_empty() {
            closed[channel] = true;
            incoming.close(channel);
            continue;
        }
        let space = incoming.space(channel);
        let len = rest.len().min(space.len()).min(pieces.next().unwrap());
        space[..len].copy_from_slice(&rest[..len]);
        incoming.filled(channel, len);
        given[channel] += len;
    }
}

fn fault(longest: usize) -> impl Strategy<Value = Fault> {
    (0..6, 0..longest, 1..=u8::MAX).prop_map(|(which, at, mask)| match which {
        0 => Fault::Ends(at),
        1 => Fault::Stops(at),
        2 => Fault::ChangesOne(at, mask),
        3 => Fault::ChangesAll(at),
        4 => Fault::Deletes(at),
        _ => Fault::Inserts(at),
    })
}

/// A threshold, a number of channels, and a number of faults.
fn sizes(faults: impl Fn(u8, u8) -> u8 + Copy) -> impl Strategy<Value = (u8, u8, u8)> {
    (1..=5u8, 0..=4u8).prop_map(move |(k, spare)| (k, k + spare, faults(k, k + spare)))
}

/// The outcome for a stream.
struct Outcome {
    sent: Vec<Item>,
    got: Vec<Item>,
    end: End,
    lost: Vec<(usize, ChannelLossReason)>,
}

/// Runs a stream whose first channels, in this order, have faults.
fn run(
    (k, n): (u8, u8),
    lens: &[usize],
    order: &[usize],
    faults: &[Fault],
    pieces: &[usize],
) -> Outcome {
    let (sent, shares) = shared(k, n, lens);
    let mut channels: Vec<(Vec<u8>, bool)> =
        shares.into_iter().map(|bytes| (bytes, false)).collect();
    for (&channel, fault) in order.iter().zip(faults) {
        channels[channel] = fault.apply(&channels[channel].0);
    }
    let (got, end, lost) = receive(k, &channels, pieces);
    Outcome { sent, got, end, lost }
}

fn all_of(n: u8) -> Vec<usize> {
    (0..n.into()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// The attacker has fewer channels than are needed, and enough others are left.
    #[test]
    fn the_stream_continues_without_failed_channels(
        (k, n, bad) in sizes(|k, n| (n - k).min(k - 1)),
        lens in vec(prop_oneof![0..50usize, 0..20_000usize], 1..5),
        faults in vec(fault(30_000), 4),
        order in Just(all_of(9)).prop_shuffle(),
        pieces in vec(1..10_000usize, 1..8),
    ) {
        let order: Vec<usize> = order.into_iter().filter(|&channel| channel < n.into()).collect();
        let bad = usize::from(bad);
        let Outcome { sent, got, end, lost } = run((k, n), &lens, &order, &faults[..bad], &pieces);
        prop_assert_eq!(end, End::Finished);
        prop_assert!(got == sent);
        for (channel, why) in lost {
            let place = order[..bad].iter().position(|&bad| bad == channel);
            let honest = matches!(why, ChannelLossReason::Tampered) && place.is_none();
            prop_assert!(!honest, "channel {} is called a faulty", channel);
        }
    }

    /// With any number of faults: what is delivered was sent, in order from the first item.
    #[test]
    fn nothing_is_delivered_that_was_not_sent(
        (k, n, bad) in sizes(|k, _| k - 1),
        lens in vec(0..5000usize, 1..5),
        faults in vec(fault(10_000), 4),
        order in Just(all_of(9)).prop_shuffle(),
        pieces in vec(1..10_000usize, 1..8),
    ) {
        let order: Vec<usize> = order.into_iter().filter(|&channel| channel < n.into()).collect();
        let Outcome { sent, got, end, .. } = run((k, n), &lens, &order, &faults[..bad.into()], &pieces);
        prop_assert!(sent.starts_with(&got));
        prop_assert!(end != End::Finished || got == sent);
    }
}

/// Two channels are changed so that a set with both makes the right record: for it, the others are
/// wrong.
#[test]
fn changes_that_cancel_each_other_accuse_no_honest_channel() {
    let faults = [Fault::Ends(1), Fault::ChangesAll(4132), Fault::ChangesAll(4132), Fault::Ends(0)];
    for lens in [vec![17_830, 987], vec![10_000; 20]] {
        for (bad, other) in (0..9).flat_map(|bad| (0..bad).map(move |other| (bad, other))) {
            let ends: Vec<usize> = (0..9).filter(|it| ![bad, other].contains(it)).collect();
            let order = [ends[0], bad, other, ends[6]];
            let Outcome { sent, got, end, lost } = run((5, 9), &lens, &order, &faults, &[3000]);
            assert_eq!(end, End::Finished);
            assert!(got == sent, "{order:?}");
            for (channel, why) in lost {
                assert!(order.contains(&channel), "{order:?}: {channel} {why}");
            }
        }
    }
}

/// If more channels end than can be spared, the stream fails.
#[test]
fn too_few_channels_are_an_error() {
    let faults = [Fault::Ends(500), Fault::Ends(700)];
    let Outcome { got, end, lost, .. } = run((2, 3), &[100, 1000, 100], &[0, 2], &faults, &[64]);
    assert_eq!(end, End::Failed(MicssRecordError::Unfinished { channel: 2 }));
    assert_eq!((got.len(), lost), (1, vec![(0, ChannelLossReason::Ended)]));
    let faults = [Fault::Stops(500), Fault::Stops(700)];
    let Outcome { end, lost, .. } = run((2, 3), &[100, 1000, 100], &[0, 2], &faults, &[64]);
    assert_eq!((end, lost), (End::Stuck, vec![]));
}

/// An attacker adds a byte to a channel while the stream is idle. That is not an incomplete record.
#[test]
fn a_byte_inserted_between_two_records_breaks_no_stream() {
    for channel in 0..3 {
        let (records, mut channels) = shared(2, 3, &[100]);
        channels[channel].insert(0, 0x5A);
        let mut incoming =
            IncomingRecords::new(SharingParameters::shamir(2, 3).unwrap(), [7; SEED_LEN]);
        let give = |incoming: &mut IncomingRecords, channel: usize, bytes: &[u8]| {
            incoming.space(channel)[..bytes.len()].copy_from_slice(bytes);
            incoming.filled(channel, bytes.len());
        };
        give(&mut incoming, channel, &[0x5A]);
        assert!(incoming.take_next().unwrap().is_none());
        assert_eq!(incoming.next_record_timeout(), None);
        for (other, bytes) in channels.iter().enumerate() {
            give(&mut incoming, other, &bytes[usize::from(other == channel)..]);
        }
        let first = incoming.take_next().unwrap().unwrap();
        assert_eq!((first.kind, first.payload), (records[0].0, &records[0].1[..]));
        assert_eq!(incoming.poll_lost(), Some((channel, ChannelLossReason::Tampered)));
    }
}

/// A record that has arrived on some channels only: how long the others may take.
#[test]
fn a_channel_is_late_when_enough_others_have_delivered() {
    let (_, channels) = shared(2, 3, &[100]);
    let mut incoming =
        IncomingRecords::new(SharingParameters::shamir(2, 3).unwrap(), [7; SEED_LEN]);
    let give = |incoming: &mut IncomingRecords, channel: usize, bytes: &[u8]| {
        incoming.space(channel)[..bytes.len()].copy_from_slice(bytes);
        incoming.filled(channel, bytes.len());
        assert!(incoming.take_next().unwrap().is_none());
    };
    give(&mut incoming, 0, &channels[0][..60]);
    assert_eq!((incoming.next_record_timeout(), incoming.can_lose_stalled()), (None, false));
    give(&mut incoming, 1, &channels[1][..20]);
    assert_eq!(
        (incoming.next_record_timeout(), incoming.can_lose_stalled()),
        (Some(RECORD_TIMEOUT), false)
    );
    give(&mut incoming, 1, &channels[1][20..60]);
    assert_eq!(
        (incoming.next_record_timeout(), incoming.skip_late()),
        (Some(LATE_SHARE_TIMEOUT), true)
    );
}

/// Two of three channels carry a stream, the third brings its shares later. `change` alters the
/// channels' bytes.
struct Late {
    records: Vec<Item>,
    channels: Vec<Vec<u8>>,
    incoming: IncomingRecords,
    given: [usize; 3],
}

impl Late {
    fn new(lens: &[usize], change: impl Fn(&mut [Vec<u8>])) -> Self {
        let (records, mut channels) = shared(2, 3, lens);
        change(&mut channels);
        let incoming =
            IncomingRecords::new(SharingParameters::shamir(2, 3).unwrap(), [7; SEED_LEN]);
        Self { records, channels, incoming, given: [0; 3] }
    }

    /// A channel brings its next bytes, up to the end of this record.
    fn give(&mut self, channel: usize, record: usize) {
        let len = |(_, payload): &Item| HEADER_LEN + payload.len();
        let end: usize = self.records[..=record].iter().map(len).sum();
        while self.given[channel] < end {
            let rest = &self.channels[channel][self.given[channel]..end];
            let space = self.incoming.space(channel);
            let len = rest.len().min(space.len());
            assert!(len > 0, "it is read");
            space[..len].copy_from_slice(&rest[..len]);
            self.incoming.filled(channel, len);
            self.given[channel] += len;
        }
    }

    /// The next record is this one.
    fn assert_next(&mut self, record: usize) {
        let next = self.incoming.take_next().unwrap().expect("it can be taken");
        assert_eq!(
            (next.kind, next.payload),
            (self.records[record].0, &self.records[record].1[..])
        );
    }

    fn assert_none(&mut self) {
        assert!(self.incoming.take_next().unwrap().is_none());
    }
}

/// Records are taken without the shares of a late channel, which is used again when it has caught
/// up. It is not lost.
#[test]
fn a_late_channel_is_behind_until_it_has_caught_up() {
    for late in 0..3 {
        let mut stream = Late::new(&[100, 40_000, 100, 100, 100], |_| ());
        let others: Vec<usize> = (0..3).filter(|&channel| channel != late).collect();
        for record in 0..3 {
            for &channel in &others {
                stream.give(channel, record);
            }
            if record == 0 {
                stream.assert_none();
                assert!(stream.incoming.skip_late());
            }
            stream.assert_next(record);
            assert!(!stream.incoming.is_caught_up());
        }
        stream.give(late, 2);
        assert!(stream.incoming.is_caught_up());
        // The share of any channel is needed again.
        stream.give(others[0], 3);
        stream.give(late, 3);
        stream.assert_none();
        assert!(stream.incoming.skip_late());
        stream.assert_next(3);
        stream.give(others[1], 4);
        stream.give(late, 4);
        stream.assert_none();
        assert!(stream.incoming.skip_late());
        stream.assert_next(4);
        assert_eq!(stream.incoming.poll_lost(), None);
    }
}

/// A record that does not verify without the late share waits for it, and then the wrong channel is
/// identified, even if it has brought another length.
#[test]
fn a_changed_share_does_not_replace_a_late_one() {
    for (wrong, late) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        for at in [0, 20, 32, 34, 35, 36, 120] {
            let mut stream = Late::new(&[100, 100], |channels| channels[wrong][at] ^= 1);
            for channel in (0..3).filter(|&channel| channel != late) {
                stream.give(channel, 0);
            }
            stream.assert_none();
            assert!(stream.incoming.skip_late(), "byte {at} of {wrong}");
            stream.assert_none();
            let timeout = stream.incoming.next_record_timeout();
            assert!(
                timeout == Some(STALLED_CHANNEL_TIMEOUT) && !stream.incoming.skip_late()
                    || timeout == Some(RECORD_TIMEOUT),
                "byte {at} of {wrong}: {timeout:?}"
            );
            stream.give(late, 0);
            stream.assert_next(0);
            assert_eq!(stream.incoming.poll_lost(), Some((wrong, ChannelLossReason::Tampered)));
        }
    }
}

/// Most sets of eight contain the first channel. A channel with a changed header is identified even
/// if the rest of its share arrives later.
#[test]
fn a_faulty_channel_is_found_among_sixteen() {
    for (at, channel, piece) in [(5, 0, 512), (34, 0, 512), (35, 0, 36), (60, 0, 512), (5, 15, 36)]
    {
        let Outcome { sent, got, end, lost } =
            run((8, 16), &[100], &[channel], &[Fault::ChangesOne(at, 1)], &[piece]);
        assert_eq!((got == sent, end), (true, End::Finished), "byte {at} of channel {channel}");
        assert_eq!(
            lost,
            [(channel, ChannelLossReason::Tampered)],
            "byte {at} of channel {channel}"
        );
    }
}

/// One channel changes the header, and one of those that could reveal it ends too early.
#[test]
fn an_undecidable_dispute_fails_at_once() {
    let faults = [Fault::ChangesOne(5, 1), Fault::Ends(80)];
    let Outcome { end, .. } = run((2, 3), &[100], &[0, 1], &faults, &[36]);
    assert_eq!(end, End::Failed(MicssRecordError::Tampered));
}

/// Off-path attackers can send these and cause their examination.
#[test]
fn a_record_that_opens_a_stream_is_short() {
    for (len, fits) in [(512 - HEADER_LEN, true), (513 - HEADER_LEN, false)] {
        let (_, channels) = shared(2, 2, &[len]);
        let mut incoming =
            IncomingRecords::new(SharingParameters::shamir(2, 2).unwrap(), [7; SEED_LEN]);
        incoming.expect_opening();
        for (channel, bytes) in channels.iter().enumerate() {
            incoming.space(channel)[..bytes.len()].copy_from_slice(bytes);
            incoming.filled(channel, bytes.len());
        }
        let taken = incoming.take_next().map(|received| received.is_some());
        assert_eq!(taken, if fits { Ok(true) } else { Err(MicssRecordError::Tampered) });
    }
}

/// A stream that opens, on 16 channels of which four change one byte. Returns its end and the lost
/// channels.
fn opened_with_faults(faulty: &[usize], at: usize) -> (Result<bool, MicssRecordError>, Vec<usize>) {
    let (_, channels) = shared(8, 16, &[400]);
    let mut incoming =
        IncomingRecords::new(SharingParameters::shamir(8, 16).unwrap(), [7; SEED_LEN]);
    incoming.expect_opening();
    for (channel, bytes) in channels.iter().enumerate() {
        let bytes = &bytes[..HEADER_LEN + 400];
        incoming.space(channel)[..bytes.len()].copy_from_slice(bytes);
        if faulty.contains(&channel) {
            incoming.space(channel)[at] ^= u8::try_from(channel + 1).unwrap();
        }
        incoming.filled(channel, bytes.len());
    }
    let taken = incoming.take_next().map(|received| received.is_some());
    let mut lost: Vec<usize> =
        std::iter::from_fn(|| incoming.poll_lost()).map(|(i, _)| i).collect();
    lost.sort_unstable();
    (taken, lost)
}

/// Few sets are tried for an opening record, and still channels that can be outvoted stop no
/// stream.
#[test]
fn outvoted_faulty_channels_prevent_no_opening() {
    for at in (0..HEADER_LEN + 400).step_by(7).chain([34, 35]) {
        for faulty in [[0, 1, 2, 3], [0, 5, 10, 15], [4, 5, 6, 7]] {
            let (taken, lost) = opened_with_faults(&faulty, at);
            assert_eq!((taken, &lost[..]), (Ok(true), &faulty[..]), "byte {at}");
        }
    }
}

/// For a record that no channels verify, which any peer may send, the work between two other tasks
/// is bounded, and so is the total.
#[test]
fn a_search_is_done_in_slices() {
    for (opening, len, slices) in [(true, 476, 3..10), (false, 4000, 150..1000)] {
        let mut incoming =
            IncomingRecords::new(SharingParameters::shamir(8, 16).unwrap(), [7; SEED_LEN]);
        if opening {
            incoming.expect_opening();
        }
        let mut random = RandomGenerator::seeded().unwrap();
        for channel in 0..16 {
            let mut share: Vec<u8> = Vec::new();
            while share.len() < HEADER_LEN + len {
                share.extend(random.array::<32>().unwrap());
            }
            share.truncate(HEADER_LEN + len);
            // Every set reproduces the bytes that all shares have in common.
            let field = u32::try_from(len).unwrap().to_be_bytes();
            share[HEADER_LEN - 3..HEADER_LEN].copy_from_slice(&field[1..]);
            let mut given = 0;
            while given < share.len() {
                let space = incoming.space(channel);
                let piece = space.len().min(share.len() - given);
                space[..piece].copy_from_slice(&share[given..given + piece]);
                incoming.filled(channel, piece);
                given += piece;
            }
        }
        let mut turns = 0;
        let end = loop {
            match incoming.poll_next() {
                Ok(Poll::Pending) => turns += 1,
                Ok(Poll::Ready(next)) => break Ok(next),
                Err(error) => break Err(error),
            }
        };
        assert_eq!(end, Err(MicssRecordError::Tampered));
        assert!(slices.contains(&turns), "{turns} turns for {len} bytes");
    }
}

/// A channel with changed bytes is identified.
#[test]
fn a_faulty_channel_is_identified() {
    for channel in 0..3 {
        for at in (0..1300).step_by(13) {
            let Outcome { sent, got, end, lost } =
                run((2, 3), &[100, 1000, 100], &[channel], &[Fault::ChangesOne(at, 1)], &[512]);
            assert_eq!((got == sent, end), (true, End::Finished), "byte {at} of channel {channel}");
            // The last channel's payload is not examined while the first two form a record.
            let is_named = lost == [(channel, ChannelLossReason::Tampered)];
            assert!(
                is_named || lost.is_empty() && channel == 2,
                "byte {at} of {channel}: {lost:?}"
            );
        }
    }
}
