//! Names of accounts.

use std::fmt::{Display, Formatter};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The name of an account: 1 to 32 lower-case letters, digits and hyphens, of which the first is a
/// letter. So two names never look alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AccountName(String);

/// A text is no name of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a name has 1 to 32 lower-case letters, digits and hyphens, and begins with a letter")]
pub struct AccountNameError;

/// The maximum length of a name.
const MAX_LEN: usize = 32;

impl AccountName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for AccountName {
    type Error = AccountNameError;

    fn try_from(name: String) -> Result<Self, AccountNameError> {
        let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        let begins = name.starts_with(|first: char| first.is_ascii_lowercase());
        let is_name = begins && name.len() <= MAX_LEN && name.bytes().all(is_allowed);
        if is_name { Ok(Self(name)) } else { Err(AccountNameError) }
    }
}

impl FromStr for AccountName {
    type Err = AccountNameError;

    fn from_str(name: &str) -> Result<Self, AccountNameError> {
        name.to_owned().try_into()
    }
}

impl From<AccountName> for String {
    fn from(name: AccountName) -> Self {
        name.0
    }
}

impl Display for AccountName {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_words() {
        for name in ["a", "alice", "bob-2", &"x".repeat(32)] {
            assert_eq!(name.parse::<AccountName>().unwrap().as_str(), name);
        }
        let long = "x".repeat(33);
        for name in ["", "-a", "2a", "Alice", "a b", "a/..", "a\n", "ä", "a'", &long] {
            assert_eq!(name.parse::<AccountName>(), Err(AccountNameError), "{name}");
        }
    }
}
