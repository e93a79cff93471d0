//! Probes of simulated paths.

#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small numbers")]

use std::net::SocketAddr;
use std::time::Duration;

use sim::{
    LinkBottleneck, SeededRng, SimulatedLinkConditions, SimulatedLinkId, SimulatedNetwork,
    SimulationEvent, run_seeds,
};

use super::packet::MAGIC;
use super::*;
use crate::model::TcpCongestionControl;

const MS: Duration = Duration::from_millis(1);
/// The length of the IPv4 and UDP headers. Simulated links count payloads only, so rates are
/// compared without headers.
const HEADER: usize = 28;

fn client() -> SocketAddr {
    "192.0.2.1:1000".parse().unwrap()
}

fn host() -> HostCapabilities {
    HostCapabilities {
        tcp_send_buffer: 1,
        tcp_recv_buffer: 2,
        udp_recv_buffer: 3,
        reading_rate: 4,
        congestion: TcpCongestionControl::Bbr,
        has_mptcp: true,
    }
}

fn conditions(delay: Duration, rate_mbit: u64) -> SimulatedLinkConditions {
    let max_queue = Duration::from_millis(50);
    let bottleneck =
        LinkBottleneck { rate_bps: rate_mbit * 1_000_000, max_queue, is_policed: false };
    SimulatedLinkConditions {
        bottleneck: Some(bottleneck),
        ..SimulatedLinkConditions::delayed(delay, delay)
    }
}

/// The result of a run: the measurement, its duration, and the bytes in each direction.
#[derive(Debug)]
struct Outcome {
    measured: Option<ProbeMeasurement>,
    took: Duration,
    sent: usize,
    answered: usize,
}

/// Runs a probe; `meddle` may inject datagrams at each event.
fn run(
    seed: u64,
    up: SimulatedLinkConditions,
    down: SimulatedLinkConditions,
    mut meddle: impl FnMut(&mut SimulatedNetwork<()>, SimulatedLinkId, SimulatedLinkId, &[u8]),
) -> Outcome {
    let mut net = SimulatedNetwork::<()>::new(seed);
    let (to_server, to_client) = (net.add_link(MS, MS), net.add_link(MS, MS));
    *net.conditions_mut(to_server) = up;
    *net.conditions_mut(to_client) = down;
    let mut prober = PathProbeClient::new(seed ^ 0x1234, HEADER, net.now());
    let mut reflector = ProbeReflector::new(host(), [7; 32]);
    // The server's clock has another origin.
    let offset = Duration::from_secs(1000);
    let (mut sent, mut answered) = (0, 0);
    let mut datagram = Vec::new();
    while !prober.is_over() {
        if prober.is_welcome() {
            prober.measure_rates(net.now());
        }
        loop {
            datagram.clear();
            if !prober.poll_transmit(net.now(), &mut datagram) {
                break;
            }
            sent += datagram.len();
            net.send_datagram(to_server, datagram.clone());
        }
        let deadline = prober.poll_timeout().unwrap_or(Duration::ZERO);
        match net.next_event_until(deadline) {
            Some(SimulationEvent::Arrived { link, bytes }) => {
                meddle(&mut net, to_server, to_client, &bytes);
                let now = net.now();
                if link == to_client {
                    prober.handle_datagram(now, now, &bytes);
                } else if let Some(answer) =
                    reflector.handle_datagram(now + offset, now + offset, client(), &bytes)
                {
                    answered += answer.len();
                    net.send_datagram(to_client, answer);
                }
            }
            _ => prober.handle_timeout(net.now()),
        }
    }
    Outcome { measured: prober.measured(), took: net.now(), sent, answered }
}

fn undisturbed(seed: u64, up: SimulatedLinkConditions, down: SimulatedLinkConditions) -> Outcome {
    run(seed, up, down, |_, _, _, _| {})
}

#[test]
fn round_trip_and_rates_are_those_of_the_path() {
    for delay in [1, 10, 50, 150] {
        for (up, down) in [(10, 10), (100, 100), (1000, 1000), (20, 400), (400, 20)] {
            let delay = delay * MS;
            let outcome = undisturbed(1, conditions(delay, up), conditions(delay, down));
            let measured = outcome.measured.unwrap();
            let is_near = |rate: Option<MeasuredRate>, mbit: u64| {
                let rate = rate.unwrap_or_else(|| panic!("{delay:?} {up} {down} {outcome:?}")).rate
                    * 8e-6
                    * 1232.0
                    / 1260.0;
                let near = mbit as f64 * 0.75..mbit as f64 * 1.25;
                assert!(near.contains(&rate), "{rate} of {mbit} Mbit/s, {delay:?}, {up}, {down}");
            };
            is_near(measured.up, up);
            is_near(measured.down, down);
            assert!(measured.round_trip >= 2 * delay);
            assert!(measured.round_trip <= 2 * delay + 3 * MS, "{measured:?}");
            assert_eq!(measured.lost, 0);
            assert!(measured.sent >= 32);
            assert_eq!(measured.host, host());
            let budget = 4 * measured.round_trip + Duration::from_millis(20);
            assert!(outcome.took <= budget, "{:?} of {budget:?}", outcome.took);
        }
    }
}

#[test]
fn a_slow_path_is_measured_in_bounded_time() {
    let mut slow = conditions(50 * MS, 1);
    slow.bottleneck.as_mut().unwrap().max_queue = Duration::from_secs(2);
    let outcome = undisturbed(1, slow, slow);
    let measured = outcome.measured.unwrap();
    assert!(outcome.took <= 4 * measured.round_trip + 20 * MS, "{:?}", outcome.took);
    assert_eq!(measured.lost, 0, "what is still under way is not lost");
    assert!((0.5e6..2e6).contains(&(measured.down.unwrap().rate * 8.0)));
}

#[test]
fn losses_are_counted_on_any_path() {
    let outcomes = run_seeds(300, |seed| {
        let mut rng = SeededRng::new(seed);
        let delay = rng.below(100) as u32 * MS;
        let rate = 1 + rng.below(1000);
        let mut any = conditions(delay, rate);
        any.max_delay += rng.below(20) as u32 * MS;
        any.loss_permille = rng.below(60);
        any.duplication_permille = rng.below(50);
        let outcome = undisturbed(seed, any, any);
        assert!(outcome.took <= Duration::from_secs(4), "{seed} {outcome:?}");
        let measured = outcome.measured.expect("one hello of five is answered");
        (any.loss_permille, measured.lost, measured.sent)
    });
    let [expected, lost, sent] = outcomes.iter().fold([0.0; 3], |[expected, all, total], it| {
        let (permille, lost, sent) = *it;
        let twice = 1.0 - (1.0 - permille as f64 * 1e-3).powi(2);
        [expected + twice * f64::from(sent), all + f64::from(lost), total + f64::from(sent)]
    });
    assert!((0.7..1.3).contains(&(lost / expected)), "{lost} of {sent}, {expected} expected");
}

#[test]
fn without_an_answer_udp_does_not_pass() {
    let dead = SimulatedLinkConditions { loss_permille: 1000, ..conditions(10 * MS, 100) };
    for (up, down) in [(dead, conditions(10 * MS, 100)), (conditions(10 * MS, 100), dead)] {
        let outcome = undisturbed(1, up, down);
        assert_eq!(outcome.measured, None);
        assert_eq!(outcome.took, Duration::from_secs(3));
        assert!(outcome.sent <= 5 * 100);
    }
}

#[test]
fn who_has_not_proven_an_address_gets_no_more_than_it_sent() {
    let mut reflector = ProbeReflector::new(host(), [7; 32]);
    let mut rng = SeededRng::new(1);
    let (mut sent, mut answered) = (0, 0);
    for i in 0..200_000_u64 {
        let mut datagram = MAGIC.to_vec();
        datagram.push(rng.below(8) as u8);
        let length = rng.index(1500);
        datagram.extend((0..length).map(|_| rng.below(256) as u8).take(60));
        let known = [packet::HELLO_LEN, packet::MIN_TRAIN_LEN, 37, 29];
        datagram.resize(if rng.below(4) == 0 { length } else { known[rng.index(4)] }, 0);
        let now = Duration::from_micros(i * 100);
        let answer = reflector.handle_datagram(now, now, client(), &datagram);
        let answer = answer.map_or(0, |answer| answer.len());
        assert!(answer <= datagram.len());
        sent += datagram.len();
        answered += answer;
    }
    assert!(answered > 0 && answered <= sent);
}

#[test]
fn a_cookie_is_valid_for_its_address_nonce_and_time() {
    let mut reflector = ProbeReflector::new(host(), [7; 32]);
    let mut prober = PathProbeClient::new(5, HEADER, Duration::ZERO);
    let mut datagram = Vec::new();
    assert!(prober.poll_transmit(Duration::ZERO, &mut datagram));
    let start = Duration::from_secs(1234);
    let welcome = reflector.handle_datagram(start, start, client(), &datagram).unwrap();
    assert!(welcome.len() <= datagram.len());
    prober.handle_datagram(MS, MS, &welcome);
    assert!(prober.is_welcome());
    prober.measure_rates(MS);
    datagram.clear();
    assert!(prober.poll_transmit(MS, &mut datagram));
    let mut answers = |now: Duration, from: SocketAddr, datagram: &[u8]| {
        reflector.handle_datagram(now, now, from, datagram).is_some()
    };
    assert!(answers(start, client(), &datagram));
    assert!(answers(start + Duration::from_secs(60), client(), &datagram));
    assert!(!answers(start + Duration::from_secs(120), client(), &datagram), "too old");
    assert!(!answers(start, "192.0.2.1:1001".parse().unwrap(), &datagram), "another port");
    assert!(!answers(start, "192.0.2.2:1000".parse().unwrap(), &datagram), "another address");
    for i in 9..packet::MIN_TRAIN_LEN {
        let mut changed = datagram.clone();
        changed[i] ^= 1;
        let is_number = (17..19).contains(&i);
        assert_eq!(answers(start, client(), &changed), is_number, "byte {i}");
    }
}

#[test]
fn who_does_not_know_the_nonce_changes_nothing() {
    for seed in 0..20 {
        let path = conditions(20 * MS, 100);
        let calm = undisturbed(seed, path, path).measured;
        let mut rng = SeededRng::new(seed + 1);
        let mut left = 1000;
        let outcome = run(seed, path, path, |net, _, to_client, seen| {
            if left == 0 {
                return;
            }
            left -= 1;
            // Datagrams like those of the server, but with other nonces, and random datagrams.
            let mut forged = seen.to_vec();
            if let Some(byte) = forged.get_mut(9 + rng.index(8)) {
                *byte ^= 1 + rng.below(255) as u8;
            }
            net.inject(to_client, forged, Duration::ZERO);
            let random = (0..rng.index(1500)).map(|_| rng.below(256) as u8).collect();
            net.inject(to_client, random, Duration::ZERO);
        });
        assert_eq!(outcome.measured, calm);
    }
}

#[test]
fn one_on_the_path_causes_no_panic_and_bounded_time() {
    run_seeds(200, |seed| {
        let path = conditions(20 * MS, 100);
        let mut rng = SeededRng::new(seed + 1);
        let outcome = run(seed, path, path, |net, to_server, to_client, seen| {
            let mut changed = seen.to_vec();
            for _ in 0..rng.index(4) {
                if let Some(byte) = changed.get_mut(17 + rng.index(20)) {
                    *byte = rng.below(256) as u8;
                }
            }
            let to = if rng.below(2) == 0 { to_server } else { to_client };
            if net.pending_events() < 10_000 {
                net.inject(to, changed, rng.below(30) as u32 * MS);
            }
        });
        assert!(outcome.took <= Duration::from_secs(4));
        if let Some(measured) = outcome.measured {
            for rate in [measured.up, measured.down].into_iter().flatten() {
                assert!(rate.rate > 0.0, "{rate:?}");
            }
        }
        let _ = outcome.answered;
    });
}
