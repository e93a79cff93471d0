//! Which channels bring wrong shares, and when they are no longer listened to.
//!
//! A channel with more than 16 shares at fault within 10 s is in quarantine for 60 s. Of u channels
//! that are up and a privacy floor of f, no more than (u - f + 1) / 2 are in quarantine at a time,
//! those that were first. That leaves f at least, and it is as many as can be named rightly if they
//! are all that lie. The others are heard, and what they spoil is found again at the price of a few joins;
//! where too many joins fail by that, their shares are left out as long as others are enough.

use std::time::Duration;

use crate::recv::bits::bits;

/// How many shares at fault are forgiven within [`WITHIN`].
const FORGIVEN: usize = 16;

/// How long a share at fault counts.
const WITHIN: Duration = Duration::from_secs(10);

/// How long a quarantine is.
const TERM: Duration = Duration::from_secs(60);

/// What is known against each channel. Sets of channels have bit i for channel i.
pub(crate) struct Blame {
    floor: u32,
    records: Vec<Record>,
    up: u16,
    excluded: u16,
    /// When the next quarantine ends.
    review_at: Duration,
}

#[derive(Clone, Default)]
struct Record {
    faults: u64,
    /// When the last of them were found: a ring.
    times: [Duration; FORGIVEN],
    /// Until when its quarantine is, if it is in one.
    until: Option<Duration>,
}

impl Blame {
    /// Nothing is known against so many channels yet, all of which are up.
    pub(crate) fn new(channels: usize, floor: u8) -> Self {
        Self {
            floor: u32::from(floor),
            records: vec![Record::default(); channels],
            up: u16::MAX >> (16 - channels),
            excluded: 0,
            review_at: Duration::MAX,
        }
    }

    /// The channels that are up and not in quarantine.
    pub(crate) fn heard(&self) -> u16 {
        self.up & !self.excluded
    }

    /// The channels in quarantine.
    pub(crate) fn excluded(&self) -> u16 {
        self.excluded
    }

    /// The channels that would be in quarantine if there were not too many already.
    pub(crate) fn suspects(&self) -> u16 {
        let records = self.records.iter().enumerate();
        let condemned = records.filter(|(_, record)| record.until.is_some());
        condemned.fold(0, |set, (channel, _)| set | 1 << channel) & !self.excluded
    }

    /// How many shares at fault a channel has brought.
    pub(crate) fn faults(&self, channel: usize) -> u64 {
        self.records[channel].faults
    }

    /// Says which channels are up.
    pub(crate) fn set_up(&mut self, up: u16) {
        self.up = up;
        self.review();
    }

    /// Ends the quarantines whose time it is.
    pub(crate) fn update(&mut self, now: Duration) {
        if now < self.review_at {
            return;
        }
        for record in &mut self.records {
            record.until = record.until.filter(|&until| now < until);
        }
        self.review();
    }

    /// A channel has brought a share at fault.
    pub(crate) fn fault(&mut self, channel: usize, now: Duration) {
        let record = &mut self.records[channel];
        #[expect(clippy::cast_possible_truncation, reason = "it is below the ring's length")]
        let place = (record.faults % FORGIVEN as u64) as usize;
        let is_full = record.faults >= FORGIVEN as u64;
        let before = std::mem::replace(&mut record.times[place], now);
        record.faults += 1;
        if is_full && now.saturating_sub(before) <= WITHIN && record.until.is_none() {
            record.until = Some(now.saturating_add(TERM));
            self.review();
        }
    }

    /// Decides who is in quarantine.
    fn review(&mut self) {
        let untils = self.records.iter().filter_map(|record| record.until);
        self.review_at = untils.min().unwrap_or(Duration::MAX);
        let up = self.up.count_ones();
        let most = up.saturating_sub(self.floor).div_ceil(2);
        let until = |channel: usize| self.records.get(channel)?.until;
        // One that is down does no good, and takes nobody's place.
        let down = bits(!self.up).filter(|&channel| until(channel).is_some());
        let mut excluded = down.fold(0, |set, channel| set | 1 << channel);
        for _ in 0..most {
            let up = bits(self.up & !excluded);
            let first = up.filter_map(|channel| Some((until(channel)?, channel))).min();
            let Some((_, channel)) = first else { break };
            excluded |= 1 << channel;
        }
        self.excluded = excluded;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn accuse(blame: &mut Blame, channel: usize, times: u32, now: Duration) {
        (0..times).for_each(|_| blame.fault(channel, now));
    }

    #[test]
    fn more_than_16_within_10_s_bring_a_minute_of_quarantine() {
        let mut blame = Blame::new(3, 2);
        accuse(&mut blame, 1, 1, SECOND);
        accuse(&mut blame, 1, 15, 5 * SECOND);
        // The first no longer counts.
        accuse(&mut blame, 1, 1, 11 * SECOND + Duration::from_nanos(1));
        assert_eq!(blame.excluded(), 0);
        accuse(&mut blame, 1, 1, 12 * SECOND);
        assert_eq!((blame.excluded(), blame.heard()), (0b010, 0b101));
        blame.update(71 * SECOND);
        assert_eq!(blame.excluded(), 0b010);
        blame.update(72 * SECOND);
        assert_eq!((blame.excluded(), blame.faults(1)), (0, 18));
    }

    #[test]
    fn no_more_are_in_quarantine_than_can_be_named_rightly() {
        // (n, f) and how many that is.
        for (n, floor, most) in [(1, 1, 0), (2, 1, 1), (2, 2, 0), (3, 2, 1), (5, 2, 2), (5, 3, 1)] {
            let mut blame = Blame::new(n, floor);
            for channel in 0..n {
                accuse(&mut blame, channel, 17, SECOND * (1 + u32::try_from(channel).unwrap()));
            }
            assert_eq!(blame.excluded(), (1 << most) - 1, "n = {n}, f = {floor}");
            assert!(blame.heard().count_ones() >= u32::from(floor));
        }
    }

    #[test]
    fn who_is_needed_is_heard_again() {
        let mut blame = Blame::new(3, 2);
        accuse(&mut blame, 0, 17, SECOND);
        assert_eq!(blame.heard(), 0b110);
        blame.set_up(0b011);
        assert_eq!((blame.excluded(), blame.heard()), (0, 0b011));
        blame.set_up(0b111);
        assert_eq!(blame.excluded(), 1);
        // One that is down takes no place, and stays where it is.
        blame.set_up(0b110);
        assert_eq!((blame.excluded(), blame.heard()), (0b001, 0b110));
        let mut blame = Blame::new(3, 1);
        accuse(&mut blame, 0, 17, SECOND);
        accuse(&mut blame, 1, 17, SECOND);
        blame.set_up(0b110);
        assert_eq!((blame.excluded(), blame.heard()), (0b011, 0b100));
    }
}
