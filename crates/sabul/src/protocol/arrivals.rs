//! How fast packets arrive and how fast the path could carry them, measured at the receiver (UDT,
//! Gu and Grossman 2007, section 3.3).

use std::collections::VecDeque;
use std::time::Duration;

/// The numbers of measurements of which the median counts.
const SPEEDS: usize = 16;
const CAPACITIES: usize = 64;

/// Measurements that differ from the median by more than this factor do not count.
const OUTLIER: u64 = 8;

/// The shortest time over which the speed is measured, and the longest gap between packets of one
/// burst.
const MIN_BURST: Duration = Duration::from_millis(1);
const MAX_GAP: Duration = Duration::from_millis(5);

/// A pair whose packets are handed over together says nothing.
const MIN_PAIR_GAP: Duration = Duration::from_nanos(500);

/// Every 16th packet and the one after it are sent without a gap.
const PAIR_PERIOD: u64 = 16;

/// Measurements of arriving packets.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// In packets/s.
    speeds: Samples<SPEEDS>,
    capacities: Samples<CAPACITIES>,
    /// The burst that is measured: the time of its first packet, and the packets after it.
    burst: Option<(Duration, u64)>,
    last: Duration,
    /// The first packet of a pair, and when it arrived.
    pair: Option<(u64, Duration)>,
}

/// Whether the packet after this one is sent without a gap.
pub(crate) fn begins_pair(wire: u32) -> bool {
    u64::from(wire).is_multiple_of(PAIR_PERIOD)
}

impl Arrivals {
    /// A packet has arrived, for the first time.
    pub(crate) fn add(&mut self, number: u64, now: Duration) {
        self.measure_speed(now);
        self.measure_pair(number, now);
    }

    /// In packets/s; 0 if unknown.
    pub(crate) fn speed(&self) -> u32 {
        self.speeds.typical()
    }

    /// In packets/s; 0 if unknown.
    pub(crate) fn capacity(&self) -> u32 {
        self.capacities.typical()
    }

    /// Packets are handed over in batches: so the speed is measured over bursts, not by gaps.
    fn measure_speed(&mut self, now: Duration) {
        let gap = now.saturating_sub(self.last);
        self.last = now;
        match self.burst {
            Some((start, packets)) if gap <= MAX_GAP => {
                let elapsed = now.saturating_sub(start);
                if elapsed >= MIN_BURST && gap > Duration::ZERO {
                    self.speeds.add(per_second(packets + 1, elapsed));
                    self.burst = Some((now, 0));
                } else {
                    self.burst = Some((start, packets + 1));
                }
            }
            _ => self.burst = Some((now, 0)),
        }
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
                self.capacities.add(per_second(1, gap));
            }
        }
    }
}

/// In packets/s.
fn per_second(packets: u64, time: Duration) -> u32 {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
    u32::try_from(packets.saturating_mul(1_000_000_000) / nanos).unwrap_or(u32::MAX)
}

/// The last measurements.
#[derive(Debug, Default)]
struct Samples<const COUNT: usize>(VecDeque<u32>);

impl<const COUNT: usize> Samples<COUNT> {
    fn add(&mut self, sample: u32) {
        if self.0.len() == COUNT {
            self.0.pop_front();
        }
        self.0.push_back(sample);
    }

    /// The mean of those near the median; 0 with less than half of the measurements.
    fn typical(&self) -> u32 {
        if self.0.len() < COUNT / 2 {
            return 0;
        }
        let mut sorted: Vec<_> = self.0.iter().map(|&sample| u64::from(sample)).collect();
        sorted.sort_unstable();
        let median = sorted[sorted.len() / 2];
        sorted.retain(|&sample| sample * OUTLIER > median && sample < median * OUTLIER);
        if sorted.is_empty() {
            return 0;
        }
        u32::try_from(sorted.iter().sum::<u64>() / sorted.len() as u64).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn speed_and_capacity_of_a_paced_stream() {
        let mut arrivals = Arrivals::default();
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
        let mut arrivals = Arrivals::default();
        // Bursts of 40 ms at 20,000 packets/s in batches of 20, with pauses of 60 ms.
        for number in 0..16_000_u64 {
            let (burst, batch) = (number / 800, number % 800 / 20);
            arrivals.add(number, micros(burst * 100_000 + batch * 1000));
        }
        assert!((18_000..=22_000).contains(&arrivals.speed()), "{}", arrivals.speed());
        assert_eq!(arrivals.capacity(), 0);
    }
}
