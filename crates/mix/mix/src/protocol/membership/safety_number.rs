//! Safety numbers, by which two members check over another channel that each has the other's key.

use std::fmt;

use keys::IdentityPublicKey;
use sha2::{Digest, Sha512};
use subtle::ConstantTimeEq;

/// The number of groups of digits, and of digits in each.
const GROUPS: usize = 12;
const GROUP_DIGITS: usize = 5;

/// 60 digits that depend on the keys of two members and on their group. Both members see the same
/// number if each has the other's key. The administrator, who tells members the keys of others,
/// could otherwise give false ones. A false key with the same number takes about 2^199 attempts,
/// and two false keys with one number, one for each of the two members, about 2^99.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SafetyNumber([u8; GROUPS * GROUP_DIGITS]);

impl SafetyNumber {
    /// The number of the members with these keys, in any order, in the group with this identifier.
    pub fn new(group_id: &[u8; 32], one: &IdentityPublicKey, other: &IdentityPublicKey) -> Self {
        let mut keys = [one.to_bytes(), other.to_bytes()];
        keys.sort_unstable();
        let digest = Sha512::new()
            .chain_update(b"sunder mix safety number 1")
            .chain_update(group_id)
            .chain_update(keys.concat())
            .finalize();
        let mut digits = [0; GROUPS * GROUP_DIGITS];
        for (group, bytes) in digits.chunks_exact_mut(GROUP_DIGITS).zip(digest.chunks_exact(5)) {
            let value = bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
            let text = format!("{:0GROUP_DIGITS$}", value % 100_000);
            group.copy_from_slice(text.as_bytes());
        }
        Self(digits)
    }

    /// Whether a person has entered this number. Spaces and hyphens between digits are ignored.
    pub fn matches(&self, text: &str) -> bool {
        let entered: Vec<u8> =
            text.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'-').collect();
        self.0[..].ct_eq(&entered).into()
    }
}

impl fmt::Display for SafetyNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, group) in self.0.chunks_exact(GROUP_DIGITS).enumerate() {
            let separator = if number == 0 { "" } else { " " };
            write!(f, "{separator}{}", String::from_utf8_lossy(group))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use keys::IdentitySecretKey;

    use super::*;

    fn key(byte: u8) -> IdentityPublicKey {
        IdentitySecretKey::new(&[byte; 32]).public()
    }

    #[test]
    fn both_members_see_the_same_safety_number_and_no_others_do() {
        let number = SafetyNumber::new(&[1; 32], &key(2), &key(3));
        assert_eq!(number, SafetyNumber::new(&[1; 32], &key(3), &key(2)));
        for other in [
            SafetyNumber::new(&[2; 32], &key(2), &key(3)),
            SafetyNumber::new(&[1; 32], &key(2), &key(4)),
            SafetyNumber::new(&[1; 32], &key(4), &key(3)),
        ] {
            assert_ne!(number, other);
            assert!(!number.matches(&other.to_string()));
        }
        let text = number.to_string();
        assert_eq!((text.len(), text.split(' ').count()), (71, 12));
        for entered in [text.clone(), text.replace(' ', ""), text.replace(' ', "-\n")] {
            assert!(number.matches(&entered), "{entered}");
        }
        assert!(!number.matches("") && !number.matches(&text[..70]));
    }

    /// Computed by another program, from the public keys of two tests of RFC 8032.
    #[test]
    fn a_safety_number_is_that_of_the_specification() {
        let [one, other] = [
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        ]
        .map(|digits| digits.parse().unwrap());
        let number = SafetyNumber::new(&[1; 32], &one, &other).to_string();
        assert_eq!(
            number,
            "07338 86782 64613 73179 23505 54685 08759 15295 15086 00921 95597 77196"
        );
    }
}
