//! Decides which transport is the fastest.

use std::time::Duration;

use crate::model::{ExchangeProfile, NetworkPath, UnusableTransportError};
use crate::probe::PacketLosses;
use crate::stream::Transport;
use crate::transports::{predicted, registered};

/// The transports of this crate that `auto` chooses from. The others serve other purposes than
/// speed, or have no advantage over these.
const CHOSEN_FROM: [&str; 4] = ["tcp", "sabul", "burst", "quic"];

/// The transports that `auto` chooses from: those of this crate, and those that the program has
/// added, if they have a latency function.
pub(super) fn chosen_from() -> Vec<&'static str> {
    let added = registered().into_iter().map(Transport::name);
    CHOSEN_FROM.into_iter().chain(added).collect()
}

/// TCP is used unless another transport takes at most this fraction of its time, because TCP needs
/// less CPU time and is rarely blocked.
const WORTH_LEAVING_TCP: f64 = 0.95;

/// The prediction for a transport.
#[derive(Clone, Debug, PartialEq)]
pub struct TransportCandidate {
    /// Its name.
    pub transport: &'static str,
    /// The predicted time of the exchange, or why the transport cannot be used.
    pub predicted: Result<Duration, UnusableTransportError>,
    /// The time of earlier exchanges on the path, divided by their prediction. The prediction above
    /// includes this factor.
    pub correction: f64,
    /// Whether the transport may be chosen.
    pub is_eligible: bool,
}

/// The chosen transport, with the reason.
#[derive(Clone, Debug, PartialEq)]
pub struct TransportDecision {
    /// The transport.
    pub transport: &'static str,
    /// The time that the exchange is predicted to take, if there is a prediction.
    pub predicted: Option<Duration>,
    /// Why, in one line.
    pub reason: String,
    /// All transports, the fastest first.
    pub candidates: Vec<TransportCandidate>,
}

/// What was measured of a path, apart from its round-trip time. All other values are assumed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DecisionBasis {
    /// Whether the rate to the server was measured.
    pub has_up: bool,
    /// Whether the rate from the server was measured.
    pub has_down: bool,
    /// The packets from which the loss was measured.
    pub losses: PacketLosses,
}

/// Chooses from the transports `names`. `basis` is used for the reason. `correction` returns
/// [`TransportCandidate::correction`], or 1 if nothing is known.
pub fn decide(
    names: impl Iterator<Item = &'static str>,
    path: &NetworkPath,
    basis: &DecisionBasis,
    exchange: ExchangeProfile,
    is_secure: bool,
    correction: impl Fn(&str) -> f64,
) -> TransportDecision {
    let chosen_from = chosen_from();
    let mut candidates: Vec<TransportCandidate> = names
        .map(|transport| {
            let correction = correction(transport);
            let predicted = predicted(transport, path, exchange, is_secure);
            let predicted = predicted.map(|it| {
                Duration::try_from_secs_f64(it.as_secs_f64() * correction).unwrap_or(Duration::MAX)
            });
            let is_eligible = chosen_from.contains(&transport);
            TransportCandidate { transport, predicted, correction, is_eligible }
        })
        .collect();
    candidates.sort_by_key(|it| (it.predicted.unwrap_or(Duration::MAX), !it.is_eligible));
    let usable = |it: &&TransportCandidate| it.is_eligible && it.predicted.is_ok();
    let tcp = candidates.iter().filter(usable).find(|it| it.transport == "tcp");
    let fastest = candidates.iter().find(usable);
    let (transport, predicted, reason) = match (fastest, tcp) {
        (Some(fastest), Some(tcp)) => choose(fastest, tcp),
        (Some(only), None) | (None, Some(only)) => {
            (only.transport, only.predicted.ok(), "TCP cannot be used".to_owned())
        }
        (None, None) => ("tcp", None, "nothing is known of any transport".to_owned()),
    };
    let reason = format!("{reason} ({})", describe(path, basis));
    TransportDecision { transport, predicted, reason, candidates }
}

fn choose(
    fastest: &TransportCandidate,
    tcp: &TransportCandidate,
) -> (&'static str, Option<Duration>, String) {
    let seconds = |it: &TransportCandidate| it.predicted.unwrap_or(Duration::MAX).as_secs_f64();
    let (best, by_tcp) = (seconds(fastest), seconds(tcp));
    if fastest.transport == tcp.transport {
        (tcp.transport, tcp.predicted.ok(), "tcp is predicted to be the fastest".to_owned())
    } else if best > by_tcp * WORTH_LEAVING_TCP {
        let name = fastest.transport;
        let reason = format!("{name} would save less than 5 % of the time of tcp");
        (tcp.transport, tcp.predicted.ok(), reason)
    } else {
        let name = fastest.transport;
        let reason = format!("{name} is predicted to take {best:.3} s, tcp {by_tcp:.3} s");
        (name, fastest.predicted.ok(), reason)
    }
}

/// A short text about the path: what was measured, and what is assumed.
fn describe(path: &NetworkPath, basis: &DecisionBasis) -> String {
    let round_trip = path.round_trip.as_secs_f64() * 1e3;
    if !path.udp_passes {
        return format!("round trip {round_trip:.1} ms, UDP does not pass");
    }
    let (up, down, loss) = (path.up.rate * 8e-6, path.down.rate * 8e-6, path.loss * 100.0);
    let rates = match (basis.has_up, basis.has_down) {
        (true, true) => format!("{up:.0} Mbit/s up, {down:.0} down"),
        (true, false) => format!("{up:.0} Mbit/s up, down not measured"),
        (false, true) => format!("up not measured, {down:.0} Mbit/s down"),
        (false, false) => format!("rates not measured: {up:.0} Mbit/s assumed"),
    };
    let PacketLosses { sent, lost } = basis.losses;
    let loss = if sent.round() > 0.0 {
        format!("{lost:.0} of {sent:.0} packets lost: {loss:.3} % assumed")
    } else {
        format!("loss not measured: {loss:.3} % assumed")
    };
    format!("round trip {round_trip:.1} ms, {rates}, {loss}")
}

#[cfg(test)]
mod tests {
    use super::super::measured::{self, MEASURED};
    use super::*;
    use crate::model::{TRANSPORTS, TcpCongestionControl, predict};

    fn path(round_trip_us: u64, mbit: f64, loss: f64) -> NetworkPath {
        let mut path = NetworkPath::assumed(Duration::from_micros(round_trip_us), mbit * 1e6 / 8.0);
        path.loss = loss;
        path.up.tcp_window = 64e6;
        path
    }

    fn decide_for(path: &NetworkPath, sent: u64, rounds: u32) -> TransportDecision {
        let exchange = ExchangeProfile { sent, received: 0, rounds };
        decide(TRANSPORTS.into_iter(), path, &DecisionBasis::default(), exchange, true, |_| 1.0)
    }

    #[test]
    fn the_reason_says_what_is_assumed() {
        let path = path(40_000, 100.0, 1e-4);
        let reason = |basis| {
            let exchange = ExchangeProfile { sent: 1000, received: 0, rounds: 1 };
            decide(TRANSPORTS.into_iter(), &path, &basis, exchange, true, |_| 1.0).reason
        };
        let nothing = reason(DecisionBasis::default());
        let expected = "(round trip 40.0 ms, rates not measured: 100 Mbit/s assumed, loss not \
                        measured: 0.010 % assumed)";
        assert!(nothing.ends_with(expected), "{nothing}");
        let losses = PacketLosses { sent: 160.0, lost: 2.0 };
        let all = reason(DecisionBasis { has_up: true, has_down: true, losses });
        let expected = "100 Mbit/s up, 100 down, 2 of 160 packets lost: 0.010 % assumed)";
        assert!(all.ends_with(expected), "{all}");
        let up = reason(DecisionBasis { has_up: true, has_down: false, losses });
        assert!(up.contains("100 Mbit/s up, down not measured"), "{up}");
    }

    #[test]
    fn a_fast_short_path_is_for_tcp_and_a_long_one_for_burst() {
        assert_eq!(decide_for(&path(200, 10_000.0, 0.0), 70_000_000, 1).transport, "tcp");
        for mbit in [100.0, 1000.0] {
            for loss in [0.0, 0.0005, 0.01] {
                for sent in [200_000, 3_000_000, 70_000_000] {
                    let decision = decide_for(&path(300_000, mbit, loss), sent, 1);
                    assert_eq!(decision.transport, "burst", "{mbit} {loss} {sent} {decision:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_chosen_is_near_the_best_and_never_behind_tcp() {
        for round_trip_us in [100, 1000, 20_000, 50_000, 100_000, 300_000] {
            for mbit in [10.0, 100.0, 1000.0, 10_000.0] {
                for loss in [0.0, 0.0001, 0.0005, 0.01] {
                    for bytes in [200, 200_000, 3_000_000, 30_000_000, 70_000_000] {
                        for rounds in [1, 10, 100] {
                            let mut path = path(round_trip_us, mbit, loss);
                            if bytes % 3 == 0 {
                                path.up.congestion = TcpCongestionControl::Bbr;
                            }
                            let decision = decide_for(&path, bytes, rounds);
                            let best = decision.candidates.iter().filter(|it| it.is_eligible);
                            let best = best.filter_map(|it| it.predicted.ok()).min().unwrap();
                            let chosen = decision.predicted.unwrap();
                            assert!(chosen <= best.mul_f64(1.06), "{decision:?}");
                            let tcp = decision.candidates.iter().find(|it| it.transport == "tcp");
                            assert!(chosen <= tcp.unwrap().predicted.unwrap());
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn corrections_change_the_choice() {
        let path = path(300_000, 100.0, 0.0);
        let exchange = ExchangeProfile { sent: 3_000_000, received: 0, rounds: 1 };
        let slow = |slow: &'static [&str]| {
            decide(TRANSPORTS.into_iter(), &path, &DecisionBasis::default(), exchange, true, |it| {
                if slow.contains(&it) { 8.0 } else { 1.0 }
            })
        };
        assert_eq!(slow(&[]).transport, "burst");
        let second = slow(&["burst"]).transport;
        assert_ne!(second, "burst");
        assert_eq!(slow(&["burst", "quic", "sabul"]).transport, "tcp");
    }

    #[test]
    fn without_udp_it_is_tcp() {
        let mut path = path(300_000, 100.0, 0.0);
        path.udp_passes = false;
        let exchange = ExchangeProfile { sent: 3_000_000, received: 0, rounds: 1 };
        let decision = decide(
            TRANSPORTS.into_iter(),
            &path,
            &DecisionBasis::default(),
            exchange,
            true,
            |_| 1.0,
        );
        assert_eq!(decision.transport, "tcp");
        assert!(decision.reason.contains("UDP does not pass"), "{}", decision.reason);
    }

    #[test]
    fn without_transports_it_is_tcp() {
        let path = path(1000, 100.0, 0.0);
        let none = decide(
            std::iter::empty(),
            &path,
            &DecisionBasis::default(),
            ExchangeProfile::default(),
            true,
            |_| 1.0,
        );
        assert_eq!((none.transport, none.predicted), ("tcp", None));
    }

    /// The path of a row of [`MEASURED`], and its exchange.
    fn of_row(row: &(u64, u32, f64, u32, [f64; 4])) -> (NetworkPath, ExchangeProfile) {
        let (round_trip_ms, mbit, loss, kilobytes, _) = *row;
        let mut path = path(round_trip_ms * 1000, f64::from(mbit), loss);
        path.up.tcp_window = 1e9;
        (path, ExchangeProfile { sent: 1000 * u64::from(kilobytes), received: 0, rounds: 1 })
    }

    #[test]
    fn predictions_are_near_what_was_measured() {
        for (i, transport) in measured::TRANSPORTS.into_iter().enumerate().take(3) {
            let mut ratios = Vec::new();
            for row in MEASURED {
                let (path, exchange) = of_row(row);
                let predicted = predict(transport, &path, exchange, true).unwrap();
                let ratio = predicted.as_secs_f64() / row.4[i];

                ratios.push(ratio);
            }
            let near = ratios.iter().filter(|ratio| (0.75..1.33).contains(*ratio)).count();
            assert!(near * 10 >= ratios.len() * 8, "{transport}: {near} of {}", ratios.len());
        }
    }

    #[test]
    fn on_measured_paths_the_choice_is_near_the_best() {
        let mut wrong = Vec::new();
        for row in MEASURED {
            let (path, exchange) = of_row(row);
            let names = measured::TRANSPORTS.into_iter();
            let decision =
                decide(names.clone(), &path, &DecisionBasis::default(), exchange, true, |_| 1.0);
            let chosen = names.zip(row.4).find(|(name, _)| *name == decision.transport).unwrap().1;
            let best = row.4.into_iter().fold(f64::MAX, f64::min);
            // Times are rounded to 10 ms.
            if chosen > best * 1.1 + 0.01 {
                wrong.push(row);
            }
            assert!(chosen <= row.4[3] * 1.15 + 0.01, "{row:?}: worse than tcp");
        }
        assert!(wrong.len() * 10 <= MEASURED.len(), "{} of {}", wrong.len(), MEASURED.len());
    }
}
