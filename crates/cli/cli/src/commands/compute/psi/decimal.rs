//! Decimal numbers, which are summed exactly.

/// A number: digits, and how many of them are decimal places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Decimal {
    digits: i64,
    places: u8,
}

impl Decimal {
    /// Parses digits with an optional sign and decimal point. An empty text is zero. `None` for
    /// anything else, and for more digits than an `i64` takes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() {
            return Some(Self::default());
        }
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || (whole.is_empty() && fraction.is_empty()) {
            return None;
        }
        let fraction = fraction.trim_end_matches('0');
        let sign = if text.starts_with('-') { "-" } else { "" };
        let digits = format!("{sign}0{whole}{fraction}").parse().ok()?;
        Some(Self { digits, places: fraction.len().try_into().ok()? })
    }

    /// How many decimal places it needs.
    pub(super) fn places(self) -> u8 {
        self.places
    }

    /// The number in units of a decimal place, at least [`Self::places`].
    pub(super) fn in_units_of(self, place: u8) -> Option<i64> {
        let factor = 10_i64.checked_pow(place.checked_sub(self.places)?.into())?;
        self.digits.checked_mul(factor)
    }
}

/// A number in units of a decimal place, as text.
pub(super) fn text(value: i64, decimals: u8) -> String {
    let sign = if value < 0 { "-" } else { "" };
    let decimals = usize::from(decimals);
    let digits = format!("{:0width$}", value.unsigned_abs(), width = decimals + 1);
    let (whole, fraction) = digits.split_at(digits.len() - decimals);
    if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_numbers_are_exact() {
        for (number, places, units) in [
            ("", 0, 0),
            (" 12 ", 0, 12),
            ("-0.50", 1, -5),
            ("+3.", 0, 3),
            (".125", 3, 125),
            ("12345.67", 2, 1_234_567),
        ] {
            let decimal = Decimal::parse(number).unwrap();
            assert_eq!((decimal.places(), decimal.in_units_of(places)), (places, Some(units)));
        }
        assert_eq!(Decimal::parse("1.5").unwrap().in_units_of(3), Some(1_500));
        assert_eq!(Decimal::parse("1.5").unwrap().in_units_of(0), None);
        for wrong in ["-", ".", "1e5", "1,5", "0x1", "1.2.3", "9999999999999999999", "--1"] {
            assert_eq!(Decimal::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sums_are_printed_with_their_decimal_places() {
        for (value, decimals, expected) in
            [(0, 0, "0"), (-5, 2, "-0.05"), (12_345, 2, "123.45"), (7, 0, "7"), (-120, 1, "-12.0")]
        {
            assert_eq!(text(value, decimals), expected);
        }
    }
}
