//! Random loss, reordering, duplicates and changes: what is delivered nevertheless, and in which
//! order.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use proptest::prelude::*;
use sim::{
    SeededRng, SimulatedLinkConditions as LinkConditions, SimulatedLinkId, SimulatedNetwork,
    SimulationEvent,
};
use sunder_remicss::recv::receiver::SymbolReceiverLimits;
use sunder_remicss::wire::datagram::expand_sequence;

use super::scenario::{MS, Scenario, Symbol, content, header, packet, small};

/// Channels with loss, delay, duplicates and changes.
#[derive(Clone, Debug)]
struct Conditions {
    seed: u64,
    n: usize,
    k: u8,
    loss_percent: u64,
    repeat_percent: u64,
    faulty: usize,
    window: Duration,
}

fn conditions() -> impl Strategy<Value = Conditions> {
    (any::<u64>(), 1..=6_usize, 0..60_u64, 0..30_u64, 0..30_u64).prop_flat_map(
        |(seed, n, loss_percent, repeat_percent, window_ms)| {
            (1..=n).prop_flat_map(move |k| {
                (0..k).prop_map(move |faulty| Conditions {
                    seed,
                    n,
                    k: u8::try_from(k).unwrap(),
                    loss_percent,
                    repeat_percent,
                    faulty,
                    window: MS * u32::try_from(window_ms).unwrap(),
                })
            })
        },
    )
}

impl Scenario {
    /// Delivers everything that arrives until then, and handles the receiver's timeouts.
    fn run(&mut self, network: &mut SimulatedNetwork<()>, until: Duration) {
        loop {
            let event = network.next_event_until(until);
            self.now = network.now();
            while let Some(due) = self.receiver.poll_timeout().filter(|due| *due <= self.now) {
                self.receiver.handle_timeout(due, &mut self.out);
            }
            match event {
                Some(SimulationEvent::Arrived { link, bytes }) => self.arrive(link.index(), &bytes),
                Some(other) => panic!("{other:?}"),
                None => return,
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn exactly_the_symbols_with_k_honest_shares_are_delivered(conditions in conditions()) {
        let Conditions { seed, n, k, loss_percent, repeat_percent, faulty, window } = conditions;
        let mut rng = SeededRng::new(seed);
        // Enough trials for all, and no quarantine.
        let limits = SymbolReceiverLimits { failures_per_second: u32::MAX, ..small() };
        let mut scenario = Scenario::with(n, k, true, limits);
        scenario.receiver.set_window(window);
        let mut network = SimulatedNetwork::new(rng.next_u64());
        let links: Vec<SimulatedLinkId> = (0..n).map(|_| network.add_link(Duration::ZERO, 20 * MS)).collect();
        for &link in &links[faulty..] {
            *network.conditions_mut(link) = LinkConditions {
                loss_permille: 10 * loss_percent,
                duplication_permille: 10 * repeat_percent,
                ..LinkConditions::delayed(Duration::ZERO, 20 * MS)
            };
        }
        let mut expected = BTreeSet::new();
        let mut sent = BTreeSet::new();
        for number in 0..60_u64 {
            scenario.run(&mut network, MS * number as u32);
            let mut channels: Vec<usize> = (0..n).collect();
            rng.shuffle(&mut channels);
            channels.truncate(usize::from(k) + rng.index(n - usize::from(k) + 1));
            let content = content(number);
            let previous = [0, 1, 2, 200, 255][rng.index(5)];
            let symbol = Symbol { previous, ..packet(number, k, &channels, &content) };
            let mut good = 0;
            for (&i, mut datagram) in channels.iter().zip(scenario.datagrams(symbol)) {
                // At most 15 in 10 s, so that it is never put into quarantine.
                if i < faulty && number % 4 == 0 {
                    let place = rng.index(datagram.len());
                    datagram[place] ^= 1 + rng.index(255) as u8;
                    if rng.chance(20) {
                        datagram.truncate(rng.index(datagram.len() + 1));
                    }
                }
                let arrival = network.send_datagram(links[i], datagram);
                good += u8::from(arrival.is_some() && i >= faulty);
            }
            if good >= k {
                expected.insert(content.clone());
            }
            sent.insert(content);
        }
        scenario.run(&mut network, Duration::MAX);
        let out: Vec<Vec<u8>> =
            scenario.out.packets.iter().map(|(_, packets)| packets.clone()).collect();
        let set: BTreeSet<Vec<u8>> = out.iter().cloned().collect();
        prop_assert_eq!(set.len(), out.len(), "each once");
        prop_assert!(set.is_subset(&sent));
        prop_assert!(expected.is_subset(&set), "{} of {}", set.len(), expected.len());
        prop_assert!(scenario.quarantined().is_empty());
    }

    #[test]
    fn flows_stay_in_order_when_delays_are_within_the_window(
        seed: u64, flows in 1..400_usize, spread_ms in 0..60_u64,
    ) {
        let mut rng = SeededRng::new(seed);
        let mut scenario = Scenario::with(2, 1, true, SymbolReceiverLimits { held_bytes: 1 << 20, ..small() });
        scenario.receiver.set_window(MS * (spread_ms as u32 + 1));
        let mut last: HashMap<usize, u64> = HashMap::new();
        // The second channel is slower, and both keep order.
        let mut network = SimulatedNetwork::new(rng.next_u64());
        let links = [0, spread_ms as u32].map(|delay_ms| network.add_link(MS * delay_ms, MS * delay_ms));
        let count = 900_u64;
        for number in 0..count {
            scenario.run(&mut network, MS * number as u32 / 10);
            let flow = rng.index(flows);
            let previous = last.insert(flow, number).map_or(0, |before| (number - before).min(255));
            let content = [(flow as u64).to_be_bytes(), number.to_be_bytes()].concat();
            let channel = rng.index(2);
            let channels = [channel];
            let symbol = Symbol {
                previous: previous as u8,
                ..packet(number, 1, &channels, &content)
            };
            let datagram = scenario.datagrams(symbol).remove(0);
            network.send_datagram(links[channel], datagram);
        }
        scenario.run(&mut network, Duration::MAX);
        prop_assert_eq!(scenario.out.packets.len() as u64, count);
        let mut latest: HashMap<&[u8], &[u8]> = HashMap::new();
        for (_, packet) in &scenario.out.packets {
            let (flow, number) = packet.split_at(8);
            if let Some(before) = latest.insert(flow, number) {
                prop_assert!(before < number, "a flow is out of order");
            }
        }
        prop_assert_eq!(scenario.receiver.counts().released.released_early, 0);
    }

    #[test]
    fn no_bytes_are_delivered_or_cause_a_panic(
        datagrams in prop::collection::vec(
            (0..4_usize, 0..=40_u8, any::<[u8; 4]>(), 0..80_usize, any::<u8>(), 0..3000_u64), 0..200),
        near in prop::option::of(0..200_u32),
    ) {
        let mut scenario = Scenario::new(4, 2);
        scenario.receiver.set_window(5 * MS);
        for (channel, first, sequence, len, byte, wait_ms) in datagrams {
            scenario.now += MS * wait_ms as u32 / 100;
            let sequence = near.map_or(sequence, |near| (near % 20 + u32::from(sequence[0] % 20)).to_be_bytes());
            let sequence = u32::from_be_bytes(sequence) & 0xff_ffff;
            let number = expand_sequence(scenario.receiver.highest(), sequence);
            let header = header(&scenario.keys, first, channel, number);
            let datagram = [&header[..], &vec![byte; len]].concat();
            scenario.arrive(channel, &datagram);
            scenario.receiver.handle_timeout(scenario.now, &mut scenario.out);
        }
        prop_assert!(scenario.out.packets.is_empty() && scenario.out.controls.is_empty());
    }
}
