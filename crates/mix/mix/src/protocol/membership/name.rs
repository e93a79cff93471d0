//! Names of members.

use std::fmt;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;
use unicode_security::confusable_detection::skeleton;
use unicode_security::{GeneralSecurityProfile, MixedScript};

const MAX_CHARACTERS: usize = 32;
/// The maximum number of combining marks in a row (UTS 39, 5.4). More of them cover other lines.
const MAX_MARKS: usize = 4;

/// The name of a member: 1 to 32 letters and digits of any script, with their combining marks, and
/// `-`, `_` and `.` between them, in Unicode's normalisation form C. At most four marks follow each
/// other, and none twice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// It has too many combining marks in a row.
    #[error("a letter of a name has at most {MAX_MARKS} combining marks, and none twice in a row")]
    Marks,
    /// It has letters of scripts that are not written together.
    #[error("a name has letters of one script only: take another name")]
    MixedScripts,
    /// It has a character that no living language needs.
    #[error("the character U+{:04X} is not in ordinary use: take another name", u32::from(*.0))]
    Unusual(char),
}

impl MemberName {
    /// Checks a name, and normalises it.
    ///
    /// # Errors
    /// If it is not valid. Spaces, control characters, and characters that are invisible or change
    /// the writing direction are not allowed.
    pub fn new(text: &str) -> Result<Self, MemberNameError> {
        // A longer text need not be normalised. One character may have several marks.
        let count = text.chars().take(4 * MAX_CHARACTERS + 1).count();
        if count > 4 * MAX_CHARACTERS {
            return Err(MemberNameError::TooLong(text.chars().count()));
        }
        let name: String = text.nfc().collect();
        let count = name.chars().count();
        if count > MAX_CHARACTERS {
            return Err(MemberNameError::TooLong(count));
        }
        let mut before = None;
        for character in name.chars() {
            let is_after_letter = before.is_some_and(|before| !is_punctuation(before));
            let is_allowed = match character {
                _ if is_invisible(character) => false,
                _ if is_combining_mark(character) => is_after_letter,
                _ => is_punctuation(character) || character.is_alphanumeric(),
            };
            if !is_allowed {
                return Err(MemberNameError::Character(character));
            }
            before = Some(character);
        }
        if has_stacked_marks(&name) {
            return Err(MemberNameError::Marks);
        }
        let first = name.chars().next().ok_or(MemberNameError::Empty)?;
        let last = before.ok_or(MemberNameError::Empty)?;
        match [first, last].into_iter().find(|&end| is_punctuation(end)) {
            Some(mark) => Err(MemberNameError::AtEnd(mark)),
            None => Ok(Self(name)),
        }
    }

    /// Checks that a new name cannot be taken for one of another script: all its characters are in
    /// ordinary use, and of one script or of scripts that are written together (UTS 39, 3.1 and
    /// 5.1). It does not restrict the names that a group already has.
    ///
    /// # Errors
    /// If the name must not be given to a new member.
    pub fn check_scripts(&self) -> Result<(), MemberNameError> {
        let unusual =
            |&character: &char| !is_punctuation(character) && !character.identifier_allowed();
        match self.0.chars().find(unusual) {
            Some(character) => Err(MemberNameError::Unusual(character)),
            None if self.0.as_str().is_single_script() => Ok(()),
            None => Err(MemberNameError::MixedScripts),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a person could confuse the two names: they differ only in capitals and in letters
    /// that look alike (UTS 39, 4), as they are or as capitals or small letters. A group cannot
    /// have two such names.
    pub fn clashes_with(&self, other: &Self) -> bool {
        self.skeletons().clash_with(&other.skeletons())
    }

    /// What the name is compared by in [`Self::clashes_with`], to compare it with many names.
    pub(crate) fn skeletons(&self) -> NameSkeletons {
        let Self(name) = self;
        let forms = [name.clone(), name.to_lowercase(), name.to_uppercase()];
        NameSkeletons(forms.map(|form| folded_skeleton(&form)))
    }
}

/// The skeletons of a name: as it is, in small letters, and in capitals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameSkeletons([String; 3]);

impl NameSkeletons {
    /// See [`MemberName::clashes_with`].
    pub(crate) fn clash_with(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).any(|(one, other)| one == other)
    }
}

/// The skeleton of a text (UTS 39, 4), without capitals.
fn folded_skeleton(text: &str) -> String {
    let lower = skeleton(text).collect::<String>().to_lowercase();
    // The capital of i looks like a small l.
    lower.chars().map(|letter| if letter == 'i' { 'l' } else { letter }).collect()
}

/// Whether more than [`MAX_MARKS`] combining marks follow each other, or one follows itself (UTS
/// 39, 5.4). Letters are taken apart, because many contain marks.
fn has_stacked_marks(name: &str) -> bool {
    let (mut count, mut before) = (0, None);
    name.nfd().any(|character| {
        count = if is_combining_mark(character) { count + 1 } else { 0 };
        let is_twice = count > 1 && before == Some(character);
        before = Some(character);
        count > MAX_MARKS || is_twice
    })
}

fn is_punctuation(character: char) -> bool {
    matches!(character, '-' | '_' | '.')
}

/// Some letters and marks are invisible: the Hangul fillers, the joiner of graphemes, the selectors
/// of variants.
fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{34f}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}'
    )
}

impl fmt::Display for MemberName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_has_letters_of_any_script() {
        let names =
            ["a", "Bob", "anna-maria.k_2", "Zo\u{eb}", "\u{674e}", "हिन्दी", "משה", "ひろき"];
        for text in names.into_iter().chain([&*"x".repeat(32)]) {
            let name = MemberName::new(text).unwrap();
            assert_eq!((name.as_str(), name.check_scripts()), (text, Ok(())));
        }
        let marked = "z\u{300}\u{301}\u{300}\u{301}a\u{300}";
        assert!(MemberName::new(marked).is_ok(), "four marks in a row");
        let decomposed = MemberName::new("zoe\u{308}").unwrap();
        assert_eq!(decomposed.as_str(), "zo\u{eb}");
    }

    #[test]
    fn invalid_member_names_are_explained() {
        for (text, error) in [
            ("", MemberNameError::Empty),
            (&"x".repeat(33), MemberNameError::TooLong(33)),
            (&"x".repeat(1000), MemberNameError::TooLong(1000)),
            ("a b", MemberNameError::Character(' ')),
            ("a\u{7}b", MemberNameError::Character('\u{7}')),
            ("bob\u{200b}", MemberNameError::Character('\u{200b}')),
            ("\u{202e}bob", MemberNameError::Character('\u{202e}')),
            ("\u{308}zoe", MemberNameError::Character('\u{308}')),
            ("zoe-\u{308}", MemberNameError::Character('\u{308}')),
            ("bob\u{fe0f}", MemberNameError::Character('\u{fe0f}')),
            ("b\u{3164}ob", MemberNameError::Character('\u{3164}')),
            ("@bob", MemberNameError::Character('@')),
            ("z\u{300}\u{301}\u{300}\u{301}\u{300}", MemberNameError::Marks),
            ("z\u{301}\u{301}", MemberNameError::Marks),
            // The letter contains one of both.
            ("\u{e9}\u{301}", MemberNameError::Marks),
            ("bob.", MemberNameError::AtEnd('.')),
            ("-bob", MemberNameError::AtEnd('-')),
        ] {
            assert_eq!(MemberName::new(text), Err(error), "{text:?}");
        }
        let message = MemberName::new("bob\u{200b}").unwrap_err().to_string();
        assert!(message.ends_with("not the character U+200B"), "{message}");
    }

    #[test]
    fn a_new_name_is_of_one_script() {
        let check = |text| MemberName::new(text).unwrap().check_scripts();
        for mixed in ["b\u{43e}b", "p\u{3b1}ul", "bobहिन्दी"] {
            assert_eq!(check(mixed), Err(MemberNameError::MixedScripts), "{mixed}");
        }
        // Han, Hiragana and Katakana are written together.
        assert_eq!(check("山田たろう"), Ok(()));
        assert_eq!(check("\u{2c80}"), Err(MemberNameError::Unusual('\u{2c80}')));
    }

    #[test]
    fn names_that_look_alike_clash() {
        let clash =
            |one, two| MemberName::new(one).unwrap().clashes_with(&MemberName::new(two).unwrap());
        for (one, two) in [
            ("bob", "BOB"),
            ("bill", "BILL"),
            ("Bill", "BiIl"),
            ("bob", "b0b"),
            ("paul", "\u{440}\u{430}u1"),
            ("\u{392}ob", "Bob"),
            ("\u{412}ob", "Bob"),
            ("3eta", "\u{437}eta"),
            ("\u{3bd}era", "vera"),
            ("warner", "wamer"),
            ("zo\u{eb}", "zo\u{451}"),
        ] {
            assert!(clash(one, two), "{one} and {two}");
        }
        assert!(!clash("bob", "rob"));
        assert!(!clash("zoe", "zo\u{eb}"));
    }

    proptest! {
        #[test]
        fn a_name_is_normal_and_comes_back(text in "\\PC{0,40}") {
            if let Ok(name) = MemberName::new(&text) {
                prop_assert_eq!(MemberName::new(name.as_str()), Ok(name.clone()));
                prop_assert!(name.clashes_with(&name) && name.as_str().len() <= 128);
                let _ = name.check_scripts();
            }
        }
    }
}
