//! Estimates the rate of a path from a packet train: packets that are sent back to back arrive as
//! fast as the slowest link transmits them.
//!
//! Most errors of arrival times have the same sign: a packet is recorded too late, because
//! interrupts, GRO or a link that forwards in batches deliver several packets at once, or because a
//! thread was not running. So the estimate is a line that touches the arrival times, as a function
//! of the bytes before, from below, at points far apart. In each batch only the last packet counts,
//! and late packets do not. If the end itself is late, the rate is at most 1.25 times that of the
//! whole train. Competing packets between those of the train do count, as they delay all later
//! packets.
//!
//! ```
//! use std::time::Duration;
//! use sunder_burst::train::PacketTrain;
//!
//! // 64 packets of 1,250 bytes over 100 Mbit/s, noted in batches of four.
//! let mut train = PacketTrain::new();
//! for position in 0..64 {
//!     let at = Duration::from_micros(100 * (4 + u64::from(position / 4) * 4));
//!     train.add(position, at, 1250);
//! }
//! let estimate = train.estimate().expect("there are several batches");
//! assert!((estimate.rate - 12.5e6).abs() < 1.0);
//! ```

use std::time::Duration;

/// The longest train: packets at later positions are ignored.
pub const MAX_TRAIN: u32 = 256;

/// The smallest number of packets for an estimate.
const MIN_PACKETS: usize = 4;

/// The largest ratio of the estimate to the rate of the whole train.
const MAX_EXCESS: f64 = 1.25;

/// How much more a packet recorded too early weighs than one recorded too late.
const EARLY_ARRIVAL_WEIGHT: f64 = 8.0;

/// An estimate of the rate of the path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainRateEstimate {
    /// In bytes/s, of all bytes passed to [`PacketTrain::add`].
    pub rate: f64,
    /// The bounds of the rate, if the errors of the first and of the last time are at most the mean
    /// error. `high` is infinite if the train was no longer than such errors.
    pub low: f64,
    /// See `low`.
    pub high: f64,
}

/// The arrivals of the packets of a train.
#[derive(Clone, Debug, Default)]
pub struct PacketTrain {
    arrivals: Vec<TrainPacketArrival>,
}

#[derive(Clone, Copy, Debug)]
struct TrainPacketArrival {
    position: u32,
    at: Duration,
    bytes: u32,
}

/// A packet: the bytes that have arrived up to and including it, and the time since the first
/// packet, in s.
#[derive(Clone, Copy, Debug)]
struct TrainArrivalPoint {
    bytes: f64,
    time: f64,
}

impl PacketTrain {
    /// A train of which nothing has arrived.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a packet: its position in the train, its arrival time, and its length in bytes. Packets
    /// may be missing or reordered; duplicates are ignored.
    pub fn add(&mut self, position: u32, at: Duration, bytes: usize) {
        let is_known = self.arrivals.iter().any(|arrival| arrival.position == position);
        if position < MAX_TRAIN && !is_known {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            self.arrivals.push(TrainPacketArrival { position, at, bytes });
        }
    }

    /// How many packets have arrived.
    pub fn packets(&self) -> usize {
        self.arrivals.len()
    }

    /// The estimate; `None` with fewer than four packets, or if all arrived at once.
    pub fn estimate(&self) -> Option<TrainRateEstimate> {
        let points = self.points();
        if points.len() < MIN_PACKETS {
            return None;
        }
        let hull = hull(&points);
        let total = points.last()?.bytes - points.first()?.bytes;
        let mut best: Option<(f64, TrainArrivalPoint)> = None;
        for (i, from) in hull.iter().enumerate() {
            for to in hull[i + 1..].iter().filter(|to| to.bytes - from.bytes >= 0.5 * total) {
                let slope =
                    TrainArrivalPoint { bytes: to.bytes - from.bytes, time: to.time - from.time };
                let off = |point: &TrainArrivalPoint| {
                    let line = slope.time / slope.bytes * (point.bytes - from.bytes);
                    let late = point.time - from.time - line;
                    if late < 0.0 { -EARLY_ARRIVAL_WEIGHT * late } else { late }
                };
                let error = points.iter().map(off).sum::<f64>() / count(points.len());
                if best.is_none_or(|(least, _)| error < least) {
                    best = Some((error, slope));
                }
            }
        }
        let (error, slope) = best.filter(|(_, slope)| slope.time > 0.0)?;
        let shortest = slope.time - 2.0 * error;
        // If the end is late, the packets before it may have waited too, and then arrived at once.
        let whole = whole_train_rate(&points);
        let rate = (slope.bytes / slope.time).min(MAX_EXCESS * whole);
        Some(TrainRateEstimate {
            rate,
            low: (slope.bytes / (slope.time + 2.0 * error)).min(whole).min(rate),
            high: if shortest > 0.0 { slope.bytes / shortest } else { f64::INFINITY },
        })
    }

    /// The packets in order of arrival; those with equal times in the order of the train.
    fn points(&self) -> Vec<TrainArrivalPoint> {
        let mut arrivals = self.arrivals.clone();
        arrivals.sort_unstable_by_key(|arrival| (arrival.at, arrival.position));
        let first = arrivals.first().map_or(Duration::ZERO, |arrival| arrival.at);
        let mut bytes = 0.0;
        let point = |arrival: &TrainPacketArrival| {
            bytes += f64::from(arrival.bytes);
            TrainArrivalPoint { bytes, time: arrival.at.saturating_sub(first).as_secs_f64() }
        };
        arrivals.iter().map(point).collect()
    }
}

/// The rate of the whole train after its first batch. Infinite if there is only one batch.
fn whole_train_rate(points: &[TrainArrivalPoint]) -> f64 {
    let first = points.iter().take_while(|point| point.time <= 0.0).last();
    first.zip(points.last()).map_or(f64::INFINITY, |(first, last)| {
        if last.time > 0.0 { (last.bytes - first.bytes) / last.time } else { f64::INFINITY }
    })
}

/// The lower convex hull of the points.
fn hull(points: &[TrainArrivalPoint]) -> Vec<TrainArrivalPoint> {
    let mut hull: Vec<TrainArrivalPoint> = Vec::new();
    for &point in points {
        while let [.., a, b] = hull[..] {
            let is_below = (b.time - a.time) * (point.bytes - a.bytes)
                < (point.time - a.time) * (b.bytes - a.bytes);
            if is_below {
                break;
            }
            hull.pop();
        }
        hull.push(point);
    }
    hull
}

#[allow(clippy::cast_precision_loss, reason = "a number of packets")]
fn count(packets: usize) -> f64 {
    packets as f64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::cast_precision_loss, reason = "small numbers")]

    use proptest::prelude::*;

    use super::*;

    const LEN: usize = 1260;

    /// The train of the handshake: every eighth packet is longer.
    fn len(position: u32) -> usize {
        if position % 8 == 7 { 1500 } else { LEN }
    }

    /// When each of `packets` has been transmitted at a rate in bytes/s, in s.
    fn transmitted(rate: f64, packets: u32) -> Vec<f64> {
        let mut bytes = 0;
        (0..packets)
            .map(|position| {
                bytes += len(position);
                1.0 + bytes as f64 / rate
            })
            .collect()
    }

    fn train(times: &[f64]) -> PacketTrain {
        let mut train = PacketTrain::new();
        for (position, &time) in (0..).zip(times) {
            if time.is_finite() {
                train.add(position, Duration::from_secs_f64(time), len(position));
            }
        }
        train
    }

    #[track_caller]
    fn assert_near(estimate: Option<TrainRateEstimate>, rate: f64, error: f64) {
        let estimate = estimate.expect("an estimate");
        let off = estimate.rate / rate - 1.0;
        assert!(off.abs() <= error, "{:.2} % off, {estimate:?}", 100.0 * off);
        assert!(estimate.low <= estimate.rate && estimate.rate <= estimate.high, "{estimate:?}");
    }

    #[test]
    fn exact_times_give_the_exact_rate() {
        for rate in [1e4, 1.25e6, 25e6, 125e6, 1.25e9] {
            for packets in [4, 16, 64, 256] {
                assert_near(train(&transmitted(rate, packets)).estimate(), rate, 0.002);
            }
        }
    }

    #[test]
    fn too_few_packets_give_nothing() {
        assert_eq!(PacketTrain::new().estimate(), None);
        assert_eq!(train(&transmitted(1e6, 3)).estimate(), None);
        // All at once.
        assert_eq!(train(&[1.0; 64]).estimate(), None);
    }

    #[test]
    fn duplicates_and_other_positions_do_not_count() {
        let times = transmitted(1e6, 64);
        let mut with = train(&times);
        for position in [0, 5, 63, MAX_TRAIN, u32::MAX] {
            with.add(position, Duration::from_secs(9), 1_000_000);
        }
        assert_eq!(with.estimate(), train(&times).estimate());
        assert_eq!(with.packets(), 64);
    }

    proptest! {
        /// Batches: each packet is noted when the last one of its batch has arrived, and the last
        /// batch when a timer ends.
        #[test]
        fn batches_do_not_matter(mbit in 1.0..2000.0_f64, batch in 1..16_usize,
                                 late in 0.0..1.0_f64) {
            let rate = mbit * 125e3;
            let exact = transmitted(rate, 64);
            let mut times: Vec<f64> = exact
                .chunks(batch)
                .flat_map(|batch| vec![batch[batch.len() - 1]; batch.len()])
                .collect();
            let first_of_last = 63 / batch * batch;
            for time in &mut times[first_of_last..] {
                *time += late * (batch - 1) as f64 * LEN as f64 / rate;
            }
            let estimate = train(&times).estimate().expect("four batches at least");
            prop_assert!((estimate.rate / rate - 1.0).abs() < 0.01 + 0.5 * batch as f64 / 64.0,
                         "{:?} of {}", estimate, rate);
            prop_assert!(estimate.low <= rate * 1.01 && rate <= estimate.high * 1.01);
        }

        /// Interrupts at fixed intervals note what has arrived since the last one.
        #[test]
        fn interrupts_at_intervals(mbit in 1.0..1000.0_f64, interval_us in 1.0..100.0_f64,
                                   phase in 0.0..1.0_f64) {
            let rate = mbit * 125e3;
            let interval = interval_us * 1e-6;
            let exact = transmitted(rate, 64);
            let times: Vec<f64> = exact
                .iter()
                .map(|time| ((time / interval + phase).ceil() - phase) * interval)
                .collect();
            let span = exact[63] - exact[0];
            let estimate = train(&times).estimate().expect("several interrupts");
            prop_assert!((estimate.rate / rate - 1.0).abs() < 0.01 + 2.0 * interval / span,
                         "{:?} of {}", estimate, rate);
        }

        /// A thread that does not run for a while notes many packets late, once or more often.
        #[test]
        fn late_packets(mbit in 1.0..1000.0_f64, pauses in prop::collection::vec(
                        (1..60_usize, 1..20_usize), 0..3)) {
            let rate = mbit * 125e3;
            let mut times = transmitted(rate, 64);
            let exact = times.clone();
            for (from, packets) in pauses {
                let until = (from + packets).min(63);
                for time in &mut times[from..until] {
                    *time = time.max(exact[until]);
                }
            }
            assert_near(train(&times).estimate(), rate, 0.02);
        }

        /// If it is the end that is late, and much of the train with it, the estimate is not far
        /// too high.
        #[test]
        fn a_late_end(mbit in 10.0..1000.0_f64, from in 0..50_usize, pause in 1.0..3.0_f64) {
            let rate = mbit * 125e3;
            let mut times = transmitted(rate, 64);
            let late = times[63] + (pause - 1.0) * (times[63] - times[0]);
            for time in &mut times[from + 1..] {
                *time = late;
            }
            let estimate = train(&times).estimate().expect("two times");
            prop_assert!(estimate.rate <= 1.3 * rate, "{:?} of {}", estimate, rate);
            prop_assert!(estimate.rate >= 0.2 * rate, "{:?} of {}", estimate, rate);
        }

        /// Some packets are lost, in the middle or at the ends.
        #[test]
        fn losses(mbit in 1.0..1000.0_f64, lost in prop::collection::btree_set(0..64_usize, 0..8)) {
            let rate = mbit * 125e3;
            let mut times = transmitted(rate, 64);
            for &position in &lost {
                times[position] = f64::NAN;
            }
            // What was lost has taken time too.
            assert_near(train(&times).estimate(), rate, 0.01 + 2.0 * lost.len() as f64 / 64.0);
        }

        /// A coarse clock.
        #[test]
        fn coarse_clocks(mbit in 1.0..100.0_f64, tick_us in 1.0..200.0_f64) {
            let rate = mbit * 125e3;
            let exact = transmitted(rate, 64);
            let tick = tick_us * 1e-6;
            let times: Vec<f64> = exact.iter().map(|time| (time / tick).floor() * tick).collect();
            let span = exact[63] - exact[0];
            assert_near(train(&times).estimate(), rate, 0.01 + 2.0 * tick / span);
        }

        /// Competing packets take their part of the time: the estimate lies between the rate that
        /// they leave and the path's.
        #[test]
        fn competing_packets(mbit in 10.0..1000.0_f64, part in 0.0..0.5_f64, seed in any::<u64>()) {
            let rate = mbit * 125e3;
            let mut random = sim::SeededRng::new(seed);
            let mut at = 1.0;
            let times: Vec<f64> = (0..64)
                .map(|position| {
                    at += len(position) as f64 / rate;
                    // As many bytes of others as make this part of all.
                    while random.below(1_000_000) as f64 / 1e6 < part {
                        at += LEN as f64 / rate;
                    }
                    at
                })
                .collect();
            let estimate = train(&times).estimate().expect("64 packets");
            prop_assert!(estimate.rate <= 1.01 * rate, "{:?} of {}", estimate, rate);
            prop_assert!(estimate.rate >= 0.5 * (1.0 - part) * rate, "{:?} of {}", estimate, rate);
        }

        /// Any times give an estimate that is a number, or none.
        #[test]
        fn any_times(times in prop::collection::vec((0..300_u32, any::<u32>(), 0..70_000_usize), 0..300)) {
            let mut train = PacketTrain::new();
            for (position, at, bytes) in times {
                train.add(position, Duration::from_nanos(u64::from(at) << 8), bytes);
            }
            if let Some(TrainRateEstimate { rate, low, high }) = train.estimate() {
                prop_assert!(rate.is_finite() && rate >= 0.0 && low <= rate && rate <= high);
            }
        }
    }
}
