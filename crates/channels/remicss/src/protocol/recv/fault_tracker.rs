//! Tracks wrong shares by channel, and decides which channels are in quarantine.
//!
//! A channel with more than 16 shares at fault within 10 s is in quarantine for 60 s. With u
//! channels that are up and a privacy floor of f, at most (u - f + 1) / 2 channels are in
//! quarantine at a time, the earliest first. This leaves at least f channels, and is the number of
//! wrong channels that can be attributed correctly. The shares of further faulty channels are used.
//! Symbols that they spoil are recovered with a few more joins. If too many joins fail, shares of
//! these channels are left out as long as the others suffice.

use std::time::Duration;

use crate::protocol::recv::channel_bits::channels_in;

/// The number of wrong shares that are tolerated within [`FAULT_WINDOW`].
const MAX_FAULTS: usize = 16;

/// How long a wrong share counts.
const FAULT_WINDOW: Duration = Duration::from_secs(10);

/// The duration of a quarantine.
const QUARANTINE_TIME: Duration = Duration::from_secs(60);

/// The faults and quarantines of all channels. Sets of channels have bit i for channel i.
pub(crate) struct FaultTracker {
    floor: u32,
    records: Vec<ChannelFaultRecord>,
    up: u16,
    quarantined: u16,
    /// When the next quarantine ends.
    next_end: Duration,
}

#[derive(Clone, Default)]
struct ChannelFaultRecord {
    faults: u64,
    /// The times of the latest faults: a ring.
    times: [Duration; MAX_FAULTS],
    /// The end of its quarantine, if it is to be in one.
    quarantined_until: Option<Duration>,
}

impl FaultTracker {
    /// A tracker of channels without faults, all of which are up.
    pub(crate) fn new(channels: usize, floor: u8) -> Self {
        Self {
            floor: u32::from(floor),
            records: vec![ChannelFaultRecord::default(); channels],
            up: u16::MAX >> (16 - channels),
            quarantined: 0,
            next_end: Duration::MAX,
        }
    }

    /// The channels that are up and not in quarantine.
    pub(crate) fn active(&self) -> u16 {
        self.up & !self.quarantined
    }

    /// The channels in quarantine.
    pub(crate) fn quarantined(&self) -> u16 {
        self.quarantined
    }

    /// The channels that would be in quarantine if that were not limited.
    pub(crate) fn candidates(&self) -> u16 {
        let records = self.records.iter().enumerate();
        let condemned = records.filter(|(_, record)| record.quarantined_until.is_some());
        condemned.fold(0, |set, (channel, _)| set | 1 << channel) & !self.quarantined
    }

    /// The number of wrong shares on a channel.
    pub(crate) fn faults(&self, channel: usize) -> u64 {
        self.records[channel].faults
    }

    /// Sets the channels that are up.
    pub(crate) fn set_up(&mut self, up: u16) {
        self.up = up;
        self.update_quarantines();
    }

    /// Ends the quarantines that have expired.
    pub(crate) fn end_quarantines(&mut self, now: Duration) {
        if now < self.next_end {
            return;
        }
        for record in &mut self.records {
            record.quarantined_until =
                record.quarantined_until.filter(|&quarantined_until| now < quarantined_until);
        }
        self.update_quarantines();
    }

    /// Records a wrong share on a channel.
    pub(crate) fn record_fault(&mut self, channel: usize, now: Duration) {
        let record = &mut self.records[channel];
        #[expect(clippy::cast_possible_truncation, reason = "it is below the ring's length")]
        let place = (record.faults % MAX_FAULTS as u64) as usize;
        let is_full = record.faults >= MAX_FAULTS as u64;
        let before = std::mem::replace(&mut record.times[place], now);
        record.faults += 1;
        if is_full
            && now.saturating_sub(before) <= FAULT_WINDOW
            && record.quarantined_until.is_none()
        {
            record.quarantined_until = Some(now.saturating_add(QUARANTINE_TIME));
            self.update_quarantines();
        }
    }

    /// Decides which channels are in quarantine.
    fn update_quarantines(&mut self) {
        let ends = self.records.iter().filter_map(|record| record.quarantined_until);
        self.next_end = ends.min().unwrap_or(Duration::MAX);
        let up = self.up.count_ones();
        let most = up.saturating_sub(self.floor).div_ceil(2);
        let quarantined_until = |channel: usize| self.records.get(channel)?.quarantined_until;
        // A channel that is down does not count towards the limit.
        let down = channels_in(!self.up).filter(|&channel| quarantined_until(channel).is_some());
        let mut quarantined = down.fold(0, |set, channel| set | 1 << channel);
        for _ in 0..most {
            let up = channels_in(self.up & !quarantined);
            let first = up.filter_map(|channel| Some((quarantined_until(channel)?, channel))).min();
            let Some((_, channel)) = first else { break };
            quarantined |= 1 << channel;
        }
        self.quarantined = quarantined;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn record_faults(fault_tracker: &mut FaultTracker, channel: usize, times: u32, now: Duration) {
        (0..times).for_each(|_| fault_tracker.record_fault(channel, now));
    }

    #[test]
    fn more_than_16_within_10_s_bring_a_minute_of_quarantine() {
        let mut fault_tracker = FaultTracker::new(3, 2);
        record_faults(&mut fault_tracker, 1, 1, SECOND);
        record_faults(&mut fault_tracker, 1, 15, 5 * SECOND);
        // The first no longer counts.
        record_faults(&mut fault_tracker, 1, 1, 11 * SECOND + Duration::from_nanos(1));
        assert_eq!(fault_tracker.quarantined(), 0);
        record_faults(&mut fault_tracker, 1, 1, 12 * SECOND);
        assert_eq!((fault_tracker.quarantined(), fault_tracker.active()), (0b010, 0b101));
        fault_tracker.end_quarantines(71 * SECOND);
        assert_eq!(fault_tracker.quarantined(), 0b010);
        fault_tracker.end_quarantines(72 * SECOND);
        assert_eq!((fault_tracker.quarantined(), fault_tracker.faults(1)), (0, 18));
    }

    #[test]
    fn quarantines_are_limited_to_attributable_faults() {
        // (n, f) and how many that is.
        for (n, floor, most) in [(1, 1, 0), (2, 1, 1), (2, 2, 0), (3, 2, 1), (5, 2, 2), (5, 3, 1)] {
            let mut fault_tracker = FaultTracker::new(n, floor);
            for channel in 0..n {
                record_faults(
                    &mut fault_tracker,
                    channel,
                    17,
                    SECOND * (1 + u32::try_from(channel).unwrap()),
                );
            }
            assert_eq!(fault_tracker.quarantined(), (1 << most) - 1, "n = {n}, f = {floor}");
            assert!(fault_tracker.active().count_ones() >= u32::from(floor));
        }
    }

    #[test]
    fn a_needed_channel_leaves_quarantine() {
        let mut fault_tracker = FaultTracker::new(3, 2);
        record_faults(&mut fault_tracker, 0, 17, SECOND);
        assert_eq!(fault_tracker.active(), 0b110);
        fault_tracker.set_up(0b011);
        assert_eq!((fault_tracker.quarantined(), fault_tracker.active()), (0, 0b011));
        fault_tracker.set_up(0b111);
        assert_eq!(fault_tracker.quarantined(), 1);
        // One that is down takes no place, and stays where it is.
        fault_tracker.set_up(0b110);
        assert_eq!((fault_tracker.quarantined(), fault_tracker.active()), (0b001, 0b110));
        let mut fault_tracker = FaultTracker::new(3, 1);
        record_faults(&mut fault_tracker, 0, 17, SECOND);
        record_faults(&mut fault_tracker, 1, 17, SECOND);
        fault_tracker.set_up(0b110);
        assert_eq!((fault_tracker.quarantined(), fault_tracker.active()), (0b011, 0b100));
    }
}
