//! Values as items: how values become equal that are written differently, and their digests.

use std::borrow::Cow;
use std::str::{Utf8Error, from_utf8};

use sha2::{Digest as _, Sha256};

/// A rule by which values that are written differently become equal. Spaces around a value are
/// removed before, except with [`Exact`](Self::Exact).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PsiNormalization {
    /// Values as they are, without the spaces around them.
    #[default]
    Trim,
    /// In small letters.
    Lower,
    /// An address of electronic mail: in small letters, without `mailto:`.
    Email,
    /// A telephone number: `+` and digits only, with `+` for a leading 00.
    Phone,
    /// Values as they are, with the spaces around them.
    Exact,
}

impl PsiNormalization {
    /// All rules.
    pub const ALL: [Self; 5] = [Self::Trim, Self::Lower, Self::Email, Self::Phone, Self::Exact];

    /// Its name in `--normalize`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trim => "trim",
            Self::Lower => "lower",
            Self::Email => "email",
            Self::Phone => "phone",
            Self::Exact => "exact",
        }
    }

    /// The text that is compared, of a value that is text.
    pub fn apply(self, value: &str) -> Cow<'_, str> {
        let trimmed = value.trim();
        match self {
            Self::Exact => Cow::Borrowed(value),
            Self::Trim => Cow::Borrowed(trimmed),
            Self::Lower => Cow::Owned(trimmed.to_lowercase()),
            Self::Email => {
                let lower = trimmed.to_lowercase();
                Cow::Owned(lower.strip_prefix("mailto:").unwrap_or(&lower).trim().to_owned())
            }
            Self::Phone => phone(trimmed),
        }
    }

    /// The bytes that are compared, of a value in UTF-8. With [`Exact`](Self::Exact) it may be any
    /// bytes.
    ///
    /// # Errors
    /// If the value is not in UTF-8.
    pub fn apply_to_bytes(self, value: &[u8]) -> Result<Cow<'_, [u8]>, Utf8Error> {
        if self == Self::Exact {
            return Ok(Cow::Borrowed(value));
        }
        Ok(match self.apply(from_utf8(value)?) {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        })
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

/// The value of several columns, to each of which its rule was applied: a row of CSV, with quotes
/// only around what needs them.
pub fn row_value<T: AsRef<str>>(columns: &[T]) -> String {
    let mut row = String::new();
    for (place, value) in columns.iter().map(AsRef::as_ref).enumerate() {
        if place > 0 {
            row.push(',');
        }
        if value.contains([',', '"', '\r', '\n']) {
            row.push('"');
            row.push_str(&value.replace('"', "\"\""));
            row.push('"');
        } else {
            row.push_str(value);
        }
    }
    row
}

/// The item of a value to which a rule was applied: the first half of a digest, as a number.
pub fn item(value: &[u8]) -> u128 {
    let digest = Sha256::new().chain_update(b"sunder psi 2").chain_update(value).finalize();
    digest.first_chunk().map_or(0, |first| u128::from_le_bytes(*first))
}

/// The [`comparison`](crate::PsiTerms::comparison) of values by these rules, one for each of the
/// columns of which a value consists.
pub fn comparison(rules: &[PsiNormalization]) -> [u8; 32] {
    let names: Vec<&str> = rules.iter().map(|rule| rule.name()).collect();
    Sha256::digest(names.join(",")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_equal_as_documented() {
        for (rule, value, expected) in [
            (PsiNormalization::Trim, "\u{a0} Ann B. \t", "Ann B."),
            (PsiNormalization::Lower, " ÄRGER ", "ärger"),
            (PsiNormalization::Email, " mailto:Ann@Example.COM", "ann@example.com"),
            (PsiNormalization::Phone, "+49 (30) 12-34/56.7", "+49301234567"),
            (PsiNormalization::Phone, "0049 30 1234567", "+49301234567"),
            (PsiNormalization::Phone, "030 1234567", "0301234567"),
            (PsiNormalization::Phone, "ask Ann", "ask Ann"),
            (PsiNormalization::Phone, "+ ", "+"),
            (PsiNormalization::Exact, " Ann ", " Ann "),
        ] {
            assert_eq!(rule.apply(value), expected);
            assert_eq!(rule.apply_to_bytes(value.as_bytes()).unwrap(), expected.as_bytes());
        }
    }

    #[test]
    fn values_of_several_columns_are_rows_of_csv() {
        for (columns, row) in [
            (["Ann", "30"], "Ann,30"),
            (["", "30"], ",30"),
            (["B., Ann", "a \"b\""], "\"B., Ann\",\"a \"\"b\"\"\""),
            (["two\nlines", " "], "\"two\nlines\", "),
        ] {
            assert_eq!(row_value(&columns), row);
        }
    }

    #[test]
    fn only_exact_values_may_be_any_bytes() {
        let value = [b' ', 0xFF];
        for rule in PsiNormalization::ALL {
            let applied = rule.apply_to_bytes(&value);
            assert_eq!(applied.is_ok(), rule == PsiNormalization::Exact, "{}", rule.name());
        }
        assert_eq!(*PsiNormalization::Exact.apply_to_bytes(&value).unwrap(), value);
    }
}
