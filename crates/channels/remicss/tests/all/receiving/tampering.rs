//! Channels that send wrong shares, alone and together.

use std::collections::VecDeque;

use sharing::Splitter;
use sim::SeededRng;
use sunder_remicss::recv::receiver::{ReceivedChannelCounts, SymbolReceiverLimits};
use sunder_remicss::wire::datagram::HEADER_LEN;

use super::scenario::{MS, Scenario, content, packet, small};

#[test]
fn a_faulty_channel_is_quarantined_and_no_symbol_is_lost() {
    // The kind of wrong share.
    let ways: [fn(&mut Vec<u8>); 3] = [
        |datagram| datagram[HEADER_LEN + 1] ^= 1,
        |datagram| *datagram.last_mut().unwrap() ^= 0x80,
        |datagram| datagram.truncate(datagram.len() - 1),
    ];
    for (k, n) in [(1, 2), (1, 3), (2, 3), (3, 4), (2, 5), (3, 5)] {
        for faulty in 0..n {
            for (way, tampered) in ways.iter().enumerate() {
                let mut scenario = Scenario::new(n, k);
                let mut number = 0;
                while scenario.quarantined().is_empty() && number < 3000 {
                    scenario.send(number, k, |channel, datagram| {
                        if channel == faulty {
                            tampered(datagram);
                        }
                    });
                    number += 1;
                    assert_eq!(scenario.out.packets.len() as u64, number, "none is lost");
                }
                let comes_in_time = faulty < usize::from(k);
                if k > 1 && way >= 2 && !comes_in_time {
                    // Another length, too late to be examined.
                    continue;
                }
                if k == 1 && faulty > 0 {
                    // The symbol was delivered before.
                    continue;
                }
                assert_eq!(scenario.quarantined(), [faulty], "way {way}, k = {k}, n = {n}");
                let named = (0..n).filter(|&i| scenario.receiver.received(i).faults > 0);
                assert_eq!(named.collect::<Vec<_>>(), [faulty]);
                // From now on its shares cost nothing.
                let before = scenario.receiver.counts().reassembled.joins;
                for number in number..number + 100 {
                    scenario.send(number, k, |channel, datagram| {
                        if channel == faulty {
                            tampered(datagram);
                        }
                    });
                }
                let joins = scenario.receiver.counts().reassembled.joins - before;
                assert_eq!(joins, if k == 1 { 0 } else { 100 });
                assert_eq!(scenario.out.packets.len() as u64, number + 100);
            }
        }
    }
}

/// Without the key, no header can be changed: otherwise the share is unauthenticated, and no fault
/// of the channel.
#[test]
fn a_changed_header_has_a_wrong_token() {
    for place in 0..HEADER_LEN {
        let mut scenario = Scenario::new(3, 2);
        for number in 0..100 {
            scenario.send(number, 2, |channel, datagram| {
                if channel == 0 {
                    datagram[place] ^= 1;
                }
            });
        }
        let counts = scenario.receiver.counts();
        assert_eq!((counts.symbols, counts.wrong_token), (100, 100), "byte {place}");
        assert_eq!(scenario.receiver.received(0), ReceivedChannelCounts::default());
        assert!(scenario.quarantined().is_empty());
    }
}

#[test]
fn without_spare_shares_no_fault_is_attributed() {
    let mut scenario = Scenario::new(3, 3);
    for number in 0..100 {
        scenario.send(number, 3, |channel, datagram| {
            if channel == 1 {
                datagram[HEADER_LEN] ^= 1;
            }
        });
    }
    let counts = scenario.receiver.counts();
    assert_eq!((counts.symbols, counts.reassembled.tampered), (0, 100));
    assert!((0..3).all(|i| scenario.receiver.received(i).faults == 0));
}

/// Two channels of five add wrong shares whose errors cancel each other in the joined value, so
/// that right shares disagree with it. With k = 3 this is beyond what can be attributed correctly.
#[test]
fn colluding_channels_put_at_most_one_honest_one_into_quarantine() {
    let mut scenario = Scenario::new(5, 3);
    // A polynomial that is zero at 0 and at x = 3.
    let splitter = Splitter::for_coordinates(3, &[3, 1, 2]).unwrap();
    for number in 0..20_000 {
        let len = content(number).len() + 9;
        let mut errors = [vec![0; len], vec![0xA5; len], vec![0; len]];
        let mut views: Vec<&mut [u8]> = errors.iter_mut().map(Vec::as_mut_slice).collect();
        splitter.danger_split_given_random_shares(&vec![0; len], &mut views).unwrap();
        scenario.send(number, 3, |channel, datagram| {
            if let 0 | 1 = channel {
                datagram[HEADER_LEN..]
                    .iter_mut()
                    .zip(&errors[channel + 1])
                    .for_each(|(a, b)| *a ^= b);
            }
        });
        assert!(scenario.quarantined().len() <= 1);
    }
    assert!(scenario.receiver.received(3).faults > 0, "the attack works so far");
    assert_eq!(scenario.out.packets.len(), 20_000);
}

#[test]
fn late_wrong_shares_are_detected_by_comparison() {
    let mut scenario = Scenario::new(3, 2);
    let content = [9; 1000];
    // Some 400 symbols behind, so that the others' shares were evicted if they are not kept.
    let mut late = VecDeque::new();
    for number in 0..4000 {
        let mut datagrams = scenario.datagrams(packet(number, 2, &[0, 1, 2], &content));
        scenario.arrive(0, &datagrams[0]);
        scenario.arrive(1, &datagrams[1]);
        datagrams[2][500] ^= 1;
        late.push_back(datagrams.remove(2));
        if late.len() > 400 {
            scenario.arrive(2, &late.pop_front().unwrap());
        }
    }
    assert_eq!(scenario.quarantined(), [2]);
    assert_eq!(scenario.receiver.counts().symbols, 4000);
}

#[test]
fn unattributed_faults_cost_no_more_joins_than_the_budget() {
    let tampered = |faulty: usize| {
        move |channel: usize, datagram: &mut Vec<u8>| {
            if channel < faulty {
                let mut rng = SeededRng::new(channel as u64);
                datagram[HEADER_LEN..].iter_mut().for_each(|byte| *byte ^= rng.bytes::<1>()[0]);
            }
        }
    };
    // Three of seven are more than can be attributed.
    let mut scenario =
        Scenario::with(7, 4, true, SymbolReceiverLimits { failures_per_second: 50, ..small() });
    (0..2000).for_each(|number| scenario.send(number, 4, tampered(3)));
    // The first of a symbol count, too.
    let counts = scenario.receiver.counts().reassembled;
    assert!((25..=50).contains(&counts.failures), "{counts:?}");
    assert!(counts.unjoined > 1900, "{counts:?}");
    assert!(
        scenario.receiver.counts().symbols > 1900,
        "those that never failed together are joined"
    );
    scenario.now += 1000 * MS;
    (2000..3000).for_each(|number| scenario.send(number, 4, tampered(0)));
    assert!(scenario.receiver.counts().symbols >= 1000);
    let mut scenario =
        Scenario::with(7, 4, true, SymbolReceiverLimits { failures_per_second: 50_000, ..small() });
    (0..100).for_each(|number| scenario.send(number, 4, tampered(3)));
    let counts = scenario.receiver.counts();
    assert_eq!((counts.symbols, counts.reassembled.unattributed), (100, 100));
    assert!((0..7).all(|channel| scenario.receiver.received(channel).faults == 0));
    // Seven of sixteen are more than the search covers.
    let limits = SymbolReceiverLimits { failures_per_second: u32::MAX, ..small() };
    let mut scenario = Scenario::with(16, 8, true, limits);
    (0..10).for_each(|number| scenario.send(number, 8, tampered(7)));
    let joins = scenario.receiver.counts().reassembled.joins;
    assert!(joins <= 10 * 65, "{joins}");
}

/// If all shares are needed, faults cannot be attributed, and each symbol's first join is an
/// attempt at its tag.
#[test]
fn first_joins_count_as_attempts() {
    let mut scenario =
        Scenario::with(3, 3, true, SymbolReceiverLimits { failures_per_second: 50, ..small() });
    let tampered = |channel: usize, datagram: &mut Vec<u8>| {
        if channel == 2 {
            datagram[HEADER_LEN] ^= 1;
        }
    };
    for number in 0..10_000 {
        scenario.now += MS;
        scenario.send(number, 3, tampered);
    }
    // Those of ten seconds, and the initial ones.
    let failures = scenario.receiver.counts().reassembled.failures;
    assert!((500..=600).contains(&failures), "{failures}");
    scenario.now += 1000 * MS;
    let before = scenario.receiver.counts().symbols;
    (10_000..12_000).for_each(|number| scenario.send(number, 3, |_, _| {}));
    assert_eq!(scenario.receiver.counts().symbols, before + 2000, "what is right costs nothing");
}

#[test]
fn a_second_faulty_channel_costs_no_symbols() {
    let mut scenario =
        Scenario::with(4, 2, true, SymbolReceiverLimits { failures_per_second: 50, ..small() });
    for faulty in [0, 1] {
        for _ in 0..1000 {
            let number = scenario.receiver.counts().symbols;
            scenario.send(number, 2, |channel, datagram| {
                if channel <= faulty {
                    datagram[HEADER_LEN] ^= 1;
                }
            });
            assert_eq!(scenario.receiver.counts().symbols, number + 1, "none is lost");
        }
        assert_eq!(scenario.quarantined(), [0], "no more than one");
    }
}

/// A channel that spoils symbols of which all shares are needed cannot be attributed, and costs the
/// symbols that it has a share of, but no others.
#[test]
fn an_unattributable_channel_spoils_only_its_own_symbols() {
    let mut scenario =
        Scenario::with(3, 2, true, SymbolReceiverLimits { failures_per_second: 50, ..small() });
    let mut others = 0;
    for number in 0..10_000 {
        scenario.now += MS;
        let channels = [[0, 1], [0, 2], [1, 2]][number as usize % 3];
        let datagrams = scenario.datagrams(packet(number, 2, &channels, &[9; 100]));
        others += u64::from(channels[0] != 0);
        for (channel, mut datagram) in channels.into_iter().zip(datagrams) {
            if channel == 0 {
                datagram[HEADER_LEN] ^= 1;
            }
            scenario.arrive(channel, &datagram);
        }
    }
    assert!(scenario.quarantined().is_empty(), "nobody can be named");
    assert_eq!(scenario.receiver.counts().symbols, others, "{:?}", scenario.receiver.counts());
}
