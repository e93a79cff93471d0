//! Measures at the receiver how fast packets arrive and how fast the path could carry them (UDT, Gu
//! and Grossman 2007, section 3.3).

use std::collections::VecDeque;
use std::time::Duration;

/// How many measurements are kept for the median, and how many are needed at least.
const SPEEDS: usize = 64;
const MIN_SPEEDS: usize = 8;
const CAPACITIES: usize = 64;
const MIN_CAPACITIES: usize = 4;

/// Measurements that differ from the median by more than this factor are ignored.
const OUTLIER: u64 = 8;

/// A pair with a shorter gap is ignored: its packets were handed over together.
const MIN_PAIR_GAP: Duration = Duration::from_nanos(500);

/// Every 16th packet and the one after it are sent without a gap.
const PAIR_PERIOD: u64 = 16;

/// Measures arriving packets.
#[derive(Debug, Default)]
pub(crate) struct SabulArrivalMeter {
    /// In packets/s, with the number of packets.
    speeds: VecDeque<(u32, u32)>,
    /// In packets/s.
    capacities: VecDeque<u32>,
    /// When the last packets arrived, how many arrived then, and the time since the packets before.
    last: Duration,
    packets: u32,
    gap: Duration,
    /// The first packet of a pair, and when it arrived.
    pair: Option<(u64, Duration)>,
}

/// Whether the packet after this one is sent without a gap.
pub(crate) fn begins_pair(wire: u32) -> bool {
    u64::from(wire).is_multiple_of(PAIR_PERIOD)
}

impl SabulArrivalMeter {
    /// Records the first arrival of a packet.
    pub(crate) fn add(&mut self, number: u64, now: Duration) {
        self.measure_speed(now);
        self.measure_pair(number, now);
    }

    /// The arrival speed in packets/s while packets arrive, as a median over packets; 0 if unknown.
    pub(crate) fn speed(&self) -> u32 {
        if self.speeds.len() < MIN_SPEEDS {
            return 0;
        }
        let mut sorted: Vec<_> = self.speeds.iter().copied().collect();
        sorted.sort_unstable();
        let half = sorted.iter().map(|(_, packets)| u64::from(*packets)).sum::<u64>() / 2;
        let mut counted = 0;
        let median = sorted.iter().find(|(_, packets)| {
            counted += u64::from(*packets);
            counted > half
        });
        median.map_or(0, |(speed, _)| *speed)
    }

    /// The capacity of the path in packets/s; 0 if unknown.
    pub(crate) fn capacity(&self) -> u32 {
        if self.capacities.len() < MIN_CAPACITIES { 0 } else { trimmed_mean(&self.capacities) }
    }

    /// Measures each batch against the batch before, because packets are handed over in batches.
    fn measure_speed(&mut self, now: Duration) {
        let gap = now.saturating_sub(self.last);
        if gap == Duration::ZERO {
            self.packets = self.packets.saturating_add(1);
            return;
        }
        if self.gap > Duration::ZERO {
            let speed = per_second(self.packets.into(), self.gap);
            push(&mut self.speeds, SPEEDS, (speed, self.packets));
        }
        (self.gap, self.packets) = (if self.last == Duration::ZERO { self.last } else { gap }, 1);
        self.last = now;
    }

    fn measure_pair(&mut self, number: u64, now: Duration) {
        let pair = self.pair.take();
        if number.is_multiple_of(PAIR_PERIOD) {
            self.pair = Some((number, now));
        } else if let Some((first, at)) = pair
            && number == first + 1
        {
            let gap = now.saturating_sub(at);
            if gap >= MIN_PAIR_GAP {
                push(&mut self.capacities, CAPACITIES, per_second(1, gap));
            }
        }
    }
}

/// In packets/s.
fn per_second(packets: u64, time: Duration) -> u32 {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
    u32::try_from(packets.saturating_mul(1_000_000_000) / nanos).unwrap_or(u32::MAX)
}

/// Adds a measurement, and keeps the last `count` ones.
fn push<T>(samples: &mut VecDeque<T>, count: usize, sample: T) {
    if samples.len() == count {
        samples.pop_front();
    }
    samples.push_back(sample);
}

/// The mean of the measurements near the median; 0 if there are none.
fn trimmed_mean(samples: &VecDeque<u32>) -> u32 {
    let mut sorted: Vec<_> = samples.iter().map(|&sample| u64::from(sample)).collect();
    sorted.sort_unstable();
    let Some(&median) = sorted.get(sorted.len() / 2) else { return 0 };
    sorted.retain(|&sample| sample * OUTLIER > median && sample < median * OUTLIER);
    let count = sorted.len().max(1) as u64;
    u32::try_from(sorted.iter().sum::<u64>() / count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn speed_and_capacity_of_a_paced_stream() {
        let mut arrivals = SabulArrivalMeter::default();
        // 10,000 packets/s; the second packet of each pair 20 µs after the first.
        for number in 0..2000_u64 {
            let at = if number % 16 == 1 { (number - 1) * 100 + 20 } else { number * 100 };
            arrivals.add(number, micros(at));
        }
        assert!((9_500..=10_500).contains(&arrivals.speed()), "{}", arrivals.speed());
        assert_eq!(arrivals.capacity(), 50_000);
    }

    #[test]
    fn pauses_and_batches_do_not_count() {
        let mut arrivals = SabulArrivalMeter::default();
        // Bursts of 40 ms at 20,000 packets/s in batches of 20, with pauses of 60 ms.
        for number in 0..16_000_u64 {
            let (burst, batch) = (number / 800, number % 800 / 20);
            arrivals.add(number, micros(burst * 100_000 + batch * 1000));
        }
        assert!((18_000..=22_000).contains(&arrivals.speed()), "{}", arrivals.speed());
        assert_eq!(arrivals.capacity(), 0);
    }
}
