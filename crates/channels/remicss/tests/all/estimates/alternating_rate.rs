//! Full load over a channel that carries more and less in turn, such as a mobile network's.

use std::time::Duration;

use sunder_remicss::send::spare::PlanPreference;

use super::scenario::Path;
use super::tunnel::{FULL, Tunnel};

/// The other channels' rate, and the two rates in turn, in Mbit/s.
const MBPS: u64 = 20;
const ALTERNATING_MBPS: [u64; 2] = [40, 2];
const CHANGE_INTERVAL: Duration = Duration::from_secs(5);
const ROUNDS: u32 = 6;

/// What is possible with two shares of each packet, in Mbit/s: half of the sum.
const POSSIBLE_MBPS: [f64; 2] = [40.0, 21.0];

/// The least part of what is possible if changes were known at once.
const MIN_PART: f64 = 0.85;

/// `SUNDER_SEEDS=N` runs as many seeds.
#[test]
#[expect(clippy::cast_precision_loss, reason = "1,500")]
fn most_of_an_alternating_rate_is_used() {
    let possible = POSSIBLE_MBPS;
    sim::run_seeds(3, |seed| {
        let path = Path::new(MBPS, 30, 0, 10);
        let mut tunnel = Tunnel::new(&[path; 3], &[None; 3], (2.0, 2.0), seed);
        tunnel.goal.prefer = PlanPreference::Rate;
        tunnel.offered = 44_000_000 / (8 * FULL as u64);
        tunnel.run(Duration::from_secs(10));
        let mut used = [0.0; 2];
        for _ in 0..ROUNDS {
            for (used, mbps) in used.iter_mut().zip(ALTERNATING_MBPS) {
                tunnel.scenario.set(1, |path| path.rate_bps = mbps * 1_000_000);
                let (_, delivered) = tunnel.run(CHANGE_INTERVAL);
                *used += 8e-6 * FULL as f64 * delivered / f64::from(ROUNDS);
            }
        }
        let part = used.iter().sum::<f64>() / possible.iter().sum::<f64>();
        assert!(part >= MIN_PART, "seed {seed}: {used:.1?} of {possible:.1?} Mbit/s, {part:.2}");
    });
}
