//! Which messages a server may sign.

use base16ct::HexDisplay;
use sha2::{Digest, Sha256};

use super::group::HEADER_MAGIC;
use super::signing::MAX_MESSAGE_LEN;

/// The SHA-256 of a whole message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageDigest(pub [u8; 32]);

impl MessageDigest {
    /// The digest of a message.
    pub fn of(message: &[u8]) -> Self {
        Self(Sha256::digest(message).into())
    }
}

impl std::fmt::Display for MessageDigest {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:x}", HexDisplay(&self.0))
    }
}

/// A rule of a server's configuration. The server signs messages that match, even if they are not
/// registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningRule {
    /// The prefix that the messages must have. Not empty.
    pub prefix: Vec<u8>,
    /// The largest length of a message in bytes, including the prefix.
    pub max_len: usize,
}

/// Why a user's message is neither signed nor registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageRefusal {
    /// It is too long.
    #[error(
        "the message has more than {MAX_MESSAGE_LEN} bytes: sign a file with its SHA-256 instead"
    )]
    TooLong,
    /// It begins like a header.
    #[error("the message begins like a header of a group, which only the servers themselves sign")]
    Header,
    /// It is not registered, and no rule allows it.
    #[error(
        "the message is not registered here and no rule of the configuration allows it: register \
         it at every server that is to sign it: sunder quorum register --socket PATH FILE"
    )]
    NotRegistered,
}

/// Checks that a user's message may be registered.
///
/// # Errors
/// If it is too long, or begins like a header.
pub fn check_message(message: &[u8]) -> Result<(), MessageRefusal> {
    if message.len() > MAX_MESSAGE_LEN {
        return Err(MessageRefusal::TooLong);
    }
    if message.starts_with(&HEADER_MAGIC) {
        return Err(MessageRefusal::Header);
    }
    Ok(())
}

/// Checks that a user's message may be signed, because it is registered or a rule allows it.
///
/// # Errors
/// If it may not be signed.
pub fn check_signable(
    message: &[u8],
    rules: &[SigningRule],
    is_registered: bool,
) -> Result<(), MessageRefusal> {
    check_message(message)?;
    let is_allowed = rules.iter().any(|rule| rule.allows(message));
    if is_registered || is_allowed { Ok(()) } else { Err(MessageRefusal::NotRegistered) }
}

impl SigningRule {
    fn allows(&self, message: &[u8]) -> bool {
        message.len() <= self.max_len && message.starts_with(&self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_registered_or_allowed_by_a_rule() {
        let rules = [SigningRule { prefix: b"release ".to_vec(), max_len: 12 }];
        for (message, registered, expected) in [
            (&b"release 1.0"[..], false, Ok(())),
            (b"release 1.10", false, Ok(())),
            (b"release 1.100", false, Err(MessageRefusal::NotRegistered)),
            (b"release 1.100", true, Ok(())),
            (b"release", false, Err(MessageRefusal::NotRegistered)),
            (b" release 1.0", false, Err(MessageRefusal::NotRegistered)),
            (b"", false, Err(MessageRefusal::NotRegistered)),
            (b"", true, Ok(())),
        ] {
            assert_eq!(check_signable(message, &rules, registered), expected);
        }
    }

    #[test]
    fn headers_and_long_messages_are_rejected_despite_signing_rules() {
        let rules = [SigningRule { prefix: b"SNDR".to_vec(), max_len: usize::MAX }];
        let header = [&HEADER_MAGIC[..], b"..."].concat();
        assert_eq!(check_signable(&header, &rules, true), Err(MessageRefusal::Header));
        assert_eq!(check_message(&HEADER_MAGIC), Err(MessageRefusal::Header));
        assert_eq!(check_signable(&header[..15], &rules, false), Ok(()));
        let long = vec![b'S'; MAX_MESSAGE_LEN + 1];
        assert_eq!(check_signable(&long, &rules, true), Err(MessageRefusal::TooLong));
        assert_eq!(check_message(&long[1..]), Ok(()));
    }
}
