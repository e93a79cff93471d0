//! Which datagrams are accepted, dropped and counted.

use model::ChannelSubset;
use sunder_remicss::recv::receiver::SymbolReceiverLimits;
use sunder_remicss::recv::symbol_sink::ControlShare;
use sunder_remicss::wire::datagram::{HEADER_LEN, SymbolKind, expand_sequence};

use super::scenario::{MS, Scenario, Symbol, content, from, header, packet, small};

#[test]
fn any_k_shares_deliver_a_symbol_once() {
    let channels = [0, 1, 2, 3, 4];
    for k in 1..=5 {
        let mut scenario = Scenario::new(5, 1);
        for set in 1_u32..32 {
            let content = content(u64::from(set));
            let datagrams = scenario.datagrams(packet(u64::from(set), k, &channels, &content));
            // Those of the set arrive first, the others late.
            let (first, late): (Vec<usize>, Vec<usize>) =
                channels.iter().partition(|&i| set >> i & 1 == 1);
            scenario.out.packets.clear();
            for &i in &first {
                scenario.arrive(i, &datagrams[i]);
            }
            assert_eq!(scenario.out.packets.len(), usize::from(first.len() >= usize::from(k)));
            for &i in &late {
                scenario.arrive(i, &datagrams[i]);
            }
            assert_eq!(scenario.out.packets, [(SymbolKind::Packet, content)]);
        }
        let counts = scenario.receiver.counts();
        assert_eq!(counts.symbols, 31);
        assert_eq!(counts.already_verified, 31 * (5 - u64::from(k)));
        assert_eq!(counts.reassembled.tampered, 0);
    }
}

#[test]
fn foreign_datagrams_are_counted_and_dropped() {
    let mut scenario = Scenario::new(3, 2);
    let good = scenario.datagrams(packet(1, 2, &[0, 1, 2], b"packet"));
    scenario.arrive(0, &good[1]);
    scenario.arrive(3, &good[0]);
    scenario.arrive(0, &good[0][..HEADER_LEN]);
    scenario.arrive(0, &[0x30; 20]);
    scenario.arrive(0, &[]);
    scenario.arrive(0, &vec![0; 70_000]);
    let counts = scenario.receiver.counts();
    assert_eq!((counts.wrong_token, counts.malformed), (1, 4));
    assert_eq!(scenario.receiver.received(0).datagrams, 0);
    for k in [1, 3] {
        let all = scenario.datagrams(packet(2, k, &[0, 1, 2], b"other"));
        let mut other = all[0].clone();
        let first = (other[0] & 0xf0) | if k == 1 { 0 } else { 3 };
        other[..HEADER_LEN].copy_from_slice(&header(&scenario.keys, first, 0, 2));
        scenario.arrive(0, &other);
    }
    assert_eq!(scenario.receiver.counts().invalid_threshold, 2);
    for _ in 0..2 {
        scenario.arrive(0, &good[0]);
        scenario.arrive(2, &good[2]);
    }
    scenario.arrive(1, &good[1]);
    let counts = scenario.receiver.counts();
    assert_eq!((counts.symbols, counts.duplicate, counts.already_verified), (1, 2, 1));
    let received = scenario.receiver.received(2);
    assert_eq!((received.datagrams, received.bytes), (1, good[2].len() as u64));
    assert_eq!(scenario.out.packets, [(SymbolKind::Packet, b"packet".to_vec())]);
    assert!(
        scenario.receiver.has_valid_token(0, &good[0])
            && !scenario.receiver.has_valid_token(1, &good[0])
    );
}

/// A share that has arrived before has no effect, changed or not, however late: it does not count,
/// is no fault of the channel, and does not affect its symbol.
#[test]
fn a_replayed_datagram_changes_nothing() {
    for (k, kind) in [
        (1, SymbolKind::Packet),
        (1, SymbolKind::Control),
        (2, SymbolKind::Packet),
        (2, SymbolKind::Control),
    ] {
        let mut scenario = Scenario::new(3, 1);
        let mut seen = Vec::new();
        for number in 1..=100 {
            let content = content(number);
            let symbol = Symbol { kind, ..packet(number, k, &[0, 1, 2], &content) };
            for (channel, datagram) in scenario.datagrams(symbol).into_iter().enumerate() {
                scenario.arrive(channel, &datagram);
                seen.push((channel, datagram));
            }
        }
        let state = |scenario: &Scenario| {
            let received = [0, 1, 2].map(|channel| scenario.receiver.received(channel));
            (received, scenario.out.packets.len(), scenario.out.control_shares.len())
        };
        let before = state(&scenario);
        for later in [MS, MS * 900, MS * 1100, MS * 70_000] {
            scenario.now += later;
            for (channel, datagram) in &seen {
                let mut changed = datagram.clone();
                changed[HEADER_LEN] ^= 1;
                scenario.arrive(*channel, &changed);
                scenario.arrive(*channel, datagram);
            }
            assert_eq!(state(&scenario), before, "k = {k}, {kind:?}, {later:?} later");
            assert!(scenario.quarantined().is_empty());
        }
    }
}

#[test]
fn control_shares_are_reported_with_their_datagram_counts() {
    let mut scenario = Scenario::new(2, 1);
    scenario.send(0, 1, |_, _| ());
    scenario.now = MS;
    let message = Symbol { kind: SymbolKind::Control, ..packet(1, 2, &[0, 1], b"how are you") };
    for (i, datagram) in scenario.datagrams(message).into_iter().enumerate() {
        scenario.arrive(i, &datagram);
        scenario.arrive(i, &datagram);
    }
    assert_eq!(scenario.out.controls, [(1, b"how are you".to_vec())]);
    let share = |channel| ControlShare {
        number: 1,
        channel,
        before: 1,
        at: MS,
        from: from(channel),
        is_quarantined: false,
    };
    assert_eq!(scenario.out.control_shares, [share(0), share(1)]);
}

#[test]
fn numbers_go_on_beyond_24_bits_and_behind_the_window_nothing_is_taken() {
    let mut scenario = Scenario::new(2, 1);
    let mut expected = Vec::new();
    for number in [0, 5, (1 << 23) - 1, (1 << 24) - 3, (1 << 24) + 2, (3 << 23) + 1, 1 << 25] {
        scenario.send(number, 2, |_, _| ());
        expected.push((SymbolKind::Packet, content(number)));
        assert_eq!(scenario.receiver.highest(), number);
    }
    scenario.send((1 << 25) - 900, 2, |_, _| ());
    expected.push((SymbolKind::Packet, content((1 << 25) - 900)));
    scenario.send((1 << 25) - 1024, 2, |_, _| ());
    assert_eq!(scenario.out.packets, expected);
    assert_eq!(scenario.receiver.counts().behind_window, 2);
}

#[test]
fn shares_of_different_numbers_are_not_joined() {
    let mut scenario = Scenario::new(2, 2);
    let mut share = |channel: usize, number: u64| {
        let datagrams = scenario.datagrams(packet(number, 2, &[0, 1], b"packet"));
        scenario.arrive(channel, &datagrams[channel]);
        let counts = scenario.receiver.counts();
        (counts.symbols, counts.reassembled.joins)
    };
    // The numbers collide in the ring.
    assert_eq!(share(0, 5), (0, 0));
    assert_eq!(share(1, 5 + 1024), (0, 0));
    let mut scenario = Scenario::new(2, 2);
    scenario.send(5000, 2, |_, _| ());
    let ahead = scenario.datagrams(packet(5100, 2, &[0, 1], b"packet"));
    let outside = scenario.datagrams(packet(5100 - 2048, 2, &[0, 1], b"packet"));
    scenario.arrive(0, &ahead[0]);
    scenario.arrive(0, &outside[0]);
    scenario.arrive(1, &ahead[1]);
    assert_eq!(scenario.receiver.highest(), 5100);
}

#[test]
fn one_channel_cannot_move_the_window_and_two_find_it_again() {
    let mut scenario = Scenario::new(3, 2);
    let keys = scenario.keys.clone();
    for number in 0..100 {
        scenario.send(number, 2, |channel, datagram| {
            if channel == 0 {
                // Its number is far ahead, a different one each time.
                let tampered =
                    expand_sequence(number, ((number as u32 + 1) * 7_919_000) & 0xff_ffff);
                let header = header(&keys, datagram[0], 0, tampered);
                datagram[..HEADER_LEN].copy_from_slice(&header);
            }
        });
    }
    assert_eq!(scenario.receiver.highest(), 99);
    assert_eq!(scenario.out.packets.len(), 100);
    // An outage of many windows, after which the channels are far apart.
    let all: Vec<Vec<Vec<u8>>> = (1_000_000..1_001_000)
        .map(|number| scenario.datagrams(packet(number, 2, &[0, 1, 2], &content(number))))
        .collect();
    for symbol in &all {
        scenario.arrive(1, &symbol[1]);
    }
    for symbol in &all[..10] {
        scenario.arrive(2, &symbol[2]);
    }
    assert_eq!(scenario.receiver.highest(), 1_000_009);
    assert_eq!(scenario.out.packets.len(), 110);
}

#[test]
fn shares_that_are_too_old_or_overwritten_are_not_joined() {
    let mut scenario = Scenario::new(2, 2);
    let content = [9; 1000];
    let old = scenario.datagrams(packet(0, 2, &[0, 1], &content));
    scenario.arrive(0, &old[0]);
    scenario.now = SymbolReceiverLimits::default().share_age + MS;
    scenario.arrive(1, &old[1]);
    assert_eq!(scenario.receiver.counts().reassembled.expired, 1);
    // 256 and 128 KiB are enough for 384 of them.
    let all: Vec<_> =
        (1..=500).map(|number| scenario.datagrams(packet(number, 2, &[0, 1], &content))).collect();
    for channel in 0..2 {
        for symbol in &all {
            scenario.arrive(channel, &symbol[channel]);
        }
    }
    let counts = scenario.receiver.counts();
    assert_eq!((counts.reassembled.evicted, counts.symbols), (116, 384));
}

#[test]
fn without_tags_complete_symbols_are_delivered() {
    let mut scenario = Scenario::with(3, 2, false, small());
    scenario.send(0, 2, |_, _| ());
    scenario.send(1, 2, |channel, datagram| {
        if channel == 0 {
            datagram[20] ^= 1;
        }
    });
    assert_eq!(scenario.out.packets.len(), 2);
    assert_eq!(scenario.out.packets[0], (SymbolKind::Packet, content(0)));
    assert_ne!(scenario.out.packets[1], (SymbolKind::Packet, content(1)));
}

#[test]
fn losses_are_detected_while_a_channel_is_down() {
    let mut scenario = Scenario::new(3, 1);
    scenario.receiver.set_window(100 * MS);
    let send = |scenario: &mut Scenario, number: u64, previous| {
        let content = content(number);
        let symbol = Symbol { previous, ..packet(number, 1, &[0, 1], &content) };
        for (i, datagram) in scenario.datagrams(symbol).into_iter().enumerate() {
            scenario.arrive(i, &datagram);
        }
        scenario.out.packets.len()
    };
    assert_eq!(send(&mut scenario, 0, 0), 1);
    // 1 is lost, and channel 2 brings nothing.
    assert_eq!(send(&mut scenario, 2, 1), 1);
    assert_eq!(send(&mut scenario, 3, 1), 1);
    assert_eq!(send(&mut scenario, 4, 1), 1);
    scenario.receiver.set_up([0, 1].into_iter().collect::<ChannelSubset>());
    assert_eq!(send(&mut scenario, 5, 1), 5);
    assert_eq!(scenario.receiver.poll_timeout(), None);
}

/// The right shares of each control symbol are reported once it has verified, whichever arrived
/// first; wrong ones are not, and those of a channel in quarantine are reported as such.
#[test]
fn only_right_control_shares_are_reported() {
    let channels = [0, 1, 2, 3];
    for k in 1..=3_u8 {
        for faulty in channels {
            let mut scenario = Scenario::new(4, 1);
            for number in 1..=200 {
                let content = content(number);
                let message =
                    Symbol { kind: SymbolKind::Control, ..packet(number, k, &channels, &content) };
                let mut all = scenario.datagrams(message);
                if number <= 100 {
                    all[faulty][HEADER_LEN] ^= 1;
                }
                // The faulty channel is first, last or in between.
                let mut order = channels;
                order.rotate_left(number as usize % 4);
                for channel in order {
                    scenario.arrive(channel, &all[channel]);
                }
                scenario.now += MS;
            }
            assert_eq!(scenario.quarantined(), [faulty], "k = {k}");
            let reported = |channel, after: u64| {
                let mut shares = scenario.out.control_shares.iter();
                shares.find(|share| share.channel == channel && share.number > after).copied()
            };
            for channel in channels {
                let count =
                    scenario.out.control_shares.iter().filter(|it| it.channel == channel).count();
                assert_eq!(
                    count,
                    if channel == faulty { 100 } else { 200 },
                    "k = {k}, liar {faulty}"
                );
                assert_eq!(scenario.receiver.received(channel).right, count as u64);
            }
            // Its right shares during quarantine are reported as such.
            let first = reported(faulty, 0).unwrap();
            assert_eq!((first.number, first.is_quarantined, first.before), (101, true, 100));
            assert!(!reported(channels[(faulty + 1) % 4], 100).unwrap().is_quarantined);
        }
    }
}
