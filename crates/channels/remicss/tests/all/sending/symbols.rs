//! What happens to a symbol.

use std::time::Duration;

use model::{ChannelSubset, ShareSchedule, ShareSelection};
use proptest::prelude::*;
use sim::SeededRng;
use sunder_remicss::send::schedule::{PlannedScheduler, SymbolScheduler};
use sunder_remicss::send::sender::{
    MAX_DATAGRAM_LEN, SentSymbol, SymbolSendError, SymbolSender, SymbolSenderError,
};
use sunder_remicss::wire::datagram::{HEADER_LEN, SymbolKind, SymbolShareHeader};
use sunder_remicss::wire::symbol::TamperedSymbol;
use sunder_remicss::wire::tokens::ShareTokens;

use super::end::*;

proptest! {
    #[test]
    fn any_k_shares_are_the_symbol(
        n in 1..=16_usize, bits: u16, k in 1..=16_usize,
        content in prop::collection::vec(any::<u8>(), 0..200),
        is_partial: bool, seed: u64,
    ) {
        let channels = subset(u32::from(bits)).iter().filter(|c| *c < n).collect::<ChannelSubset>().with(0);
        let threshold = ShareSelection::new(k.min(channels.len()), channels).unwrap();
        let mut sender = sender_at(1, &vec![None; n], constant(threshold)).unwrap();
        let mut batches = batches(n);
        let kind = if is_partial { SymbolKind::PartialPacket } else { SymbolKind::Packet };
        sender.begin().extend_from_slice(&content);
        let sent = sender.finish(kind, 3, MS, &mut batches).unwrap();
        prop_assert_eq!(sent, SentSymbol { number: 1, threshold });

        let mut all = shares(&mut batches);
        prop_assert_eq!(all.iter().map(|(channel, _)| *channel).collect::<ChannelSubset>(), channels);
        let mut tokens = ShareTokens::new(&direction(n).tokens, n);
        for (channel, datagram) in &all {
            prop_assert_eq!(datagram.len(), HEADER_LEN + 1 + content.len() + 8);
            let (header, _) = SymbolShareHeader::parse(datagram).unwrap();
            let k = u8::try_from(threshold.k()).unwrap();
            prop_assert_eq!(header, SymbolShareHeader::new(kind, k, 1, *channel, &mut tokens));
        }
        SeededRng::new(seed).shuffle(&mut all);
        let (_, previous, opened) = open(&all[..threshold.k()]).unwrap();
        prop_assert_eq!((previous, &opened), (0, &content));
        // A changed share is detected.
        all[0].1[HEADER_LEN] ^= 1;
        prop_assert_eq!(open(&all[..threshold.k()]), Err(TamperedSymbol));
    }

    /// For any channels that are up, and any scheduler: symbols are sent on channels that are up,
    /// at the floor or above; otherwise nothing is sent and the drop is counted.
    #[test]
    fn the_floor_is_never_crossed(
        floor in 1..=5_u8, above in 0.0..=1.0, is_planned: bool,
        ups in prop::collection::vec(0..32_u32, 1..40),
    ) {
        let kappa: f64 = f64::from(floor) + above * (5.0 - f64::from(floor));
        let mu = kappa.midpoint(5.0);
        let scheduler: Box<dyn SymbolScheduler> = if is_planned {
            diverse_plan(kappa, mu, floor)
        } else {
            dynamic(kappa, mu)
        };
        let mut sender = sender_at(floor, &[None; 5], scheduler).unwrap();
        let mut batches = batches(5);
        let mut dropped = 0;
        for up in ups.into_iter().map(subset) {
            sender.set_up(up);
            let sent = send(&mut sender, b"a packet", MS, &mut batches);
            let all = shares(&mut batches);
            if up.len() < usize::from(floor) {
                dropped += 1;
                prop_assert!(matches!(sent, Err(SymbolSendError::BelowFloor)));
                prop_assert!(all.is_empty());
            } else {
                let threshold = sent.unwrap().threshold;
                prop_assert!(threshold.k() >= usize::from(floor));
                prop_assert!(up.includes(threshold.channels()));
                prop_assert_eq!(all.len(), threshold.m());
                for (_, datagram) in all {
                    prop_assert!(SymbolShareHeader::parse(&datagram).unwrap().0.threshold >= floor);
                }
            }
        }
        prop_assert_eq!(sender.counts().below_floor, dropped);
    }
}

#[test]
fn numbers_and_previous_distances_continue() {
    let threshold = ShareSelection::new(2, ChannelSubset::first(2)).unwrap();
    let mut sender = sender_at(2, &[None; 2], constant(threshold)).unwrap();
    let mut batches = batches(2);
    let mut previous = |sender: &mut SymbolSender, flow, now, number| {
        sender.begin().extend_from_slice(b"packet");
        assert_eq!(
            sender.finish(SymbolKind::Packet, flow, now, &mut batches).unwrap().number,
            number
        );
        open(&shares(&mut batches)).unwrap().1
    };
    assert_eq!(previous(&mut sender, 5, MS, 1), 0);
    assert_eq!(previous(&mut sender, 6, MS, 2), 0);
    assert_eq!(previous(&mut sender, 5, MS, 3), 2);
    // A dropped symbol has no number, and does not count as a previous one.
    sender.set_up(ChannelSubset::EMPTY);
    let nowhere = &mut self::batches(2);
    assert!(matches!(send(&mut sender, b"", MS, nowhere), Err(SymbolSendError::BelowFloor)));
    sender.set_up(ChannelSubset::first(2));
    assert_eq!(previous(&mut sender, 5, MS, 4), 1);
    for number in 5..304 {
        assert_eq!(previous(&mut sender, 7, MS, number), u8::from(number > 5));
    }
    assert_eq!(previous(&mut sender, 5, 100 * MS, 304), 255);
    assert_eq!(previous(&mut sender, 5, 500 * MS, 305), 0);
}

#[test]
fn packets_are_added_to_a_symbol_until_it_is_full() {
    let threshold = ShareSelection::new(1, ChannelSubset::first(1)).unwrap();
    let mut sender = sender_at(0, &[None], constant(threshold)).unwrap();
    let mut batches = batches(1);
    assert!(sender.symbol().is_none());
    sender.set_max_datagram_len(1000);
    sender.begin().extend([7; 100]);
    let (symbol, room) = sender.symbol().unwrap();
    assert_eq!(room, 1000 - HEADER_LEN - 8 - 101);
    symbol.extend(vec![8; room]);
    assert_eq!(sender.symbol().unwrap().1, 0);
    sender.finish(SymbolKind::Packet, 0, MS, &mut batches).unwrap();
    assert_eq!(batches[0].len(), 1000);
    assert!(sender.symbol().is_none());
    // Channels may have a lower MTU in the meantime.
    sender.begin().extend([7; 900]);
    sender.set_max_datagram_len(500);
    assert_eq!(sender.symbol().unwrap().1, 0);
}

/// If one association follows another.
#[test]
fn a_symbol_that_waits_is_sent_by_the_next_sender() {
    let all = ShareSelection::new(2, ChannelSubset::first(3)).unwrap();
    let mut before = sender_at(2, &[Some(1_000); 3], constant(all)).unwrap();
    let mut batches = batches(3);
    let long = [7; 1_000];
    while send(&mut before, &long, MS, &mut batches).is_ok() {}
    take(&mut batches);
    let two = subset(0b101);
    let constant = constant(ShareSelection::new(2, two).unwrap());
    let mut next = sender_at(2, &[None; 3], constant).unwrap().with_members(two);
    next.take_over_symbol(&mut before);
    let sent = next.finish(SymbolKind::Packet, 0, MS, &mut batches).unwrap();
    assert_eq!((sent.number, sent.threshold.channels()), (1, two));
    assert_eq!(open(&shares(&mut batches)).unwrap().2, long);
    assert!(before.symbol().is_none(), "it is not sent twice");
}

#[test]
fn nothing_is_sent_on_a_channel_that_is_not_in_the_association() {
    let all = ShareSelection::new(2, ChannelSubset::first(3)).unwrap();
    let two = subset(0b110);
    let mut sender = sender_at(2, &[None; 3], constant(all)).unwrap().with_members(two);
    let mut batches = batches(3);
    // For any set of channels that are up.
    sender.set_up(ChannelSubset::first(3));
    let packet = send(&mut sender, b"a", MS, &mut batches).unwrap();
    let control = sender.control(b"b", MS, &mut batches).unwrap();
    assert_eq!([packet, control].map(|sent| sent.threshold.channels()), [two; 2]);
    let datagrams = take(&mut batches).iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(datagrams, [0, 2, 2]);
}

#[test]
fn symbols_that_cannot_be_sent_are_dropped_and_counted() {
    let threshold = ShareSelection::new(1, ChannelSubset::first(1)).unwrap();
    let mut sender = sender_at(0, &[None], constant(threshold)).unwrap();
    let mut batches = batches(1);
    let mut finish = |sender: &mut SymbolSender| {
        sender.finish(SymbolKind::Packet, 0, MS, &mut batches).map(|_| ())
    };
    assert!(matches!(finish(&mut sender), Err(SymbolSendError::Nothing)));
    let longest = MAX_DATAGRAM_LEN - HEADER_LEN - 9;
    sender.begin().resize(1 + longest + 1, 0);
    assert!(matches!(finish(&mut sender), Err(SymbolSendError::TooLong(65_508))));
    assert!(matches!(finish(&mut sender), Err(SymbolSendError::Nothing)));
    sender.begin().resize(1 + longest, 0);
    finish(&mut sender).unwrap();
    sender.set_max_datagram_len(1000);
    sender.begin().resize(1 + 1000 - HEADER_LEN - 8, 0);
    assert!(matches!(finish(&mut sender), Err(SymbolSendError::TooLong(1001))));
    sender.begin().resize(1000 - HEADER_LEN - 8, 0);
    finish(&mut sender).unwrap();
    // A caller that removes the first byte.
    sender.begin().clear();
    assert!(matches!(finish(&mut sender), Err(SymbolSendError::Nothing)));
    let counts = sender.counts();
    assert_eq!((counts.too_long, counts.symbols), (2, 2));
    assert_eq!(counts.bytes, (longest + 1000 - HEADER_LEN - 9) as u64);
}

#[test]
fn a_full_batch_keeps_the_symbol() {
    let threshold = ShareSelection::new(1, ChannelSubset::first(2)).unwrap();
    let mut sender = sender_at(1, &[None; 2], constant(threshold)).unwrap();
    let mut batches = batches(2);
    while !batches[1].is_full() {
        batches[1].reserve(9000);
    }
    assert!(matches!(send(&mut sender, b"kept", MS, &mut batches), Err(SymbolSendError::Full)));
    assert!(matches!(sender.control(b"", MS, &mut batches), Err(SymbolSendError::Full)));
    assert!(batches[0].is_empty());
    batches[1].clear();
    sender.finish(SymbolKind::Packet, 0, MS, &mut batches).unwrap();
    assert_eq!(open(&shares(&mut batches)[1..]).unwrap().2, b"kept");
}

#[test]
fn control_messages_are_sent_on_all_members_at_once_and_charged() {
    let threshold = ShareSelection::new(2, ChannelSubset::first(2)).unwrap();
    let rates = [Some(12_000_000), None, None];
    let mut sender = sender_at(2, &rates, constant(threshold)).unwrap();
    let mut batches = batches(3);
    sender.set_up(ChannelSubset::first(2));
    for number in 1..=2 {
        let sent = sender.control(b"report", MS, &mut batches).unwrap();
        assert_eq!(sent.threshold, ShareSelection::new(2, ChannelSubset::first(3)).unwrap());
        assert_eq!(sent.number, number);
        let all = shares(&mut batches);
        let (header, previous, content) = open(&[all[2].clone(), all[0].clone()]).unwrap();
        assert_eq!((header.kind, previous, &content[..]), (SymbolKind::Control, 0, &b"report"[..]));
    }
    // Of the bucket of three full datagrams, the two messages of 55 bytes took a part.
    let packet = vec![0; 1500 - OVERHEAD];
    for _ in 0..2 {
        send(&mut sender, &packet, MS, &mut batches).unwrap();
        shares(&mut batches);
    }
    let Err(SymbolSendError::Wait(until)) = send(&mut sender, &packet, MS, &mut batches) else {
        panic!("channel 0 has to wait");
    };
    assert_eq!(until, MS + Duration::from_nanos((2 * 55 * 8 * 1000_u64).div_ceil(12)));
    // While a symbol waits, control messages are not sent.
    sender.control(b"report", MS, &mut batches).unwrap();
    let counts = sender.counts();
    assert_eq!((counts.controls, counts.symbols), (3, 2));
    assert_eq!(counts.datagrams[..4], [5, 5, 3, 0]);
    assert_eq!((counts.k_sum, counts.m_sum), (4, 4));
    assert!(matches!(
        sender.control(&vec![0; 1 << 16], MS, &mut batches),
        Err(SymbolSendError::TooLong(_))
    ));
}

#[test]
fn a_symbol_waits_exactly_until_its_channels_are_ready() {
    // Uses channels 0 and 1 in turn.
    let each = |channel| ShareSelection::new(1, ChannelSubset::EMPTY.with(channel)).unwrap();
    let schedule = ShareSchedule::new([(each(0), 0.5), (each(1), 0.5)]).unwrap();
    let rates = [Some(12_000_000), Some(6_000_000)];
    let mut sender = sender_at(1, &rates, Box::new(PlannedScheduler::new(&schedule, &[]))).unwrap();
    let mut batches = batches(2);
    let packet = vec![0; 1500 - OVERHEAD];
    for _ in 0..6 {
        send(&mut sender, &packet, MS, &mut batches).unwrap();
    }
    take(&mut batches);
    let mut order = Vec::new();
    let mut now = MS;
    for i in 0..100_u32 {
        sender.begin().extend_from_slice(&packet);
        while let Err(error) = sender.finish(SymbolKind::Packet, 0, now, &mut batches) {
            let SymbolSendError::Wait(until) = error else { panic!("{error}") };
            // A call that is too early returns the same result, and uses no random bytes.
            let early = until.saturating_sub(Duration::from_nanos(1));
            for now in [now, early] {
                let again = sender.finish(SymbolKind::Packet, 0, now, &mut batches);
                assert!(matches!(again, Err(SymbolSendError::Wait(same)) if same == until));
            }
            now = until;
        }
        order.push(take(&mut batches).iter().map(Vec::len).collect::<Vec<_>>());
        // Channel 1 takes 2 ms for each, and channel 0 has one ready by then.
        assert!(now <= MS + 2 * MS * (i + 1).div_ceil(2));
    }
    let (zero, one) =
        (order.iter().filter(|o| **o == [1, 0]), order.iter().filter(|o| **o == [0, 1]));
    assert_eq!((zero.count(), one.count()), (50, 50));
    assert!(sender.counts().waits[1] > 40);
}

#[test]
fn invalid_senders_are_rejected() {
    let threshold = ShareSelection::new(2, ChannelSubset::first(3)).unwrap();
    let error = |floor, n| sender_at(floor, &vec![None; n], constant(threshold)).err();
    assert_eq!(error(2, 3), None);
    assert_eq!(error(0, 16), None);
    for n in [0, 17] {
        let channels = SymbolSenderError::Channels { channels: n, pacers: n };
        assert_eq!(error(1, n), Some(channels));
    }
    assert!(matches!(error(3, 3), Some(SymbolSenderError::Floor { floor: 3, most: 2, .. })));
    assert!(matches!(error(4, 3), Some(SymbolSenderError::Floor { floor: 4, most: 3, .. })));
    let mut sender = sender_at(2, &[None; 3], constant(threshold)).unwrap();
    assert!(sender.set_scheduler(dynamic(1.9, 3.0)).is_err());
    assert!(sender.set_scheduler(dynamic(2.0, 3.0)).is_ok());
}
