//! Two ends that measure channels: over simulated bottlenecks with queues, delays and random loss.

mod alternating_rate;
mod faults;
mod full_load;
mod plan_changes;
mod scenario;
mod tunnel;

use std::num::NonZero;
use std::thread;
use std::time::Duration;

use model::ChannelSubset;
use proptest::prelude::*;
use sunder_remicss::control::estimate::{INITIAL_RATE_BPS, RateSource};
use sunder_remicss::control::incoming::ArrivalCounts;
use sunder_remicss::control::monitor::ChannelMonitor;
use sunder_remicss::control::outgoing::SentCounts;
use sunder_remicss::wire::control::TunnelChannelState;
use sunder_remicss::wire::control::{ChannelReport, ControlMessage, ControlShareArrival};

use scenario::{MS, Path, Scenario};

/// A packet every 60 ms.
const TRICKLE_BPS: u64 = 200_000;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Estimates are random as losses are: these are bounds for 95 % of the instants of a minute, over
/// all seeds of a channel.
#[test]
fn a_rate_is_learnt_in_seconds_and_kept() {
    learn_all(&[(2, 6), (20, 3)], &[5, 30, 200], &[0, 10, 50]);
    learn_all(&[(100, 1)], &[30], &[0, 10, 50]);
    learn_all(&[(400, 1)], &[30], &[10]);
}

#[test]
#[ignore = "takes minutes: make soak"]
fn a_rate_is_learnt_in_seconds_and_kept_with_many_seeds() {
    learn_all(&[(2, 20), (20, 20), (100, 2), (400, 1)], &[5, 30, 200], &[0, 10, 50]);
}

/// Learns the rates, in Mbit/s, of channels with all of these queues, in ms, and losses per mille.
/// Each rate has a number of seeds: an interval at a higher rate has more packets, so that its
/// losses vary less.
fn learn_all(rates: &[(u64, u64)], queues: &[u32], losses: &[u64]) {
    let mut channels = Vec::new();
    for &(mbps, seeds) in rates {
        for &queue_ms in queues {
            for &lost in losses {
                for delay_ms in [2, 40] {
                    channels.push((mbps, Path::new(mbps, queue_ms, lost, delay_ms), seeds));
                }
            }
        }
    }
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for first in 0..threads {
            let own = channels.iter().skip(first).step_by(threads);
            scope.spawn(|| own.for_each(|(mbps, path, seeds)| learn(*mbps, *path, *seeds)));
        }
    });
}

#[expect(clippy::cast_precision_loss, reason = "numbers are small")]
fn learn(mbps: u64, path: Path, seeds: u64) {
    let name = format!("{mbps} Mbit/s, queue {:?}, {} ‰, {:?}", path.queue, path.lost, path.delay);
    // An interval on a slow channel has few packets, so its losses vary.
    let (good, loss) = if mbps < 10 { (0.75..=1.1, 0.1) } else { (0.88..=1.05, 0.04) };
    // A queue that probes fill is empty for most of the time, except for two or three packets.
    let queued = f64::max(5.0, 3.0 * 12.0 / mbps as f64);
    let (mut rates, mut delays, mut losses) = (Vec::new(), Vec::new(), Vec::new());
    for seed in 1..=seeds {
        let mut scenario = Scenario::with_seed(&[path], &[None], seed);
        scenario.run(seconds(8));
        for second in 0..60 {
            scenario.run(seconds(1));
            let estimate = scenario.estimates()[0];
            rates.push(scenario.part(0));
            delays.push(estimate.delay_ms - path.delay.as_secs_f64() * 1e3);
            // Later, losses before the rate was known no longer count.
            if second >= 20 {
                losses.push(estimate.loss - path.lost as f64 / 1000.0);
            }
        }
    }
    // The cruise leaves 2 % unused.
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    assert!((0.95..=1.0).contains(&mean), "{name}: {mean} on average");
    assert_mostly(&rates, |part| good.contains(&part), &format!("{name}: rates"));
    assert_mostly(&delays, |more| more < queued, &format!("{name}: delays"));
    assert_mostly(&losses, |more| more < loss, &format!("{name}: losses"));
}

/// Checks that 95 % of the values are good.
fn assert_mostly(values: &[f64], is_good: impl Fn(f64) -> bool, what: &str) {
    let bad: Vec<f64> = values.iter().copied().filter(|value| !is_good(*value)).collect();
    assert!(20 * bad.len() <= values.len(), "{what}: {} of {}: {bad:?}", bad.len(), values.len());
}

#[test]
fn a_rate_follows_the_bottleneck() {
    let mut scenario = Scenario::new(&[Path::new(100, 30, 10, 10)], &[None]);
    scenario.run(seconds(10));
    for (mbps, time) in [(20, 3), (200, 10), (50, 3), (60, 8)] {
        scenario.set(0, |path| path.rate_bps = mbps * 1_000_000);
        scenario.run(seconds(time));
        let part = scenario.known_part(0);
        assert!((0.9..=1.05).contains(&part), "{mbps} Mbit/s: {part}");
    }
}

/// Many providers enforce a rate like this: a burst passes at any speed, and the excess is lost. A
/// probe that such a burst lets through is repeated, a quarter above the rate, until it no longer
/// passes.
#[test]
fn a_policed_rate_is_learnt() {
    for (mbps, burst_ms) in [(20, 24), (20, 5), (100, 24), (400, 10)] {
        let path = Path { is_policed: true, ..Path::new(mbps, burst_ms, 0, 10) };
        let mut scenario = Scenario::new(&[path], &[None]);
        scenario.run(seconds(8));
        for _ in 0..20 {
            scenario.run(seconds(1));
            let part = scenario.part(0);
            assert!((0.9..=1.3).contains(&part), "{mbps} Mbit/s, {burst_ms} ms: {part}");
        }
        let loss = scenario.estimates()[0].loss;
        assert!(loss < 0.1, "{mbps} Mbit/s, {burst_ms} ms: {loss}");
    }
}

/// There are no probes while the load is below the known rate of the channel.
#[test]
fn a_rate_that_has_fallen_is_noticed_without_full_load() {
    for demand_mbps in [50, 60, 70] {
        let mut scenario = Scenario::new(&[Path::new(80, 30, 0, 10)], &[None]);
        scenario.run(seconds(8));
        scenario.demand_bps = demand_mbps * 1_000_000;
        scenario.run(seconds(5));
        assert!(scenario.part(0) > 0.9);
        scenario.set(0, |path| path.rate_bps = 20_000_000);
        scenario.run(seconds(5));
        let part = scenario.part(0);
        assert!((0.85..=1.1).contains(&part), "{demand_mbps} Mbit/s wanted: {part}");
    }
}

#[test]
fn random_loss_that_comes_and_goes_does_not_lower_a_rate() {
    let mut scenario = Scenario::new(&[Path::new(50, 30, 0, 10)], &[None]);
    scenario.run(seconds(8));
    for lost in [50, 0, 50, 10, 100] {
        scenario.set(0, |path| path.lost = lost);
        for _ in 0..8 {
            scenario.run(seconds(1));
            let part = scenario.part(0);
            assert!((0.85..=1.05).contains(&part), "{lost} ‰: {part}");
        }
    }
}

#[test]
fn unequal_channels_each_get_their_rate() {
    let paths = [Path::new(300, 30, 0, 5), Path::new(30, 30, 10, 40), Path::new(3, 100, 0, 20)];
    let mut scenario = Scenario::new(&paths, &[None; 3]);
    scenario.run(seconds(12));
    for channel in 0..3 {
        let part = scenario.part(channel);
        assert!((0.9..=1.05).contains(&part), "channel {channel}: {part}");
    }
}

#[test]
fn without_traffic_nothing_is_learnt_and_nothing_forgotten() {
    let mut scenario = Scenario::new(&[Path::new(100, 30, 0, 10)], &[None]);
    scenario.demand_bps = 1_000_000;
    scenario.run(seconds(10));
    let guess = scenario.estimates()[0];
    assert_eq!((guess.known_bps, guess.source), (INITIAL_RATE_BPS, RateSource::Guess));
    scenario.demand_bps = u64::MAX;
    scenario.run(seconds(8));
    scenario.demand_bps = 1_000_000;
    scenario.run(seconds(1));
    let learnt = scenario.estimates()[0].rate_bps;
    assert!((0.9..=1.05).contains(&scenario.part(0)));
    scenario.run(seconds(60));
    assert_eq!(scenario.estimates()[0].rate_bps, learnt);
}

#[test]
fn a_configured_rate_stays_and_loss_and_delay_are_measured() {
    let paths = [Path::new(100, 30, 20, 5), Path::new(50, 30, 0, 20), Path::new(50, 30, 100, 60)];
    for floor in 1..=3 {
        let mut scenario =
            Scenario::new(&paths, &[Some(40_000_000), Some(20_000_000), Some(10_000_000)])
                .with_floor(floor);
        scenario.run(seconds(12));
        let estimates = scenario.estimates();
        let rates: Vec<u64> = estimates.iter().map(|estimate| estimate.rate_bps).collect();
        assert_eq!(rates, [40_000_000, 20_000_000, 10_000_000]);
        // Faster channels than the floor-th count as equally fast.
        let delays =
            [5.0, 20.0, 60.0_f64].map(|delay| delay.max([5.0, 20.0, 60.0][usize::from(floor) - 1]));
        for ((estimate, delay), lost) in estimates.iter().zip(delays).zip([0.02, 0.0, 0.1]) {
            assert!((estimate.delay_ms - delay).abs() < 2.0, "{estimate:?}, not {delay} ms");
            assert!((estimate.loss - lost).abs() < 0.01, "{estimate:?}, not {lost}");
        }
        let window = scenario.ends[1].monitor.reorder_window(scenario.now());
        let spread = (60.0 - delays[0]) * 1.25;
        assert!((window.as_secs_f64() * 1e3 - spread).abs() < 4.0, "{window:?}, not {spread} ms");
        let lateness = scenario.ends[1].monitor.incoming_lateness(scenario.now());
        for (late, delay) in lateness.channels.iter().zip(delays) {
            let late_ms = late.unwrap().as_secs_f64() * 1e3;
            assert!((late_ms - (delay - delays[0])).abs() < 2.0, "{late_ms} ms, not of {delay}");
        }
        let tolerated_ms = lateness.tolerated.as_secs_f64() * 1e3;
        let expected_ms = f64::max(5.0, 1.5 * delays[0]);
        assert!((tolerated_ms - expected_ms).abs() < 3.0, "{tolerated_ms}, not {expected_ms} ms");
    }
}

#[test]
fn a_channel_that_is_down_is_not_late() {
    let paths = [Path::new(100, 30, 0, 10), Path::new(100, 30, 0, 40)];
    let mut scenario = Scenario::new(&paths, &[Some(20_000_000); 2]);
    let late = |scenario: &Scenario| {
        scenario.ends[1].monitor.incoming_lateness(scenario.now()).channels[1]
    };
    assert_eq!(late(&scenario), None, "nothing is measured");
    scenario.run(seconds(2));
    assert!(late(&scenario).is_some_and(|late| (29 * MS..32 * MS).contains(&late)));
    scenario.set(1, |path| path.is_cut = true);
    scenario.run(seconds(2));
    assert_eq!(late(&scenario), None);
    scenario.set(1, |path| path.is_cut = false);
    scenario.run(seconds(1));
    assert!(late(&scenario).is_some_and(|late| (29 * MS..32 * MS).contains(&late)));
}

#[test]
fn a_channel_that_dies_is_down_within_a_second_and_up_again_at_once() {
    for busy in [true, false] {
        let paths = [Path::new(100, 30, 10, 10), Path::new(100, 30, 10, 40)];
        let mut scenario = Scenario::new(&paths, &[Some(20_000_000); 2]);
        scenario.demand_bps = if busy { u64::MAX } else { TRICKLE_BPS };
        scenario.run(seconds(7));
        let before = scenario.estimates()[1];
        assert_eq!(before.state, TunnelChannelState::Up);
        for _ in 0..3 {
            scenario.set(1, |path| path.is_cut = true);
            scenario.run(MS * 850);
            assert_eq!(scenario.estimates()[1].state, TunnelChannelState::Down);
            assert_eq!(scenario.estimates()[0].state, TunnelChannelState::Up);
            scenario.run(seconds(2));
            scenario.set(1, |path| path.is_cut = false);
            scenario.run(MS * 350);
            assert_eq!(scenario.estimates()[1].state, TunnelChannelState::Up);
            scenario.run(seconds(2));
        }
        let after = scenario.estimates()[1];
        assert!((after.loss - before.loss).abs() < 0.03, "{before:?}, then {after:?}");
    }
}

#[test]
fn random_loss_brings_no_channel_down() {
    let paths = [Path::new(100, 30, 50, 10), Path::new(100, 30, 50, 10)];
    let mut scenario = Scenario::new(&paths, &[Some(20_000_000); 2]);
    scenario.demand_bps = TRICKLE_BPS;
    for _ in 0..600 {
        scenario.run(MS * 100);
        assert!(
            scenario.estimates().iter().all(|estimate| estimate.state == TunnelChannelState::Up)
        );
    }
}

#[test]
fn a_peer_that_is_silent_for_three_seconds_is_gone() {
    let mut scenario = Scenario::new(&[Path::new(100, 30, 0, 10)], &[None]);
    scenario.run(seconds(10));
    assert!(!scenario.ends[0].monitor.is_peer_gone(scenario.now()));
    scenario.set(0, |path| path.is_cut = true);
    scenario.run(MS * 2900);
    assert!(!scenario.ends[0].monitor.is_peer_gone(scenario.now()));
    scenario.run(MS * 300);
    assert!(scenario.ends[0].monitor.is_peer_gone(scenario.now()));
}

/// An end without packets sends few messages, keeps its estimates, and reaches full speed at once
/// when there are packets again.
#[test]
fn idle_ends_send_little() {
    let paths = [Path::new(100, 30, 10, 10), Path::new(100, 30, 10, 40)];
    let mut scenario = Scenario::new(&paths, &[Some(20_000_000); 2]);
    scenario.demand_bps = TRICKLE_BPS;
    scenario.run(seconds(12));
    let before = scenario.estimates();

    scenario.demand_bps = 0;
    scenario.run(seconds(11));
    let messages = |scenario: &Scenario| [0, 1].map(|end: usize| scenario.ends[end].symbols);
    let began = messages(&scenario);
    scenario.run(seconds(60));
    let sent = [0, 1].map(|end| messages(&scenario)[end] - began[end]);
    assert!(sent.iter().all(|sent| (19..=21).contains(sent)), "{sent:?}");
    for (before, after) in before.iter().zip(scenario.estimates()) {
        assert_eq!(after.state, TunnelChannelState::Up);
        assert!((after.delay_ms - before.delay_ms).abs() < 1.0, "{before:?}, then {after:?}");
    }

    // Both ends notice the packets, whichever end sends them.
    scenario.demand_bps = TRICKLE_BPS;
    let began = messages(&scenario);
    scenario.run(seconds(1));
    let sent = [0, 1].map(|end| messages(&scenario)[end] - began[end]);
    assert!(sent.iter().all(|sent| *sent >= 7), "{sent:?}");
    scenario.set(1, |path| path.is_cut = true);
    scenario.run(MS * 850);
    assert_eq!(scenario.estimates()[1].state, TunnelChannelState::Down);
}

/// One end has sent a packet that was lost, or has received invalid datagrams: the other stays at
/// rest, and is not considered gone.
#[test]
fn ends_that_become_idle_at_different_times_stay_associated() {
    let mut scenario = Scenario::new(&[Path::new(100, 30, 0, 10)], &[Some(20_000_000)]);
    scenario.demand_bps = 0;
    scenario.run(seconds(20));
    let mut began = scenario.ends[1].symbols;
    for step in 0..20 {
        if step % 2 == 0 {
            scenario.ends[0].packets += 1;
        } else {
            scenario.ends[1].received[0].datagrams += 1;
        }
        for _ in 0..90 {
            scenario.run(MS * 100);
            let gone =
                [0, 1].map(|end: usize| scenario.ends[end].monitor.is_peer_gone(scenario.now()));
            assert_eq!(gone, [false, false], "{:?}", scenario.now());
        }
        if step == 0 {
            assert!(scenario.ends[1].symbols > began + 50, "it is woken by messages");
            began = scenario.ends[1].symbols;
        }
    }
    scenario.run(seconds(20));
    let before = scenario.ends[1].symbols;
    scenario.ends[1].received[0].datagrams += 1;
    scenario.run(seconds(9));
    assert!(scenario.ends[1].symbols <= before + 4, "datagrams that are no packets wake nobody");
}

/// At rest an end takes longer to notice that the peer is gone, but not when there are packets
/// again.
#[test]
fn a_peer_that_is_gone_is_detected_when_idle_and_after() {
    for wakes in [false, true] {
        let mut scenario = Scenario::new(&[Path::new(100, 30, 0, 10)], &[Some(20_000_000)]);
        scenario.demand_bps = 0;
        scenario.run(seconds(20));
        scenario.set(0, |path| path.is_cut = true);
        scenario.run(seconds(8));
        assert!(!scenario.ends[0].monitor.is_peer_gone(scenario.now()));
        if wakes {
            scenario.demand_bps = TRICKLE_BPS;
            scenario.run(MS * 2500);
            assert!(!scenario.ends[0].monitor.is_peer_gone(scenario.now()));
            scenario.run(MS * 800);
        } else {
            scenario.run(MS * 4100);
        }
        assert!(scenario.ends[0].monitor.is_peer_gone(scenario.now()));
    }
}

#[test]
fn a_quarantine_is_reported_at_once() {
    let mut monitor = ChannelMonitor::new(&[None; 2], Duration::ZERO);
    let (sent, received) = ([SentCounts::default(); 2], [ArrivalCounts::default(); 2]);
    let mut poll = |now, quarantined| monitor.poll_message(now, &sent, &received, quarantined, 0);
    assert!(poll(Duration::ZERO, ChannelSubset::EMPTY).is_some());
    assert!(poll(MS * 20, ChannelSubset::EMPTY).is_none());
    let message = poll(MS * 20, ChannelSubset::EMPTY.with(1)).unwrap();
    let states =
        ControlMessage::parse(&message).unwrap().reports.into_iter().map(|report| report.state);
    assert_eq!(
        states.collect::<Vec<_>>(),
        [TunnelChannelState::Up, TunnelChannelState::Quarantine]
    );
    assert!(poll(MS * 25, ChannelSubset::EMPTY).is_none(), "not faster than every 10 ms");
    assert!(poll(MS * 30, ChannelSubset::EMPTY).is_some());
}

/// Control messages take about a thousandth of a channel from 5 Mbit/s on.
#[expect(clippy::cast_precision_loss, reason = "numbers are small")]
#[test]
fn control_takes_little() {
    for mbps in [5, 20, 100] {
        let paths = [Path::new(mbps, 30, 0, 10); 5];
        let mut scenario = Scenario::new(&paths, &[Some(mbps * 1_000_000); 5]);
        scenario.ends[1].monitor =
            ChannelMonitor::new(&[Some(mbps * 1_000_000); 5], Duration::ZERO);
        scenario.run(seconds(10));
        let part = scenario.ends[0].control_bytes as f64 * 8.0 / 10.0 / (mbps as f64 * 1e6);
        assert!(part < 0.0011, "{mbps} Mbit/s: {part}");
    }
}

/// A channel that delivers shares of messages before they are sent makes no other channel seem
/// slow.
#[test]
fn false_times_affect_only_their_own_channel() {
    let paths = [Path::new(100, 30, 0, 10), Path::new(100, 30, 0, 30), Path::new(100, 30, 0, 5)];
    let rates = [Some(20_000_000); 3];
    let (mut honest, mut lied) = (Scenario::new(&paths, &rates), Scenario::new(&paths, &rates));
    honest.run(seconds(5));
    for _ in 0..500 {
        for ahead in 1..20 {
            let symbol = lied.ends[0].symbols + ahead;
            lied.ends[1].monitor.handle_share(symbol, 2, u64::MAX, lied.now());
        }
        lied.run(MS * 10);
    }
    let (honest_estimates, lied_estimates) = (honest.estimates(), lied.estimates());
    for channel in 0..2 {
        let (one, other) = (honest_estimates[channel], lied_estimates[channel]);
        assert!((one.delay_ms - other.delay_ms).abs() < 1.0, "{one:?}, {other:?}");
        assert_eq!((one.loss, one.state), (other.loss, other.state));
    }
    let window = |scenario: &Scenario| scenario.ends[1].monitor.reorder_window(scenario.now());
    assert!(window(&lied) <= window(&honest) + MS);
    let late = |scenario: &Scenario| {
        scenario.ends[1].monitor.incoming_lateness(scenario.now()).channels[1].unwrap()
    };
    assert!(late(&lied) <= late(&honest) + MS);
}

fn reports() -> impl Strategy<Value = Vec<ChannelReport>> {
    let state = prop_oneof![
        Just(TunnelChannelState::Up),
        Just(TunnelChannelState::Down),
        Just(TunnelChannelState::Quarantine)
    ];
    let arrival = (1_u32..200, any::<u32>(), any::<u32>())
        .prop_map(|(number, age_us, received)| ControlShareArrival { number, age_us, received });
    let report = (state, prop::collection::vec(arrival, 0..=3))
        .prop_map(|(state, arrivals)| ChannelReport { state, arrivals });
    prop::collection::vec(report, 2)
}

proptest! {
    #[test]
    fn estimates_stay_in_range_for_any_report(
        steps in prop::collection::vec(
            (
                0_u64..5_000_000,
                (any::<u32>(), any::<u64>(), reports()),
                (any::<u64>(), any::<u64>()),
                0_usize..3,
            ),
            1..40,
        ),
    ) {
        let mut monitor = ChannelMonitor::new(&[None, Some(1_000_000)], Duration::ZERO);
        let mut now = Duration::ZERO;
        for (micros, (number, sent_us, reports), (count, symbol), channel) in steps {
            now += Duration::from_micros(micros);
            let totals = SentCounts { datagrams: count, bytes: count };
            let arrived = [count, symbol].map(|count| ArrivalCounts { datagrams: count, right: count });
            monitor.poll_message(now, &[totals; 2], &arrived, ChannelSubset::EMPTY, count);
            monitor.handle_share(symbol % 10, channel, count, now);
            let is_active = number % 2 == 0;
            let (number, sent_us) = (number.max(1), sent_us >> 2);
            let message = ControlMessage { number, sent_us, is_active, wants_keys: false, reports };
            monitor.handle_message(symbol % 10, &message.encode(), now).unwrap();
            for estimate in monitor.estimates(now) {
                prop_assert!((0.0..=1.0).contains(&estimate.loss));
                prop_assert!(estimate.delay_ms.is_finite() && estimate.delay_ms >= 0.0);
                prop_assert!(estimate.channel(0.5).is_ok());
            }
            prop_assert!(monitor.reorder_window(now) <= MS * 200);
            monitor.incoming_lateness(now);
            prop_assert!(monitor.limit(0).unwrap().rate_bps > 0);
            prop_assert!(monitor.poll_timeout() <= now + MS * 200);
        }
    }
}
