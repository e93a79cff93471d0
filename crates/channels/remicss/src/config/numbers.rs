//! Numbers within ranges.

use std::ops::RangeInclusive;

use service::config::ConfigValue;

/// A number in this range.
pub(super) fn number_in(value: &ConfigValue<'_>, range: RangeInclusive<f64>) -> Option<f64> {
    let found = value.number()?;
    if range.contains(&found) {
        return Some(found);
    }
    refuse_number(value, found, &format!("{} to {}", range.start(), range.end()))
}

/// Rejects a number. Returns `None`.
pub(super) fn refuse_number(value: &ConfigValue<'_>, found: f64, range: &str) -> Option<f64> {
    value.out_of_range(found, range);
    None
}
