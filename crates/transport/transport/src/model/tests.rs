//! Compares predictions with measurements.

use std::time::Duration;

use super::path::TcpCongestionControl::{self, Bbr, Cubic};
use super::*;

/// Congestion control, round trip (ms), rate (Mbit/s), loss, kB sent, and the median of seconds of
/// two or three runs of Linux 6.18's TCP over an emulated link with a queue of 50 ms, with buffers
/// that limit nothing and without encryption.
#[rustfmt::skip]
const MEASURED: &[(TcpCongestionControl, u64, u32, f64, u32, f64)] = &[
    (Bbr, 20, 100, 0.0, 200, 0.14),
    (Bbr, 20, 100, 0.0, 3000, 0.38),
    (Bbr, 20, 100, 0.0, 30000, 2.7),
    (Bbr, 20, 100, 0.0005, 200, 0.14),
    (Bbr, 20, 100, 0.0005, 3000, 0.36),
    (Bbr, 20, 100, 0.0005, 30000, 2.67),
    (Bbr, 20, 100, 0.01, 200, 0.16),
    (Bbr, 20, 100, 0.01, 3000, 0.42),
    (Bbr, 20, 100, 0.01, 30000, 2.84),
    (Bbr, 20, 1000, 0.0, 200, 0.13),
    (Bbr, 20, 1000, 0.0, 3000, 0.21),
    (Bbr, 20, 1000, 0.0, 30000, 0.49),
    (Bbr, 20, 1000, 0.0005, 200, 0.13),
    (Bbr, 20, 1000, 0.0005, 3000, 0.26),
    (Bbr, 20, 1000, 0.0005, 30000, 0.54),
    (Bbr, 20, 1000, 0.01, 200, 0.16),
    (Bbr, 20, 1000, 0.01, 3000, 0.32),
    (Bbr, 20, 1000, 0.01, 30000, 0.98),
    (Bbr, 100, 100, 0.0, 200, 0.65),
    (Bbr, 100, 100, 0.0, 3000, 1.04),
    (Bbr, 100, 100, 0.0, 30000, 3.34),
    (Bbr, 100, 100, 0.0005, 200, 0.62),
    (Bbr, 100, 100, 0.0005, 3000, 1.12),
    (Bbr, 100, 100, 0.0005, 30000, 3.41),
    (Bbr, 100, 100, 0.01, 200, 0.77),
    (Bbr, 100, 100, 0.01, 3000, 1.58),
    (Bbr, 100, 100, 0.01, 30000, 3.98),
    (Bbr, 100, 1000, 0.0, 200, 0.62),
    (Bbr, 100, 1000, 0.0, 3000, 1.02),
    (Bbr, 100, 1000, 0.0, 30000, 1.46),
    (Bbr, 100, 1000, 0.0005, 200, 0.62),
    (Bbr, 100, 1000, 0.0005, 3000, 1.08),
    (Bbr, 100, 1000, 0.0005, 30000, 1.69),
    (Bbr, 100, 1000, 0.01, 200, 0.75),
    (Bbr, 100, 1000, 0.01, 3000, 1.54),
    (Bbr, 100, 1000, 0.01, 30000, 2.25),
    (Bbr, 300, 100, 0.0, 200, 1.88),
    (Bbr, 300, 100, 0.0, 3000, 3.02),
    (Bbr, 300, 100, 0.0, 30000, 5.53),
    (Bbr, 300, 100, 0.0005, 200, 1.91),
    (Bbr, 300, 100, 0.0005, 3000, 3.37),
    (Bbr, 300, 100, 0.0005, 30000, 6.02),
    (Bbr, 300, 100, 0.01, 200, 2.26),
    (Bbr, 300, 100, 0.01, 3000, 4.68),
    (Bbr, 300, 100, 0.01, 30000, 7.47),
    (Bbr, 300, 1000, 0.0, 200, 1.87),
    (Bbr, 300, 1000, 0.0, 3000, 3.04),
    (Bbr, 300, 1000, 0.0, 30000, 4.06),
    (Bbr, 300, 1000, 0.0005, 200, 1.88),
    (Bbr, 300, 1000, 0.0005, 3000, 3.3),
    (Bbr, 300, 1000, 0.0005, 30000, 4.75),
    (Bbr, 300, 1000, 0.01, 200, 2.25),
    (Bbr, 300, 1000, 0.01, 3000, 4.58),
    (Bbr, 300, 1000, 0.01, 30000, 6.68),
    (Cubic, 20, 100, 0.0, 200, 0.12),
    (Cubic, 20, 100, 0.0, 3000, 0.36),
    (Cubic, 20, 100, 0.0, 30000, 2.68),
    (Cubic, 20, 100, 0.0005, 200, 0.12),
    (Cubic, 20, 100, 0.0005, 3000, 0.36),
    (Cubic, 20, 100, 0.0005, 30000, 6.34),
    (Cubic, 20, 100, 0.01, 200, 0.16),
    (Cubic, 20, 100, 0.01, 3000, 2.2),
    (Cubic, 20, 1000, 0.0, 200, 0.13),
    (Cubic, 20, 1000, 0.0, 3000, 0.21),
    (Cubic, 20, 1000, 0.0, 30000, 0.49),
    (Cubic, 20, 1000, 0.0005, 200, 0.12),
    (Cubic, 20, 1000, 0.0005, 3000, 0.45),
    (Cubic, 20, 1000, 0.0005, 30000, 6.24),
    (Cubic, 20, 1000, 0.01, 200, 0.14),
    (Cubic, 20, 1000, 0.01, 3000, 2.14),
    (Cubic, 100, 100, 0.0, 200, 0.6),
    (Cubic, 100, 100, 0.0, 3000, 1.0),
    (Cubic, 100, 100, 0.0, 30000, 3.47),
    (Cubic, 100, 100, 0.0005, 200, 0.51),
    (Cubic, 100, 100, 0.0005, 3000, 1.01),
    (Cubic, 100, 100, 0.0005, 30000, 11.83),
    (Cubic, 100, 100, 0.01, 200, 0.69),
    (Cubic, 100, 100, 0.01, 3000, 9.66),
    (Cubic, 100, 1000, 0.0, 200, 0.6),
    (Cubic, 100, 1000, 0.0, 3000, 0.92),
    (Cubic, 100, 1000, 0.0, 30000, 1.43),
    (Cubic, 100, 1000, 0.0005, 200, 0.61),
    (Cubic, 100, 1000, 0.0005, 3000, 0.92),
    (Cubic, 100, 1000, 0.0005, 30000, 6.78),
    (Cubic, 100, 1000, 0.01, 200, 0.61),
    (Cubic, 100, 1000, 0.01, 3000, 9.63),
    (Cubic, 300, 100, 0.0, 200, 1.53),
    (Cubic, 300, 100, 0.0, 3000, 2.81),
    (Cubic, 300, 100, 0.0, 30000, 6.23),
    (Cubic, 300, 100, 0.0005, 200, 1.66),
    (Cubic, 300, 100, 0.0005, 3000, 4.11),
    (Cubic, 300, 100, 0.0005, 30000, 54.33),
    (Cubic, 300, 100, 0.01, 200, 2.46),
    (Cubic, 300, 100, 0.01, 3000, 59.9),
    (Cubic, 300, 1000, 0.0, 200, 1.84),
    (Cubic, 300, 1000, 0.0, 3000, 2.79),
    (Cubic, 300, 1000, 0.0, 30000, 4.4),
    (Cubic, 300, 1000, 0.0005, 200, 1.67),
    (Cubic, 300, 1000, 0.0005, 3000, 3.96),
    (Cubic, 300, 1000, 0.0005, 30000, 51.71),
    (Cubic, 300, 1000, 0.01, 200, 2.27),
    (Cubic, 300, 1000, 0.01, 3000, 59.05),
];

fn path(round_trip_ms: u64, rate_mbit: f64, loss: f64) -> NetworkPath {
    let mut path =
        NetworkPath::assumed(Duration::from_millis(round_trip_ms), rate_mbit * 1e6 / 8.0);
    path.loss = loss;
    for direction in [&mut path.up, &mut path.down] {
        direction.tcp_window = 1e9;
    }
    path
}

fn seconds(transport: &str, path: &NetworkPath, sent: u64, rounds: u32) -> f64 {
    let exchange = ExchangeProfile { sent, received: 0, rounds };
    predict(transport, path, exchange, false).unwrap().as_secs_f64()
}

#[test]
fn tcp_takes_about_what_was_measured() {
    let mut ratios = Vec::new();
    for &(congestion, round_trip_ms, rate_mbit, loss, kilobytes, measured) in MEASURED {
        let mut path = path(round_trip_ms, f64::from(rate_mbit), loss);
        path.up.congestion = congestion;
        let ratio = seconds("tcp", &path, 1000 * u64::from(kilobytes), 1) / measured;
        // With CUBIC and a few random losses, the measured time depends on which packets are lost:
        // runs differ by a factor of ten.
        let is_random = congestion == Cubic && loss > 0.0 && kilobytes > 1000;
        let limits = if is_random { 0.4..2.5 } else { 0.5..1.3 };
        let point = (congestion, round_trip_ms, rate_mbit, loss, kilobytes);
        assert!(limits.contains(&ratio), "{point:?}: {ratio} of {measured} s");
        if !is_random {
            ratios.push(ratio);
        }
    }
    ratios.sort_by(f64::total_cmp);
    let near = ratios.iter().filter(|ratio| (0.8..1.2).contains(*ratio)).count();
    assert!(near * 10 >= ratios.len() * 9, "{ratios:?}");
}

/// Calls `check` for all transports on many paths.
fn for_all(mut check: impl FnMut(&str, &NetworkPath, f64)) {
    for transport in TRANSPORTS {
        for round_trip_ms in [1, 20, 100, 300] {
            for rate_mbit in [1.0, 100.0, 1000.0, 10_000.0] {
                for loss in [0.0, 0.0005, 0.01, 0.1] {
                    if transport == "udp" && loss > 0.0 {
                        continue;
                    }
                    let path = path(round_trip_ms, rate_mbit, loss);
                    for sent in [1, 200_000, 30_000_000] {
                        check(transport, &path, seconds(transport, &path, sent, 1));
                    }
                }
            }
        }
    }
}

#[test]
fn nothing_is_faster_than_light_or_the_line() {
    for_all(|transport, path, _| {
        for sent in [1, 200_000, 30_000_000_u32] {
            let seconds = seconds(transport, path, u64::from(sent), 1);
            let line = f64::from(sent) / path.up.rate;
            let least = 2.0 * path.round_trip.as_secs_f64() + line;
            assert!(seconds >= least * 0.999, "{transport} {path:?} {sent}: {seconds}, {least}");
            assert!(seconds.is_finite());
        }
    });
}

#[test]
fn more_bytes_rounds_or_time_on_the_way_take_longer() {
    for_all(|transport, path, _| {
        let mut last = 0.0;
        for sent in [0, 1000, 100_000, 1_000_000, 10_000_000, 100_000_000] {
            let now = seconds(transport, path, sent, 1);
            assert!(now >= last, "{transport} {path:?} {sent}: {now} < {last}");
            last = now;
        }
        let mut last = 0.0;
        for rounds in [1, 2, 10, 100, 1000] {
            let now = seconds(transport, path, 1000 * u64::from(rounds), rounds);
            assert!(now > last, "{transport} {path:?} {rounds}: {now} <= {last}");
            last = now;
        }
        let longer = NetworkPath { round_trip: path.round_trip * 2, ..path.clone() };
        for sent in [1, 200_000, 30_000_000] {
            let (now, longer) =
                (seconds(transport, path, sent, 1), seconds(transport, &longer, sent, 1));
            // A full queue takes a larger fraction of the time on a short path.
            assert!(longer >= now * 0.9, "{transport} {path:?} {sent}: {longer} < {now}");
        }
    });
}

#[test]
fn a_faster_or_cleaner_path_does_not_take_longer() {
    for_all(|transport, path, seconds_now| {
        let mut faster = path.clone();
        faster.up.rate *= 4.0;
        let sent = 1_000_000;
        let now = seconds(transport, path, sent, 1);
        assert!(seconds(transport, &faster, sent, 1) <= now * 1.1, "{transport} {path:?}");
        let clean = NetworkPath { loss: 0.0, ..path.clone() };
        assert!(seconds(transport, &clean, sent, 1) <= now * 1.05, "{transport} {path:?}");
        assert!(seconds_now > 0.0);
    });
}

#[test]
fn a_small_window_limits_tcp() {
    let mut path = path(300, 1000.0, 0.0);
    path.up.tcp_window = 2e6;
    for congestion in [Cubic, Bbr, TcpCongestionControl::Reno] {
        path.up.congestion = congestion;
        let rate = 100e6 / (seconds("tcp", &path, 100_000_000, 1) - 3.0);
        assert!((5e6..7e6).contains(&rate), "{congestion:?}: 2 MB each 0.3 s, {rate}");
    }
    assert!(seconds("burst", &path, 100_000_000, 1) < 3.0, "it has no such window");
}

#[test]
fn what_cannot_be_used_has_no_prediction() {
    let exchange = ExchangeProfile { sent: 1, received: 1, rounds: 1 };
    let mut path = path(10, 100.0, 0.0);
    path.udp_passes = false;
    path.has_mptcp = false;
    for transport in ["sabul", "burst", "quic", "udp"] {
        assert_eq!(predict(transport, &path, exchange, true), Err(UnusableTransportError::NoUdp));
    }
    assert_eq!(predict("mptcp", &path, exchange, true), Err(UnusableTransportError::NoMptcp));
    assert_eq!(predict("ftp", &path, exchange, true), Err(UnusableTransportError::Unknown));
    path.udp_passes = true;
    path.loss = 0.001;
    assert_eq!(predict("udp", &path, exchange, true), Err(UnusableTransportError::Loss));
    assert!(predict("tcp", &path, exchange, true).is_ok());
}

#[test]
fn extreme_paths_have_finite_predictions() {
    for (round_trip, rate, loss) in [(0, 1e-9, 1.0), (u64::MAX / 2, 1e30, 0.0), (1, f64::MAX, 0.99)]
    {
        let mut path = path(1, rate, loss);
        path.round_trip = Duration::from_secs(round_trip.min(1 << 40));
        for transport in TRANSPORTS.into_iter().filter(|it| *it != "udp") {
            let most = ExchangeProfile { sent: u64::MAX, received: u64::MAX, rounds: u32::MAX };
            assert!(predict(transport, &path, most, true).unwrap() > Duration::ZERO);
        }
    }
}
