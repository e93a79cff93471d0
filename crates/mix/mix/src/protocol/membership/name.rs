//! Names of members.

use std::fmt;

const MAX_CHARACTERS: usize = 32;

/// Greek and Cyrillic letters, in lower case, that look like a Latin letter or a digit in usual
/// fonts. Some look alike only as capitals.
#[rustfmt::skip]
const LOOKALIKES: [(char, char); 48] = [
    ('0', 'o'), ('1', 'l'), ('i', 'l'), ('\u{131}', 'l'),
    // Greek: alpha, beta, epsilon, zeta, eta, iota, kappa, mu, nu, omicron, rho, tau, upsilon, chi.
    ('\u{3b1}', 'a'), ('\u{3b2}', 'b'), ('\u{3b5}', 'e'), ('\u{3b6}', 'z'), ('\u{3b7}', 'h'),
    ('\u{3b9}', 'l'), ('\u{3ba}', 'k'), ('\u{3bc}', 'm'), ('\u{3bd}', 'v'), ('\u{3bf}', 'o'),
    ('\u{3c1}', 'p'), ('\u{3c4}', 't'), ('\u{3c5}', 'y'), ('\u{3c7}', 'x'),
    // Cyrillic, in the order of Unicode.
    ('\u{430}', 'a'), ('\u{432}', 'b'), ('\u{435}', 'e'), ('\u{437}', '3'), ('\u{43a}', 'k'),
    ('\u{43c}', 'm'), ('\u{43d}', 'h'), ('\u{43e}', 'o'), ('\u{440}', 'p'), ('\u{441}', 'c'),
    ('\u{442}', 't'), ('\u{443}', 'y'), ('\u{445}', 'x'), ('\u{450}', '\u{e8}'),
    ('\u{451}', '\u{eb}'), ('\u{455}', 's'), ('\u{456}', 'l'), ('\u{457}', '\u{ef}'),
    ('\u{458}', 'j'), ('\u{475}', 'v'), ('\u{4af}', 'y'), ('\u{4bb}', 'h'), ('\u{4cf}', 'l'),
    ('\u{501}', 'd'), ('\u{51b}', 'q'), ('\u{51d}', 'w'), ('\u{578}', 'n'), ('\u{57d}', 'u'),
    ('\u{581}', 'g'), ('\u{585}', 'o'),
];

/// The name of a member: 1 to 32 letters and digits of any script, and `-`, `_` and `.` between
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberName(String);

/// Why a string is not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberNameError {
    /// It is empty.
    #[error("a name has at least one letter")]
    Empty,
    /// It is too long.
    #[error("the name has {0} characters: take at most {MAX_CHARACTERS}")]
    TooLong(usize),
    /// It contains a character that is not allowed.
    #[error(
        "a name contains letters, digits and - _ . only, and not the character U+{:04X}",
        u32::from(*.0)
    )]
    Character(char),
    /// It begins or ends with a mark.
    #[error("a name begins and ends with a letter or a digit, not with {0}")]
    AtEnd(char),
}

impl MemberName {
    /// Checks a name.
    ///
    /// # Errors
    /// If it is not valid. Spaces, control characters, and characters that are invisible or change
    /// the writing direction are not allowed.
    pub fn new(text: &str) -> Result<Self, MemberNameError> {
        let is_mark = |character| matches!(character, '-' | '_' | '.');
        let count = text.chars().count();
        if count > MAX_CHARACTERS {
            return Err(MemberNameError::TooLong(count));
        }
        // Some letters are invisible: the Hangul fillers.
        let is_invisible =
            |letter| matches!(letter, '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}');
        let is_allowed = |character: char| {
            is_mark(character) || character.is_alphanumeric() && !is_invisible(character)
        };
        if let Some(other) = text.chars().find(|&character| !is_allowed(character)) {
            return Err(MemberNameError::Character(other));
        }
        let first = text.chars().next().ok_or(MemberNameError::Empty)?;
        let last = text.chars().next_back().ok_or(MemberNameError::Empty)?;
        match [first, last].into_iter().find(|&end| is_mark(end)) {
            Some(mark) => Err(MemberNameError::AtEnd(mark)),
            None => Ok(Self(text.to_owned())),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a person could confuse the two names: they differ only in capitals and in letters
    /// that look alike. A group cannot have two such names.
    pub fn clashes_with(&self, other: &Self) -> bool {
        folded(&self.0).eq(folded(&other.0))
    }
}

fn folded(name: &str) -> impl Iterator<Item = char> {
    let lower = name.chars().flat_map(char::to_lowercase);
    lower.map(|letter| {
        let like = LOOKALIKES.iter().find(|(lookalike, _)| *lookalike == letter);
        like.map_or(letter, |(_, like)| *like)
    })
}

impl fmt::Display for MemberName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_letters_of_any_script() {
        for text in ["a", "Bob", "anna-maria.k_2", "Zo\u{eb}", "\u{674e}", &"x".repeat(32)] {
            assert_eq!(MemberName::new(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn invalid_member_names_are_explained() {
        for (text, error) in [
            ("", MemberNameError::Empty),
            (&"x".repeat(33), MemberNameError::TooLong(33)),
            ("a b", MemberNameError::Character(' ')),
            ("a\u{7}b", MemberNameError::Character('\u{7}')),
            ("bob\u{200b}", MemberNameError::Character('\u{200b}')),
            ("\u{202e}bob", MemberNameError::Character('\u{202e}')),
            ("zoe\u{308}", MemberNameError::Character('\u{308}')),
            ("b\u{3164}ob", MemberNameError::Character('\u{3164}')),
            ("@bob", MemberNameError::Character('@')),
            ("bob.", MemberNameError::AtEnd('.')),
            ("-bob", MemberNameError::AtEnd('-')),
        ] {
            assert_eq!(MemberName::new(text), Err(error), "{text:?}");
        }
        let message = MemberName::new("bob\u{200b}").unwrap_err().to_string();
        assert!(message.ends_with("not the character U+200B"), "{message}");
    }

    #[test]
    fn names_that_look_alike_clash() {
        let clash =
            |one, two| MemberName::new(one).unwrap().clashes_with(&MemberName::new(two).unwrap());
        for (one, two) in [
            ("bob", "BOB"),
            ("Bill", "BiIl"),
            ("bob", "b0b"),
            ("paul", "\u{440}\u{430}u1"),
            ("\u{392}ob", "Bob"),
            ("\u{412}ob", "Bob"),
        ] {
            assert!(clash(one, two), "{one} and {two}");
        }
        assert!(!clash("bob", "rob"));
        assert!(!clash("zoe", "zo\u{eb}"));
    }
}
