//! Which messages a server may sign.

mod rule;

use base16ct::HexDisplay;
use sha2::{Digest, Sha256};

use super::group::{GroupKeyKind, HEADER_MAGIC};
use super::replication::SERVICE_MAGIC;
use super::signing::MAX_MESSAGE_LEN;
use super::unix_seconds::UnixSeconds;

pub use rule::{
    CertificateRule, DocumentRule, FieldRequirement, InvalidFieldRequirement, SignableContent,
    SigningRule, TokenRule,
};

/// The SHA-256 of a whole message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MessageDigest(pub [u8; 32]);

impl MessageDigest {
    /// The digest of a message.
    pub fn of(message: &[u8]) -> Self {
        Self(Sha256::digest(message).into())
    }

    /// The digest with these 64 hexadecimal digits. `None` if they are not.
    pub fn from_hex(digits: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        let decoded = base16ct::mixed::decode(digits, &mut bytes).ok()?;
        (decoded.len() == 32).then_some(Self(bytes))
    }
}

impl std::fmt::Display for MessageDigest {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:x}", HexDisplay(&self.0))
    }
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
    /// It begins like a statement about a replicated service.
    #[error("the message begins like an answer of a replicated service, which only servers sign")]
    Service,
    /// It may be a digest, which OpenPGP signs with an Ed25519 key.
    #[error(
        "a message of {0} bytes could be the digest of an OpenPGP document, which Ed25519 keys sign \
         in its place: sign the file itself, or the digest in hexadecimal digits with a line break"
    )]
    Digest(usize),
    /// It is not registered, or not any more, and no rule allows it.
    #[error(
        "the message is not registered here, or not any more, and no rule of the configuration \
         allows it: register it at every server that is to sign it: sunder quorum register \
         --socket PATH FILE"
    )]
    NotRegistered,
}

/// The lengths of the digests that OpenPGP signs, in bytes: MD5, SHA-1, and SHA-2 or SHA-3.
const DIGEST_LENS: [usize; 6] = [16, 20, 28, 32, 48, 64];

/// Checks that a user's message may be registered where the group has a key of this kind.
///
/// # Errors
/// If it is too long, or begins like a header, or if the key's signature of it could be one of
/// OpenPGP of another message.
pub fn check_message(message: &[u8], key: GroupKeyKind) -> Result<(), MessageRefusal> {
    if message.len() > MAX_MESSAGE_LEN {
        return Err(MessageRefusal::TooLong);
    }
    if message.starts_with(&HEADER_MAGIC) {
        return Err(MessageRefusal::Header);
    }
    if message.starts_with(&SERVICE_MAGIC) {
        return Err(MessageRefusal::Service);
    }
    if key == GroupKeyKind::Ed25519 && DIGEST_LENS.contains(&message.len()) {
        return Err(MessageRefusal::Digest(message.len()));
    }
    Ok(())
}

/// Checks that a user's message may be signed, because it is registered or a rule allows it at this
/// time.
///
/// # Errors
/// If it may not be signed.
pub fn check_signable(
    message: &[u8],
    key: GroupKeyKind,
    rules: &[SigningRule],
    is_registered: bool,
    time: UnixSeconds,
) -> Result<(), MessageRefusal> {
    // Before any rule: no rule allows what only the servers themselves sign.
    check_message(message, key)?;
    if is_registered || rule::is_allowed(rules, message, time) {
        Ok(())
    } else {
        Err(MessageRefusal::NotRegistered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_registered_or_allowed_by_a_rule() {
        let rules = [SigningRule::with_prefix(b"release ", 12)];
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
            assert_eq!(
                check_signable(message, GroupKeyKind::Rsa, &rules, registered, UnixSeconds(0)),
                expected
            );
        }
    }

    #[test]
    fn headers_and_long_messages_are_rejected_despite_signing_rules() {
        let rules = [SigningRule::with_prefix(b"SNDR", usize::MAX)];
        let header = [&HEADER_MAGIC[..], b"..."].concat();
        assert_eq!(
            check_signable(&header, GroupKeyKind::Rsa, &rules, true, UnixSeconds(0)),
            Err(MessageRefusal::Header)
        );
        assert_eq!(check_message(&HEADER_MAGIC, GroupKeyKind::Rsa), Err(MessageRefusal::Header));
        assert_eq!(
            check_signable(&header[..15], GroupKeyKind::Rsa, &rules, false, UnixSeconds(0)),
            Ok(())
        );
        let statement = [&SERVICE_MAGIC[..], &[1]].concat();
        assert_eq!(
            check_signable(&statement, GroupKeyKind::Rsa, &rules, true, UnixSeconds(0)),
            Err(MessageRefusal::Service)
        );
        let long = vec![b'S'; MAX_MESSAGE_LEN + 1];
        assert_eq!(
            check_signable(&long, GroupKeyKind::Rsa, &rules, true, UnixSeconds(0)),
            Err(MessageRefusal::TooLong)
        );
        assert_eq!(check_message(&long[1..], GroupKeyKind::Rsa), Ok(()));
    }

    /// With an Ed25519 key, OpenPGP signs a digest as Ed25519 signs a message of its length.
    #[test]
    fn an_ed25519_key_signs_nothing_that_could_be_the_digest_of_openpgp() {
        let rules = [SigningRule::with_prefix(b"a", 100)];
        let check = |len, key| check_signable(&vec![b'a'; len], key, &rules, true, UnixSeconds(0));
        for len in [16, 20, 28, 32, 48, 64] {
            assert_eq!(check(len, GroupKeyKind::Ed25519), Err(MessageRefusal::Digest(len)));
            assert_eq!(check(len, GroupKeyKind::Rsa), Ok(()));
            assert_eq!(check(len + 1, GroupKeyKind::Ed25519), Ok(()));
        }
    }
}
