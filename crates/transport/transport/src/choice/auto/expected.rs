//! What `auto` is expected to choose on a path that is known.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::super::cache::PathCache;
use super::super::decide::TransportDecision;
use super::super::examine::ASSUMED_RATE;
use super::super::racing::ConnectionRace;
use super::super::remembered::RememberedPath;
use super::{RATES_ROUND_TRIPS, RATES_TIME, TransportSelector};
use crate::model::{ExchangeProfile, NetworkPath};
use crate::options::{ConnectionOptions, ConnectionSecurity};
use crate::probe::PacketLosses;

/// What `auto` is expected to choose, and what the choice takes.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpectedTransport {
    /// The transport, with the reason.
    pub decision: TransportDecision,
    /// How much longer it takes than with this transport by its name: `auto` first measures the
    /// path, or begins to connect later.
    pub delay: Duration,
}

/// What `auto` is expected to choose for the first exchange over a path with these properties. It
/// measures of them what is worth that, and assumes the others. Nothing is opened or measured here.
pub fn expected(
    path: &NetworkPath,
    exchange: ExchangeProfile,
    is_secure: bool,
) -> ExpectedTransport {
    // Nobody is connected to, and nothing is kept.
    let options = ConnectionOptions::new(ConnectionSecurity::Insecure);
    let selector = TransportSelector {
        to: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        options: &options,
        cache: PathCache::none(),
        key: String::new(),
        exchange,
        is_secure,
    };
    selector.expected(path)
}

impl TransportSelector<'_> {
    fn expected(self, path: &NetworkPath) -> ExpectedTransport {
        if self.is_tiny() {
            return self.expected_at_once("so small an exchange is not worth measuring the path");
        }
        if self.is_short(path.round_trip) {
            return self.expected_at_once("tcp is near the fastest on so short a path");
        }
        let has_rates = path.udp_passes && self.needs_rates(path);
        let mut seen = path.clone();
        if !has_rates {
            seen.loss = PacketLosses::default().probability(path.round_trip);
            (seen.up.rate, seen.down.rate) = (ASSUMED_RATE, ASSUMED_RATE);
        }
        let known = RememberedPath::new(&seen, has_rates, PacketLosses::default(), 0);
        let decision = self.decision(&known, 0, ConnectionRace::has);
        let round_trip = path.round_trip.as_secs_f64();
        let measuring = if has_rates { RATES_ROUND_TRIPS * round_trip + RATES_TIME } else { 0.0 };
        let later = if ConnectionRace::has(decision.transport) { 0.0 } else { round_trip };
        let delay = Duration::try_from_secs_f64(measuring + later).unwrap_or(Duration::MAX);
        ExpectedTransport { decision, delay }
    }

    fn expected_at_once(self, reason: &str) -> ExpectedTransport {
        ExpectedTransport { decision: self.without_path(reason).decision, delay: Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected_on(round_trip_us: u64, mbit: f64, received: u64) -> ExpectedTransport {
        let path = NetworkPath::assumed(Duration::from_micros(round_trip_us), mbit * 125e3);
        expected(&path, ExchangeProfile { sent: 1000, received, rounds: 2 }, false)
    }

    #[test]
    fn auto_is_expected_to_choose_what_it_chooses() {
        for (round_trip_us, received, transport) in [
            (500, 200_000, "tcp"),
            (500, 30_000_000, "tcp"),
            (110_000, 10_000, "tcp"),
            (110_000, 200_000, "burst"),
            (300_000, 30_000_000, "burst"),
        ] {
            let expected = expected_on(round_trip_us, 1000.0, received);
            let reason = &expected.decision.reason;
            assert_eq!(expected.decision.transport, transport, "{round_trip_us} {reason}");
        }
    }

    #[test]
    fn auto_is_expected_to_measure_a_long_exchange_only() {
        assert_eq!(expected_on(110_000, 1000.0, 200_000).delay, Duration::ZERO);
        let long = expected_on(110_000, 1000.0, 100_000_000_000).delay;
        assert!(long > Duration::from_millis(250), "{long:?}");
    }
}
