//! Rules by which values that are written differently become equal.

use std::borrow::Cow;

use clap::ValueEnum;

/// A rule. Spaces around a value are removed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum NormalizationRule {
    /// Values as they are, without the spaces around them
    Trim,
    /// In small letters
    Lower,
    /// An address of electronic mail: in small letters, without `mailto:`
    Email,
    /// A telephone number: `+` and digits only, with `+` for a leading 00
    Phone,
}

impl NormalizationRule {
    /// Its name in `--normalize`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Trim => "trim",
            Self::Lower => "lower",
            Self::Email => "email",
            Self::Phone => "phone",
        }
    }

    /// The value that is compared.
    pub(super) fn apply(self, value: &str) -> Cow<'_, str> {
        let value = value.trim();
        match self {
            Self::Trim => Cow::Borrowed(value),
            Self::Lower => Cow::Owned(value.to_lowercase()),
            Self::Email => {
                let lower = value.to_lowercase();
                Cow::Owned(lower.strip_prefix("mailto:").unwrap_or(&lower).trim().to_owned())
            }
            Self::Phone => phone(value),
        }
    }
}

/// A number as `+` and digits. What has other characters than numbers do is no number, and stays.
fn phone(value: &str) -> Cow<'_, str> {
    let (plus, rest) = match value.strip_prefix('+') {
        Some(rest) => (true, rest),
        None => (false, value),
    };
    let is_separator = |c: char| c.is_whitespace() || "-./()".contains(c);
    let digits: String = rest.chars().filter(|c| !is_separator(*c)).collect();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Cow::Borrowed(value);
    }
    Cow::Owned(match (plus, digits.strip_prefix("00")) {
        (true, _) => format!("+{digits}"),
        (false, Some(international)) => format!("+{international}"),
        (false, None) => digits,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_equal_as_documented() {
        for (rule, value, expected) in [
            (NormalizationRule::Trim, "\u{a0} Ann B. \t", "Ann B."),
            (NormalizationRule::Lower, " ÄRGER ", "ärger"),
            (NormalizationRule::Email, " mailto:Ann@Example.COM", "ann@example.com"),
            (NormalizationRule::Phone, "+49 (30) 12-34/56.7", "+49301234567"),
            (NormalizationRule::Phone, "0049 30 1234567", "+49301234567"),
            (NormalizationRule::Phone, "030 1234567", "0301234567"),
            (NormalizationRule::Phone, "ask Ann", "ask Ann"),
            (NormalizationRule::Phone, "+ ", "+"),
        ] {
            assert_eq!(rule.apply(value), expected);
        }
    }
}
