//! Quotas: how much a channel may carry in a day or month, and what it has carried.
//!
//! Days and months are those of UTC. A clock that is behind does not begin an earlier period, so a
//! host whose clock is wrong after its start does not get a quota twice.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The part of a quota, in percent, from which on there are warnings.
pub const QUOTA_WARNING_PERCENT: u64 = 80;

/// The days of 400 years, after which the calendar repeats.
const CYCLE: u64 = 146_097;

/// The version of the file of usages.
const FILE_VERSION: u32 = 1;

/// What a channel may carry, in both directions together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelQuota {
    /// The bytes of IP packets.
    pub bytes: u64,
    /// In which time.
    pub period: QuotaPeriod,
}

/// The time after which a quota begins again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QuotaPeriod {
    /// A day.
    Day,
    /// A month of the calendar.
    #[default]
    Month,
}

/// What a channel has carried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelQuotaUsage {
    /// The day or month, as in 2026-11-29 or 2026-11.
    period: String,
    /// The bytes of IP packets in it, in both directions.
    used_bytes: u64,
    /// When the quota was used up, in seconds since 1970, if it is.
    used_up_at: Option<u64>,
}

/// A change of which people are informed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaChange {
    /// A part of the quota is used: [`QUOTA_WARNING_PERCENT`].
    NearlyUsedUp,
    /// All of it is used.
    UsedUp,
    /// It was used up, and is not any more.
    Available,
}

/// The content of the file that keeps usages over restarts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaFile {
    version: u32,
    /// By the channels' addresses and devices.
    channels: BTreeMap<String, ChannelQuotaUsage>,
}

impl QuotaPeriod {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// The period that includes this time, in seconds since 1970. Later periods of one kind are
    /// greater strings.
    fn at(self, unix_s: u64) -> String {
        let (year, month, day) = date(unix_s / 86_400);
        match self {
            Self::Day => format!("{year:04}-{month:02}-{day:02}"),
            Self::Month => format!("{year:04}-{month:02}"),
        }
    }
}

/// The year, month and day, from 1, of a number of days since 1970-01-01.
fn date(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970 + 400 * (days / CYCLE);
    days %= CYCLE;
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

impl ChannelQuotaUsage {
    /// Adds bytes that were carried, at this time in seconds since 1970. A new period begins with
    /// none.
    pub fn add(&mut self, quota: ChannelQuota, bytes: u64, unix_s: u64) -> Option<QuotaChange> {
        let was_used_up = self.used_up_at.is_some();
        let period = quota.period.at(unix_s);
        if period.len() != self.period.len() || period > self.period {
            *self = Self { period, ..Self::default() };
        }
        let was_nearly_used_up = is_nearly_used_up(self.used_bytes, quota.bytes);
        self.used_bytes = self.used_bytes.saturating_add(bytes);
        let is_used_up = self.is_used_up(quota);
        self.used_up_at = if is_used_up { self.used_up_at.or(Some(unix_s)) } else { None };
        let is_nearly_used_up = is_nearly_used_up(self.used_bytes, quota.bytes);
        match (was_used_up, is_used_up) {
            (false, true) => Some(QuotaChange::UsedUp),
            (true, false) => Some(QuotaChange::Available),
            (false, false) if is_nearly_used_up && !was_nearly_used_up => {
                Some(QuotaChange::NearlyUsedUp)
            }
            _ => None,
        }
    }

    /// The bytes of IP packets in the current period.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// When it was used up, in seconds since 1970, if it is.
    pub fn used_up_at(&self) -> Option<u64> {
        self.used_up_at
    }

    /// Whether nothing is left.
    pub fn is_used_up(&self, quota: ChannelQuota) -> bool {
        self.used_bytes >= quota.bytes
    }
}

/// Whether so much of a quota is used that people are warned.
pub fn is_nearly_used_up(used_bytes: u64, quota_bytes: u64) -> bool {
    u128::from(used_bytes) * 100 >= u128::from(quota_bytes) * u128::from(QUOTA_WARNING_PERCENT)
}

impl Default for QuotaFile {
    fn default() -> Self {
        Self { version: FILE_VERSION, channels: BTreeMap::new() }
    }
}

impl QuotaFile {
    /// Reads it from JSON.
    ///
    /// # Errors
    /// If the text is not such a file of this version: why, in one line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if file.version == FILE_VERSION {
            Ok(file)
        } else {
            Err(format!("its version is {}, and this is version {FILE_VERSION}", file.version))
        }
    }

    /// The JSON.
    ///
    /// # Panics
    /// Never: text and numbers can be written.
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).expect("text and numbers") + "\n"
    }

    /// The usage of a channel; a new one if it has none.
    pub fn channel(&mut self, name: &str) -> &mut ChannelQuotaUsage {
        self.channels.entry(name.to_owned()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    /// 2026-11-29, 12:00.
    const NOON: u64 = 1_795_953_600;

    fn quota(bytes: u64, period: QuotaPeriod) -> ChannelQuota {
        ChannelQuota { bytes, period }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        // As `date --utc --date @N +%F` prints.
        for (unix_s, expected) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_709_164_800, "2024-02-29"),
            (1_798_761_599, "2026-12-31"),
            (1_798_761_600, "2027-01-01"),
            (4_107_542_400, "2100-03-01"),
            (13_574_563_200, "2400-02-29"),
        ] {
            assert_eq!(QuotaPeriod::Day.at(unix_s), expected, "{unix_s}");
            assert_eq!(QuotaPeriod::Month.at(unix_s), expected[..7], "{unix_s}");
        }
    }

    #[test]
    fn a_quota_is_used_up_and_begins_again() {
        let (mut usage, day) = (ChannelQuotaUsage::default(), quota(1000, QuotaPeriod::Day));
        assert_eq!(usage.add(day, 799, NOON), None);
        assert_eq!(usage.add(day, 1, NOON + 1), Some(QuotaChange::NearlyUsedUp));
        assert_eq!(usage.add(day, 1, NOON + 2), None, "it is said once");
        assert_eq!(usage.add(day, 199, NOON + 3), Some(QuotaChange::UsedUp));
        assert_eq!(usage.add(day, 5, NOON + 4), None);
        assert_eq!((usage.used_up_at(), usage.used_bytes()), (Some(NOON + 3), 1005));
        assert_eq!(usage.add(day, 7, NOON + DAY), Some(QuotaChange::Available));
        assert_eq!((usage.used_up_at(), usage.used_bytes()), (None, 7));
    }

    #[test]
    fn a_months_quota_lasts_until_its_end() {
        let (mut usage, month) = (ChannelQuotaUsage::default(), quota(10, QuotaPeriod::Month));
        assert_eq!(usage.add(month, 10, NOON), Some(QuotaChange::UsedUp));
        assert_eq!(usage.add(month, 0, NOON + DAY), None, "the 30th");
        assert_eq!(usage.add(month, 0, NOON + 2 * DAY), Some(QuotaChange::Available));
    }

    #[test]
    fn a_clock_that_is_behind_frees_nothing() {
        let (mut usage, day) = (ChannelQuotaUsage::default(), quota(10, QuotaPeriod::Day));
        usage.add(day, 10, NOON);
        assert_eq!(usage.add(day, 1, 100), None, "1970");
        assert!(usage.is_used_up(day));
        assert_eq!(usage.used_bytes(), 11);
    }

    #[test]
    fn a_higher_quota_makes_the_channel_available() {
        let mut usage = ChannelQuotaUsage::default();
        usage.add(quota(10, QuotaPeriod::Month), 10, NOON);
        let more = quota(20, QuotaPeriod::Month);
        assert_eq!(usage.add(more, 0, NOON), Some(QuotaChange::Available));
        assert_eq!(usage.add(quota(10, QuotaPeriod::Month), 0, NOON), Some(QuotaChange::UsedUp));
        // Another period counts from now on.
        assert_eq!(usage.add(quota(10, QuotaPeriod::Day), 3, NOON), Some(QuotaChange::Available));
        assert_eq!(usage.used_bytes(), 3);
    }

    #[test]
    fn the_file_keeps_usages() {
        let mut file = QuotaFile::default();
        file.channel("192.0.2.1:6521 eth0").add(quota(10, QuotaPeriod::Month), 12, NOON);
        let mut read = QuotaFile::parse(&file.text()).unwrap();
        assert_eq!(read, file);
        assert_eq!(read.channel("192.0.2.1:6521 eth0").used_up_at(), Some(NOON));
        assert_eq!(read.channel("another").used_bytes(), 0);
        for wrong in ["", "{}", "{\"version\":1}", "{\"version\":2,\"channels\":{}}", "[]"] {
            QuotaFile::parse(wrong).unwrap_err();
        }
    }
}
