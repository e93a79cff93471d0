//! What is taken, what is dropped, and what is counted.

use model::Subset;
use remicss::recv::deliver::ControlShare;
use remicss::recv::receiver::Limits;
use remicss::wire::datagram::{HEADER_LEN, Kind, nearest};

use crate::world::{MS, Symbol, World, content, from, header, packet, small};

#[test]
fn any_k_shares_deliver_a_symbol_once() {
    let channels = [0, 1, 2, 3, 4];
    for k in 1..=5 {
        let mut world = World::new(5, 1);
        for set in 1_u32..32 {
            let content = content(u64::from(set));
            let datagrams = world.datagrams(packet(u64::from(set), k, &channels, &content));
            // Those in the set come first, the others late.
            let (first, late): (Vec<usize>, Vec<usize>) =
                channels.iter().partition(|&i| set >> i & 1 == 1);
            world.out.packets.clear();
            for &i in &first {
                world.arrive(i, &datagrams[i]);
            }
            assert_eq!(world.out.packets.len(), usize::from(first.len() >= usize::from(k)));
            for &i in &late {
                world.arrive(i, &datagrams[i]);
            }
            assert_eq!(world.out.packets, [(Kind::Packet, content)]);
        }
        let counts = world.receiver.counts();
        assert_eq!(counts.symbols, 31);
        assert_eq!(counts.late, 31 * (5 - u64::from(k)));
        assert_eq!(counts.reassembled.tampered, 0);
    }
}

#[test]
fn what_does_not_belong_is_counted_and_dropped() {
    let mut world = World::new(3, 2);
    let good = world.datagrams(packet(1, 2, &[0, 1, 2], b"packet"));
    world.arrive(0, &good[1]);
    world.arrive(3, &good[0]);
    world.arrive(0, &good[0][..HEADER_LEN]);
    world.arrive(0, &[0x30; 20]);
    world.arrive(0, &[]);
    world.arrive(0, &vec![0; 70_000]);
    let counts = world.receiver.counts();
    assert_eq!((counts.wrong_token, counts.malformed), (1, 4));
    assert_eq!(world.receiver.received(0).datagrams, 0);
    for k in [1, 3] {
        let all = world.datagrams(packet(2, k, &[0, 1, 2], b"other"));
        let mut other = all[0].clone();
        let first = (other[0] & 0xf0) | if k == 1 { 0 } else { 3 };
        other[..HEADER_LEN].copy_from_slice(&header(&world.keys, first, 0, 2));
        world.arrive(0, &other);
    }
    assert_eq!(world.receiver.counts().forbidden, 2);
    for _ in 0..2 {
        world.arrive(0, &good[0]);
        world.arrive(2, &good[2]);
    }
    world.arrive(1, &good[1]);
    let counts = world.receiver.counts();
    assert_eq!((counts.symbols, counts.duplicate, counts.late), (1, 2, 1));
    let received = world.receiver.received(2);
    assert_eq!((received.datagrams, received.bytes), (1, good[2].len() as u64));
    assert_eq!(world.out.packets, [(Kind::Packet, b"packet".to_vec())]);
    assert!(world.receiver.recognises(0, &good[0]) && !world.receiver.recognises(1, &good[0]));
}

/// What has come once is nothing when it comes again, as it was or changed, however late: it is not counted,
/// and no fault of the channel's. What was made of it stays.
#[test]
fn a_datagram_that_comes_again_changes_nothing() {
    for (k, kind) in [(1, Kind::Packet), (1, Kind::Control), (2, Kind::Packet), (2, Kind::Control)]
    {
        let mut world = World::new(3, 1);
        let mut seen = Vec::new();
        for number in 1..=100 {
            let content = content(number);
            let symbol = Symbol { kind, ..packet(number, k, &[0, 1, 2], &content) };
            for (channel, datagram) in world.datagrams(symbol).into_iter().enumerate() {
                world.arrive(channel, &datagram);
                seen.push((channel, datagram));
            }
        }
        let state = |world: &World| {
            let received = [0, 1, 2].map(|channel| world.receiver.received(channel));
            (received, world.out.packets.len(), world.out.control_shares.len())
        };
        let before = state(&world);
        for later in [MS, MS * 900, MS * 1100, MS * 70_000] {
            world.now += later;
            for (channel, datagram) in &seen {
                let mut changed = datagram.clone();
                changed[HEADER_LEN] ^= 1;
                world.arrive(*channel, &changed);
                world.arrive(*channel, datagram);
            }
            assert_eq!(state(&world), before, "k = {k}, {kind:?}, {later:?} later");
            assert!(world.quarantined().is_empty());
        }
    }
}

#[test]
fn control_shares_are_told_with_their_places() {
    let mut world = World::new(2, 1);
    world.send(0, 1, |_, _| ());
    world.now = MS;
    let message = Symbol { kind: Kind::Control, ..packet(1, 2, &[0, 1], b"how are you") };
    for (i, datagram) in world.datagrams(message).into_iter().enumerate() {
        world.arrive(i, &datagram);
        world.arrive(i, &datagram);
    }
    assert_eq!(world.out.controls, [(1, b"how are you".to_vec())]);
    let share = |channel| ControlShare {
        number: 1,
        channel,
        before: 1,
        at: MS,
        from: from(channel),
        is_quarantined: false,
    };
    assert_eq!(world.out.control_shares, [share(0), share(1)]);
}

#[test]
fn numbers_go_on_beyond_24_bits_and_behind_the_window_nothing_is_taken() {
    let mut world = World::new(2, 1);
    let mut expected = Vec::new();
    for number in [0, 5, (1 << 23) - 1, (1 << 24) - 3, (1 << 24) + 2, (3 << 23) + 1, 1 << 25] {
        world.send(number, 2, |_, _| ());
        expected.push((Kind::Packet, content(number)));
        assert_eq!(world.receiver.highest(), number);
    }
    world.send((1 << 25) - 900, 2, |_, _| ());
    expected.push((Kind::Packet, content((1 << 25) - 900)));
    world.send((1 << 25) - 1024, 2, |_, _| ());
    assert_eq!(world.out.packets, expected);
    assert_eq!(world.receiver.counts().outside, 2);
}

#[test]
fn shares_of_other_numbers_are_nothing_to_each_other() {
    let mut world = World::new(2, 2);
    let mut share = |channel: usize, number: u64| {
        let datagrams = world.datagrams(packet(number, 2, &[0, 1], b"packet"));
        world.arrive(channel, &datagrams[channel]);
        let counts = world.receiver.counts();
        (counts.symbols, counts.reassembled.joins)
    };
    // The numbers meet in the ring.
    assert_eq!(share(0, 5), (0, 0));
    assert_eq!(share(1, 5 + 1024), (0, 0));
    let mut world = World::new(2, 2);
    world.send(5000, 2, |_, _| ());
    let ahead = world.datagrams(packet(5100, 2, &[0, 1], b"packet"));
    let outside = world.datagrams(packet(5100 - 2048, 2, &[0, 1], b"packet"));
    world.arrive(0, &ahead[0]);
    world.arrive(0, &outside[0]);
    world.arrive(1, &ahead[1]);
    assert_eq!(world.receiver.highest(), 5100);
}

#[test]
fn one_channel_cannot_move_the_window_and_two_find_it_again() {
    let mut world = World::new(3, 2);
    let keys = world.keys.clone();
    for number in 0..100 {
        world.send(number, 2, |channel, datagram| {
            if channel == 0 {
                // It claims to be far ahead, each time at another place.
                let lie = nearest(number, ((number as u32 + 1) * 7_919_000) & 0xff_ffff);
                let header = header(&keys, datagram[0], 0, lie);
                datagram[..HEADER_LEN].copy_from_slice(&header);
            }
        });
    }
    assert_eq!(world.receiver.highest(), 99);
    assert_eq!(world.out.packets.len(), 100);
    // An outage of many windows, after which the channels are far from each other.
    let all: Vec<Vec<Vec<u8>>> = (1_000_000..1_001_000)
        .map(|number| world.datagrams(packet(number, 2, &[0, 1, 2], &content(number))))
        .collect();
    for symbol in &all {
        world.arrive(1, &symbol[1]);
    }
    for symbol in &all[..10] {
        world.arrive(2, &symbol[2]);
    }
    assert_eq!(world.receiver.highest(), 1_000_009);
    assert_eq!(world.out.packets.len(), 110);
}

#[test]
fn shares_that_are_too_old_or_overwritten_are_not_joined() {
    let mut world = World::new(2, 2);
    let content = [9; 1000];
    let old = world.datagrams(packet(0, 2, &[0, 1], &content));
    world.arrive(0, &old[0]);
    world.now = Limits::default().share_age + MS;
    world.arrive(1, &old[1]);
    assert_eq!(world.receiver.counts().reassembled.expired, 1);
    // 256 and 128 KiB have room for 384 of them.
    let all: Vec<_> =
        (1..=500).map(|number| world.datagrams(packet(number, 2, &[0, 1], &content))).collect();
    for channel in 0..2 {
        for symbol in &all {
            world.arrive(channel, &symbol[channel]);
        }
    }
    let counts = world.receiver.counts();
    assert_eq!((counts.reassembled.evicted, counts.symbols), (116, 384));
}

#[test]
fn without_tags_what_is_whole_is_delivered() {
    let mut world = World::with(3, 2, false, small());
    world.send(0, 2, |_, _| ());
    world.send(1, 2, |channel, datagram| {
        if channel == 0 {
            datagram[20] ^= 1;
        }
    });
    assert_eq!(world.out.packets.len(), 2);
    assert_eq!(world.out.packets[0], (Kind::Packet, content(0)));
    assert_ne!(world.out.packets[1], (Kind::Packet, content(1)));
}

#[test]
fn a_channel_that_is_down_keeps_nothing_from_being_known_as_lost() {
    let mut world = World::new(3, 1);
    world.receiver.set_window(100 * MS);
    let send = |world: &mut World, number: u64, previous| {
        let content = content(number);
        let symbol = Symbol { previous, ..packet(number, 1, &[0, 1], &content) };
        for (i, datagram) in world.datagrams(symbol).into_iter().enumerate() {
            world.arrive(i, &datagram);
        }
        world.out.packets.len()
    };
    assert_eq!(send(&mut world, 0, 0), 1);
    // 1 is lost, and channel 2 brings nothing.
    assert_eq!(send(&mut world, 2, 1), 1);
    assert_eq!(send(&mut world, 3, 1), 1);
    assert_eq!(send(&mut world, 4, 1), 1);
    world.receiver.set_up([0, 1].into_iter().collect::<Subset>());
    assert_eq!(send(&mut world, 5, 1), 5);
    assert_eq!(world.receiver.poll_timeout(), None);
}

/// Of each control symbol the shares that are right are told, when it has verified, whichever came first;
/// those that are wrong are not, and those of a channel in quarantine are told as such.
#[test]
fn only_right_control_shares_are_told() {
    let channels = [0, 1, 2, 3];
    for k in 1..=3_u8 {
        for liar in channels {
            let mut world = World::new(4, 1);
            for number in 1..=200 {
                let content = content(number);
                let message =
                    Symbol { kind: Kind::Control, ..packet(number, k, &channels, &content) };
                let mut all = world.datagrams(message);
                if number <= 100 {
                    all[liar][HEADER_LEN] ^= 1;
                }
                // The liar is first, last or in between.
                let mut order = channels;
                order.rotate_left(number as usize % 4);
                for channel in order {
                    world.arrive(channel, &all[channel]);
                }
                world.now += MS;
            }
            assert_eq!(world.quarantined(), [liar], "k = {k}");
            let told = |channel, after: u64| {
                let mut shares = world.out.control_shares.iter();
                shares.find(|share| share.channel == channel && share.number > after).copied()
            };
            for channel in channels {
                let count =
                    world.out.control_shares.iter().filter(|it| it.channel == channel).count();
                assert_eq!(count, if channel == liar { 100 } else { 200 }, "k = {k}, liar {liar}");
                assert_eq!(world.receiver.received(channel).right, count as u64);
            }
            // What it brings rightly in quarantine is told, and told as that.
            let first = told(liar, 0).unwrap();
            assert_eq!((first.number, first.is_quarantined, first.before), (101, true, 100));
            assert!(!told(channels[(liar + 1) % 4], 100).unwrap().is_quarantined);
        }
    }
}
