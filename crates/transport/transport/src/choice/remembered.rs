//! The cached state of paths. Times are seconds since 1970.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::NetworkPath;
use crate::options::PathEstimate;
use crate::probe::PacketLosses;

/// The largest number of paths; the least recently used entry is evicted.
const MAX_PATHS: usize = 256;
/// The largest number of transports for a path; more than exist.
const MAX_CORRECTIONS: usize = 16;
/// A path whose measurement is older is measured again before a large exchange.
const FRESH_S: u64 = 600;
/// A path that was not used for this long is removed.
const MAX_AGE_S: u64 = 30 * DAY_S;
const DAY_S: u64 = 86_400;
/// The half-life of a correction (of its logarithm): a day. The half-life of losses: an hour.
const CORRECTION_HALF_LIFE_S: f64 = 86_400.0;
const LOSSES_HALF_LIFE_S: f64 = 3600.0;
/// The range of the correction from one exchange.
const CORRECTIONS: std::ops::RangeInclusive<f64> = 0.5..=8.0;
/// The weight of a new measurement relative to earlier ones.
const WEIGHT: f64 = 0.6;
/// Losses of more packets than this are scaled down to this many packets.
const MAX_PACKETS: f64 = 1e6;

/// All cached paths, by the addresses of their ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct RememberedPaths(pub(super) BTreeMap<String, RememberedPath>);

/// The cached state of a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RememberedPath {
    pub(super) path: NetworkPath,
    /// Whether rates were measured, in addition to the round-trip time.
    pub(super) has_rates: bool,
    pub(super) measured_at: u64,
    used_at: u64,
    losses: PacketLosses,
    losses_at: u64,
    corrections: BTreeMap<String, PredictionCorrection>,
    /// When TCP carried data that UDP did not.
    #[serde(default)]
    udp_failed_at: Option<u64>,
}

/// The time of exchanges, divided by the prediction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct PredictionCorrection {
    factor: f64,
    at: u64,
}

impl RememberedPaths {
    /// The cached state of a path.
    pub(super) fn get(&self, key: &str) -> Option<&RememberedPath> {
        self.0.get(key)
    }

    /// Changes the state of a path, if it is cached.
    pub(super) fn change(&mut self, key: &str, now: u64, change: impl FnOnce(&mut RememberedPath)) {
        if let Some(known) = self.0.get_mut(key) {
            known.used_at = now;
            change(known);
        }
    }

    /// Records that TCP has carried data that UDP did not.
    pub(super) fn udp_failed(&mut self, key: &str, now: u64) {
        if self.get(key).is_none() {
            // It counts as an old measurement, so that the next larger exchange measures the path.
            let path = NetworkPath::assumed(Duration::ZERO, 0.0);
            self.record_measurement(key, &path, false, PacketLosses::default(), now);
            self.change(key, now, |known| known.measured_at = 0);
        }
        self.change(key, now, |known| known.udp_failed_at = Some(now));
    }

    /// Records a measured path, and the losses of the measurement.
    pub(super) fn record_measurement(
        &mut self,
        key: &str,
        path: &NetworkPath,
        has_rates: bool,
        losses: PacketLosses,
        now: u64,
    ) {
        if let Some(known) = self.0.get_mut(key) {
            let rates = (known.path.up.rate, known.path.down.rate);
            known.path = path.clone();
            if !has_rates && known.has_rates {
                (known.path.up.rate, known.path.down.rate) = rates;
            }
            known.has_rates |= has_rates;
            known.measured_at = now;
            known.used_at = now;
            known.add_losses(losses, now);
            return;
        }
        self.0.retain(|_, known| now.saturating_sub(known.used_at) < MAX_AGE_S);
        while self.0.len() >= MAX_PATHS {
            let oldest = self.0.iter().min_by_key(|(_, known)| known.used_at);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else { break };
            self.0.remove(&oldest);
        }
        self.0.insert(key.to_owned(), RememberedPath::new(path, has_rates, losses, now));
    }
}

impl RememberedPath {
    /// The state of a newly measured path, with the losses of the measurement.
    pub(super) fn new(path: &NetworkPath, has_rates: bool, losses: PacketLosses, now: u64) -> Self {
        Self {
            path: path.clone(),
            has_rates,
            measured_at: now,
            used_at: now,
            losses,
            losses_at: now,
            corrections: BTreeMap::new(),
            udp_failed_at: None,
        }
    }

    /// Whether UDP is avoided, because it has recently failed on this path.
    pub(super) fn avoids_udp(&self, now: u64) -> bool {
        self.udp_failed_at.is_some_and(|at| now.saturating_sub(at) < DAY_S)
    }

    /// The path as a transport may rely on it, if its rates were measured.
    pub(super) fn estimate(&self) -> Option<PathEstimate> {
        let NetworkPath { round_trip, loss, .. } = self.path;
        let loss = if self.losses.lost > 0.0 { loss } else { 0.0 };
        self.has_rates.then_some(PathEstimate { round_trip, rate: self.path.up.rate, loss })
    }

    /// Whether it was measured recently.
    pub(super) fn is_fresh(&self, now: u64) -> bool {
        now.saturating_sub(self.measured_at) < FRESH_S
    }

    /// The losses, weighted by their age.
    pub(super) fn losses(&self, now: u64) -> PacketLosses {
        let share = aged(now, self.losses_at, LOSSES_HALF_LIFE_S);
        PacketLosses { sent: self.losses.sent * share, lost: self.losses.lost * share }
    }

    /// Adds packets that were sent, and how many of them were lost.
    fn add_losses(&mut self, losses: PacketLosses, now: u64) {
        let earlier = self.losses(now);
        let sent = earlier.sent + losses.sent.max(0.0);
        let lost = (earlier.lost + losses.lost.max(0.0)).min(sent);
        let share = if sent > MAX_PACKETS { MAX_PACKETS / sent } else { 1.0 };
        self.losses = PacketLosses { sent: sent * share, lost: lost * share };
        self.losses_at = now;
        self.path.loss = self.losses.probability(self.path.round_trip);
    }

    /// The factor by which predictions for a transport are multiplied.
    pub(super) fn correction(&self, transport: &str, now: u64) -> f64 {
        self.corrections.get(transport).map_or(1.0, |it| {
            let factor = it.factor.clamp(*CORRECTIONS.start(), *CORRECTIONS.end());
            factor.powf(aged(now, it.at, CORRECTION_HALF_LIFE_S))
        })
    }

    /// Records that an exchange over a transport took `took`; `predicted` is without correction.
    pub(super) fn record_exchange(
        &mut self,
        transport: &str,
        predicted: Duration,
        took: Duration,
        now: u64,
    ) {
        let ratio = took.as_secs_f64() / predicted.as_secs_f64().max(1e-6);
        let ratio = ratio.clamp(*CORRECTIONS.start(), *CORRECTIONS.end());
        let is_new = !self.corrections.contains_key(transport);
        if is_new && self.corrections.len() >= MAX_CORRECTIONS {
            return;
        }
        let weight = if is_new { 1.0 } else { WEIGHT };
        let earlier = self.correction(transport, now);
        let factor = earlier.powf(1.0 - weight) * ratio.powf(weight);
        self.corrections.insert(transport.to_owned(), PredictionCorrection { factor, at: now });
    }
}

/// The weight of a value of this age: 1, halved for each half-life.
#[expect(clippy::cast_precision_loss, reason = "seconds")]
fn aged(now: u64, at: u64, half_life_s: f64) -> f64 {
    0.5_f64.powf(now.saturating_sub(at) as f64 / half_life_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> NetworkPath {
        NetworkPath::assumed(Duration::from_millis(100), 1e7)
    }

    fn known(paths: &mut RememberedPaths) -> &mut RememberedPath {
        paths.record_measurement("a", &path(), true, PacketLosses::default(), 1000);
        paths.0.get_mut("a").unwrap()
    }

    #[test]
    fn wrong_predictions_are_corrected_and_forgotten() {
        let mut paths = RememberedPaths::default();
        let known = known(&mut paths);
        let second = Duration::from_secs(1);
        assert!((known.correction("burst", 1000) - 1.0).abs() < 1e-9);
        known.record_exchange("burst", second, 3 * second, 1000);
        assert!((known.correction("burst", 1000) - 3.0).abs() < 1e-9);
        assert!((known.correction("tcp", 1000) - 1.0).abs() < 1e-9);
        let later = known.correction("burst", 1000 + DAY_S);
        assert!((later - 3.0_f64.sqrt()).abs() < 1e-9);
        for _ in 0..5 {
            known.record_exchange("burst", second, second, 1000);
        }
        assert!(known.correction("burst", 1000) < 1.05);
        known.record_exchange("burst", second, 1_000_000 * second, 1000);
        known.record_exchange("burst", Duration::ZERO, Duration::MAX, 1000);
        assert!(known.correction("burst", 1000) <= 8.0);
        for i in 0..100 {
            known.record_exchange(&format!("{i}"), second, second, 1000);
        }
        assert_eq!(known.corrections.len(), MAX_CORRECTIONS);
    }

    #[test]
    fn entries_age_and_are_bounded() {
        let mut paths = RememberedPaths::default();
        for i in 0..1000_u64 {
            paths.record_measurement(&format!("{i}"), &path(), true, PacketLosses::default(), i);
        }
        assert_eq!(paths.0.len(), MAX_PATHS);
        assert!(paths.get("0").is_none() && paths.get("999").is_some());
        assert!(paths.get("999").unwrap().is_fresh(999 + FRESH_S - 1));
        assert!(!paths.get("999").unwrap().is_fresh(999 + FRESH_S));
        paths.record_measurement("new", &path(), true, PacketLosses::default(), 2000 + MAX_AGE_S);
        assert_eq!(paths.0.len(), 1, "the others are too old");
    }

    #[test]
    fn losses_are_remembered_for_some_hours() {
        let mut paths = RememberedPaths::default();
        let known = known(&mut paths);
        known.add_losses(PacketLosses { sent: 1e5, lost: 1e3 }, 1000);
        assert!((0.009..0.011).contains(&known.path.loss));
        known.add_losses(PacketLosses { sent: 1e5, lost: 0.0 }, 1000 + 10 * 3600);
        assert!(known.path.loss < 0.001);
        known.add_losses(PacketLosses { sent: f64::MAX, lost: f64::MAX }, 50_000);
        assert!(known.path.loss <= 1.0);
    }

    #[test]
    fn a_short_measurement_keeps_the_rates() {
        let mut paths = RememberedPaths::default();
        known(&mut paths);
        paths.record_measurement(
            "a",
            &NetworkPath::assumed(Duration::ZERO, 5.0),
            false,
            PacketLosses::default(),
            2000,
        );
        let known = paths.get("a").unwrap();
        assert!(known.has_rates);
        assert_eq!(known.path.up.rate.to_bits(), 1e7_f64.to_bits());
    }
}
