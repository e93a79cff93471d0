//! The path between two sites, as measured before and after a trial.

use serde::{Deserialize, Serialize};

/// What was measured of a path, by the agent at its beginning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathReading {
    /// The min RTT, in ms.
    pub round_trip_ms: f64,
    /// How many packets were sent that should be answered; 0 if UDP does not pass.
    pub sent: u32,
    /// How many of them were not answered.
    pub lost: u32,
    /// The rate of the bottleneck from its beginning to its end, in Mbit/s, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_mbit: Option<f64>,
    /// The rate of the bottleneck in the other direction, in Mbit/s, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_mbit: Option<f64>,
}

/// The path between the sites of two hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SitePath {
    /// The site whose agent measured it.
    pub from: String,
    /// The other site.
    pub to: String,
    /// Before the trial.
    pub before: PathReading,
    /// After the trial.
    pub after: PathReading,
}

/// By which fraction of the shorter one, and by how many ms, round trips differ on a path that has
/// changed.
const MAX_ROUND_TRIP_CHANGE: f64 = 0.2;
const MAX_ROUND_TRIP_CHANGE_MS: f64 = 3.0;

/// By how much, and by how many standard deviations, losses differ on a path that has changed.
const MAX_LOSS_CHANGE: f64 = 0.01;
const MAX_LOSS_DEVIATIONS: f64 = 4.0;

/// By which factor rates differ on a path that has changed.
const MAX_RATE_CHANGE: f64 = 2.0;

impl PathReading {
    /// Whether this is not the path of another reading.
    pub fn differs_from(&self, other: &Self) -> bool {
        let (one, two) = (self.round_trip_ms, other.round_trip_ms);
        let longer = (one - two).abs();
        let has_other_round_trip =
            longer > MAX_ROUND_TRIP_CHANGE * one.min(two) && longer > MAX_ROUND_TRIP_CHANGE_MS;
        let has_other_rate = |one: Option<f64>, two: Option<f64>| {
            one.zip(two).is_some_and(|(one, two)| one.max(two) > MAX_RATE_CHANGE * one.min(two))
        };
        has_other_round_trip
            || self.has_other_loss(other)
            || has_other_rate(self.up_mbit, other.up_mbit)
            || has_other_rate(self.down_mbit, other.down_mbit)
    }

    fn has_other_loss(&self, other: &Self) -> bool {
        if self.sent == 0 || other.sent == 0 {
            // UDP passes only once.
            return self.sent != other.sent;
        }
        let [one, two] = [self, other].map(|it| f64::from(it.sent));
        let difference = (f64::from(self.lost) / one - f64::from(other.lost) / two).abs();
        // If both had the same probability of a loss.
        let loss = (f64::from(self.lost) + f64::from(other.lost)) / (one + two);
        let deviation = (loss * (1.0 - loss) * (1.0 / one + 1.0 / two)).sqrt();
        difference > MAX_LOSS_CHANGE && difference > MAX_LOSS_DEVIATIONS * deviation
    }
}

impl SitePath {
    /// Whether the path has changed during the trial.
    pub fn has_changed(&self) -> bool {
        self.before.differs_from(&self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(round_trip_ms: f64, sent: u32, lost: u32, rate: f64) -> PathReading {
        let rate = Some(rate);
        PathReading { round_trip_ms, sent, lost, up_mbit: rate, down_mbit: rate }
    }

    fn differ(one: &PathReading, two: &PathReading) -> bool {
        assert_eq!(one.differs_from(two), two.differs_from(one));
        one.differs_from(two)
    }

    #[test]
    fn a_path_whose_round_trip_or_rate_differs_has_changed() {
        let usual = reading(100.0, 500, 0, 100.0);
        assert!(!differ(&usual, &usual));
        assert!(!differ(&usual, &reading(119.0, 500, 0, 100.0)));
        assert!(differ(&usual, &reading(121.0, 500, 0, 100.0)));
        // A fifth of a short round trip says nothing.
        let short = reading(1.0, 500, 0, 100.0);
        assert!(!differ(&short, &reading(3.9, 500, 0, 100.0)));
        assert!(differ(&short, &reading(4.1, 500, 0, 100.0)));
        assert!(!differ(&usual, &reading(100.0, 500, 0, 51.0)));
        assert!(differ(&usual, &reading(100.0, 500, 0, 49.0)));
        let unknown = PathReading { up_mbit: None, down_mbit: None, ..usual.clone() };
        assert!(!differ(&usual, &unknown));
    }

    #[test]
    fn a_loss_has_changed_if_chance_does_not_explain_it() {
        let of = |sent, lost| reading(100.0, sent, lost, 100.0);
        // 0.9 points.
        assert!(!differ(&of(10_000, 0), &of(10_000, 90)));
        assert!(differ(&of(10_000, 0), &of(10_000, 110)));
        // 2 points, but of few packets.
        assert!(!differ(&of(100, 0), &of(100, 2)));
        assert!(!differ(&of(0, 0), &of(0, 0)));
        assert!(differ(&of(0, 0), &of(100, 0)));
    }
}
