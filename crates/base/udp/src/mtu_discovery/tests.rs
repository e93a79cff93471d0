//! Searches over emulated paths.

use super::*;
use proptest::prelude::*;

fn discovery() -> PathMtuDiscovery {
    let mut discovery = PathMtuDiscovery::new(28);
    discovery.handle_activity(Duration::ZERO);
    discovery
}

/// Runs a search over a path. `carries` says which probe arrives. Returns the number of probes
/// and the time.
fn run(
    discovery: &mut PathMtuDiscovery,
    began: Duration,
    mut carries: impl FnMut(usize) -> bool,
) -> (u32, Duration) {
    let (mut probes, mut now) = (0, began);
    loop {
        while let Some(probe) = discovery.poll_transmit(now) {
            probes += 1;
            if carries(usize::from(probe.length) + 28) {
                discovery.handle_answer(probe, now);
            }
        }
        if discovery.probed.is_none() {
            return (probes, now.saturating_sub(began));
        }
        now = discovery.poll_timeout().unwrap();
    }
}

#[test]
fn no_probe_is_sent_before_there_is_activity() {
    let mut discovery = PathMtuDiscovery::new(28);
    assert_eq!((discovery.poll_transmit(PROBE_TIMEOUT), discovery.poll_timeout()), (None, None));
    discovery.handle_activity(PROBE_TIMEOUT);
    assert_eq!(discovery.poll_timeout(), Some(Duration::ZERO));
    assert!(discovery.poll_transmit(PROBE_TIMEOUT).is_some());
}

#[test]
fn a_path_that_carries_the_longest_takes_one_probe() {
    let mut discovery = discovery();
    assert_eq!((discovery.mtu(), discovery.max_datagram_len()), (None, None));
    let (probes, took) = run(&mut discovery, Duration::ZERO, |_| true);
    assert_eq!((probes, took), (1, Duration::ZERO));
    assert_eq!((discovery.mtu(), discovery.max_datagram_len()), (Some(1500), Some(1472)));
}

#[test]
fn every_mtu_is_found() {
    for mtu in MIN_MTU..=MAX_MTU {
        let mut discovery = discovery();
        let (probes, took) = run(&mut discovery, Duration::ZERO, |len| len <= mtu.into());
        assert_eq!(discovery.mtu(), Some(mtu));
        assert!(probes <= 13 * 8 && took <= Duration::from_secs(4), "{mtu}: {probes}, {took:?}");
    }
}

#[test]
fn single_losses_do_not_lower_the_mtu() {
    let mut discovery = discovery();
    let (mut arrived, mut probed, mut probes_sent) = (MIN_MTU.into(), 0, 0);
    run(&mut discovery, Duration::ZERO, |len| {
        if len <= arrived {
            return true;
        }
        probes_sent = if len == probed { probes_sent + 1 } else { 1 };
        probed = len;
        let arrives = probes_sent == 3 && len <= 1400;
        arrived = if arrives { len } else { arrived };
        arrives
    });
    assert_eq!(discovery.mtu(), Some(1400));
}

#[test]
fn the_search_is_repeated_after_ten_minutes() {
    let mut discovery = discovery();
    run(&mut discovery, Duration::ZERO, |_| true);
    assert_eq!(discovery.poll_transmit(RAISE_INTERVAL.saturating_sub(PROBE_TIMEOUT)), None);
    assert_eq!(discovery.poll_timeout(), Some(RAISE_INTERVAL));
    let (probes, _) = run(&mut discovery, RAISE_INTERVAL, |len| len <= 1420);
    assert!(probes > 1);
    assert_eq!(discovery.mtu(), Some(1420));
}

#[test]
fn a_silent_path_keeps_what_was_found_and_is_searched_when_something_comes() {
    let mut discovery = discovery();
    let at = |secs| Duration::from_secs(secs);
    run(&mut discovery, Duration::ZERO, |_| false);
    assert_eq!((discovery.mtu(), discovery.poll_timeout()), (None, None), "nothing is known");
    assert_eq!(discovery.poll_transmit(at(1000)), None);
    discovery.handle_activity(at(1000));
    run(&mut discovery, at(1000), |len| len <= 1460);
    assert_eq!(discovery.mtu(), Some(1460));

    // The uplink is off when it is time again, and back 9 s later.
    let (probes, took) = run(&mut discovery, at(2000), |_| false);
    assert_eq!(probes, 1 + 2 * MAX_SILENT_PAIRS);
    assert_eq!(took, 3 * PROBE_TIMEOUT + FAST_PAIRS * PAIR_INTERVAL);
    discovery.handle_activity(at(2009));
    assert_eq!((discovery.mtu(), discovery.poll_transmit(at(2009))), (Some(1460), None));
    discovery.handle_activity(at(2012));
    run(&mut discovery, at(2012), |len| len <= 1440);
    assert_eq!(discovery.mtu(), Some(1440));
}

#[test]
fn a_path_that_falls_silent_during_a_search_keeps_its_mtu() {
    for answered in 1..20 {
        let mut discovery = discovery();
        run(&mut discovery, Duration::ZERO, |len| len <= 1460);
        let mut probe = 0;
        run(&mut discovery, 2 * RAISE_INTERVAL, |len| {
            probe += 1;
            probe <= answered && len <= 1460
        });
        assert!(probe > answered);
        assert_eq!(discovery.mtu(), Some(1460), "silent after {answered}");
    }
}

#[test]
fn what_the_kernel_refuses_is_not_tried_again() {
    // The second device has a smaller MTU than any path is assumed to have.
    for (device, mtu) in [(1420, 1420), (600, MIN_MTU)] {
        let mut discovery = discovery();
        let mut tried = 0;
        while let Some(probe) = discovery.poll_transmit(Duration::ZERO) {
            tried += 1;
            let length = usize::from(probe.length);
            if length + 28 > device {
                discovery.handle_refusal(length, Duration::ZERO);
            } else {
                discovery.handle_answer(probe, Duration::ZERO);
            }
        }
        assert_eq!(discovery.mtu(), Some(mtu));
        assert!(tried <= 9);
    }
}

#[test]
fn only_a_refusal_of_the_current_length_counts() {
    let mut discovery = discovery();
    let probe = discovery.poll_transmit(Duration::ZERO).unwrap();
    for other in [0, 1000, 1471, 1473] {
        discovery.handle_refusal(other, Duration::ZERO);
        assert_eq!(discovery.probed.unwrap().length, MAX_MTU);
    }
    discovery.handle_answer(probe, Duration::ZERO);
    assert_eq!(discovery.mtu(), Some(MAX_MTU));
}

#[test]
fn a_late_answer_counts() {
    // Later than the last try, and than all of them.
    for late in [PROBE_TIMEOUT, 4 * PROBE_TIMEOUT] {
        let mut discovery = discovery();
        let first = discovery.poll_transmit(Duration::ZERO).unwrap();
        let mut now = Duration::ZERO;
        while now < late {
            now += PROBE_TIMEOUT;
            while discovery.poll_transmit(now).is_some() {}
        }
        discovery.handle_answer(first, now);
        assert_eq!((discovery.poll_transmit(now), discovery.mtu()), (None, Some(1500)));
    }
}

#[test]
fn a_late_answer_to_a_rejected_length_counts() {
    let mut discovery = discovery();
    let first = discovery.poll_transmit(Duration::ZERO).unwrap();
    let short = discovery.probe(MIN_MTU);
    discovery.handle_answer(short, Duration::ZERO);
    let mut now = Duration::ZERO;
    while discovery.high > MAX_MTU {
        now = discovery.poll_timeout().unwrap();
        while let Some(probe) = discovery.poll_transmit(now) {
            if probe.length == short.length {
                discovery.handle_answer(probe, now);
            }
        }
    }
    discovery.handle_answer(first, now);
    assert_eq!((discovery.poll_transmit(now), discovery.mtu()), (None, Some(1500)));
}

#[test]
fn only_answers_to_probes_of_this_search_count() {
    let mut discovery = discovery();
    let early = discovery.poll_transmit(Duration::ZERO).unwrap();
    let other = MtuProbe { id: early.id + 1, ..early };
    discovery.handle_answer(other, Duration::ZERO);
    assert_eq!(discovery.mtu(), None);
    discovery.handle_answer(early, Duration::ZERO);
    assert_eq!(discovery.mtu(), Some(1500));
    // The path's MTU has decreased, and somebody replays the old answer.
    let (probes, _) = run(&mut discovery, RAISE_INTERVAL, |len| len <= 1420);
    assert!(probes > 1);
    discovery.handle_answer(early, RAISE_INTERVAL);
    assert_eq!(discovery.mtu(), Some(1420));
    let mut now = 2 * RAISE_INTERVAL;
    while discovery.poll_transmit(now).is_some() {
        discovery.handle_answer(early, now);
        now += PROBE_TIMEOUT;
    }
    assert_eq!(discovery.mtu(), Some(1420));
}

proptest! {
    #[test]
    fn no_answer_leads_outside(
        answers in prop::collection::vec((any::<u16>(), 0_u64..1000), 0..50),
    ) {
        let mut discovery = discovery();
        let mut now = Duration::ZERO;
        for (length, millis) in answers {
            now += Duration::from_millis(millis);
            if let Some(probe) = discovery.poll_transmit(now) {
                prop_assert!((1280 - 28..=1500 - 28).contains(&probe.length));
            }
            let id = discovery.first_id;
            discovery.handle_answer(MtuProbe { id, length }, now);
            prop_assert!(discovery.mtu().is_none_or(|mtu| (MIN_MTU..=MAX_MTU).contains(&mtu)));
        }
    }
}

/// Sends long packets over a path with a round trip from `began` on, until `until`. `carries` says
/// which probe, and whether its answer, arrives. Returns when the MTU first was another one, and
/// all probes that were sent.
fn send_long(
    discovery: &mut PathMtuDiscovery,
    (began, until): (Duration, Duration),
    round_trip: Duration,
    mut carries: impl FnMut(usize) -> bool,
) -> (Option<Duration>, u32) {
    let (mut now, mut probes, mut changed) = (began, 0, None);
    let mut answers = std::collections::VecDeque::new();
    let mtu = discovery.mtu();
    while now < until {
        discovery.handle_long_sent(10);
        while let Some(probe) = discovery.poll_transmit(now) {
            probes += 1;
            if carries(usize::from(probe.length) + 28) {
                answers.push_back((now + round_trip, probe));
            }
        }
        while let Some((_, probe)) = answers.pop_front_if(|(at, _)| *at <= now) {
            discovery.handle_answer(probe, now);
        }
        if discovery.mtu() != mtu {
            changed = changed.or(Some(now.saturating_sub(began)));
        }
        now += Duration::from_millis(10);
    }
    (changed, probes)
}

#[test]
fn a_black_hole_is_found_while_long_packets_are_sent() {
    for round_trip in [1, 50, 200, 600].map(Duration::from_millis) {
        for (mtu, phase) in [(1400, 0), (1372, 130), (1280, 260), (1499, 390)] {
            let mut discovery = discovery();
            run(&mut discovery, Duration::ZERO, |_| true);
            let secs = Duration::from_secs;
            let begin = secs(10) + Duration::from_millis(phase);
            send_long(&mut discovery, (secs(5), begin), round_trip, |_| true);
            assert_eq!((discovery.mtu(), discovery.black_hole()), (Some(1500), None));

            let (after, _) =
                send_long(&mut discovery, (begin, begin + secs(30)), round_trip, |len| len <= mtu);
            let after = after.expect("it is found").saturating_sub(round_trip);
            assert!(after <= Duration::from_millis(1400), "after {after:?}");
            assert_eq!(discovery.mtu(), Some(u16::try_from(mtu).unwrap()));
            let found = discovery.black_hole().unwrap();
            assert_eq!(found.former_mtu, 1500);
            assert!(found.since <= begin && found.since + 2 * secs(1) >= begin, "{found:?}");

            // The path carries the former length again.
            let (_, probes) =
                send_long(&mut discovery, (begin + secs(30), begin + secs(70)), round_trip, |_| {
                    true
                });
            assert_eq!((discovery.mtu(), discovery.black_hole()), (Some(1500), None));
            assert!(probes < 200, "{probes}");
        }
    }
}

#[test]
fn the_length_that_every_path_carries_is_used_while_a_black_hole_is_searched() {
    let mut discovery = discovery();
    run(&mut discovery, Duration::ZERO, |_| true);
    let mut mtus = vec![1500];
    let times = (Duration::from_secs(5), Duration::from_secs(15));
    let (mut now, until) = times;
    while now < until {
        discovery.handle_long_sent(10);
        while let Some(probe) = discovery.poll_transmit(now) {
            if probe.length <= 1372 - 28 {
                discovery.handle_answer(probe, now);
            }
        }
        let mtu = discovery.mtu().unwrap();
        assert_eq!(discovery.is_searching_black_hole(), mtu == MIN_MTU);
        if mtus.last() != Some(&mtu) {
            mtus.push(mtu);
        }
        now += Duration::from_millis(10);
    }
    assert_eq!(mtus, [1500, MIN_MTU, 1372]);
}

#[test]
fn a_path_that_loses_the_shortest_probes_too_is_suspected() {
    let mut discovery = discovery();
    let times = |from: u64, to: u64| (Duration::from_secs(from), Duration::from_secs(to));
    run(&mut discovery, Duration::ZERO, |_| true);
    send_long(&mut discovery, times(1, 5), Duration::ZERO, |_| true);
    assert_eq!(discovery.suspected_since(), None);
    let (changed, _) = send_long(&mut discovery, times(5, 20), Duration::ZERO, |len| len < 1000);
    assert_eq!((changed, discovery.black_hole()), (None, None));
    let since = discovery.suspected_since().unwrap();
    assert!((Duration::from_secs(4)..=Duration::from_secs(5)).contains(&since), "{since:?}");
    send_long(&mut discovery, times(20, 25), Duration::ZERO, |_| true);
    assert_eq!((discovery.suspected_since(), discovery.mtu()), (None, Some(1500)));
}

#[test]
fn random_loss_is_no_black_hole() {
    let round_trip = Duration::from_millis(30);
    for loss in [0.05, 0.3, 0.6, 0.8, 0.95] {
        let mut found = 0;
        for seed in 0..40 {
            let mut discovery = discovery();
            run(&mut discovery, Duration::ZERO, |_| true);
            let mut random = Xorshift(seed + 1);
            let times = (Duration::from_secs(5), Duration::from_secs(65));
            send_long(&mut discovery, times, round_trip, |_| random.next() >= loss);
            found += u32::from(discovery.black_hole().is_some());
        }
        // 40 minutes at this rate of loss.
        assert!(found <= 4, "{found} with a loss of {loss}");
    }
}

#[test]
fn a_black_hole_is_found_in_random_loss() {
    for loss in [0.1, 0.3, 0.5] {
        for seed in 0..20 {
            let mut discovery = discovery();
            run(&mut discovery, Duration::ZERO, |_| true);
            let mut random = Xorshift(seed + 1);
            let times = (Duration::from_secs(5), Duration::from_secs(25));
            let (after, _) = send_long(&mut discovery, times, Duration::from_millis(30), |len| {
                random.next() >= loss && len <= 1372
            });
            assert!(after.is_some_and(|after| after < Duration::from_secs(6)), "{after:?}");
        }
    }
}

#[test]
fn an_idle_path_is_not_confirmed() {
    let mut discovery = discovery();
    run(&mut discovery, Duration::ZERO, |_| true);
    assert_eq!(discovery.poll_timeout(), Some(RAISE_INTERVAL));
    discovery.handle_long_sent(1);
    assert_eq!(discovery.poll_timeout(), Some(SLOW_CONFIRMATION_INTERVAL));
    let (probes, took) = run(&mut discovery, SLOW_CONFIRMATION_INTERVAL, |_| true);
    assert_eq!((probes, took), (1, Duration::ZERO));
    assert_eq!(discovery.poll_timeout(), Some(RAISE_INTERVAL));
}

#[test]
fn a_device_with_a_smaller_mtu_is_noticed_at_the_next_probe() {
    let mut discovery = discovery();
    run(&mut discovery, Duration::ZERO, |_| true);
    discovery.handle_long_sent(30);
    let now = CONFIRMATION_INTERVAL;
    let mut tried = 0;
    while let Some(probe) = discovery.poll_transmit(now) {
        tried += 1;
        if probe.length > 1400 - 28 {
            discovery.handle_refusal(probe.length.into(), now);
        } else {
            discovery.handle_answer(probe, now);
        }
    }
    assert_eq!((discovery.mtu(), discovery.black_hole().is_some()), (Some(1400), true));
    assert!(tried <= 10, "{tried}");
}

#[test]
fn duplicates_and_overtaken_answers_do_not_count() {
    let mut discovery = discovery();
    let mut now = Duration::ZERO;
    let mut shorts = Vec::new();
    for _ in 0..6 {
        while let Some(probe) = discovery.poll_transmit(now) {
            if probe.length == MIN_MTU - 28 {
                shorts.push(probe);
            }
        }
        now = discovery.poll_timeout().unwrap();
    }
    for probe in [shorts[3], shorts[3], shorts[2], shorts[3], shorts[0], shorts[3], shorts[3]] {
        discovery.handle_answer(probe, now);
    }
    assert_eq!(discovery.probed.unwrap().short_answers, 1);
}

/// Random numbers from 0 to 1.
struct Xorshift(u64);

impl Xorshift {
    #[allow(clippy::cast_precision_loss, reason = "random anyway")]
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
