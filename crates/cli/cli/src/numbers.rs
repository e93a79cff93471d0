//! Formats numbers for people.

use indicatif::HumanCount;

/// Significant digits in reports.
const DIGITS: u8 = 4;

/// Significant digits of numbers that may be entered again.
const DIGITS_TO_TYPE: u8 = 6;

/// The maximum relative rounding error; no bound is checked more strictly.
const ROUNDING: f64 = 1e-9;

/// The range of numbers that are written without an exponent.
const WRITTEN_OUT: std::ops::Range<f64> = 1e-4..1e12;

/// A number with a few significant digits.
pub(crate) fn short(value: f64) -> String {
    digits(value, DIGITS)
}

/// A proportion in percent.
pub(crate) fn percent(proportion: f64) -> String {
    let percent = 100.0 * proportion;
    if percent > 0.0 && percent < 1e-4 {
        return format!("{} %", digits(percent, 2));
    }
    format!("{} %", short(percent))
}

/// A probability in the form "1 in N".
pub(crate) fn one_in(probability: f64) -> String {
    if probability <= 0.0 {
        return String::from("never");
    }
    let cases = 1.0 / probability;
    if (100.0..WRITTEN_OUT.end).contains(&cases) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in the range")]
        let cases = rounded(cases, DIGITS).round() as u64;
        return format!("1 in {}", HumanCount(cases));
    }
    format!("1 in {}", short(cases))
}

/// The value rounded up to a few digits, except for a rounding error.
pub(crate) fn rounded_up(value: f64) -> String {
    let near = rounded(value, DIGITS_TO_TYPE);
    if near >= value * (1.0 - ROUNDING) {
        return written(near);
    }
    written(rounded(value + half_a_digit(value), DIGITS_TO_TYPE))
}

/// The value rounded down to a few digits, except for a rounding error.
pub(crate) fn rounded_down(value: f64) -> String {
    let near = rounded(value, DIGITS_TO_TYPE);
    if near <= value * (1.0 + ROUNDING) {
        return written(near);
    }
    written(rounded(value - half_a_digit(value), DIGITS_TO_TYPE))
}

fn digits(value: f64, digits: u8) -> String {
    written(rounded(value, digits))
}

/// The nearest number with this many significant digits.
fn rounded(value: f64, digits: u8) -> f64 {
    format!("{value:.*e}", usize::from(digits) - 1).parse().unwrap_or(value)
}

/// Half a unit of the last of the digits to enter.
fn half_a_digit(value: f64) -> f64 {
    let last = value.abs().log10().floor() + 1.0 - f64::from(DIGITS_TO_TYPE);
    0.5 * 10_f64.powf(last)
}

fn written(value: f64) -> String {
    if value == 0.0 || WRITTEN_OUT.contains(&value.abs()) {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, expected) in [
            (0.0, "0"),
            (1.0, "1"),
            (250.0, "250"),
            (83.333_333, "83.33"),
            (1.999_999_999_7, "2"),
            (123_456.0, "123500"),
            (0.000_123_456, "0.0001235"),
            (0.000_012_345_6, "1.235e-5"),
            (1e-300, "1e-300"),
            (5e-324, "5e-324"),
            (1e15, "1e15"),
        ] {
            assert_eq!(short(value), expected);
        }
    }

    #[test]
    fn probabilities_are_formatted_as_one_in_n() {
        for (probability, expected) in [
            (0.0, "never"),
            (1.0, "1 in 1"),
            (0.3, "1 in 3.333"),
            (0.006, "1 in 167"),
            (0.000_081, "1 in 12,350"),
            (1e-9, "1 in 1,000,000,000"),
            (1e-20, "1 in 1e20"),
        ] {
            assert_eq!(one_in(probability), expected);
        }
    }

    #[test]
    fn rounded_bounds_are_still_met() {
        assert_eq!(rounded_up(0.012_345_612), "0.0123457");
        assert_eq!(rounded_down(83.333_333_3), "83.3333");
        assert_eq!(rounded_up(0.3), "0.3");
        assert_eq!(rounded_up(0.999_999_9), "1");
        assert_eq!(rounded_down(1.000_009), "1");
        assert_eq!(rounded_down(0.000_019_999_999), "1.99999e-5");
        assert_eq!(rounded_up(0.0), "0");
        assert_eq!(rounded_down(249.999_999_999_9), "250");
    }
}
