//! Encodes bytes as text that a person can copy: groups of eight characters, each with a check
//! character, so that an error message can name the mistyped group.
//!
//! Crockford's base 32, in lower case. The last character of a group is the sum of the other seven,
//! multiplied with seven different powers of a generator of GF(2^5), and of the group's number: one
//! wrong character in a group, two that are exchanged, and a group at another place are noticed.

use zeroize::Zeroizing;

/// The prefix of a code.
pub(super) const PREFIX: &str = "sunder-mix-2-";
/// The prefix of codes of all versions.
const ANY_VERSION: &str = "sunder-mix-";
/// The index of a character is its value.
pub(super) const ALPHABET: &str = "0123456789abcdefghjkmnpqrstvwxyz";
const DATA: usize = 7;
const GROUP: usize = DATA + 1;
/// Longer than any invitation.
const MAX_TEXT_LEN: usize = 4096;

/// Why a string is not an invitation code.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvitationCodeError {
    /// It does not begin with the prefix.
    #[error("this is no invitation: one begins with {PREFIX}")]
    Prefix,
    /// It is of another version.
    #[error("this invitation is of another version of the program: one begins with {PREFIX}")]
    Version,
    /// It is longer than any invitation.
    #[error("this is no invitation: it is too long")]
    TooLong,
    /// A group contains an invalid character.
    #[error("group {number} of the invitation, {text:?}, contains {character:?}: none does")]
    Character {
        /// The number of the group, from 1.
        number: usize,
        /// The group.
        text: String,
        /// The character.
        character: char,
    },
    /// A group has the wrong length.
    #[error("group {number} of the invitation, {text:?}, must have {GROUP} characters")]
    Length {
        /// The number of the group, from 1.
        number: usize,
        /// The group.
        text: String,
    },
    /// The check character of a group is wrong.
    #[error("group {number} of the invitation, {text:?}, is mistyped or at the wrong place")]
    Mistyped {
        /// The number of the group, from 1.
        number: usize,
        /// The group.
        text: String,
    },
}

/// Encodes bytes as text.
pub(super) fn encode(bytes: &[u8]) -> Zeroizing<String> {
    let count = (8 * bytes.len()).div_ceil(5);
    // Allocated at once, because a growing string leaves copies.
    let mut text = Zeroizing::new(String::with_capacity(PREFIX.len() + 2 * count + 2 * GROUP));
    text.push_str(PREFIX);
    for number in 0..count.div_ceil(DATA) {
        if number > 0 {
            text.push('-');
        }
        let digits = std::array::from_fn(|at| digit_of(bytes, number * DATA + at));
        digits.iter().chain([&check(number, digits)]).for_each(|&digit| text.push(letter(digit)));
    }
    text
}

/// Decodes a text. Up to four zeros follow the bytes.
pub(super) fn decode(text: &str) -> Result<Zeroizing<Vec<u8>>, InvitationCodeError> {
    if text.len() > MAX_TEXT_LEN {
        return Err(InvitationCodeError::TooLong);
    }
    let text = Zeroizing::new(
        text.chars().filter(|one| !one.is_whitespace()).collect::<String>().to_ascii_lowercase(),
    );
    let groups = text.strip_prefix(PREFIX).ok_or_else(|| {
        if text.starts_with(ANY_VERSION) {
            InvitationCodeError::Version
        } else {
            InvitationCodeError::Prefix
        }
    })?;
    let mut bits = InvitationCodeBits {
        bytes: Zeroizing::new(Vec::with_capacity(groups.len())),
        held: 0,
        count: 0,
    };
    for (index, group) in split(groups).into_iter().enumerate() {
        let digits = decode_group(index, group)?;
        for digit in digits {
            bits.push(digit);
        }
    }
    Ok(bits.bytes)
}

/// The groups: between hyphens, or of eight characters if there are none.
fn split(text: &str) -> Vec<&str> {
    if text.contains('-') || !text.is_ascii() {
        return text.split('-').collect();
    }
    (0..text.len()).step_by(GROUP).map(|at| &text[at..text.len().min(at + GROUP)]).collect()
}

/// The seven data digits of a group, if its check character is right.
fn decode_group(index: usize, group: &str) -> Result<[u8; DATA], InvitationCodeError> {
    let (number, text) = (index + 1, || group.to_owned());
    let mut digits = Zeroizing::new([0; GROUP]);
    if let Some(character) = group.chars().find(|&one| value(one).is_none()) {
        return Err(InvitationCodeError::Character { number, text: text(), character });
    }
    if group.len() != GROUP {
        return Err(InvitationCodeError::Length { number, text: text() });
    }
    digits.iter_mut().zip(group.chars()).for_each(|(digit, one)| *digit = value(one).unwrap_or(0));
    let (data, last) = digits.split_first_chunk::<DATA>().expect("a group has a check after them");
    if last != [check(index, *data)] {
        return Err(InvitationCodeError::Mistyped { number, text: text() });
    }
    Ok(*data)
}

fn check(index: usize, digits: [u8; DATA]) -> u8 {
    let place = u8::try_from(index % 32).expect("less than 32");
    // Horner's rule: the first digit is multiplied most often.
    double(digits.iter().fold(0, |sum, digit| double(sum) ^ digit)) ^ place
}

/// Multiplies by x in GF(2)[x] modulo x^5 + x^2 + 1, of which x is a generator.
fn double(element: u8) -> u8 {
    (element << 1) ^ ((element >> 4) * 0b10_0101)
}

fn letter(digit: u8) -> char {
    char::from(ALPHABET.as_bytes()[usize::from(digit)])
}

fn value(letter: char) -> Option<u8> {
    let letter = match letter {
        'o' => '0',
        'i' | 'l' => '1',
        other => other,
    };
    ALPHABET.find(letter).and_then(|at| u8::try_from(at).ok())
}

/// Five bits of `bytes`, and of zeros after them.
fn digit_of(bytes: &[u8], at: usize) -> u8 {
    let (byte, bit) = (5 * at / 8, 5 * at % 8);
    let [high, low] = [byte, byte + 1].map(|at| bytes.get(at).copied().unwrap_or(0));
    let pair = u16::from_be_bytes([high, low]);
    u8::try_from(pair >> (11 - bit) & 31).expect("five bits")
}

struct InvitationCodeBits {
    bytes: Zeroizing<Vec<u8>>,
    held: u32,
    count: u32,
}

impl InvitationCodeBits {
    fn push(&mut self, digit: u8) {
        self.held = self.held << 5 | u32::from(digit);
        self.count += 5;
        if self.count >= 8 {
            self.count -= 8;
            self.bytes.push(u8::try_from(self.held >> self.count & 0xff).expect("eight bits"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invitation_code_round_trip_of_any_bytes() {
        for len in 0..40 {
            let bytes: Vec<u8> =
                (0..len).map(|at: u8| at.wrapping_mul(37).wrapping_add(200)).collect();
            let decoded = decode(&encode(&bytes)).unwrap();
            let (first, zeros) = decoded.split_at(bytes.len());
            assert_eq!(first, bytes);
            assert!(zeros.len() <= 4 && zeros.iter().all(|&zero| zero == 0));
        }
    }

    #[test]
    fn groups_are_separated_by_hyphens_or_by_nothing() {
        let text = encode(b"some bytes, and some more");
        let joined = format!("{PREFIX}{}", text[PREFIX.len()..].replace('-', ""));
        assert_eq!(decode(&joined).unwrap(), decode(&text).unwrap());
    }

    #[test]
    fn a_mistyped_group_of_an_invitation_is_named() {
        let text = encode(&[0; 12]);
        let groups = "sunder-mix-2-00000000-00000001-00000002";
        assert_eq!(**text, *groups);
        assert_eq!(decode(&groups.replace('0', "O")).unwrap(), decode(groups).unwrap());
        let error = |text: &str| decode(text).unwrap_err().to_string();
        let mistyped = |number, text| {
            format!("group {number} of the invitation, {text:?}, is mistyped or at the wrong place")
        };
        // The second and the third group are exchanged.
        assert_eq!(error("sunder-mix-2-00000000-00000002-00000001"), mistyped(2, "00000002"));
        assert_eq!(error("sunder-mix-2-00000000-00000002"), mistyped(2, "00000002"));
        // Two characters are exchanged.
        let text = encode(b"\x12\x34\x56\x78");
        let mut swapped = text[PREFIX.len()..].to_owned();
        let two = swapped[1..=2].chars().rev().collect::<String>();
        swapped.replace_range(1..=2, &two);
        assert_eq!(error(&format!("{PREFIX}{swapped}")), mistyped(1, &swapped));
        for (text, expected) in [
            (
                "sunder-mix-2-0000000-00000001",
                "group 1 of the invitation, \"0000000\", must have 8 characters",
            ),
            ("sunder-mix-2-00000000-", "group 2 of the invitation, \"\", must have 8 characters"),
            (
                "sunder-mix-2-0000u000",
                "group 1 of the invitation, \"0000u000\", contains 'u': none does",
            ),
            (
                "sunder-mix-2-0000\u{e9}000",
                "group 1 of the invitation, \"0000\u{e9}000\", contains '\u{e9}': none does",
            ),
            (
                "sunder-mix-3-00000000",
                "this invitation is of another version of the program: one begins with sunder-mix-2-",
            ),
            ("hello", "this is no invitation: one begins with sunder-mix-2-"),
        ] {
            assert_eq!(error(text), expected);
        }
        assert_eq!(decode(&"0".repeat(5000)).unwrap_err(), InvitationCodeError::TooLong);
    }
}
