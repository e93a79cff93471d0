use super::*;
use crate::clock::MS;

const RATE: f64 = 12.0;

/// The transmission time of a full packet at `RATE`.
const PACKET: u64 = MS;

fn line(conditions: EmulatedLinkConditions) -> OneWayLink {
    OneWayLink::new(conditions.checked().unwrap(), 1, 0)
}

/// A superpacket of TCP whose segments have 1448 bytes of payload with a pattern.
fn superpacket(payload: usize) -> TunFrame {
    // In the virtio header: a partial checksum, TCP over IPv4, the payload of a segment, and
    // the start and the offset of the checksum.
    let mut bytes = vec![1, 1, 0, 0];
    bytes.extend([1448_u16, 20, 16].into_iter().flat_map(u16::to_ne_bytes));
    let mut headers = [0; 52];
    headers[0] = 0x45;
    headers[32] = 8 << 4;
    bytes.extend(headers);
    bytes.extend((0..payload).map(|i| i.to_le_bytes()[i % 2]));
    TunFrame::parse(bytes.into()).unwrap()
}

fn packet() -> TunFrame {
    superpacket(1448)
}

/// All arrivals from now on: their due times and the packets.
fn arrivals(line: &mut OneWayLink) -> Vec<(u64, Vec<u8>)> {
    let mut arrived = Vec::new();
    while let Some(next) = line.next_arrival() {
        // Nothing arrives if the packet is lost or reordered, but the time advances.
        let Some((due, frame)) = line.take_arrived(next) else { continue };
        assert_eq!(due, next);
        arrived.extend((0..frame.segments()).map(|i| (due, frame.packet(i))));
    }
    arrived
}

fn times(arrived: &[(u64, Vec<u8>)]) -> Vec<u64> {
    arrived.iter().map(|(due, _)| *due).collect()
}

#[test]
fn a_packet_takes_its_transmission_time_and_the_delay() {
    let mut line = line(EmulatedLinkConditions {
        rate_mbit: Some(RATE),
        delay_ms: 7.0,
        ..EmulatedLinkConditions::default()
    });
    line.offer(5 * MS, &packet());
    line.offer(5 * MS, &packet());
    line.offer(50 * MS, &packet());
    assert_eq!(times(&arrivals(&mut line)), [13 * MS, 14 * MS, 58 * MS]);
}

#[test]
fn a_slow_line_delivers_segments_one_by_one() {
    let mut line =
        line(EmulatedLinkConditions { rate_mbit: Some(RATE), ..EmulatedLinkConditions::default() });
    let frame = superpacket(10_000);
    line.offer(0, &frame);
    let arrived = arrivals(&mut line);
    // Six full segments and one of 1312 bytes of payload.
    let last = 6 * PACKET + PACKET * (10_000 - 6 * 1448 + 52) / 1500;
    assert_eq!(
        times(&arrived),
        [1, 2, 3, 4, 5, 6].map(|i| i * PACKET).into_iter().chain([last]).collect::<Vec<_>>()
    );
    for (i, (_, packet)) in arrived.iter().enumerate() {
        assert_eq!(*packet, frame.packet(i));
    }
}

#[test]
fn a_fast_line_keeps_superpackets_whole() {
    for rate_mbit in [None, Some(5000.0)] {
        let mut line =
            line(EmulatedLinkConditions { rate_mbit, ..EmulatedLinkConditions::default() });
        line.offer(0, &superpacket(10_000));
        let (_, frame) = line.take_arrived(MS).unwrap();
        assert_eq!(frame.segments(), 7);
    }
}

#[test]
fn the_mean_rate_is_exact() {
    // A rate at which no packet takes a whole number of nanoseconds.
    let mut line = line(EmulatedLinkConditions {
        rate_mbit: Some(777.777_777),
        queue_ms: 1e6,
        ..EmulatedLinkConditions::default()
    });
    for _ in 0..10_000 {
        line.offer(0, &packet());
    }
    let last = arrivals(&mut line).last().unwrap().0;
    let exact = 10_000.0 * 1500.0 * 8.0 / 0.777_777_777;
    assert!((last as f64 - exact).abs() < 2.0, "{last}, not {exact}");
}

#[test]
fn a_full_queue_drops_the_rest_of_a_superpacket() {
    // Room for 6,000 bytes: four packets.
    let mut line = line(EmulatedLinkConditions {
        rate_mbit: Some(RATE),
        queue_ms: 4.0,
        ..EmulatedLinkConditions::default()
    });
    line.offer(0, &superpacket(10_000));
    assert_eq!((line.counts().offered, line.counts().dropped), (7, 3));
    assert_eq!(times(&arrivals(&mut line)), [1, 2, 3, 4].map(|i| i * PACKET));
    // One packet is always accepted, even if the queue has no room for it.
    let mut line = self::line(EmulatedLinkConditions {
        rate_mbit: Some(RATE),
        queue_ms: 0.0,
        ..EmulatedLinkConditions::default()
    });
    line.offer(0, &superpacket(10_000));
    assert_eq!(line.counts().dropped, 6);
    line.offer(PACKET, &superpacket(10_000));
    assert_eq!(line.counts().dropped, 12);
    assert_eq!(arrivals(&mut line).len(), 2);
}

#[test]
fn a_lost_segment_uses_its_transmission_time() {
    let mut line = line(EmulatedLinkConditions {
        rate_mbit: Some(RATE),
        loss: 0.5,
        queue_ms: 1e6,
        ..EmulatedLinkConditions::default()
    });
    let frame = superpacket(40 * 1448);
    line.offer(0, &frame);
    let arrived = arrivals(&mut line);
    let LinkCounters { lost, delivered, .. } = line.counts();
    assert_eq!((lost + delivered, delivered), (40, arrived.len() as u64));
    assert!((5..35).contains(&lost));
    for (due, packet) in &arrived {
        let index = usize::try_from(due / PACKET).unwrap() - 1;
        assert_eq!(*packet, frame.packet(index));
    }
    // The same seed loses the same packets at any rate.
    let mut fast =
        self::line(EmulatedLinkConditions { loss: 0.5, ..EmulatedLinkConditions::default() });
    fast.offer(0, &frame);
    let kept: Vec<Vec<u8>> = arrivals(&mut fast).into_iter().map(|(_, packet)| packet).collect();
    let before: Vec<Vec<u8>> = arrived.into_iter().map(|(_, packet)| packet).collect();
    assert_eq!(kept, before);
}

#[test]
fn packets_that_are_too_long_are_lost() {
    let frame = superpacket(10 * 1448 + 100);
    let len = frame.packet(0).len();
    for (max_len, expected) in [(len, 11), (len - 1, 1)] {
        let mut line = line(EmulatedLinkConditions {
            max_len: Some(max_len),
            ..EmulatedLinkConditions::default()
        });
        line.offer(0, &frame);
        let arrived = arrivals(&mut line);
        assert_eq!(arrived.len(), expected);
        assert_eq!(line.counts().lost, 11 - expected as u64);
    }
}

#[test]
fn packets_are_reordered_and_duplicated() {
    let late = EmulatedLinkConditions {
        rate_mbit: Some(RATE),
        reorder: 0.3,
        reorder_ms: 2.5,
        ..EmulatedLinkConditions::default()
    };
    let mut line = line(EmulatedLinkConditions { queue_ms: 1e6, ..late });
    let frame = superpacket(40 * 1448);
    line.offer(0, &frame);
    let arrived = arrivals(&mut line);
    assert_eq!(arrived.len(), 40);
    let mut overtaken = 0;
    for (due, packet) in &arrived {
        let index = (0..40).find(|i| frame.packet(*i) == *packet).unwrap();
        let sent = (index as u64 + 1) * PACKET;
        assert!([sent, sent + 5 * PACKET / 2].contains(due));
        overtaken += u64::from(*due > sent);
    }
    assert_eq!(overtaken, line.counts().reordered);
    assert!((3..25).contains(&overtaken));

    let mut line =
        self::line(EmulatedLinkConditions { duplicate: 1.0, ..EmulatedLinkConditions::default() });
    line.offer(0, &packet());
    let arrived = arrivals(&mut line);
    assert_eq!(arrived, [(0, packet().packet(0)), (0, packet().packet(0))]);
    assert_eq!((line.counts().delivered, line.counts().delivered_bytes), (2, 3000));
}

#[test]
fn jitter_stays_within_its_bounds_and_keeps_order() {
    let conditions = EmulatedLinkConditions {
        delay_ms: 5.0,
        jitter_ms: 3.0,
        ..EmulatedLinkConditions::default()
    };
    let mut line = line(conditions);
    let (mut least, mut most) = (u64::MAX, 0);
    let mut before = 0;
    for i in 0..20_000 {
        let sent = i * MS / 5;
        while let Some((due, _)) = line.take_arrived(sent) {
            assert!(due >= before);
            before = due;
        }
        line.offer(sent, &packet());
        let travels = line.arrival(sent) - sent;
        least = travels.min(least);
        most = travels.max(most);
    }
    assert!((2 * MS..2 * MS + MS / 2).contains(&least), "{least}");
    assert!((7 * MS + MS / 2..=8 * MS).contains(&most), "{most}");
}

#[test]
fn a_line_holds_a_bounded_number_of_bytes() {
    let mut line = line(EmulatedLinkConditions {
        delay_ms: 1e6,
        duplicate: 0.01,
        loss: 0.01,
        ..EmulatedLinkConditions::default()
    });
    let frame = superpacket(45 * 1448);
    for _ in 0..20_000 {
        line.offer(0, &frame);
    }
    assert!(line.counts().dropped > 0);
    let held: usize = line.wire.iter().map(|in_flight| OVERHEAD + in_flight.frame.wire_len()).sum();
    assert_eq!(held, line.held_bytes);
    assert!((MAX_HELD_BYTES - (1 << 16)..MAX_HELD_BYTES + (1 << 16)).contains(&held), "{held}");
    arrivals(&mut line);
    assert_eq!(line.held_bytes, 0);
}

#[test]
fn a_change_affects_later_transmissions() {
    let slow =
        EmulatedLinkConditions { rate_mbit: Some(RATE), ..EmulatedLinkConditions::default() };
    let mut line = line(slow);
    for _ in 0..4 {
        line.offer(0, &packet());
    }
    // During the transmission of the second packet, which continues unchanged.
    let fast = EmulatedLinkConditions { rate_mbit: Some(2.0 * RATE), delay_ms: 10.0, ..slow };
    line.set(PACKET + PACKET / 4, fast);
    let due = times(&arrivals(&mut line));
    let then = 2 * PACKET + 10 * MS;
    assert_eq!(due, [PACKET, 2 * PACKET, then + PACKET / 2, then + PACKET]);
    // A packet whose transmission has not begun uses the new conditions.
    line.offer(20 * MS, &packet());
    line.set(20 * MS, slow);
    assert_eq!(times(&arrivals(&mut line)), [21 * MS]);
}
