//! Predicts what the network adds to a run.

use std::time::Duration;

use transport::ExchangeProfile;
use transport::model::{NetworkPath, predict};

use super::PredictedTraffic;
use crate::settings::ComputeRole;

impl PredictedTraffic {
    /// What a party of this role sends and receives.
    pub fn exchange(self, role: ComputeRole) -> ExchangeProfile {
        let (sent, received) = match role {
            ComputeRole::Garbler => (self.garbler, self.evaluator),
            ComputeRole::Evaluator => (self.evaluator, self.garbler),
        };
        ExchangeProfile { sent, received, rounds: self.round_trips }
    }
}

/// The time of an exchange of the party that connects, from the start of connecting. `None` if the
/// transport cannot be used on the path.
///
/// It is the longest of three: the bytes of each direction as one stream, since what is sent does
/// not wait for what is received, and the round trips alone.
pub fn network_time(
    transport: &str,
    path: &NetworkPath,
    exchange: ExchangeProfile,
    is_secure: bool,
) -> Option<Duration> {
    let ExchangeProfile { sent, received, rounds } = exchange;
    let of = |sent, received, rounds| {
        predict(transport, path, ExchangeProfile { sent, received, rounds }, is_secure).ok()
    };
    Some(of(sent, 0, 1)?.max(of(0, received, 1)?).max(of(0, 0, rounds)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRAFFIC: PredictedTraffic =
        PredictedTraffic { garbler: 30_000_000, evaluator: 9000, round_trips: 2 };

    fn time(transport: &str, path: &NetworkPath, traffic: PredictedTraffic) -> Duration {
        network_time(transport, path, traffic.exchange(ComputeRole::Evaluator), false).unwrap()
    }

    #[test]
    fn predicted_time_grows_with_delay_loss_and_bytes() {
        let path = |delay_ms: u64, loss| {
            let path = NetworkPath::assumed(Duration::from_millis(2 * delay_ms), 125e6);
            NetworkPath { loss, ..path }
        };
        let more = PredictedTraffic { garbler: 2 * TRAFFIC.garbler, ..TRAFFIC };
        for transport in ["tcp", "sabul", "quic", "burst"] {
            let least = time(transport, &path(50, 0.001), TRAFFIC);
            assert!(least > Duration::from_millis(150), "{transport}");
            assert!(time(transport, &path(100, 0.001), TRAFFIC) > least, "{transport}");
            assert!(time(transport, &path(50, 0.01), TRAFFIC) > least, "{transport}");
            assert!(time(transport, &path(50, 0.001), more) > least, "{transport}");
        }
    }

    #[test]
    fn predicted_time_is_at_least_that_of_the_round_trips() {
        let path = NetworkPath::assumed(Duration::from_millis(100), 125e6);
        let small = PredictedTraffic { garbler: 10, evaluator: 10, round_trips: 30 };
        assert!(time("tcp", &path, small) >= Duration::from_secs(3));
    }
}
